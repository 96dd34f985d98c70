"""Editions of a kernel: its plans for one signature, one for each set of values that it read in
Python.

    editions.find(args) or editions.add(make())
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from vkchi.errors import RecompilationWarning
from vkchi.frontend.reads import Path
from vkchi.launch.value_guards import Guard

if TYPE_CHECKING:
    from vkchi.launch import Plan
    from vkchi.span import Span

MOST_EDITIONS = 64  # that are kept; the one that was used longest ago goes
MOST_ARRAYS = 4  # of those that work on arrays that no path leads to now
MOST_VALUES = 8  # of one path without a warning


class Editions:
    """`plans` are in the order of their last use, the latest first."""

    __slots__ = ("often", "plans", "values")

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.values: dict[Path, int] = {}  # that were seen, by the path that changed
        self.often: set[Path] = set()  # that had too many

    @property
    def is_volatile(self) -> bool:
        """True if values change so often that their kernels are kept in memory alone."""
        return bool(self.often)

    def find(self, args: tuple[Any, ...]) -> Plan | None:
        """The edition for the values as they are now."""
        for k, plan in enumerate(self.plans):
            if plan.guard.holds(args):
                if k:
                    self.plans.insert(0, self.plans.pop(k))
                return plan
        return None

    def add(self, plan: Plan, args: tuple[Any, ...]) -> None:
        """Add the edition for new values."""
        plans = self.plans
        if plans and any(is_on_others(one.guard, args) for one in plans[MOST_ARRAYS - 1 :]):
            others = [one for one in plans if is_on_others(one.guard, args)]
            for one in others[MOST_ARRAYS - 1 :]:
                plans.remove(one)
        self.plans = [plan, *plans[: MOST_EDITIONS - 1]]

    def count(self, name: str, args: tuple[Any, ...]) -> None:
        """Count one more value of each path that is another since the last edition. Warn where one
        has had too many."""
        if not self.plans:
            return
        found = []
        for path, span in self.plans[0].guard.changed(args):
            self.values[path] = self.values.get(path, 1) + 1
            if self.values[path] > MOST_VALUES and path not in self.often:
                found.append((path, span))
        if found:  # properties made of the first change with it
            self.often.update(path for path, _ in found)
            warn(name, *found[0])


def is_on_others(guard: Guard, args: tuple[Any, ...]) -> bool:
    """True if an edition works on an array that its path does not lead to now."""
    return any(not one.is_current(args) for one in guard.watches if one.is_memory)


def warn(name: str, path: Path, span: Span | None) -> None:
    """Warn that a value changes often."""
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
    warnings.warn_explicit(text, RecompilationWarning, file, line, registry=registry)
