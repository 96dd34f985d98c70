"""Lambdas in kernels: `f = lambda x: x * scale`, inlined at each call.

The body reads variables of the function around the lambda as they are at the call, as in Python.
Variables that are assigned more than once are errors there: analyses of syntax, such as those that
decide whether a loop is parallel, do not see that a call of a lambda reads them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from vkchi.errors import KernelCallError, KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.loop_dependence import names_assigned_by
from vkchi.frontend.state.scope import CONSTANT, PASSED, VARIABLE, Activation, Var
from vkchi.frontend.syntax.syntax_facts import count_assignments
from vkchi.frontend.values.kinds import Kind, all_but, is_static, kind_of
from vkchi.frontend.values.targets import kind_of_variable


class LambdaFunction:
    """A lambda of a kernel or of a function that is inlined, and the activation around it."""

    __slots__ = ("act", "defaults", "node")

    def __init__(self, node: ast.Lambda, act: Activation, defaults: dict[str, Any]) -> None:
        self.node, self.act, self.defaults = node, act, defaults

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
    inner = next((x for x in ast.walk(n.body) if isinstance(x, ast.NamedExpr)), None)
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
    return LambdaFunction(n, cx.act, defaults)


def call_lambda(
    cx: Lowering, fn: LambdaFunction, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Inline the body with these arguments; return its value.

    Raises KernelCallError for arguments that do not fit, and KernelSyntaxError if the body reads a
    variable that is assigned more than once, or if the function around the lambda has returned.
    """
    bound = bind(cx, fn, args, kwargs)
    if not is_active(cx, fn.act):
        raise cx.fail(
            "the function that made this lambda has returned", kind=KernelSyntaxError,
            help="define a function with @ti.func, and pass it what it reads",
        )  # fmt: skip
    outer, outer_call, span = cx.act, cx.call_node, cx.span
    cx.act, cx.call_node = fn.act, None
    check_captures(cx, fn)
    with fn.act.block():
        for name, x in bound.items():
            held = own(cx, x)
            kind = PASSED if kind_of_variable(held) == VARIABLE else CONSTANT
            fn.act.declare(Var(name, held, kind, len(cx.frames), None))
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


def is_active(cx: Lowering, act: Activation) -> bool:
    current: Activation | None = cx.act
    while current is not None and current is not act:
        current = current.outer
    return current is act


def check_captures(cx: Lowering, fn: LambdaFunction) -> None:
    """Check that the body reads no variable that is assigned more than once.

    Raises KernelSyntaxError.
    """
    source = fn.act.source
    calls = [x for x in ast.walk(source.node) if isinstance(x, ast.Call)]
    changed = {name for x in calls for name in names_assigned_by(cx, x)}
    for x in ast.walk(fn.node.body):
        var = fn.act.find(x.id) if isinstance(x, ast.Name) and x.id not in fn.names else None
        if var is None or kind_of(var.value).is_array or is_static(var.value):
            continue
        if var.name in changed or count_assignments(source, var.name) > 1:
            cx.locate(x)
            raise cx.fail(
                f"`{var.name}` is assigned more than once, and a lambda reads it",
                kind=KernelSyntaxError,
                help=f"pass it to the lambda as an argument: lambda ..., {var.name}: ...",
            )
