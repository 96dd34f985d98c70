"""Assignment: new variables, assignments that keep a variable's type, unpacking, `+=`.

A new variable copies its value: Python numbers become kernel values.

    assign_to(cx, node, x)      # node: Name, Attribute, Subscript, or a Tuple or List of them
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.errors import KernelNameError, KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.places import lvalue
from vkchi.frontend.state.pending import UNNAMED, ConversionTarget
from vkchi.frontend.state.scope import CONSTANT, SHARED, VARIABLE
from vkchi.frontend.syntax.syntax_facts import bottom_names, name_in
from vkchi.frontend.values.kinds import check_supported, kind_of
from vkchi.frontend.values.objects import add_member, is_makeable
from vkchi.frontend.values.operands import (
    is_tensor,
)
from vkchi.frontend.values.python_values import items_of
from vkchi.frontend.values.struct_values import StructMethod
from vkchi.frontend.values.targets import (
    VariableTarget,
    assign_variable,
    into_variable,
    kind_of_variable,
)


def has_parts(x: Any) -> bool:
    """True if x can be changed in part, which in Python every alias of x would see."""
    return kind_of(x).is_container or is_tensor(x)


# --- assignment ----------------------------------------------------------------------------------


def assign_to(cx: Lowering, n: ast.expr, x: Any, *, is_static: bool = False) -> None:
    """Lower `n = x`. With `is_static` (`a = ti.static(...)`), a new name denotes x itself."""
    cx.locate(n)
    assign = _ASSIGNED.get(type(n))
    if assign is None:
        raise cx.tables.refuse(cx, n)
    assign(cx, n, x, is_static)


def _assign_items(cx: Lowering, n: ast.Tuple | ast.List, x: Any, is_static: bool) -> None:
    for item, part in zip(n.elts, unpack(cx, n, x)):
        assign_to(cx, item, part, is_static=is_static)


def _assign_member(cx: Lowering, n: ast.Attribute, x: Any, is_static: bool) -> None:
    """Lower `a.b = x`, which may add a member to an object of the kernel."""
    var = cx.act.find(name_in(n.value))
    if var is None or not add_member(cx, VariableTarget(var), n.attr, x):
        store_target(cx, assignable(cx, n), x)


_ASSIGNED: dict[type[ast.AST], Callable[[Lowering, Any, Any, bool], None]] = {
    ast.Name: lambda cx, n, x, is_static: assign_name(cx, n.id, x, is_static=is_static),
    ast.Tuple: _assign_items,
    ast.List: _assign_items,
    ast.Attribute: _assign_member,
    ast.Subscript: lambda cx, n, x, _: store_target(cx, assignable(cx, n), x),
}


def mark_shared(cx: Lowering, n: ast.expr, given: ast.expr) -> None:
    """Mark the variable n as SHARED after `n = given` if `given` is written as an existing object:
    a name, attribute, item, or a choice between them.

    n has a copy here, so its parts cannot be changed. Results of calls are not recognised. This
    applies to plain Python functions only, and not to objects, which have an identity. Targets in a
    tuple are marked one by one.
    """
    if isinstance(n, ast.Tuple | ast.List):
        parts = given.elts if isinstance(given, ast.Tuple | ast.List) else []
        for item, one in zip(n.elts, parts if len(parts) == len(n.elts) else [given] * len(n.elts)):
            mark_shared(cx, item, one)
        return
    var = cx.act.find(name_in(n))
    if var is None or var.kind != VARIABLE or not _has_name(given):
        return
    is_object = kind_of(var.value).is_struct and bool(var.value.objects)
    if cx.act.is_plain and has_parts(var.value) and not is_object:
        var.kind = SHARED


def _has_name(n: ast.expr) -> bool:
    """True if an expression may denote an object that already has a name."""
    if isinstance(n, ast.IfExp):
        return _has_name(n.body) or _has_name(n.orelse)
    return isinstance(n, ast.Name | ast.Attribute | ast.Subscript | ast.Starred | ast.NamedExpr)


def assign_name(cx: Lowering, name: str, x: Any, *, is_static: bool = False) -> None:
    """Declare a variable, or assign it if it is visible here.

    Raises KernelTypeError for a StructMethod.
    """
    if isinstance(x, StructMethod):
        raise cx.fail(
            f"`{name}` would be a method of a struct, which kernels call and do not keep",
            help="call the method where it is needed",
        )
    var = cx.act.find(name)
    if var is not None:
        assign_variable(cx, var, x)
    elif is_static:
        cx.declare(name, x, CONSTANT)
    else:
        held = kind_of(x).own(cx, x)
        cx.declare(name, held, kind_of_variable(held))


def assignable(cx: Lowering, n: ast.expr) -> Any:
    """Return the target that n denotes. Raises KernelSyntaxError if it cannot be assigned."""
    target = lvalue(cx, n)
    if isinstance(n, ast.Subscript):
        target = kind_of(target).target(target)
    if kind_of(target).is_assignable(target):
        return target
    if cx.member_in(target) is target:
        raise cx.fail(
            f"`{ast.unparse(n)}` is an argument of the kernel and cannot be assigned",
            kind=KernelSyntaxError,
            help="keep what kernels change in fields or array arguments",
        )
    is_value = kind_of(target).has_type
    raise cx.fail(
        f"`{ast.unparse(n)}` is {'a value' if is_value else 'a compile-time constant'} "
        "and cannot be assigned",
        kind=KernelSyntaxError,
        help="" if is_value else _help_to_change(cx, n),
    )


def _help_to_change(cx: Lowering, n: ast.expr) -> str:
    name = next(bottom_names(n), "")
    var = cx.act.find(name)
    made = var is not None and var.kind == CONSTANT and is_makeable(type(var.value))
    if var is None or not made or cx.dependencies.is_read(var.value):
        return "keep what kernels change in fields or array arguments"
    return f"`{name}` is made of literals: begin with a kernel's value, such as ti.cast(0, ti.f32)"


def store_target(cx: Lowering, target: Any, x: Any) -> None:
    """Store x in what is assignable, converted to its type. Raises KernelTypeError."""
    kind_of(target).fit(cx, target, x, "item", UNNAMED)


def unpack(cx: Lowering, n: ast.Tuple | ast.List, x: Any) -> Sequence[Any]:
    """Return the parts of x for the targets of a tuple.

    Raises KernelSyntaxError if their number differs, x has no items, or a target is starred.
    """
    for item in n.elts:
        if isinstance(item, ast.Starred):
            raise cx.at(item, lambda cx: cx.fail(
                "kernels have no starred targets", kind=KernelSyntaxError,
                help="name every part",
            ))  # fmt: skip
    parts = items_of(cx, x, "unpack")
    if len(parts) != len(n.elts):
        raise cx.fail(
            f"{len(n.elts)} names on the left, {len(parts)} values on the right",
            kind=KernelSyntaxError,
            help=f"name {len(parts)} of them" if parts else "there is nothing to unpack",
        )
    return parts


# --- augmented assignment ------------------------------------------------------------------------


def augment(cx: Lowering, n: ast.expr, target: Any, op: str, x: Any) -> None:
    """Lower `n op= x` for the target of n. Raises KernelTypeError."""
    found = kind_of(target)
    check_supported(cx, found.held(target), "number")
    var = cx.act.find(name_in(n))
    into = into_variable(cx, var) if var is not None else ConversionTarget(n)
    found.update(cx, target, op, x, into)


def augmented_target(cx: Lowering, n: ast.expr) -> Any:
    """Return the target of an augmented assignment.

    Raises KernelNameError if it is a name without a variable here, KernelSyntaxError if it cannot
    be assigned.
    """
    if isinstance(n, ast.Name) and cx.act.find(n.id) is None and n.id not in cx.act.gone:
        if cx.peek_captured(n.id) is not None:
            raise cx.fail(
                f"`{n.id}` is not a variable of this function, and cannot be changed in it",
                kind=KernelNameError,
                help="keep what kernels change in a field: ti.field(ti.f32, shape=())",
            )
        raise cx.undefined(n.id)
    return assignable(cx, n)
