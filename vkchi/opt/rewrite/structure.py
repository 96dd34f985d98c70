"""Simplification rules written as functions: tensor components, casts, static shapes, addresses.

Each rule is a function `(simplifier, args, attr, result type) -> value or None` of one op kind.

    extract (pack a, b, c) [1]  ->  b
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkchi.ir.core import Op, Value, constant_int, is_equal_value
from vkchi.ir.ops import COMPARISONS, ELEMENTWISE, TABLE
from vkchi.opt.rewrite.match import RuleBuilder
from vkchi.types import Array, Ptr, Scalar, Tensor, Type, bf16, f16, f32, f64, i32, scalar_of, u1

Args = Sequence[Value]


def op_of(v: Value, *kinds: str) -> Op | None:
    return v if type(v) is Op and v.kind in kinds else None


def tensor_size(t: Type) -> int:
    tensor = t.elem if isinstance(t, Ptr) else t
    assert isinstance(tensor, Tensor)
    return tensor.size


# --- components --------------------------------------------------------------------------------


def component(s: RuleBuilder, v: Value, k: int) -> Value | None:
    """Return component k of tensor `v`, if it is known without an `extract` of `v`; else None."""
    while (op := op_of(v, "insert")) and op.attr != k:
        v = op.args[0]
    if op is None:
        op = op_of(v, "pack", "splat", "const", "transpose", "insert")
    if op is None:
        return None
    return _COMPONENTS[op.kind](s, op, k)


def _of_transpose(s: RuleBuilder, op: Op, k: int) -> Value | None:
    t = op.type
    assert isinstance(t, Tensor)
    row, column = divmod(k, t.m)
    return s.result("extract", op.args[0], attr=column * t.n + row)


_COMPONENTS: dict[str, Callable[[RuleBuilder, Op, int], Value | None]] = {
    "pack": lambda s, op, k: op.args[k],
    "splat": lambda s, op, k: op.args[0],
    "const": lambda s, op, k: s.const(op.attr[k], scalar_of(op.type)),
    "insert": lambda s, op, k: op.args[1],
    "transpose": _of_transpose,
}


def extract(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Simplify `extract`.

    A known component is used directly. An `insert` of another component is skipped. Arithmetic on
    integer vectors with known components becomes arithmetic on components.
    """
    found = component(s, args[0], attr)
    if found is None and (op := op_of(args[0], "insert")):
        return s.result("extract", op.args[0], attr=attr)
    if found is None and is_of_indices(args[0]) and (op := op_of(args[0], *SIDE_BY_SIDE)):
        return s.result(op.kind, *[s.result("extract", v, attr=attr) for v in op.args])
    return found


# Elementwise ops on vectors of integers.
SIDE_BY_SIDE = frozenset(
    kind
    for kind, row in TABLE.items()
    if kind in ELEMENTWISE and (row.interval is not None or kind in COMPARISONS)
) - {"select", "cast", "bitcast", "stop_grad", "stop_first_grad", "with_derivative_of"}
DEEPEST = 8  # ops between a component and its known source


def is_of_indices(v: Value, depth: int = 0) -> bool:
    """True if an integer vector is computed elementwise from packs, splats and constants.

    False beyond DEEPEST ops.
    """
    if scalar_of(v.type).kind == "f" or depth > DEEPEST:
        return False
    if op_of(v, "pack", "splat", "const"):
        return True
    op = op_of(v, *SIDE_BY_SIDE)
    return op is not None and all(is_of_indices(x, depth + 1) for x in op.args)


