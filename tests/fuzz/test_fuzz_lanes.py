"""Random serial code keeps its results when lanes share it, in either order of the lanes.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the program.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse, print_func
from vkchi.ir.verify import verify
from vkchi.opt.loops import lanes
from vkchi.target.caps import FULL

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "30"))
WIDTH, N = 4, 7
NAMES = "xyz"
CAPS = FULL._replace(kind="cpu", subgroup_size=WIDTH)


class Program:
    """Random serial loops and branches over arrays of two axes, as IR text.

    Its arrays are fields, `noalias` arrays, or arrays that may share memory.
    """

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.kind = rng.choice(["field", "noalias", "shared"])
        self.count = 0
        self.lines: list[str] = []
        self.indices: list[str] = []
        self.values = ["%one", "%two"]
        self.place = self.define("local %one : ptr<f32 local>")
        self.block(0)
        body = "\n".join(self.lines)
        arrays = ", ".join(f"%{name}: {self.type()}" for name in NAMES)
        self.text = f"""func @f({arrays}, %n: i32, %m: i32) {{
%c0 = const 0 : i32
%c1 = const 1 : i32
%c2 = const 2 : i32
%c3 = const 3 : i32
%cN = const {N} : i32
%one = const 1.0 : f32
%two = const 2.0 : f32
{body}
yield
}}
"""

    def type(self) -> str:
        if self.kind == "field":
            return f"array<f32[{N},{N}] @(1%0*{N}|1%0*1;0;{N * N};)>"
        return "array<f32[??]>" + " noalias" * (self.kind == "noalias")

    def define(self, op: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {op}")
        return f"%v{self.count}"

    def index(self) -> str:
        """A random index, usually that of a loop around, perhaps shifted by 1."""
        rng = self.rng
        if not self.indices or rng.random() < 0.15:
            return rng.choice(["%c0", "%c1", "%m"])
        v = self.indices[-1] if rng.random() < 0.5 else rng.choice(self.indices)
        if rng.random() < 0.25:
            return self.define(f"{rng.choice(['add', 'sub'])} {v}, %c1 : i32")
        return v

    def elem(self, names: str) -> str:
        name = self.rng.choice(names)
        return self.define(f"elem %{name}, {self.index()}, {self.index()} : ptr<f32 global>")

    def block(self, depth: int) -> None:
        for _ in range(self.rng.randint(2, 4)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        rng, value = self.rng, self.rng.choice(self.values)
        kind = rng.random()
        if kind < 0.2:
            self.values.append(self.define(f"load {self.elem('xxyz')} : f32"))
        elif kind < 0.4:
            self.lines.append(f"store {self.elem('yz')}, {value}")
        elif kind < 0.45:
            self.lines.append(f"store {self.place}, {value}")
        elif kind < 0.5:
            self.values.append(self.define(f"load {self.place} : f32"))
        elif kind < 0.55:
            self.values.append(self.define(f"add {value}, %one : f32"))
        elif depth < 3:
            self.nest(depth, value)

    def nest(self, depth: int, value: str) -> None:
        """Append a branch, or a loop, which may carry `value`."""
        known, around = len(self.values), len(self.indices)
        rng, result = self.rng, ""
        if rng.random() < 0.2:
            one = [f"lt {value}, %two : u1", "lt %m, %c2 : u1"]
            self.lines.append(f"if {self.define(rng.choice(one))} {{")
            self.block(depth + 1)
            del self.values[known:]
            self.lines.append("yield\n} {")
            self.block(depth + 1)
            self.lines.append("yield\n}")
        else:
            begin, end = (rng.choice([usual, *self.indices]) for usual in ("%c0", "%cN"))
            if rng.random() < 0.4:
                begin = self.define(f"add {begin}, %c1 : i32")
            if rng.random() < 0.2:
                end = rng.choice(["%n", self.define(f"add {end}, %c1 : i32")])
            self.count += 1
            k, s = f"%k{self.count}", f"%s{self.count}"
            carries = rng.random() < 0.2
            result = f"%r{self.count}" if carries else ""
            more, given = (f", {value} : f32", f", {s}: f32") if carries else ("", "")
            prefix = f"{result} = " if carries else ""
            self.lines.append(f"{prefix}for {begin}, {end}{more} {{\n^({k}: i32{given})")
            self.indices.append(k)
            self.values += [s] * carries
            self.block(depth + 1)
            self.lines.append(f"yield {self.values[-1]}\n}}" if carries else "yield\n}")
        del self.values[known:], self.indices[around:]
        self.values += [result] * bool(result)


def arguments(program: Program, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {k: rng.integers(-3, 4, (N, N)).astype(np.float32) for k in NAMES}
    if program.kind == "shared" and seed % 2:
        found["y"] = found["x"]
    return {**found, "n": np.int32(rng.integers(0, N + 1)), "m": np.int32(rng.integers(0, 4))}


def backwards(text: str) -> str:
    """The IR text of a function shared by lanes, with the lanes in reverse order."""
    turned = "%lane = sub %most, %turn : i32"
    head, body = text.split("^(%lane: i32)")
    head = head.replace("{\n", f"{{\n%most = const {WIDTH - 1} : i32\n", 1)
    return f"{head}^(%turn: i32)\n{turned}{body}"


def check(seed: int) -> bool:
    """True if `share_lanes` changes the program; asserts that results stay the same."""
    program = Program(seed)
    (fn,) = parse(program.text).funcs
    verify(fn)
    new = lanes.share_lanes(fn, CAPS)
    if new is fn:
        return False
    verify(new)
    (turned,) = parse(backwards(print_func(new))).funcs
    for k in range(3):
        want = arguments(program, 3 * seed + k)
        run_reference(fn, want)
        for form in (new, turned):
            found = arguments(program, 3 * seed + k)
            run_reference(form, found)
            for name in NAMES:
                np.testing.assert_array_equal(found[name], want[name], f"{name}, {program.text}")
    return True


def test_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "is_worth_lanes", lambda *_, **__: True)
    assert sum(map(check, range(16 * PROGRAMS))) > PROGRAMS
