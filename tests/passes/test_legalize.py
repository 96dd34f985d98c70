"""Pass `legalize`: expansions mean the same as their ops, and nothing is silently missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from vkchi.errors import DeviceError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.ops import ATOMICS, TABLE
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.lowering.legalize import QUOTIENTS, ROWS, legalize
from vkchi.opt.math import quotient
from vkchi.opt.math.f64_math import FUNCTIONS
from vkchi.span import Span
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.types import SCALARS, Array, Scalar, Tensor, bf16, f16, f64, i32, row_major

BARE = FULL._replace(f32_atomic_add=False, f32_atomic_add_shared=False, f64_atomic_add=False)


def apply(kind: str, t: Scalar, arrays: list[Any], caps: Caps) -> tuple[Any, Func]:
    """An elementwise op on whole arrays, as tensors; its result, and the legal program."""
    n = len(arrays[0])
    tensor = Tensor.of(t, (n,))
    array = Array.of(tensor, 0, (), row_major((), n))
    params = [Param(array, f"a{k}") for k in range(len(arrays))]
    out, b = Param(array, "out"), Builder()
    with b.region() as body:
        values = [b.emit("load", b.emit("elem", p)) for p in params]
        b.emit("store", b.emit("elem", out), b.emit(kind, *values))
        b.emit("yield")
    fn = legalize(Func("f", (*params, out), body), caps)
    verify(fn)
    args = {f"a{k}": np.asarray(a, t.dtype) for k, a in enumerate(arrays)}
    return run_reference(fn, args | {"out": np.zeros(n, t.dtype)})["out"], fn


def kinds(fn: Func) -> set[str]:
    return {op.kind for op in walk(fn.body)}


def test_rows_name_the_functions_that_there_are() -> None:
    assert set(QUOTIENTS.split()) == set(quotient.FUNCTIONS)


def test_rows_name_existing_ops() -> None:
    fields = {name for name in dir(Caps()) if not name.startswith("_")}
    for row in ROWS:
        assert set(row.kinds.split()) <= TABLE.keys()
        assert set(row.types.split()) <= SCALARS.keys()
        assert row.needs == "never" or set(row.needs.split("|")) <= fields


def test_legal_func_is_returned_unchanged() -> None:
    fn = parse_func("func @f(%a: f32) {\n  %b = sin %a : f32\n  yield\n}\n")
    assert legalize(fn, SMALLEST) is fn


# --- atomics -------------------------------------------------------------------------------------


def atomic_program(kind: str, t: Scalar, space: str) -> Func:
    """Many atomics on one place; the old values and the last one are stored."""
    b = Builder()
    x, olds = Param(Array.of(t, 1), "x"), Param(Array.of(t, 1), "olds")
    last = Param(Array.of(t, 0, (), row_major((), 1)), "last")
    with b.region() as body:
        zero = b.const(0, i32)
        if space == "global":
            place: Any = b.emit("elem", last)
        elif space == "local":
            place = b.emit("local", b.emit("load", b.emit("elem", last)))
        else:
            shared = b.emit("shared", type=Array.of(t, 1, (1,), space="shared"))
            place = b.emit("elem", shared, zero)
            b.emit("store", place, b.emit("load", b.emit("elem", last)))
        i = Param(i32, "i")
        with b.region(i) as loop:
            v = b.emit("load", b.emit("elem", x, i))
            more = (v,) if kind == "atomic_cas" else ()
            b.emit("store", b.emit("elem", olds, i), b.emit(kind, place, *more, v))
            b.emit("yield")
        b.for_(zero, b.emit("shape", x, attr=0), (), loop)
        b.emit("store", b.emit("elem", last), b.emit("load", place))
        b.emit("yield")
    return Func("f", (x, olds, last), body)


BITWISE = ("atomic_and", "atomic_or", "atomic_xor")
EITHER = ("atomic_exchange", "atomic_cas")


@pytest.mark.parametrize("space", ["global", "local", "shared"])
@pytest.mark.parametrize("t", [t for t in SCALARS.values() if t is not bf16], ids=str)
def test_legalized_atomics(t: Scalar, space: str) -> None:
    data = np.random.default_rng(2).integers(0, 9, 20).astype(t.dtype)
    for kind in [*ATOMICS, *EITHER]:
        if t.kind == "f" and kind in BITWISE:
            continue
        if t.kind == "b" and kind not in (*BITWISE, *EITHER):
            continue
        fn = atomic_program(kind, t, space)
        new = legalize(fn, BARE)
        verify(new)
        is_float_sum = t.kind == "f" and kind in ("atomic_add", "atomic_min", "atomic_max")
        is_expanded = space == "local" or kind == "atomic_mul" or is_float_sum or t.bits < 32
        if kind != "atomic_cas":
            assert (kind in kinds(new)) != is_expanded
        assert ("word" in kinds(new)) == (t.bits < 32 and space != "local")
        want, got = (
            {"x": data, "olds": np.zeros_like(data), "last": np.array(data[3])} for _ in range(2)
        )
        run_reference(fn, want)
        run_reference(new, got)
        for name in ("olds", "last"):
            np.testing.assert_array_equal(got[name], want[name])


def test_native_atomics_stay() -> None:
    for kind, t, caps in (
        ("atomic_add", "f32", FULL),
        ("atomic_add", "f64", FULL),
        ("atomic_add", "f64", FULL._replace(i64_atomics=False)),
        ("atomic_max", "f32", FULL._replace(f32_atomic_minmax=True)),
        ("atomic_xor", "u64", FULL),
    ):
        assert "while" not in kinds(legalize(atomic_program(kind, SCALARS[t], "global"), caps))


# --- bit counts and half precision ---------------------------------------------------------------


@pytest.mark.parametrize("t", [t for t in SCALARS.values() if t.kind in "iu"], ids=str)
@pytest.mark.parametrize("kind", ["popcnt", "clz"])
def test_bit_counts(kind: str, t: Scalar) -> None:
    info = np.iinfo(t.dtype)
    values = [0, 1, 2, 3, 100, info.max, info.min, info.max // 3, info.max - 1]
    values += np.random.default_rng(3).integers(info.min, info.max, 50, t.dtype, True).tolist()
    got, fn = apply(kind, t, [values], FULL)
    wide = {op.args[0].type for op in walk(fn.body) if op.kind == kind}
    assert {w.elem.bits for w in wide} == {32}  # type: ignore[attr-defined]
    bits = [int(v) & ((1 << t.bits) - 1) for v in values]
    want = [bin(v).count("1") if kind == "popcnt" else t.bits - v.bit_length() for v in bits]
    assert got.tolist() == want


def test_half_precision() -> None:
    x = np.linspace(0.01, 0.99, 60)
    for kind in FUNCTIONS:
        count = len(TABLE[kind].sig.split("->")[0].split(","))
        got, fn = apply(kind, f16, [x] * count, FULL)
        assert all(op.type is not op.args[0].type or "f16" not in str(op.type)
                   for op in walk(fn.body) if op.kind == kind)  # fmt: skip
        numpy = TABLE[kind].numpy
        assert numpy is not None
        half = x.astype(np.float16).astype(np.float64)
        np.testing.assert_allclose(got, numpy(*[half] * count), rtol=1e-3)


# --- errors --------------------------------------------------------------------------------------

SPAN = Span("user.py", 7, 9, 7, 12, "step")


def message(kind: str, t: Scalar, caps: Caps, *, space: str = "global") -> str:
    """The error of one atomic, with a span."""
    b = Builder()
    b.span = SPAN
    array = Array.of(t, 1, (4,), space="shared") if space == "shared" else None
    x = Param(Array.of(t, 1), "x")
    with b.region() as body:
        root = b.emit("shared", type=array) if array else x
        place = b.emit("elem", root, b.const(0, i32))
        b.emit(kind, place, b.const(1, t))
        b.emit("yield")
    fn = Func("f", (x,), body)
    verify(fn)
    with pytest.raises(DeviceError) as caught:
        legalize(fn, caps)
    return str(caught.value)


def test_errors_name_line_and_type() -> None:
    none64 = FULL._replace(i64_atomics=False, i64_atomics_shared=False)
    text = message("atomic_add", SCALARS["u64"], none64, space="shared")
    assert text == (
        "user.py:7:9: atomic operations on u64 in shared arrays are not available on this device\n"
        "help: use ti.u32, or another device"
    )
    text = message("atomic_max", f64, none64)
    assert "user.py:7:9: atomic operations on f64 in arrays are not available" in text


def test_lacking_types() -> None:
    cases = {
        "func @f(%a: f64) {\n  yield\n}\n": "f64 is not available on this device (argument `a`)",
        "func @f(%x: array<i64[?]>) {\n  yield\n}\n": "i64 is not available .* .array `x`",
        "func @f(%x: array<u1[?]>) {\n  yield\n}\n": "u8 is not available .* .array `x`",
        "func @f(%a: f32) {\n  %b = cast %a : f64\n  yield\n}\n": "f64 is not available",
    }
    for text, pattern in cases.items():
        with pytest.raises(DeviceError, match=pattern.replace("(", ".").replace(")", ".")):
            legalize(parse_func(text), SMALLEST)
        assert legalize(parse_func(text), FULL)


def test_subgroups_and_functions() -> None:
    fn = parse_func("func @f(%a: i32) {\n  %b = subgroup_add %a : i32\n  yield\n}\n")
    with pytest.raises(DeviceError, match="subgroup add is not available"):
        legalize(fn, SMALLEST)
    fn = parse_func("func @f(%a: f64) {\n  %b = sin %a : f64\n  yield\n}\n")
    with pytest.raises(DeviceError, match="sin of f64 needs 64-bit integers"):
        legalize(fn, FULL._replace(int64=False))


# --- functions of f64 ----------------------------------------------------------------------------

MATH = {
    "exp": math.exp, "exp2": lambda x: 2.0**x, "log": math.log, "log2": math.log2,
    "pow": math.pow, "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin,
    "acos": math.acos, "atan": math.atan, "atan2": math.atan2, "sinh": math.sinh,
    "cosh": math.cosh, "tanh": math.tanh, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip
RNG = np.random.default_rng(5)
COUNT = 1500


def spread(low: float, high: float, *, signed: bool = True) -> Any:
    """Random numbers of all magnitudes between two."""
    x = np.exp(RNG.uniform(math.log(low), math.log(high), COUNT))
    return x * RNG.choice([-1.0, 1.0], COUNT) if signed else x


def evenly(low: float, high: float) -> Any:
    return RNG.uniform(low, high, COUNT)


MULTIPLES = np.round(RNG.uniform(0, 1e6, COUNT)) * (math.pi / 2)
HALVES = RNG.integers(-20, 20, COUNT) / 2
NEAR_ONE = 1 + spread(1e-15, 0.1)
RANGES: dict[str, list[tuple[Any, ...]]] = {
    "exp": [(evenly(-745, 709.7),), (evenly(-1, 1),), (spread(1e-20, 1),)],
    "exp2": [(evenly(-1070, 1023.9),), (evenly(-2, 2),)],
    "log": [(spread(1e-310, 1e308, signed=False),), (evenly(0.5, 2),), (NEAR_ONE,)],
    "log2": [(spread(1e-310, 1e308, signed=False),), (evenly(0.5, 2),), (NEAR_ONE,)],
    "sin": [(evenly(-10, 10),), (spread(1e-300, 1e13),), (MULTIPLES,)],
    "cos": [(evenly(-10, 10),), (spread(1e-300, 1e13),), (MULTIPLES,)],
    "tan": [(evenly(-10, 10),), (spread(1e-300, 1e13),), (MULTIPLES,)],
    "asin": [(evenly(-1, 1),), (spread(1e-300, 1),), (1 - spread(1e-15, 0.1, signed=False),)],
    "acos": [(evenly(-1, 1),), (spread(1e-300, 1),), (1 - spread(1e-15, 0.1, signed=False),)],
    "atan": [(evenly(-3, 3),), (spread(1e-300, 1e300),)],
    "atan2": [(evenly(-3, 3), evenly(-3, 3)), (spread(1e-200, 1e200), spread(1e-200, 1e200))],
    "sinh": [(evenly(-3, 3),), (spread(1e-300, 710),)],
    "cosh": [(evenly(-3, 3),), (spread(1e-300, 710),)],
    "tanh": [(evenly(-3, 3),), (spread(1e-300, 40),)],
    "trunc": [(spread(1e-300, 1e300),), (HALVES,), (HALVES + 2.0**40,)],
    "round": [(spread(1e-300, 1e300),), (HALVES,), (HALVES + 2.0**40,)],
    "pow": [
        (spread(1e-3, 1e3, signed=False), evenly(-90, 90)),
        (evenly(0.9, 1.1), evenly(-5000, 5000)),
        (-spread(1, 10, signed=False), np.round(evenly(-100, 100))),
    ],
}
LIMITS = {
    "tan": 3,
    "atan2": 3,
    "tanh": 3.5,
    "asin": 3,
    "atan": 3,
    "trunc": 0,
    "round": 0,
}  # ulps; the C library's 1 included
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, math.inf, -math.inf, math.nan,
    1e-310, -1e-310, 5e-324, 710.4, -745.1, -746.0, 1024.0, -1074.3, 1e13,
]  # fmt: skip


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_f64_functions(kind: str) -> None:
    """Against the C library, whose own error is below 1 ulp."""
    assert RANGES.keys() <= FUNCTIONS.keys()
    for args in RANGES.get(kind, [(evenly(-3, 3),), (spread(1e-300, 1e300),)]):
        got, fn = apply(kind, f64, list(args), FULL)
        assert kinds(fn).isdisjoint(FUNCTIONS)
        function = MATH.get(kind) or getattr(math, kind)
        want = np.array([function(*map(float, xs)) for xs in zip(*args)])
        unit = np.maximum(np.spacing(np.abs(want)), 5e-324)
        error = np.abs(got - want) / unit
        assert error.max() <= LIMITS.get(kind, 2.2), (kind, [a[error.argmax()] for a in args])


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_f64_special_values(kind: str) -> None:
    count = 2 if kind in ("pow", "atan2") else 1
    grid = np.meshgrid(*[np.array(SPECIAL)] * count)
    args = [g.reshape(-1) for g in grid]
    got, _ = apply(kind, f64, args, FULL)
    numpy = TABLE[kind].numpy
    assert numpy is not None
    with np.errstate(all="ignore"):
        want = numpy(*args)
    for g, w, *xs in zip(got, want, *args):
        close = abs(g - w) <= 4 * np.spacing(abs(w)) if np.isfinite(w) else g == w
        same = (close and np.signbit(g) == np.signbit(w)) or (np.isnan(g) and np.isnan(w))
        assert same, f"{kind}{tuple(xs)} is {w}, not {g}"


@pytest.mark.parametrize(
    "use",
    [
        "%k = cast %s : i32",
        "%z = const 0 : i32\n  %n = const 3 : i32\n  %c = const 1065353216 : f32\n"
        "  %r = for %z, %n, %s : f32 {\n    ^(%i: i32, %v: f32)\n    %k = cast %v : i32\n"
        "    store %y, %k\n    yield %c\n  }",
        "%z = const 0 : i32\n  %n = const 3 : i32\n  %c = const 1065353216 : f32\n"
        "  %r = for %z, %n, %c : f32 {\n    ^(%i: i32, %v: f32)\n    %k = cast %v : i32\n"
        "    store %y, %k\n    yield %s\n  }",
        "%z = const 0 : i32\n  %r = for %z, %z, %s : f32 {\n    ^(%i: i32, %v: f32)\n"
        "    %c = const 1065353216 : f32\n    yield %c\n  }\n  %k = cast %r : i32",
    ],
    ids=["cast", "initial value", "yielded value", "result of no iteration"],
)
def test_square_roots_that_become_integers_are_exact(use: str) -> None:
    fn = parse_func(
        "func @f(%x: f32, %a: array<i32[?]>) {\n  %o = const 0 : i32\n"
        "  %y = elem %a, %o : ptr<i32 global>\n"
        f"  %s = sqrt %x : f32\n  {use}\n  yield\n}}\n"
    )
    assert "round" in kinds(legalize(fn, FULL)) or "and" in kinds(legalize(fn, FULL))


def test_square_roots_of_floats_alone_are_the_device_s() -> None:
    fn = parse_func(
        "func @f(%x: f32, %a: array<f32[?]>) {\n  %o = const 0 : i32\n"
        "  %y = elem %a, %o : ptr<f32 global>\n"
        "  %s = sqrt %x : f32\n  store %y, %s\n  yield\n}\n"
    )
    assert legalize(fn, FULL) is fn


@pytest.mark.parametrize(("op", "size"), [("store", 128), ("atomic_add", 256)])
def test_shared_memory_of_narrow_scalars(op: str, size: int) -> None:
    """Atomics on 16 bits are on the surrounding word, so each element takes one."""
    use = "store %p, %v" if op == "store" else "%o = atomic_add %p, %v : i16"
    text = (
        "func @f(%v: i16, %i: i32) {\n  %s = shared : array<i16[64] shared>\n"
        f"  %p = elem %s, %i [inbounds] : ptr<i16 shared>\n  {use}\n  yield\n}}\n"
    )
    legalize(parse_func(text), FULL._replace(shared_bytes=size))
    with pytest.raises(DeviceError, match=f"take {size} bytes"):
        legalize(parse_func(text), FULL._replace(shared_bytes=size - 1))
