"""Lowering state about cells of sparse blocks: which are active, and which blocks were changed.

The functions that activate and test cells are in `cell_activity`.

    with cx.cells.own():
        ...                 # code that accesses the activity numbers themselves
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vkchi.frontend.state.scope import Activation
from vkchi.ir.core import Value
from vkchi.tuples import NamedTuple


class ActiveElement(NamedTuple):
    """An element of a sparse block whose cells are active because a loop over its node is at it.

    `spot` is equal for nodes whose elements at equal indices are in the same cells. `depth` is the
    loop depth: iterations of an inner loop may come after a deactivation, so the fact does not hold
    there.
    """

    spot: Any
    indices: tuple[Value, ...]
    act: Activation
    depth: int


class ActiveCells:
    """Activity facts of the current loop.

    - `known`: elements that are known to be active
    - `marked`: blocks whose activity numbers the loop may change
    - `is_own`: true in code about cells itself, which neither checks nor marks cells
    """

    __slots__ = ("is_own", "known", "marked")

    def __init__(self) -> None:
        self.is_own = False
        self.known: tuple[ActiveElement, ...] = ()
        self.marked: set[Any] = set()

    def is_known(self, act: Activation, node: Any, indices: Sequence[Value]) -> bool:
        return ActiveElement(node.spot, tuple(indices), act, len(act.loops)) in self.known

    @contextmanager
    def at(self, act: Activation, node: Any, indices: Sequence[Value]) -> Iterator[None]:
        """Assume this element's cells active while the body of a loop over the node is lowered.

        Facts of outer loops hold again afterwards, unless the body dropped all facts.
        """
        outer = self.known
        self.known = inner = (*outer, ActiveElement(node.spot, tuple(indices), act, len(act.loops)))
        yield
        self.known = outer if self.known is inner else ()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Neither check nor mark cells inside this context."""
        outer, self.is_own = self.is_own, True
        yield
        self.is_own = outer
