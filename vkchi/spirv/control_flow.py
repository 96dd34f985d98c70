"""Lowering of structured control flow to SPIR-V blocks.

A region is emitted into the current block. Afterwards `em.block` is the block in which the region
ended: the predecessor for a phi. Carried values and results are one OpPhi per scalar component.
Pointers are never carried. `[x]` is the block with label x:

    if:      [now]  SelectionMerge merge;  BranchConditional c then else
             [then] ...  Branch merge        [else] ...  Branch merge
             [merge] result = Phi(then value, end of then, else value, end of else)
             A region that has only its yield gets no block: the branch targets merge, whose phi
             then names the block `now`. If both are such, each result is an OpSelect.
    for:     [now]  Branch header
             [header] i = Phi(begin, now, i', next), carried likewise;  LoopMerge merge next;
                      Branch check
             [check] BranchConditional (i < end) body merge
             [body] ...  Branch next          [next] i' = i + 1;  Branch header
             [merge] the results are the carried phis, which dominate it
    while:   the same, with the first region in `check` and no index
    parallel: along each axis, i = begin + invocation index; the last axis is the grid's x. If any
             axis has a guard, the body is in a selection on `index < count` of all such axes.
    yield:   no code; the lowering of the region reads its arguments
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op, Region, Value
from vkchi.ir.ops import NOUNROLL, axes_of
from vkchi.spirv import spec
from vkchi.spirv.invocation import index_along
from vkchi.types import Scalar, i32, scalar_of, u1

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter

NO_HINT, DONT_UNROLL = 0, 2
LESS = {"i": spec.OpSLessThan, "u": spec.OpULessThan}


def is_bare(region: Region) -> bool:
    return len(region.ops) == 1


def lower_yield(em: Emitter, op: Op) -> None:
    pass


def _yielded(em: Emitter, region: Region) -> list[int]:
    """Return the scalar ids that a region yields, concatenated over all values."""
    return [k for v in region.yielded for k in em.ids[v]]


def _assign(em: Emitter, values: tuple[Value, ...], flat: list[int]) -> None:
    at = 0
    for v in values:
        size = getattr(v.type, "size", 1)
        em.ids[v] = tuple(flat[at : at + size])
        at += size


def _scalar_types(values: tuple[Value, ...]) -> list[Scalar]:
    return [scalar_of(v.type) for v in values for _ in range(getattr(v.type, "size", 1))]


# --- if ------------------------------------------------------------------------------------------


def lower_if(em: Emitter, op: Op) -> None:
    cond, (then, orelse) = em.ids[op.args[0]][0], op.regions
    if is_bare(then) and is_bare(orelse):
        _select_results(em, op, cond)
        return
    merge = em.m.new_id()
    labels = [merge if is_bare(region) else em.m.new_id() for region in op.regions]
    em.act(spec.OpSelectionMerge, merge, NO_HINT)
    em.act(spec.OpBranchConditional, cond, *labels)
    before = em.block
    ends = []
    for label, region in zip(labels, op.regions, strict=True):
        if label == merge:
            ends.append(before)
            continue
        em.begin_block(label)
        em.lower(region.ops)
        em.act(spec.OpBranch, merge)
        ends.append(em.block)
    em.begin_block(merge)
    columns = zip(_scalar_types(op.results), _yielded(em, then), _yielded(em, orelse), strict=True)
    flat = [em.op(spec.OpPhi, em.type_id(t), a, ends[0], b, ends[1]) for t, a, b in columns]
    _assign(em, op.results, flat)


def _select_results(em: Emitter, op: Op, cond: int) -> None:
    then, orelse = (_yielded(em, region) for region in op.regions)
    columns = zip(_scalar_types(op.results), then, orelse, strict=True)
    flat = [em.op(spec.OpSelect, em.type_id(t), cond, a, b) for t, a, b in columns]
    _assign(em, op.results, flat)


# --- loops ---------------------------------------------------------------------------------------


class LoopBlocks:
    """Blocks shared by `for` and `while`: header with phis, check, body, next, merge."""

    __slots__ = ("body", "em", "header", "merge", "next", "patches", "phis")

    def __init__(
        self, em: Emitter, types: list[Scalar], first: list[int], hint: int = NO_HINT
    ) -> None:
        """Emit the blocks up to `check`, which becomes the current one and has no test yet.

        `types` and `first` are the carried components, for a `for` with its index first. `phis` are
        their ids.
        """
        self.em = em
        before = em.block
        self.header, self.next, self.merge = em.m.new_id(), em.m.new_id(), em.m.new_id()
        self.body = em.m.new_id()
        em.act(spec.OpBranch, self.header)
        em.begin_block(self.header)
        self.phis: list[int] = []
        self.patches: list[int] = []
        for t, value in zip(types, first, strict=True):
            self.phis.append(em.op(spec.OpPhi, em.type_id(t), value, before, 0, self.next))
            self.patches.append(len(em.code) - 2)
        check = em.m.new_id()
        em.act(spec.OpLoopMerge, self.merge, self.next, hint)
        em.act(spec.OpBranch, check)
        em.begin_block(check)

    def enter(self, cond: int) -> None:
        """End `check` with a branch to the body if cond holds."""
        self.em.act(spec.OpBranchConditional, cond, self.body, self.merge)
        self.em.begin_block(self.body)

    def begin_next(self) -> None:
        self.em.act(spec.OpBranch, self.next)
        self.em.begin_block(self.next)

    def close(self, following: list[int]) -> None:
        """End `next` with a branch to the header, and begin the block after the loop.

        `following` are the carried components of the next iteration, for the phis.
        """
        em = self.em
        for at, value in zip(self.patches, following, strict=True):
            em.code[at] = value
        em.act(spec.OpBranch, self.header)
        em.begin_block(self.merge)


def lower_for(em: Emitter, op: Op) -> None:
    begin, end, *first = op.args
    region = op.regions[0]
    t = scalar_of(begin.type)
    types = [t, *_scalar_types(op.results)]
    hint = DONT_UNROLL if op.attr == NOUNROLL else NO_HINT
    loop = LoopBlocks(em, types, [em.ids[begin][0], *[k for v in first for k in em.ids[v]]], hint)
    i, carried = loop.phis[0], loop.phis[1:]
    loop.enter(em.op(LESS[t.kind], em.type_id(u1), i, em.ids[end][0]))
    _assign(em, region.params, loop.phis)
    em.lower(region.ops)
    following = _yielded(em, region)
    loop.begin_next()
    after = em.op(spec.OpIAdd, em.type_id(t), i, em.number(t, 1))
    loop.close([after, *following])
    _assign(em, op.results, carried)


def lower_while(em: Emitter, op: Op) -> None:
    cond, body = op.regions
    first = [k for v in op.args for k in em.ids[v]]
    loop = LoopBlocks(em, _scalar_types(op.results), first)
    _assign(em, cond.params, loop.phis)
    em.lower(cond.ops)
    loop.enter(_yielded(em, cond)[0])
    _assign(em, body.params, loop.phis)
    em.lower(body.ops)
    following = _yielded(em, body)
    loop.begin_next()
    loop.close(following)
    _assign(em, op.results, loop.phis)


# --- parallel ----------------------------------------------------------------------------------


def lower_parallel(em: Emitter, op: Op) -> None:
    axes, grid = axes_of(op), em.grid.axes
    if len(grid) != len(axes):
        raise InternalError(f"a grid of {len(grid)} axes cannot run a loop over {len(axes)}")
    numbers = [index_along(em, k) for k in range(len(grid))]
    inside = [
        em.op(spec.OpULessThan, em.type_id(u1), numbers[k], em.arguments.count(k))
        for k in range(len(grid))
        if grid[k].guard
    ]
    label, merge = em.m.new_id(), em.m.new_id()
    if inside:
        truth = em.type_id(u1)
        condition = reduce(lambda x, y: em.op(spec.OpLogicalAnd, truth, x, y), inside)
        em.act(spec.OpSelectionMerge, merge, NO_HINT)
        em.act(spec.OpBranchConditional, condition, label, merge)
        em.begin_block(label)
    for axis, number in zip(axes, reversed(numbers), strict=True):
        index, begin = em.once(spec.OpBitcast, em.type_id(i32), number), em.ids[axis.begin][0]
        if em.known(begin) != 0:
            index = em.op(spec.OpIAdd, em.type_id(i32), begin, index)
        em.ids[axis.param] = (index,)
    em.lower(op.regions[0].ops)
    if inside:
        em.act(spec.OpBranch, merge)
        em.begin_block(merge)
