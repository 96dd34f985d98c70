"""Scalar arithmetic: operators, promotion, casts, bools, guards, small types."""

import numpy as np
import pytest

import vkchi as ti

INTS = ["i32", "u32", "i8", "u8", "i16", "u16", "i64", "u64"]
FLOATS = ["f32", "f64", "f16"]
NP = {t: np.dtype(f"{t[0]}{int(t[1:]) // 8}") for t in INTS + FLOATS}


def map_one(f, x, out_type):
    """f of each element, on the device; x: any dtype that kernels have."""
    a = ti.field(getattr(ti, name_of(x.dtype)), x.shape)
    out = ti.field(getattr(ti, out_type), x.shape)
    a.from_numpy(x)

    @ti.kernel
    def run():
        for i in a:
            out[i] = f(a[i])

    run()
    return out.to_numpy()


def map_two(f, x, y, out_type):
    """f of each pair of elements, on the device."""
    a = ti.field(getattr(ti, name_of(x.dtype)), x.shape)
    b = ti.field(getattr(ti, name_of(y.dtype)), y.shape)
    out = ti.field(getattr(ti, out_type), x.shape)
    a.from_numpy(x)
    b.from_numpy(y)

    @ti.kernel
    def run():
        for i in a:
            out[i] = f(a[i], b[i])

    run()
    return out.to_numpy()


def name_of(dtype):
    return next(name for name, d in NP.items() if d == dtype)


def int_samples(t):
    """Pairs of integers with the extremes; the second is never 0 and never -1."""
    info = np.iinfo(NP[t])
    low = [info.min, info.min + 1] if info.min else []
    values = [*low, 0, 1, 2, 3, 7, 100, info.max - 1, info.max]
    values += [-1, -2, -7, -100] if info.min else []
    pairs = [(a, b) for a in values for b in values if b not in (0, -1)]
    x, y = np.array(pairs, dtype=NP[t]).T
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def trunc_div(a, b):
    wide = [abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(a, b)]
    return np.array(wide, a.dtype)


@ti.func
def f_add(a, b):
    return a + b


@ti.func
def f_sub(a, b):
    return a - b


@ti.func
def f_mul(a, b):
    return a * b


@ti.func
def f_div(a, b):
    return a / b


@ti.func
def f_floordiv(a, b):
    return a // b


@ti.func
def f_mod(a, b):
    return a % b


@ti.func
def f_and(a, b):
    return a & b


@ti.func
def f_or(a, b):
    return a | b


@ti.func
def f_xor(a, b):
    return a ^ b


@ti.func
def f_min(a, b):
    return ti.min(a, b)


@ti.func
def f_max(a, b):
    return max(a, b)


@ti.func
def f_raw_mod(a, b):
    return ti.raw_mod(a, b)


@ti.func
def f_lt(a, b):
    return a < b


@ti.func
def f_le(a, b):
    return a <= b


@ti.func
def f_gt(a, b):
    return a > b


@ti.func
def f_ge(a, b):
    return a >= b


@ti.func
def f_eq(a, b):
    return a == b


@ti.func
def f_ne(a, b):
    return a != b


INT_OPS = {
    "add": (f_add, np.add), "sub": (f_sub, np.subtract), "mul": (f_mul, np.multiply),
    "floordiv": (f_floordiv, np.floor_divide), "mod": (f_mod, np.mod),
    "and": (f_and, np.bitwise_and), "or": (f_or, np.bitwise_or), "xor": (f_xor, np.bitwise_xor),
    "min": (f_min, np.minimum), "max": (f_max, np.maximum),
    "raw_mod": (f_raw_mod, lambda a, b: (a - trunc_div(a, b) * b).astype(a.dtype)),
}  # fmt: skip
COMPARISONS = {
    "lt": (f_lt, np.less), "le": (f_le, np.less_equal), "gt": (f_gt, np.greater),
    "ge": (f_ge, np.greater_equal), "eq": (f_eq, np.equal), "ne": (f_ne, np.not_equal),
}  # fmt: skip


