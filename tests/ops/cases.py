"""Inputs for each elementwise row of the op table, and Funcs that apply a row to arrays of them.

They serve to compare two evaluations of an op: interpreter, constant folder, device. Inputs whose
result the row leaves open are left out: integer division by zero or with overflow, floats cast to
integers that cannot hold them, powers of negative numbers, min and max of 0 and -0.

    for kind, types in signatures():          # ("add", (i32, i32)), ("cast", (f32, u8)), ...
        inputs = cases(kind, types)           # [(np.int32(0), np.int32(1)), ...]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param
from vkchi.ir.op_table.table import OpSignature, SignatureError
from vkchi.ir.ops import ELEMENTWISE, TABLE
from vkchi.types import SCALARS, Array, Scalar, Type, bf16, i32, scalar_of, u1, with_shape

CONVERSIONS = ("cast", "bitcast")
MANY, FEW = 50, 16  # values per operand of unary ops, and of others

_INTEGERS = (0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 100, 0x55)
_FLOATS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 3.14159265, 7.75, 10.0, 20.5, 100.0, 1e-3, 1e4,
           2**31 + 0.5, 2**40 + 1.5)  # fmt: skip

_Inputs = tuple[Any, ...]
# Without bf16, which numpy does not compute with: tests/e2e/test_bfloat16.py.
_TYPES = [t for t in SCALARS.values() if t is not bf16]
_LEAST = {t: np.iinfo(t.dtype).min for t in SCALARS.values() if t.kind == "i"}


def _divides_badly(t: Scalar, v: _Inputs) -> bool:
    """By zero, or the least integer by -1."""
    return t.kind != "f" and bool(v[1] == 0 or (v[0] == _LEAST.get(t) and v[1] == -1))


def _is_signless(t: Scalar, v: _Inputs) -> bool:
    """True for zeros of different sign: either may be the result."""
    return bool(v[0] == 0 and v[1] == 0 and v[0].tobytes() != v[1].tobytes())


def _has_no_power(t: Scalar, v: _Inputs) -> bool:
    """True for a negative base, and for zero to a power that is not positive."""
    return bool(np.signbit(v[0]) or (v[0] == 0 and not v[1] > 0))


# Cases that a row leaves open, as a predicate on its inputs.
_OPEN: dict[str, Callable[[Scalar, _Inputs], bool]] = {
    **dict.fromkeys(("floordiv", "mod", "truncdiv", "rem"), _divides_badly),
    **dict.fromkeys(("min", "max"), _is_signless),
    "pow": _has_no_power,
}


def edge_values(t: Scalar) -> list[Any]:
    """Values of type t: zeros, extremes, subnormals, inf and nan first, then ordinary ones."""
    if t is u1:
        return [np.False_, np.True_]
    with np.errstate(all="ignore"):
        if t.kind == "f":
            info = np.finfo(t.dtype)
            special = [
                0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny,
                -info.tiny, info.smallest_subnormal, -info.smallest_subnormal, 1 + info.eps,
            ]  # fmt: skip
            special.append(info.tiny - info.smallest_subnormal)
            values = [*special, *_FLOATS, *(-v for v in _FLOATS)]
        else:
            least, most = np.iinfo(t.dtype).min, np.iinfo(t.dtype).max
            values = [0, 1, most, least, most - 1, least + 1, most // 3, least // 3]
            values += [*_INTEGERS, *((-v for v in _INTEGERS) if t.kind == "i" else ())]
        found = {v.tobytes(): v for v in map(t.dtype.type, values)}
    return list(found.values())


def is_ordinary(v: Any) -> bool:
    """True unless v is a float that is inf, nan or subnormal."""
    if v.dtype.kind != "f":
        return True
    return bool(np.isfinite(v) and (v == 0 or abs(v) >= np.finfo(v.dtype).tiny))


def signatures() -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    """Yield each elementwise row with each combination of scalar types that it accepts.

    For `cast` and `bitcast`: the source type and the result type.
    """
    for kind in sorted(ELEMENTWISE):
        if kind in CONVERSIONS:
            pairs = itertools.product(_TYPES, _TYPES)
            yield from ((kind, pair) for pair in pairs if _takes(kind, pair))
            continue
        for t in _TYPES:
            types = (u1, t, t) if kind == "select" else (t,) * count_args(kind)
            if _takes(kind, types):
                yield kind, types


def count_args(kind: str) -> int:
    """Number of values that the row takes."""
    if kind in CONVERSIONS:
        return 1
    return 3 if kind == "select" else len(OpSignature(TABLE[kind].sig).args)


def result_type(kind: str, types: tuple[Type, ...]) -> Type:
    """The type of the row's result. Raises SignatureError."""
    if kind in CONVERSIONS:
        t = TABLE[kind].infer(types[:1], None, types[1])
    else:
        t = TABLE[kind].infer(types, None, None)
    assert t is not None
    return t


