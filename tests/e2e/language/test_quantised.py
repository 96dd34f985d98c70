"""Numbers of any width in fields: what kernels and Python find there is what numpy computes from
the documented arithmetic, and numbers that share a word do not disturb each other.

The models here are written in whole numbers and exact fractions, and share nothing with the code.
"""

import copy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import Unsupported

quant = ti.types.quant
N = 64


def packed(*types: Any, n: int = N, bits: int = 32) -> list[Any]:
    """Fields of these types, in one word of each cell."""
    fields = [ti.field(t) for t in types]
    word = ti.BitpackedFields(max_num_bits=bits)
    word.place(*fields)
    ti.root.dense(ti.i, n).place(word)
    return fields


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
    np.testing.assert_array_equal(x.to_numpy(), want)
    assert [x[i] for i in range(N)] == want
    assert x.to_numpy().dtype == (np.int32 if signed else np.uint32)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("bits", "scale"), [(6, 0.0625), (10, 2.0**-9), (20, 2.0**-14)])
def test_fixed_point_numbers_are_the_nearest_step(bits: int, signed: bool, scale: float) -> None:
    (x,) = packed(quant.fixed(bits, signed, scale=scale))
    values = floats(bits)
    values = values[np.abs(values / scale) < 2.0**22]  # where floats have halves
    given = ti.field(ti.f32, len(values))
    given.from_numpy(values)

    @ti.kernel
    def put():
        for i in given:
            x[i] = given[i]

    put()
    want = [as_fixed(float(v), bits, signed, scale) for v in values]
    np.testing.assert_array_equal(x.to_numpy()[: len(values)], want)
    for i, v in enumerate(values):
        x[i] = 0.0
        x[i] = float(v)
    np.testing.assert_array_equal(x.to_numpy()[: len(values)], want)


def test_the_step_of_a_fixed_point_number() -> None:
    assert quant.fixed(6, max_value=2.0).scale == 2 / 32
    assert quant.fixed(6, signed=False, max_value=2.0).scale == 2 / 64
    assert quant.fixed(6, max_value=2.0, scale=0.3).scale == 0.3
    assert quant.fixed(8) == quant.fixed(8, True, 1.0, ti.f32)


@pytest.mark.ours("quant-range")
def test_fixed_point_numbers_of_32_bits_and_what_is_out_of_range() -> None:
    (x,) = packed(quant.fixed(32, False, scale=0.5))

    @ti.kernel
    def put(v: ti.f32) -> ti.f32:
        x[0] = v
        return x[0]

    assert put(3e9 / 2) == 3e9 / 2
    assert put(1e30) == (2**32 - 256) / 2
    assert put(-4.0) == 0.0
    (y,) = packed(quant.fixed(32, True, scale=1.0))

    @ti.kernel
    def put_signed(v: ti.f32) -> ti.f32:
        y[0] = v
        return y[0]

    assert put_signed(-1e30) == -(2.0**31 - 128)
    assert put_signed(float("nan")) == 0.0


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("exponent", "fraction"), [(5, 9), (6, 13), (8, 4), (3, 2), (1, 3)])
def test_floats_of_fewer_bits(exponent: int, fraction: int, signed: bool) -> None:
    (x,) = packed(quant.float(exponent, fraction, signed))
    values = floats(exponent)
    given = ti.field(ti.f32, N)
    given.from_numpy(values)

    @ti.kernel
    def put():
        for i in x:
            x[i] = given[i]

    put()
    want = np.array([as_floating(float(v), exponent, fraction, signed) for v in values], np.float32)
    np.testing.assert_array_equal(x.to_numpy(), want)
    x.fill(0)
    x.from_numpy(values)
    np.testing.assert_array_equal(x.to_numpy(), want)


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
            np.testing.assert_array_equal(field.to_numpy(), values)


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
        np.testing.assert_array_equal(x.to_numpy(), want)
    add()
    want = [wrapped(i + 3 + 8, 4, True) for i in range(4096)]
    np.testing.assert_array_equal(x.to_numpy(), want)


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
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(y.to_numpy(), [0, 0.25, 0.5, 0.75])
    x[3, 11], x[0, 4] = 5, -8
    want[3][11], want[0][4] = 5, -8
    np.testing.assert_array_equal(x.to_numpy(), want)
    assert x[3, 10] == want[3][10]


def test_words_of_64_bits(need: Any, caps: Any) -> None:
    need("i64")
    if not caps.i64_atomics:
        pytest.skip("no atomic operations of 64 bits")
    a, b, c = packed(quant.int(40, compute=ti.i64), quant.int(20), quant.int(4), bits=64)

    @ti.kernel
    def put():
        for i in a:
            a[i] = -(ti.i64(1) << 38) + i
            b[i] = -i
            c[i] += i

    put()
    np.testing.assert_array_equal(a.to_numpy(), -(1 << 38) + np.arange(N))
    np.testing.assert_array_equal(b.to_numpy(), -np.arange(N))
    np.testing.assert_array_equal(c.to_numpy(), [wrapped(i, 4, True) for i in range(N)])
    b[3] = 77
    assert (a[3], b[3]) == (-(1 << 38) + 3, 77)


