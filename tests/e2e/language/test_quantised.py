"""Bit-packed integers in fields: contents equal numpy's by the documented arithmetic, and numbers
that share a word do not disturb each other.

The models here are written in whole numbers and exact fractions, and share nothing with the code.
"""

import copy
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import vkchi as ti

quant = ti.types.quant
N = 64


def packed(*types: Any, n: int = N, bits: int = 32) -> list[Any]:
    """Fields of these types, in one word of each cell."""
    fields = [ti.field(t) for t in types]
    word = ti.BitpackedFields(max_num_bits=bits)
    word.place(*fields)
    ti.root.dense(ti.i, n).place(word)
    return fields


def numbers(x: Any) -> Any:
    """Contents of a field, element by element."""
    found = [x[k] for k in np.ndindex(x.shape)]
    return np.array(found).reshape(x.shape)


# --- models --------------------------------------------------------------------------------------


def wrapped(k: int, bits: int, signed: bool) -> int:
    """The low bits of a whole number, as one."""
    k %= 1 << bits
    return k - (1 << bits) if signed and k >> (bits - 1) else k


def rounded(x: Fraction) -> int:
    """The nearest whole number, halves away from zero."""
    k = int(abs(x) + Fraction(1, 2))
    return k if x >= 0 else -k


def as_fixed(x: float, bits: int, signed: bool, scale: float) -> float:
    return wrapped(rounded(Fraction(x) / Fraction(scale)), bits, signed) * scale


def as_floating(x: float, exponent: int, fraction: int, signed: bool) -> float:
    """The nearest number with so many bits; zero below, the greatest above."""
    digits, bias = fraction - signed, (1 << (exponent - 1)) - 1
    if x == 0:
        return 0.0
    size, power = abs(Fraction(x)), 0
    while size >= Fraction(2) ** (power + 1):
        power += 1
    while size < Fraction(2) ** power:
        power -= 1
    step = Fraction(2) ** (power - digits)
    size = rounded(size / step) * step
    if size < Fraction(2) ** (1 - bias):
        return 0.0
    greatest = (2 - Fraction(2) ** -digits) * Fraction(2) ** ((1 << exponent) - 1 - bias)
    return float(min(size, greatest)) * (-1 if x < 0 and signed else 1)


def floats(seed: int, n: int = N) -> Any:
    """Numbers of all sizes, and such as lie between two steps."""
    draw = np.random.default_rng(seed)
    wild = draw.standard_normal(n) * 2.0 ** draw.integers(-20, 20, n)
    halves = draw.integers(-40, 40, n) / 64.0
    return np.where(draw.random(n) < 0.5, wild, halves).astype(np.float32)


# --- kinds of numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "signed"), [(1, False), (1, True), (5, True), (7, False),
                                              (31, True), (32, True), (32, False)])  # fmt: skip
def test_integers_keep_their_low_bits(bits: int, signed: bool) -> None:
    (x,) = packed(quant.int(bits, signed))
    values = np.random.default_rng(bits).integers(-(2**31), 2**31, N)
    values[:20] = np.arange(-10, 10)
    given = ti.field(ti.i32, N)
    given.from_numpy(values.astype(np.int32))

    @ti.kernel
    def put():
        for i in x:
            x[i] = given[i]

    put()
    want = [wrapped(int(k), bits, signed) for k in values]
    np.testing.assert_array_equal(numbers(x), want)
    assert [x[i] for i in range(N)] == want


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("bits", "scale"), [(6, 0.0625), (10, 2.0**-9), (20, 2.0**-14)])
def test_fixed_point_numbers_are_the_nearest_step(bits: int, signed: bool, scale: float) -> None:
    (x,) = packed(quant.fixed(bits, signed, scale=scale))
    values = floats(bits)
    values = values[np.abs(values / scale) < 2.0**22]  # floats have halves
    values = values if signed else np.abs(values)
    given = ti.field(ti.f32, len(values))
    given.from_numpy(values)

    @ti.kernel
    def put():
        for i in given:
            x[i] = given[i]

    put()
    want = [as_fixed(float(v), bits, signed, scale) for v in values]
    np.testing.assert_array_equal(numbers(x)[: len(values)], want)
    for i, v in enumerate(values):
        x[i] = 0.0
        x[i] = float(v)
    np.testing.assert_array_equal(numbers(x)[: len(values)], want)


