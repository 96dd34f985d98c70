"""Debug mode: kernels whose iterations meet warn, and name both lines.

Owns: `DetectingPlan`, the plan of a kernel whose indices do not keep its iterations apart: it runs
in a form that notes who meets (`detector`), where values count: what stores the same is no race.
Must not know: gradients.
"""

from __future__ import annotations

import warnings
from typing import Any

from vkchi.errors import DeviceError, KernelRaceWarning
from vkchi.interop import host
from vkchi.interrupts.locks import restoring
from vkchi.ir.core import Func
from vkchi.ir.rebuild import Rebuilder
from vkchi.launch import Plan
from vkchi.ndarray import Ndarray
from vkchi.races.conflicts import Feasible, find_conflicts
from vkchi.races.detector import Group, Style, grouped, note
from vkchi.races.trials import Observed
from vkchi.tape.calls import Call, describe_call, leaves_of
from vkchi.tape.gradients import prepare


class DetectingPlan(Plan):
    """A plan whose launches tell of races."""

    is_plain = False

    def launch(self, args: tuple[Any, ...], again: int | None = None) -> Any:
        """Run the kernel, and warn where its iterations met, unless it is run `again`."""
        shared = shared_names(self, args)
        watch = self.derived.watch.find(shared, lambda: Detection(merged(self.func, dict(shared))))
        if again is not None or not watch.feasible.conflicts:
            return super().launch(args, again)
        with restoring(self.runtime.lock), self.runtime.lock:
            self._check(args)
            call = describe_call(self.func.name, self, args)
            form = watch.form(call)
            try:
                own = form.bind(call) if form is not None else {}
            except DeviceError:  # no memory for so much
                form = None
            if form is None:
                return super().launch(args)
            result = form.variant.run(call, {**call.arrays, **own})
            numbers = form.result(own)
            for number in numbers:
                watch.warn(form.groups[number])
            return result

    def _check(self, args: tuple[Any, ...]) -> None:
        """Raises what a launch does before it runs anything."""
        for life in self.lives:
            life.check_alive()
        self.executable.bind(args)


def shared_names(plan: Plan, args: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    """The array parameters that are the same array as one before them, and that one."""
    seen: dict[str, Any] = {}
    found = []
    for parameter, arg in leaves_of(plan, args):
        if parameter.kind == "array":
            first = next((name for name, other in seen.items() if is_same(arg, other)), "")
            if first:
                found.append((parameter.name, first))
            else:
                seen[parameter.name] = arg
    return tuple(found)


def is_same(one: Any, other: Any) -> bool:
    """Whether two arguments are one array."""
    if isinstance(one, Ndarray) or isinstance(other, Ndarray):
        return one is other
    first, second = host.view_of(one), host.view_of(other)
    return first is not None and second is not None and host.is_same_view(first, second)


def merged(fn: Func, names: dict[str, str]) -> Func:
    """The Func where parameters of these names are others, which come before them."""
    if not names:
        return fn
    params = {p.name: p for p in fn.params}
    rebuilder = Rebuilder(lambda b, op, args: None)
    rebuilder.map.update({params[name]: params[first] for name, first in names.items()})
    kept = tuple([p for p in fn.params if p.name not in names])
    return Func(fn.name, kept, rebuilder.region(fn.body), fn.span)


class Detection:
    """What may meet in a kernel."""

    def __init__(self, fn: Func) -> None:
        self.fn = prepare(fn, frozenset())
        self.feasible = Feasible(self.fn, find_conflicts(self.fn))
        self.forms: dict[tuple[int, ...], Observed] = {}
        self.warned: dict[Any, Any] = {}

    def form(self, call: Call) -> Observed | None:
        """The kernel that watches what may meet in a call; None if nothing does."""
        near = self.feasible.find(call.numbers, call.arrays)
        if near and near not in self.forms:
            self.forms[near] = self._make(call, near)
        return self.forms.get(near)

    def _make(self, call: Call, near: tuple[int, ...]) -> Observed:
        groups = grouped([self.feasible.conflicts[k] for k in near])
        made = note(self.fn, groups, Style(knows_values=True, reports=True))
        return Observed(call, groups, made)

    def warn(self, group: Group) -> None:
        """Say who met, once for each two lines."""
        one, other = group.first[0].span, group.second[0].span
        if one is None or other is None:
            return
        name, where = getattr(group.root, "name", ""), "" if other == one else f" at {other.place}"
        if group.first[0].kind == "load":
            text = f"one iteration reads here an element of `{name}` that another one of the same "
            text += f"loop changes{where}: what it finds depends on their order"
        else:
            text = f"one iteration stores here to an element of `{name}` where another one of the "
            text += f"same loop puts something else{where}: what stays depends on their order"
        warnings.warn_explicit(
            f"{self.fn.name}(): {text}", KernelRaceWarning, one.file, one.line,
            registry=self.warned,
        )  # fmt: skip
