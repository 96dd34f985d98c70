"""Fused loops have the results of the separate ones."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, Value
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func, print_func
from vkchi.ir.verify import verify
from vkchi.opt.loops.fusion import fuse_loops
from vkchi.target import tuning
from vkchi.types import Array, i32, with_shape
from vkchi.types.core import Attributes

PROGRAMS = 5 * int(os.environ.get("VKCHI_FUZZ", "60"))
NAMES = ("x", "y", "z")
EXTENT = 8  # of each array; loops have 6 iterations at most


class Program:
    """Random loops one after the other: each writes an element per iteration, or sums up, and reads
    arrays and private memory that it does not write, at any index.

    `places` are private numbers, and components of private vectors: a `local` and None or a number.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.b = random.Random(seed), Builder()
        attributes = Attributes(like="x", noalias=self.rng.random() < 0.8)
        self.arrays = {k: Param(Array.of(i32, 1), k, attributes) for k in NAMES}
        self.arrays["x"] = Param(Array.of(i32, 1), "x", attributes._replace(like=""))
        self.numbers: list[Value] = [Param(i32, "n")]
        self.places: list[tuple[Value, int | None]] = []
        self.summed: set[tuple[Value, int | None]] = set()  # places that the current loop adds to
        self.asked: set[tuple[Value, int | None]] = set()  # places that it reads
        params = (*self.arrays.values(), *self.numbers)
        with self.b.region() as body:
            self.make_local(self.b.const(1, i32), is_vector=False)
            self.make_local(self.b.const(2, i32), is_vector=True)
            for _ in range(self.rng.randint(2, 5)):
                self.loop()
                for _ in range(self.rng.choice((0, 0, 1, 2))):
                    self.between()
            self.keep_all()
            self.b.emit("yield")
        self.fn = Func("fuzz", tuple(params), body)

    def number(self, n: int) -> Value:
        return self.b.const(n, i32)

    def loop(self) -> None:
        b = self.b
        i = Param(i32, "i")
        begin = self.rng.choice((0, 0, 0, 1))
        last: Value = self.number(6) if self.rng.random() < 0.8 else b.emit(
            "sub", b.emit("shape", self.arrays["y"], attr=0), self.number(2)
        )  # fmt: skip
        first = self.number(begin)
        self.summed, self.asked = set(), set()
        with b.region(i) as body:
            target = self.rng.choice(NAMES)
            for _ in range(self.rng.randint(1, 3)):
                self.statement(i, target)
            b.emit("yield")
        b.parallel((first, last), body)

    def statement(self, i: Value, target: str) -> None:
        """One loop writes one array, at one place per iteration."""
        b, rng = self.b, self.rng
        own = self.index(i, random.Random(target).choice((0, 0, 0, 1, 2)))
        total = b.emit("add", self.read(i, target, own), rng.choice(self.numbers))
        choice = rng.random()
        free = [place for place in self.places if place not in self.asked]
        if choice < 0.35 and free:
            place = rng.choice(free)
            self.summed.add(place)
            b.emit("atomic_add", self.pointer(place), total)
        elif choice < 0.45:
            b.emit("atomic_add", b.emit("elem", self.arrays[target], own), total)
        else:
            b.emit("store", b.emit("elem", self.arrays[target], own), total)

    def read(self, i: Value, target: str, own: Value) -> Value:
        known = [place for place in self.places if place not in self.summed]
        if known and self.rng.random() < 0.3:
            place = self.rng.choice(known)
            self.asked.add(place)
            return self.b.emit("load", self.pointer(place))
        name = self.rng.choice(NAMES)
        index = own if name == target else self.index(i, self.rng.choice((0, 0, 0, 0, 1, 2, 3, 4)))
        return self.b.emit("load", self.b.emit("elem", self.arrays[name], index))

    def index(self, i: Value, form: int) -> Value:
        """Inside the array, whatever the iteration."""
        b = self.b
        if form == 3:
            return self.number(2)
        if form == 4:
            return b.emit("floordiv", i, self.number(2))
        if form == 2:
            return b.emit("sub", self.number(EXTENT - 1), i)
        return i if form == 0 else b.emit("add", i, self.number(1))

    def between(self) -> None:
        """Something that one invocation does."""
        b, rng = self.b, self.rng
        choice = rng.random()
        if choice < 0.3:
            self.numbers.append(b.emit("mul", rng.choice(self.numbers), self.number(3)))
        elif choice < 0.5:
            self.numbers.append(b.emit("load", self.pointer(rng.choice(self.places))))
        elif choice < 0.7:
            self.make_local(rng.choice(self.numbers), is_vector=rng.random() < 0.5)
        else:
            place = b.emit("elem", self.arrays[rng.choice(NAMES)], self.number(rng.randint(0, 7)))
            if rng.random() < 0.5:
                b.emit("store", place, rng.choice(self.numbers))
            else:
                self.numbers.append(b.emit("load", place))

    def make_local(self, first: Value, *, is_vector: bool) -> None:
        t = with_shape(i32, (2,))
        local = self.b.emit("local", self.b.emit("splat", first, type=t) if is_vector else first)
        self.places += [(local, k) for k in ((0, 1) if is_vector else (None,))]

    def pointer(self, place: tuple[Value, int | None]) -> Value:
        local, k = place
        return local if k is None else self.b.emit("member", local, attr=k)

    def keep_all(self) -> None:
        """Contents of private memory are results."""
        for k, place in enumerate(self.places[:EXTENT]):
            to = self.b.emit("elem", self.arrays["x"], self.number(k))
            self.b.emit("atomic_add", to, self.b.emit("load", self.pointer(place)))


