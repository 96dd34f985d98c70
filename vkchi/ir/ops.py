"""THE OP TABLE: one row per op. Everything that must know all ops reads it from here.

A row gives the signature (`sig.py` explains the language; ops on memory and control have an
`infer` function instead), the numpy meaning, which *is* the semantics, the effect, what `attr`
holds, and a line of documentation. Adding an op: a row here, one in `spirv/lower.py`, one in
`autodiff/rules.py`, and one in `frontend/intrinsics.py` if users call it;
`tests/unit/test_tables.py` names what was forgotten. Must not know: builders, passes, SPIR-V.

    >>> TABLE["add"].effect is Effect.PURE
    True
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vkchi.ir import meaning
from vkchi.ir.sig import Signature, SignatureError
from vkchi.types import Array, Ptr, Scalar, Tensor, Type, i32, shape_of, u1, with_shape


class Effect(enum.Enum):
    """What an op may do besides computing its result."""

    PURE = "may be merged, moved, repeated and removed"
    ALLOC = "makes a new place; may be removed if unused, never merged"
    READ = "reads memory; may be removed if unused"
    WRITE = "writes memory or advances state; stays, in order"
    ATOMIC = "reads and writes memory; stays, but commutes with its like"
    SYNC = "orders memory between invocations; nothing moves across"
    CONTROL = "has regions or ends one"


Infer = Callable[[tuple[Type, ...], Any, "Type | None"], "Type | None"]


class Row(NamedTuple):
    """One op. `attr` says what Op.attr holds ("" = None)."""

    name: str
    effect: Effect
    infer: Infer
    numpy: Callable[..., Any] | None
    doc: str
    sig: str = ""
    attr: str = ""


TABLE: dict[str, Row] = {}


def _add(
    name: str,
    sig: str | Infer,
    numpy: Callable[..., Any] | None,
    doc: str,
    effect: Effect = Effect.PURE,
    attr: str = "",
) -> None:
    if isinstance(sig, str):
        parsed = Signature(sig)
        TABLE[name] = Row(
            name, effect, lambda ts, attr, given: parsed.infer(ts, given), numpy, doc, sig, attr
        )
    else:
        TABLE[name] = Row(name, effect, sig, numpy, doc, "", attr)


def effect_of(kind: str) -> Effect:
    """The effect of an op kind. Raises KeyError for an unknown one."""
    return TABLE[kind].effect


# --- elementwise arithmetic, on scalars and whole tensors ----------------------------------------
# fmt: off

_ELEMENTWISE: list[tuple[str, str, Callable[..., Any], str]] = [
    ("add", "T:num, T -> T", np.add, "sum; integers wrap"),
    ("sub", "T:num, T -> T", np.subtract, "difference; integers wrap"),
    ("mul", "T:num, T -> T", np.multiply, "product; integers wrap"),
    ("div", "T:float, T -> T", np.divide, "quotient of floats"),
    ("floordiv", "T:int, T -> T", meaning.floordiv, "quotient rounded down, as Python's //"),
    ("mod", "T:num, T -> T", meaning.mod, "remainder with the divisor's sign, as Python's %"),
    ("truncdiv", "T:int, T -> T", meaning.truncdiv, "quotient rounded toward zero, as C's /"),
    ("rem", "T:num, T -> T", meaning.rem, "remainder with the dividend's sign, as C's %"),
    ("neg", "T:num -> T", meaning.negate, "negation; integers wrap"),
    ("abs", "T:num -> T", np.abs, "absolute value; the least integer stays itself"),
    ("sign", "T:num -> T", meaning.sign, "-1, 0 or 1"),
    ("min", "T:num, T -> T", np.fmin, "the smaller; the other one if one is NaN"),
    ("max", "T:num, T -> T", np.fmax, "the larger; the other one if one is NaN"),
    ("pow", "T:float, T -> T", np.power, "power of floats"),
    ("and", "T:bits, T -> T", np.bitwise_and, "bitwise and; logical for u1"),
    ("or", "T:bits, T -> T", np.bitwise_or, "bitwise or; logical for u1"),
    ("xor", "T:bits, T -> T", np.bitwise_xor, "bitwise exclusive or; logical for u1"),
    ("not", "T:bits -> T", meaning.invert, "bitwise not; logical for u1"),
    ("shl", "T:int, T -> T", meaning.shl, "shift left; the amount counts modulo the width"),
    ("shr", "T:int, T -> T", meaning.shr, "shift right, arithmetic for signed types"),
    ("popcnt", "T:int -> T", meaning.popcnt, "number of set bits"),
    ("clz", "T:int -> T", meaning.clz, "number of leading zero bits"),
    ("lt", "T:num, T -> B(T)", np.less, "less than"),
    ("le", "T:num, T -> B(T)", np.less_equal, "less than or equal"),
    ("gt", "T:num, T -> B(T)", np.greater, "greater than"),
    ("ge", "T:num, T -> B(T)", np.greater_equal, "greater than or equal"),
    ("eq", "T:any, T -> B(T)", np.equal, "equal"),
    ("ne", "T:any, T -> B(T)", np.not_equal, "not equal; true for NaN"),
    ("isnan", "T:float -> B(T)", np.isnan, "whether NaN"),
    ("isinf", "T:float -> B(T)", np.isinf, "whether infinite"),
    ("sqrt", "T:float -> T", np.sqrt, "square root"),
    ("rsqrt", "T:float -> T", lambda x: x.dtype.type(1) / np.sqrt(x), "1 / square root"),
    ("exp", "T:float -> T", np.exp, "e to the power"),
    ("exp2", "T:float -> T", np.exp2, "2 to the power"),
    ("log", "T:float -> T", np.log, "natural logarithm"),
    ("log2", "T:float -> T", np.log2, "logarithm to base 2"),
    ("sin", "T:float -> T", np.sin, "sine of radians"),
    ("cos", "T:float -> T", np.cos, "cosine of radians"),
    ("tan", "T:float -> T", np.tan, "tangent of radians"),
    ("asin", "T:float -> T", np.arcsin, "arc sine in radians"),
    ("acos", "T:float -> T", np.arccos, "arc cosine in radians"),
    ("atan", "T:float -> T", np.arctan, "arc tangent in radians"),
    ("atan2", "T:float, T -> T", np.arctan2, "angle of the point (second, first), in radians"),
    ("sinh", "T:float -> T", np.sinh, "hyperbolic sine"),
    ("cosh", "T:float -> T", np.cosh, "hyperbolic cosine"),
    ("tanh", "T:float -> T", np.tanh, "hyperbolic tangent"),
    ("floor", "T:float -> T", np.floor, "largest integer not above"),
    ("ceil", "T:float -> T", np.ceil, "smallest integer not below"),
    ("round", "T:float -> T", meaning.round_even, "nearest integer, halves to even"),
    ("trunc", "T:float -> T", np.trunc, "integer part"),
]
for _name, _sig, _numpy, _doc in _ELEMENTWISE:
    _add(_name, _sig, _numpy, _doc)
ELEMENTWISE = frozenset(row[0] for row in _ELEMENTWISE) | {"select", "cast", "bitcast"}


# fmt: on
# --- conversions and tensors ---------------------------------------------------------------------


def _select(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 3 or ts[1] is not ts[2]:
        raise SignatureError(f"takes a condition and two values of one type, not {_list(ts)}")
    if ts[0] is not with_shape(u1, shape_of(ts[1])):
        raise SignatureError(f"needs a condition of the values' shape, not {ts[0]}")
    return ts[1]


def _cast(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = Signature("T:any -> R").infer(ts, given)
    if shape_of(ts[0]) != shape_of(given or ts[0]):
        raise SignatureError(f"cannot turn {ts[0]} into {given}: the shapes differ")
    return t


def _bitcast(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    _cast(ts, attr, given)
    old, new = (t.elem if isinstance(t, Tensor) else t for t in (ts[0], given))
    if not isinstance(old, Scalar) or not isinstance(new, Scalar) or old.bits != new.bits:
        raise SignatureError(f"cannot read the bits of {ts[0]} as {given}: the widths differ")
    return given


def _const(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    ok = isinstance(attr, int) if isinstance(given, Scalar) else isinstance(attr, tuple)
    if not isinstance(given, Scalar | Tensor) or not ok:
        raise SignatureError("needs a number type and the bits of a value")
    if isinstance(given, Tensor) and len(attr) != given.size:
        raise SignatureError(f"needs {given.size} bit patterns, not {len(attr)}")
    return given


def _splat(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 1 or not isinstance(given, Tensor) or given.elem is not ts[0]:
        raise SignatureError(f"cannot fill {given} with {_list(ts)}")
    return given


def _pack(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not isinstance(given, Tensor) or any(t is not given.elem for t in ts):
        raise SignatureError(f"cannot make {given} of {_list(ts)}")
    if len(ts) != given.size:
        raise SignatureError(f"needs {given.size} components, not {len(ts)}")
    return given


def _tensor_arg(ts: tuple[Type, ...], rest: tuple[Type, ...] | None = None) -> Tensor:
    if not ts or not isinstance(ts[0], Tensor):
        raise SignatureError(f"takes a vector or matrix, not {_list(ts)}")
    return ts[0]


def _component(t: Tensor, attr: Any) -> None:
    if not isinstance(attr, int) or not 0 <= attr < t.size:
        raise SignatureError(f"has no component {attr}: {t} has {t.size}")


def _extract(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    _component(t, attr)
    return t.elem


def _extract_at(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    if ts[1:] != (i32,):
        raise SignatureError("takes an i32 component index")
    return t.elem


def _insert(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    _component(t, attr)
    if ts[1:] != (t.elem,):
        raise SignatureError(f"cannot put {_list(ts[1:])} into {t}")
    return t


def _insert_at(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    if ts[1:] != (t.elem, i32):
        raise SignatureError(f"cannot put {_list(ts[1:])} into {t}: takes a {t.elem} and an i32")
    return t


def _multiply(a: Tensor, b: Tensor) -> bool:
    fits = len(a.shape) == 2 and a.shape[1] == b.shape[0]
    return fits and a.elem is b.elem and a.elem.kind != "b"


def _are_vectors(a: Tensor, b: Tensor) -> bool:
    return len(a.shape) == len(b.shape) == 1 and a.elem is b.elem and a.elem.kind != "b"


def _matmul(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) == 2:
        a, b = ts
        if isinstance(a, Tensor) and isinstance(b, Tensor) and _multiply(a, b):
            return with_shape(a.elem, (a.shape[0], *b.shape[1:]))
    raise SignatureError(f"cannot multiply {_list(ts)} as matrices")


def _transpose(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    if len(ts) != 1 or len(t.shape) != 2:
        raise SignatureError(f"takes a matrix, not {_list(ts)}")
    return Tensor.of(t.elem, (t.shape[1], t.shape[0]))


def _outer(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) == 2:
        a, b = ts
        if isinstance(a, Tensor) and isinstance(b, Tensor) and _are_vectors(a, b):
            return Tensor.of(a.elem, (a.size, b.size))
    raise SignatureError(f"takes two vectors of one number type, not {_list(ts)}")


def _list(ts: tuple[Type, ...]) -> str:
    return ", ".join(map(str, ts)) or "nothing"


_add("const", _const, None, "a constant", attr="bits: int, or a tuple of ints for a tensor")
_add(
    "select",
    _select,
    lambda c, a, b: np.where(c, a, b),
    "per component: second where first, else third",
)
_add("cast", _cast, meaning.cast, "numeric conversion")
_add(
    "bitcast",
    _bitcast,
    lambda a, dtype: np.ascontiguousarray(a).view(dtype).reshape(np.shape(a)),
    "same bits, other type",
)
_add("splat", _splat, lambda a, shape: np.full(shape, a), "a tensor filled with a scalar")
_add(
    "pack",
    _pack,
    lambda *xs, shape: np.stack(xs).reshape(shape),
    "a tensor of components, row by row",
)
_add(
    "extract",
    _extract,
    lambda v, k: v.reshape(-1)[k],
    "component `attr`, counted row by row",
    attr="component: int",
)
_add(
    "extract_at",
    _extract_at,
    lambda v, k: v.reshape(-1)[np.clip(k, 0, v.size - 1)],
    "component at a computed place, clamped",
)
_add("insert", _insert, None, "the tensor with component `attr` replaced", attr="component: int")
_add(
    "insert_at",
    _insert_at,
    None,
    "the tensor with a component at a computed place replaced; none if outside",
)
_add("matmul", _matmul, meaning.matmul, "matrix times matrix or vector")
_add("transpose", _transpose, np.transpose, "the matrix with rows and columns exchanged")
_add("outer", _outer, np.multiply.outer, "outer product of two vectors")
_add("sum", "T:num.tensor -> E(T)", meaning.total, "sum of all components")


# --- memory --------------------------------------------------------------------------------------


def _elem(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not ts or not isinstance(ts[0], Array):
        raise SignatureError(f"takes an array, not {_list(ts)}")
    t = ts[0]
    if len(ts) != t.ndim + 1:
        raise SignatureError(f"needs {t.ndim} indices, not {len(ts) - 1}")
    if any(not isinstance(k, Scalar) or k.kind not in "iu" or k.bits < 32 for k in ts[1:]):
        raise SignatureError(f"takes indices of 32 or 64 bit integers, not {_list(ts[1:])}")
    return Ptr.of(t.elem, t.space)


def _pointer_arg(ts: tuple[Type, ...]) -> Ptr:
    if not ts or not isinstance(ts[0], Ptr):
        raise SignatureError(f"takes a pointer, not {_list(ts)}")
    return ts[0]


def _member(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if not isinstance(p.elem, Tensor):
        raise SignatureError(f"has no components: {p.elem}")
    if len(ts) == 1:
        _component(p.elem, attr)
    return Ptr.of(p.elem.elem, p.space)


def _member_at(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if ts[1:] != (i32,):
        raise SignatureError("takes an i32 component index")
    return _member(ts, attr, given)


def _load(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return _pointer_arg(ts).elem


def _store(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if ts[1:] != (p.elem,):
        raise SignatureError(f"cannot store {_list(ts[1:])} where {p.elem} stands")
    return None


def _atomic(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    p = _pointer_arg(ts)
    if any(t is not p.elem for t in ts[1:]):
        raise SignatureError(f"cannot combine {_list(ts[1:])} with {p.elem}")
    return p.elem


def _shape(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 1 or not isinstance(ts[0], Array) or not isinstance(attr, int):
        raise SignatureError(f"takes an array, not {_list(ts)}")
    if not 0 <= attr < ts[0].ndim:
        raise SignatureError(f"has no axis {attr}: the array has {ts[0].ndim}")
    return i32


def _local(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 1 or not isinstance(ts[0], Scalar | Tensor):
        raise SignatureError(f"takes the first value, not {_list(ts)}")
    return Ptr.of(ts[0], "local")


def _shared(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if ts or not isinstance(given, Array) or given.space != "shared" or given.shape is None:
        raise SignatureError("needs a shared array type of static shape")
    return given


_add(
    "elem",
    _elem,
    None,
    "the place of an element; indices outside lead to a harmless place",
    attr="inside: the word `inside` if the indices are proved in range, or None",
)
_add(
    "member",
    _member,
    None,
    "the place of component `attr` of a tensor element",
    attr="component: int",
)
_add("member_at", _member_at, None, "the place of a component at a computed, clamped index")
_add("shape", _shape, None, "the extent of axis `attr` of an array", attr="axis: int")
_add("local", _local, None, "a private place holding a first value", Effect.ALLOC)
_add("shared", _shared, None, "an array shared by the workgroup, not initialised", Effect.ALLOC)
_add("load", _load, None, "the value at a place", Effect.READ)
_add("store", _store, None, "put a value at a place", Effect.WRITE)
ATOMICS: dict[str, Callable[..., Any]] = {
    "atomic_add": np.add,
    "atomic_min": np.fmin,
    "atomic_max": np.fmax,
    "atomic_mul": np.multiply,
    "atomic_and": np.bitwise_and,
    "atomic_or": np.bitwise_or,
    "atomic_xor": np.bitwise_xor,
}
for _name, _numpy in ATOMICS.items():
    _add(
        _name,
        _atomic,
        _numpy,
        f"{_name[7:]} into a place, per component; gives the old value",
        Effect.ATOMIC,
    )
_add("atomic_exchange", _atomic, lambda old, new: new, "put a value, get the old one", Effect.WRITE)
_add(
    "atomic_cas",
    _atomic,
    None,
    "put the third value if the second stands there; the old value",
    Effect.WRITE,
)


# --- invocations, randomness, synchronisation ----------------------------------------------------

_add("thread_index", " -> i32", None, "index of this invocation in the dispatch")
_add("local_index", " -> i32", None, "index of this invocation in its workgroup")
_add("group_index", " -> i32", None, "index of this workgroup in the dispatch")
_add("group_size", " -> i32", None, "invocations of a workgroup")
_add("grid_size", " -> i32", None, "invocations of the dispatch")
_add("random", " -> u32", None, "32 fresh random bits of this invocation's stream", Effect.WRITE)
_add(
    "barrier",
    "",
    None,
    "all invocations of the workgroup arrive, and see its shared memory",
    Effect.SYNC,
)
_add("fence", "", None, "order this invocation's memory accesses for the others", Effect.SYNC)
_add("subgroup_size", " -> i32", None, "invocations of a subgroup")
_add("subgroup_index", " -> i32", None, "index of this invocation in its subgroup")
_add("subgroup_elect", " -> u1", None, "true in one active invocation of the subgroup", Effect.SYNC)
for _name in ("add", "mul", "min", "max"):
    _add(
        f"subgroup_{_name}",
        "T:num.scalar -> T",
        None,
        f"{_name} over the subgroup's active invocations",
        Effect.SYNC,
    )
for _name in ("and", "or", "xor"):
    _add(
        f"subgroup_{_name}",
        "T:bits.scalar -> T",
        None,
        f"{_name} over the subgroup's active invocations",
        Effect.SYNC,
    )


# --- control -------------------------------------------------------------------------------------


def _control(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return None


_add("if", _control, None, "(cond) {then} {else}: the regions yield the results", Effect.CONTROL)
_add(
    "for",
    _control,
    None,
    "(begin, end, *first) {(i, *carried)}: yields the next carried values; results: the last",
    Effect.CONTROL,
)
_add(
    "while",
    _control,
    None,
    "(*first) {(*carried) yields u1} {(*carried) yields the next}: results: the last carried",
    Effect.CONTROL,
)
_add(
    "parallel",
    _control,
    None,
    "(begin, end) {(i)}: every i at once, in no order; only in a Func's body",
    Effect.CONTROL,
    attr="block size: int, or None for any mapping",
)
_add("yield", _control, None, "ends a region, giving its values", Effect.CONTROL)
