"""Loops `for j in grid.near(p)` in kernels: a loop over candidates, with a test in its body."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from vkchi.algorithms.array_kernels import library_func
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.flow import lower_unless
from vkchi.frontend.control.spaces import LoopSpace
from vkchi.frontend.state.scope import VARIABLE, Var
from vkchi.frontend.values.kinds import Kind, all_but
from vkchi.ir.core import Region, Value
from vkchi.spatial.hash_grid import HashGrid


class NearLoop:
    """The loop space of `grid.near(p)`, as the frontend's guard of a loop over its candidates."""

    def __init__(self, grid: HashGrid, p: Any, found: Sequence[Any]) -> None:
        self.grid, self.p = grid, p
        self.count, *self.rows = found

    def ask_copy(self, cx: Lowering) -> None:
        pass

    def lower(self, cx: Lowering, indices: Sequence[Value], body: Callable[[], Any]) -> None:
        """Lower an iteration's body under the distance test, with the loop variable set to the
        point's index."""
        (target,) = cx.act.blocks[-1]
        slot, is_near = self._test(cx, indices[0])
        skips = Var("", cx.b.emit("not", is_near), VARIABLE, len(cx.frames))

        def lower_near() -> None:
            with cx.act.block():
                cx.declare(target, self._index(cx, slot))
                body()

        lower_unless(cx, [skips], lower_near)

    def test(self, cx: Lowering, indices: list[Value]) -> tuple[Any, Any]:
        """Return slot and distance test of a candidate, and replace its number in `indices` by the
        point's index. Python mode, which lowers no loop, calls this."""
        slot, is_near = self._test(cx, indices[0])
        indices[0] = self._index(cx, slot)
        return slot, is_near

    def _test(self, cx: Lowering, k: Value) -> Any:
        return cx.call(HashGrid.test, (self.grid, k, self.p, *self.rows), {})

    def _index(self, cx: Lowering, slot: Value) -> Any:
        return cx.call(load_index, (self.grid.order, slot), {})

    def freeze(self, cx: Lowering, body: Region) -> Region:
        return body


@library_func
def load_index(order: Any, slot: Any) -> Any:
    return order[slot]


class NearKind(Kind, of=[NearLoop]):
    is_deferred = True
    noun = "a loop space of near points"
    helps = all_but("loop", help="loop over it: for j in grid.near(p)")

    def space(self, cx: Any, x: Any) -> LoopSpace:
        return LoopSpace(((0, x.count),), "range", guard=x)


class GridKind(Kind, of=[HashGrid]):
    noun = "a hash grid"
    helps = all_but(help="loop over the points near p: for j in grid.near(p)")

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        if name != "near":
            return NotImplemented
        args, kwargs = cx.tables.arguments(cx, n)
        p = cx.call(HashGrid.near, (x, *args), kwargs)
        return NearLoop(x, p, cx.call(HashGrid.find_rows, (x, p), {}))