def extract_at(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Simplify a component access at a constant index, which is clamped, or in a splat."""
    if op := op_of(args[0], "splat"):
        return op.args[0]
    k = constant_int(args[1])
    if k is None:
        return None
    last = tensor_size(args[0].type) - 1
    return s.result("extract", args[0], attr=min(max(k, 0), last))


def insert(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Simplify `insert` of the component's own value, or into an `insert` of the same component, a
    `pack` or a constant."""
    v, x = args
    if (op := op_of(x, "extract")) and op.args[0] is v and op.attr == attr:
        return v
    if (op := op_of(v, "insert")) and op.attr == attr:
        return s.result("insert", op.args[0], x, attr=attr)
    if op := op_of(v, "pack"):
        return s.result("pack", *op.args[:attr], x, *op.args[attr + 1 :], type=t)
    old, new = op_of(v, "const"), op_of(x, "const")
    if old and new:
        return s.const((*old.attr[:attr], new.attr, *old.attr[attr + 1 :]), t)
    return None


def insert_at(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Simplify an insertion at a constant index; out of range, it has no effect."""
    k = constant_int(args[2])
    if k is None:
        return None
    inside = 0 <= k < tensor_size(t)
    return s.result("insert", args[0], args[1], attr=k) if inside else args[0]


def pack(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Simplify a `pack` of all components of one tensor in order, or of equal values."""
    first = op_of(args[0], "extract")
    if first and first.args[0].type is t and _are_components(args, first.args[0]):
        return first.args[0]
    if len(args) > 1 and all(is_equal_value(v, args[0]) for v in args):
        return s.result("splat", args[0], type=t)
    return None


def _are_components(args: Args, v: Value) -> bool:
    ops = [op_of(x, "extract") for x in args]
    return all(op and op.args[0] is v and op.attr == k for k, op in enumerate(ops))


def transpose(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    op = op_of(args[0], "transpose", "splat")
    if op is None:
        return None
    return op.args[0] if op.kind == "transpose" else s.result("splat", op.args[0], type=t)


# --- casts -------------------------------------------------------------------------------------


def holds_all(wide: Scalar, narrow: Scalar) -> bool:
    if narrow is wide or narrow.kind == "b":
        return True
    if wide.kind == "f" and narrow.kind != "f":
        digits = {bf16: 8, f16: 11, f32: 24, f64: 53}[wide]
        return narrow.bits - (narrow.kind == "i") <= digits
    if bf16 in (wide, narrow):
        return narrow is bf16 and wide.kind == "f" and wide is not f16
    if wide.kind == narrow.kind:
        return wide.bits >= narrow.bits
    return wide.kind == "i" and narrow.kind == "u" and wide.bits > narrow.bits


def is_direct(src: Scalar, mid: Scalar, dst: Scalar) -> bool:
    """True if casting src to mid to dst is proved to equal casting src to dst.

    Either mid is lossless and does not turn a wrapping cast into a saturating one, or all three are
    integers and dst is no wider than mid.
    """
    if holds_all(mid, src):
        saturates = mid.kind == "f" and src.kind in "iu" and dst.kind in "iu"
        return not saturates or holds_all(dst, src)
    integers = all(t.kind in "iu" for t in (src, mid, dst))
    return integers and dst.bits <= mid.bits


def cast(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Remove a cast to the operand's own type. Merge two successive casts if the result is the same
    (`is_direct`)."""
    (v,) = args
    if v.type is t:
        return v
    op = op_of(v, "cast")
    if op is None:
        return None
    src, mid, dst = (scalar_of(x) for x in (op.args[0].type, v.type, t))
    return s.result("cast", op.args[0], type=t) if is_direct(src, mid, dst) else None


def bitcast(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Remove a bitcast to the operand's own type. Merge two successive bitcasts."""
    (v,) = args
    if v.type is t:
        return v
    op = op_of(v, "bitcast")
    return s.result("bitcast", op.args[0], type=t) if op else None


def compare_truth(kind: str) -> Callable[[RuleBuilder, Args, Any, Type], Value | None]:
    """Return the rule for `eq` or `ne`: a bool cast to a number and compared with 0 or 1 needs no
    cast."""

    def rule(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
        op, c = op_of(args[0], "cast"), constant_int(args[1])
        if op is None or op.args[0].type is not u1 or c not in (0, 1):
            return None
        return op.args[0] if (c == 1) == (kind == "eq") else s.result("not", op.args[0])

    return rule


# --- shapes and addresses ----------------------------------------------------------------------


def shape(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    array = args[0].type
    assert isinstance(array, Array)
    return None if array.shape is None else s.const(array.shape[attr], i32)


def largest(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Replace the maximum of a `shape` op and a constant of at most 0 by the `shape` op."""
    number = constant_int(args[1])
    is_extent = op_of(args[0], "shape") is not None
    return args[0] if is_extent and number is not None and number <= 0 else None


def member_at(s: RuleBuilder, args: Args, attr: Any, t: Type) -> Value | None:
    """Replace a component's address at a constant index by `member`; the index is clamped."""
    k = constant_int(args[1])
    if k is None:
        return None
    last = tensor_size(args[0].type) - 1
    return s.result("member", args[0], attr=min(max(k, 0), last))


RULES: dict[str, Callable[[Any, Args, Any, Type], Value | None]] = {
    "extract": extract, "extract_at": extract_at, "insert": insert, "insert_at": insert_at,
    "pack": pack, "transpose": transpose, "cast": cast, "bitcast": bitcast, "shape": shape,
    "eq": compare_truth("eq"), "ne": compare_truth("ne"), "member_at": member_at,
    "max": largest,
}  # fmt: skip