def count_loops(fn: Func) -> int:
    return sum(op.kind == "parallel" for op in fn.body.ops)


def arguments(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arrays = {k: rng.integers(-9, 10, EXTENT).astype(np.int32) for k in NAMES}
    return {**arrays, "n": np.int32(seed % 7)}


def test_random_loops_keep_results() -> None:
    fused = 0
    for seed in range(PROGRAMS):
        fn = Program(seed).fn
        verify(fn)
        after = fuse_loops(fn)
        verify(after)
        want, got = run_reference(fn, arguments(seed)), run_reference(after, arguments(seed))
        for name in NAMES:
            text = f"seed {seed}\n{print_func(fn)}\nbecomes\n{print_func(after)}"
            assert (want[name] == got[name]).all(), text
        fused += count_loops(after) < count_loops(fn)
    assert fused > PROGRAMS // 5


def loops(*bodies: str) -> Func:
    """A Func of loops with these bodies, in which the quotation mark is the number of the loop."""
    head = """func @f(%x: array<f32[?]> noalias, %y: array<f32[?]> like x noalias, \
%n: i32, %m: i32) {
  %c0 = const 0 : i32
"""
    parts = [
        f"  parallel %c0, %n {{\n    ^(%i': i32)\n{body}\n    yield\n  }}\n".replace("'", str(k))
        for k, body in enumerate(bodies)
    ]
    fn = parse_func(head + "".join(parts) + "  yield\n}\n")
    verify(fn)
    return fn


LOAD = "    %p' = elem %x, %i' : ptr<f32 global>\n    %v' = load %p' : f32\n"
KEEP = LOAD + "    store %p', %v'"
SUM = """    for %c0, %m {
      ^(%k': i32)
      %q' = elem %x, %k' : ptr<f32 global>
      %w' = load %q' : f32
      %r' = elem %y, %i' : ptr<f32 global>
      store %r', %w'
      yield
    }"""


def test_loops_with_loops_stay_apart() -> None:
    both = loops(SUM, SUM)
    assert fuse_loops(both) is both


def test_long_loops_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = loops(KEEP, KEEP)
    assert count_loops(fuse_loops(fn)) == 1
    monkeypatch.setattr(tuning, "FUSE_SHARED", 3)
    assert fuse_loops(fn) is fn


@pytest.mark.parametrize("op", ["%t' = random : u32", "%t' = thread_index : i32", "barrier"])
def test_unmovable_ops_keep_their_order(op: str) -> None:
    fn = loops(KEEP, f"{LOAD}    {op}\n    store %p', %v'")
    assert fuse_loops(fn) is fn


def test_func_of_one_loop_is_unchanged() -> None:
    fn = loops(KEEP)
    assert fuse_loops(fn) is fn


def pairs(first: str, second: str) -> Func:
    """Two loops on a private vector of nine."""
    fn = parse_func(f"""func @f(%x: array<f32[?]> noalias, %n: i32) {{
  %c0 = const 0 : i32
  %z = const [{", ".join(["0.0"] * 9)}] : f32<9>
  %v = local %z : ptr<f32<9> local>
  parallel %c0, %n {{
    ^(%i: i32)
    %e = const 1.0 : f32
    {first}
    yield
  }}
  parallel %c0, %n {{
    ^(%j: i32)
    %p = elem %x, %j : ptr<f32 global>
    {second}
    store %p, %w
    yield
  }}
  yield
}}
""")
    verify(fn)
    return fn


def test_loops_that_sum_into_one_private_matrix_are_fused() -> None:
    """A Jacobian of 3 by 3 has 81 pairs of components."""

    def sums(name: str, v: str) -> str:
        return "".join(
            f"%{name}{k} = member %v [{k}] : ptr<f32 local>\n"
            f"%{name}s{k} = atomic_add %{name}{k}, {v} : f32\n"
            for k in range(9)
        )

    two = "%w = const 2.0 : f32\n"
    fn = pairs(sums("a", "%e"), two + sums("b", "%w"))
    assert count_loops(fn) == 2 and count_loops(fuse_loops(fn)) == 1


def test_loops_that_share_one_component_of_private_memory_stay_apart() -> None:
    a = "%a = member %v [0] : ptr<f32 local>\n    %s = atomic_add %a, %e : f32\n"
    b = "    %b = member %v [1] : ptr<f32 local>\n    %t = atomic_add %b, %e : f32\n"
    c = "%c = member %v [1] : ptr<f32 local>\n    %w = load %c : f32\n"
    fn = pairs(a + b, c)
    assert fuse_loops(fn) is fn
    assert count_loops(fuse_loops(pairs(a, c))) == 1
