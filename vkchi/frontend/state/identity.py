"""Alias analysis of objects that kernels construct: all names of an object must see its changes.

A variable holds its object's members by value. An object with two names therefore cannot change:
the change raises KernelSyntaxError. `StructValue.objects` is the set of objects that a record may
be: one where it was made, the union where paths join. Copies and parts keep it
(`Kind.with_children`).

    q = p           # both records hold the same object
    p.x = 1.0       # check_unshared raises
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.state.scope import Activation, Var
from vkchi.frontend.values.trees import (
    StructValue,
    child_pairs,
    leaves,
    records_in,
)
from vkchi.ir.core import Value

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

Objects = frozenset[object]


def new_object() -> Objects:
    """Return the identity of a new object, as a set of one."""
    return frozenset([object()])


def live_variables(cx: Lowering, *, of_python: bool = False) -> list[Var]:
    """Return the variables of the current function and its callers.

    `of_python`: only those of plain Python functions.
    """
    found: dict[Var, None] = {}
    act: Activation | None = cx.act
    while act is not None:
        if act.is_plain or not of_python:
            found.update(dict.fromkeys(var for block in act.blocks for var in block.values()))
        act = act.outer
    return list(found)


def names_of(cx: Lowering, objects: Objects, changed: dict[Var, Any] | None = None) -> list[str]:
    """Return the names of variables that hold one of these objects, one for each occurrence.

    `changed` maps variables to values that replace theirs.
    """
    return [
        var.name
        for var in live_variables(cx)
        for record in records_in((changed or {}).get(var, var.value))
        if record.objects & objects
    ]


def check_unshared(cx: Lowering, record: StructValue) -> None:
    """Check that an object that is about to change has one name. Raises KernelSyntaxError."""
    names = names_of(cx, record.objects) if record.objects else []
    if len(names) > 1:
        raise cx.fail(
            f"this changes an object that has several names ({_listed(names)}), and each of them "
            "has a copy",
            kind=KernelSyntaxError,
            help="make a new object of what the other is to hold, or keep one name",
        )


def check_unshared_value(cx: Lowering, whole: Value) -> None:
    """Check that a vector or matrix that is about to change in part has one name.

    This applies to plain Python functions only: in kernels, an assignment copies. Raises
    KernelSyntaxError.
    """
    if not cx.act.is_plain:
        return
    variables = live_variables(cx, of_python=True)
    names = [var.name for var in variables for leaf in leaves(var.value) if leaf is whole]
    if len(names) > 1:
        raise cx.fail(
            f"this changes what has several names ({_listed(names)}), and each of them has a copy",
            kind=KernelSyntaxError,
            help="change a copy: w = 1 * v, or return the new value",
        )


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def pairs_of(a: Any, b: Any) -> Iterator[tuple[StructValue, StructValue]]:
    """Yield the pairs of records at the same positions of two trees."""
    if isinstance(a, StructValue) and isinstance(b, StructValue):
        yield a, b
    for x, y in child_pairs(a, b) or ():
        yield from pairs_of(x, y)


def join_objects(a: Any, b: Any) -> None:
    """Add the objects of b's records to those of a."""
    for x, y in pairs_of(a, b):
        x.objects |= y.objects


def join_iterations(cx: Lowering, var: Var, changed: dict[Var, Any]) -> None:
    """Add the objects that a loop-carried variable holds after an iteration to those before it.

    Raises KernelSyntaxError if an object from the iteration has another name, because the next
    iteration would not see the alias.
    """
    for before, after in pairs_of(var.value, changed[var]):
        others = names_of(cx, after.objects - before.objects, changed)
        if len(others) > 1:
            raise cx.fail(
                f"in the next iteration `{var.name}` would be another object, which has several "
                f"names ({_listed(others)})",
                kind=KernelSyntaxError,
                help="make a new object of its members, or unroll the loop with ti.static(...)",
            )
        before.objects |= after.objects
