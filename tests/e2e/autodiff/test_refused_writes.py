"""Gradients after writes and functions that failed in the tape, where the program caught the error.

A write that had no memory for a copy counts as not begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vkchi as ti
from vkchi.errors import DeviceError, GradientError, KernelRuntimeError
from vkchi.fields.storage import Storage

pytestmark = pytest.mark.device
N = 4


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Calls a function while there is no memory for copies; the function must fail."""

    def fail(*_: Any) -> None:
        raise DeviceError("no memory")

    def call(act: Callable[[], Any]) -> None:
        with monkeypatch.context() as m, pytest.raises(DeviceError, match="no memory"):
            m.setattr(Storage, "copied", fail)
            m.setattr(Storage, "copied_rows", fail)
            act()

    return call


def fill(x: ti.Field) -> None:
    x.fill(0)


def put(x: ti.Field) -> None:
    x[1] = 0


@pytest.mark.parametrize("write", [fill, put])
def test_a_write_by_python_ends_no_derivative(
    refused: Callable[[Callable[[], Any]], None], write: Callable[[ti.Field], None]
) -> None:
    ti.init(arch=ti.vulkan)
    x = ti.field(ti.f32, N, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add_squares():
        for i in x:
            loss[None] += x[i] ** 2

    x.fill(2)
    for _ in range(3):
        with ti.ad.Tape(loss):
            add_squares()
            refused(lambda: write(x))
            add_squares()
        assert loss[None] == 2 * N * 4
        assert x.grad.to_numpy().tolist() == [2 * 2 * 2] * N


def test_a_kernel_drops_no_lost_gradient(refused: Callable[[Callable[[], Any]], None]) -> None:
    """`plain` still holds x, so its product with x has no complete derivative."""
    ti.init(arch=ti.vulkan)
    x = ti.field(ti.f32, N, needs_grad=True)
    plain = ti.field(ti.f32, N)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def lose():
        for i in x:
            plain[i] = x[i]

    @ti.kernel
    def add_where_positive():
        for i in x:
            if plain[i] > 0:
                loss[None] += x[i]

    @ti.kernel
    def clear():
        for i in plain:
            plain[i] = 0

    @ti.kernel
    def add_products():
        for i in x:
            loss[None] += plain[i] * x[i]

    x.fill(2)
    with pytest.raises(GradientError, match="plain"), ti.ad.Tape(loss):
        lose()
        add_where_positive()
        refused(clear)
        add_products()
    with ti.ad.Tape(loss):
        lose()
        add_where_positive()
        clear()
        add_products()
    assert x.grad.to_numpy().tolist() == [1] * N


def test_functions_that_raise_halfway() -> None:
    """The gradient of a function is that of a complete call; kernels of `no_grad` have none."""
    ti.init(arch=ti.vulkan)
    x = ti.field(ti.f32, N, needs_grad=True)
    plain = ti.field(ti.f32, N)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def double():
        for i in x:
            x[i] = 2 * x[i]

    @ti.kernel
    def fill_plain():
        for i in plain:
            plain[i] = 3

    @ti.kernel
    def add_up():
        for i in x:
            loss[None] += plain[i] * x[i]

    @ti.ad.grad_replaced
    def own(fails: bool) -> None:
        double()
        if fails:
            raise ValueError
        double()

    @ti.ad.grad_for(own)
    def own_grad(fails: bool) -> None:
        for i in range(N):
            x.grad[i] *= 4

    @ti.ad.no_grad
    def aside() -> None:
        fill_plain()
        raise ValueError

    x.fill(1)
    plain.fill(1)
    with pytest.raises(KernelRuntimeError, match="own"), ti.ad.Tape(loss):
        with pytest.raises(ValueError):
            own(True)
        add_up()
    with ti.ad.Tape(loss):
        own(False)
        with pytest.raises(ValueError):
            aside()
        add_up()
    assert x.grad.to_numpy().tolist() == [4 * 3] * N
