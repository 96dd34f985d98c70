"""Writes that fail for lack of memory leave no trace: gradients are as if they were never begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vkchi as ti
from vkchi.errors import DeviceError, GradientError
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
