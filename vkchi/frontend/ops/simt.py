"""`ti.simt` in kernels: shared arrays, barriers, indices of invocations, subgroup operations.

CUDA's names for subgroup operations are in `warp_calls`, functions of tiles in `tiles`.
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.calls.tables import CALLS, CallHandler, Handler
from vkchi.frontend.ops import operator_lowering, tiles, warp_calls
from vkchi.frontend.ops.tiles import by_components
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.operands import dtype_of, known_int
from vkchi.frontend.values.references import ArrayRef, Context
from vkchi.frontend.values.trees import StructOfArrays
from vkchi.ir.core import Value
from vkchi.ir.ops import BITWISE
from vkchi.lang.simt import block, grid, subgroup
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of, u32
from vkchi.types.core import INTEGERS
from vkchi.types.struct_types import StructType


def make_shared(cx: Context, shape: Any, dtype: Any) -> Any:
    """Lower `ti.simt.block.SharedArray(shape, dtype)`.

    Raises KernelTypeError if the extents are not positive constants.
    """
    extents = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if not extents or any((known_int(n) or 0) < 1 for n in extents):
        raise cx.fail(
            "a shared array's shape must be positive compile-time constants",
            kind=KernelTypeError,
            help="SharedArray((64,), ti.f32)",
            constant=extents,
        )
    return shared_of(cx, tuple(map(int, extents)), dtype)


def shared_of(cx: Context, shape: tuple[int, ...], dtype: Any) -> ArrayRef | StructOfArrays:
    """Return an array in workgroup memory; for structs, one per member."""
    if not isinstance(dtype, StructType):
        return ArrayRef(new_shared(cx, shape, dtype_of(cx, dtype)))
    members = {name: shared_of(cx, shape, t) for name, t in dtype.members.items()}
    return StructOfArrays(members, dtype.methods, dtype)


def new_shared(cx: Context, shape: tuple[int, ...], elem: Scalar | Tensor) -> Value:
    t = Array.of(elem, len(shape), shape, None, "shared")
    return cx.b.emit("shared", type=t, name="SharedArray")


def _effect(kind: str) -> Handler:
    def emit(cx: Context) -> None:
        cx.b.emit(kind)

    return emit


def _query(kind: str) -> Handler:
    def emit(cx: Context) -> Value:
        return cx.b.emit(kind)

    return emit


# --- subgroups -----------------------------------------------------------------------------------


def _reduction(name: str) -> Handler:
    """Make the handler of a subgroup reduction such as `reduce_add`, or of a scan.

    Bitwise reductions raise KernelTypeError for floats; the others cast bools to default_ip.
    """
    span, _, how = name.rpartition("_")
    kind = f"subgroup_{how}" if span == "reduce" else f"subgroup_{name}"

    def emit(cx: Context, value: Any) -> Value:
        v = operator_lowering.value(cx, value)
        elem = scalar_of(v.type)
        if how in BITWISE and elem.kind == "f":
            label = describe(v.type)
            raise cx.fail(f"`{name}` takes an integer", kind=KernelTypeError, label=label)
        if elem.kind == "b" and how not in BITWISE:
            v = operator_lowering.cast(cx, v, cx.options.default_ip)
        return by_components(cx, v, lambda part: cx.b.emit(kind, part))

    return emit


def exchange(cx: Context, name: str, value: Any, at: Any) -> Value:
    """Emit the op `subgroup_<name>` on `value`, by component; `at` is a lane, offset or mask.

    Raises KernelTypeError if `at` is not an integer.
    """
    k, v = operator_lowering.value(cx, at), operator_lowering.value(cx, value)
    if k.type.kind not in INTEGERS:
        raise cx.fail(
            f"the second argument of `{name}` must be an integer",
            kind=KernelTypeError,
            label=describe(k.type),
            arg=1,
        )
    which = operator_lowering.cast(cx, k, u32)
    return by_components(cx, v, lambda part: cx.b.emit(f"subgroup_{name}", part, which))


def _first(cx: Context, value: Any) -> Value:
    v = operator_lowering.value(cx, value)
    return by_components(cx, v, lambda part: cx.b.emit("subgroup_first", part))


def _vote(kind: str) -> Handler:
    def emit(cx: Context, cond: Any) -> Value:
        return cx.b.emit(kind, operator_lowering.as_condition(cx, cond))

    return emit


def _ballot(kind: str) -> Handler:
    return lambda cx, predicate: cx.b.emit(kind, operator_lowering.as_condition(cx, predicate))


def _ballot_first(cx: Context, predicate: Any, n: Any) -> Value:
    if not isinstance(n, int) or not 0 <= n <= 32:
        raise cx.fail("n must be a compile-time integer from 0 to 32", kind=KernelTypeError, arg=1)
    bits = cx.b.emit("subgroup_ballot", operator_lowering.as_condition(cx, predicate))
    return cx.b.emit("and", bits, cx.b.const((1 << n) - 1, u32))


def _log2_size(cx: Context) -> Value:
    zeros = cx.b.emit("clz", cx.b.emit("subgroup_size"))
    return cx.b.emit("sub", cx.b.const(31, i32), zeros)


def _all_equal(cx: Context, value: Any) -> Value:
    parts = operator_lowering.components(cx, operator_lowering.value(cx, value))
    found = [cx.b.emit("subgroup_all_equal", part) for part in parts]
    result = found[0]
    for other in found[1:]:
        result = cx.b.emit("and", result, other)
    return result


# --- workgroups ----------------------------------------------------------------------------------


def count_in_group(cx: Context, cond: Value) -> Value:
    """Return the number of invocations of the workgroup in which cond is true, as u32.

    All invocations must reach it. The last barrier keeps the next count from starting while this
    one is read.
    """
    b = cx.b
    zero, none = b.const(0, i32), b.const(0, u32)
    place = b.emit("elem", new_shared(cx, (1,), u32), zero)
    with b.when(b.emit("eq", b.emit("local_index"), zero)):
        b.emit("store", place, none)
    b.emit("barrier")
    b.emit("atomic_add", place, b.emit("select", cond, b.const(1, u32), none))
    b.emit("barrier")
    count = b.emit("load", place)
    b.emit("barrier")
    return count


def _sync_all(cx: Context, predicate: Any) -> Value:
    failing = cx.b.emit("not", operator_lowering.as_condition(cx, predicate))
    count = count_in_group(cx, failing)
    return operator_lowering.cast(cx, cx.b.emit("eq", count, cx.b.const(0, u32)), i32)


def _sync_any(cx: Context, predicate: Any) -> Value:
    count = count_in_group(cx, operator_lowering.as_condition(cx, predicate))
    return operator_lowering.cast(cx, cx.b.emit("ne", count, cx.b.const(0, u32)), i32)


def _sync_count(cx: Context, predicate: Any) -> Value:
    return operator_lowering.cast(
        cx, count_in_group(cx, operator_lowering.as_condition(cx, predicate)), i32
    )


def lane_mask(name: str) -> Handler:
    """Handler of `lanemask_lt` and others: the bits of the lanes in a relation to a lane."""

    def emit(cx: Context, lane: Any) -> Value:
        b = cx.b
        at = b.emit("shl", b.const(1, u32), operator_lowering.value(cx, lane, u32))
        below = b.emit("sub", at, b.const(1, u32))
        if name == "lanemask_eq":
            return at
        is_inclusive = name in ("lanemask_le", "lanemask_gt")
        mask = b.emit("or", at, below) if is_inclusive else below
        return b.emit("not", mask) if name in ("lanemask_gt", "lanemask_ge") else mask

    return emit


# --- the table -----------------------------------------------------------------------------------

_SUBGROUP: dict[str, Handler] = {
    "barrier": _effect("subgroup_barrier"),
    "memory_barrier": _effect("fence"),
    "group_size": _query("subgroup_size"),
    "log2_group_size": _log2_size,
    "invocation_id": _query("subgroup_index"),
    "elect": _query("subgroup_elect"),
    "all_true": _vote("subgroup_all"),
    "any_true": _vote("subgroup_any"),
    "all_equal": _all_equal,
    "ballot": _ballot("subgroup_ballot"),
    "ballot64": _ballot("subgroup_ballot_wide"),
    "ballot_first_n": _ballot_first,
    "broadcast_first": _first,
    "broadcast": lambda cx, value, index: exchange(cx, "broadcast", value, index),
    "shuffle": lambda cx, value, index: exchange(cx, "shuffle", value, index),
    "shuffle_up": lambda cx, value, offset: exchange(cx, "shuffle_up", value, offset),
    "shuffle_down": lambda cx, value, offset: exchange(cx, "shuffle_down", value, offset),
    "shuffle_xor": lambda cx, value, mask: exchange(cx, "shuffle_xor", value, mask),
    **{name: _reduction(name) for name in subgroup.REDUCTIONS},
    **{name: lane_mask(name) for name in subgroup.LANE_MASKS},
    **tiles.HANDLERS,
}
_HANDLERS: dict[object, Handler] = {
    block.SharedArray: make_shared,
    block.sync: _effect("barrier"),
    block.mem_sync: _effect("fence"),
    block.thread_idx: _query("local_index"),
    block.global_thread_idx: _query("thread_index"),
    block.sync_all_nonzero: _sync_all,
    block.sync_any_nonzero: _sync_any,
    block.sync_count_nonzero: _sync_count,
    grid.memfence: _effect("fence"),
    **{subgroup.FUNCTIONS[name]: handler for name, handler in _SUBGROUP.items()},
    **warp_calls.HANDLERS,
}

CALLS.update({fn: CallHandler(handler) for fn, handler in _HANDLERS.items()})