@pytest.mark.ours("quant-range")
def test_fixed_point_numbers_of_32_bits_and_out_of_range() -> None:
    (x,) = packed(quant.fixed(32, False, scale=0.5))

    @ti.kernel
    def put(v: ti.f32) -> ti.f32:
        x[0] = v
        return x[0]

    assert put(3e9 / 2) == 3e9 / 2
    assert put(1e30) == 2.0**31  # of the next below, the nearest of 32 bits
    assert put(-4.0) == 0.0
    x[0] = 1e30
    assert x[0] == 2.0**31
    (y,) = packed(quant.fixed(32, True, scale=1.0))

    @ti.kernel
    def put_signed(v: ti.f32) -> ti.f32:
        y[0] = v
        return y[0]

    assert put_signed(-1e30) == -(2.0**31)
    assert put_signed(1e30) == 2.0**31
    assert put_signed(float("nan")) == 0.0
    with pytest.raises(Exception, match="quant.fixed: the step"):
        quant.fixed(20, scale=1e-39)
    for k, v in enumerate((-1e30, 1e30, -3.0, 2.0**31 - 128)):
        y[k] = v
    assert [y[k] for k in range(4)] == [-(2.0**31), 2.0**31, -3.0, 2.0**31 - 128]


def test_fixed_point_numbers_of_32_bits_have_their_least() -> None:
    (x,) = packed(quant.fixed(32, True, 1.0))

    @ti.kernel
    def put(v: ti.f32) -> ti.f32:
        x[0] = v
        return x[0]

    for v in (-1.0, -0.5, 0.0, 0.5, -1.0 + 2.0**-24, 1.0 - 2.0**-24):
        x[1] = v
        assert (put(v), x[1]) == (v, v)


@pytest.mark.ours("quant-range")
def test_fixed_point_numbers_of_64_bit_floats_have_their_ends(lacks: Any) -> None:
    if lacks("f64") or lacks("i64"):
        pytest.skip("the device has no 64-bit numbers")
    x, y = (packed(quant.fixed(32, signed, scale=1.0, compute=ti.f64))[0] for signed in (1, 0))

    @ti.kernel
    def put(v: ti.f64):
        x[0] = v
        y[0] = v

    for v in (-1e30, -(2.0**31), -(2.0**31) + 1, 2.0**31 - 1, 2.0**31, 2.0**32 - 1, 1e30):
        put(v)
        x[1] = y[1] = v
        low, high = min(max(v, -(2.0**31)), 2.0**31 - 1), min(max(v, 0.0), 2.0**32 - 1)
        assert [x[0], x[1], y[0], y[1]] == [low, low, high, high]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("exponent", "fraction"), [(5, 9), (6, 13), (8, 4), (3, 2), (1, 3)])
def test_floats_of_fewer_bits(exponent: int, fraction: int, signed: bool) -> None:
    (x,) = packed(quant.float(exponent, fraction, signed))
    values = floats(exponent)
    values = values[np.abs(values) < as_floating(1e30, exponent, fraction, signed)]
    given = ti.field(ti.f32, len(values))
    given.from_numpy(values)

    @ti.kernel
    def put():
        for i in given:
            x[i] = given[i]

    put()
    want = np.array([as_floating(float(v), exponent, fraction, signed) for v in values], np.float32)
    np.testing.assert_array_equal(numbers(x)[: len(values)], want)
    for i, v in enumerate(values):
        x[i] = 0.0
        x[i] = float(v)
    np.testing.assert_array_equal(numbers(x)[: len(values)], want)


@pytest.mark.ours("quant-range")
def test_floats_that_are_none() -> None:
    (narrow, wide) = packed(quant.float(5, 9), quant.float(8, 8))
    for v in (float("inf"), -float("inf"), float("nan"), 1e-42):
        narrow[0] = wide[0] = v
        np.testing.assert_equal(wide[0], 0.0 if v == 1e-42 else v)
    assert narrow[0] == 0.0
    narrow[0] = -float("inf")
    assert narrow[0] == -as_floating(1e30, 5, 9, True)


# --- words ---------------------------------------------------------------------------------------


def test_numbers_in_one_word_do_not_disturb_each_other() -> None:
    kinds = [quant.int(5), quant.int(7, signed=False), quant.fixed(11), quant.float(4, 5)]
    a, b, c, d = packed(*kinds)

    @ti.kernel
    def one(k: ti.i32):
        for i in a:
            if k == 0:
                a[i] = i
            elif k == 1:
                b[i] = i
            elif k == 2:
                c[i] = i / 128
            else:
                d[i] = i / 8

    want = [np.zeros(N), np.zeros(N), np.zeros(N), np.zeros(N)]
    full = [
        [wrapped(i, 5, True) for i in range(N)],
        list(range(N)),
        [as_fixed(i / 128, 11, True, 2.0**-10) for i in range(N)],
        [as_floating(i / 8, 4, 5, True) for i in range(N)],
    ]
    for k in (2, 0, 3, 1):
        one(k)
        want[k] = np.array(full[k])
        for field, values in zip((a, b, c, d), want, strict=True):
            np.testing.assert_array_equal(numbers(field), values)