def test_words_of_64_bits_are_refused_where_there_are_none(caps: Any) -> None:
    if caps.int64 and caps.i64_atomics:
        pytest.skip("the device has them")
    with pytest.raises(ti.DeviceError, match="words of 64 bits"):
        ti.BitpackedFields(max_num_bits=64)


def test_vectors_lie_in_one_word() -> None:
    v = ti.Vector.field(3, dtype=quant.fixed(10))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(v)
    ti.root.dense(ti.i, 4).place(word)

    @ti.kernel
    def put(k: ti.i32) -> ti.f32:
        for i in v:
            v[i] = [0.125 * i, 0.25, -0.5]
            v[i][1] += 0.25
        return v[1][k]

    assert [put(k) for k in range(3)] == [0.125, 0.5, -0.5]
    np.testing.assert_array_equal(v.to_numpy()[3], [0.375, 0.5, -0.5])
    v[2][0] = -1
    assert list(v[2]) == [-1, 0.5, -0.5]
    assert v.get_scalar_field(0)[2] == -1
    np.testing.assert_array_equal(v.get_scalar_field(2).to_numpy(), [-0.5] * 4)
    v.fill(0.5)
    assert (v.to_numpy() == 0.5).all()


# --- atomic operations ---------------------------------------------------------------------------


def test_atomic_operations_give_the_old_number() -> None:
    a, x, f = packed(quant.int(6), quant.fixed(8, max_value=4.0), quant.float(5, 8))

    @ti.kernel
    def step(k: ti.i32, v: ti.f32) -> ti.math.vec3:
        old = ti.math.vec3(0)
        for _ in range(1):
            n = ti.cast(v, ti.i32)
            if k == 0:
                old = [ti.atomic_add(a[0], n), ti.atomic_add(x[0], v), ti.atomic_add(f[0], v)]
            elif k == 1:
                old = [ti.atomic_sub(a[0], n), ti.atomic_sub(x[0], v), ti.atomic_sub(f[0], v)]
            elif k == 2:
                old = [ti.atomic_max(a[0], n), ti.atomic_max(x[0], v), ti.atomic_max(f[0], v)]
            elif k == 3:
                old = [ti.atomic_min(a[0], n), ti.atomic_min(x[0], v), ti.atomic_min(f[0], v)]
            else:
                old = [ti.atomic_mul(a[0], n), ti.atomic_mul(x[0], v), ti.atomic_mul(f[0], v)]
        return old

    draw = np.random.default_rng(3)
    want = [0, 0.0, 0.0]
    for _ in range(40):
        k, v = int(draw.integers(5)), float(draw.integers(-12, 12) / 4)
        assert list(step(k, v)) == want
        n, scale = int(v), 4.0 / 128
        by = [lambda p, q: p + q, lambda p, q: p - q, max, min, lambda p, q: p * q][k]
        want = [
            wrapped(by(want[0], n), 6, True),
            as_fixed(by(want[1], v), 8, True, scale),
            as_floating(by(want[2], v), 5, 8, True),
        ]
        assert [a[0], x[0], f[0]] == want


def test_what_is_added_to_a_fixed_point_number_is_rounded_first() -> None:
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


@pytest.mark.ours("quant-whole")
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


def test_indices_outside_change_nothing() -> None:
    x, y = packed(quant.int(5), quant.int(9), n=8)
    x.fill(3)
    y.fill(-7)

    @ti.kernel
    def stray(at: ti.i32):
        x[at] = 9
        y[at] += 1

    for at in (8, -1, 1 << 30, -(1 << 30)):
        stray(at)
    np.testing.assert_array_equal(x.to_numpy(), np.full(8, 3))
    np.testing.assert_array_equal(y.to_numpy(), np.full(8, -7))


def test_debug_mode_names_an_index_outside(own_runtime: None) -> None:
    ti.init(debug=True)
    (x,) = packed(quant.int(5), n=8)

    @ti.kernel
    def stray(at: ti.i32):
        x[at] = 9

    with pytest.raises(ti.TaichiAssertionError, match="8"):
        stray(8)


def test_offsets_and_templates() -> None:
    x = ti.field(quant.int(6))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x)
    ti.root.dense(ti.i, 8).place(word, offset=-4)

    @ti.kernel
    def put(field: ti.template()):
        for i in field:
            field[i] = 2 * i

    put(x)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(-4, 4))
    assert x[-4] == -8


def test_fields_that_differ_in_their_step_alone_have_kernels_of_their_own() -> None:
    x, y = packed(quant.fixed(8, scale=0.5), quant.fixed(8, scale=0.25))

    @ti.kernel
    def put(field: ti.template()):
        for i in field:
            field[i] = 3.25

    put(x)
    put(y)
    assert (x[0], y[0]) == (3.5, 3.25)


