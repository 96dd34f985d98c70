"""Assignment: new variables, assignments that keep a variable's type, unpacking, `+=`.

A new variable copies its value: Python numbers become kernel values.

    assign_to(cx, node, x)      # node: Name, Attribute, Subscript, or a Tuple or List of them
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from vkchi.errors import KernelCallError, KernelNameError, KernelSyntaxError, KernelTypeError
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.iteration import items_of
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.conversions import UNNAMED, ConversionTarget, convert
from vkchi.frontend.ops.debug_checks import watch_atomic
from vkchi.frontend.state.identity import join_objects
from vkchi.frontend.state.scope import CHANGING, CONSTANT, PASSED, SHARED, VARIABLE, Var
from vkchi.frontend.syntax.syntax_facts import bottom_names
from vkchi.frontend.values.kinds import check_supported, describe, kind_of
from vkchi.frontend.values.objects import add_member, is_makeable
from vkchi.frontend.values.operands import (
    is_number,
    is_tensor,
    operand,
    operand_shape,
    own_type,
    put_into,
    weak,
)
from vkchi.frontend.values.places import lvalue
from vkchi.frontend.values.struct_values import StructMethod, as_record, is_places
from vkchi.frontend.values.targets import (
    ItemTarget,
    VariableTarget,
)
from vkchi.frontend.values.trees import (
    StructValue,
    child_pairs,
    is_same,
    map_leaves,
)
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix
from vkchi.lang.struct import Struct
from vkchi.types import Scalar, Tensor, scalar_of, shape_of

# Augmented operator -> atomic op.
_ATOMIC = {
    "+": "atomic_add", "-": "atomic_add", "&": "atomic_and", "|": "atomic_or", "^": "atomic_xor",
}  # fmt: skip
_ON_BITS = ("&", "|", "^")


def variable_value(cx: Lowering, x: Any) -> Any:
    """Return x as the value of a new variable.

    Python's numbers, vectors and matrices become kernel values, Python structs StructValues, also
    inside containers.
    """
    return map_leaves(x, lambda leaf: _own_leaf(cx, leaf))


def _own_leaf(cx: Lowering, leaf: Any) -> Any:
    if isinstance(leaf, Struct):
        return variable_value(cx, as_record(cx, leaf))
    return operator_lowering.value(cx, leaf) if weak(leaf) is not None else leaf


def kind_of_variable(x: Any) -> str:
    """Return a new variable's kind: VARIABLE for kernel values and containers, else CONSTANT."""
    return VARIABLE if isinstance(x, Value) or kind_of(x).is_container else CONSTANT


def has_parts(x: Any) -> bool:
    """True if x can be changed in part, which in Python every alias of x would see."""
    return kind_of(x).is_container or is_tensor(x)


# --- assignment ----------------------------------------------------------------------------------


def assign_to(cx: Lowering, n: ast.expr, x: Any, *, is_static: bool = False) -> None:
    """Lower `n = x`. With `is_static` (`a = ti.static(...)`), a new name denotes x itself."""
    cx.locate(n)
    if isinstance(n, ast.Name):
        assign_name(cx, n.id, x, is_static=is_static)
    elif isinstance(n, ast.Tuple | ast.List):
        for item, part in zip(n.elts, unpack(cx, n, x)):
            assign_to(cx, item, part, is_static=is_static)
    elif isinstance(n, ast.Attribute | ast.Subscript):
        if not _adds_member(cx, n, x):
            store_target(cx, assignable(cx, n), x)
    else:
        raise cx.tables.refuse(cx, n)


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
    var = cx.act.find(n.id) if isinstance(n, ast.Name) else None
    if var is None or var.kind != VARIABLE or not _has_name(given):
        return
    is_object = isinstance(var.value, StructValue) and bool(var.value.objects)
    if cx.act.is_plain and has_parts(var.value) and not is_object:
        var.kind = SHARED


def _has_name(n: ast.expr) -> bool:
    """True if an expression may denote an object that already has a name."""
    if isinstance(n, ast.IfExp):
        return _has_name(n.body) or _has_name(n.orelse)
    return isinstance(n, ast.Name | ast.Attribute | ast.Subscript | ast.Starred | ast.NamedExpr)


def _adds_member(cx: Lowering, n: ast.Attribute | ast.Subscript, x: Any) -> bool:
    """Perform `n = x` if it adds a member to an object of the kernel; return True if it did."""
    if not isinstance(n, ast.Attribute) or not isinstance(n.value, ast.Name):
        return False
    var = cx.act.find(n.value.id)
    return var is not None and add_member(cx, VariableTarget(var), n.attr, x)


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
        assign_var(cx, var, x)
    elif is_static:
        cx.declare(name, x, CONSTANT)
    else:
        held = variable_value(cx, x)
        cx.declare(name, held, kind_of_variable(held))


def assign_var(cx: Lowering, var: Var, x: Any) -> None:
    """Assign x to a variable, converted to the types of its value.

    In its own region, a constant is rebound, and so is a variable of a plain Python function.
    Raises KernelSyntaxError for a variable that cannot change, KernelTypeError if x does not fit.
    """
    if var.kind == CONSTANT and var.depth == len(cx.frames):
        var.value = variable_value(cx, x)
        var.kind = kind_of_variable(var.value)
        return
    if var.kind not in (PASSED, SHARED):  # these can be rebound
        cx.check_assignable(var)
    if kind_of(var.value).is_target:
        store_target(cx, var.value, x, into_variable(cx, var))
    elif cx.act.is_plain and var.depth == len(cx.frames):
        var.value = variable_value(cx, x)
        var.kind = VARIABLE
    elif is_places(var.value):
        fit_held_type(cx, var.value, x, var.name)
    else:
        if cx.act.is_plain:
            _refuse_narrowing(cx, var, x)
        cx.assign(var, fit_held_type(cx, var.value, x, var.name, var))


