"""Nests of `if`s that are kept shallow write the same to memory, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.control.shallow import find_heights, limit_nesting
from vkchi.types import Array, Tensor, f32, i32, u1

SIZE = 8
DEEPEST = 5
V2 = Tensor.of(i32, (2,))


def deepest_in(fn: Func) -> int:
    return max(find_heights(fn.body).values(), default=0)


class Nest:
    """Builds a Func whose `if`s nest `depth` deep, with values, pointers and private places made
    at every level and used at others, in chains and otherwise."""

    def __init__(self, seed: int, depth: int) -> None:
        self.rng, self.b, self.depth = random.Random(seed), Builder(), depth
        self.x = Param(Array.of(i32, 1, (SIZE,)), "x")
        self.visible: list[Value] = []
        self.places: list[Value] = []

    def make(self) -> Func:
        with self.b.region() as body:
            self.number(self.b.const(3, i32))
            self.level(self.depth)
            self.b.emit("yield")
        return Func("f", (self.x,), body)

    def number(self, v: Value) -> Value:
        self.visible.append(v)
        return v

    def pick(self) -> Value:
        return self.rng.choice(self.visible[-12:])

    def work(self) -> None:
        """A few ops on visible values."""
        for _ in range(self.rng.randint(0, 3)):
            self.rng.choice((self.compute, self.touch, self.place, self.vector))()

    def compute(self) -> None:
        kind = self.rng.choice(("add", "sub", "mul"))
        self.number(self.b.emit(kind, self.pick(), self.pick()))

    def touch(self) -> None:
        k = self.b.emit("and", self.pick(), self.b.const(SIZE - 1, i32))
        self.places.append(self.b.emit("elem", self.x, k))
        self.use_place()

    def place(self) -> None:
        self.places.append(self.b.emit("local", self.pick()))
        self.use_place()

    def use_place(self) -> None:
        place = self.rng.choice(self.places[-4:])
        old = self.number(self.b.emit("load", place))
        self.b.emit("store", place, self.b.emit("add", old, self.pick()))

    def vector(self) -> None:
        v = self.b.emit("splat", self.pick(), type=V2)
        self.number(self.b.emit("extract", v, attr=1))

    def level(self, depth: int) -> None:
        self.work()
        if depth > 0 and self.rng.random() < 0.1:
            self.loop(depth - 1)
        elif depth > 0:
            self.branch(depth - 1)
        if self.rng.random() < 0.4:
            self.work()

    def inside(self, lower: Callable[[], None], region: Region) -> list[Value]:
        """Values that the region may yield; its own definitions are dropped."""
        marks = len(self.visible), len(self.places)
        with self.b.within(region):
            lower()
            values = [self.pick(), self.b.emit("splat", self.pick(), type=V2)]
        del self.visible[marks[0] :], self.places[marks[1] :]
        return values

    def branch(self, depth: int) -> None:
        odd = self.b.emit("and", self.pick(), self.b.const(1, i32))
        cond = self.b.emit("eq", odd, self.b.const(self.rng.randint(0, 1), i32))
        depths = [depth, self.rng.choice((0, 0, depth // 2))]
        self.rng.shuffle(depths)
        regions = (Region((), []), Region((), []))
        for region, each in zip(regions, depths, strict=True):
            given = self.inside(lambda each=each: self.level(each), region)
            with self.b.within(region):
                self.b.emit("yield", *given)
        op = self.b.if_(cond, *regions)
        self.number(op.results[0])
        self.number(self.b.emit("extract", op.results[1], attr=0))

    def loop(self, depth: int) -> None:
        i = Param(i32, "i")
        region = Region((i,), [])
        self.inside(lambda: self.level(depth), region)
        with self.b.within(region):
            self.b.emit("yield")
        self.b.for_(self.b.const(0, i32), self.b.const(2, i32), (), region)


@pytest.mark.parametrize("seed", range(16))
def test_random_nests_keep_their_results(seed: int) -> None:
    fn = Nest(seed, depth=20).make()
    verify(fn)
    flat = limit_nesting(fn, DEEPEST)
    verify(flat)
    assert deepest_in(fn) >= 20
    assert deepest_in(flat) <= DEEPEST + 13  # loops, and arms that are deep both, nest on
    start = np.random.default_rng(seed).integers(0, 9, SIZE).astype(np.int32)
    with np.errstate(over="ignore"):
        want, got = (run_reference(f, {"x": start.copy()}) for f in (fn, flat))
    assert np.array_equal(want["x"], got["x"])


def chain(length: int) -> Func:
    """`if x[0] == 0: y = 0.5` ... `elif` ..., and y stored."""
    x, y = Param(Array.of(i32, 1, (1,)), "x"), Param(Array.of(f32, 1, (1,)), "y")
    b = Builder()

    def arm(k: int) -> Op:
        here = b.emit("eq", b.emit("load", b.emit("elem", x, zero)), b.const(k, i32))
        with b.region() as then:
            b.emit("yield", b.const(k + 0.5, f32))
        return b.if_(here, then, regions.pop())

    with b.region() as body:
        zero = b.const(0, i32)
    with b.region() as last:
        b.emit("yield", b.const(-1.0, f32))
    regions: list[Region] = [last]
    for k in reversed(range(1, length)):
        with b.region() as orelse:
            b.emit("yield", *arm(k).results)
        regions.append(orelse)
    with b.within(body):
        result = arm(0).results[0]
        b.emit("store", b.emit("elem", y, zero), result)
        b.emit("yield")
    return Func("chain", (x, y), body)


def test_a_long_chain_is_a_row() -> None:
    fn = limit_nesting(chain(600))
    verify(fn)
    assert deepest_in(fn) <= 48
    for value in (0, 3, 47, 48, 300, 599, 600):
        args: dict[str, Any] = {"x": np.array([value], np.int32), "y": np.zeros(1, np.float32)}
        assert run_reference(fn, args)["y"][0] == (value + 0.5 if value < 600 else -1.0)


def test_shallow_nests_are_unchanged() -> None:
    fn = chain(40)
    assert limit_nesting(fn) is fn


def test_conditions_are_bools() -> None:
    fn = limit_nesting(chain(100))
    assert all(op.args[0].type is u1 for op in find_heights(fn.body) if op.kind == "if")
