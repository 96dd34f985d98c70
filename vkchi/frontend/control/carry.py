"""Loop-carried variables: which ones a loop carries, and the `for` and `while` ops that carry them.

A loop with `break` or `return` also carries flags. A parallel loop moves the variables that it
assigns to memory instead (`local` ops), except those that are private to an iteration.

    loop_for(cx, begin, end, variables, lambda i: lower_body(cx, n, space, [i]), "i")
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from typing import Any

from vkchi.errors import InternalError, KernelSyntaxError
from vkchi.frontend.calls.callee import may_refer
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.flow import Arm, run_region, short_circuit
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.identity import join_iterations
from vkchi.frontend.state.scope import CHANGING, UNSET, VARIABLE, LoopScope, Var
from vkchi.frontend.syntax.syntax_facts import name_in, names_assigned, names_of_indices, returns
from vkchi.frontend.values.kinds import is_same, kind_of
from vkchi.frontend.values.references import MemoryTarget
from vkchi.frontend.values.trees import (
    child_pairs,
    leaves,
    map_leaves,
)
from vkchi.ir.core import Param, Value
from vkchi.types import Scalar, Tensor, u1

# --- which variables -----------------------------------------------------------------------------


def assigned_variables(cx: Lowering, n: ast.For | ast.While) -> list[Var]:
    """Return the outer variables that a loop may assign, directly or through calls.

    Names whose kind is not in CHANGING are left out, such as constants and kernel arguments.
    """
    found = names_assigned(cx.act.source, n)
    names = dict.fromkeys(found.names)
    for passed in found.passed:
        if passed.name in names:
            continue
        callee = passed.callee
        hidden = (*found.names, *names_of_indices(cx.act.source, n))  # by names that the loop binds
        is_hidden = name_in(callee) in hidden
        if is_hidden or may_refer(cx, callee, passed.position):
            names[passed.name] = None
    variables: dict[Var, None] = {}
    for name in names:
        var = cx.act.find(name)
        if var is None or var.kind not in CHANGING:
            continue
        roots = kind_of(var.value).roots(var.value)
        variables.update(dict.fromkeys(roots or [var]))
    return list(variables)


def carried_variables(cx: Lowering, n: ast.For | ast.While) -> list[Var]:
    return [var for var in assigned_variables(cx, n) if leaves(var.value)]


def share_variables(cx: Lowering, n: ast.For, own: Collection[Var] = ()) -> None:
    """Move the outer variables that a parallel loop assigns to `local` memory, shared by its
    invocations.

    The private variables in `own` are left out.
    """
    for var in assigned_variables(cx, n):
        if var in own:
            continue
        cx.locate(n.iter)

        def place(leaf: Any, name: str = var.name) -> Any:
            is_value = isinstance(leaf, Value) and isinstance(leaf.type, Scalar | Tensor)
            return MemoryTarget(cx.b.emit("local", leaf, name=name)) if is_value else leaf

        var.value = map_leaves(var.value, place)


# --- carrying ------------------------------------------------------------------------------------


def params_for(variables: Sequence[Var]) -> list[Param]:
    return [Param(v.type, var.name) for var in variables for v in leaves(var.value)]


def first_values(variables: Sequence[Var]) -> list[Value]:
    return [v for var in variables for v in leaves(var.value)]


def put_values(cx: Lowering, variables: Sequence[Var], values: Sequence[Value]) -> None:
    """Set the kernel values in variables to `values`, in the order of `first_values`."""
    given = iter(values)
    for var in variables:
        cx.assign(var, kind_of(var.value).refill(var.value, given))


def check_carried(cx: Lowering, arm: Arm, variables: Sequence[Var]) -> None:
    """Check that only the carried variables and the `return` flags changed.

    Carried variables may change in their kernel values only. Raises KernelTypeError for another
    change of a container, InternalError for any other change.
    """
    flags = (cx.act.returned, cx.act.result)
    for var, new in arm.changed.items():
        if var in variables and same_but_values(var.value, new):
            join_iterations(cx, var, arm.changed)
            continue
        if var in flags:
            continue
        if not kind_of(new).is_container:
            raise InternalError(f"{cx.span.place}: `{var.name}` changes in a loop unnoticed")
        raise cx.fail(
            f"`{var.name}` holds something else after an iteration than before",
            help="only numbers, vectors and matrices can change from iteration to iteration; "
            "unroll the loop with ti.static(...)",
        )


def same_but_values(a: Any, b: Any) -> bool:
    """True if two trees are equal except for kernel values of one type."""
    if isinstance(a, Value) and isinstance(b, Value):
        return a.type is b.type
    pairs = child_pairs(a, b)
    return is_same(a, b) if pairs is None else all(same_but_values(x, y) for x, y in pairs)


def loop_for(
    cx: Lowering,
    begin: Value,
    end: Value,
    variables: list[Var],
    body: Callable[[Value], None],
    name: str,
    hint: str | None = None,
) -> None:
    """Emit a `for` op and set the variables to its results.

    `body` is called once, with the index, to lower an iteration. `name` is the index's name,
    `hint` the op's attr.
    """
    first, params = first_values(variables), params_for(variables)
    index, span = Param(begin.type, name), cx.span

    def lower() -> list[Value]:
        put_values(cx, variables, params)
        body(index)
        return first_values(variables)

    arm = run_region(cx, (index, *params), lower, is_for=True)
    cx.b.span = span
    check_carried(cx, arm, variables)
    with cx.b.within(arm.region):
        cx.b.emit("yield", *arm.value)
    set_results(cx, cx.b.for_(begin, end, first, arm.region, hint).results, variables)


def set_results(cx: Lowering, results: Sequence[Value], variables: Sequence[Var]) -> None:
    for result, param in zip(results, params_for(variables)):
        result.name = param.name
    put_values(cx, variables, results)


def loop_while(
    cx: Lowering,
    n: ast.For | ast.While,
    variables: list[Var],
    goes_on: Callable[[], Any],
    body: Callable[[], LoopScope],
    *,
    may_leave: bool,
) -> None:
    """Emit a `while` op and set the variables to its results; none if the condition is constant
    False.

    With `may_leave`, `break` and `return` end it without evaluating the condition.
    """
    cx.locate(n)
    depth = len(cx.frames)
    flags = _Flags(cx, depth, has_return=returns(cx.act.source, n)) if may_leave else None
    every = [*(flags.variables if flags else ()), *variables]
    first = first_values(every)
    test = _lower_test(cx, every, flags, goes_on)
    if test is None:
        return

    params = params_for(every)

    def lower() -> list[Value]:
        put_values(cx, every, params)
        loop = body()
        cx.locate(n)
        if flags:
            flags.update(cx, loop)
        return first_values(every)

    arm = run_region(cx, tuple(params), lower)
    cx.locate(n)
    check_carried(cx, arm, every)
    result = arm.changed.get(cx.act.result, UNSET) if flags else UNSET
    more = [] if result is UNSET else leaves(result)
    results = _build_while(cx, first, test, arm, more)
    set_results(cx, results[: len(first)], every)
    if flags:
        flags.finish(cx, result, results[len(first) :])


def _build_while(
    cx: Lowering, first: list[Value], test: Arm, body: Arm, more: list[Value]
) -> Sequence[Value]:
    """Terminate both regions, emit the op and return its results.

    `more` are values that only the body defines (the result of a `return` in it); they start at
    zero.
    """
    for arm, values in ((test, [test.value]), (body, [*body.value, *more])):
        arm.region.params += tuple([Param(v.type, "result") for v in more])
        with cx.b.within(arm.region):
            cx.b.emit("yield", *values)
    zeros = [operator_lowering.constant(cx, 0, v.type) for v in more]  # type: ignore[arg-type]
    return cx.b.while_([*first, *zeros], test.region, body.region).results


def _lower_test(
    cx: Lowering, every: list[Var], flags: _Flags | None, goes_on: Callable[[], Any]
) -> Arm | None:
    """Lower the condition to a region without its yield; None if it is the constant False.

    Raises KernelSyntaxError if the condition changes variables.
    """
    params = params_for(every)

    def lower() -> Any:
        put_values(cx, every, params)
        test = goes_on() if flags is None else short_circuit(
            cx, flags.runs.value, goes_on, is_and=True
        )  # fmt: skip
        if first_values(every) != params or len(cx.frames[-1]) > len(every):
            raise cx.fail(
                "the condition of a `while` cannot change variables",
                kind=KernelSyntaxError,
                help="write `while True:`, and `break` in its body",
            )
        return test

    with cx.act.block():
        arm = run_region(cx, tuple(params), lower)
    if arm.value is False:
        return None
    with cx.b.within(arm.region):
        return arm._replace(value=operator_lowering.as_condition(cx, arm.value))


class _Flags:
    """The carried flags of a loop that may be left: `runs`, and `returned` if it has a `return`."""

    def __init__(self, cx: Lowering, depth: int, *, has_return: bool) -> None:
        self.runs = Var("runs", cx.b.const(True, u1), VARIABLE, depth)
        self.returned: Var | None = None
        self.variables = [self.runs]
        if has_return:
            self.returned = Var("returned", cx.b.const(False, u1), VARIABLE, depth)
            self.variables.append(self.returned)

    def update(self, cx: Lowering, loop: LoopScope) -> None:
        met = [loop.broken.value, cx.act.returned.value]
        stop: Any = False
        for flag in met:
            if flag is True or stop is False:
                stop = flag if stop is not True else stop
            elif flag is not False and stop is not True:
                stop = cx.b.emit("or", stop, flag)
        runs = operator_lowering.negated(cx, stop)
        cx.assign(self.runs, operator_lowering.as_condition(cx, runs))
        if self.returned is not None:
            returned = operator_lowering.as_condition(cx, cx.act.returned.value)
            cx.assign(self.returned, returned)

    def finish(self, cx: Lowering, result: Any, values: Sequence[Value]) -> None:
        """Set the function's `returned` flag and result from the results of the loop's op."""
        if self.returned is None:
            return
        cx.assign(cx.act.returned, self.returned.value)
        if result is not UNSET:
            cx.assign(cx.act.result, kind_of(result).refill(result, iter(values)))