def _takes(kind: str, types: tuple[Scalar, ...]) -> bool:
    try:
        result_type(kind, types)
    except SignatureError:
        return False
    return True


def cases(kind: str, types: tuple[Scalar, ...], *, ordinary: bool = False) -> list[_Inputs]:
    """Input tuples for a row; with `ordinary`, none that has inf, nan or a subnormal."""
    count = count_args(kind)
    values = [edge_values(t)[: MANY if count == 1 else FEW] for t in types[:count]]
    inputs = itertools.product(*values)
    kept = [v for v in inputs if not is_open(kind, types, v)]
    return [v for v in kept if all(map(is_ordinary, v))] if ordinary else kept


def is_open(kind: str, types: tuple[Scalar, ...], inputs: _Inputs) -> bool:
    """True if the row says nothing about these inputs."""
    if kind == "cast" and types[0].kind == "f" and types[1].kind in "iu":
        info = np.iinfo(types[1].dtype)
        v = float(inputs[0])
        return not (np.isfinite(v) and info.min <= np.trunc(v) <= info.max)
    judge = _OPEN.get(kind)
    return judge is not None and judge(types[0], inputs)


def columns(inputs: list[_Inputs], types: tuple[Scalar, ...]) -> list[Any]:
    """The inputs as one array per operand."""
    return [np.array(column, t.dtype) for column, t in zip(zip(*inputs), types)]


def build_func(kind: str, types: tuple[Scalar, ...], shape: tuple[int, ...] = ()) -> Func:
    """Func for `out[i] = kind(a[i], b[i], c[i])` over 1-D arrays of elements of `shape`."""
    wide = tuple(with_shape(t, shape) for t in types)
    out_type = result_type(kind, wide)
    ins = [Param(Array.of(t, 1), name) for t, name in zip(wide[: count_args(kind)], "abc")]
    out = Param(Array.of(out_type, 1), "out")
    b = Builder()
    with b.region() as body:
        begin, end = b.const(0, i32), b.emit("shape", out, attr=0)
        i = Param(i32, "i")
        with b.region(i) as loop:
            args = [b.emit("load", b.emit("elem", p, i)) for p in ins]
            given = wide[1] if kind in CONVERSIONS else None
            b.emit("store", b.emit("elem", out, i), b.emit(kind, *args, type=given))
            b.emit("yield")
        b.parallel((begin, end), loop)
        b.emit("yield")
    return Func(f"each_{kind}", (*ins, out), body)


def zeros_for(fn: Func, count: int) -> Any:
    """An array for the parameter `out` of a Func of `build_func`."""
    t = fn.params[-1].type
    assert isinstance(t, Array)
    shape = () if isinstance(t.elem, Scalar) else t.elem.shape
    return np.zeros((count, *shape), scalar_of(t.elem).dtype)


def same_bits(a: Any, b: Any) -> Any:
    """Bool array: elements that agree bit for bit; any NaN agrees with any."""
    if a.dtype.kind != "f":
        return a == b
    bits = f"u{a.dtype.itemsize}"
    return (np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)) | (
        np.isnan(a) & np.isnan(b)
    )
