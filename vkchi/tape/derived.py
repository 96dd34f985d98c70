"""What tapes and debug mode make of a kernel, each once per plan.

Owns: `Derived`, a table for each kind of thing. Must not know: how any of it is made.

    call.plan.derived.gradients.find((names, settled, constant), make)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vkchi.compiling import compiling

if TYPE_CHECKING:
    from vkchi.analysis.footprint import Footprint
    from vkchi.autodiff.instrument import Instrumented
    from vkchi.autodiff.primal import Request
    from vkchi.autodiff.reaching import Reach
    from vkchi.ir.core import Func
    from vkchi.races.finder import Races
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.variants import ForwardPlan, Variant

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

    def __init__(self, title: str) -> None:
        self.footprints: Memo[Names, Footprint] = Memo(title)
        self.gradients: Memo[tuple[Request, bool], GradientPlan] = Memo(title)
        self.forward: Memo[tuple[str, Names], ForwardPlan] = Memo(title)
        self.marked: Memo[tuple[Names, Names], tuple[Instrumented, Variant]] = Memo(title)
        self.watched: Memo[tuple[Names, Func], tuple[Instrumented, Variant]] = Memo(title)
        self.races: Memo[tuple[Func | None, Names, bool], Races] = Memo(title)
        self.races_in_run: Memo[tuple[Func, Names, Func | None, bool], Races] = Memo(title)
        self.reach: Memo[None, Reach] = Memo(title)
        self.stores_constants: Memo[None, bool] = Memo(title)
        self.watch: Memo[tuple[tuple[str, str], ...], Races] = Memo(title)
        self.warned: dict[Any, Any] = {}