@pytest.mark.parametrize("t", INTS)
@pytest.mark.parametrize("op", INT_OPS)
def test_int_binary(op, t, need):
    need(t)
    f, reference = INT_OPS[op]
    x, y = int_samples(t)
    with np.errstate(all="ignore"):
        want = reference(x, y)
    np.testing.assert_array_equal(map_two(f, x, y, t), want)


@pytest.mark.parametrize("t", [*INTS, *FLOATS])
@pytest.mark.parametrize("op", COMPARISONS)
def test_scalar_comparison(op, t, need):
    need(t)
    f, reference = COMPARISONS[op]
    if t in FLOATS:
        x, y = np.array([[a, b] for a in (-1.5, 0, 1, 2.25) for b in (-1.5, 0, 1, 2.25)], NP[t]).T
    else:
        x, y = int_samples(t)
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    np.testing.assert_array_equal(map_two(f, x, y, "i32"), reference(x, y).astype(np.int32))


FLOAT_OPS = {
    "add": (f_add, np.add, 0), "sub": (f_sub, np.subtract, 0), "mul": (f_mul, np.multiply, 0),
    "div": (f_div, np.divide, 3), "min": (f_min, np.minimum, 0), "max": (f_max, np.maximum, 0),
}  # fmt: skip


@pytest.mark.parametrize("t", FLOATS)
@pytest.mark.parametrize("op", FLOAT_OPS)
def test_float_binary(op, t, need):
    need(t)
    f, reference, ulps = FLOAT_OPS[op]
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-9, 9, (2, 64)).astype(NP[t])
    got = map_two(f, x, y, t)
    np.testing.assert_allclose(got, reference(x, y), rtol=(ulps + 0.5) * np.finfo(NP[t]).eps)


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_float_floordiv_and_mod(t, need):
    need(t)
    x = np.array([7.5, -7.5, 7.5, -7.5, 6.25, -0.25, 0.0, 100.0], NP[t])
    y = np.array([2.0, 2.0, -2.0, -2.0, 0.5, 4.0, 3.0, -8.0], NP[t])
    np.testing.assert_array_equal(map_two(f_floordiv, x, y, t), np.floor(x / y))
    np.testing.assert_array_equal(map_two(f_mod, x, y, t), x - y * np.floor(x / y))


def test_true_division_of_ints_is_float():
    x, y = np.array([7, -7, 1, 2], np.int32), np.array([2, 2, 4, -8], np.int32)
    np.testing.assert_allclose(map_two(f_div, x, y, "f32"), x / y, rtol=1e-6)


def test_raw_div_truncates_ints():
    @ti.kernel
    def run(a: ti.i32, b: ti.i32) -> ti.i32:
        return ti.raw_div(a, b)

    assert [run(7, 2), run(-7, 2), run(7, -2), run(-7, -2)] == [3, -3, -3, 3]


@pytest.mark.parametrize("t", INTS)
def test_scalar_shifts(t, need):
    need(t)

    @ti.func
    def left(a, b):
        return a << b

    @ti.func
    def right(a, b):
        return a >> b

    x, y = int_samples(t)
    y = (np.abs(y.astype(np.int64)) % (x.itemsize * 8)).astype(NP[t])
    np.testing.assert_array_equal(map_two(left, x, y, t), np.left_shift(x, y))
    np.testing.assert_array_equal(map_two(right, x, y, t), np.right_shift(x, y))


def test_bit_shr_is_logical():
    @ti.func
    def f(a, b):
        return ti.bit_shr(a, b)

    x, y = np.array([-1, -8, 8, 1 << 30], np.int32), np.array([1, 2, 2, 30], np.int32)
    want = (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)
    np.testing.assert_array_equal(map_two(f, x, y, "i32"), want)


def test_shift_keeps_the_left_type(need):
    need("u8")

    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        return ti.cast(x, ti.u8) << 1

    assert run(200) == 144


