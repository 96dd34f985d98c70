"""Claims of `analysis.memory.dependence` and `must_write` hold for the indices of random programs.

The claims: two iterations never access the same element; certain elements are always written. The
indices come from running the program in the interpreter.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the seed.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest

from vkchi.analysis.memory.boxes import Covered
from vkchi.analysis.memory.dependence import DependenceTest
from vkchi.analysis.memory.must_write import MustWrite
from vkchi.analysis.memory.segments import find_segments
from vkchi.ir import interp
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.ops import DIVISIONS
from vkchi.ir.text import print_func
from vkchi.types import Array, f32, i32, i64

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "30"))
LAST = 2**31 - 1
ARRAYS = {"x": Array.of(f32, 1), "y": Array.of(f32, 2)}
NUMBERS = ("n", "m", "big")
CONSTANTS = (1, 1, 2, 2, 3, 4, 5, 8, -1, -2, 7, 65536, 2**30, LAST, -LAST - 1)
BINARY = "add add add sub sub mul mul mul floordiv mod mod truncdiv rem min max and shl".split()


class Program:
    """A random parallel loop over one or two axes, and stores in it."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = random.Random(seed), Builder()
        self.params = {k: Param(t, k) for k, t in ARRAYS.items()}
        self.params |= {k: Param(i32, k) for k in NUMBERS}
        self.ints: list[Value] = []
        b = self.b
        with b.region() as body:
            shape = [b.emit("shape", self.params["y"], attr=k) for k in (0, 1)]
            self.given = [self.params["n"], self.params["m"], *shape]
            self.given.append(b.emit("add", shape[0], b.const(1, i32)))
            self.given.append(b.emit("mul", *shape))
            indices = [Param(i32, f"i{k}") for k in range(self.rng.randint(1, 2))]
            bounds = [v for _ in indices for v in self.bounds()]
            with b.region(*indices) as inner:
                self.ints = [*indices, *indices]
                self.block(0)
                b.emit("yield")
            self.loop = b.parallel(bounds, inner)
            b.emit("yield")
        self.fn = Func("fuzz", tuple(self.params.values()), body)

    def constant(self) -> Value:
        return self.b.const(self.rng.choice(CONSTANTS), i32)

    def bounds(self) -> tuple[Value, Value]:
        """Begin and end of a loop of few iterations, sometimes near the ends of i32."""
        b, rng = self.b, self.rng
        few = rng.choice([*self.given[:4], *self.given, b.const(rng.randint(1, 4), i32)])
        begin = rng.choice([None, None, None, 1, -3, LAST - 30, 5 - LAST, "big"])
        if begin is None:
            return b.const(0, i32), few
        first = self.params[begin] if isinstance(begin, str) else b.const(begin, i32)
        return first, b.emit("add", first, few)

    def block(self, depth: int) -> None:
        for _ in range(self.rng.randint(2, 5)):
            choice = self.rng.random()
            if choice < 0.2 and depth < 2:
                i = Param(i32, "s")
                ends = self.bounds()
                with self.b.region(i) as body:
                    count = len(self.ints)
                    self.ints += [i, i]
                    self.block(depth + 1)
                    del self.ints[count:]
                    self.b.emit("yield")
                self.b.for_(*ends, (), body)
            elif choice < 0.6:
                self.ints.append(self.number())
            else:
                name = self.rng.choice("xxy")
                keys = [self.index() for _ in range(ARRAYS[name].ndim)]
                place = self.b.emit("elem", self.params[name], *keys)
                self.b.emit("store", place, self.b.const(1.0, f32))

    def index(self) -> Value:
        v = self.number() if self.rng.random() < 0.7 else self.rng.choice(self.ints)
        return self.b.emit("cast", v, type=i64) if self.rng.random() < 0.1 else v

    def number(self) -> Value:
        b, rng = self.b, self.rng
        kind = rng.random()
        if kind < 0.25:  # i * n + j
            at = b.emit("mul", rng.choice(self.ints), rng.choice([*self.given, self.constant()]))
            return b.emit("add", at, rng.choice(self.ints))
        if kind < 0.3:
            wide = b.emit("cast", rng.choice(self.ints), type=i64)
            return b.emit("cast", b.emit("mul", wide, b.const(rng.choice((2, 3)), i64)), type=i32)
        others = [*self.ints, *self.given, self.constant(), self.constant(), self.constant()]
        return b.emit(rng.choice(BINARY), rng.choice(self.ints), rng.choice(others))


