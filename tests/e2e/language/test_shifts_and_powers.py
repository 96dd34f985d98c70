"""Shifts by any amount, in all integer types; powers of integers."""

import math

import pytest

import vkchi as ti
from tests.e2e.language.compare import check

TYPES = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]
AMOUNTS = (0, 1, 7, 8, 15, 16, 31)
BEYOND = (32, 33, 40, 63, 64, 65, 255, 256, 2**31 - 1, -1, -8, -(2**31))


def wrap(value: int, name: str) -> int:
    """An integer as the type holds it."""
    bits = int(name[1:])
    value %= 1 << bits
    return value - (1 << bits) if name[0] == "i" and value >> (bits - 1) else value


def shifted(x: int, k: int, name: str) -> list[int]:
    """x << k and x >> k: bits that are shifted out are lost."""
    k = k if 0 <= k < 64 else 64
    return [wrap(x << k, name), x >> k]


def numbers(name: str) -> list[int]:
    """Some numbers of the type."""
    bits = int(name[1:])
    return [wrap(x, name) for x in (1, 100, -1, -100, 1 << (bits - 1), 0x5A5A5A5A5A5A5A5A)]


def check_shifts(name: str, amounts) -> None:
    t = getattr(ti, name)
    found = ti.field(t, shape=2)

    @ti.kernel
    def run(x: t, k: ti.i32):
        found[0] = x << k
        found[1] = x >> k

    for x in numbers(name):
        for k in amounts:
            run(x, k)
            check([int(found[0]), int(found[1])], shifted(x, k, name))


@pytest.mark.parametrize("name", TYPES)
def test_shift(name: str, lacks) -> None:
    if lacks(name):
        pytest.skip(f"no {name}")
    check_shifts(name, AMOUNTS)


@pytest.mark.ours("shifts")
@pytest.mark.parametrize("name", TYPES)
def test_shift_by_more(name: str, lacks) -> None:
    if lacks(name):
        pytest.skip(f"no {name}")
    check_shifts(name, BEYOND)


@pytest.mark.ours("shifts")
@pytest.mark.parametrize("amount", ["u8", "i8", "u32", "i64", "u64"])
@pytest.mark.parametrize("name", ["u8", "i32"])
def test_amounts_of_other_types(name: str, amount: str, lacks) -> None:
    if lacks(name) or lacks(amount):
        pytest.skip(f"no {name} or {amount}")
    t, its = getattr(ti, name), getattr(ti, amount)
    found = ti.field(t, shape=2)

    @ti.kernel
    def run(x: t, k: its):
        found[0] = x << k
        found[1] = x >> k

    bits = int(amount[1:])
    for k in (0, 5, 8, 31, 32, 127, 1 << (bits - 2), (1 << (bits - 1)) - 1):
        run(90, wrap(k, amount))
        check([int(found[0]), int(found[1])], shifted(90, k, name))


@pytest.mark.ours("shifts")
def test_compile_time_operands() -> None:
    @ti.kernel
    def run() -> ti.types.vector(8, ti.i32):
        one, low, k = 1, -100, 40
        a = ti.Vector([one << 31, one << 32, one << 1000, low >> 32])
        b = ti.Vector([one << k, low >> k, ti.bit_shr(low, k), ti.bit_shr(low, 28)])
        return ti.types.vector(8, ti.i32)(a, b)

    check(run(), [-(2**31), 0, 0, -1, 0, -1, 0, 15])


@pytest.mark.ours("shifts")
def test_narrow_constants(lacks) -> None:
    if lacks("u8"):
        pytest.skip("no u8")

    @ti.kernel
    def run() -> ti.types.vector(3, ti.i32):
        return ti.Vector([int(ti.u8(1) << 7), int(ti.u8(1) << 31), int(ti.u8(1) << 256)])

    check(run(), [128, 0, 0])


def test_shifts_of_vectors() -> None:
    @ti.kernel
    def run(v: ti.types.vector(4, ti.i32)) -> ti.types.matrix(3, 4, ti.i32):
        return ti.Matrix.rows([5 << v, -5 >> v, ti.bit_shr(v, 31)])

    check(run([0, 31, 32, -1]), [[5, -(2**31), 0, 0], [-5, -1, -1, -1], [0, 0, 0, 1]])


@pytest.mark.ours("shifts")
def test_negative_constant() -> None:
    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        return x << -1

    with pytest.raises(ti.TaichiTypeError, match="the amount of a shift is negative"):
        run(1)


