"""Guarantees to kernels where a device is as inexact as Vulkan allows: whole quotients and roots,
random numbers that are numbers, white texels, rotations that keep lengths. `//` and `%`:
test_quotients.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.ops.inexact import MODES, Inexact
from tests.unit.kernels import Field, run
from vkchi.ir import interp
from vkchi.ir.interp import evaluate
from vkchi.lang.texture_sampling import decode_texel
from vkchi.target.caps import FULL, Caps
from vkchi.types.formats import Format, texel_of

COUNT = 100


@pytest.fixture(params=list(MODES))
def device(request: pytest.FixtureRequest) -> Inexact:
    """Every kind of inexactness."""
    return Inexact(request.param)


def test_whole_quotients(device: Inexact) -> None:
    """`int(a / b)` and `ti.floor(a / b)` of whole numbers."""

    def divide(x: ti.template(), n: ti.i32) -> None:
        for i in range(1, COUNT):
            x[i, 0] = int((i * n) / i)
            x[i, 1] = int((i * n - 1) / i)
            x[i, 2] = ti.floor((i * n) / ti.f32(i))
            x[i, 3] = ti.ceil(i * n / -i)

    for n in (3, 41, 4099):
        x = Field(np.zeros((COUNT, 4), np.float32))
        run(divide, x, n, device=device)
        i = np.arange(1, COUNT)
        want = [i * 0 + n, (i * n - 1) // i, i * 0 + n, i * 0 - n]
        np.testing.assert_array_equal(x.data[1:], np.stack(want, 1))


def test_quotients_of_small_integers(device: Inexact) -> None:
    """Right also where they are not whole, if the integers are known to be small: below 2**21, or
    2**24 by constants."""

    def divide(x: ti.template(), y: ti.template()) -> None:
        for n, k in ti.ndrange((1, 50), (-3, 3)):
            i = ti.min((1 << 21) // n * n - n * (k & 1) + k // 2, (1 << 21) - 1)
            x[n, k] = int(ti.floor(i / n))
            x[n, k + 6] = int(ti.max(i, 0) / n)
            x[n, k + 12] = int(ti.floor(-ti.max(i, 0) / n))
        for n in ti.static(range(1, 50)):
            for k in range(-3, 3):
                y[n, k] = int(ti.floor((16777216 // n * n - n * 3 + k) / n))
                y[n, k + 6] = int((k * 1000 - 16770000 // n * n) / n)

    x = Field(np.zeros((50, 18), np.int32), offset=(0, -3))
    y = Field(np.zeros((50, 12), np.int32), offset=(0, -3))
    run(divide, x, y, device=device)
    n, k = np.arange(1, 50).reshape(-1, 1), np.arange(-3, 3)
    i = np.minimum((1 << 21) // n * n - n * (k & 1) + k // 2, (1 << 21) - 1)
    a, b = 16777216 // n * n - n * 3 + k, k * 1000 - 16770000 // n * n
    np.testing.assert_array_equal(x.data[1:, :6], i // n)
    np.testing.assert_array_equal(x.data[1:, 6:12], i // n)
    np.testing.assert_array_equal(x.data[1:, 12:], -i // n)
    np.testing.assert_array_equal(y.data[1:, :6], a // n)
    np.testing.assert_array_equal(y.data[1:, 6:], np.trunc(b / n))


def test_rounded_quotients_of_integers_are_theirs() -> None:
    """As `whole_quotients` proves: IEEE's quotient, rounded down, of dividends below 2**24."""
    b = np.concatenate([np.arange(1, 5000), 2**24 - np.arange(5000), 2 ** np.arange(24)])
    k = 2**24 // b
    for a in (k * b - 1, k * b, (k // 2 + 1) * b - 1, k // 3 * b + 1, 2**24 - 1 - b % 7):
        for sign in (-1, 1):
            found = np.floor((sign * a).astype(np.float32) / b.astype(np.float32))
            fits = a < 2**24
            np.testing.assert_array_equal(found[fits], (sign * a // b)[fits])


def test_quotients_near_whole_numbers() -> None:
    """On a device that divides exactly they equal its results, also where dividend is a
    rounded multiple of the divisor; elsewhere they are if they are whole."""
    rng = np.random.default_rng(2)
    y = (rng.random(250) + 0.5).astype(np.float32)
    y[:4] = 1, 2, 0.1, 1 - 2.0**-24
    n = rng.integers(1, 2 ** rng.integers(1, 21, 250)).astype(np.float32)
    x = np.stack([n * y, np.nextafter(n * y, np.float32(0)), np.nextafter(n * y, np.float32(9e9))])
    exact = x / y

    def floors(x: ti.template(), y: ti.template()) -> None:
        for i, j in ti.ndrange(3, 250):
            x[i, j] = ti.floor(x[i, j] / y[j])

    for device in (evaluate, *map(Inexact, MODES)):
        found = Field(x.copy())
        run(floors, found, Field(y), device=device)
        seen = (exact == np.round(exact)) | (device is evaluate)
        np.testing.assert_array_equal(found.data[seen], np.floor(exact)[seen])


def test_quotients_that_are_chosen(device: Inexact) -> None:
    """By selects, branches, as components of vectors."""

    def divide(x: ti.template()) -> None:
        for i in range(1, COUNT):
            a = 41.0 * i
            q = a / i if i > 50 else a / -i
            if i == 7:
                q = 2 * a / i
            v = ti.Vector([a / i, q])
            x[i, 0] = int(q)
            x[i, 1] = ti.floor(v[0])
            x[i, 2] = ti.floor(ti.max(a / i, 0.5))

    x = Field(np.zeros((COUNT, 3), np.float32))
    run(divide, x, device=device)
    i = np.arange(1, COUNT)
    first = np.where(i == 7, 82, np.where(i > 50, 41, -41))
    np.testing.assert_array_equal(x.data[1:], np.stack([first, i * 0 + 41, i * 0 + 41], 1))


def test_logarithms_of_powers_of_two(device: Inexact) -> None:
    def logarithms(x: ti.template()) -> None:
        for i in range(-126, 128):
            x[i] = int(ti.math.log2(x[i]))

    n = np.arange(-126, 128)
    x = Field(np.ldexp(np.float32(1), n), offset=(-126,))
    run(logarithms, x, device=device)
    np.testing.assert_array_equal(x.data, n)


def test_special_quotients(device: Inexact) -> None:
    def divide(a: ti.template(), b: ti.template(), c: ti.template()) -> None:
        for i in range(8):
            q = a[i] / b[i]
            c[i] = q if q == 0 else -ti.floor(-q)

    inf, nan = np.inf, np.nan
    a = Field(np.float32([0, -0.0, 1, -1, inf, inf, 3, nan]))
    b = Field(np.float32([3, 3, 0, 0, 2, inf, inf, 1]))
    c = Field(np.zeros(8, np.float32))
    run(divide, a, b, c, device=device)
    np.testing.assert_array_equal(c.data, np.float32([0, -0.0, inf, -inf, inf, nan, 0, nan]))
    assert np.signbit(c.data[:2]).tolist() == [False, True]


def test_roots_of_squares(device: Inexact) -> None:
    """`int(n ** 0.5)` of 49 is 7."""

    def roots(x: ti.template()) -> None:
        for i in range(COUNT):
            x[i, 0] = int((ti.f32(i) * ti.f32(i)) ** 0.5)
            x[i, 1] = ti.floor(ti.sqrt(0.25 * i * i))
            x[i, 2] = ti.ceil(ti.Vector([3.0 * i, 4.0 * i]).norm())
            x[i, 3] = ti.round(-ti.sqrt(0.25 * i * i))

    x = Field(np.zeros((COUNT, 4), np.float32))
    run(roots, x, device=device)
    n = np.arange(COUNT)
    np.testing.assert_array_equal(x.data, np.stack([n, n // 2, 5 * n, -((n + 1) // 2)], 1))


def test_special_roots(device: Inexact) -> None:
    def roots(x: ti.template()) -> None:
        for i in range(6):
            x[i] = ti.floor(ti.sqrt(x[i]))

    x = Field(np.float32([0.0, -0.0, np.inf, np.nan, -1.0, 2.0**-126]))
    run(roots, x, device=device)
    np.testing.assert_array_equal(x.data, np.float32([0, 0, np.inf, np.nan, np.nan, 0]))
    assert np.signbit(x.data).tolist()[:2] == [False, True]


@pytest.mark.parametrize("caps", [FULL, FULL._replace(float64=False)], ids=["f64", "no f64"])
def test_whole_powers(device: Inexact, caps: Caps) -> None:
    """By integers, and of 2 by whole numbers: exact where the result is an f32."""

    def powers(x: ti.template(), y: ti.template()) -> None:
        for i in range(-126, 128):
            x[i, 0] = 2.0**i
            x[i, 1] = 2.0 ** ti.f32(i)
            x[i, 2] = ti.math.exp2(ti.f32(i)) * ti.Vector([0.5, 0.5])[0]
            x[i, 3] = ti.f32(-0.5) ** i
        for i in range(8):
            y[i] = ti.Vector([3.0, -7.0, 10.0]) ** i

    x, y = (
        Field(np.zeros((254, 4), np.float32), offset=(-126, 0)),
        Field(np.zeros((8, 3), np.float32), element_axes=1),
    )
    run(powers, x, y, device=device, caps=caps)
    n, k = np.arange(-126, 128), np.arange(8).reshape(-1, 1)
    want = [np.ldexp(1.0, n), np.ldexp(1.0, n), np.ldexp(0.5, n), (-0.5) ** n.astype(float)]
    want = np.stack(want, 1).astype(np.float32)
    is_normal = np.abs(want) >= 2.0**-126
    np.testing.assert_array_equal(x.data[is_normal], want[is_normal])
    if caps is FULL or device.mode not in ("truncated", "contracted"):
        np.testing.assert_array_equal(y.data, np.float32([3, -7, 10]).astype(float) ** k)


def test_special_powers(device: Inexact) -> None:
    def powers(x: ti.template(), n: ti.template()) -> None:
        for i in range(12):
            x[i] = x[i] ** n[i]

    inf, nan = np.inf, np.nan
    x = Field(np.float32([0, -0.0, -0.0, inf, -inf, nan, nan, 1, -1, 2, 0.5, -2]))
    n = Field(np.int32([-1, -1, 3, -2, 3, 0, 1, -(2**31), 2**31 - 1, 2000, -2000, -(2**31)]))
    run(powers, x, n, device=device)
    want = np.float32([inf, -inf, -0.0, 0, -inf, 1, nan, 1, -1, inf, inf, 0])
    np.testing.assert_array_equal(x.data, want)


def test_large_powers_are_near() -> None:
    """To a unit in the last place, where f64 is there."""

    def powers(x: ti.template(), n: ti.template()) -> None:
        for i in range(4):
            x[i] = x[i] ** n[i]

    base, n = np.float32([1.0001, 0.999, 1.5, 3.0]), np.int32([500000, 20000, -200, 80])
    x = Field(base.copy())
    run(powers, x, Field(n), device=Inexact("scattered"))
    np.testing.assert_allclose(x.data, base.astype(np.float64) ** n, rtol=2.0**-22)


def test_random_numbers(device: Inexact) -> None:
    """Uniform ones are below 1; the logarithm of 1 may come out positive, and normal ones are
    numbers all the same."""

    def draw(x: ti.template()) -> None:
        for i in range(COUNT):
            x[i, 0] = ti.random()
            x[i, 1] = ti.randn()

    x = Field(np.zeros((COUNT, 2), np.float32))
    run(draw, x, device=device)
    assert np.isfinite(x.data).all() and (x.data[:, 0] >= 0).all() and (x.data[:, 0] < 1).all()
    assert abs(x.data[:, 1]).max() < 6


def test_logarithm_of_nearly_one(device: Inexact, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least number that can be drawn: the logarithm of 1 - 2**-24 may be positive."""
    monkeypatch.setattr(interp, "output_of", lambda state: 1 << 8)

    def draw() -> ti.f32:
        return ti.randn()

    assert np.isfinite(run(draw, device=device))


@pytest.mark.parametrize("name", ["r8", "r16", "rgba8"])
def test_white_texels(name: str) -> None:
    """Products are rounded to the nearest everywhere, quotients are not: 255 / 255 may not be 1."""
    texel = texel_of(getattr(Format, name))
    most = np.float32(65535 if name == "r16" else 255)
    assert decode_texel(texel, [most] * len(texel.order))[0] == 1
    factor = np.float32(1.0 / float(most))
    assert most * factor == 1 and np.nextafter(most * factor, np.float32(0)) < 1


def matrices() -> Any:
    """Matrices whose decomposition takes all turns."""
    rng = np.random.default_rng(4)
    return rng.standard_normal((4, 3, 3)).astype(np.float32)


def test_decompositions(device: Inexact) -> None:
    """As precise as where all is exact: to some ten roundings."""

    def decompose(a: ti.template(), u: ti.template(), p: ti.template()) -> None:
        for i in range(4):
            m = a[i]
            left, numbers, right = ti.svd(m)
            u[i] = left.transpose() @ left
            p[i] = left @ numbers @ right.transpose()

    a, u, p = (Field(x, element_axes=2) for x in (matrices(), *np.zeros((2, 4, 3, 3), np.float32)))
    run(decompose, a, u, p, device=device)
    assert abs(u.data - np.eye(3)).max() < 16 * 2.0**-24
    assert abs(p.data - a.data).max() < 40 * 2.0**-24 * abs(a.data).max()
