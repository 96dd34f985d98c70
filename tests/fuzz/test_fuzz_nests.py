"""Random loops over two or three axes whose accesses disagree about the fastest axis: passes, the
pipeline and the device keep their results, bit for bit.

Extents are tiny, mostly odd; thresholds of passes are lower still. Arrays have elements of 1, 2 and
4 bytes, and permuted axes. Each iteration writes elements of its own, or adds to integers.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.fuzz.test_fuzz import NARROW, plain_functions, small_machine
from tests.ops.launch import lacks_of, launch_program
from vkchi.cli.ir import apply_pass
from vkchi.device import Device, open_device
from vkchi.ir.core import Func, Program
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse, print_program
from vkchi.ir.verify import verify_program
from vkchi.opt import pipeline
from vkchi.target.caps import FULL, Caps
from vkchi.target.options import Options
from vkchi.types import scalar_named

__all__ = ["plain_functions", "small_machine"]  # fixtures of all tests here
PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "20"))
PASSES = ("interchange", "jam", "narrow", "strips")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17)
TYPES = ("f32", "i32", "u32", "u8", "i8", "u16", "i16")
PLAIN = ("f32", "i32", "u32")  # that all devices store


class Nest:
    """A random loop: `text` of its Func, and arguments for it."""

    def __init__(self, seed: int, types: tuple[str, ...] = TYPES) -> None:
        self.rng, self.types = random.Random(f"nests {seed}"), types
        rng = self.rng
        self.axes = "ijk"[: rng.choice((2, 2, 3))]
        self.begins = {a: rng.choice((0, 0, 1, 2)) for a in self.axes}
        extents = EXTENTS if len(self.axes) == 2 else EXTENTS[:6]
        self.extents = {a: rng.choice(extents) for a in self.axes}
        self.arrays: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.lines: list[str] = []
        self.count = 0
        value = self.value()
        for _ in range(rng.randint(1, 3)):
            value = self.emit(f"{rng.choice(('add', 'sub', 'mul', 'max', 'xor'))} {value},"
                              f" {self.value()} : i32")  # fmt: skip
        self.store(value, "  " if rng.random() < 0.3 else "")
        if rng.random() < 0.3:
            self.store(self.value(), "")
        if rng.random() < 0.3:
            self.atomic(value)
        self.text = self.whole()

    def whole(self) -> str:
        params = ", ".join(
            f"%{name}: array<{t}[{','.join(map(str, shape))}]> noalias"
            for name, (t, shape) in self.arrays.items()
        )
        numbers = sorted({*self.begins.values(), *self.ends().values(), *range(4)})
        consts = [f"  %n{n}_ = const {n} : i32" for n in numbers]
        bounds = ", ".join(f"%n{self.begins[a]}_, %n{self.ends()[a]}_" for a in self.axes)
        indices = ", ".join(f"%{a}: i32" for a in self.axes)
        return "\n".join([
            f"func @nest({params}) {{", *consts, f"  parallel {bounds} {{", f"    ^({indices})",
            *[f"    {line}" for line in self.lines], "    yield", "  }", "  yield", "}", "",
        ])  # fmt: skip

    def ends(self) -> dict[str, int]:
        return {a: self.begins[a] + self.extents[a] for a in self.axes}

    def emit(self, op: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {op}")
        return f"%v{self.count}"

    def array(self, axes: str, room: int) -> str:
        """A new array with these axes, and `room` more elements along each."""
        name = f"x{len(self.arrays)}"
        shape = tuple(self.ends()[a] + room for a in axes)
        self.arrays[name] = self.rng.choice(self.types), shape
        return name

    def load(self, name: str, axes: str, offsets: dict[str, int]) -> str:
        indices = [
            self.emit(f"add %{a}, %n{offsets[a]}_ : i32") if offsets[a] else f"%{a}" for a in axes
        ]
        t = self.arrays[name][0]
        at = self.emit(f"elem %{name}, {', '.join(indices)} : ptr<{t} global>")
        v = self.emit(f"load {at} : {t}")
        return v if t == "i32" else self.emit(f"cast {v} : i32")

    def value(self) -> str:
        """The sum of loads from one array: along a permutation of axes, from near elements. In a
        third of the cases they are in a serial loop, in another third behind a condition."""
        rng = self.rng
        axes = "".join(rng.sample(self.axes, rng.choice((len(self.axes), len(self.axes), 1))))
        name, total = self.array(axes, 2), ""
        kind = rng.choice(("plain", "for", "if"))
        if kind == "for":
            return self.serial(name, axes)
        if kind == "if":
            condition = self.emit(f"gt {self.value()}, %n2_ : u1")
            branch = self.emit(f"if {condition} : i32 {{")
            inner = self.load(name, axes, dict.fromkeys(axes, rng.choice((0, 1))))
            self.lines += [f"yield {inner}", "} {", "yield %n0_", "}"]
            return branch
        for _ in range(rng.randint(1, 3)):
            v = self.load(name, axes, {a: rng.choice((0, 0, 1, 2)) for a in axes})
            total = self.emit(f"add {total}, {v} : i32") if total else v
        return total

    def serial(self, name: str, axes: str) -> str:
        """A loop over up to three neighbours along the last axis."""
        k, s = (self.emit("").split(" ")[0] for _ in range(2))
        del self.lines[-2:]
        total = self.emit(f"for %n0_, %n{self.rng.randint(1, 3)}_, %n0_ : i32 {{")
        self.lines.append(f"^({k}: i32, {s}: i32)")
        *slow, last = axes
        at = self.emit(f"add %{last}, {k} : i32")
        t = self.arrays[name][0]
        place = self.emit(
            f"elem %{name}, {', '.join([*(f'%{a}' for a in slow), at])} : ptr<{t} global>"
        )
        v = self.emit(f"load {place} : {t}")
        v = v if t == "i32" else self.emit(f"cast {v} : i32")
        self.lines += [f"yield {self.emit(f'add {s}, {v} : i32')}", "}"]
        return total

    def own_element(self) -> tuple[str, str]:
        axes = "".join(self.rng.sample(self.axes, len(self.axes)))
        return self.array(axes, self.rng.choice((0, 0, 1))), axes

    def store(self, value: str, indent: str) -> None:
        name, axes = self.own_element()
        t = self.arrays[name][0]
        if self.rng.random() < 0.3:
            old = self.load(name, axes, dict.fromkeys(axes, 0))
            value = self.emit(f"add {old}, {value} : i32")
        v = value if t == "i32" else self.emit(f"cast {value} : {t}")
        if indent:
            self.lines.append(f"if {self.emit(f'gt {value}, %n3_ : u1')} {{")
        at = self.emit(f"elem %{name}, {', '.join('%' + a for a in axes)} : ptr<{t} global>")
        self.lines.append(f"store {at}, {v}")
        if indent:
            self.lines += ["yield", "} {", "yield", "}"]

    def atomic(self, value: str) -> None:
        axis = self.rng.choice(self.axes)
        name = self.array(axis, 0)
        self.arrays[name] = "i32", self.arrays[name][1]
        at = self.emit(f"elem %{name}, %{axis} : ptr<i32 global>")
        self.emit(f"atomic_add {at}, {value} : i32")

    def arguments(self) -> dict[str, Any]:
        made = np.random.default_rng(self.rng.randint(0, 1 << 30))
        return {
            name: made.integers(0, 9, shape).astype(scalar_named(t).dtype)
            for name, (t, shape) in self.arrays.items()
        }


def results(code: Func | Program, values: dict[str, Any]) -> dict[str, Any]:
    copies = {name: v.copy() for name, v in values.items()}
    run_reference(code, copies)
    return copies


def check(after: Program, values: dict[str, Any], want: dict[str, Any], what: str) -> None:
    verify_program(after)
    got = results(after, values)
    for name in want:
        text = f"{what}, {name}\n{print_program(after)}"
        np.testing.assert_array_equal(got[name], want[name], text)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_passes_keep_results(seed: int) -> None:
    nest = Nest(seed)
    before, values = parse(nest.text), nest.arguments()
    want, text = results(before, values), print_program(before)
    for name in PASSES:
        after = apply_pass(before, pipeline.Pass(name, NARROW))
        if print_program(after) != text:
            check(after, values, want, f"{name}, seed {seed}\n{nest.text}")


@pytest.mark.parametrize("caps", [FULL, NARROW], ids=["full", "processor"])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_pipeline_keeps_results(seed: int, caps: Caps) -> None:
    nest = Nest(seed)
    before, values = parse(nest.text), nest.arguments()
    program, _ = pipeline.optimize_kernel(before.funcs[0], caps, Options())
    check(program, values, results(before, values), f"the pipeline, seed {seed}\n{nest.text}")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device()
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(PROGRAMS // 2))
def test_device_agrees(device: Device, seed: int) -> None:
    nest = Nest(seed)
    if lacks_of(parse(nest.text).funcs[0], device.caps):
        nest = Nest(seed, PLAIN)
    check_on_device(device, nest.text, nest.arguments())


def check_on_device(device: Device, text: str, values: dict[str, Any]) -> None:
    """Compile IR text with all passes, run it on the device, and compare the arrays."""
    before = parse(text)
    program, temps = pipeline.optimize_kernel(before.funcs[0], device.caps, Options())
    want = results(before, values)
    launch_program(device, program, temps, values)
    for name in want:
        np.testing.assert_array_equal(values[name], want[name], f"{name}\n{text}")


def test_passes_change_programs() -> None:
    for name in PASSES:
        before = [parse(Nest(seed).text) for seed in range(60)]
        changed = [apply_pass(p, pipeline.Pass(name, NARROW)) for p in before]
        assert any(print_program(a) != print_program(b) for a, b in zip(before, changed)), name
