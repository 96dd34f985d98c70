"""Debug mode: check launches for races, and warn with both source lines.

`launch_observed` is the observer of compiled kernels. If conflicts are possible in a launch, it
runs an instrumented variant (`detector`), which compares values: two stores of the same value are
no race.
"""

from __future__ import annotations

from typing import Any

from vkchi.calls.call import describe_call, leaf_arguments
from vkchi.calls.gradients import simplify_for_gradient
from vkchi.errors import DeviceError, KernelRaceWarning, warn_at
from vkchi.interop import host_views
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import Func
from vkchi.ir.rebuild import with_params
from vkchi.launch.compiled_kernel import NOTHING_SHARED, CompiledKernel
from vkchi.ndarray import Ndarray
from vkchi.races.detector import ConflictGroup
from vkchi.races.meeting import KernelRaces
from vkchi.races.race import memory_name, race_message


def launch_observed(kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
    """Run a kernel, warn about the conflicts that occur, and return the kernel's result.

    If memory is short, the kernel runs without detection, and if it uses pools of sparse blocks.
    """
    if kernel.has_pools:
        return kernel.launch_in_place(args, NOTHING_SHARED)
    shared = shared_names(kernel, args)
    races = kernel.derived.find(
        "debug_races", shared, lambda: make_races(kernel.func, dict(shared))
    )
    if not races.conflicts:
        return kernel.launch_in_place(args, NOTHING_SHARED)
    with restoring(kernel.runtime.lock), kernel.runtime.lock:
        for life in kernel.lives:
            life.check_alive()
        kernel.bind(args)  # checks
        call = describe_call(kernel.func.name, kernel, args)
        near = races.feasible.find(call.numbers, call.arrays)
        form = races.observed(call, near) if near else None
        try:
            own = form.bind(call) if form is not None else {}
        except DeviceError:  # memory is too short for the cells
            form = None
        if form is None:
            return kernel.launch_in_place(args, NOTHING_SHARED)
        result = form.run(call, {**call.arrays, **own})
        for number in form.result(own):
            warn_conflict(races, form.groups[number], kernel.derived.warned)
        return result


def shared_names(kernel: CompiledKernel, args: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    """Pairs of array parameters that are the same array: the later name, the first name."""
    seen: dict[str, Any] = {}
    found = []
    for parameter, arg in leaf_arguments(kernel, args):
        if parameter.kind == "array":
            first = next((name for name, other in seen.items() if is_same(arg, other)), "")
            if first:
                found.append((parameter.name, first))
            else:
                seen[parameter.name] = arg
    return tuple(found)


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Ndarray) or isinstance(other, Ndarray):
        return one is other
    first, second = host_views.view_of(one), host_views.view_of(other)
    return first is not None and second is not None and host_views.is_same_view(first, second)


def make_races(fn: Func, shared: dict[str, str]) -> KernelRaces:
    """Conflicts of a kernel in which the array parameters `shared` are merged with earlier ones."""
    params = {p.name: p for p in fn.params}
    fn = with_params(fn, {params[name]: params[first] for name, first in shared.items()})
    return KernelRaces(simplify_for_gradient(fn, frozenset()), frozenset(), None, all_=True)


def warn_conflict(races: KernelRaces, group: ConflictGroup, registry: dict[Any, Any]) -> None:
    """Warn about a conflict, unless a source span is missing.

    By default, Python shows a warning once per compiled variant, array and pair of source
    locations.
    """
    one, other = group.first[0].span, group.second[0].span
    if one is None or other is None:
        return
    text = race_message(memory_name(group.root), one, other, is_read=group.first[0].kind == "load")
    warn_at(f"{races.fn.name}(): {text}", KernelRaceWarning, one.file, one.line, registry)
