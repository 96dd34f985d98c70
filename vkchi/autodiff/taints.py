"""Derivatives that would be lost: values put into arrays without gradient and read again.

Owns: finding them, and the errors. Must not know: tapes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vkchi.autodiff.calls import Call
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.types import Array


class Taint(NamedTuple):
    """An array without gradient that holds something with a derivative, and who put it there."""

    array: Storage
    name: str
    call: Call
    op: Any


def flow_from(call: Call, name: str) -> dict[str, Any]:
    """The arrays that a call puts something into that depends smoothly on what an array holds, and
    the op that does so."""
    from vkchi.autodiff.primal import WRITES, Activity
    from vkchi.ir.core import base_of, walk

    key = ("flow", name)
    if key not in call.plan.derived:
        names = frozenset(p.name for p in call.plan.func.params if isinstance(p.type, Array))
        fn = call.plan.func
        active = Activity(fn, frozenset({name}))
        found = dict(active.escapes)
        for op in walk(fn.body):
            root = base_of(op.args[0]) if op.kind in WRITES else None
            if root is not None and not active.values.isdisjoint(op.args[1:]):
                found.setdefault(getattr(root, "name", ""), op)
        call.plan.derived[key] = {k: op for k, op in found.items() if k in names}
    flow: dict[str, Any] = call.plan.derived[key]
    return flow


def missing_gradient(call: Call, name: str, taint: Taint, op: Any) -> GradientError:
    """The error for an array that a derivative flows through and that has no gradient."""
    return GradientError(
        f"the gradient flows through `{name}`, which has none: it would be lost",
        op.span,
        notes=((f"{taint.call.name}() puts a value with a derivative there", taint.op.span),),
        help=f"make `{name}` with needs_grad=True, or put ti.stop_grad(...) around the value",
    )


def missing_dual(call: Call, names: frozenset[str]) -> None:
    """Raises GradientError if a call of forward mode would lose a derivative in an array without
    dual that it reads again."""
    from vkchi.autodiff.primal import Activity

    active = Activity(call.plan.func, names)
    for name, op in active.escapes.items():
        if name in call.arrays and flow_from(call, name).keys() & names:
            raise GradientError(
                f"the derivative flows through `{name}`, which has no dual: it would be lost",
                op.span, help=f"make `{name}` with needs_dual=True",
            )  # fmt: skip
