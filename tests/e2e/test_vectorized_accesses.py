"""Neighbours in memory, accessed one after the other in the source and at once on the device."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

N = 64
TYPES = {
    "f32": (ti.f32, np.float32, None),
    "i32": (ti.i32, np.int32, None),
    "u8": (ti.u8, np.uint8, "int8"),
    "i16": (ti.i16, np.int16, "int16"),
    "f16": (ti.f16, np.float16, "float16"),
    "f64": (ti.f64, np.float64, "float64"),
}


def counted(dtype, count):
    """Small numbers, of which two have an exact sum in any type."""
    return (np.arange(count) % 97).astype(dtype)


@pytest.mark.parametrize("name", TYPES)
def test_unrolled_loops(name: str) -> None:
    t, dtype, needs = TYPES[name]
    if needs is not None and not getattr(current_runtime().device.caps, needs):
        pytest.skip(f"the device has no {name}")
    x, y = ti.field(t, 8 * N + 3), ti.field(t, 8 * N)

    @ti.kernel
    def run():
        for i in range(N):
            for k in ti.static(range(8)):
                y[8 * i + k] = x[8 * i + k + 3] + x[8 * i + k]

    given = counted(dtype, 8 * N + 3)
    x.from_numpy(given)
    run()
    assert (y.to_numpy() == given[3:] + given[:-3]).all()


def test_in_place() -> None:
    """Writes in between are read: each sum begins with the one before."""
    x = ti.field(ti.f32, 4 * N)

    @ti.kernel
    def run():
        for i in range(N):
            for k in ti.static(range(1, 4)):
                x[4 * i + k] += x[4 * i + k - 1]

    given = counted(np.float32, 4 * N)
    x.from_numpy(given)
    run()
    assert (x.to_numpy() == given.reshape(N, 4).cumsum(1).reshape(-1)).all()


def test_aliased_array_arguments() -> None:
    @ti.kernel
    def run(a: ti.types.ndarray(ndim=1), b: ti.types.ndarray(ndim=1)):
        for i in range(a.shape[0] // 2):
            first = a[2 * i]
            b[2 * i + 1] = first + 100.0
            b[2 * i] = a[2 * i + 1]

    given = counted(np.float32, 2 * N)
    for same in (False, True):
        a = ti.ndarray(ti.f32, 2 * N)
        b = a if same else ti.ndarray(ti.f32, 2 * N)
        a.from_numpy(given)
        run(a, b)
        first, second = given[::2] + 100.0, given[1::2]
        want = np.stack([first if same else second, first], 1).reshape(-1)
        assert (b.to_numpy() == want).all()


@pytest.mark.parametrize("offset", [0, 1])
def test_members_of_cells(offset: int) -> None:
    """In a tree, arrays begin anywhere."""
    x, v, m = ti.field(ti.f32), ti.Vector.field(2, ti.f32), ti.Matrix.field(2, 2, ti.f32)
    cells = ti.root.dense(ti.i, N)
    if offset:
        cells.place(ti.field(ti.i32))
    cells.place(v, m, x)

    @ti.kernel
    def run():
        for i in x:
            v[i] = m[i] @ v[i] + x[i]
            m[i][0, 1] = v[i][0]
            m[i][0, 0] = v[i][1]

    given = counted(np.float32, 7 * N).reshape(N, 7)
    x.from_numpy(given[:, 0])
    v.from_numpy(given[:, 1:3])
    m.from_numpy(given[:, 3:].reshape(N, 2, 2))
    run()
    want = np.einsum("nij,nj->ni", given[:, 3:].reshape(N, 2, 2), given[:, 1:3]) + given[:, :1]
    assert (v.to_numpy() == want).all()
    assert (m.to_numpy()[:, 0] == want[:, ::-1]).all()
    assert (m.to_numpy()[:, 1] == given[:, 5:]).all()


def test_rows_of_an_ndarray() -> None:
    @ti.kernel
    def run(a: ti.types.ndarray(ndim=2), b: ti.types.ndarray(ndim=2)):
        for i in range(a.shape[0]):
            if a.shape[1] >= 4 and b.shape[0] == a.shape[0] and b.shape[1] == 4:
                for k in ti.static(range(4)):
                    b[i, 3 - k] = a[i, k]

    for width in (4, 5, 6):
        a, b = ti.ndarray(ti.i32, (N, width)), ti.ndarray(ti.i32, (N, 4))
        given = np.arange(N * width, dtype=np.int32).reshape(N, width)
        a.from_numpy(given)
        run(a, b)
        assert (b.to_numpy() == given[:, 3::-1]).all()