# --- powers --------------------------------------------------------------------------------------


@ti.kernel
def power(x: ti.i32, y: ti.i32) -> ti.i32:
    return x**y


def test_power() -> None:
    for x, y in ((2, 0), (0, 0), (2, 10), (-3, 3), (-3, 4), (3, 21), (2, 31), (2, 32), (-1, 99)):
        check(power(x, y), wrap(x**y, "i32"))


@pytest.mark.ours("negative-powers")
def test_negative_power() -> None:
    """Python's `int(x ** y)`; 0 of 0."""
    for x, y, want in ((2, -1, 0), (-2, -1, 0), (1, -1, 1), (-1, -1, -1), (-1, -2, 1), (0, -1, 0)):
        check(power(x, y), want)
    check(power(-1, -(2**31)), 1)


@pytest.mark.ours("negative-powers")
def test_negative_powers_in_vectors_and_constants() -> None:
    v4 = ti.types.vector(4, ti.i32)

    @ti.kernel
    def run(x: v4, y: v4) -> v4:
        return x**y

    @ti.kernel
    def known() -> v4:
        two, one, minus, y = 2, 1, -1, -3
        return ti.Vector([two**y, one**y, minus**y, ti.pow(two, y)])

    check(run([2, -1, 1, 3], [-1, -3, -2, 4]), [0, -1, 1, 81])
    check(known(), [0, 1, -1, 0])


def test_negative_compile_time_power_raises() -> None:
    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        return x**-1

    with pytest.raises(Exception, match="[Nn]egative"):
        run(2)


def test_negative_power_fails_in_debug_mode(init) -> None:
    init(debug=True)

    @ti.kernel
    def run(x: ti.i32, y: ti.i32) -> ti.i32:
        return x**y

    assert run(3, 2) == 9
    with pytest.raises(ti.TaichiAssertionError, match="[Nn]egative"):
        run(3, -2)


def test_negative_power_of_a_float() -> None:
    @ti.kernel
    def run(x: ti.f32, y: ti.i32) -> ti.types.vector(2, ti.f32):
        return ti.Vector([x**-2, x**y])

    check(run(2.0, -3), [0.25, 0.125])


def test_powers_of_zero_one_and_negative_bases_of_floats() -> None:
    """The rules of C's pow (ISO C, annex F.10.4.4), computed and with constant exponents."""

    @ti.kernel
    def run(x: ti.f32, y: ti.f32) -> ti.f32:
        return ti.pow(x, y)

    @ti.kernel
    def known(x: ti.f32) -> ti.types.vector(6, ti.f32):
        return ti.Vector([x**-1.5, x**-3.0, x**-0.25, x**-0.5, x**0.7, abs(x) ** -1.5])

    inf, nan = math.inf, math.nan
    for x, y, want in (
        (0.0, -1.5, inf), (0.0, -2.0, inf), (0.0, 1.5, 0.0), (0.0, 0.0, 1.0), (0.0, nan, nan),
        (0.0, -inf, inf), (0.0, inf, 0.0), (nan, 0.0, 1.0), (1.0, nan, 1.0), (inf, -1.0, 0.0),
        (-1.0, inf, 1.0), (1.0, -inf, 1.0),
        (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, 0.5, nan),
    ):  # fmt: skip
        assert run(x, y) == pytest.approx(want, nan_ok=True, rel=1e-5), (x, y)

    @ti.kernel
    def special(x: ti.f32) -> ti.types.vector(4, ti.f32):
        return ti.Vector([x**ti.math.inf, x**-ti.math.inf, x**ti.math.nan, x**-65537.0])

    assert list(special(1.0)) == [1.0, 1.0, 1.0, 1.0]
    assert list(special(-1.0))[:2] == [1.0, 1.0] and math.isnan(special(-1.0)[2])
    assert list(special(-0.0))[3] == -inf
    assert list(known(0.0)) == [inf, inf, inf, inf, 0.0, inf]
    assert [math.isnan(v) for v in known(-2.0)] == [True, False, True, True, True, False]


@pytest.mark.parametrize("y, want", [(-3.0, -math.inf), (3.0, -0.0), (-2.0, math.inf)])
def test_powers_of_negative_zero(y: float, want: float) -> None:
    @ti.kernel
    def run(x: ti.f32, y: ti.f32) -> ti.f32:
        return ti.pow(x, y)

    found = run(-0.0, y)
    assert (found, math.copysign(1, found)) == (want, math.copysign(1, want))