def test_invocations_that_write_to_one_word_lose_nothing() -> None:
    x = ti.field(quant.int(4))
    ti.root.dense(ti.i, 512).quant_array(ti.i, 8, max_num_bits=32).place(x)

    @ti.kernel
    def put(by: ti.i32):
        for i in x:
            x[i] = i + by

    @ti.kernel
    def add():
        for k in range(8 * 4096):
            x[k % 4096] += 1

    for by in range(4):
        put(by)
        want = [wrapped(i + by, 4, True) for i in range(4096)]
        np.testing.assert_array_equal(numbers(x), want)
    add()
    want = [wrapped(i + 3 + 8, 4, True) for i in range(4096)]
    np.testing.assert_array_equal(numbers(x), want)


def test_arrays_of_several_axes() -> None:
    x = ti.field(quant.int(4))
    ti.root.dense(ti.ij, (2, 3)).quant_array(ti.ij, (2, 4), max_num_bits=32).place(x)
    y = ti.field(quant.fixed(8))
    ti.root.quant_array(ti.i, 4, max_num_bits=32).place(y)
    assert x.shape == (4, 12)
    assert y.shape == (4,)

    @ti.kernel
    def put():
        for i, j in x:
            x[i, j] = i - j
        for i in y:
            ti.loop_config(bit_vectorize=True)
            y[i] = 0.25 * i

    put()
    want = [[wrapped(i - j, 4, True) for j in range(12)] for i in range(4)]
    np.testing.assert_array_equal(numbers(x), want)
    np.testing.assert_array_equal(numbers(y), [0, 0.25, 0.5, 0.75])
    x[3, 11], x[0, 4] = 5, -8
    want[3][11], want[0][4] = 5, -8
    np.testing.assert_array_equal(numbers(x), want)
    assert x[3, 10] == want[3][10]


def test_words_of_64_bits(lacks: Any) -> None:
    if lacks("i64"):
        pytest.skip("no integers of 64 bits")
    a, b, c = packed(quant.int(40, compute=ti.i64), quant.int(20), quant.int(4), bits=64)

    @ti.kernel
    def put():
        for i in a:
            a[i] = -(ti.i64(1) << 38) + i
            b[i] = -i
            c[i] += i

    put()
    np.testing.assert_array_equal(numbers(a), -(1 << 38) + np.arange(N))
    np.testing.assert_array_equal(numbers(b), -np.arange(N))
    np.testing.assert_array_equal(numbers(c), [wrapped(i, 4, True) for i in range(N)])
    b[3] = 77
    assert (a[3], b[3]) == (-(1 << 38) + 3, 77)


# --- atomic operations ---------------------------------------------------------------------------


def test_fixed_point_addend_is_rounded_first() -> None:
    (x,) = packed(quant.fixed(6, max_value=2.0))

    @ti.kernel
    def add(v: ti.f32):
        for _ in range(4):
            x[0] += v

    add(0.03)
    assert x[0] == 0.0
    add(0.04)
    assert x[0] == 0.25


# --- fields --------------------------------------------------------------------------------------


@pytest.mark.ours("quant-whole", run=False)
def test_python_sees_numbers() -> None:
    x, y = packed(quant.int(5), quant.fixed(8), n=8)
    x.from_numpy(np.arange(8))
    y.from_numpy(np.arange(8) / 16)
    z = ti.field(ti.f32, 8)
    z.copy_from(y)
    np.testing.assert_array_equal(z.to_numpy(), np.arange(8) / 16)
    x.copy_from(y)
    np.testing.assert_array_equal(x.to_numpy(), np.zeros(8))
    other = copy.deepcopy(y)
    other[1] = -0.5
    assert (y[1], other[1], other[2]) == (1 / 16, -0.5, 2 / 16)
    y.fill(0.25)
    np.testing.assert_array_equal(np.asarray(y), np.full(8, 0.25))
    assert y.dtype == quant.fixed(8)
    assert str(x) == "[0 0 0 0 0 0 0 0]"
    assert x.shape == (8,)


