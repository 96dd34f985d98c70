"""The op table, one row per op, and sets of ops by trait.

A row has these columns:
- the signature (see `table.OpSignature`), or an `infer` function for ops on memory and control;
- the numpy meaning, which is the semantics of a pure op;
- effect, traits, the contents of `attr`, and a line of documentation;
- for integers, `interval` and `monotone`.

Other rows are in `memory_ops` and in `invocation_ops` (ops that depend on the invocation, reports
to the host). See CONTRIBUTING.md for adding an op.

    >>> TABLE["add"].effect is Effect.PURE
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from vkchi.ir.core import Op, Param, Region, Value, constant_int
from vkchi.ir.op_table import interval_rules, invocation_ops, semantics
from vkchi.ir.op_table.memory_ops import ATOMICS, READS, UPDATES, WRITES
from vkchi.ir.op_table.table import (
    ALL,
    TABLE,
    ControlSpec,
    Effect,
    OpRow,
    OpSignature,
    SignatureError,
    Trait,
    add_row,
    check_component,
    effect_of,
    kinds_with,
    list_types,
)
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, Type, i32, shape_of, u1, u32, u64, with_shape
from vkchi.types.lazy_numpy import np

__all__ = [
    "ATOMICS", "BITWISE", "CARRIERS", "CHOICES", "COMMUTATIVE", "COMPARISONS", "COMPONENTS",
    "CONVERSIONS", "COUNTED", "DIVISIONS", "DIVISION_OF", "ELEMENTWISE", "EQUALITIES", "EXTREMES",
    "FIXED", "GREATER", "GROUPED", "IDEMPOTENT", "LINEAR", "LOOPS", "MIRRORED", "NEGATED",
    "ORDERED", "PER_INVOCATION", "PLACES", "PLAIN_ACCESSES", "QUOTIENTS", "READS", "REMAINDERS",
    "REMAINDER_OF", "ROUNDED_DOWN", "SUMS", "SWAPS", "SYNCS", "TABLE", "TIED", "TRUTHS",
    "UPDATES", "VARYING", "WRITES", "ControlSpec", "Effect", "OpRow", "Trait", "effect_of",
    "invocation_ops", "kinds_with",
]  # fmt: skip

COMMUTES, COMPARES, MERGES = Trait.COMMUTES, Trait.COMPARES, Trait.MERGES
DIVIDES, REMAINDER = Trait.DIVIDES, Trait.REMAINDER
MAKES = Trait.MAKES_NONFINITE
NONE, COUNTS, RING = Trait.NONE, Trait.COUNTS, Trait.RING
IDENTITY, CHOOSES, LOGIC, ROUNDS = Trait.IDENTITY, Trait.CHOOSES, Trait.LOGIC, Trait.ROUNDS
CARRIES, ZERO, FACTORS = Trait.CARRIES, Trait.KEEPS_ZERO, Trait.KEEPS_FACTORS
F64, F32 = Trait.FORMULA_F64, Trait.FORMULA_F32
BOTH = F64 | F32

# --- elementwise arithmetic, on scalars and whole tensors ----------------------------------------
# fmt: off

# (name, signature, numpy meaning, doc, traits, interval, monotone)
_ELEMENTWISE: list[tuple[Any, ...]] = [
    ("add", "T:num, T -> T", np.add,
     "sum; integers wrap", COMMUTES | COUNTS | RING | FACTORS, interval_rules.add, "++"),
    ("sub", "T:num, T -> T", np.subtract,
     "difference; integers wrap", COUNTS | RING | FACTORS, interval_rules.sub, "+-"),
    ("mul", "T:num, T -> T", np.multiply,
     "product; integers wrap", COMMUTES | MERGES | COUNTS | RING | FACTORS, interval_rules.mul),
    ("div", "T:float, T -> T", np.divide, "quotient of floats", MAKES | F32),
    ("floordiv", "T:num, T -> T", semantics.floordiv,
     "quotient rounded down, as Python's //", DIVIDES | MERGES | MAKES | COUNTS,
     interval_rules.floordiv),
    ("mod", "T:num, T -> T", semantics.mod,
     "remainder with the divisor's sign, as Python's %",
     DIVIDES | REMAINDER | MAKES | COUNTS | FACTORS, interval_rules.mod),
    ("truncdiv", "T:int, T -> T", semantics.truncdiv,
     "quotient rounded toward zero, as C's /", DIVIDES | MERGES, interval_rules.truncdiv),
    ("rem", "T:num, T -> T", semantics.rem,
     "remainder with the dividend's sign, as C's %",
     DIVIDES | REMAINDER | MAKES | FACTORS, interval_rules.rem),
    ("neg", "T:num -> T", semantics.negate,
     "negation; integers wrap",
     COUNTS | RING | CARRIES | ZERO | FACTORS, interval_rules.neg, "-"),
    ("abs", "T:num -> T", np.abs,
     "absolute value; the least integer stays itself",
     CARRIES | ZERO | FACTORS, interval_rules.absolute),
    ("sign", "T:num -> T", semantics.sign, "-1, 0 or 1", ZERO, interval_rules.sign, "+"),
    ("min", "T:num, T -> T", np.fmin,
     "the smaller; the other one if one is NaN",
     COMMUTES | MERGES | COUNTS | CHOOSES | CARRIES | FACTORS, interval_rules.smaller, "++"),
    ("max", "T:num, T -> T", np.fmax,
     "the larger; the other one if one is NaN",
     COMMUTES | MERGES | COUNTS | CHOOSES | CARRIES | FACTORS, interval_rules.larger, "++"),
    ("pow", "T:float, T -> T", semantics.power, "power of floats", MAKES | BOTH),
    ("and", "T:bits, T -> T", np.bitwise_and,
     "bitwise and; logical for u1", COMMUTES | MERGES | LOGIC | FACTORS, interval_rules.bit_and),
    ("or", "T:bits, T -> T", np.bitwise_or,
     "bitwise or; logical for u1", COMMUTES | MERGES | LOGIC | FACTORS, interval_rules.bit_or),
    ("xor", "T:bits, T -> T", np.bitwise_xor,
     "bitwise exclusive or; logical for u1",
     COMMUTES | MERGES | LOGIC | FACTORS, interval_rules.bit_xor),
    ("not", "T:bits -> T", semantics.invert,
     "bitwise not; logical for u1", LOGIC, interval_rules.bit_not, "-"),
    ("shl", "T:int, T -> T", semantics.shl,
     "shift left; 0 if by the width or more", NONE, interval_rules.shl),
    ("shr", "T:int, T -> T", semantics.shr,
     "shift right by any amount, arithmetic for signed types", MERGES, interval_rules.shr),
    ("popcnt", "T:int -> T", semantics.popcnt, "number of set bits", ZERO,
     interval_rules.bit_count),
    ("clz", "T:int -> T", semantics.clz, "number of leading zero bits", NONE,
     interval_rules.bit_count),
    ("trip_count", "T:int, T, T -> U(T)", semantics.trip_count,
     "length of Python's range(first, second, third), always exact; 0 if the third is 0",
     MERGES | COUNTS, interval_rules.trip_count),
    ("lt", "T:num, T -> B(T)", np.less, "less than", COMPARES),
    ("le", "T:num, T -> B(T)", np.less_equal, "less than or equal", COMPARES),
    ("gt", "T:num, T -> B(T)", np.greater, "greater than", COMPARES),
    ("ge", "T:num, T -> B(T)", np.greater_equal, "greater than or equal", COMPARES),
    ("eq", "T:any, T -> B(T)", np.equal, "equal", COMMUTES | COMPARES),
    ("ne", "T:any, T -> B(T)", np.not_equal, "not equal; true for NaN", COMMUTES | COMPARES),
    ("isnan", "T:float -> B(T)", np.isnan, "whether NaN"),
    ("isinf", "T:float -> B(T)", np.isinf, "whether infinite"),
    ("sqrt", "T:float -> T", np.sqrt, "square root", MAKES | ZERO | F32),
    ("rsqrt", "T:float -> T", lambda x: x.dtype.type(1) / np.sqrt(x), "1 / square root", MAKES),
    ("exp", "T:float -> T", np.exp, "e to the power", MAKES | F64),
    ("exp2", "T:float -> T", np.exp2, "2 to the power", MAKES | BOTH),
    ("log", "T:float -> T", np.log, "natural logarithm", MAKES | F64),
    ("log2", "T:float -> T", np.log2, "logarithm to base 2", MAKES | BOTH),
    ("sin", "T:float -> T", np.sin, "sine of radians", ZERO | F64),
    ("cos", "T:float -> T", np.cos, "cosine of radians", F64),
    ("tan", "T:float -> T", np.tan, "tangent of radians", MAKES | ZERO | F64),
    ("asin", "T:float -> T", np.arcsin, "arc sine in radians", MAKES | ZERO | BOTH),
    ("acos", "T:float -> T", np.arccos, "arc cosine in radians", MAKES | BOTH),
    ("atan", "T:float -> T", np.arctan, "arc tangent in radians", ZERO | BOTH),
    ("atan2", "T:float, T -> T", np.arctan2,
     "angle of the point (second, first), in radians", BOTH),
    ("sinh", "T:float -> T", np.sinh, "hyperbolic sine", MAKES | ZERO | BOTH),
    ("cosh", "T:float -> T", np.cosh, "hyperbolic cosine", MAKES | F64),
    ("tanh", "T:float -> T", np.tanh, "hyperbolic tangent", ZERO | BOTH),
    ("floor", "T:float -> T", np.floor, "largest integer not above", ROUNDS | ZERO),
    ("ceil", "T:float -> T", np.ceil, "smallest integer not below", ROUNDS | ZERO),
    ("round", "T:float -> T", semantics.round_even,
     "nearest integer, halves to even", ROUNDS | ZERO | F64),
    ("trunc", "T:float -> T", np.trunc, "integer part", ROUNDS | ZERO | F64),
    ("stop_grad", "T:any -> T", lambda x: x,
     "the same, without a derivative", IDENTITY | CARRIES | ZERO, interval_rules.first, "+"),
    ("stop_first_grad", "T:any -> T", lambda x: x,
     "the same; its first derivative is added elsewhere",
     IDENTITY | CARRIES | ZERO, interval_rules.first, "+"),
    ("undefined_slope", "T:float -> T", lambda x: x,
     "the same; its derivative is NaN", IDENTITY | CARRIES | ZERO),
    ("with_derivative_of", "T:any, T, T -> T", lambda x, y, z: x,
     "the first; in derivatives the second, or the third where it is stored as it is",
     IDENTITY | CARRIES, interval_rules.first),
]
for _name, _sig, _numpy, _doc, *_more in _ELEMENTWISE:
    add_row(_name, _sig, _numpy, _doc, **dict(zip(("traits", "interval", "monotone"), _more)))
ELEMENTWISE = frozenset(row[0] for row in _ELEMENTWISE) | {"select", "cast", "bitcast"}


# fmt: on
# --- conversions and tensors ---------------------------------------------------------------------


def _select(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) != 3 or ts[1] is not ts[2]:
        raise SignatureError(f"takes a condition and two values of one type, not {list_types(ts)}")
    if ts[0] is not with_shape(u1, shape_of(ts[1])):
        raise SignatureError(f"needs a condition of the values' shape, not {ts[0]}")
    return ts[1]


def _cast(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = OpSignature("T:any -> R").infer(ts, given)
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
        raise SignatureError(f"cannot fill {given} with {list_types(ts)}")
    return given


def _pack(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not isinstance(given, Tensor) or any(t is not given.elem for t in ts):
        raise SignatureError(f"cannot make {given} of {list_types(ts)}")
    if len(ts) != given.size:
        raise SignatureError(f"needs {given.size} components, not {len(ts)}")
    return given


def _tensor_arg(ts: tuple[Type, ...]) -> Tensor:
    if not ts or not isinstance(ts[0], Tensor):
        raise SignatureError(f"takes a vector or matrix, not {list_types(ts)}")
    return ts[0]


def _extract(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    check_component(t, attr)
    return t.elem


def _extract_at(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    if ts[1:] != (i32,):
        raise SignatureError("takes an i32 component index")
    return t.elem


def _insert(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    check_component(t, attr)
    if ts[1:] != (t.elem,):
        raise SignatureError(f"cannot put {list_types(ts[1:])} into {t}")
    return t


def _insert_at(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    if ts[1:] != (t.elem, i32):
        raise SignatureError(
            f"cannot put {list_types(ts[1:])} into {t}: takes a {t.elem} and an i32"
        )
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
    raise SignatureError(f"cannot multiply {list_types(ts)} as matrices")


def _transpose(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    t = _tensor_arg(ts)
    if len(ts) != 1 or len(t.shape) != 2:
        raise SignatureError(f"takes a matrix, not {list_types(ts)}")
    return Tensor.of(t.elem, (t.shape[1], t.shape[0]))


def _outer(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if len(ts) == 2:
        a, b = ts
        if isinstance(a, Tensor) and isinstance(b, Tensor) and _are_vectors(a, b):
            return Tensor.of(a.elem, (a.size, b.size))
    raise SignatureError(f"takes two vectors of one number type, not {list_types(ts)}")


def _split_u64(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if ts != (u64,):
        raise SignatureError(f"takes a u64, not {list_types(ts)}")
    return Tensor.of(u32, (2,))


def _join_u64(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if ts != (Tensor.of(u32, (2,)),):
        raise SignatureError(f"takes a vector of two u32, not {list_types(ts)}")
    return u64


# fmt: off
add_row("const", _const, None, "a constant", attr="bits: int, or a tuple of ints for a tensor",
        traits=Trait.UNIFORM | Trait.FIXED)
add_row("select", _select, lambda c, a, b: np.where(c, a, b),
        "per component: second where first, else third", traits=MERGES | LOGIC | CARRIES,
        interval=interval_rules.select)
add_row("cast", _cast, semantics.cast, "numeric conversion",
        traits=COUNTS | Trait.CONVERTS | ZERO | FACTORS, interval=interval_rules.first)
add_row("bitcast", _bitcast,
        lambda a, dtype: np.ascontiguousarray(a).view(dtype).reshape(np.shape(a)),
        "same bits, other type", traits=COUNTS | Trait.CONVERTS | FACTORS,
        interval=interval_rules.first)
add_row("split_u64", _split_u64,
        lambda a: np.array([a & 0xFFFFFFFF, a >> np.uint64(32)], np.uint32),
        "the low and the high 32 bits of a u64")
add_row("join_u64", _join_u64, lambda a: np.uint64(a[0]) | (np.uint64(a[1]) << np.uint64(32)),
        "the u64 of low and high 32 bits")
add_row("splat", _splat, lambda a, shape: np.full(shape, a), "a tensor filled with a scalar",
        traits=CARRIES | ZERO)
add_row("pack", _pack, lambda *xs, shape: np.stack(xs).reshape(shape),
        "a tensor of components, row by row", traits=CARRIES | ZERO)
add_row("extract", _extract, lambda v, k: v.reshape(-1)[k], "component `attr`, counted row by row",
        attr="component: int", traits=CARRIES | ZERO)
add_row("extract_at", _extract_at, lambda v, k: v.reshape(-1)[np.clip(k, 0, v.size - 1)],
        "component at a computed place, clamped", traits=CARRIES)
add_row("insert", _insert, None, "the tensor with component `attr` replaced", attr="component: int",
        traits=CARRIES)
add_row("insert_at", _insert_at, None,
        "the tensor with a component at a computed place replaced; none if outside", traits=CARRIES)
add_row("matmul", _matmul, semantics.matmul, "matrix times matrix or vector")
add_row("transpose", _transpose, np.transpose, "the matrix with rows and columns exchanged",
        traits=CARRIES | ZERO)
add_row("outer", _outer, np.multiply.outer, "outer product of two vectors")
add_row("sum", "T:num.tensor -> E(T)", semantics.total, "sum of all components", traits=ZERO)
# fmt: on


# --- control -------------------------------------------------------------------------------------

NOUNROLL = "nounroll"
GUARDED = "guarded"


def _control(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return None


# fmt: off
add_row("if", _control, None, "(cond) {then} {else}: the regions yield the results", Effect.CONTROL,
        control=ControlSpec(2, fixed=1, order="once"))
add_row("for", _control, None,
        "(begin, end, *first) {(i, *carried)}: for every i from begin to before end, if there are "
        "any; yields the next carried values; results: the last",
        Effect.CONTROL,
        attr="hint: nounroll, if drivers should leave the loop as it is; guarded, if its body is "
        "one `if` that skips most iterations",
        control=ControlSpec(1, fixed=2, order="serial", index_params=1))
add_row("while", _control, None,
        "(*first) {(*carried) yields u1} {(*carried) yields the next}: results: the last carried",
        Effect.CONTROL, control=ControlSpec(2, fixed=0, order="serial", tests=True))
add_row("parallel", _control, None,
        "(begin, end, begin, end, ...) {(i, j, ...)}: every i from begin to before end, with every "
        "j likewise, at once, in no order, none where an end is not above its begin; only in a "
        "Func's body",
        Effect.CONTROL,
        attr="workgroup: its iterations, or a tuple of its length along each axis; None for any",
        control=ControlSpec(1, fixed=ALL, order="parallel", index_params=ALL))
add_row("yield", _control, None, "ends a region, giving its values", Effect.CONTROL)
# fmt: on

# --- sets of ops by trait -------------------------------------------------------------------------

COMMUTATIVE = kinds_with(Trait.COMMUTES)
COMPARISONS = kinds_with(Trait.COMPARES)
DIVISIONS = kinds_with(Trait.DIVIDES)
REMAINDERS = kinds_with(Trait.REMAINDER)
QUOTIENTS = DIVISIONS - REMAINDERS
PLACES = kinds_with(Trait.PLACE)
CONVERSIONS = kinds_with(Trait.CONVERTS)
EXTREMES = kinds_with(Trait.EXTREME)
IDEMPOTENT = kinds_with(Trait.IDEMPOTENT)
FIXED = kinds_with(Trait.FIXED)
VARYING = kinds_with(Trait.VARIES)
COMPONENTS = kinds_with(Trait.COMPONENT)
CHOICES = kinds_with(Trait.CHOOSES)
CARRIERS = kinds_with(Trait.CARRIES)
EQUALITIES = COMPARISONS & COMMUTATIVE
LINEAR = kinds_with(Trait.RING)  # sums, differences, negations and products
# Sums, differences and negations -> the sign of each operand.
SUMS = {k: tuple(int(sign + "1") for sign in TABLE[k].monotone) for k in sorted(LINEAR)
        if TABLE[k].monotone}  # fmt: skip
BITWISE = frozenset(k for k, row in TABLE.items() if row.sig == "T:bits, T -> T")
SWAPS = UPDATES - ATOMICS.keys()  # they do not combine the old value with an operand
ACCESSES = READS | WRITES
PLAIN_ACCESSES = ACCESSES - UPDATES
# Depend on the invocation that executes them.
TIED = kinds_with(Trait.PER_INVOCATION | Trait.OWNED)
# Depend on how invocations are grouped into workgroups.
GROUPED = TIED - {"thread_index", "random"}
# Synchronize or report: passes keep their order within an invocation.
ORDERED = frozenset(k for k, r in TABLE.items() if r.effect in (Effect.SYNC, Effect.REPORT))
SYNCS = frozenset(k for k, row in TABLE.items() if row.effect is Effect.SYNC)
TRUTHS = frozenset(k for k, row in TABLE.items() if row.sig.endswith("B(T)"))
# Negated comparisons, and comparisons with exchanged operands.
NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
GREATER = {"gt": 0, "ge": 0, "lt": 1, "le": 1}  # index of the greater operand
# REMAINDER_OF: quotient -> remainder of the same operands.
# ROUNDED_DOWN: division -> the one that rounds down, equal on non-negative integers.
# DIVISION_OF: rounding of floats -> the integer division that rounds the same way.
REMAINDER_OF = {"truncdiv": "rem", "floordiv": "mod"}
ROUNDED_DOWN = {"truncdiv": "floordiv", "rem": "mod", "floordiv": "floordiv", "mod": "mod"}
DIVISION_OF = {"floor": "floordiv", "trunc": "truncdiv"}
PER_INVOCATION = kinds_with(Trait.PER_INVOCATION)
LOOPS = frozenset(k for k, row in TABLE.items() if row.control and row.control.order == "serial")
COUNTED = frozenset(k for k, row in TABLE.items() if row.control and row.control.index_params)


# --- accessors of control ops --------------------------------------------------------------------
#
# Accessors for control ops by their `ControlSpec` rows: axes, bodies, carried values.
#
# Example:
#
#     %r = for %b, %e, %x {^(%i, %y) ... yield %z}
#     control_of(op).fixed == 2; initial_values(op) == (%x,); carried_params(op) == (%y,)


def control_of(op: Op) -> ControlSpec:
    """Return the `ControlSpec` of a control op. Counts of `ALL` are replaced by those of this
    op."""
    control = TABLE[op.kind].control
    assert control is not None, op.kind
    if control.fixed != ALL:
        return control
    return control._replace(fixed=len(op.args), index_params=len(op.regions[-1].params))


class LoopAxis(NamedTuple):
    """A loop index and its bounds."""

    param: Param
    begin: Value
    end: Value

    @property
    def ends(self) -> tuple[int, int] | None:
        """Both bounds if they are constants, otherwise None."""
        begin, end = constant_int(self.begin), constant_int(self.end)
        return None if begin is None or end is None else (begin, end)

    @property
    def length(self) -> int | None:
        """The number of iterations if the bounds are constants, otherwise None."""
        ends = self.ends
        return None if ends is None else max(0, ends[1] - ends[0])


def axes_of(op: Op) -> list[LoopAxis]:
    """Return the axes of a `for` (one) or `parallel`, slowest first; empty for `if` and `while`."""
    params, count = op.regions[-1].params, control_of(op).index_params
    return [LoopAxis(params[k], op.args[2 * k], op.args[2 * k + 1]) for k in range(count)]


def constant_trip_count(loop: Op) -> int | None:
    """Return the number of iterations of a `for` or `parallel` with constant bounds; None for other
    loops."""
    lengths = [axis.length for axis in axes_of(loop)]
    return None if None in lengths or not lengths else prod(n or 0 for n in lengths)


def is_loop(op: Op) -> bool:
    """True if the op is a loop: `for`, `while` or `parallel`."""
    control = TABLE[op.kind].control
    return control is not None and control.order != "once"


def bodies_of(op: Op) -> Sequence[Region]:
    """Return all regions but the condition of a `while`."""
    return op.regions[1:] if control_of(op).tests else op.regions


def control_operands(op: Op) -> Sequence[Value]:
    """Return the values that decide which regions run, and how often.

    For a `while` they are the condition's yielded values. For an `if` they are its condition, for
    other loops the bounds.
    """
    control = control_of(op)
    return op.regions[0].yielded if control.tests else op.args[: control.fixed]


def initial_values(op: Op) -> Sequence[Value]:
    """Return the operands of a loop that are initial values of carried values; none for an `if`."""
    return op.args[control_of(op).fixed :]


def carried_params(op: Op) -> Sequence[Param]:
    """Return the body's parameters for carried values."""
    return op.regions[-1].params[control_of(op).index_params :]
