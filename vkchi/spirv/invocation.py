"""Indices of an invocation, workgroup barriers, and early return.

On a grid of one axis, the index of an invocation in the dispatch is `(group.y * groups.x + group.x)
* block + local`. The y term is omitted if the grid is known to fit x.

On a grid of several axes, an invocation has the hardware's index along each axis. If there may be
several dispatches, the `base` of the dispatch is added. Its index in the dispatch is the number of
its iteration, with x as the fastest component.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.errors import InternalError
from vkchi.ir.core import Op
from vkchi.spirv import spec
from vkchi.spirv.spec import BuiltIn, Decoration, Scope, Semantics
from vkchi.target.shader import split_groups
from vkchi.types import i32, u1, u32

if TYPE_CHECKING:
    from vkchi.spirv.emitter import Emitter


# --- indices -----------------------------------------------------------------------------------


def builtin(em: Emitter, number: int, size: int = 3) -> int:
    """Return the id of a built-in input, loaded once: a vector of u32 or, for size 1, a u32."""
    key = (0, number)
    found = em.onces.get(key)
    if found is None:
        t_id = em.type_id(u32)
        if size > 1:
            t_id = em.m.type(spec.OpTypeVector, t_id, size)
        variable = em.m.variable(spec.StorageClass.Input, t_id)
        em.m.decorate(variable, Decoration.BuiltIn, number)
        found = em.onces[key] = em.once(spec.OpLoad, t_id, variable)
    return found


def builtin_part(em: Emitter, number: int, axis: int) -> int:
    """Return the id of one u32 component of a built-in vector."""
    vector = builtin(em, number)
    return em.once(spec.OpCompositeExtract, em.type_id(u32), vector, axis)


def to_signed(em: Emitter, value: int) -> int:
    return em.once(spec.OpBitcast, em.type_id(i32), value)


def needs_two_dimensions(em: Emitter) -> bool:
    """True if a launch on a grid of one axis may need more workgroups than fit the x dimension."""
    if len(em.grid.axes) != 1:
        return False
    (axis,) = em.grid.axes
    if axis.length[0] != "const":
        return True
    return split_groups(-(-int(axis.length[1]) // axis.block))[1] > 1


def require_single_axis(em: Emitter) -> None:
    """Raise InternalError on a grid of several axes, whose workgroups have no single index."""
    if len(em.grid.axes) > 1:
        raise InternalError("a workgroup on a grid of several axes has no number")


def group_id(em: Emitter) -> int:
    """Return the id of the workgroup's index in the dispatch, as u32.

    Raises InternalError on a grid of several axes.
    """
    require_single_axis(em)
    x = builtin_part(em, BuiltIn.WorkgroupId, 0)
    if not needs_two_dimensions(em):
        return x
    return em.once(spec.OpIAdd, em.type_id(u32), _row_start(em), x)


def _row_start(em: Emitter) -> int:
    width = builtin_part(em, BuiltIn.NumWorkgroups, 0)
    y = builtin_part(em, BuiltIn.WorkgroupId, 1)
    return em.once(spec.OpIMul, em.type_id(u32), y, width)


def index_along(em: Emitter, axis: int) -> int:
    """Return the id of the invocation's index along a grid axis, as u32; includes the dispatch's
    base."""
    if len(em.grid.axes) == 1:
        return global_id(em)
    here = builtin_part(em, BuiltIn.GlobalInvocationId, axis)
    if not em.grid.axes[axis].has_base:
        return here
    return em.once(spec.OpIAdd, em.type_id(u32), em.arguments.base(axis), here)


def global_id(em: Emitter) -> int:
    """Return the id of the invocation's index in the dispatch, as u32; 0 on a serial grid.

    On a grid of several axes, it is the number of the iteration in the whole loop.
    """
    if em.grid.is_serial:
        return em.const(u32, 0)
    if len(em.grid.axes) > 1:
        word = em.type_id(u32)
        *faster, slowest = range(len(em.grid.axes))
        number = index_along(em, slowest)
        for axis in reversed(faster):
            number = em.once(spec.OpIMul, word, number, em.arguments.count(axis))
            number = em.once(spec.OpIAdd, word, number, index_along(em, axis))
        return number
    x = builtin_part(em, BuiltIn.GlobalInvocationId, 0)
    if not needs_two_dimensions(em):
        return x
    block = em.const(u32, em.grid.block)
    before = em.once(spec.OpIMul, em.type_id(u32), _row_start(em), block)
    return em.once(spec.OpIAdd, em.type_id(u32), before, x)


def lower_thread_index(em: Emitter, op: Op) -> tuple[int, ...]:
    if em.grid.is_serial:
        return (em.index(0),)
    return (to_signed(em, global_id(em)),)


def lower_local_index(em: Emitter, op: Op) -> tuple[int, ...]:
    return (to_signed(em, builtin(em, BuiltIn.LocalInvocationIndex, 1)),)


def lower_group_index(em: Emitter, op: Op) -> tuple[int, ...]:
    return (to_signed(em, group_id(em)),)


def lower_group_size(em: Emitter, op: Op) -> tuple[int, ...]:
    return (em.index(em.grid.block),)


def lower_grid_size(em: Emitter, op: Op) -> tuple[int, ...]:
    """Return the number of launched invocations, which may exceed the number of iterations.

    Raises InternalError on a grid of several axes.
    """
    require_single_axis(em)
    groups, word = builtin_part(em, BuiltIn.NumWorkgroups, 0), em.type_id(u32)
    if needs_two_dimensions(em):
        rows = builtin_part(em, BuiltIn.NumWorkgroups, 1)
        groups = em.once(spec.OpIMul, word, groups, rows)
    size = em.once(spec.OpIMul, word, groups, em.const(u32, em.grid.block))
    return (to_signed(em, size),)


# --- synchronization -----------------------------------------------------------------------------

BOTH_MEMORIES = Semantics.AcquireRelease | Semantics.UniformMemory | Semantics.WorkgroupMemory


def lower_barrier(em: Emitter, op: Op) -> None:
    """Emit a workgroup barrier that makes writes to buffers and workgroup memory visible."""
    group = em.const(u32, Scope.Workgroup)
    em.act(spec.OpControlBarrier, group, group, em.const(u32, BOTH_MEMORIES))


def lower_fence(em: Emitter, op: Op) -> None:
    """Emit a memory barrier at device scope."""
    device = em.const(u32, Scope.Device)
    em.act(spec.OpMemoryBarrier, device, em.const(u32, BOTH_MEMORIES))


def lower_exit_invocation(em: Emitter, op: Op) -> None:
    """Emit a return as an always-taken branch so that no block is unreachable."""
    label, merge = em.m.new_id(), em.m.new_id()
    em.act(spec.OpSelectionMerge, merge, 0)
    em.act(spec.OpBranchConditional, em.const(u1, 1), label, merge)
    em.begin_block(label)
    em.act(spec.OpReturn)
    em.begin_block(merge)
