"""Subgroup functions on tiles (`ti.simt.subgroup.reduce_add_tiled`): aligned parts of 2**k
invocations, each of which computes a result of its own.

Invocations of a tile exchange values by shuffles. If the device's subgroups are smaller than the
tile, they exchange them through shared memory, between barriers of the workgroup. The generated
code has both forms, under a condition on `subgroup_size`. Workgroups have whole tiles; in
reductions, invocations that pad them have the identity (`opt.mapping.padding`).

- Reductions: butterfly, in k steps.
- Scans: pointer jumping (Hillis and Steele, "Data parallel algorithms", 1986), in k steps.

    HANDLERS["reduce_add_tiled"](cx, v, 5)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.calls.tables import Handler
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Op, Value
from vkchi.ir.op_table.invocation_ops import IDENTITIES, TILE, TILE_BLOCK
from vkchi.ir.ops import BITWISE
from vkchi.lang.simt.subgroup import SCANS, SEGMENTED
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of, shape_of, u32

MOST_LOG2 = 6
LARGEST_BLOCK = 1024  # invocations of a workgroup at most
Read = Callable[[Value, Value], Value]  # (value, lane of the tile) -> the value there
# (lane of the tile, how to read other lanes) -> result
Algorithm = Callable[[Value, Read], Value]


def in_tiles(cx: Context, log2: int, algorithm: Algorithm) -> Value:
    """Emit an algorithm on tiles of 2**log2 invocations, by shuffles and through shared memory."""
    b, last = cx.b, (1 << log2) - 1
    block = cx.block or TILE_BLOCK
    if block % (last + 1):
        raise cx.fail(
            f"tiles of {last + 1} invocations do not divide a workgroup of {block}",
            help=f"ti.loop_config(block_dim={-(-block // (last + 1)) * (last + 1)})",
        )

    def emit(index: str, read: Callable[[Value, Value], Value]) -> Any:
        with b.region() as region:
            own = b.emit(index)
            lane = b.emit("and", own, b.const(last, i32))
            first = b.emit("sub", own, lane)
            b.emit("yield", algorithm(lane, lambda v, k: read(v, b.emit("add", first, k))))
        return region

    def shuffle(v: Value, at: Value) -> Value:
        return b.emit("subgroup_shuffle", v, operator_lowering.cast(cx, at, u32))

    def exchange(v: Value, at: Value) -> Value:
        array = tile_array(cx, scalar_of(v.type))
        b.emit("store", b.emit("elem", array, b.emit("local_index")), v)
        b.emit("barrier")
        found = b.emit("load", b.emit("elem", array, at))
        b.emit("barrier")
        return found

    is_inside = b.emit("gt", b.emit("subgroup_size"), b.const(last, i32))
    by_shuffles, by_memory = emit("subgroup_index", shuffle), emit("local_index", exchange)
    return b.if_(is_inside, by_shuffles, by_memory).results[0]


def tile_array(cx: Context, t: Scalar) -> Value:
    """An array of the workgroup with an element per invocation; one per type and loop."""
    array = Array.of(t, 1, (LARGEST_BLOCK,), None, "shared")
    ops = cx.b.outermost.ops
    known = [op for op in ops if op.kind == "shared" and op.name == TILE and op.type is array]
    if not known:
        known.append(Op("shared", (), None, array, cx.b.span, TILE))
        ops.insert(0, known[0])
    return known[0]


# --- algorithms ----------------------------------------------------------------------------------


def reduction(cx: Context, v: Value, how: str, log2: int) -> Value:
    """`how` of the values of the tile, in each of its invocations."""
    b = cx.b

    def algorithm(lane: Value, read: Read) -> Value:
        t = scalar_of(v.type)
        identity = b.const(IDENTITIES[how](t), t)
        found = b.emit("select", b.emit("has_iteration"), v, identity)
        for step in range(log2):
            other = read(found, b.emit("xor", lane, b.const(1 << step, i32)))
            found = b.emit(how, found, other)
        return found

    return in_tiles(cx, log2, algorithm)


def scan(
    cx: Context, v: Value, how: str, lane: Value, read: Read, log2: int, head: Value | None = None
) -> Value:
    """Inclusive scan; it starts again at invocations in which `head`, an i32, is not 0."""
    b, found = cx.b, v
    zero = b.const(0, i32)
    for step in range(log2):
        offset = b.const(1 << step, i32)
        has_other = b.emit("ge", lane, offset)
        at = b.emit("select", has_other, b.emit("sub", lane, offset), lane)
        other = read(found, at)
        takes = has_other
        if head is not None:
            takes = b.emit("and", has_other, b.emit("eq", head, zero))
            before = b.emit("select", has_other, read(head, at), zero)
            head = b.emit("or", head, before)
        found = b.emit("select", takes, b.emit(how, other, found), found)
    return found


def scanned(cx: Context, v: Value, span: str, how: str, log2: int) -> Value:
    """Inclusive or exclusive scan of a tile."""
    b = cx.b

    def algorithm(lane: Value, read: Read) -> Value:
        found = scan(cx, v, how, lane, read, log2)
        if span == "inclusive":
            return found
        t = scalar_of(v.type)
        one = b.const(1, i32)
        is_first = b.emit("eq", lane, b.const(0, i32))
        at = b.emit("select", is_first, lane, b.emit("sub", lane, one))
        return b.emit("select", is_first, b.const(IDENTITIES[how](t), t), read(found, at))

    return in_tiles(cx, log2, algorithm)


# --- handlers ------------------------------------------------------------------------------------


def by_components(cx: Context, v: Value, emit: Callable[[Value], Value]) -> Value:
    """Return `emit` of a scalar; for a vector or matrix, apply it to each component."""
    shape = shape_of(v.type)
    if not shape:
        return emit(v)
    parts = [emit(part) for part in operator_lowering.components(cx, v)]
    return cx.b.emit("pack", *parts, type=Tensor.of(scalar_of(parts[0].type), shape))


def check_log2(cx: Context, log2: Any, arg: int) -> int:
    if not isinstance(log2, int) or not 0 <= log2 <= MOST_LOG2:
        raise cx.fail(
            f"log2_size must be a compile-time integer from 0 to {MOST_LOG2}",
            kind=KernelTypeError,
            arg=arg,
            help="tiles have 2 ** log2_size invocations: 5 for 32",
        )
    return log2 if cx.in_parallel else 0  # serial code has one invocation


def numbers(cx: Context, name: str, value: Any, how: str) -> Value:
    """The value, as numbers. Raises KernelTypeError for floats in bitwise functions."""
    v = operator_lowering.value(cx, value)
    elem = scalar_of(v.type)
    if how in BITWISE and elem.kind == "f":
        raise cx.fail(f"`{name}` takes an integer", kind=KernelTypeError, label=describe(v.type))
    return operator_lowering.cast(cx, v, cx.options.default_ip) if elem.kind == "b" else v


def _reduce(how: str) -> Handler:
    def emit(cx: Context, value: Any, log2_size: Any) -> Value:
        log2 = check_log2(cx, log2_size, 1)
        v = numbers(cx, f"reduce_{how}_tiled", value, how)
        return by_components(cx, v, lambda part: reduction(cx, part, how, log2))

    return emit


def _scan(span: str, how: str) -> Handler:
    def emit(cx: Context, value: Any, log2_size: Any) -> Value:
        log2 = check_log2(cx, log2_size, 1)
        v = numbers(cx, f"{span}_{how}_tiled", value, how)
        return by_components(cx, v, lambda part: scanned(cx, part, span, how, log2))

    return emit


def _segmented(how: str, *, is_tiled: bool) -> Handler:
    def emit(cx: Context, value: Any, head_flag: Any, log2_size: Any = MOST_LOG2 + 1) -> Value:
        v = numbers(cx, f"segmented_reduce_{how}", value, how)
        flag = operator_lowering.cast(cx, operator_lowering.as_condition(cx, head_flag), i32)
        if is_tiled:
            log2 = check_log2(cx, log2_size, 2)
            return by_components(
                cx, v,
                lambda part: in_tiles(
                    cx, log2, lambda lane, read: scan(cx, part, how, lane, read, log2, flag)
                ),
            )  # fmt: skip
        lane = cx.b.emit("subgroup_index")

        def read(v: Value, at: Value) -> Value:
            return cx.b.emit("subgroup_shuffle", v, operator_lowering.cast(cx, at, u32))

        return by_components(
            cx, v, lambda part: scan(cx, part, how, lane, read, MOST_LOG2 + 1, flag)
        )

    return emit


def _vote(how: str) -> Handler:
    def emit(cx: Context, predicate: Any, log2_size: Any) -> Value:
        log2 = check_log2(cx, log2_size, 1)
        v = operator_lowering.cast(cx, operator_lowering.as_condition(cx, predicate), i32)
        return reduction(cx, v, how, log2)

    return emit


def _all_equal(cx: Context, value: Any, log2_size: Any) -> Value:
    log2, b = check_log2(cx, log2_size, 1), cx.b
    v = operator_lowering.value(cx, value)
    if scalar_of(v.type).kind == "b":
        v = operator_lowering.cast(cx, v, i32)
    same: Value = b.const(1, i32)
    for part in operator_lowering.components(cx, v):

        def of_first(lane: Value, read: Read, v: Value = part) -> Value:
            return read(v, b.const(0, i32))

        first = in_tiles(cx, log2, of_first)
        is_same = operator_lowering.cast(cx, b.emit("eq", part, first), i32)
        same = b.emit("and", same, is_same)
    return reduction(cx, same, "and", log2)


HANDLERS: dict[str, Handler] = {
    **{f"reduce_{how}_tiled": _reduce(how) for how in SEGMENTED},
    **{
        f"{span}_{how}_tiled": _scan(span, how)
        for span in ("inclusive", "exclusive")
        for how in SCANS
    },
    **{f"segmented_reduce_{how}_tiled": _segmented(how, is_tiled=True) for how in SEGMENTED},
    **{f"segmented_reduce_{how}": _segmented(how, is_tiled=False) for how in SEGMENTED},
    "all_true_tiled": _vote("and"),
    "any_true_tiled": _vote("or"),
    "all_equal_tiled": _all_equal,
}
