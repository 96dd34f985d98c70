"""Implicit conversions, and cautions about values that they may lose.

A conversion of a float to an integer is reported, unless the float is proved to be whole. A
constant is reported if the target type does not hold it (`is_held`). Narrower integers and floats
are reported in debug mode and under `strict` only, a lost sign under `strict` only. Range analysis
later drops cautions about integers that are proved to fit (`op` of `PendingCaution`). Explicit
conversions (`ti.cast`, `int()`, `ti.i32()`) are not reported.

    v = convert(cx, operand(cx, x), i32, ConversionTarget("`s`"))
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from typing import Any

from vkchi.errors import KernelCallError, KernelTypeError
from vkchi.frontend.state.pending import UNNAMED, ConversionTarget, PendingCaution
from vkchi.frontend.syntax.syntax_facts import name_in, nodes_of
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.operands import (
    Operand,
    WeakNumbers,
    check_shape,
    operand,
    operand_shape,
    own_type,
    put_into,
)
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Op, Result, Value, constant_array, is_constant
from vkchi.ir.ops import TABLE, Effect, Trait, initial_values
from vkchi.span import PACKAGE, source_line
from vkchi.target.remarks import Caution
from vkchi.types import Scalar, Tensor, bf16, f16, f32, f64, integer_range, scalar_of, shape_of
from vkchi.types.bfloat16 import convert as as_scalar_type
from vkchi.types.lazy_numpy import np

MOST_VALUES = 1000  # visited in a proof that a float is integral
# Largest numbers that round to finite ones.
GREATEST = {
    f16: 65519.0,
    bf16: float.fromhex("0x1.fefffefffffffp127"),
    f32: float.fromhex("0x1.fffffefffffffp127"),
    f64: math.inf,
}
LONGEST = 40  # characters of quoted source
LOST = {
    "fraction": "the fraction is lost",
    "digits": "digits may be lost",
    "bits": "high bits may be lost",
    "sign": "the sign may be lost",
}


Reasons = Sequence[Value]  # values whose integrality implies that of another


def convert(cx: Context, a: Operand, t: Scalar | Tensor, into: ConversionTarget = UNNAMED) -> Value:
    """Convert an operand to type t, as `as_type`; add a caution for a possible loss of values.

    Raises KernelTypeError for Python integers that fit neither t nor default_ip.
    """
    made, elem = put_into(cx, a, t), scalar_of(t)
    if isinstance(a, WeakNumbers):
        note_constant(cx, a.numbers, a.kind, elem, into)
    elif scalar_of(a.type) is not elem:
        note_value(cx, a, made, t, into)
    return made


def convert_value(
    cx: Context, x: Any, t: Scalar | Tensor, into: ConversionTarget = UNNAMED
) -> Value:
    """Return x as a value of type t, converted by `convert`; a scalar is broadcast.

    Raises KernelTypeError, also where shapes differ.
    """
    a = operand(cx, x)
    check_shape(cx, a, t)
    return convert(cx, a, t, into)


def coerce(
    cx: Context,
    x: Any,
    t: Scalar | Tensor,
    name: str = "",
    *,
    verb: str = "assign",
    fills: bool = True,
    into: ConversionTarget | None = UNNAMED,
) -> Value:
    """Convert x to a value of type t. A scalar is broadcast, if `fills`.

    A possible loss of values adds a caution in the words of `into`; none if `into` is None. Raises
    KernelTypeError where shapes differ, or KernelCallError if `verb` is "pass".
    """
    if isinstance(x, Value) and x.type is t:
        return x
    given = operand(cx, x)
    shape = operand_shape(given)
    if shape == shape_of(t) or (fills and not shape):
        return put_into(cx, given, t) if into is None else convert(cx, given, t, into)
    own = own_type(cx, given)
    where = f"to `{name}`, which is a {describe(t)}" if name else f"where a {describe(t)} is needed"
    kind = KernelCallError if verb == "pass" else KernelTypeError
    help = "" if shape_of(t) else "take one of its numbers, or make one: .norm(), .sum(), .max()"
    raise cx.fail(f"cannot {verb} a {describe(own)} {where}", kind=kind, help=help)


def note_value(
    cx: Context, v: Value, made: Value, t: Scalar | Tensor, into: ConversionTarget
) -> None:
    """Add a caution if the conversion of v to `made`, of type t, may lose values."""
    old, elem = scalar_of(v.type), scalar_of(t)
    loss = loss_between(cx, old, elem)
    if loss == "fraction" and is_constant(v):
        note_constant(cx, np.asarray(constant_array(v)), "f", elem, into)
    elif loss and not (is_whole(v) if loss == "fraction" else is_widened(v, elem)):
        names = [describe(x).removeprefix("scalar ") for x in (v.type, t)]
        sentence = f"{names[0]} becomes {names[1]} {target_phrase(cx, into)}: {LOST[loss]}"
        op = find_cast(made) if loss in ("bits", "sign") else None
        add_caution(cx, sentence, into, t, op)


def loss_between(cx: Context, old: Scalar, new: Scalar) -> str:
    """Return the key of `LOST` for a conversion; "" if it loses nothing, or is not reported."""
    if old.kind == "f" and new.kind in "iu":
        return "fraction"
    is_looked_at = cx.options.debug or cx.options.strict
    if not is_looked_at or old.kind == "b" or new.kind == "b":
        return ""
    if new is bf16 and old is f32:  # the type in which kernels compute with bf16
        return "digits" if cx.options.strict else ""
    if old.kind == "f" and new.kind == "f":
        return "digits" if new.bits < old.bits else ""
    if old.kind in "iu" and new.kind in "iu":
        if new.bits < old.bits:
            return "bits"
        is_held = old.kind == new.kind or (old.kind == "u" and new.bits > old.bits)
        return "sign" if cx.options.strict and not is_held else ""
    return ""


def note_constant(cx: Context, numbers: Any, kind: str, t: Scalar, into: ConversionTarget) -> None:
    """Add a caution for the first of `numbers` (a number or an array) that type t does not hold."""
    for number in [numbers] if isinstance(numbers, float | int) else numbers.reshape(-1).tolist():
        if not is_held(number, kind, t):
            with np.errstate(all="ignore"):
                found = as_scalar_type(np.asarray(number), t).item()
            add_caution(
                cx, f"{number} becomes {found} {target_phrase(cx, into)}, which is {t}", into, t
            )
            return


def is_held(number: float, kind: str, t: Scalar) -> bool:
    """True if the conversion of a Python number to type t needs no caution.

    For an integer type t, an integer must fit its bits, signed or unsigned (-1 as u32). A float
    must be integral and in its range. For a float type, a finite float must not become infinite.
    Lost digits do not count.
    """
    if t.kind == "f":
        return kind != "f" or not GREATEST[t] < abs(number) < math.inf
    if t.kind == "b" or kind == "b":
        return True
    if kind == "i":
        return -(1 << t.bits - 1) <= number < 1 << t.bits
    low, high = integer_range(t)
    return low <= number <= high and number == number // 1


# --- proofs --------------------------------------------------------------------------------------


def is_whole(v: Value) -> bool:
    """True if a float (or vector) is proved to be integral; False if unknown.

    The proof goes backwards through sums, products, choices and loops, to roundings and integers.
    It stops after MOST_VALUES values.
    """
    seen: set[Value] = set()
    carried: dict[Value, Reasons] = {}
    pending = [v]
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        reasons = carried.get(one) or whole_if(one, carried)
        if reasons is None or len(seen) > MOST_VALUES:
            return False
        pending += reasons
    return True


def whole_if(v: Value, carried: dict[Value, Reasons]) -> Reasons | None:
    """Return floats whose integrality implies that of v; no floats if v is integral, None if
    unknown.

    Loop-carried values are integral if their first and next values are, by induction (`carried`).
    """
    if isinstance(v, Result):
        op, control = v.op, TABLE[v.op.kind].control
        if control is not None and control.order == "serial":
            nexts = op.regions[-1].yielded
            for k, pair in enumerate(zip(initial_values(op), nexts, strict=True)):
                for region in op.regions:
                    places = region.params[control.index_params :]
                    carried[places[k]] = pair
            return initial_values(op)[v.index], nexts[v.index]
        is_choice = control is not None and control.order == "once"
        return [r.yielded[v.index] for r in op.regions] if is_choice else None
    if not isinstance(v, Op):
        return None
    row = TABLE[v.kind]
    if is_constant(v):
        numbers = np.ravel(constant_array(v)).tolist()
        return () if all(float(number).is_integer() for number in numbers) else None
    if row.effect is not Effect.PURE or v.kind == "bitcast":
        return None
    if row.traits & Trait.ROUNDS or v.kind == "sign":
        return ()
    if row.traits & Trait.DIVIDES and not row.traits & Trait.REMAINDER:
        return ()
    parts = [arg for arg in v.args if scalar_of(arg.type).kind == "f"]
    if row.traits & Trait.CONVERTS and not parts:
        return ()
    is_closed = row.traits & (Trait.RING | Trait.KEEPS_FACTORS | Trait.CARRIES | Trait.CONVERTS)
    return parts if is_closed and parts else None


def is_widened(v: Value, t: Scalar) -> bool:
    """True if v is a cast of a bool, of a value of type t, or of a narrower type of t's kind.

    Its conversion to t then loses nothing.
    """
    op = find_cast(v)
    if op is None:
        return False
    own = scalar_of(op.args[0].type)
    return own.kind in ("b", t.kind) and own.bits <= t.bits


def find_cast(v: Value) -> Op | None:
    """Return the cast that computes a value, possibly under a splat, or None."""
    while isinstance(v, Op) and v.kind == "splat":
        v = v.args[0]
    return v if isinstance(v, Op) and v.kind == "cast" else None


# --- words ---------------------------------------------------------------------------------------


def add_caution(
    cx: Context, sentence: str, into: ConversionTarget, t: Scalar | Tensor, op: Op | None = None
) -> None:  # fmt: skip
    """Add a caution about the current expression, unless that is in vkchi itself."""
    if not cx.span.file.startswith(PACKAGE):
        caution = Caution("conversion", sentence, help_for(into, t), cx.span, into.origin)
        cx.cautions.append(PendingCaution(caution, op))


def target_phrase(cx: Context, into: ConversionTarget) -> str:
    """Return the phrase for the target: its words, the source of the expression, or "here"."""
    if into.words:
        words = into.words
        return f"in {words if isinstance(words, str) else f'`{ast.unparse(words)}`'}"
    span = cx.span
    text = source_line(span)[span.col - 1 : span.end_col - 1] if span.line == span.end_line else ""
    return f"in `{text}`" if 0 < len(text) <= LONGEST else "here"


def help_for(into: ConversionTarget, t: Scalar | Tensor) -> str:
    cast = f"ti.cast(..., ti.{scalar_of(t)})"
    if into.help or not into.name or into.origin is None:
        return into.help or f"to convert on purpose, write {cast}"
    literal = literal_of(into)
    if literal:
        name, because = into.name, f"because line {{line}} assigns {literal}"
        return f"`{name}` is {t} {because}; write `{name} = {literal}.0`"
    what = describe(t).removeprefix("scalar ")
    return f"`{into.name}` is {what} since line {{line}}; to convert on purpose, write {cast}"


def literal_of(into: ConversionTarget) -> str:
    """Return the integer literal that declares a variable, in decimal; "" if there is none."""
    source, origin = into.source, into.origin
    if source is None or origin is None or source.file != origin.file:
        return ""
    for target, value in assignments_in(source.node):
        is_it = name_in(target) == into.name and source.span(target).line == origin.line
        if is_it and isinstance(value, ast.Constant) and type(value.value) is int:
            return str(value.value)
    return ""


def assignments_in(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of `=` in a function, each with its assigned expression.

    Tuples on both sides are split.
    """
    for n in nodes_of(node, ast.Assign):
        for target in n.targets:
            if isinstance(target, ast.Tuple) and isinstance(n.value, ast.Tuple):
                yield from zip(target.elts, n.value.elts)
            else:
                yield target, n.value