def test_fields_that_differ_in_their_step_alone_have_kernels_of_their_own() -> None:
    x, y = packed(quant.fixed(8, scale=0.5), quant.fixed(8, scale=0.25))

    @ti.kernel
    def put(field: ti.template()):
        for i in field:
            field[i] = 3.25

    put(x)
    put(y)
    assert (x[0], y[0]) == (3.5, 3.25)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.ours("quant-words", run=False)
def test_invalid_field_declarations_raise() -> None:
    five = quant.int(5)
    with pytest.raises(Exception, match="place in a word"):
        ti.field(five, shape=4)
    with pytest.raises(ti.Unsupported, match="no gradients"):
        ti.field(quant.fixed(5), needs_grad=True)
    with pytest.raises(Exception, match="holds numbers"):
        ti.ndarray(five, 4)
    with pytest.raises(Exception, match="place in a word"):
        ti.root.dense(ti.i, 4).place(ti.field(five))
    with pytest.raises(Exception, match="need 35 bits"):
        packed(*[five] * 7)
    with pytest.raises(Exception, match="not a quantised field"):
        packed(five, ti.i32)
    with pytest.raises(Exception, match="9 numbers of 4 bits need 36"):
        block = ti.root.dense(ti.i, 2).quant_array(ti.i, 9, max_num_bits=32)
        block.place(ti.field(quant.int(4)))
    with pytest.raises(Exception, match="32 or 64, not 16"):
        ti.BitpackedFields(max_num_bits=16)
    with pytest.raises(Exception, match="has no fields"):
        ti.root.dense(ti.i, 2).place(ti.BitpackedFields(max_num_bits=32))
    with pytest.raises(ti.Unsupported, match="dynamic blocks hold plain numbers"):
        word = ti.BitpackedFields(max_num_bits=32)
        word.place(ti.field(five))
        ti.root.dynamic(ti.i, 8).place(word)
    (x,) = packed(five)
    with pytest.raises(BufferError, match="share words"):
        np.from_dlpack(x)


def test_dtype_per_component() -> None:
    x = ti.Vector.field(2, dtype=[quant.int(5), quant.int(5)])
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x)
    ti.root.dense(ti.i, 3).place(word)
    x[1] = [3, -4]
    assert list(x[1]) == [3, -4]


def test_components_have_types_of_their_own() -> None:
    types = [quant.fixed(10, max_value=16.0), quant.float(6, 12)]
    v = ti.Vector.field(2, dtype=types)
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(v)
    ti.root.dense(ti.i, 8).place(word)

    @ti.kernel
    def put() -> ti.f32:
        for i in v:
            v[i] = [0.3 * i, 1.7 * i]
        for i in v:
            v[i][1] += 1.0
        for i in v:
            v[i] *= 2.0
        return v[2][0]

    found = put()
    x, y = [as_fixed(0.6, 10, True, 16 / 512), as_floating(3.4, 6, 12, True)]
    x, y = (
        as_fixed(2 * x, 10, True, 16 / 512),
        as_floating(2 * as_floating(y + 1, 6, 12, True), 6, 12, True),
    )
    assert (found, v[2][0], v[2][1]) == (x, x, y)


def test_components_in_words_and_blocks_of_their_own() -> None:
    v = ti.Vector.field(3, dtype=quant.fixed(21, max_value=2.0))
    ids = ti.field(quant.int(11))
    for k in range(3):
        word = ti.BitpackedFields(max_num_bits=32)
        word.place(v.get_scalar_field(k))
        if k == 0:
            word.place(ids)
        ti.root.dense(ti.i, 8).place(word)

    @ti.kernel
    def put():
        for i in v:
            ids[i] = i
            v[i] = [0.125 * i, -0.5, 0.75]
        for i in v:
            v[i] = v[i] * 0.5

    put()
    for i in range(8):
        assert (v[i][0], v[i][1], v[i][2], ids[i]) == (0.0625 * i, -0.25, 0.375, i)
    v[3][1] = 1.5
    assert (v[3][0], v[3][1], v[3][2], ids[3]) == (0.1875, 1.5, 0.375, 3)


# --- shared exponents ----------------------------------------------------------------------------


def as_shared(xs: Any, exponent: int, fractions: Any, signed: bool) -> list[float]:
    """The nearest numbers with the exponent of the largest, whose fractions have so many bits."""
    powers = [math.frexp(x)[1] - 1 for x in xs if x]
    bias, top = (1 << (exponent - 1)) - 1, max(powers, default=-1000)
    if top <= -bias:
        return [0.0] * len(xs)
    found = []
    for x, fraction in zip(xs, fractions, strict=True):
        digits = fraction - signed
        step = Fraction(2) ** (top - digits + 1)
        k = min(rounded(abs(Fraction(x)) / step), (1 << digits) - 1)
        found.append(float(k * step) * (-1 if x < 0 and signed else 1))
    return found


