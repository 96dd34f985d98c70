"""Derivatives do not flow through the bits of numbers: such programs are refused, others not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

POINTS = np.array([1.5, 2, 3.5], np.float32)


def fast_inverse_root(a):
    bits = 0x5F3759DF - (ti.bit_cast(a, ti.i32) >> 1)
    y = ti.bit_cast(bits, ti.f32)
    return y * (1.5 - 0.5 * a * y * y)


def fast_logarithm(a):
    return ti.cast(ti.bit_cast(a, ti.i32), ti.f32) * 1.19e-7 - 127


def hash_in_a_loop(a):
    bits = ti.bit_cast(a, ti.u32)
    for _i in range(3):
        bits = bits * 1664525 + 1013904223
    return ti.cast(bits, ti.f32) * a


def mantissa(a):
    m, _e = ti.frexp(a)
    return m * a


def hash_of_a_constant(a):
    bits = ti.bit_cast(ti.stop_grad(a), ti.u32) * 2
    return ti.cast(bits % 2, ti.f32) + 2 * a


def compared_bits(a):
    r = a
    if ti.bit_cast(a, ti.u32) > 5:
        r = a * a
    return r


def exponent(a):
    _m, e = ti.frexp(a)
    return e * a


def there_and_back(a):
    return 3 * ti.bit_cast(ti.bit_cast(a, ti.i32), ti.f32)


Run = tuple[Any, Any, Callable[[], None]]


def make(body: Any, kind: str) -> Run:
    x = ti.field(ti.f32, 3, **{f"needs_{kind}": True})
    loss = ti.field(ti.f32, (), **{f"needs_{kind}": True})
    x.from_numpy(POINTS)
    function = ti.func(body)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += function(x[i])

    return x, loss, run


@pytest.mark.parametrize("body", [fast_inverse_root, fast_logarithm, hash_in_a_loop])
def test_derivative_through_bit_cast_raises(body: Any) -> None:
    _, loss, run = make(body, "grad")
    with pytest.raises(ti.ad.GradientError, match="through the bits of a number"):
        with ti.ad.Tape(loss):
            run()
    x, loss, run = make(body, "dual")
    with pytest.raises(ti.ad.GradientError, match="through the bits of a number"):
        with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0]):
            run()


@pytest.mark.parametrize(
    ("body", "slopes"),
    [
        (hash_of_a_constant, [2, 2, 2]),
        (compared_bits, [3, 4, 7]),
        (exponent, [1, 2, 2]),
        (there_and_back, [3, 3, 3]),
    ],
)
def test_bit_casts_without_derivative_are_right(body: Any, slopes: list[float]) -> None:
    x, loss, run = make(body, "grad")
    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), slopes)


@pytest.mark.parametrize("kind", ["grad", "dual"])
def test_the_mantissa_has_a_derivative(kind: str) -> None:
    """m = a / 2^e; of 0, infinity and subnormals, a itself."""
    values = np.array([1.5, -2, 3.5, 1e30, 0, 8e37, -0.001, 0.5], np.float32)
    x, y = (ti.Vector.field(2, ti.f32, 4, **{f"needs_{kind}": True}) for _ in range(2))
    x.from_numpy(values.reshape(4, 2))

    @ti.kernel
    def run():
        for i in x:
            y[i] = ti.frexp(x[i])[0]

    want = np.ldexp(1.0, -np.frexp(values)[1])
    if kind == "grad":
        with ti.ad.Tape() as tape:
            run()
        tape.backward({y: 1.0})
        found = x.grad
    else:
        with ti.ad.FwdMode(y, x, np.ones(8)):
            run()
        found = y.dual
    np.testing.assert_array_equal(y.to_numpy().ravel(), np.frexp(values)[0])
    np.testing.assert_allclose(found.to_numpy().ravel(), want, rtol=1e-6)


def make_parts() -> tuple[Any, Any, Any, Any]:
    """Kernels that put bits of 2 x into an array of integers, and make numbers of them again."""
    x, loss = ti.field(ti.f32, 2, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    b, c = ti.field(ti.i32, 2), ti.field(ti.u32, 2)
    x.from_numpy(np.array([1.5, 2.5]))

    @ti.kernel
    def put():
        for i in x:
            b[i] = ti.bit_cast(2 * x[i], ti.i32)

    @ti.kernel
    def move():
        for i in x:
            c[i] = ti.u32(b[i]) ^ ti.u32(5)

    @ti.kernel
    def take():
        for i in x:
            loss[None] += ti.bit_cast(c[i] ^ ti.u32(5), ti.f32) * x[i]

    @ti.kernel
    def clear():
        for i in c:
            c[i] = ti.u32(5)

    @ti.kernel
    def one():
        for i in x:
            b[i] = ti.bit_cast(2 * x[i], ti.i32)
        for i in x:
            loss[None] += ti.bit_cast(b[i], ti.f32) * x[i]

    return x, loss, (put, move, take, clear), one


def test_bits_in_arrays() -> None:
    x, loss, (put, move, take, clear), one = make_parts()
    for kernels in ((put, move, take), (one,)):
        with (
            pytest.raises(ti.ad.GradientError, match="through the bits of a number"),
            ti.ad.Tape(loss),
        ):
            for kernel in kernels:
                kernel()
    with ti.ad.Tape(loss):
        put()
        move()
        clear()
        take()
    np.testing.assert_allclose(x.grad.to_numpy(), [0, 0])


@ti.kernel
def put_bits(x: ti.template(), a: ti.types.ndarray()):
    for i in x:
        a[i] = ti.bit_cast(2 * x[i], ti.i32)


@ti.kernel
def put(x: ti.template(), a: ti.types.ndarray()):
    for i in x:
        a[i] = 2 * x[i]


@ti.kernel
def take_bits(loss: ti.template(), a: ti.types.ndarray()):
    for i in a:
        loss[None] += ti.bit_cast(a[i], ti.f32)


@ti.kernel
def take(loss: ti.template(), a: ti.types.ndarray()):
    for i in a:
        loss[None] += a[i]


@ti.kernel
def copy(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for i in a:
        b[i] = a[i]


def halves(a: Any) -> Any:
    b = np.zeros(2, np.int32)
    copy(a.view(np.int32), b)
    return b


def of_ours(a: Any) -> Any:
    return np.from_dlpack(a).view(np.int32)


WAYS: dict[str, tuple[Callable[[], Any], Any, Any, Callable[[Any], Any]]] = {
    "view of integers": (lambda: np.zeros(2, np.float32), put, take_bits, lambda a: a.view("i4")),
    "bits as numbers": (lambda: np.zeros(2, np.float32), put, take, lambda a: a.view("u4")),
    "view of floats": (lambda: np.zeros(2, np.int32), put_bits, take, lambda a: a.view("f4")),
    "copy of a view": (lambda: np.zeros(2, np.float32), put, take_bits, halves),
    "ndarray": (lambda: ti.ndarray(ti.f32, 2), put, take_bits, of_ours),
    "ndarray with gradient": (lambda: ti.ndarray(ti.f32, 2, True), put, take_bits, of_ours),
}


@pytest.mark.parametrize("way", WAYS)
def test_views_of_other_types(way: str) -> None:
    make_array, first, second, see = WAYS[way]
    x, loss = ti.field(ti.f32, 2, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array([1.5, 2.5]))
    a = make_array()
    with pytest.raises(ti.ad.GradientError, match="it would be lost"), ti.ad.Tape(loss):
        first(x, a)
        second(loss, see(a))
