"""Structured control flow: branches, and the merge of variables where paths join.

Two paths join in an `if` op. Cheap operands of `a if c else b` join in a `select`, cheap bools of
`and` and `or` in one op. A statement that may leave its block splits the block:

- If one branch of an `if` always leaves, the rest of the block moves into the other branch.
- Otherwise the rest is lowered under a test of flags (`scope.LoopScope`, `scope.Activation`). A
  flag stays a Python bool until paths with different values join.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.errors import CompilationError, KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.scope import CONDITIONAL, UNSET, Var
from vkchi.frontend.syntax.syntax_facts import always_leaves, may_leave
from vkchi.frontend.values.kinds import check_supported, describe, is_same, kind_of
from vkchi.frontend.values.operands import (
    common_scalar,
    is_number,
    operand,
    operand_shape,
    own_type,
)
from vkchi.frontend.values.python_values import is_static_call
from vkchi.frontend.values.struct_values import as_record
from vkchi.frontend.values.trees import (
    map_leaves,
)
from vkchi.ir.core import Param, Region, Value, numeric_type_of
from vkchi.ir.ops import TABLE, Effect
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, shape_of, u1, with_shape

GoOn = Callable[[], None]
MOST_NESTED = 1_000  # regions; each takes about 7 of compiling.RECURSION_LIMIT Python frames
CHEAP_OPS = 12  # with more, a branch is faster than a select


class Arm(NamedTuple):
    """A region without its yield, and the value of the code lowered in it.

    - `changed`: the outer variables that it changed, with their last values.
    - `lower`: lowers the code.
    - `calls`: number of calls in it that a debugger may step through (`Lowering.stepped_calls`).
    """

    region: Region
    value: Any
    changed: dict[Var, Any]
    lower: Callable[[], Any] | None = None
    calls: int = 0


def run_region(
    cx: Lowering, params: tuple[Param, ...], lower: Callable[[], Any], *, is_for: bool = False
) -> Arm:
    """Lower code into a new region, then restore the variables; return both region and changes.

    `is_for`: the region is the body of a `for` or `parallel` op, and counts as certain to run if
    the op is. Raises KernelSyntaxError if more than MOST_NESTED regions nest.
    """
    if len(cx.frames) >= MOST_NESTED:
        raise cx.fail(
            f"more than {MOST_NESTED:,} branches nest here: an `elif` stands in the `else` before "
            "it, and so does what follows `if ...: continue` (or `break`, or `return`)",
            kind=KernelSyntaxError,
            help="part them by an `if` in their middle, or look up in a field what depends on them",
        )
    cx.frames.append({})
    calls = cx.stepped_calls
    was_certain, cx.is_certain = cx.is_certain, cx.is_certain and is_for
    with cx.b.region(*params) as region:
        value = lower()
    cx.is_certain = was_certain
    frame = cx.frames.pop()
    changed = {var: var.value for var in frame}
    for var, old in frame.items():
        var.value = old
    return Arm(region, value, changed, lower, cx.stepped_calls - calls)


def run_scoped(cx: Lowering, lower: Callable[[], Any]) -> Arm:
    """Lower an expression into a region and a block: names that it assigns end with it."""
    with cx.act.block():
        return run_region(cx, (), lower)


def lower_branch(
    cx: Lowering, cond: Value, then: Callable[[], Any], orelse: Callable[[], Any]
) -> Any:
    """Lower both paths of a run-time condition; return their merged value."""
    a, b = run_region(cx, (), then), run_region(cx, (), orelse)
    return join_arms(cx, cond, a, b)


def join_arms(cx: Lowering, cond: Value, a: Arm, b: Arm) -> Any:
    """Emit an `if` op from two arms, assign the merged variables, and return the merged value.

    Its results are the values and changed variables that differ. If there are none, and no ops in
    the arms, nothing is emitted. Arms with calls that a debugger may step through are not joined:
    `Lowering.run_arm`, if set, runs one of them at once.
    """
    if (a.calls or b.calls) and cx.run_arm is not None:
        return cx.run_arm(cond, a, b)
    join = PathMerge(cx)
    value = join.merge(a.value, b.value, "")
    merged = {
        var: join.merge(a.changed.get(var, var.value), b.changed.get(var, var.value), var.name)
        for var in {**a.changed, **b.changed}
    }
    results: Sequence[Value] = ()
    if join.pairs or a.region.ops or b.region.ops:
        results = join.build(cond, a.region, b.region)
    for var, tree in merged.items():
        cx.assign(var, fill_holes(tree, results))
    return fill_holes(value, results)


def is_cheap(arm: Arm) -> bool:
    """True if an arm may be executed speculatively: at most CHEAP_OPS ops, all pure.

    It must change no variable, contain no call that a debugger may step through, and its value must
    not be a container.
    """
    ops = arm.region.ops
    return (
        not arm.changed
        and not arm.calls
        and not kind_of(arm.value).is_container
        and len(ops) <= CHEAP_OPS
        and all(TABLE[op.kind].effect is Effect.PURE for op in ops)
    )


class Hole(NamedTuple):
    """Placeholder for the `place`-th result of the op that joins two paths."""

    place: int


def fill_holes(tree: Any, results: Sequence[Value]) -> Any:
    """Return the tree with holes replaced by results. A Hole is a tuple, but a leaf."""
    return map_leaves(tree, lambda leaf: results[leaf.place] if type(leaf) is Hole else leaf)


class PathMerge:
    """Merge of two paths: pairs of values that differ, with the common type of each pair."""

    def __init__(self, cx: Lowering) -> None:
        self.cx = cx
        self.pairs: list[tuple[Any, Any, Scalar | Tensor, str]] = []

    def merge(self, a: Any, b: Any, name: str) -> Any:
        """Merge two trees into one, with a Hole for each pair of numbers that may differ.

        Raises KernelTypeError if other parts differ.
        """
        if is_same(a, b):
            return a
        a, b = as_record(self.cx, a), as_record(self.cx, b)
        if a is UNSET or b is UNSET:
            set_one = b if a is UNSET else a
            return map_leaves(set_one, lambda v: self._half(v, name, is_first=b is UNSET))
        return kind_of(a).join(self, a, b, name)

    def numbers(self, a: Any, b: Any, name: str) -> Hole:
        """Merge two numbers, vectors or matrices. Raises KernelTypeError if b is none."""
        if not is_number(b):
            raise self.differ(a, b, name)
        return self._hole(a, b, self._common_type(a, b), name)

    def _half(self, v: Any, name: str, *, is_first: bool) -> Any:
        """Merge a value that only one path sets; the other path gets 0, which flags keep from being
        used."""
        if not isinstance(v, Value):
            return v
        t = numeric_type_of(v)
        return self._hole(v, 0, t, name) if is_first else self._hole(0, v, t, name)

    def _hole(self, a: Any, b: Any, t: Scalar | Tensor, name: str) -> Hole:
        self.pairs.append((a, b, t, name))
        return Hole(len(self.pairs) - 1)

    def _common_type(self, a: Any, b: Any) -> Scalar | Tensor:
        cx = self.cx
        if isinstance(a, Value) and isinstance(b, Value) and a.type is b.type:
            return numeric_type_of(a)
        x, y = operand(cx, a), operand(cx, b)
        shapes = {s for s in (operand_shape(x), operand_shape(y)) if s}
        if len(shapes) > 1:
            words = [describe(own_type(cx, v)) for v in (x, y)]
            raise cx.fail(
                "the two branches give different shapes", label=f"{words[0]} and {words[1]}"
            )
        return with_shape(common_scalar(cx, [x, y]), shapes.pop() if shapes else ())

    def differ(self, a: Any, b: Any, name: str) -> CompilationError:
        what = f"`{name}` is" if name and name != "result" else "this is"
        first, second = kind_of(a).constant_name(a), kind_of(b).constant_name(b)
        return self.cx.fail(
            f"{what} {first} on one path and {second} on the other, "
            "and which is not a compile-time constant",
            help="only numbers, vectors and matrices can depend on a run-time condition",
        )

    def build(self, cond: Value, then: Region, orelse: Region) -> Sequence[Value]:
        """Terminate both regions and emit the `if` op; return its results."""
        b = self.cx.b
        for k, region in enumerate((then, orelse)):
            with b.within(region):
                values = [operator_lowering.value(self.cx, pair[k], pair[2]) for pair in self.pairs]
                b.emit("yield", *values)
        op = b.if_(cond, then, orelse)
        for result, pair in zip(op.results, self.pairs):
            result.name = pair[3]
        return op.results


# --- blocks --------------------------------------------------------------------------------------


def lower_block(cx: Lowering, stmts: Sequence[ast.stmt], then: GoOn | None = None) -> None:
    """Lower statements in the open block, then call `then` on paths that do not leave it."""
    source = cx.act.source
    for k, n in enumerate(stmts):
        if not may_leave(source, n):
            cx.stmt(n)
            continue
        go_on = _continuation(cx, stmts[k + 1 :], then)
        if isinstance(n, ast.If):
            lower_if(cx, n, go_on)
        else:
            cx.stmt(n)
            unless_left(cx, go_on)
        return
    if then is not None:
        then()


def _continuation(cx: Lowering, rest: Sequence[ast.stmt], then: GoOn | None) -> GoOn | None:
    """Return a function that lowers the rest of the block that is open here, then calls `then`."""
    if not rest:
        return then
    act, depth = cx.act, len(cx.act.blocks)

    def go_on() -> None:
        inner, act.blocks = act.blocks, act.blocks[:depth]
        try:
            lower_block(cx, rest, then)
        finally:
            act.blocks = inner

    return go_on


def lower_scoped(cx: Lowering, stmts: Sequence[ast.stmt], then: GoOn | None = None) -> None:
    with cx.act.block():
        lower_block(cx, stmts, then)


def unless_left(cx: Lowering, lower: GoOn | None) -> None:
    """Lower code that earlier `break`, `continue` and `return` statements skip."""
    if lower is not None:
        lower_unless(cx, cx.act.flags(), lower)


def lower_unless(cx: Lowering, flags: Sequence[Var], lower: Callable[[], Any]) -> None:
    """Lower code that is skipped if one of the flags is set."""
    if any(flag.value is True for flag in flags):
        return
    open_flags = [flag for flag in flags if isinstance(flag.value, Value)]
    if not open_flags:
        lower()
        return
    left = open_flags[0].value
    for flag in open_flags[1:]:
        left = cx.b.emit("or", left, flag.value)

    def skip() -> None:
        if len(open_flags) == 1:
            cx.assign(open_flags[0], True)

    def lower_unset() -> None:
        for flag in open_flags:
            cx.assign(flag, False)
        lower()

    lower_branch(cx, left, skip, lower_unset)


def short_circuit(cx: Lowering, first: Value, second: Callable[[], Any], *, is_and: bool) -> Value:
    """Lower `first and second`, or `first or second`.

    The result is the deciding operand, as in Python. The second operand is evaluated conditionally,
    unless both are u1 and `is_cheap` holds for it.
    """
    arm = run_scoped(cx, lambda: decisive(cx, second()))
    is_truth = first.type is u1 and isinstance(arm.value, Value) and arm.value.type is u1
    if is_truth and is_cheap(arm):
        cx.b.extend(arm.region.ops)
        return cx.b.emit("and" if is_and else "or", first, arm.value)
    decided = run_region(cx, (), lambda: (not is_and) if is_truth else first)
    arms = (arm, decided) if is_and else (decided, arm)
    joined: Value = join_arms(cx, operator_lowering.as_condition(cx, first), *arms)
    return joined


def decisive(cx: Lowering, x: Any) -> Any:
    """Return x as an operand of `and` or `or`: numbers unchanged, other objects as a condition.

    Bools become u1. Raises KernelTypeError for vectors, structs and arrays.
    """
    if isinstance(x, Value) and not shape_of(x.type):
        return x
    if isinstance(x, int | float) and not isinstance(x, bool):
        return x
    return operator_lowering.as_condition(cx, condition_of(cx, x))


def lower_if(cx: Lowering, n: ast.If, go_on: GoOn | None = None) -> None:
    """Lower an `if`; `go_on` lowers the rest of its block, if the `if` may leave it."""
    cx.locate(n.test)
    cond = condition(cx, n.test)
    if not isinstance(cond, Value):
        lower_known(cx, n, n.body if cond else n.orelse, go_on)
        return
    then_leaves, else_leaves = always_leaves(n.body), always_leaves(n.orelse)
    after_then = go_on if else_leaves and not then_leaves else None
    after_else = go_on if then_leaves and not else_leaves else None
    then = run_region(cx, (), lambda: lower_scoped(cx, n.body, after_then))
    orelse = run_region(cx, (), lambda: lower_scoped(cx, n.orelse, after_else))
    cx.locate(n.test)
    join_arms(cx, cond, then, orelse)
    if not (then_leaves or else_leaves):
        unless_left(cx, go_on)


def lower_known(cx: Lowering, n: ast.If, stmts: Sequence[ast.stmt], go_on: GoOn | None) -> None:
    """Lower the selected branch of an `if` whose condition is a compile-time constant.

    Loops in it can be parallel only if the condition is `ti.static(...)`. Otherwise they are
    serial, so that constant folding does not change which loops are parallel.
    """
    act, outer = cx.act, cx.act.why_serial
    act.why_serial = outer or ("" if is_static_call(cx, n.test) else CONDITIONAL)

    def go_on_outside() -> None:
        inner, act.why_serial = act.why_serial, outer
        assert go_on is not None
        go_on()
        act.why_serial = inner

    lower_scoped(cx, stmts, go_on and go_on_outside)
    act.why_serial = outer


def condition(cx: Lowering, n: ast.expr) -> bool | Value:
    """Lower a condition: a bool if it is a compile-time constant, else a u1."""
    return cx.at(n, lambda cx: condition_of(cx, cx.expr(n)))  # type: ignore[no-any-return]


def condition_of(cx: Lowering, x: Any) -> bool | Value:
    """Return x as a condition: a u1 for a kernel value, else the bool that Python computes.

    Raises KernelTypeError for vectors, structs and arrays.
    """
    return check_supported(cx, x, "truth").truth(cx, x)
