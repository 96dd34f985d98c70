"""What lowering knows of cells of sparse blocks: part of its state.

Owns: `Cells`. Must not know: how cells are marked and asked (`activity`).

    with cx.cells.own():
        ...                 # code that works on the numbers of blocks themselves
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vkchi.frontend.scope import Activation
from vkchi.ir.core import Value
from vkchi.tuples import NamedTuple


class Known(NamedTuple):
    """Elements, of nodes with one `spot`, whose cells are active: a loop is there. That holds in
    the function and loop that it was said in: rounds of loops inside may come after a
    deactivation."""

    spot: Any
    indices: tuple[Value, ...]
    act: Activation
    depth: int


class Cells:
    """`marked`: blocks whose numbers changed in the loop that is being lowered; `is_own`: the code
    is about cells itself, and is neither checked nor marks."""

    __slots__ = ("is_own", "known", "marked")

    def __init__(self) -> None:
        self.is_own = False
        self.known: tuple[Known, ...] = ()
        self.marked: set[Any] = set()

    def is_known(self, act: Activation, node: Any, indices: Sequence[Value]) -> bool:
        """Whether the element's cells are known to be active."""
        return Known(node.spot, tuple(indices), act, len(act.loops)) in self.known

    @contextmanager
    def at(self, act: Activation, node: Any, indices: Sequence[Value]) -> Iterator[None]:
        """While a loop's body is lowered that runs where this element's cells are active."""
        outer = self.known
        self.known = inner = (*outer, Known(node.spot, tuple(indices), act, len(act.loops)))
        yield
        self.known = outer if self.known is inner else ()

    @contextmanager
    def own(self) -> Iterator[None]:
        """While code about cells is lowered."""
        outer, self.is_own = self.is_own, True
        yield
        self.is_own = outer
