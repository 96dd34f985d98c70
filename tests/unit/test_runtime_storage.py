"""Arrays seen from Python, where the device's memory is the host's and where it is staged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.device import open_device
from vkchi.errors import ArgumentError
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options

pytestmark = pytest.mark.device
TYPES = (
    ti.f32,
    ti.f64,
    ti.f16,
    ti.i8,
    ti.u8,
    ti.i16,
    ti.u16,
    ti.i32,
    ti.u32,
    ti.i64,
    ti.u64,
    ti.u1,
)


@pytest.fixture(params=["mapped", "staged"], autouse=True, scope="module")
def memory(request: Any) -> Iterator[str]:
    install_runtime(Runtime(open_device(staged=request.param == "staged"), Options()))
    yield request.param
    ti.reset()


def skip_without(t: Any) -> None:
    caps = current_runtime().device.caps
    if t is not ti.u1 and not caps.can_store(t.name):
        pytest.skip(f"no {t} here")


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("make", [ti.field, ti.ndarray], ids=["field", "ndarray"])
def test_elements_and_contents(t: Any, make: Any) -> None:
    skip_without(t)
    x = make(t, shape=(3, 5))
    assert not x.to_numpy().any() and x.to_numpy().dtype == t.dtype
    x[2, 4] = 1
    x[0, 1] = 1
    want = np.zeros((3, 5), t.dtype)
    want[2, 4] = want[0, 1] = 1
    np.testing.assert_array_equal(x.to_numpy(), want)
    assert x[2, 4] == 1 and x[0, 0] == 0
    values = np.random.default_rng(1).integers(0, 100, (3, 5)).astype(t.dtype)
    x.from_numpy(values)
    np.testing.assert_array_equal(x.to_numpy(), values)
    x.from_numpy(values.T[::-1].T[:, ::-1].copy(order="F"))
    np.testing.assert_array_equal(x.to_numpy(), values)
    x.fill(1)
    np.testing.assert_array_equal(x.to_numpy(), np.ones((3, 5), t.dtype))


@pytest.mark.parametrize("order", [ti.Layout.AOS, ti.Layout.SOA], ids=["aos", "soa"])
@pytest.mark.parametrize("t", [ti.f32, ti.i16, ti.u1], ids=str)
def test_tensor_elements(t: Any, order: Any) -> None:
    skip_without(t)
    v = ti.Vector.field(3, t, shape=4, layout=order)
    m = ti.Matrix.field(2, 3, t, shape=(2, 2), layout=order)
    v[1] = [1, 0, 1]
    v[2][2] = 1
    v[3].y = 1
    assert v.to_numpy().astype(int).tolist() == [[0, 0, 0], [1, 0, 1], [0, 0, 1], [0, 1, 0]]
    m[0, 1] = [[1, 0, 1], [0, 1, 1]]
    m[1, 0][1, -1] = 1
    assert m[0, 1][1, 2] == 1 and m[1, 0][1, 2] == 1 and m[1, 0][0, 0] == 0
    want = np.zeros((2, 2, 2, 3), int)
    want[0, 1] = [[1, 0, 1], [0, 1, 1]]
    want[1, 0, 1, 2] = 1
    np.testing.assert_array_equal(m.to_numpy().astype(int), want)
    m.from_numpy(want[::-1])
    np.testing.assert_array_equal(m.to_numpy().astype(int), want[::-1])
    v.fill([1, 0, 1])
    m.fill([[1, 0, 0], [0, 0, 1]])
    assert v.to_numpy().astype(int).tolist() == [[1, 0, 1]] * 4
    assert (m.to_numpy().astype(int) == [[1, 0, 0], [0, 0, 1]]).all()
    v.fill(1)
    assert (v.to_numpy() == 1).all()


def test_elements_are_addresses() -> None:
    v = ti.Vector.field(2, ti.f32, shape=())
    v[None][0] -= 1.5
    v[None] += ti.Vector([1.0, 2.0])
    assert v.to_numpy().tolist() == [-0.5, 2.0]
    v[None].fill(7)
    assert v[None].to_list() == [7.0, 7.0]


def test_numbers_of_another_type_are_cast() -> None:
    i, u, f, b = (ti.field(t, 3) for t in (ti.i32, ti.u32, ti.f32, ti.u1))
    i.from_numpy(np.array([1.7, -1.7, 3.0]))
    assert i.to_numpy().tolist() == [1, -1, 3]
    i.fill(2.9)
    i[0] = -2.0
    for number in (-2.9, 2**40 + 5):
        with pytest.raises(ArgumentError, match="does not fit i32"):
            i[1] = number
    assert i.to_numpy().tolist() == [-2, 2, 2]
    u.fill(-1)
    with pytest.raises(ArgumentError, match="does not fit u32"):
        u[1] = -2
    assert u.to_numpy().tolist() == [2**32 - 1] * 3
    f.fill(1e300)
    f[1] = -1e300
    f[2] = 2**60
    assert f.to_numpy().tolist() == [np.inf, -np.inf, 2.0**60]
    b.fill(5)
    b[1] = 0
    assert b.to_numpy().tolist() == [True, False, True]
    b.from_numpy(np.array([0.5, 0.0, -3.0]))
    assert b.to_numpy().tolist() == [True, False, True]


@pytest.mark.parametrize("value", [-0.0, np.nan, np.inf, -np.inf])
def test_special_floats_are_kept(value: float) -> None:
    f = ti.field(ti.f32, 5)
    f.fill(value)
    f[2] = value
    want = np.full(5, value, np.float32)
    assert f.to_numpy().tobytes() == want.tobytes()
    f.from_numpy(want)
    assert f.to_numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("value", ["1", None, 1j, [1, 2], 2**100, object(), [[1], [2, 3]]])
def test_non_number_raises(value: Any) -> None:
    f = ti.field(ti.i32, 3)
    for act in (f.fill, lambda v: f.__setitem__(0, v), f.from_numpy):
        with pytest.raises(ti.TaichiRuntimeTypeError):
            act(value)


def test_elements_of_the_wrong_shape_raise() -> None:
    m = ti.Matrix.field(2, 2, ti.f32, 3)
    for value in ([1, 2], [[1, 2]], np.zeros((3, 2, 2))):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="shape"):
            m.fill(value)
        with pytest.raises(ti.TaichiRuntimeTypeError, match="shape"):
            m[0] = value


def test_unit_column_may_be_omitted() -> None:
    m = ti.Matrix.field(3, 1, ti.f32, 2)
    v = ti.Vector.field(3, ti.f32, 2)
    m.fill([1, 2, 3])
    m[0] = [4, 5, 6]
    v.from_numpy(m.to_numpy(keep_dims=True))
    assert m.to_numpy().shape == v.to_numpy().shape == (2, 3)
    assert m.to_numpy(keep_dims=True).shape == v.to_numpy(keep_dims=True).shape == (2, 3, 1)
    assert v.to_numpy(dtype=np.int64).tolist() == [[4, 5, 6], [1, 2, 3]]
    m.from_numpy(v.to_numpy() + 1)
    assert m[1][2, 0] == 4


def test_copy_from() -> None:
    x, y = ti.field(ti.f32, 4), ti.ndarray(ti.f32, 4)
    y.from_numpy(np.arange(4) + 0.5)
    x.copy_from(y)
    x.copy_from(x)
    assert x.to_numpy().tolist() == [0.5, 1.5, 2.5, 3.5]
    whole = ti.field(ti.i32, 4)
    whole.copy_from(x)
    assert whole.to_numpy().tolist() == [0, 1, 2, 3]
    a = ti.Vector.field(2, ti.f32, 3, layout=ti.Layout.SOA)
    b = ti.Vector.field(2, ti.f32, 3)
    b.from_numpy(np.arange(6).reshape(3, 2))
    a.copy_from(b)
    assert a.to_numpy().tolist() == b.to_numpy().tolist()
    with pytest.raises(ti.TaichiRuntimeTypeError, match="needed"):
        x.copy_from(b)


@pytest.mark.parametrize("make", [ti.field, ti.ndarray], ids=["field", "ndarray"])
def test_deep_copies_are_arrays_of_their_own(make: Any) -> None:
    x = make(ti.f32, shape=3, needs_grad=True)
    x.fill(2)
    other = copy.deepcopy(x)
    other[0] = 5
    other.grad[1] = 1
    assert type(other) is type(x) and other.to_numpy().tolist() == [5, 2, 2]
    assert x.to_numpy().tolist() == [2, 2, 2] and not x.grad.to_numpy().any()


def test_kernels_and_python_see_writes_of_each_other() -> None:
    x = ti.field(ti.f32, 100)
    v = ti.Vector.ndarray(3, ti.i32, 7)
    flags = ti.field(ti.u1, 100)

    @ti.kernel
    def step(a: ti.types.ndarray(), host: ti.types.ndarray()) -> ti.f32:
        total = 0.0
        for i in x:
            x[i] += i
            flags[i] = x[i] > 50
        for i in a:
            a[i] += ti.Vector([1, 2, 3])
        for i in host:
            host[i] *= 2
            total += host[i]
        return total

    x.fill(1)
    v[2] = [10, 20, 30]
    data = np.arange(10, dtype=np.float32)
    assert step(v, data) == 90
    np.testing.assert_array_equal(data, 2 * np.arange(10))
    np.testing.assert_array_equal(x.to_numpy(), np.arange(100) + 1)
    assert v[2].to_list() == [11, 22, 33] and v[6].to_list() == [1, 2, 3]
    assert flags[49] == 0 and flags[50] == 1 and flags.to_numpy().sum() == 50
    flags[3] = True
    assert flags.to_numpy().sum() == 51


def test_constructors_reject_values_that_are_no_type_or_layout() -> None:
    for make in (ti.Vector.field, ti.Vector.ndarray):
        for n, dtype in ((0, ti.f32), (-1, ti.f32), (2.5, ti.f32), (3, "f"), (3, ti.math.vec3)):
            with pytest.raises(ti.TaichiRuntimeTypeError):
                make(n, dtype, 3)
    with pytest.raises(ti.TaichiRuntimeTypeError, match=r"ti.Layout.AOS or ti.Layout.SOA"):
        ti.Vector.field(2, ti.f32, 3, layout="SOA")
