"""Objects of Python classes that kernels make are the same under all their names, as in Python.

Owns: which names stand for the same object. A variable holds its object's members as values of its
own, so an object that has two names cannot change: that is refused, at the change. Must not know:
AST classes, how members are stored.

`Record.objects` are the objects that a record may be: one where it was made, those of both paths
where paths join. Copies and parts keep them (`trees.with_branches`).

    q = p           # both records hold the same object
    p.x = 1.0       # check_unshared: refused
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.scope import Activation, Var
from vkchi.frontend.trees import Record, aligned, branches, leaves, records_in, same_branches
from vkchi.ir.core import Value

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

Objects = frozenset[object]


def new_object() -> Objects:
    """The identity of an object that was made just now."""
    return frozenset([object()])


def live_variables(cx: Lowering, *, of_python: bool = False) -> list[Var]:
    """The variables of the function that is lowered, and of those that call it; or only those of
    functions that are Python's."""
    found: dict[Var, None] = {}
    act: Activation | None = cx.act
    while act is not None:
        if act.is_plain or not of_python:
            found.update(dict.fromkeys(var for block in act.blocks for var in block.values()))
        act = act.outer
    return list(found)


def names_of(cx: Lowering, objects: Objects, changed: dict[Var, Any] | None = None) -> list[str]:
    """The variables that hold some of these objects, once for each time that they do; `changed` are
    what some hold in place of what they say."""
    return [
        var.name
        for var in live_variables(cx)
        for record in records_in((changed or {}).get(var, var.value))
        if record.objects & objects
    ]


def check_unshared(cx: Lowering, record: Record) -> None:
    """Raises KernelSyntaxError for an object that has another name, before it changes: that name
    has a copy."""
    names = names_of(cx, record.objects) if record.objects else []
    if len(names) > 1:
        raise cx.fail(
            f"this changes an object that has several names ({_listed(names)}), and each of them "
            "has a copy",
            kind=KernelSyntaxError,
            help="make a new object of what the other is to hold, or keep one name",
        )


def check_unshared_value(cx: Lowering, whole: Value) -> None:
    """The same for a vector or matrix, whose parts change, in a function that is Python's: kernels'
    own variables are copies of each other."""
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


def pairs_of(a: Any, b: Any) -> Iterator[tuple[Record, Record]]:
    """The records that stand at the same places of two trees."""
    if isinstance(a, Record) and isinstance(b, Record):
        yield a, b
    if same_branches(a, b):
        for x, y in zip(branches(a), aligned(a, b)):
            yield from pairs_of(x, y)


def join(a: Any, b: Any) -> None:
    """What a holds may also be what b holds."""
    for x, y in pairs_of(a, b):
        x.objects |= y.objects


def join_iterations(cx: Lowering, var: Var, changed: dict[Var, Any]) -> None:
    """What a variable holds in a loop may be what it held before, or at the end of an iteration.
    Raises KernelSyntaxError where that has another name: the next iteration would not know."""
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