SHARED = [(5, (10, 14)), (6, (8, 8, 8)), (5, (5, 3, 9, 4)), (8, (12, 12)), (2, (6, 6))]


def sharing(exponent: int, fractions: Any, signed: bool, n: int = N) -> list[Any]:
    fields = [ti.field(quant.float(exponent, k, signed)) for k in fractions]
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(*fields, shared_exponent=True)
    ti.root.dense(ti.i, n).place(word)
    return fields


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("exponent", "fractions"), SHARED)
def test_floats_that_share_an_exponent(exponent: int, fractions: Any, signed: bool) -> None:
    fractions = fractions if signed else tuple([k - 1 for k in fractions])
    fields, draw = sharing(exponent, fractions, signed), np.random.default_rng(exponent)
    bias = (1 << (exponent - 1)) - 1
    top = draw.integers(-min(bias, 20), min((1 << exponent) - 1 - bias, 20) + 1, (N, 1))
    sizes = (1 + draw.random((N, len(fields)))) * 2.0 ** (
        top - draw.integers(0, 6, (N, len(fields)))
    )
    values = (sizes * (draw.random(sizes.shape) < 0.9)).astype(np.float32)
    given = ti.field(ti.f32, values.shape)
    given.from_numpy(values)

    @ti.kernel
    def put():
        for i in range(N):
            for k in ti.static(range(len(fractions))):
                fields[k][i] = given[i, k]

    for field in fields:
        for i in range(N):
            field[i] = 3.0  # larger numbers before do not matter
    put()
    want = [as_shared(row.tolist(), exponent, fractions, signed) for row in values]
    found = [[field[i] for field in fields] for i in range(N)]
    np.testing.assert_array_equal(found, want)


def test_a_store_to_one_float_encodes_the_others_again() -> None:
    x, y = sharing(5, (10, 14), True, 4)

    @ti.kernel
    def put(v: ti.f32):
        x[1] = v

    y[1] = 0.3
    for v in (0.01, 3.2, 700.0, 0.01, 0.0):
        old = y[1]
        put(v)
        assert [x[1], y[1]] == as_shared([np.float32(v).item(), old], 5, (10, 14), True)
        x[2], y[2] = 0.0, old
        x[2] = v
        assert [x[2], y[2]] == [x[1], y[1]]


def test_vectors_share_an_exponent_beside_other_numbers() -> None:
    v, kind = ti.Vector.field(3, dtype=quant.float(6, 8)), ti.field(quant.int(2, signed=False))
    voxel = ti.BitpackedFields(max_num_bits=32)
    voxel.place(v, shared_exponent=True)
    voxel.place(kind)
    ti.root.dense(ti.ij, (4, 8)).place(voxel)

    @ti.kernel
    def put():
        for i, j in v:
            v[i, j] = [i + 0.3, 0.25 * j, 3.0]
            kind[i, j] = (i + j) % 4
        for i, j in v:
            v[i, j] *= 2.0
        for i, j in v:
            v[i, j].y += 1.0

    put()
    for i in range(4):
        for j in range(8):
            once = as_shared([np.float32(i + 0.3).item(), 0.25 * j, 3.0], 6, (8,) * 3, True)
            twice = as_shared([2 * x for x in once], 6, (8,) * 3, True)
            want = as_shared([twice[0], twice[1] + 1, twice[2]], 6, (8,) * 3, True)
            assert [v[i, j][0], v[i, j][1], v[i, j][2], kind[i, j]] == [*want, (i + j) % 4]


@pytest.mark.ours("quant-shared")
def test_floats_that_share_an_exponent_saturate() -> None:
    x, y = sharing(5, (10, 14), True, 4)

    @ti.kernel
    def put(a: ti.f32, b: ti.f32):
        x[0] = a
        y[0] = b

    put(-1e-4, 64.0)
    assert (x[0], y[0]) == (0.0, 64.0)
    put(1e30, -1.0)
    assert (x[0], y[0]) == (511 * 256.0, 0.0)


def test_updates_of_floats_that_share_an_exponent_are_not_lost() -> None:
    fields = sharing(6, (8, 8, 8), True, 64)

    @ti.kernel
    def add(field: ti.template()):
        for k in range(64 * 30):
            field[k % 64] += 1.0

    for field in fields:
        add(field)
    for i in range(64):
        assert [field[i] for field in fields] == [30.0] * 3
