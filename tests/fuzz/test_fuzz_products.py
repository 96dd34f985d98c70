"""Random nests of serial loops that accumulate products: passes, the pipeline and the device keep
their results. Sums of floats must keep their order, except in the pipeline (`reduce`).

A `parallel` of one or two axes has serial loops around one update of an element: an atomic, or a
load and a store. Subscripts are permutations of the loops' indices. Loads and arithmetic are
between the loops, too. Extents are tiny and odd.

In racing nests, subscripts may be shifted, and the updated array may be loaded elsewhere, so that
iterations of any loop may depend on each other. `collapse` and `promote` must not change these, as
they prove all that they need; other passes may, as parallel iterations have no order.

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
from tests.fuzz.test_fuzz_nests import check, check_on_device, results
from tests.ops.launch import lacks_of
from vkchi.cli.ir import apply_pass
from vkchi.device import Device, open_device
from vkchi.ir.core import constant_int, find_parallel
from vkchi.ir.text import parse, print_program
from vkchi.opt import pipeline
from vkchi.opt.loops import jam
from vkchi.target import tuning
from vkchi.target.caps import FULL, Caps
from vkchi.target.options import Options

__all__ = ["plain_functions", "small_machine"]  # fixtures of all tests here
PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "30"))
PASSES = ("collapse", "interchange", "promote", "jam")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 65)


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "COLLAPSE_TRIPS", 2)
    monkeypatch.setattr(jam, "least_threads", lambda caps: 1)


class Products:
    """A random nest: `text` of its Func, and arguments for it."""

    def __init__(self, seed: int, *, races: bool = False) -> None:
        self.races = races
        self.rng = rng = random.Random(f"products {seed}")
        axes = "ijkl"[: rng.choice((2, 3, 3, 4))]
        self.axes = "".join(rng.sample(axes, len(axes)))
        self.wide = rng.choice((1, 1, 2)) if len(axes) > 2 else 1  # axes of the parallel
        self.extents = {a: rng.choice(EXTENTS if len(axes) < 4 else EXTENTS[:5]) for a in axes}
        self.arrays: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.type = rng.choice(("f32", "f32", "i32"))
        self.lines: list[str] = []
        self.count = 0
        self.around()
        self.text = self.whole()

    def whole(self) -> str:
        params = ", ".join(
            f"%{name}: array<{t}[{','.join(map(str, shape))}]> noalias"
            for name, (t, shape) in self.arrays.items()
        )
        numbers = sorted({*self.extents.values(), *range(3)})
        consts = [f"  %n{n}_ = const {n} : i32" for n in numbers]
        zero = "0.0" if self.type == "f32" else "0"
        own = self.axes[: self.wide]
        bounds = ", ".join(f"%n0_, %n{self.extents[a]}_" for a in own)
        return "\n".join([
            f"func @nest({params}) {{", *consts, f"  %zero_ = const {zero} : {self.type}",
            f"  parallel {bounds} {{", f"    ^({', '.join(f'%{a}: i32' for a in own)})",
            *[f"    {line}" for line in self.lines], "    yield", "  }", "  yield", "}", "",
        ])  # fmt: skip

    def around(self) -> None:
        """The loops, outermost first, and what is in them."""
        rng = self.rng
        target = rng.choice((self.axes, self.axes, self.axes[1:], self.axes[:-1]))
        target = "".join(rng.sample(target, rng.randint(1, len(target))))
        if not self.races:
            target += "".join(a for a in self.axes[: self.wide] if a not in target)
        self.out = self.array(target, 1)
        early = ""
        for depth in range(self.wide, len(self.axes) + 1):
            seen = self.axes[:depth]
            if rng.random() < 0.3:
                early = self.value(seen)
            if set(target) <= set(seen) and rng.random() < 0.15:
                self.lines.append(f"store {self.place(self.out, target, 0)}, %zero_")
            if depth < len(self.axes):
                a = self.axes[depth]
                self.lines += [f"for %n0_, %n{self.extents[a]}_ {{", f"^(%{a}: i32)"]
        product = self.emit(f"mul {self.value(self.axes)}, {self.value(self.axes)} : {self.type}")
        if early and rng.random() < 0.7:
            product = self.emit(f"add {product}, {early} : {self.type}")
        self.update(target, product)
        self.lines += ["yield", "}"] * (len(self.axes) - self.wide)

    def update(self, target: str, v: str) -> None:
        rng = self.rng
        guard = rng.random() < 0.2
        if guard:
            self.lines.append(f"if {self.emit(f'gt {v}, %zero_ : u1')} {{")
        if rng.random() < 0.5:
            at = self.place(self.out, target, rng.choice((0, 0, 1)) if self.races else 0)
            self.emit(f"atomic_add {at}, {v} : {self.type}")
        else:
            shift = rng.choice((0, 0, 1)) if self.races else 0
            old = self.emit(f"load {self.place(self.out, target, shift)} : {self.type}")
            new = self.emit(f"add {old}, {v} : {self.type}")
            self.lines.append(f"store {self.place(self.out, target, 0)}, {new}")
        if guard:
            self.lines += ["yield", "} {", "yield", "}"]

    def emit(self, op: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {op}")
        return f"%v{self.count}"

    def array(self, axes: str, room: int) -> str:
        name = f"x{len(self.arrays)}"
        self.arrays[name] = self.type, tuple(self.extents[a] + room for a in axes)
        return name

    def place(self, name: str, axes: str, shift: int) -> str:
        first, rest = axes[0], axes[1:]
        at = self.emit(f"add %{first}, %n{shift}_ : i32") if shift else f"%{first}"
        indices = ", ".join([at, *[f"%{a}" for a in rest]])
        return self.emit(f"elem %{name}, {indices} : ptr<{self.type} global>")

    def value(self, seen: str) -> str:
        """A load along some of these axes; at times of the array that is updated."""
        rng = self.rng
        name, (_, shape) = self.out, self.arrays[self.out]
        axes = "".join(rng.sample(seen, rng.randint(1, len(seen))))
        fits = len(axes) == len(shape) and all(
            self.extents[a] <= n for a, n in zip(axes, shape, strict=True)
        )
        if not fits or not self.races or rng.random() < 0.7:
            name = self.array(axes, 0)
        return self.emit(f"load {self.place(name, axes, 0)} : {self.type}")

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        made = np.random.default_rng(self.rng.randint(0, 1 << 30))
        return {
            name: made.integers(0, 5, shape).astype(t.replace("i", "int").replace("f", "float"))
            if whole or t == "i32"
            else made.random(shape, np.float32)
            for name, (t, shape) in self.arrays.items()
        }


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_passes_keep_results(seed: int) -> None:
    nest = Products(seed)
    before, values = parse(nest.text), nest.arguments(whole=False)
    want, after = results(before, values), before
    for name in PASSES:  # one after the other
        changed = apply_pass(after, pipeline.Pass(name, NARROW))
        if print_program(changed) != print_program(after):
            check(changed, values, want, f"{name}, seed {seed}\n{nest.text}")
        after = changed


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_dependent_iterations_keep_results(seed: int) -> None:
    nest = Products(seed, races=True)
    before, values = parse(nest.text), nest.arguments(whole=False)
    want = results(before, values)
    for names in (("collapse",), ("promote",), ("collapse", "promote")):
        after = before
        for name in names:
            after = apply_pass(after, pipeline.Pass(name, NARROW))
        check(after, values, want, f"{names}, seed {seed}\n{nest.text}")


@pytest.mark.parametrize("caps", [FULL, NARROW], ids=["full", "processor"])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_pipeline_keeps_results(seed: int, caps: Caps) -> None:
    nest = Products(seed)
    before, values = parse(nest.text), nest.arguments(whole=True)
    program, _ = pipeline.optimize_kernel(before.funcs[0], caps, Options())
    check(program, values, results(before, values), f"the pipeline, seed {seed}\n{nest.text}")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device()
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(PROGRAMS // 2))
def test_device_agrees(device: Device, seed: int) -> None:
    nest = Products(seed)
    if lacks_of(parse(nest.text).funcs[0], device.caps):
        pytest.skip("the device lacks an op")
    check_on_device(device, nest.text, nest.arguments(whole=True))


def test_passes_change_programs() -> None:
    for name in PASSES:
        before = [parse(Products(seed).text) for seed in range(60)]
        changed = [apply_pass(p, pipeline.Pass(name, NARROW)) for p in before]
        assert any(print_program(a) != print_program(b) for a, b in zip(before, changed)), name


def test_loops_become_axes() -> None:
    """About a third of the nests that are not races."""
    before = [parse(Products(seed).text) for seed in range(60)]
    after = [apply_pass(p, pipeline.Pass("collapse", NARROW)) for p in before]
    loops = [[find_parallel(p.funcs[0]) for p in programs] for programs in (before, after)]
    more = [
        a for a, b in zip(*loops) if a is not None and b is not None and len(b.args) > len(a.args)
    ]
    assert len(more) >= 10
    assert all(constant_int(v) is not None for loop in more for v in loop.args)
