"""Derivatives that would be lost: values put into arrays without gradient and read again.

Owns: finding them, and the errors. Must not know: tapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vkchi.autodiff.calls import Call, whole
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.types import Array


class Taint(NamedTuple):
    """An array without gradient that holds something with a derivative, and who put it there. Of
    an array in host memory it is the numpy view."""

    array: Any
    name: str
    call: Call
    op: Any


class Taints:
    """All of a tape, or of forward mode."""

    def __init__(self) -> None:
        self.arrays: dict[int, Taint] = {}
        self.hosts: list[Taint] = []

    def note(self, call: Call, escapes: Mapping[str, Any]) -> list[Storage]:
        """Note arrays of a call, by parameter name, that now hold something with a derivative, and
        the ops that put it there. What is returned are those on the device."""
        noted = []
        for name, op in escapes.items():
            if name in call.hosts:
                self.hosts.append(Taint(call.hosts[name], name, call, op))
            elif name in call.arrays:
                array = whole(call.arrays[name])
                self.arrays[id(array)] = Taint(array, name, call, op)
                noted.append(array)
        return noted

    def forget(self, array: Storage) -> None:
        """All of an array is filled with a constant."""
        self.arrays.pop(id(array), None)

    def find(self, call: Call, name: str) -> Taint | None:
        """What is known of an array of a call."""
        view = call.hosts.get(name)
        if view is None:
            return self.arrays.get(id(whole(call.arrays[name])))
        return next((t for t in self.hosts if host.may_overlap(t.array, view)), None)

    def check(self, call: Call, names: frozenset[str], need: str = "grad") -> None:
        """Raises GradientError if a call reads a derivative out of an array that has no place for
        it and puts it into one of the arrays `names`, which have."""
        found = {name: t for name in call.arrays if (t := self.find(call, name)) is not None}
        for name, taint in found.items():
            flow = flow_from(call, name)
            for target in flow:
                if target in names:
                    raise missing_place(name, taint, flow[target], need)
            self.note(call, flow)


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


def missing_place(name: str, taint: Taint, op: Any, need: str) -> GradientError:
    """The error for an array that a derivative flows through and that has no gradient or dual."""
    word = {"grad": "gradient", "dual": "derivative"}[need]
    return GradientError(
        f"the {word} flows through `{name}`, which has none: it would be lost",
        op.span,
        notes=((f"{taint.call.name}() puts a value with a derivative there", taint.op.span),),
        help=f"make `{name}` with needs_{need}=True, or put ti.stop_grad(...) around the value",
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
