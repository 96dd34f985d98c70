"""Names, attributes and subscripts, read or as assignment targets.

The result of `x.name` and `x[...]` depends on x. Arrays give memory locations, vectors and matrices
components, lists items, and Python objects their own attributes.

    lvalue(cx, node)            # a Target, or a value that cannot be assigned
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from vkchi.frontend.context import Lowering
from vkchi.frontend.state.captured_values import holds_object
from vkchi.frontend.state.reachable_values import record_reachable
from vkchi.frontend.values import array_values, tensor_values  # noqa: F401, their kinds
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.python_values import python_attribute, python_item
from vkchi.frontend.values.references import ORIGIN
from vkchi.frontend.values.slices import slice_array
from vkchi.frontend.values.targets import VariableTarget

# --- names and targets ---------------------------------------------------------------------------


def lower_name(cx: Lowering, n: ast.Name) -> Any:
    """Return a variable's value, or a captured object. Raises KernelNameError."""
    var = cx.act.find(n.id)
    if var is not None:
        return var.value
    return cx.at(n, lambda cx: cx.capture(n.id))


def lower_attribute(cx: Lowering, n: ast.Attribute) -> Any:
    inner = n.value
    if not isinstance(inner, ast.Subscript):
        base = cx.way(inner)
        check_present(cx, base, inner)
        return attribute_of(cx, base, n.attr)
    return member_of_item(cx, cx.way(inner.value), inner, n.attr)


def member_of_item(cx: Lowering, array: Any, inner: ast.Subscript, name: str) -> Any:
    """Lower `array[...].name`; for an array of structs, as `array.name[...]`."""
    indices = lower_indices(cx, inner.slice, array)
    member = kind_of(array).member(cx, array, name)
    if member is not None:
        return cx.at(inner, lambda cx: item_of(cx, member, indices))
    return attribute_of(cx, cx.at(inner, lambda cx: item_of(cx, array, indices)), name)


def lower_subscript(cx: Lowering, n: ast.Subscript) -> Any:
    base = cx.way(n.value)
    check_present(cx, base, n.value)
    return item_of(cx, base, lower_indices(cx, n.slice, base))


def lvalue(cx: Lowering, n: ast.expr) -> Any:
    """Lower an assignment target to a Target, which for a variable is a VariableTarget.

    An element of an array of structs is a struct of Targets. Other results cannot be assigned.
    """
    handler: Callable[[Lowering, Any], Any] = _LVALUES.get(type(n), Lowering.expr)
    return handler(cx, n)


def _name(cx: Lowering, n: ast.Name) -> Any:
    var = cx.act.find(n.id)
    if var is None:
        return cx.capture(n.id)
    return var.value if kind_of(var.value).is_target else VariableTarget(var)


def _attribute(cx: Lowering, n: ast.Attribute) -> Any:
    if isinstance(n.value, ast.Subscript):
        inner, array = n.value, _way(cx, n.value.value)
        return cx.at(n, lambda cx: member_of_item(cx, array, inner, n.attr))
    base = _way(cx, n.value)
    check_present(cx, base, n.value)
    return cx.at(n, lambda cx: attribute_of(cx, base, n.attr))


def _item(cx: Lowering, n: ast.Subscript) -> Any:
    base = _way(cx, n.value)
    indices = lower_indices(cx, n.slice, base)
    check_present(cx, base, n.value)
    return cx.at(n, lambda cx: item_of(cx, base, indices))


def _way(cx: Lowering, n: ast.expr) -> Any:
    """As `lvalue`, for a target of which only a part is used (`Lowering.way`)."""
    return cx.way(n, lvalue)


_LVALUES: dict[type[ast.AST], Callable[[Lowering, Any], Any]] = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _item,
}


# --- attributes ----------------------------------------------------------------------------------


def attribute_of(cx: Lowering, base: Any, name: str) -> Any:
    """Return `base.name`, as a Target if it is a component or member of one.

    Raises KernelNameError, or KernelTypeError for lists and dicts.
    """
    if name == ORIGIN:
        return kind_of(base).first_array(cx, base).origin
    x = kind_of(base).held(base)
    found = kind_of(x).attr(cx, x, name, None if x is base else base)
    return python_attribute(cx, x, name) if found is NotImplemented else found


# --- subscripts ----------------------------------------------------------------------------------


def lower_indices(cx: Lowering, n: ast.expr, base: Any) -> list[Any]:
    """Lower the indices between brackets after `base`; slices become Python slices, whose bounds
    for arrays may be values."""
    is_array = kind_of(kind_of(base).held(base)).is_array
    lower = Lowering.expr if is_array else static_int
    found: list[Any] = []
    for item in n.elts if isinstance(n, ast.Tuple) else [n]:
        if isinstance(item, ast.Slice):
            parts = (item.lower, item.upper, item.step)
            found.append(slice(*[None if p is None else lower(cx, p) for p in parts]))
        elif isinstance(item, ast.Starred):
            found += cx.expr(item.value)
        elif is_array and isinstance(item, ast.Constant) and item.value is Ellipsis:
            found.append(Ellipsis)
        else:
            found.append(cx.expr(item))
    return found


def static_int(cx: Lowering, n: ast.expr) -> int:
    """Lower a bound of a slice, which must be a compile-time int. Raises KernelTypeError."""
    k = cx.expr(n)
    if not isinstance(k, int):
        sentence = "bounds of a slice must be compile-time constants"
        raise cx.at(n, lambda cx: cx.fail(sentence, constant=k))
    return k


def check_present(cx: Lowering, x: Any, n: ast.expr) -> None:
    """Raise KernelTypeError if x, of which a part is used, is None and an attribute."""
    if x is None and isinstance(n, ast.Attribute):
        text = ast.unparse(n)
        if n.attr == "grad":
            sentence, help = "this array has no gradient", "make it with needs_grad=True"
            raise cx.fail(f"`{text}` is None: {sentence}", help=help)
        raise cx.fail(f"`{text}` is None in this call", help=f"test it: if {text} is not None")


def item_of(cx: Lowering, base: Any, indices: list[Any]) -> Any:
    """Return `base[indices]`, as a Target if base is in memory or a variable."""
    x = kind_of(base).held(base)
    indices = cx.as_compared(indices)
    cx.dependencies.used_as_a_whole(indices)
    if any(map(holds_object, indices)):  # `__index__` or `__hash__` of a user's class
        record_reachable(cx.dependencies, operator.getitem, indices)
    if kind_of(x).is_array and any([isinstance(k, slice) or k is Ellipsis for k in indices]):
        return slice_array(cx, x, indices)
    found = kind_of(x).item(cx, x, indices, None if x is base else base)
    return python_item(cx, x, indices) if found is NotImplemented else found
