"""Sizes of arrays in Python, and `to_numpy` and `to_torch` without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError

MAKERS = {
    "ndarray": lambda: ti.ndarray(ti.f32, (2, 3)),
    "vectors": lambda: ti.Vector.ndarray(3, ti.i32, 4),
    "field": lambda: ti.field(ti.f32, (2, 3)),
    "no axes": lambda: ti.field(ti.f32, ()),
    "matrices": lambda: ti.Matrix.field(2, 2, ti.f64, 3),
    "bools": lambda: ti.field(ti.u1, 4),
    "halves": lambda: ti.field(ti.f16, 5),
    "columns": lambda: ti.field(ti.f32, (3, 5), order="ji"),
}


TYPES = {"matrices": "f64", "bools": "i8", "halves": "f16"}  # a bool in memory is a byte, or a word


@pytest.fixture(params=MAKERS)
def array(request: pytest.FixtureRequest, need: Any) -> Any:
    if request.param in TYPES:
        need(TYPES[request.param])
    return MAKERS[request.param]()


def test_sizes_are_those_of_numpy(array: Any) -> None:
    values = array.to_numpy()
    element = values[(0,) * len(array.shape)]
    assert array.nbytes == values.nbytes
    assert array.size == values.size // element.size
    assert array.element_shape == np.shape(element)
    if array.shape:
        assert len(array) == len(values)


def test_length_without_axes_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="one element"):
        len(ti.field(ti.f32, ()))


def test_has_grad() -> None:
    assert ti.field(ti.f32, 3, needs_grad=True).has_grad()
    assert ti.ndarray(ti.f32, 3, needs_grad=True).has_grad()
    assert not ti.field(ti.f32, 3).has_grad()
    assert not ti.ndarray(ti.i32, 3).has_grad()


def test_views_see_later_kernels_and_write_memory(array: Any) -> None:
    view, tensor = array.to_numpy(copy=False), array.to_torch(copy=False)
    assert view.shape == tuple(tensor.shape) == array.to_numpy().shape
    array.fill(1)
    ti.sync()
    assert np.all(view == 1) and bool((tensor == 1).all())
    view[...] = 0
    assert not array.to_numpy().any() and not bool(tensor.any())


def test_copies_are_the_default(array: Any) -> None:
    values = array.to_numpy(copy=True)
    array.fill(1)
    assert not values.any()


def test_kept_axes_of_columns() -> None:
    x = ti.Vector.field(3, ti.f32, 4)
    assert x.to_numpy(keep_dims=True, copy=False).shape == (4, 3, 1)
    assert tuple(x.to_torch(keep_dims=True, copy=False).shape) == (4, 3, 1)


def test_views_that_need_a_copy_are_errors() -> None:
    x = ti.field(ti.f32, 3)
    with pytest.raises(ArgumentError, match="leave dtype out"):
        x.to_numpy(ti.f64, copy=False)
    with pytest.raises(ArgumentError, match="leave copy=False out"):
        x.to_torch("cuda", copy=False)
    blocks = ti.field(ti.f32)
    ti.root.dense(ti.ij, (2, 2)).dense(ti.ij, (3, 3)).place(blocks)
    with pytest.raises(ArgumentError, match="leave copy=False out"):
        blocks.to_numpy(copy=False)


def test_a_write_through_a_view_in_a_tape_is_noticed() -> None:
    x = ti.field(ti.f32, 3, needs_grad=True)
    y = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i]

    view = y.to_numpy(copy=False)
    x.fill(1)
    with pytest.raises(ti.ad.GradientError):
        with ti.ad.Tape(loss):
            double()
            ti.sync()
            view[...] = 5
            total()
