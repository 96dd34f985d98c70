"""Targets of conversions, and cautions and decisions that the compiler completes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from vkchi.frontend.syntax.source import Source
from vkchi.ir.core import Op, Value
from vkchi.span import Span
from vkchi.target.remarks import Caution, Decision, LoopCaution
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple


class ConversionTarget(NamedTuple):
    """The target of a conversion, for cautions about it.

    `words` describe it, or are its expression; by default the source of the current expression
    does. For a variable `name`, `origin` is its declaration and `source` that of its function.
    `help` replaces the usual help.
    """

    words: str | ast.expr = ""
    help: str = ""
    name: str = ""
    origin: Span | None = None
    source: Source | None = None


UNNAMED = ConversionTarget()


class PendingCaution(NamedTuple):
    """A caution that range analysis may drop.

    `op` is the cast of an integer. It loses nothing if its operand is proved to be in range.
    Without `op`, the caution stays.
    """

    caution: Caution
    op: Op | None = None


class PendingDecision(NamedTuple):
    """A decision about a loop whose trip count the compiler fills in.

    - axes, step: the loop's iteration space; None for a `while`.
    - is_warned: warn if the loop is long.
    """

    decision: Decision
    axes: Sequence[tuple[int | Value, int | Value]] | None = None
    step: int | Value = 1
    is_warned: bool = False

    def caution(self, trips: Count) -> LoopCaution:
        """Return the warning about the loop, whose trip count is `trips`."""
        found = self.decision
        assert found.span is not None
        runs = "visits its {count} cells" if found.is_sparse else "runs its {count} iterations"
        sentence = f"this loop {runs} serially: {found.reason}"
        caution = Caution("serial", sentence, found.help, found.span, found.origin)
        return LoopCaution(trips, caution)
