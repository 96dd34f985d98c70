"""Derivative rules: one row per op, in table `RULES`.

Kinds of rules:

- `Partials`: an elementwise op, with one partial derivative per operand. ONE and MINUS are
  constants, None is zero, a `SelectingPartial` is 1 or 0, an `UnboundedPartial` may be infinite.
  Reverse mode multiplies the incoming adjoint with them; forward mode multiplies the operands'
  tangents.
- `Linear`: an op that is linear in some operands jointly. Forward mode applies the op to their
  tangents; `vjp` returns the adjoints of the operands.
- `Bilinear`: linear in each operand alone.
- NONDIFF: piecewise constant, without a float result, or excluded (`stop_grad`); derivatives are
  zero.
- MEMORY, CONTROL: handled in `reverse` and `forward`.
- SHARED: synchronizes or combines invocations. A derivative that flows through it is an error.
- CHOSEN: replaced by one of its operands before differentiation.

Zero adjoints: the product with a partial derivative is 0 even if that is infinite or NaN. An unused
value must not produce a NaN. In reverse mode this applies to any value, because arrays may hold NaN
for missing data.

Primal values: a rule requests operands and results from a `DerivativeSite`, which recomputes or
saves them. So no table lists the values that each op needs.

Conventions at kinks: abs'(0) = 0. At a tie, `min` and `max` give all to their second operand.
`x**0` has derivative 0 in x; `0**y` has derivative 0 in y for y >= 0.

    >>> RULES["sin"].partials[0](site)      # cos(x)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value, constant_array, is_constant
from vkchi.ir.num import Num
from vkchi.ir.op_table.table import OpSignature
from vkchi.ir.ops import PLACES, READS, TABLE, Effect
from vkchi.target.magic import MAGIC
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of, shape_of, u1, with_scalar
from vkchi.types.lazy_numpy import np


class DerivativeSite:
    """An op that is being differentiated.

    - `get`: returns the primal value of an operand or of the result, on demand;
    - `active`: positions of the operands whose derivatives are needed;
    - `is_nonfinite`: an operand may be infinite or NaN where it has no influence;
    - `has_tangents`: factors are tangents, not adjoints, and may be infinite after an infinite
      slope;
    - `is_second`: the gradient is differentiated again, so an adjoint of 0 may have a tangent.
    """

    def __init__(
        self, b: Builder, op: Op, get: Callable[[Value], Value], active: Sequence[int],
        *, is_nonfinite: bool = True, has_tangents: bool = False, is_second: bool = False,
    ) -> None:  # fmt: skip
        self.b, self.op, self.get, self.active = b, op, get, active
        self.is_nonfinite, self.has_tangents = is_nonfinite, has_tangents
        self.is_second = is_second

    def operand(self, k: int) -> Num:
        return Num(self.b, self.get(self.op.args[k]))

    @property
    def x(self) -> Num:
        return self.operand(0)

    @property
    def y(self) -> Num:
        return self.operand(1)

    @property
    def out(self) -> Num:
        return Num(self.b, self.get(self.op))

    def is_active(self, k: int) -> bool:
        return k in self.active


Partial = Callable[[DerivativeSite], Num]
Vjp = Callable[[DerivativeSite, Num], "list[Num | None]"]


class ConstantPartial(NamedTuple):
    sign: int


ONE, MINUS = ConstantPartial(1), ConstantPartial(-1)


class SelectingPartial(NamedTuple):
    """A partial derivative that is 1 where `test` holds, else 0.

    It selects instead of multiplying, so that an infinity without influence does not become NaN.
    """

    test: Partial


class UnboundedPartial(NamedTuple):
    """A partial derivative that may be infinite; its product with 0 is 0."""

    slope: Partial


Factor = Partial | ConstantPartial | SelectingPartial | UnboundedPartial | None


class Partials(NamedTuple):
    """d result / d operand k, elementwise; None is zero."""

    partials: tuple[Factor, ...]


class Linear(NamedTuple):
    """Linear in the operands `of` jointly; the others only select."""

    of: tuple[int, ...] | None  # None: all
    vjp: Vjp


class Bilinear(NamedTuple):
    """Linear in each of two operands."""

    vjp: Vjp


class SpecialRule(NamedTuple):
    """A rule without data: handled elsewhere, or an error."""

    name: str


NONDIFF, MEMORY, CONTROL, SHARED = map(SpecialRule, ("nondiff", "memory", "control", "shared"))
CHOSEN = SpecialRule("chosen")  # replaced by one of its operands before differentiation
Rule = Partials | Linear | Bilinear | SpecialRule

# --- elementwise ---------------------------------------------------------------------------------


def _pow_base(s: DerivativeSite) -> Num:
    slope = s.y * s.x.pow(s.y - 1)
    return (s.y == 0).where(s.y * 0, slope)


def _pow_exponent(s: DerivativeSite) -> Num:
    is_zero = s.x == 0
    return s.out * is_zero.where(s.x + 1, s.x).op("log")


def _truncated(x: Num, y: Num) -> Num:
    whole = x.op("abs").floordiv(y.op("abs"))
    return whole * x.op("sign") * y.op("sign")


# At a tie the second operand has the derivative, as in Taichi: `max(x, 0)` is flat at 0.
_FIRST = SelectingPartial(lambda s: s.out != s.y)
_SECOND = SelectingPartial(lambda s: s.out == s.y)


def _cast_is_smooth(op: Op) -> bool:
    kinds = {scalar_of(t).kind for t in (op.args[0].type, op.type)}
    return kinds == {"f"}


_ELEMENTWISE: dict[str, tuple[Factor, ...]] = {
    "add": (ONE, ONE),
    "sub": (ONE, MINUS),
    "mul": (lambda s: s.y, lambda s: s.x),
    "div": (UnboundedPartial(lambda s: 1 / s.y), UnboundedPartial(lambda s: -s.out / s.y)),
    "mod": (ONE, lambda s: -s.x.floordiv(s.y)),
    "rem": (ONE, lambda s: -_truncated(s.x, s.y)),
    "neg": (MINUS,),
    "abs": (lambda s: s.x.op("sign"),),
    "min": (_FIRST, _SECOND),
    "max": (_FIRST, _SECOND),
    "pow": (UnboundedPartial(_pow_base), UnboundedPartial(_pow_exponent)),
    "sqrt": (UnboundedPartial(lambda s: 0.5 / s.out),),
    "rsqrt": (UnboundedPartial(lambda s: -0.5 * s.out * s.out * s.out),),
    "exp": (UnboundedPartial(lambda s: s.out),),
    "exp2": (UnboundedPartial(lambda s: s.out * math.log(2)),),
    "log": (UnboundedPartial(lambda s: 1 / s.x),),
    "log2": (UnboundedPartial(lambda s: 1 / math.log(2) / s.x),),
    "sin": (lambda s: s.x.op("cos"),),
    "cos": (lambda s: -s.x.op("sin"),),
    "tan": (lambda s: 1 + s.out * s.out,),
    "asin": (UnboundedPartial(lambda s: (1 - s.x * s.x).op("rsqrt")),),
    "acos": (UnboundedPartial(lambda s: -(1 - s.x * s.x).op("rsqrt")),),
    "atan": (lambda s: 1 / (1 + s.x * s.x),),
    "atan2": (
        UnboundedPartial(lambda s: s.y / (s.x * s.x + s.y * s.y)),
        UnboundedPartial(lambda s: -s.x / (s.x * s.x + s.y * s.y)),
    ),
    "sinh": (lambda s: s.x.op("cosh"),),
    "cosh": (lambda s: s.x.op("sinh"),),
    "tanh": (lambda s: 1 - s.out * s.out,),
    "undefined_slope": (lambda s: s.out.number(math.nan),),
}

# --- tensors -------------------------------------------------------------------------------------


def _select(s: DerivativeSite, g: Num) -> list[Num | None]:
    zero = g.zero()
    chosen = s.operand(0)
    return [None, chosen.where(g, zero), chosen.where(zero, g)]


def _cast(s: DerivativeSite, g: Num) -> list[Num | None]:
    return [g.cast(scalar_of(s.op.args[0].type))]


def _splat(s: DerivativeSite, g: Num) -> list[Num | None]:
    return [g.op("sum")]


def _pack(s: DerivativeSite, g: Num) -> list[Num | None]:
    return [g.part(k) if s.is_active(k) else None for k in range(len(s.op.args))]


def _extract(s: DerivativeSite, g: Num) -> list[Num | None]:
    return [g.zero(s.op.args[0].type).with_part(s.op.attr, g)]


def _extract_at(s: DerivativeSite, g: Num) -> list[Num | None]:
    t = s.op.args[0].type
    assert isinstance(t, Tensor)
    k = s.operand(1).at_least(0).at_most(t.size - 1)  # as the op clamps it
    return [g.zero(t).with_part_at(k, g), None]


def _insert(s: DerivativeSite, g: Num) -> list[Num | None]:
    given = g.part(s.op.attr)
    return [g.with_part(s.op.attr, given.zero()), given]


def _insert_at(s: DerivativeSite, g: Num) -> list[Num | None]:
    t, k = s.op.args[0].type, s.operand(2)
    assert isinstance(t, Tensor)
    is_inside = (k >= 0) & (k <= t.size - 1)
    given = g.part_at(k)
    return [g.with_part_at(k, given.zero()), is_inside.where(given, given.zero()), None]


def _transpose(s: DerivativeSite, g: Num) -> list[Num | None]:
    return [g.op("transpose")]


def _sum(s: DerivativeSite, g: Num) -> list[Num | None]:
    return [g.splat(s.op.args[0].type)]


def _matmul(s: DerivativeSite, g: Num) -> list[Num | None]:
    is_vector = len(shape_of(s.op.args[1].type)) == 1
    left = right = None
    if s.is_active(0):
        y = _counting(s, s.y, g, axis=1)
        left = g.outer(y) if is_vector else g.matmul(y.op("transpose"))
    if s.is_active(1):
        right = _counting(s, s.x, g, axis=0).op("transpose").matmul(g)
    return [left, right]


def _outer(s: DerivativeSite, g: Num) -> list[Num | None]:
    left = g.matmul(_counting(s, s.y, g, axis=1)) if s.is_active(0) else None
    right = None
    if s.is_active(1):
        right = g.op("transpose").matmul(_counting(s, s.x, g, axis=0))
    return [left, right]


def _counting(s: DerivativeSite, x: Num, g: Num, axis: int) -> Num:
    """A factor of a product, with 0 for entries whose results have no influence.

    Such entries may be infinite or NaN. They are those in a row (`axis` 0) or column (1) in which
    all adjoints are 0. If the gradient is differentiated again, finite entries stay.
    """
    counts = _used(g, axis)
    t = with_scalar(x.type, u1)
    if isinstance(counts.type, Scalar):
        mask = counts.splat(t)
    else:
        of = [k[axis] if len(k) > 1 else k[0] for k in np.ndindex(shape_of(t))]
        parts = {k: counts.part(k).v for k in dict.fromkeys(of)}
        mask = Num(s.b, s.b.emit("pack", *(parts[k] for k in of), type=t))
    if s.is_second:  # an adjoint of 0 may have a tangent
        mask = mask | _is_finite(x)
    return mask.where(x, x.zero())


def _used(g: Num, axis: int) -> Num:
    """True for the rows (axis 0) or columns (axis 1) of an adjoint that are not all 0.

    For a vector, axis 0 gives a bool per component, and axis 1 one bool.
    """
    shape, size = shape_of(g.type), g.op("abs")
    if len(shape) == 1:
        return (g if axis == 0 else size.op("sum")) != 0
    one = size.of(1, Tensor.of(scalar_of(g.type), (shape[1 - axis],)))
    return (size if axis == 0 else size.op("transpose")).matmul(one) != 0


_TENSORS: dict[str, Rule] = {
    "select": Linear((1, 2), _select),
    "cast": Linear((0,), _cast),
    "splat": Linear((0,), _splat),
    "pack": Linear(None, _pack),
    "extract": Linear((0,), _extract),
    "extract_at": Linear((0,), _extract_at),
    "insert": Linear((0, 1), _insert),
    "insert_at": Linear((0, 1), _insert_at),
    "transpose": Linear((0,), _transpose),
    "sum": Linear((0,), _sum),
    "matmul": Bilinear(_matmul),
    "outer": Bilinear(_outer),
}

# --- the rest ------------------------------------------------------------------------------------

_NONDIFF = [
    *("floordiv", "sign", "floor", "ceil", "round", "trunc", "stop_grad"),  # of floats
    *("stop_first_grad", "const", "bitcast", "shape", "word", "word_shift", "size"),
    *("split_u64", "join_u64", *MAGIC),
    *(
        kind
        for kind, row in TABLE.items()
        if row.effect in (Effect.PURE, Effect.WRITE)
        if row.sig and not OpSignature(row.sig).gives_floats
    ),
]
_MEMORY = [*PLACES, "local", "shared", *READS, "store", "barrier"]
_CONTROL = ["if", "for", "while", "parallel", "yield"]


def _is_shared(kind: str) -> bool:
    """True if the op involves other invocations of the workgroup."""
    return TABLE[kind].effect is Effect.SYNC and kind != "barrier"


RULES: dict[str, Rule] = {
    **{kind: Partials(partials) for kind, partials in _ELEMENTWISE.items()},
    **_TENSORS,
    **dict.fromkeys(_NONDIFF, NONDIFF),
    **dict.fromkeys(_MEMORY, MEMORY),
    **dict.fromkeys(_CONTROL, CONTROL),
    "with_derivative_of": CHOSEN,
    **{kind: SHARED for kind in TABLE if _is_shared(kind)},
    **{kind: NONDIFF for kind, row in TABLE.items() if row.effect is Effect.REPORT},
}


def times_partial(site: DerivativeSite, g: Num, factor: Factor) -> Num | None:
    """g times a partial derivative; None for zero."""
    if factor is None:
        return None
    if isinstance(factor, SelectingPartial):
        return factor.test(site).where(g, g.zero())
    if isinstance(factor, ConstantPartial):
        return g if factor is ONE else -g
    if isinstance(factor, UnboundedPartial):
        return _times_steep(site, g, factor.slope(site))
    return _times_steep(site, g, factor(site)) if site.is_nonfinite else g * factor(site)


def _times_steep(site: DerivativeSite, g: Num, slope: Num) -> Num:
    """The product g * slope, with 0 if g is 0, and for an infinite tangent if the slope is 0.

    An infinite tangent results from an infinite slope. Example: `ti.exp(-x)` in `1 / (1 +
    ti.exp(-x))` where it overflows.
    """
    if _is_plain(slope.v):
        return g * slope
    counts = g != 0
    if site.is_second:  # an adjoint of 0 may have a tangent
        counts = counts | _is_finite(slope)
    if not site.has_tangents:
        return g * counts.where(slope, slope.zero())
    counts = counts & (_is_finite(g) | (slope != 0))
    return counts.where(g * slope, g.zero())


def _is_plain(v: Value) -> bool:
    return is_constant(v) and bool(np.isfinite(constant_array(v)).all())


def _is_finite(x: Num) -> Num:
    return x.op("abs") <= float(np.finfo(scalar_of(x.type).dtype).max)


def rule_of(op: Op) -> Rule:
    """The op's rule; NONDIFF for a cast unless both types are floats. Raises KeyError."""
    if op.kind == "cast" and not _cast_is_smooth(op):
        return NONDIFF
    return RULES[op.kind]


def is_smooth(v: Value) -> bool:
    t: Any = v.type
    return isinstance(t, Scalar | Tensor) and scalar_of(t).kind == "f"
