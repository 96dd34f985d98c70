"""Gradients that are launched again, with other numbers, other arrays, other buffers: those of the
call, whatever was bound before."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.calls.repeated import buffers_of
from vkchi.errors import ArgumentError, KernelOverflowWarning
from vkchi.launch.commands import RepeatedCommands
from vkchi.launch.executable import Executable

F1 = ti.types.ndarray(ti.f32, 1)


@ti.kernel
def square(a: ti.f32, n: ti.i32, x: F1, y: F1):
    for i in range(n):
        y[i] += a * x[i] * x[i]


@ti.kernel
def power(n: ti.i32, x: F1, y: F1):
    for i in x:
        value = x[i]
        for _ in range(n):
            value = value * value
        y[i] += value


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of newly bound arguments from now on."""
    found: list[str] = []
    bind = Executable.bind

    def note(self: Executable, *given: Any) -> Any:
        found.append(self.artifact.name)
        return bind(self, *given)

    monkeypatch.setattr(Executable, "bind", note)
    return found


def array(values: Any) -> Any:
    made = ti.ndarray(ti.f32, len(values), needs_grad=True)
    made.from_numpy(np.asarray(values, np.float32))
    return made


def test_changed_scalars_are_not_rebound(bound: list[str]) -> None:
    x, y = array(range(8)), array([0] * 8)
    for k, (a, n) in enumerate([(1.0, 8), (2.0, 8), (0.5, 3), (3, 1), (-1.0, 0)] * 3):
        x.grad.fill(0)
        y.grad.fill(1 + k)
        square.grad(a, n, x, y)
        want = np.where(np.arange(8) < n, 2 * a * np.arange(8) * (1 + k), 0)
        np.testing.assert_array_equal(x.grad.to_numpy(), want)
    assert len(bound) <= 3


def test_numbers_that_do_not_fit() -> None:
    x, y = array(range(8)), array([0] * 8)
    y.grad.fill(1)
    square.grad(1.0, 8, x, y)
    x.grad.fill(0)
    with pytest.warns(KernelOverflowWarning):
        square.grad(1.0, (1 << 40) + 3, x, y)
    np.testing.assert_array_equal(x.grad.to_numpy(), [0, 2, 4, 0, 0, 0, 0, 0])
    with pytest.raises(ArgumentError, match="n"):
        square.grad(1.0, "8", x, y)
    x.grad.fill(0)
    square.grad(2.0, 8, x, y)
    np.testing.assert_array_equal(x.grad.to_numpy(), 4.0 * np.arange(8))


def test_alternating_arrays_and_reused_addresses() -> None:
    some = [(array(np.full(n, n)), array([0] * n)) for n in (3, 5, 3)]
    for _ in range(3):
        for x, y in some:
            n = len(x.to_numpy())
            x.grad.fill(0)
            y.grad.fill(1)
            square.grad(1.0, n, x, y)
            np.testing.assert_array_equal(x.grad.to_numpy(), np.full(n, 2.0 * n))
    for k in range(5):
        x, y = array(np.full(4, k)), array([0] * 4)
        y.grad.fill(1)
        square.grad(1.0, 4, x, y)
        np.testing.assert_array_equal(x.grad.to_numpy(), np.full(4, 2.0 * k))
        del x, y
        gc.collect()


def test_parts_of_one_buffer_are_other_arrays() -> None:
    v = ti.Vector.field(2, ti.f32, 4, layout=ti.Layout.SOA)
    parts = [v.get_scalar_field(k) for k in (0, 1, 0)]
    for part in parts:
        part.fill(1)
    first, second, again = (buffers_of({"x": part}) for part in parts)
    assert first == again != second


def test_saved_values_grow_and_shrink() -> None:
    """Rounds of a loop whose values are kept in buffers."""
    x, y = array([0.5, 1.0, 1.25]), array([0] * 3)
    values = np.float64([0.5, 1.0, 1.25])
    for n in (1, 3, 2, 4, 1, 4):
        x.grad.fill(0)
        y.grad.fill(1)
        power.grad(n, x, y)
        want = 2**n * values ** (2**n - 1)
        np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-5)


def test_a_tape_over_calls_that_overwrite_operands_of_others() -> None:
    """Their gradients find copies, others in each: of the contents that each call found."""
    x, loss = ti.field(ti.f32, 6, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def step(a: ti.f32):
        for i in x:
            x[i] = x[i] * x[i] * a

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    start = np.linspace(0.5, 1.0, 6)
    for factors in ((1.0, 2.0, 0.5), (2.0, 1.0, 1.0)):
        x.from_numpy(start.astype(np.float32))
        with ti.ad.Tape(loss):
            for a in factors:
                step(a)
            total()
        value, slope = start, np.ones(6)
        for a in factors:
            slope, value = slope * 2 * a * value, a * value * value
        np.testing.assert_allclose(x.grad.to_numpy(), slope, rtol=1e-5)


@pytest.mark.parametrize("when", ["0", "1", "first"])
def test_extents_that_get_code_of_their_own(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setenv("VKCHI_SHAPES", when)

    @ti.kernel
    def twice(a: ti.f32, x: F1, y: F1):
        for i in x:
            y[i] += a * x[i] * x[i]

    n = 100_000
    x, y = array(np.arange(n) % 7), array([0] * n)
    for k in range(300 if when == "1" else 3):
        y.grad.fill(1)
        twice.grad(k % 2, x, y)
    want = 2.0 * (np.arange(n) % 7) * (150 if when == "1" else 1)
    np.testing.assert_array_equal(x.grad.to_numpy(), want)


def test_an_interrupt_while_values_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = array(range(8)), array([0] * 8)
    y.grad.fill(1)
    square.grad(1.0, 8, x, y)

    def stop(self: RepeatedCommands, device: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as inside:
        inside.setattr(RepeatedCommands, "record", stop)
        with pytest.raises(KeyboardInterrupt):
            square.grad(5.0, 2, x, y)
    x.grad.fill(0)
    square.grad(2.0, 8, x, y)
    np.testing.assert_array_equal(x.grad.to_numpy(), 4.0 * np.arange(8))