@pytest.mark.parametrize("t", INTS)
def test_int_unary(t, need):
    need(t)

    @ti.func
    def negate(a):
        return -a

    @ti.func
    def invert(a):
        return ~a

    @ti.func
    def magnitude(a):
        return abs(a)

    x = int_samples(t)[0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(map_one(negate, x, t), np.negative(x))
        np.testing.assert_array_equal(map_one(invert, x, t), ~x)
        if t[0] == "i":
            np.testing.assert_array_equal(map_one(magnitude, x, t), np.abs(x))


def test_popcnt_and_clz():
    @ti.func
    def count(a):
        return ti.math.popcnt(a)

    @ti.func
    def leading(a):
        return ti.math.clz(a)

    x = np.array([0, 1, 2, 255, 1 << 30, -1, -(2**31)], np.int32)
    np.testing.assert_array_equal(map_one(count, x, "i32"), [0, 1, 1, 8, 1, 32, 1])
    np.testing.assert_array_equal(map_one(leading, x, "i32"), [32, 31, 30, 24, 1, 0, 0])


@pytest.mark.parametrize("t", ["i32", "u32", "f32", "f64"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
def test_power_with_int_exponent(t, n, need):
    need(t)

    @ti.func
    def f(a):
        return a**n

    x = np.array([0, 1, 2, 3, 4] if t == "u32" else [-4, -3, -1, 0, 1, 2, 3], NP[t])
    np.testing.assert_allclose(map_one(f, x, t), x**n, rtol=1e-6)


def test_power_of_ints_with_variable_exponent():
    @ti.func
    def f(a, b):
        return a**b

    x, y = np.array([2, 3, -3, 7, 1, 0], np.int32), np.array([10, 4, 3, 0, 99, 5], np.int32)
    np.testing.assert_array_equal(map_two(f, x, y, "i32"), x**y)


def test_square_root_as_a_power():
    """Exact for squares, so that `int(n ** 0.5)` can be relied on."""

    @ti.func
    def f(a):
        return int(a**0.5)

    x = np.arange(300, dtype=np.int32)
    np.testing.assert_array_equal(map_one(f, x, "i32"), np.floor(np.sqrt(x)))


def test_augmented_assignments():
    out = ti.field(ti.i32, 10)

    @ti.kernel
    def run():
        a = 100
        a += 7
        out[0] = a
        a -= 10
        out[1] = a
        a *= 3
        out[2] = a
        a //= 4
        out[3] = a
        a %= 50
        out[4] = a
        a <<= 3
        out[5] = a
        a >>= 1
        out[6] = a
        a |= 3
        out[7] = a
        a &= 0x7E
        out[8] = a
        a ^= 0xFF
        out[9] = a

    run()
    want = [107, 97, 291, 72, 22, 176, 88, 91, 90, 165]
    np.testing.assert_array_equal(out.to_numpy(), want)


def test_divide_assignment_keeps_an_int_variable_int():
    @ti.kernel
    def run() -> ti.f32:
        a = 7
        a /= 2
        return a

    assert run() == 3


# --- promotion ---------------------------------------------------------------------------------

PROMOTIONS = [
    ("i32", "i32", "i32"), ("i32", "f32", "f32"), ("u32", "f32", "f32"), ("i32", "u32", "u32"),
    ("u8", "u8", "u8"), ("i8", "i8", "i8"), ("u8", "i8", "u8"), ("u8", "u16", "u16"),
    ("u8", "i16", "i16"), ("i16", "i32", "i32"), ("u16", "u32", "u32"), ("i8", "f32", "f32"),
    ("i64", "i32", "i64"), ("u32", "i64", "i64"), ("u64", "i64", "u64"), ("i64", "f32", "f32"),
    ("f32", "f64", "f64"), ("i32", "f64", "f64"), ("f16", "f32", "f32"), ("f16", "i32", "f16"),
]  # fmt: skip


@pytest.mark.parametrize(("ta", "tb", "want"), PROMOTIONS)
def test_type_promotion(ta, tb, want, need):
    """The type of `a + b`, seen by the behaviour of a variable of that type."""
    need(ta, tb)
    a, b = getattr(ti, ta), getattr(ti, tb)
    seen = ti.field(ti.i32, 3)

    @ti.kernel
    def probe_int():
        z = ti.cast(1, a) + ti.cast(0, b)
        n = 0
        while z != 0:
            z = z << 1
            n += 1
        z -= 1
        seen[0] = n
        seen[1] = z > 0

    @ti.kernel
    def probe_float():
        z = ti.cast(1, a) + ti.cast(0, b)
        n = 0
        one = z
        while one + z != one:
            z = z * 0.5
            n += 1
        seen[0] = n
        z = 0.5
        seen[1] = z > 0

    if want[0] == "f":
        probe_float()
        assert seen.to_numpy()[:2].tolist() == [{"f16": 11, "f32": 24, "f64": 53}[want], 1]
    else:
        probe_int()
        assert seen.to_numpy()[:2].tolist() == [int(want[1:]), want[0] == "u"]


def test_variables_keep_their_first_type():
    out = ti.field(ti.f32, 3)

    @ti.kernel
    def run():
        a = 1
        a = 2.75
        out[0] = a
        b = 1.0
        b = 2
        out[1] = b / 4
        c: ti.f32 = 3
        out[2] = c / 2

    run()
    np.testing.assert_array_equal(out.to_numpy(), [2, 0.5, 1.5])


# --- casts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["i32", "u32", "f32", "i8", "u8", "i64", "f64", "f16"])
@pytest.mark.parametrize("target", ["i32", "u32", "f32", "i8", "u16", "i64", "u64", "f64", "f16"])
def test_explicit_casts(source, target, need):
    need(source, target)
    out_type = getattr(ti, target)

    @ti.func
    def f(a):
        return ti.cast(a, out_type)

    if source[0] == "f":
        x = np.array([0, 1, 2.5, 100.75, 3.999, 0.5], NP[source])
        if target[0] != "u":
            x = np.concatenate([x, -x])
    else:
        info = np.iinfo(NP[source])
        x = np.array([0, 1, 5, 77, 100, info.max // 5, info.max, info.min], NP[source])
        if target == "f16":
            x = x[:5]
    got = map_one(f, x, target)
    want = x.astype(NP[target])
    if target[0] == "f":
        np.testing.assert_allclose(got, want, rtol=np.finfo(NP[target]).eps)
    else:
        np.testing.assert_array_equal(got, want)


def test_type_calls_cast():
    out = ti.field(ti.f32, 8)

    @ti.kernel
    def run(x: ti.f32, n: ti.i32):
        out[0] = int(x)
        out[1] = float(n) / 2
        out[2] = ti.i32(x)
        out[3] = ti.f32(n) / 4
        out[4] = bool(n)
        out[5] = bool(x - x)
        out[6] = ti.u32(n)
        out[7] = ti.floor(x, ti.i32) // 2

    run(-3.75, 7)
    np.testing.assert_array_equal(out.to_numpy(), [-3, 3.5, -3, 1.75, 1, 0, 7, -2])


def test_bit_cast():
    x = np.array([0.0, -0.0, 1.0, -2.5, 1e-40, np.inf], np.float32)

    @ti.func
    def to_int(a):
        return ti.bit_cast(a, ti.i32)

    @ti.func
    def to_float(a):
        return ti.bit_cast(a, ti.f32)

    np.testing.assert_array_equal(map_one(to_int, x, "i32"), x.view(np.int32))
    y = np.array([0, 1, -1, 0x3F800000], np.int32)
    y = y[[0, 3]]
    np.testing.assert_array_equal(map_one(to_float, y, "f32"), y.view(np.float32))


def test_bit_cast_64(need):
    need("f64", "i64")
    x = np.array([0.0, 1.0, -2.5, np.inf], np.float64)

    @ti.func
    def to_int(a):
        return ti.bit_cast(a, ti.i64)

    np.testing.assert_array_equal(map_one(to_int, x, "i64"), x.view(np.int64))


# --- bools ------------------------------------------------------------------------------


def test_truth_tables():
    x, y = np.array([[a, b] for a in (0, 1, 5) for b in (0, -2, 3)], np.int32).T.copy()

    @ti.func
    def both(a, b):
        return 1 if a != 0 and b > 0 else 0

    @ti.func
    def either(a, b):
        return 1 if a != 0 or b > 0 else 0

    @ti.func
    def negated(a, b):
        return 1 if not (a == b) else 0

    @ti.func
    def three(a, b):
        return 1 if a > 0 and b > 0 or not a > 1 else 0

    np.testing.assert_array_equal(map_two(both, x, y, "i32"), (x != 0) & (y > 0))
    np.testing.assert_array_equal(map_two(either, x, y, "i32"), (x != 0) | (y > 0))
    np.testing.assert_array_equal(map_two(negated, x, y, "i32"), x != y)
    np.testing.assert_array_equal(
        map_two(three, x, y, "i32"), (x > 0) & (y > 0) | np.logical_not(x > 1)
    )


def test_chained_comparisons():
    x, y = np.array([[a, b] for a in range(-1, 4) for b in range(-1, 4)], np.int32).T.copy()

    @ti.func
    def between(a, b):
        return 0 <= a < b

    @ti.func
    def zigzag(a, b):
        return a < b > 1

    @ti.func
    def equal(a, b):
        return a == b == 2

    @ti.func
    def long(a, b):
        return -1 < a <= b < 3 != a

    np.testing.assert_array_equal(map_two(between, x, y, "i32"), (0 <= x) & (x < y))
    np.testing.assert_array_equal(map_two(zigzag, x, y, "i32"), (x < y) & (y > 1))
    np.testing.assert_array_equal(map_two(equal, x, y, "i32"), (x == y) & (y == 2))
    np.testing.assert_array_equal(
        map_two(long, x, y, "i32"), (-1 < x) & (x <= y) & (y < 3) & (x != 3)
    )


@pytest.mark.parametrize("form", ["and", "or", "ternary", "chained", "nested", "while"])
def test_guards_do_not_evaluate_the_other_side(form):
    """The other side counts its evaluations, so a guard that evaluates it is seen."""
    n = 8
    x = ti.field(ti.i32, n)
    out = ti.field(ti.i32, n + 4)
    calls = ti.field(ti.i32, ())
    x.from_numpy(np.arange(n, dtype=np.int32) + 1)

    @ti.func
    def read(i):
        calls[None] += 1
        return x[i]

    @ti.kernel
    def run():
        for i in range(n + 4):
            if ti.static(form == "and"):
                if i < n and read(i) > 0:
                    out[i] = 1
            elif ti.static(form == "or"):
                if not (i >= n or read(i) <= 0):
                    out[i] = 1
            elif ti.static(form == "ternary"):
                out[i] = 1 if (read(i) if i < n else -1) > 0 else 0
            elif ti.static(form == "chained"):
                if 0 <= i < n and 0 < read(i) < 100:
                    out[i] = 1
            elif ti.static(form == "nested"):
                if i < n and (read(i) > 1000 or read(i) > 0) and i >= 0:
                    out[i] = 1
            else:
                j = i
                while j < n and read(j) > 0:
                    out[i] = 1
                    j += n

    run()
    np.testing.assert_array_equal(out.to_numpy(), [1] * n + [0] * 4)
    assert calls[None] == (2 * n if form == "nested" else n)


def test_guarded_reads_outside():
    n = 5
    x = ti.field(ti.i32, n)
    x.fill(3)

    @ti.kernel
    def neighbours(out: ti.types.ndarray(ndim=1)):
        for i in range(n):
            left = x[i - 1] if i > 0 else 0
            right = 0
            if i + 1 < n and x[i + 1] > 0:
                right = x[i + 1]
            out[i] = left + right

    out = np.zeros(n, np.int32)
    neighbours(out)
    np.testing.assert_array_equal(out, [3, 6, 6, 6, 3])


def test_ternary_and_select():
    x, y = np.array([[a, b] for a in (-2, 0, 3) for b in (-1, 0, 4)], np.int32).T.copy()

    @ti.func
    def larger(a, b):
        return a if a > b else b

    @ti.func
    def picked(a, b):
        return ti.select(a > b, a, b)

    @ti.func
    def mixed(a, b):
        return a if a > 0 else 0.5

    @ti.func
    def nested(a, b):
        return 1 if a > 0 else 2 if b > 0 else 3

    np.testing.assert_array_equal(map_two(larger, x, y, "i32"), np.maximum(x, y))
    np.testing.assert_array_equal(map_two(picked, x, y, "i32"), np.maximum(x, y))
    np.testing.assert_array_equal(map_two(mixed, x, y, "f32"), np.where(x > 0, x, 0.5))
    np.testing.assert_array_equal(
        map_two(nested, x, y, "i32"), np.where(x > 0, 1, np.where(y > 0, 2, 3))
    )


def test_conditions_of_numbers():
    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        r = 0
        if x:
            r += 1
        if not x:
            r += 2
        b = x > 2
        if b:
            r += 4
        c = b and x < 10
        if c:
            r += 8
        return r

    assert [run(v) for v in (0, 1, 5, 10)] == [2, 1, 13, 5]


def test_numbers_from_comparisons():
    @ti.kernel
    def run(x: ti.f32) -> ti.f32:
        return (x > 1) * 2.5 + (x > 2) + ti.cast(x > 3, ti.f32) * 10

    assert [run(v) for v in (0.0, 1.5, 2.5, 3.5)] == [0, 2.5, 3.5, 13.5]


def test_if_elif_else():
    x = np.arange(-3, 4, dtype=np.int32)

    @ti.func
    def classify(a):
        r = 0
        if a < -1:
            r = 10
        elif a == -1:
            r = 20
        elif a == 0:
            pass
        else:
            if a % 2 == 0:
                r = 30
            else:
                r = 40
        return r

    np.testing.assert_array_equal(map_one(classify, x, "i32"), [10, 10, 20, 0, 40, 30, 40])


# --- types in memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("t", [*INTS, *FLOATS])
def test_field_of_every_type(t, need):
    """An odd number of elements written in parallel: neighbours must not disturb each other."""
    need(t)
    n = 1001
    x, y = ti.field(getattr(ti, t), n), ti.field(getattr(ti, t), n)
    if t[0] == "f":
        values = np.random.default_rng(1).normal(0, 100, n).astype(NP[t])
    else:
        info = np.iinfo(NP[t])
        values = np.random.default_rng(1).integers(info.min, info.max, n, NP[t], endpoint=True)
    x.from_numpy(values)

    @ti.kernel
    def reverse():
        for i in x:
            y[n - 1 - i] = x[i]

    reverse()
    np.testing.assert_array_equal(y.to_numpy(), values[::-1])
    assert y.to_numpy().dtype == NP[t]
    assert y[3] == values[n - 4]
    y[3] = 7
    assert y[3] == 7
    assert y[2] == values[n - 3] and y[4] == values[n - 5]


def test_field_of_bools():
    n = 37
    x, y = ti.field(ti.u1, n), ti.field(ti.u1, n)
    values = np.random.default_rng(1).random(n) < 0.5
    for i in range(n):
        x[i] = bool(values[i])

    @ti.kernel
    def flip():
        for i in x:
            y[i] = not x[i]

    @ti.kernel
    def count() -> ti.i32:
        total = 0
        for i in y:
            if y[i]:
                total += 1
        return total

    flip()
    assert [bool(y[i]) for i in range(n)] == (~values).tolist()
    assert count() == n - values.sum()


def test_wrap_around():
    @ti.kernel
    def run(a: ti.i32, b: ti.u32) -> ti.i32:
        r = 0
        if a + 1 < 0:
            r += 1
        if b - 1 > 0:
            r += 2
        if -(a + 1) == a + 1:
            r += 4
        if a * 2 == -2:
            r += 8
        return r

    assert run(2**31 - 1, 0) == 15


def test_literal_types():
    @ti.kernel
    def run(out: ti.types.ndarray()):
        out[0] = 0xFF
        out[1] = 0b101
        out[2] = 1_000
        out[3] = 1e3
        out[4] = -0.125
        out[5] = True
        out[6] = 3 // 2
        out[7] = 7 / 2
        out[8] = 2**10

    out = np.zeros(9, np.float32)
    run(out)
    np.testing.assert_array_equal(out, [255, 5, 1000, 1000, -0.125, 1, 1, 3.5, 1024])


def test_default_types_follow_init(own_runtime, need):
    need("f64", "i64")
    ti.init(default_fp=ti.f64, default_ip=ti.i64)
    x = ti.field(float, 2)
    k = ti.field(int, 1)

    @ti.kernel
    def run():
        x[0] = 1.0 / 3.0
        x[1] = ti.cast(1, float) / 3
        k[0] = 1 << 40

    run()
    assert x[0] == 1 / 3 and x[1] == 1 / 3
    assert k[0] == 1 << 40