def indices_of(program: Program, monkeypatch: pytest.MonkeyPatch, args: dict[str, Any]) -> Any:
    """Per `elem` op and indices, modulo 2**32, the iterations that compute them.

    Empty if the program divides by 0, which is undefined. Runs the program on `args`.
    """
    found: dict[Op, dict[tuple[int, ...], set[Any]]] = defaultdict(lambda: defaultdict(set))
    zero: list[Op] = []
    compute, own = interp.Invocation.value, program.loop.regions[0].params

    def value(self: Any, op: Op) -> Any:
        if op.kind == "elem":
            at = tuple(int(self.env[v]) % 2**32 for v in op.args[1:])
            found[op][at].add(tuple(int(self.env[p]) for p in own))
        zero.extend(op for v in op.args[1:] if op.kind in DIVISIONS and self.env[v] == 0)
        return compute(self, op)

    with monkeypatch.context() as patch:
        patch.setattr(interp.Invocation, "value", value)
        interp.run_reference(program.fn, args)
    return defaultdict(dict) if zero else found


def arguments(rng: np.random.Generator) -> dict[str, Any]:
    shape = rng.integers(1, 4, 2)
    return {
        "x": np.zeros(rng.integers(1, 9), np.float32), "y": np.zeros(shape, np.float32),
        "n": rng.integers(-1, 5), "m": rng.integers(0, 4),
        "big": rng.choice([0, 1, 2, LAST - 30, 5 - LAST]),
    }  # fmt: skip


def meet(some: Any, others: Any) -> bool:
    """True if two iterations accessed the same element."""
    return any(len(ids | others[at]) > 1 for at, ids in some.items() if at in others)


def check(program: Program, found: Any) -> tuple[int, int]:
    """Number of pairs of accesses claimed to be disjoint, and of all pairs to one array.

    Asserts that iterations observed in `found` do not contradict a claim.
    """
    survey = DependenceTest(program.loop.regions[0].ops, program.loop)
    ops = [op for op in walk(program.loop.regions[0]) if op.kind == "elem"]
    claims = count = 0
    for k, a in enumerate(ops):
        for b in ops[k:]:
            if a.args[0] is not b.args[0]:
                continue
            count += 1
            claim = survey.never_meet(a.args[0], a, b)
            claims += claim
            assert not (claim and meet(found[a], found[b])), f"%{a.name} and %{b.name}"
    return claims, count


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_elements_of_iterations(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    program, rng = Program(seed), np.random.default_rng(seed)
    for _ in range(3):
        found = indices_of(program, monkeypatch, arguments(rng))
        try:
            check(program, found)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}\n{print_func(program.fn)}") from None


def covered(program: Program, args: dict[str, Any]) -> list[Covered]:
    """Boxes claimed to be overwritten by a launch, of less than 10,000 elements each."""
    numbers = {k: int(args[k]) for k in NUMBERS}
    covers = MustWrite(program.fn, find_segments(program.fn))
    boxes = covers.boxes(numbers, {k: args[k] for k in ARRAYS})
    return [c for c in boxes if math.prod(high - low + 1 for low, high in c.box) < 10_000]  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_must_write_claims_hold(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    program, rng = Program(seed), np.random.default_rng(seed)
    for _ in range(3):
        args = arguments(rng)
        found = indices_of(program, monkeypatch, args)
        for claim in covered(program, args) if found else ():
            ops = [op for op in found if op.args[0].name == claim.name]
            stored = {at for op in ops for at in found[op]}
            ranges = [range(r[0], r[1] + 1) for r in claim.box if r is not None]
            missing = [at for at in product(*ranges) if tuple(n % 2**32 for n in at) not in stored]
            assert not missing, f"seed {seed}: {claim}, not {missing[0]}\n{print_func(program.fn)}"


def test_parts_are_claimed_to_be_overwritten() -> None:
    claims = [covered(Program(seed), arguments(np.random.default_rng(seed))) for seed in range(60)]
    assert sum(map(bool, claims)) > 20


def test_disjointness_is_claimed_for_some_programs() -> None:
    programs = [Program(seed) for seed in range(60)]
    claims = [check(p, defaultdict(dict)) for p in programs]
    assert sum(c for c, _ in claims) * 6 > sum(n for _, n in claims)
