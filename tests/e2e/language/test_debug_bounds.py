"""`ti.init(debug=True)`: indices outside of arrays, vectors and matrices are errors."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti

Init = Callable[..., None]


@pytest.fixture
def debug(init: Init) -> None:
    """Debug mode, for one test."""
    init(debug=True)


def message(error: pytest.ExceptionInfo[BaseException]) -> str:
    return str(error.value)


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [(4, 0), (-1, 0), (0, 3), (0, -1), (4, 3), (100000, 100000)])
def test_field_bounds(debug: None, place: tuple[int, int]) -> None:
    x = ti.field(ti.i32, shape=(4, 3))

    @ti.kernel
    def put(i: ti.i32, j: ti.i32):
        x[i, j] = 1

    @ti.kernel
    def get(i: ti.i32, j: ti.i32) -> ti.i32:
        return x[i, j]

    put(3, 2)
    assert get(3, 2) == 1
    sizes = re.escape(f"of size (4, 3) with indices ({place[0]}, {place[1]})")
    for kernel in (put, get):
        with pytest.raises(ti.TaichiAssertionError, match=sizes):
            kernel(*place)
    assert x[3, 2] == 1


@pytest.mark.ours("debug-stops")
def test_out_of_range_accesses_touch_nothing(debug: None) -> None:
    x = ti.field(ti.i32, shape=(4, 3))

    @ti.kernel
    def run():
        for i, j in ti.ndrange((-2, 6), (-2, 5)):
            x[i, j] += 1

    with pytest.raises(AssertionError, match="43 other checks failed"):
        run()
    assert x.to_numpy().tolist() == [[1, 1, 1]] * 4


@pytest.mark.ours("bounds-index-error")
def test_bounds_are_index_errors(debug: None) -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def run(i: ti.i32):
        x[i] = 1

    with pytest.raises(IndexError):
        run(4)


def test_atomic_out_of_bounds(debug: None) -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            x[i] += 1
            ti.atomic_max(x[i], 2)

    run(4)
    with pytest.raises(AssertionError):
        run(5)
    assert x.to_numpy().tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(("index", "is_inside"), [(-3, False), (-2, True), (1, True), (2, False)])
def test_offset_field(debug: None, index: int, is_inside: bool) -> None:
    x = ti.field(ti.i32, shape=4, offset=-2)

    @ti.kernel
    def run(i: ti.i32):
        x[i] = 1

    if is_inside:
        run(index)
        assert x.to_numpy()[index + 2] == 1
        return
    with pytest.raises(AssertionError, match=re.escape(f"with indices ({index})")):
        run(index)


def test_ndarray_bounds(debug: None) -> None:
    x = ti.ndarray(ti.f32, shape=(3, 3))

    @ti.kernel
    def run(i: ti.i32, j: ti.i32, a: ti.types.ndarray()):
        a[i, j] = 1.0

    run(2, 2, x)
    for place in ((3, 0), (0, 3), (-1, 2)):
        with pytest.raises(AssertionError):
            run(*place, x)
    assert x[2, 2] == 1


def test_numpy_argument_bounds(debug: None) -> None:
    x = np.zeros(5, np.int32)

    @ti.kernel
    def run(n: ti.i32, a: ti.types.ndarray()):
        for i in range(n):
            a[i] = i

    run(5, x)
    with pytest.raises(AssertionError):
        run(6, x)
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_vector_field_bounds(debug: None) -> None:
    x = ti.Vector.field(3, ti.f32, shape=2)

    @ti.kernel
    def run(i: ti.i32):
        x[i].y = 1.0

    run(1)
    with pytest.raises(AssertionError):
        run(2)
    assert x.to_numpy().tolist() == [[0, 0, 0], [0, 1, 0]]


@pytest.mark.ours("bounds-components")
@pytest.mark.parametrize("index", [2, -1])
def test_component_of_an_element(debug: None, index: int) -> None:
    x = ti.Vector.field(2, ti.f32, shape=3)

    @ti.kernel
    def run(k: ti.i32):
        x[0][k] = 1.0

    run(1)
    with pytest.raises(IndexError, match=f"index {index} is out of bounds of a vector of 2 f32"):
        run(index)


@pytest.mark.ours("bounds-components")
def test_component_of_a_vector_and_of_a_matrix(debug: None) -> None:
    @ti.kernel
    def read(k: ti.i32) -> ti.i32:
        v = ti.Vector([1, 2, 3])
        return v[k]

    @ti.kernel
    def write(i: ti.i32, j: ti.i32) -> ti.i32:
        m = ti.Matrix([[1, 2], [3, 4]])
        m[i, j] = 10
        return m.sum()

    assert (read(2), write(1, 0)) == (3, 17)
    with pytest.raises(IndexError):
        read(3)
    with pytest.raises(IndexError):
        write(0, 2)


@pytest.mark.ours("bounds-components")
def test_shared_array_bounds(debug: None) -> None:
    x = ti.field(ti.f32, shape=32)

    @ti.kernel
    def run(far: ti.i32):
        ti.loop_config(block_dim=32)
        for i in x:
            s = ti.simt.block.SharedArray((32,), ti.f32)
            s[i] = i
            ti.simt.block.sync()
            x[i] = s[i + far]

    run(0)
    with pytest.raises(IndexError, match=re.escape("of size (32) with indices (32)")):
        run(1)


def test_a_guard_keeps_accesses_inside(debug: None) -> None:
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def run() -> ti.i32:
        total = 0
        for i in range(8):
            if i + 1 < 8 and x[i + 1] == 0:
                total += 1
            total += x[i - 1] if i > 0 else 0
        return total

    assert run() == 7


def test_constant_index(debug: None) -> None:
    x = ti.field(ti.i32, shape=(2, 2))

    @ti.kernel
    def run():
        x[1, 1] = 5

    run()
    assert x[1, 1] == 5


def test_whole_arrays(debug: None) -> None:
    x, y = ti.field(ti.i32, shape=(5, 7)), ti.field(ti.i32, shape=(5, 7))

    @ti.kernel
    def run():
        for i, j in x:
            x[i, j] = 10 * i + j
        for k in ti.grouped(y):
            y[k] = x[k]

    run()
    assert y.to_numpy().tolist() == [[10 * i + j for j in range(7)] for i in range(5)]


@pytest.mark.ours("debug-places")
def test_location_of_an_out_of_range_access(debug: None) -> None:
    grid = ti.field(ti.f32, shape=(4, 4))

    @ti.kernel
    def run(n: ti.i32):
        for i, j in ti.ndrange(n, 4):
            grid[i, j + i] = 1.0

    with pytest.raises(IndexError) as error:
        run(3)
    text = message(error)
    assert "accessing `grid` of size (4, 4) with indices (1, 4)" in text
    assert "grid[i, j + i] = 1.0" in text and "^^^^^^^^^^^^^^" in text
    assert "in the iteration i = 1, j = 3" in text
    assert "2 other checks failed in this launch" in text


def test_launches_after_a_failure_run(debug: None) -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def bad(i: ti.i32):
        x[i] = 1

    @ti.kernel
    def good() -> ti.i32:
        total = 0
        for i in x:
            total += x[i]
        return total

    for _ in range(3):
        with pytest.raises(AssertionError):
            bad(9)
        bad(1)
        assert good() == 1