def test_sparse_blocks() -> None:
    x, y = ti.field(quant.int(5)), ti.field(quant.fixed(8))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x, y)
    block = ti.root.pointer(ti.i, 4)
    block.bitmasked(ti.i, 4).place(word)

    @ti.kernel
    def put(i: ti.i32, j: ti.i32):
        x[i] = 3
        ti.atomic_max(y[j], 0.5)

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            n += 1
        return n

    put(5, 9)
    assert count() == 2
    x.fill(7)
    assert list(np.flatnonzero(x.to_numpy())) == [5, 9]
    block.deactivate_all()
    assert count() == 0
    assert not x.to_numpy().any()
    assert not y.to_numpy().any()


def test_records_and_graphs() -> None:
    (x,) = packed(quant.int(7), n=8)

    @ti.kernel
    def add():
        for i in x:
            x[i] += i

    with ti.record() as steps:
        add()
        add()
    x.fill(0)
    steps.run()
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(8))


# --- random programs -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_of_operations(seed: int) -> None:
    """Writes and sums by kernels and by Python, in words that random types share."""
    draw = np.random.default_rng(seed)
    types, left = [], 32
    while left > 1 and len(types) < 6:
        bits, signed = int(draw.integers(1, min(left, 14) + 1)), bool(draw.integers(2))
        types.append((bits, signed))
        left -= bits
    fields = packed(*[quant.int(*t) for t in types], n=16)
    model = [[0] * 16 for _ in types]

    @ti.kernel
    def put(field: ti.template(), first: ti.i32, step: ti.i32):
        for i in field:
            field[i] = first + i * step

    @ti.kernel
    def add(field: ti.template(), by: ti.i32):
        for k in range(64):
            field[k % 16] += by

    for _ in range(25):
        k, (first, step) = int(draw.integers(len(types))), draw.integers(-5000, 5000, 2).tolist()
        kind = draw.integers(4)
        if kind == 0:
            put(fields[k], first, step)
            raw = [first + i * step for i in range(16)]
        elif kind == 1:
            add(fields[k], first)
            raw = [v + 4 * first for v in model[k]]
        elif kind == 2:
            fields[k].from_numpy(np.arange(16) * step)
            raw = [i * step for i in range(16)]
        else:
            fields[k][3] = first
            raw = [first if i == 3 else v for i, v in enumerate(model[k])]
        model[k] = [wrapped(v, *types[k]) for v in raw]
        for field, want in zip(fields, model, strict=True):
            np.testing.assert_array_equal(field.to_numpy(), want)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.ours("quant-words")
def test_what_is_refused_when_fields_are_made() -> None:
    five = quant.int(5)
    with pytest.raises(Exception, match="place in a word"):
        ti.field(five, shape=4)
    with pytest.raises(Unsupported, match="no gradients"):
        ti.field(quant.fixed(5), needs_grad=True)
    with pytest.raises(Exception, match="holds numbers"):
        ti.ndarray(five, 4)
    with pytest.raises(Exception, match="place in a word"):
        ti.root.dense(ti.i, 4).place(ti.field(five))
    with pytest.raises(Exception, match="need 35 bits"):
        packed(*[five] * 7)
    with pytest.raises(Exception, match="no field of numbers of any width"):
        packed(five, ti.i32)
    with pytest.raises(Exception, match="9 numbers of 4 bits need 36"):
        block = ti.root.dense(ti.i, 2).quant_array(ti.i, 9, max_num_bits=32)
        block.place(ti.field(quant.int(4)))
    with pytest.raises(Exception, match="32 or 64, not 16"):
        ti.BitpackedFields(max_num_bits=16)
    with pytest.raises(Exception, match="has no fields"):
        ti.root.dense(ti.i, 2).place(ti.BitpackedFields(max_num_bits=32))
    (x,) = packed(five)
    with pytest.raises(BufferError, match="share words"):
        np.from_dlpack(x)


@pytest.mark.ours("quant-shared")
def test_shared_exponents_are_refused() -> None:
    x, y = ti.field(quant.float(5, 9)), ti.field(quant.float(5, 9))
    with pytest.raises(Unsupported, match="shared_exponent"):
        ti.BitpackedFields(max_num_bits=32).place(x, y, shared_exponent=True)


@pytest.mark.parametrize("make", [lambda: quant.int(0), lambda: quant.int(65),
                                  lambda: quant.fixed(33), lambda: quant.float(9, 4),
                                  lambda: quant.float(5, 25)])  # fmt: skip
def test_widths_there_are_none_of(make: Any) -> None:
    with pytest.raises(Exception, match="bits are possible"):
        make()


def test_a_gradient_that_would_be_lost_is_refused() -> None:
    x, y = packed(quant.fixed(8), quant.float(5, 8))
    a = ti.field(ti.f32, N, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def put(field: ti.template()):
        for i in a:
            field[i] = a[i] * a[i]

    @ti.kernel
    def total(field: ti.template()):
        for i in a:
            loss[None] += field[i] * a[i]

    x.fill(0.25)
    with ti.ad.Tape(loss):
        total(x)
    np.testing.assert_array_equal(a.grad.to_numpy(), np.full(N, 0.25))
    for field in (x, y):
        with pytest.raises(Exception, match="bits of a number"), ti.ad.Tape(loss):
            put(field)
            total(field)
