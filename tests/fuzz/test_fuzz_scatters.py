"""Random atomics at computed places, for a GPU without atomics on floats: results stay the same.

The interpreter runs programs before and after passes; the device runs optimised ones. Operands are
small whole numbers or signs, so that results do not depend on the order.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.devices import like_gpu
from tests.ops.launch import launch_program
from vkchi.device import Device, open_device
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.opt.pipeline import PASSES, Pass, optimize_kernel
from vkchi.target import tuning
from vkchi.target.caps import FULL
from vkchi.target.options import Options

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "20"))
SUMS = {"y": "f32[?]", "z": "f32[??]", "w": "f64[?]", "v": "f32<2>[?]"}
NUMBERS = {"x": "i32[??]", "p": "i32[?]"}
CARD = FULL._replace(f32_atomic_add=False, f64_atomic_add=False)
PASSED = {name: Pass(name, CARD) for name in ("combine", "reciprocals", "legalize")}
LOST = 7  # marks in `o` that a lane did not see its own addition


class Program:
    """A random parallel loop of one or two axes, as IR text. `kinds`: the atomic on each array."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        axes = rng.choice([1, 1, 2])
        self.ints = [f"%i{k}" for k in range(axes)]
        self.kinds = {name: rng.choice(["add", "add", "mul"]) for name in SUMS}
        self.extents = [self.define(f"shape %x [{k}] : i32") for k in (0, 1)]
        self.extents += [self.define(f"shape %{name} [0] : i32") for name in "yp"]
        self.block(0)
        bounds = ", ".join(f"%c0, %n{k}" for k in range(axes))
        params = ", ".join(f"{name}: i32" for name in self.ints_of(axes))
        arrays = {**NUMBERS, **SUMS, "o": "i32[?]"}
        given = ", ".join(f"%{name}: array<{t}> noalias" for name, t in arrays.items())
        constants = "\n".join(f"%c{k} = const {k} : i32" for k in range(8))
        self.text = f"""func @f({given}, %n0: i32, %n1: i32) {{
{constants}
%plus = const 1.0 : f32
%minus = const -1.0 : f32
parallel {bounds} {{
^({params})
{chr(10).join(self.lines)}
yield
}}
yield
}}
"""

    @staticmethod
    def ints_of(axes: int) -> list[str]:
        return [f"%i{k}" for k in range(axes)]

    def define(self, op: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {op}")
        return f"%v{self.count}"

    def block(self, depth: int) -> None:
        for _ in range(self.rng.randint(2, 4)):
            kind = self.rng.random()
            if kind < 0.3 and depth < 3:
                self.nest(depth)
            elif kind < 0.5:
                self.ints.append(self.number())
            else:
                self.scatter()

    def number(self) -> str:
        """A computed i32 value, perhaps negative."""
        rng, v = self.rng, self.rng.choice(self.ints)
        kind = rng.random()
        if kind < 0.2:
            at = self.define(f"mod {v}, {self.extents[3]} : i32")
            place = self.define(f"elem %p, {at} : ptr<i32 global>")
            return self.define(f"load {place} : i32")
        if kind < 0.6:
            op = rng.choice(["floordiv", "mod"])
            return self.define(f"{op} {v}, {rng.choice(self.extents[:3])} : i32")
        op = rng.choice(["add", "sub", "sub", "mul"])
        return self.define(f"{op} {v}, {rng.choice([*self.ints, '%c1', '%c3'])} : i32")

    def nest(self, depth: int) -> None:
        """Append a branch, or a short loop."""
        known, rng = len(self.ints), self.rng
        number = self.define(f"mod {self.number()}, {rng.choice(['%c3', self.extents[0]])} : i32")
        if rng.random() < 0.5:
            self.lines.append(f"if {self.define(f'lt {number}, %c2 : u1')} {{")
            self.block(depth + 1)
            del self.ints[known:]
            self.lines.append("yield\n} {")
        else:
            end = rng.choice(["%c3", self.define(f"min {number}, %c3 : i32")])
            self.count += 1
            self.lines.append(f"for %c0, {end} {{\n^(%k{self.count}: i32)")
            self.ints.append(f"%k{self.count}")
        self.block(depth + 1)
        del self.ints[known:]
        self.lines.append("yield\n}")

    def scatter(self) -> None:
        rng, name = self.rng, self.rng.choice(list(SUMS))
        t, kind = SUMS[name].split("[")[0], self.kinds[name]
        keys = []
        for k in range(SUMS[name].count("?")):
            extent = self.define(f"shape %{name} [{k}] : i32")
            v = rng.choice([self.number(), *self.ints])
            keys.append(self.define(f"mod {v}, {extent} : i32"))
        place = self.define(f"elem %{name}, {', '.join(keys)} : ptr<{t} global>")
        amount = self.amount(t, kind)
        old = self.define(f"atomic_{kind} {place}, {amount} : {t}")
        if kind == "add" and t == "f32" and rng.random() < 0.15:
            self.look(rng.choice([old, place]), place, amount)

    def amount(self, t: str, kind: str) -> str:
        small = self.define(f"mod {self.rng.choice(self.ints)}, %c5 : i32")
        scalar = t.split("<")[0]
        if kind == "add":
            v = self.define(f"cast {self.define(f'add {small}, %c1 : i32')} : {scalar}")
        else:
            odd = self.define(f"lt {small}, %c2 : u1")
            v = self.define(f"select {odd}, %minus, %plus : f32")
            v = self.define(f"cast {v} : f64") if scalar == "f64" else v
        return v if t == scalar else self.define(f"pack {v}, {v} : {t}")

    def look(self, what: str, place: str, amount: str) -> None:
        """Append a check that stores LOST if an addition to `place` is not seen.

        It tests that the element holds at least `amount`, or that the old value is at least -1.
        """
        least = "%plus" if what == place else "%minus"
        if what == place:
            what, least = self.define(f"load {place} : f32"), amount
        lost = self.define(f"lt {what}, {least} : u1")
        at = self.define(f"elem %o, {self.define('mul %c0, %c1 : i32')} : ptr<i32 global>")
        self.lines.append(f"if {lost} {{\nstore {at}, %c{LOST}\nyield\n}} {{\nyield\n}}")


def arguments(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shape = tuple(int(k) for k in rng.integers(1, 9, 2))
    lanes = [int(k) for k in rng.integers(1, 80, 2)]
    few = int(rng.choice([1, 2, 100]))
    return {
        "x": np.zeros(shape, np.int32),
        "p": rng.integers(-few, few + 1, 50).astype(np.int32),
        "y": rng.integers(1, 5, int(rng.integers(1, 70))).astype(np.float32),
        "z": np.ones((int(rng.integers(1, 5)), int(rng.integers(1, 9))), np.float32),
        "w": np.ones(int(rng.integers(1, 9)), np.float64),
        "v": np.ones((int(rng.integers(1, 9)), 2), np.float32),
        "o": np.zeros(1, np.int32),
        "n0": np.int32(lanes[0]),
        "n1": np.int32(lanes[1] % 20 + 1),
    }  # fmt: skip


def compare(got: dict[str, Any], want: dict[str, Any], seed: int) -> None:
    for name in (*SUMS, "o"):
        np.testing.assert_array_equal(got[name], want[name], err_msg=f"seed {seed}: {name}")


def test_programs_contain_scatters() -> None:
    """Each of the tested passes changes at least five of 40 programs."""
    changed = dict.fromkeys(PASSED, 0)
    for seed in range(40):
        fn: Any = PASSES["strength"](parse_func(Program(seed).text))
        for name in PASSED:
            changed[name] += PASSED[name](fn) is not fn
    assert min(changed.values()) >= 5, changed


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_aggregated_atomics_match_in_interpreter(seed: int) -> None:
    plain, want = parse_func(Program(seed).text), arguments(seed)
    run_reference(plain, want)
    assert want["o"][0] == 0
    fn: Any = PASSES["strength"](plain)
    for change in PASSED.values():
        fn = change(fn)
        got = arguments(seed)
        run_reference(fn, got)
        compare(got, want, seed)


@pytest.fixture(scope="module")
def card() -> Iterator[Device]:
    """The device as a GPU without atomics on floats, and with 128 bytes of push constants."""
    device = open_device()
    caps = like_gpu(device.caps)._replace(f32_atomic_add=False, f64_atomic_add=False)
    caps = caps._replace(push_constant_bytes=128)
    if not (caps.float64 and caps.int64 and caps.subgroup_arithmetic and caps.subgroup_ballot):
        pytest.skip("no f64, or no subgroup operations")
    device.caps = caps
    yield device
    device.close()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_aggregated_atomics_match_on_device(
    card: Device, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is raised so that lanes combine their atomics more often."""
    monkeypatch.setattr(tuning, "COMBINE_ATOMICS", 20)
    fn, got, want = parse_func(Program(seed).text), arguments(seed), arguments(seed)
    program, temps = optimize_kernel(fn, card.caps, Options())
    launch_program(card, program, temps, got)
    run_reference(fn, want)
    compare(got, want, seed)
