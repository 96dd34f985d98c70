"""Passes on random loops that add to shifted or loop-indexed elements keep the memory's contents.

The passes expand scalars, distribute loops and turn scatters into gathers. Values are small whole
numbers, so that sums do not depend on the order and agree bit for bit.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the seed.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from vkchi.ir.core import Func
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse
from vkchi.ir.verify import verify
from vkchi.opt.loops.scatter import distribute, expand
from vkchi.opt.loops.scatter import gather as gathers
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.target import tuning
from vkchi.target.caps import FULL

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "30"))
N = 6
NAMES = "xyz"


class Program:
    """A random parallel loop over one or two axes, as IR text.

    Its arrays are fields, `noalias` arrays, or arrays that may share memory.
    """

    def __init__(self, seed: int, *, is_counted: bool = False) -> None:
        self.is_counted = is_counted  # all extents are constants
        rng = self.rng = random.Random(seed)
        self.axes = rng.randint(1, 2)
        self.kind = rng.choice(["field", "noalias", "shared"])
        self.count = 0
        self.lines: list[str] = []
        self.indices = [f"%i{k}" for k in range(self.axes)]
        self.serial: list[str] = []
        self.values = ["%one", "%two"]
        ends = ", ".join(v for _ in self.indices for v in self.ends())
        params = ", ".join(f"{i}: i32" for i in self.indices)
        self.place = self.define("local %one : ptr<f32 local>")
        self.block(0)
        body = "\n".join(self.lines)
        arrays = ", ".join(f"%{name}: {self.type()}" for name in NAMES)
        self.text = f"""func @f({arrays}, %n: i32, %m: i32) {{
%c0 = const 0 : i32
%c1 = const 1 : i32
%c2 = const 2 : i32
%c5 = const 5 : i32
%cN = const {N} : i32
%one = const 1.0 : f32
%two = const 2.0 : f32
parallel {ends} {{
^({params})
{body}
yield
}}
yield
}}
"""

    def type(self) -> str:
        if self.kind == "field":
            layout = f"1%0*{N}|1%0*1;0;{N * N};" if self.axes == 2 else f"1%0*1;0;{N};"
            return f"array<f32[{','.join([str(N)] * self.axes)}] @({layout})>"
        return f"array<f32[{'?' * self.axes}]>" + " noalias" * (self.kind == "noalias")

    def ends(self) -> tuple[str, str]:
        begin, end = ["%c0", "%c0", "%c1", "%m"], ["%cN", "%c5", "%n"]
        known = -1 if self.is_counted else None
        return self.rng.choice(begin[:known]), self.rng.choice(end[:known])

    def define(self, op: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {op}")
        return f"%v{self.count}"

    def index(self, k: int) -> str:
        """An index for axis `k`, usually the iteration's with a small shift."""
        rng, v = self.rng, self.indices[k]
        kind = rng.random()
        if self.serial and kind < 0.2:
            return rng.choice(self.serial)
        if kind < 0.25:
            return v
        if kind < 0.65:
            return self.define(
                f"{rng.choice(['add', 'sub'])} {v}, {rng.choice(['%c1', '%c2'])} : i32"
            )
        if kind < 0.75 and self.serial:
            return self.define(f"add {v}, {rng.choice(self.serial)} : i32")
        if kind < 0.85:
            moved = self.define(f"{rng.choice(['add', 'sub'])} {v}, %c1 : i32")
            return self.define(f"mod {moved}, {rng.choice(['%cN', '%cN', '%n'])} : i32")
        if kind < 0.9:
            moved = self.define(f"{rng.choice(['add', 'sub'])} {v}, %c1 : i32")
            if rng.random() < 0.6:
                moved = self.define(f"max {moved}, {rng.choice(['%c0', '%c1'])} : i32")
            return self.define(f"min {moved}, {rng.choice(['%c5', '%c5', '%c2', '%m'])} : i32")
        if kind < 0.93:
            return self.define(f"sub %c5, {v} : i32")
        if kind < 0.97:
            moved = self.define(f"add {v}, {rng.choice(['%c0', '%c1', '%c2'])} : i32")
            return self.define(f"floordiv {moved}, {rng.choice(['%c2', '%c2', '%c5'])} : i32")
        return rng.choice([*self.serial, *self.indices, "%c1", "%m"])

    def own(self) -> str:
        return ", ".join(self.indices)

    def elem(self, name: str, *, is_own: bool = False) -> str:
        at = self.own() if is_own else ", ".join(self.index(k) for k in range(self.axes))
        return self.define(f"elem %{name}, {at} : ptr<f32 global>")

    def block(self, depth: int) -> None:
        for _ in range(self.rng.randint(2, 6)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        rng, value = self.rng, self.rng.choice(self.values)
        kind = rng.random()
        if kind < 0.4:
            self.define(f"atomic_add {self.elem(rng.choice('xxxy'))}, {value} : f32")
        elif kind < 0.6:
            place = self.elem(rng.choice("xyyyzz"), is_own=rng.random() < 0.5)
            self.values.append(self.define(f"load {place} : f32"))
        elif kind < 0.65:
            self.lines.append(
                f"store {self.elem(rng.choice('yz'), is_own=rng.random() < 0.8)}, {value}"
            )
        elif kind < (0.8 if self.is_counted else 0.7):
            old = self.define(
                f"atomic_exchange {self.elem(rng.choice('yz'), is_own=True)}, %one : f32"
            )
            self.values.append(old)
        elif kind < 0.75:
            self.lines.append(f"store {self.place}, {value}")
        elif kind < 0.8:
            self.values.append(self.define(f"load {self.place} : f32"))
        elif kind < 0.85:
            self.values.append(self.define(f"add {value}, %one : f32"))
        elif depth < 2:
            self.nest(depth, value)

    def nest(self, depth: int, value: str) -> None:
        """Append a branch on the index or on `value`, or a serial loop, which may carry `value`."""
        known, serial = len(self.values), len(self.serial)
        if self.rng.random() < 0.5:
            one = [f"lt {self.indices[0]}, %c2 : u1", f"lt {value}, %two : u1"]
            self.lines.append(f"if {self.define(self.rng.choice(one))} {{")
            self.block(depth + 1)
            del self.values[known:]
            self.lines.append("yield\n} {")
            self.block(depth + 1)
            self.lines.append("yield\n}")
        else:
            self.count += 1
            k, s, r = f"%k{self.count}", f"%s{self.count}", f"%r{self.count}"
            carries = self.rng.random() < 0.3
            end = self.rng.choice(["%c2", "%c2", "%c2" if self.is_counted else "%m"])
            more, given = (f", {value} : f32", f", {s}: f32") if carries else ("", "")
            prefix = f"{r} = " if carries else ""
            head = f"{prefix}for %c0, {end}{more} {{\n^({k}: i32{given})"
            self.lines.append(head)
            self.serial.append(k)
            self.values += [s] * carries
            self.block(depth + 1)
            self.lines.append(f"yield {self.values[-1]}\n}}" if carries else "yield\n}")
        del self.values[known:], self.serial[serial:]
        if self.lines[-1].startswith("yield %"):
            self.values.append(r)


def arguments(program: Program, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shape = (N,) * program.axes
    found: dict[str, Any] = {k: rng.integers(-3, 4, shape).astype(np.float32) for k in NAMES}
    if program.kind == "shared" and seed % 2:
        found["y"] = found["x"]
    return {**found, "n": np.int32(rng.integers(0, N + 1)), "m": np.int32(rng.integers(0, 4))}


def check(seed: int) -> bool:
    """True if the passes change the program; asserts that they keep its results."""
    program = Program(seed)
    (fn,) = parse(program.text).funcs
    verify(fn)
    new = gathers.scatter_to_gather(
        distribute.distribute(expand.expand_scalars(fn, FULL), FULL), FULL
    )
    return new is not fn and compare(program, fn, new, seed)


def check_expanded(seed: int) -> bool:
    """True if scalar expansion changes the program; asserts that results stay the same."""
    program = Program(seed, is_counted=True)
    (fn,) = parse(program.text).funcs
    new = expand.expand_scalars(fn, FULL)
    if new is fn:
        return False
    compare(program, fn, new, seed)
    return compare(
        program, fn, gathers.scatter_to_gather(distribute.distribute(new, FULL), FULL), seed
    )


def compare(program: Program, fn: Func, new: Func, seed: int) -> bool:
    """Assert that both functions leave the same memory for three sets of arguments; True."""
    verify(new)
    new = remove_dead(new)
    verify(new)
    for k in range(3):
        want, found = (arguments(program, 3 * seed + k) for _ in range(2))
        run_reference(fn, want)
        run_reference(new, found)
        for name in NAMES:
            np.testing.assert_array_equal(found[name], want[name], f"{name}, {program.text}")
    return True


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the passes apply every valid transformation, profitable or not."""
    for module in (gathers, distribute):
        monkeypatch.setattr(module, "is_worth_gathering", lambda *_: True)
    monkeypatch.setattr(tuning, "UNROLL_SUM_ITERATIONS", 0)
    monkeypatch.setattr(expand, "is_worth_expanding", lambda *_: True)


def test_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    assert sum(map(check, range(20 * PROGRAMS))) > PROGRAMS


def test_scalar_expansion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scalars are expanded even where nothing gathers the sums afterwards."""
    always(monkeypatch)
    monkeypatch.setattr(expand, "costs_in", lambda *_: {})
    monkeypatch.setattr(expand, "costs_behind", lambda cut, _: dict.fromkeys(cut.sums, 0.0))
    monkeypatch.setattr(expand, "is_known", lambda *_: True)
    assert sum(map(check_expanded, range(20 * PROGRAMS))) > PROGRAMS
