"""`Tape(grad_check=...)` of programs in which Python writes a part of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

X = np.array([0.5, 0.7, 1.0, 1.25], np.float32)


class Program:
    """loss = sum of the squares of y, a field or ndarray, and y = x * x."""

    def __init__(self, *, is_ndarray: bool) -> None:
        self.x, self.loss = (ti.field(ti.f32, n, needs_grad=True) for n in (4, ()))
        make = ti.ndarray if is_ndarray else ti.field
        self.y: Any = make(ti.f32, 4, needs_grad=True)
        self.v = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
        self.x.from_numpy(X)

    @staticmethod
    @ti.kernel
    def square(x: ti.template(), y: ti.Tensor, v: ti.template()):
        for i in x:
            y[i] = x[i] * x[i]
            v[i] = [x[i], 1]

    @staticmethod
    @ti.kernel
    def add(y: ti.Tensor, v: ti.template(), loss: ti.template()):
        for i in v:
            loss[None] += y[i] * y[i] * v[i].x * v[i].y

    def run(self, write: Callable[[Any, Any], None], **options: Any) -> np.ndarray[Any, Any]:
        """The gradient, if it is that of differences."""
        with ti.ad.Tape(self.loss, grad_check=[self.x], **options):
            for _ in range(2):
                self.square(self.x, self.y, self.v)
                write(self.y, self.v)
                self.add(self.y, self.v, self.loss)
        found: np.ndarray[Any, Any] = self.x.grad.to_numpy()
        return found


def element(y: Any, v: Any) -> None:
    y[1] = 3.0


def equal_values(y: Any, v: Any) -> None:
    """Numbers that are there already, without a derivative from then on."""
    y[2] = 1.0
    v[2] = [1.0, 1.0]


def equal_values_of_a_part(y: Any, v: Any) -> None:
    y[2:3].fill(1)
    v[2:].fill(1)


def part(y: Any, v: Any) -> None:
    y[1:3].fill(2)


def every_other(y: Any, v: Any) -> None:
    y[::2] = 0.5


def component(y: Any, v: Any) -> None:
    v[1][0] = 3.0
    v.get_scalar_field(1).fill(2)


def from_elsewhere(y: Any, v: Any) -> None:
    y[1:3].from_numpy(np.full(2, 0.25, np.float32))


def sums(y: Any, v: Any) -> None:
    y[0] += 1.0
    y[0] = 2.0 + y[0]
    y[1] += 1.0
    y[1] = 3.0
    y[2] = 0.5
    y[2] += 1.0
    v[1][0] += 0.25


def everything(y: Any, v: Any) -> None:
    y.fill(1)


WRITES = (
    element,
    equal_values,
    equal_values_of_a_part,
    part,
    every_other,
    component,
    from_elsewhere,
    sums,
    everything,
)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("is_ndarray", [False, True], ids=["field", "ndarray"])
def test_partial_writes_agree_with_differences(
    write: Callable[[Any, Any], None], is_ndarray: bool
) -> None:
    program = Program(is_ndarray=is_ndarray)
    found = program.run(write)
    assert found.any()
    np.testing.assert_array_equal(program.run(write, memory=200), found)


def test_wrong_gradients_are_still_found() -> None:
    program = Program(is_ndarray=False)

    @ti.kernel
    def wrong():
        for i in program.x:
            program.y[i] = ti.stop_grad(program.x[i]) * program.x[i]

    with pytest.raises(ti.ad.GradientError, match="differences give"):
        with ti.ad.Tape(program.loss, grad_check=[program.x]):
            wrong()
            program.y[1] = 3.0
            program.v.fill(1)
            program.add(program.y, program.v, program.loss)
