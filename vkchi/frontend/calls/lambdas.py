"""Lambdas in kernels: `f = lambda x: x * scale`, inlined at each call.

The body reads variables of the function around the lambda that are visible where it is made.
Variables that are assigned more than once are errors at calls: analyses of syntax, such as those
that decide whether a loop is parallel, do not see that a call of a lambda reads them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any

from vkchi.errors import KernelCallError, KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.loop_dependence import names_assigned_by
from vkchi.frontend.state.scope import CONSTANT, PASSED, VARIABLE, Activation, Var
from vkchi.frontend.syntax.syntax_facts import count_assignments, nodes_of
from vkchi.frontend.values.kinds import Kind, all_but, is_static, kind_of
from vkchi.frontend.values.targets import kind_of_variable


class LambdaFunction:
    """A lambda of a kernel or of a function that is inlined.

    - `act`: the activation around it.
    - `seen`: the variables of that activation that the body reads.
    - `defaults`: the values of parameters with a default.
    """

    __slots__ = ("act", "defaults", "node", "seen")

    def __init__(
        self, node: ast.Lambda, act: Activation, seen: dict[str, Var], defaults: dict[str, Any]
    ) -> None:
        self.node, self.act, self.seen, self.defaults = node, act, seen, defaults

    @property
    def names(self) -> list[str]:
        return [a.arg for a in (*self.node.args.posonlyargs, *self.node.args.args)]


def own(cx: Lowering, x: Any) -> Any:
    return kind_of(x).own(cx, x)


class LambdaKind(Kind, of=[LambdaFunction]):
    noun = "a lambda"
    helps = all_but("call", help="call it")
    is_deferred = True

    def call(self, cx: Any, x: LambdaFunction, n: ast.Call, bound: Any) -> Any:
        return call_lambda(cx, x, *bound.arguments(cx, n))


def lower_lambda(cx: Lowering, n: ast.Lambda) -> LambdaFunction:
    """Return a lambda; its defaults are evaluated.

    Raises KernelSyntaxError for `*args` and `**kwargs`, and for `:=` in the body.
    """
    a = n.args
    inner = next(nodes_of(n.body, ast.NamedExpr), None)
    if a.vararg or a.kwarg or a.kwonlyargs or inner is not None:
        what = "`:=` in lambdas" if inner is not None else "lambdas with `*` parameters"
        raise cx.fail(
            f"kernels have no {what}", kind=KernelSyntaxError,
            help="define a function with @ti.func",
        )  # fmt: skip
    names = [p.arg for p in (*a.posonlyargs, *a.args)]
    defaults = {
        name: own(cx, cx.expr(x))
        for name, x in zip(names[len(names) - len(a.defaults) :], a.defaults)
    }
    return LambdaFunction(n, cx.act, visible(cx, n, names), defaults)


def visible(cx: Lowering, n: ast.Lambda, names: Sequence[str]) -> dict[str, Var]:
    """Return the variables of the function around a lambda that its body names.

    Raises KernelSyntaxError for one that is assigned after the lambda only.
    """
    found: dict[str, Var] = {}
    code = cx.act.fn.__code__
    for x in nodes_of(n.body, ast.Name):
        if x.id in names or x.id in found:
            continue
        var = cx.act.find(x.id)
        if var is not None:
            found[x.id] = var
        elif x.id in (*code.co_varnames, *code.co_cellvars) and not is_bound_in(n.body, x.id):
            cx.locate(x)
            raise cx.fail(
                f"`{x.id}` has no value where this lambda is made", kind=KernelSyntaxError,
                help="assign it before, or pass it to the lambda as an argument",
            )  # fmt: skip
    return found


def is_bound_in(body: ast.expr, name: str) -> bool:
    """True for parameters of lambdas and targets of comprehensions inside the body."""
    return any(
        (isinstance(x, ast.arg) and x.arg == name)
        or (isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store) and x.id == name)
        for x in ast.walk(body)
    )


def call_lambda(
    cx: Lowering, fn: LambdaFunction, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Inline the body with these arguments; return its value.

    Raises KernelCallError for arguments that do not fit, and KernelSyntaxError if the body reads a
    variable that is assigned more than once, or whose block has ended.
    """
    bound = bind(cx, fn, args, kwargs)
    outer, outer_call, span = cx.act, cx.call_node, cx.span
    check_captures(cx, fn)
    act = copy.copy(fn.act)
    cx.act, cx.call_node = act, None
    act.blocks, act.outer = [fn.seen, {}], outer
    for name, x in bound.items():
        held = own(cx, x)
        kind = PASSED if kind_of_variable(held) == VARIABLE else CONSTANT
        act.declare(Var(name, held, kind, len(cx.frames), None))
    value = cx.expr(fn.node.body)
    cx.act, cx.call_node, cx.b.span = outer, outer_call, span
    return value


def bind(
    cx: Lowering, fn: LambdaFunction, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments and defaults by parameter. Raises KernelCallError."""
    names = fn.names
    bound = dict(zip(names, args))
    missing = [name for name in names if name not in {*bound, *kwargs, *fn.defaults}]
    surplus = [name for name in kwargs if name in bound or name not in names]
    if len(args) > len(names) or missing or surplus:
        takes = ", ".join(names)
        given = ", ".join([*["..."] * len(args), *kwargs])
        raise cx.fail(f"this lambda takes ({takes}), not ({given})", kind=KernelCallError)
    return fn.defaults | bound | kwargs


def check_captures(cx: Lowering, fn: LambdaFunction) -> None:
    """Check that the variables that the body reads exist, and are assigned once.

    Raises KernelSyntaxError.
    """
    source = fn.act.source
    changed: set[str] | None = None
    for name, var in fn.seen.items():
        if not is_alive(cx, var):
            raise cx.fail(
                f"this lambda reads `{name}`, whose block has ended", kind=KernelSyntaxError,
                help="pass it to the lambda as an argument, or define a function with @ti.func",
            )  # fmt: skip
        if kind_of(var.value).is_array or is_static(var.value):
            continue
        if changed is None:
            outer, cx.act = cx.act, fn.act
            calls = nodes_of(source.node, ast.Call)
            changed = {changed for x in calls for changed in names_assigned_by(cx, x)}
            cx.act = outer
        if name in changed or count_assignments(source, name) > 1:
            raise cx.fail(
                f"this lambda reads `{name}`, which is assigned more than once",
                kind=KernelSyntaxError,
                help=f"pass it to the lambda as an argument: lambda ..., {name}: ...",
            )


def is_alive(cx: Lowering, var: Var) -> bool:
    """True if the block of a variable has not ended."""
    act: Activation | None = cx.act
    while act is not None:
        if any(var is held for block in act.blocks for held in block.values()):
            return True
        act = act.outer
    return False