def _refuse_narrowing(cx: Lowering, var: Var, x: Any) -> None:
    """Check that a Python function's integer variable does not become a float in a branch or loop.

    The kernel's variable has one type there. Raises KernelTypeError.
    """
    if not is_number(var.value) or not is_number(x):
        return
    old, new = [scalar_of(own_type(cx, operand(cx, v))) for v in (var.value, x)]
    if old.kind in "iu" and new.kind == "f":
        raise cx.fail(
            f"`{var.name}` is an integer before this branch or loop, and a float in it",
            label=describe(new),
            help=f"begin with a float: {var.name} = 0.0",
        )


def assignable(cx: Lowering, n: ast.expr) -> Any:
    """Return the target that n denotes. Raises KernelSyntaxError if it cannot be assigned."""
    target = lvalue(cx, n)
    if kind_of(target).is_target or is_places(target):
        return target
    is_value = isinstance(target, Value)
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


def store_target(cx: Lowering, target: Any, x: Any, into: ConversionTarget = UNNAMED) -> None:
    """Store x in `target`, converted to its type. Raises KernelTypeError if it does not fit."""
    held, name = target, "item"
    if isinstance(target, ItemTarget):
        held, name = target.get(), target.key if isinstance(target.key, str) else name
    if is_places(held):
        fit_held_type(cx, held, x, name)
    elif isinstance(target, ItemTarget):
        target.put(cx, fit_held_type(cx, held, x, name))
    elif isinstance(target, VariableTarget):
        assign_var(cx, target.var, x)
    else:
        target.store(cx, coerce(cx, x, target.type, into=into))


def fit_held_type(cx: Lowering, old: Any, x: Any, name: str, var: Var | None = None) -> Any:
    """Convert x to the types of `old`, the present value of the variable or item `name`.

    Targets in `old` are stored to and stay in the result. Raises KernelTypeError.
    """
    if isinstance(old, Value):
        assert isinstance(old.type, Scalar | Tensor)
        v = coerce(cx, x, old.type, name, into=into_variable(cx, var))
        v.name = v.name or name
        return v
    if kind_of(old).is_target:
        store_target(cx, old, x, into_variable(cx, var))
        return old
    if isinstance(x, Matrix) and isinstance(old, list | tuple):
        x = x.to_list()
    if isinstance(old, StructValue):
        x = StructValue(x) if isinstance(x, dict) else as_record(cx, x)
    pairs = child_pairs(old, x)
    if pairs is None and type(old) in (list, tuple) and isinstance(x, list | tuple):
        pairs = list(zip(old, x)) if len(old) == len(x) else None
    if pairs is not None:
        made = kind_of(old).with_children(
            old, [fit_held_type(cx, a, b, name, var) for a, b in pairs]
        )
        if isinstance(made, StructValue):
            made.objects = x.objects
        if is_places(old):
            join_objects(old, made)
        return made
    if is_same(old, x):
        return old
    raise cx.fail(
        f"`{name}` holds {kind_of(old).sized_name(old)} and cannot be assigned "
        f"{kind_of(x).sized_name(x)}",
        help="assign a struct with these members, or to its members"
        if isinstance(old, StructValue)
        else "give the new value a name of its own",
    )


def coerce(
    cx: Lowering,
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


def into_variable(cx: Lowering, var: Var | None) -> ConversionTarget:
    """Return the description of a variable, for cautions about conversions to it."""
    if var is None:
        return UNNAMED
    return ConversionTarget(f"`{var.name}`", name=var.name, origin=var.span, source=cx.act.source)


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
    """Lower `n op= x` for the target of n.

    `+ - & | ^` are atomic on memory that other invocations may access. Exceptions are `+ -` of
    bools. Otherwise it is a read, an op and a write. Raises KernelTypeError.
    """
    held = target.get() if isinstance(target, VariableTarget) else target
    check_supported(cx, held, "number")
    if cx.act.is_plain and type(target) is VariableTarget and target.var.kind in CHANGING:
        assign_var(cx, target.var, operator_lowering.binary(cx, op, held, x))
        return
    if held is not target and not isinstance(held, Value):
        store_target(cx, target, operator_lowering.binary(cx, op, held, x))
        return
    t = target.type
    elem = scalar_of(t)
    if op not in _ATOMIC or elem.kind == ("f" if op in _ON_BITS else "b"):
        store_target(cx, target, operator_lowering.binary(cx, op, target.load(cx), x))
        return
    var = cx.act.find(n.id) if isinstance(n, ast.Name) else None
    into = into_variable(cx, var) if var is not None else ConversionTarget(n)
    v = coerce(cx, x, t, n.id if isinstance(n, ast.Name) else "", into=into)
    if target.is_shared(cx):
        old = target.atomic(cx, _ATOMIC[op], cx.b.emit("neg", v) if op == "-" else v)
        if cx.options.debug:
            watch_atomic(cx, op, old, v)
    else:
        store_target(cx, target, operator_lowering.binary(cx, op, target.load(cx), v))


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
