"""Numbers that Python puts into arrays: an element that does not fit is an error; whole arrays are
converted, with one warning per line that counts the lost values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ConversionWarning


@pytest.fixture
def strict() -> Iterator[None]:
    ti.init(strict=True, log_level=ti.ERROR)
    yield
    ti.init(random_seed=7)


def told(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        run()
    assert all(w.category is ConversionWarning and w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


def quantised(number: Any) -> Any:
    field, word = ti.field(number), ti.BitpackedFields(max_num_bits=32)
    word.place(field)
    ti.root.dense(ti.i, 4).place(word)
    return field


@pytest.mark.parametrize(
    "value",
    [2.7, 2**40, -(2**31) - 1, float("nan"), float("inf"), np.float32(0.5), np.int64(2**31)],
)
@pytest.mark.parametrize("make", ["field", "ndarray", "vector", "struct", "struct element", "bits"])
def test_an_element_that_does_not_fit_an_integer_is_an_error(make: str, value: Any) -> None:
    S = ti.types.struct(a=ti.i32, b=ti.f32)
    array: Any = {
        "field": lambda: ti.field(ti.i32, 4),
        "ndarray": lambda: ti.ndarray(ti.i32, 4),
        "vector": lambda: ti.Vector.field(2, ti.i32, 4),
        "struct": lambda: S.field(shape=4).a,
        "struct element": lambda: S.field(shape=4),
        "bits": lambda: quantised(ti.types.quant.int(8)),
    }[make]()
    given = {"a": value, "b": 1.0} if make == "struct element" else value
    with pytest.raises((TypeError, ValueError), match="does not fit"):
        array[1] = given
    if make == "vector":
        with pytest.raises(TypeError, match="does not fit"):
            array[1] = [1, value]
        with pytest.raises(TypeError, match="does not fit"):
            array[1][0] = value
    found = array.to_numpy()
    assert not np.any(found["a"] if make == "struct element" else found)


def test_numbers_that_fit_are_taken(need: Callable[..., None]) -> None:
    need("u8")
    x, u, b = ti.field(ti.i32, 4), ti.field(ti.u8, 4), quantised(ti.types.quant.int(4))

    def put() -> None:
        for k, value in enumerate([3, 4.0, np.float32(-5), True]):
            x[k] = value
        u[0], u[1], u[2] = 255, 0, np.uint64(7)
        b[0], b[1], b[2] = 7, -8, 2.0

    assert told(put) == []
    assert x.to_numpy().tolist() == [3, 4, -5, 1]
    assert u.to_numpy().tolist() == [255, 0, 7, 0]
    assert b.to_numpy().tolist() == [7, -8, 2, 0]


def test_unsigned_and_small_integers_have_their_own_ranges(need: Callable[..., None]) -> None:
    need("u8")
    u, b = ti.field(ti.u8, 4), quantised(ti.types.quant.int(4))
    for array, value in ((u, 256), (u, -1), (b, 8), (b, -9)):
        with pytest.raises(TypeError, match=f"{value} does not fit"):
            array[0] = value


def test_the_help_names_a_type_that_holds_the_number() -> None:
    x, u = ti.field(ti.i32, 4), ti.field(ti.u32, 4)
    for array, value, help in (
        (x, 2.5, r"write int\(2.5\)"), (x, 2**31, "of a wider type"), (u, -1, "of a signed type"),
        (x, float("nan"), "of floats"), (u, float("-inf"), "of floats"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"help: .*{help}"):
            array[0] = value


def test_a_finite_float_that_becomes_infinite_warns() -> None:
    x = ti.field(ti.f32, 4)

    def put() -> None:
        x[0] = 1e300
        x[1], x[2], x[3] = float("inf"), 3.4028235e38, 2**40

    (text,) = told(put)
    assert "1e+300 does not fit f32" in text
    assert x[0] == np.inf


def test_fill_converts_and_warns() -> None:
    x, v = ti.field(ti.i32, 4), ti.Vector.field(2, ti.i32, 2)
    (first,) = told(lambda: x.fill(2.9))
    assert "2.9 has a fraction" in first and x.to_numpy().tolist() == [2] * 4
    (second,) = told(lambda: v.fill([1, 2.5]))
    assert "1 with a fraction, of 2; the first is 2.5 at [1]" in second
    assert told(lambda: (x.fill(3.0), x.fill(7), v.fill(1))) == []


def test_whole_arrays_convert_and_count_lossy_elements() -> None:
    x, y = ti.field(ti.i32, (2, 3)), ti.ndarray(ti.f32, 4)
    values = np.array([[1, 2.5, 3], [2.0**40, -0.5, 7]])
    (text,) = told(lambda: x.from_numpy(values))
    assert "2 with a fraction and 1 out of range, of 6; the first is 2.5 at [0, 1]" in text
    assert x.to_numpy()[0].tolist() == [1, 2, 3] and x[1, 1] == 0
    (text,) = told(lambda: y.from_numpy(np.array([1, 1e300, np.inf, np.nan])))
    assert "1 out of range, now infinite, of 4; the first is 1e+300 at [1]" in text
    (text,) = told(lambda: x.from_numpy(np.full((2, 3), 2**31)))
    assert "6 out of range, of 6; the first is 2147483648 at [0, 0]" in text


def test_arrays_that_fit_are_quiet(need: Callable[..., None]) -> None:
    need("u8")
    x, y, v = ti.field(ti.i32, 3), ti.ndarray(ti.f32, 3), ti.Vector.field(2, ti.u8, 3)

    def put() -> None:
        for values in (np.arange(3), np.arange(3.0), np.array([True, False, True])):
            x.from_numpy(values)
            y.from_numpy(values)
        x.from_numpy(np.array([-(2**31), 2**31 - 1, 0]))
        y.from_numpy(np.array([0.1, -1e-300, 3.4028235e38]))
        v.from_numpy(np.arange(6).reshape(3, 2)[::-1])
        x.copy_from(x)
        y.copy_from(x)

    assert told(put) == []


def test_tensors_and_copies_of_other_types_warn() -> None:
    x, y = ti.field(ti.i32, 3), ti.field(ti.f32, 3)
    y.from_numpy(np.array([1, 2.5, 3], np.float32))
    (text,) = told(lambda: x.copy_from(y))
    assert "1 with a fraction, of 3; the first is 2.5 at [1]" in text
    torch = pytest.importorskip("torch")
    (text,) = told(lambda: x.from_torch(torch.tensor([1, 2, 2**40])))
    assert "1 out of range, of 3; the first is 1099511627776 at [2]" in text


def test_line_in_loop_warns_once() -> None:
    x = ti.field(ti.i32, 3)

    def run() -> None:
        for k in range(4):
            x.from_numpy(np.array([0.5, k, k + 0.5]))

    assert len(told(run)) == 1


def test_always_filter_shows_every_warning(
    need: Callable[..., None],
) -> None:
    need("u8")
    x, y = ti.field(ti.i32, 2), ti.field(ti.u8, 2)

    def run() -> None:
        for field, numbers in ((x, [0.5, 1]), (y, [1, 256]), (y, [1, 2])):
            field.from_numpy(np.array(numbers))

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
        run()
    first, second, third, fourth = [str(w.message) for w in found]
    assert "array of i32" in first and "0.5 at [0]" in first and first == third
    assert "array of u8" in second and "256 at [1]" in second and second == fourth
    assert len(told(run)) == 1


def test_numbers_of_few_bits_have_a_range() -> None:
    q, f = quantised(ti.types.quant.int(5)), quantised(ti.types.quant.fixed(10, max_value=2.0))
    (text,) = told(lambda: q.from_numpy(np.array([1, 15, 16, -16])))
    assert "1 out of range, of 4; the first is 16 at [2]" in text
    (text,) = told(lambda: f.from_numpy(np.array([1, -2.0, 3, 0])))
    assert "1 out of range, of 4; the first is 3.0 at [2]" in text


def test_only_active_elements_of_sparse_blocks_count() -> None:
    x = ti.field(ti.i32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 2).place(x)
    x[0] = 1
    values = np.array([3, 4, 0.5, 0, 0, 0, 0, 0])
    assert told(lambda: x.from_numpy(values)) == []
    values[1] = 4.5
    (text,) = told(lambda: x.from_numpy(values))
    assert "1 with a fraction, of 8; the first is 4.5 at [1]" in text
    assert x.to_numpy().tolist() == [3, 4, 0, 0, 0, 0, 0, 0]


def test_strict_mode_raises_for_whole_arrays_and_infinities(strict: None) -> None:
    x = ti.field(ti.i32, 3)
    x.fill(7)
    for run in (lambda: x.fill(2.9), lambda: x.from_numpy(np.array([1, 2, 2**40]))):
        with pytest.raises(ValueError, match="numbers that do not fit"):
            run()
    assert x.to_numpy().tolist() == [7, 7, 7]
    x.from_numpy(np.arange(3.0))
    y = ti.field(ti.f32, 3)
    with pytest.raises(ValueError, match="does not fit f32"):
        y[0] = 1e300


def test_types_of_numpy_and_torch_that_kernels_lack_are_named() -> None:
    x = ti.field(ti.f32, 2)
    with pytest.raises(ValueError, match="kernels have no type for numpy's complex64.*x.real"):
        x.from_numpy(np.zeros(2, np.complex64))
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"no float8_e4m3fn(.|\n)*help: pass t.float\(\)"):
        x.from_torch(torch.zeros(2, dtype=torch.float8_e4m3fn))


def test_fixed_point_numbers_of_32_bits_saturate_quietly() -> None:
    f = quantised(ti.types.quant.fixed(32, max_value=1.0))
    assert told(lambda: f.from_numpy(np.array([0.5, 1.0, -1.0, 0]))) == []
    np.testing.assert_allclose(f.to_numpy(), [0.5, 1, -1, 0], atol=1e-6)
