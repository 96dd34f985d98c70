"""What tapes and debug mode make of a kernel, each once per plan.

Owns: `Derived`: the table of answers, which last (`cache.answers`), and a table for each kind of
thing that does not. Must not know: how any of it is made.

    call.plan.derived.gradients.find(spec, make)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vkchi.cache.answers import Answers
from vkchi.compiling import compiling

if TYPE_CHECKING:
    from vkchi.analysis.footprint import Footprint
    from vkchi.autodiff.answers import GradientSpec
    from vkchi.autodiff.instrument import Instrumented
    from vkchi.autodiff.reaching import Outflows, Reach
    from vkchi.cache.compiled import Home
    from vkchi.ir.core import Func
    from vkchi.races.meeting import Races
    from vkchi.tape.along import ForwardPlan
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.questions import Live
    from vkchi.tape.variants import Variant

K = TypeVar("K")
V = TypeVar("V")
Names = frozenset[str]


class Memo(Generic[K, V]):
    """Values by key, each made when it is first asked for."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.found: dict[K, V] = {}

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value under this key."""
        if key not in self.found:
            with compiling(self.title):
                self.found[key] = make()
        return self.found[key]


class Derived:
    """Tables by what the thing is for: mostly the arrays that have a gradient. `warned` is a
    registry of Python's warnings."""

    def __init__(self, title: str, home: Home | None) -> None:
        self.title, self.answers = title, Answers(home)
        self.footprints: Memo[str, Footprint] = Memo(title)
        self.gradients: Memo[GradientSpec, GradientPlan] = Memo(title)
        self.live: Memo[GradientSpec, Live] = Memo(title)
        self.forward: Memo[tuple[str, Names], ForwardPlan] = Memo(title)
        self.outflows: Memo[Names, Outflows] = Memo(title)
        self.marked: Memo[tuple[GradientSpec | None, Names, Names], Variant] = Memo(title)
        self.watched: Memo[tuple[Names, Func], tuple[Instrumented, Variant]] = Memo(title)
        self.races: Memo[tuple[GradientSpec | None, Names, bool], Races] = Memo(title)
        self.races_in_run: Memo[tuple[Func, Names, GradientSpec | None, bool], Races] = Memo(title)
        self.reach: Memo[None, Reach] = Memo(title)
        self.watch: Memo[tuple[tuple[str, str], ...], Races] = Memo(title)
        self.warned: dict[Any, Any] = {}
