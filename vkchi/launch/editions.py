"""Plans of a kernel for one signature: one per set of Python values that were read at compile time.

Example:

    editions.find(args) or editions.add(make(), args)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import RecompilationWarning, warn_at
from vkchi.frontend.state.captured_values import Path
from vkchi.launch.value_guards import Guard

if TYPE_CHECKING:
    from vkchi.launch import Plan
    from vkchi.span import Span

MOST_EDITIONS = 64  # plans kept; the least recently used is dropped
MOST_ARRAYS = 4  # plans kept of those whose arrays were replaced
MOST_VALUES = 8  # values of one path before a warning


class Editions:
    """An LRU list of plans: the latest used first."""

    __slots__ = ("often", "plans", "values")

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.values: dict[Path, int] = {}  # number of values seen, by path
        self.often: set[Path] = set()  # paths with too many values

    @property
    def is_volatile(self) -> bool:
        """True if a path has had more than MOST_VALUES values."""
        return bool(self.often)

    def find(self, args: tuple[Any, ...]) -> Plan | None:
        """Return the plan whose guard holds, moved to the front; None if there is none."""
        for k, plan in enumerate(self.plans):
            if plan.guard.holds(args):
                if k:
                    self.plans.insert(0, self.plans.pop(k))
                return plan
        return None

    def add(self, plan: Plan, args: tuple[Any, ...]) -> None:
        """Add the plan for new values in front; drop the least recently used ones beyond
        MOST_EDITIONS.

        Of older plans that use replaced arrays, at most MOST_ARRAYS - 1 stay.
        """
        plans = self.plans
        if plans and any(uses_replaced_arrays(one.guard, args) for one in plans[MOST_ARRAYS - 1 :]):
            others = [one for one in plans if uses_replaced_arrays(one.guard, args)]
            for one in others[MOST_ARRAYS - 1 :]:
                plans.remove(one)
        self.plans = [plan, *plans[: MOST_EDITIONS - 1]]

    def count(self, name: str, args: tuple[Any, ...]) -> None:
        """Count a new value for each path that changed since the latest plan.

        If paths exceed MOST_VALUES for the first time, warns about the first of them.
        """
        if not self.plans:
            return
        found = []
        for path, span in self.plans[0].guard.changed(args):
            self.values[path] = self.values.get(path, 1) + 1
            if self.values[path] > MOST_VALUES and path not in self.often:
                found.append((path, span))
        if found:  # report the first: derived properties change with it
            self.often.update(path for path, _ in found)
            warn_recompilation(name, *found[0])


def uses_replaced_arrays(guard: Guard, args: tuple[Any, ...]) -> bool:
    """True if a guard tests an array that its path does not lead to any more."""
    return any(not one.is_current(args) for one in guard.watches if one.is_memory)


def warn_recompilation(name: str, path: Path, span: Span | None) -> None:
    """Warn that a value changes often, at the line that reads it."""
    text = (
        f"{name}(): `{path}` has had more than {MOST_VALUES} values, and the kernel is compiled "
        "for each\nhelp: pass it as an argument of the kernel"
    )
    registry: dict[Any, Any] = {}
    if span is None:
        code = path.root.fn.__code__
        file, line = code.co_filename, code.co_firstlineno
    else:
        file, line = span.file, span.line
    warn_at(text, RecompilationWarning, file, line, registry)
