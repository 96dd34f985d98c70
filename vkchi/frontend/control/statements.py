"""Statement handlers: AST class -> handler(cx, node).

Loops are in `loops`, branches in `flow`.

    STATEMENTS[ast.Assign](cx, node)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeGuard

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.calls.inline import check_count, convert_result, into_result
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.assign import assign_to, augment, augmented_target, mark_shared
from vkchi.frontend.control.expressions import operator_text
from vkchi.frontend.control.flow import condition_of, lower_branch, lower_if
from vkchi.frontend.control.loops import lower_for, lower_while
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.conversions import coerce
from vkchi.frontend.ops.methods import has_all, has_any
from vkchi.frontend.syntax.desugaring import EnteredContext, unsupported_node
from vkchi.frontend.syntax.syntax_facts import name_in, nodes_of
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.operands import dtype_of, is_tensor
from vkchi.frontend.values.python_values import is_static_call
from vkchi.frontend.values.struct_values import fit_member
from vkchi.frontend.values.texts import print_parts
from vkchi.frontend.values.trees import StructValue, leaves, map_leaves
from vkchi.ir.core import Value
from vkchi.lang.compile_time import parallel, parallel_context, stream_parallel
from vkchi.types import u1
from vkchi.types.struct_types import StructType


def lower_assign(cx: Lowering, n: ast.Assign) -> None:
    value = cx.expr(n.value)
    is_static = is_static_call(cx, n.value)
    for target in n.targets:
        assign_to(cx, target, value, is_static=is_static)
        mark_shared(cx, target, n.value)


def lower_annassign(cx: Lowering, n: ast.AnnAssign) -> None:
    """Lower `a: ti.f32 = value` or `s: S = value`: the value is converted to the annotated type.

    Raises KernelSyntaxError without a value.
    """
    if n.value is None:
        raise cx.fail(
            "a variable needs a value", kind=KernelSyntaxError,
            help=f"{ast.unparse(n.target)}: {ast.unparse(n.annotation)} = 0",
        )  # fmt: skip
    note = cx.expr(n.annotation)
    value = cx.expr(n.value)
    check_declared(cx, n, note)
    if isinstance(note, StructType):
        name = ast.unparse(n.target)
        fitted = cx.at(n.value, lambda cx: fit_member(cx, note, value, name, what="variable"))
    else:
        t = cx.at(n.annotation, lambda cx: dtype_of(cx, note))
        fitted = cx.at(n.value, lambda cx: coerce(cx, value, t, into=None))
    assign_to(cx, n.target, fitted)


def check_declared(cx: Lowering, n: ast.AnnAssign, note: Any) -> None:
    """Check that an annotation keeps the type of an existing variable. Raises KernelSyntaxError."""
    var = cx.act.find(name_in(n.target))
    held = var.value if var is not None else None
    if var is None or not isinstance(held, Value) or isinstance(note, StructType):
        return
    t = cx.at(n.annotation, lambda cx: dtype_of(cx, note))
    if held.type is not t:
        raise cx.at(n.target, lambda cx: cx.fail(
            f"`{var.name}` is a {describe(held.type)} already, and keeps its type",
            kind=KernelSyntaxError,
            help="give the new variable a name of its own, or leave the annotation out",
        ))  # fmt: skip


def lower_augassign(cx: Lowering, n: ast.AugAssign) -> None:
    """Lower `a += value`: the value is evaluated before the target.

    Exception: a target that is a subscript with calls is evaluated before the value, as in Python.
    """
    op = operator_text(n.op)
    if isinstance(n.target, ast.Subscript) and any(nodes_of(n.target, ast.Call)):
        target = augmented_target(cx, n.target)
        augment(cx, n.target, target, op, cx.expr(n.value))
        return
    value = cx.expr(n.value)
    augment(cx, n.target, augmented_target(cx, n.target), op, value)


def lower_expression(cx: Lowering, n: ast.Expr) -> None:
    """Lower an expression statement; a constant, such as a docstring, does nothing.

    Raises KernelSyntaxError for a `ti.stop_grad` of a value, whose result is not used. The same
    error is raised for a call of a debugger, unless the kernel runs as Python.
    """
    if isinstance(n.value, ast.Constant):
        return
    if is_debugger_call(n.value):
        if cx.options.python:
            return
        raise cx.fail(
            f"{ast.unparse(n.value.func)}() stops only kernels that run as Python",
            kind=KernelSyntaxError,
            help="set VKCHI_PYTHON=1, or write ti.init(arch=ti.python)",
        )
    value = cx.expr(n.value)
    if is_stop_grad(cx, n.value) and leaves(value):
        raise cx.at(n.value, lambda cx: cx.fail(
            "ti.stop_grad does not change the value that it is given",
            kind=KernelSyntaxError,
            help="use its result, y = ti.stop_grad(x[i]), or give it a whole array: "
            "ti.stop_grad(x)",
        ))  # fmt: skip


IDLE_CONTEXTS = (parallel, parallel_context, stream_parallel)


def lower_context(cx: Lowering, n: EnteredContext) -> None:
    """Lower the call of a `with`, whose body follows. Raises KernelSyntaxError unless its function
    is in IDLE_CONTEXTS."""
    assert isinstance(n.value, ast.Call)
    if not any(cx.expr(n.value.func) is known for known in IDLE_CONTEXTS):
        raise unsupported_node(cx, ast.copy_location(ast.With([], []), n))


def is_debugger_call(n: ast.expr) -> TypeGuard[ast.Call]:
    """True for `breakpoint()`, and for `name.set_trace()`, as of the module pdb."""
    f = n.func if isinstance(n, ast.Call) else None
    if isinstance(f, ast.Attribute):
        return f.attr == "set_trace" and name_in(f.value) != ""
    return name_in(f) == "breakpoint"


def is_stop_grad(cx: Lowering, n: ast.expr) -> bool:
    """True if an expression calls `ti.stop_grad`.

    The callee is evaluated only if its name matches, because not every callee is a value by itself.
    """
    is_named = isinstance(n, ast.Call) and ast.unparse(n.func).endswith("stop_grad")
    if not is_named:
        return False
    from vkchi.lang.linear_algebra.decompose import stop_grad  # rarely needed

    return cx.expr(n.func) is stop_grad  # type: ignore[attr-defined]


def lower_pass(cx: Lowering, n: ast.Pass) -> None:
    """Lower `pass`."""


def lower_assert(cx: Lowering, n: ast.Assert) -> None:
    """Lower `assert cond, message`, which is checked in debug mode.

    The condition is evaluated in every mode, the message only where the check fails.
    """
    ok = cx.at(n.test, lambda cx: condition_of(cx, _compared(cx, n.test)))
    if ok is True or not cx.options.debug:
        return

    def tell() -> None:
        said = [ast.unparse(n.test)] if n.msg is None else print_parts(cx, cx.expr(n.msg))
        cx.at(n.test, lambda cx: cx.reports.emit(cx, "assertion", ["assertion failed: ", *said]))

    fails = operator_lowering.as_condition(cx, operator_lowering.negated(cx, ok))
    lower_branch(cx, fails, tell, lambda: None)


def _compared(cx: Lowering, n: ast.expr) -> Any:
    """Return the condition of an assert; vectors and matrices of bools are reduced to a scalar.

    All components must be true; for a comparison by `!=`, at least one.
    """
    test = cx.expr(n)
    if not is_tensor(test) or test.type.elem is not u1:
        return test
    is_unequal = isinstance(n, ast.Compare) and isinstance(n.ops[-1], ast.NotEq)
    return (has_any if is_unequal else has_all)(cx, test)


# --- leaving -------------------------------------------------------------------------------------


def lower_break(cx: Lowering, n: ast.Break) -> None:
    """Lower `break`: set the flag that skips the rest of the loop."""
    cx.assign(cx.act.loops[-1].broken, True)


def lower_continue(cx: Lowering, n: ast.Continue) -> None:
    """Lower `continue`: set the flag that skips the rest of the iteration."""
    cx.assign(cx.act.loops[-1].continued, True)


def lower_return(cx: Lowering, n: ast.Return) -> None:
    act = cx.act
    value = None if n.value is None else cx.expr(n.value)
    if act.is_kernel:
        return_from_kernel(cx, n, value)
    else:
        value = convert_result(cx, value, act.returns) if n.value is not None else None
        cx.assign(act.result, map_leaves(value, lambda leaf: leaf))
    cx.assign(act.returned, True)


def return_from_kernel(cx: Lowering, n: ast.Return, value: Any) -> None:
    """Store a kernel's result.

    Raises KernelSyntaxError in a loop or branch, and for a value without a return type.
    """
    act = cx.act
    if not cx.is_top:
        raise cx.fail(
            "a kernel can only return at its top level, not in a loop or branch",
            kind=KernelSyntaxError,
            help="assign a variable there, and return it at the end",
        )
    if n.value is None:
        return
    if not act.returns:
        raise cx.fail(
            f"kernel {act.fn.__name__}() returns a value and has no return type",
            kind=KernelSyntaxError,
            help=f"def {act.fn.__name__}(...) -> ti.f32:",
        )
    slots = act.returns
    is_single = isinstance(value, tuple) and len(value) == 1
    is_one = len(slots) == 1 and not is_single
    parts = [value] if is_one else check_count(cx, value, len(slots))
    for slot, part in zip(slots, parts):
        store_result(cx, slot, part)


def store_result(cx: Lowering, slot: Any, x: Any) -> None:
    """Store a returned value in its slot; for a struct, each member in its own."""
    if isinstance(slot, StructValue):
        x = fit_member(cx, slot.type, x, cx.act.fn.__name__, what="the result of")
        for name, inner in slot.members.items():
            store_result(cx, inner, x[name])
        return
    v = coerce(cx, x, slot.type.elem, verb="return", fills=False, into=into_result(cx))
    cx.b.emit("store", cx.b.emit("elem", slot), v)


STATEMENTS: dict[type[ast.AST], Callable[[Lowering, Any], None]] = {
    ast.Assign: lower_assign,
    ast.AnnAssign: lower_annassign,
    ast.AugAssign: lower_augassign,
    ast.Expr: lower_expression,
    EnteredContext: lower_context,
    ast.If: lower_if,
    ast.For: lower_for,
    ast.While: lower_while,
    ast.Break: lower_break,
    ast.Continue: lower_continue,
    ast.Return: lower_return,
    ast.Pass: lower_pass,
    ast.Assert: lower_assert,
}
