"""`ti.simt.warp` in kernels: CUDA's warp functions, implemented by subgroup operations.

A warp is a subgroup of the device's size (`ti.simt.subgroup.group_size()`). A subgroup of more than
32 invocations is divided into aligned warps of 32 (AMD's GCN has 64 and no other size). Bit k of a
mask is invocation k. SPIR-V leaves shuffles beyond the first or last invocation undefined. As in
CUDA, `shfl_up_*` and `shfl_down_*` return the invocation's own value there. In warps of fewer than
32 invocations, `shfl_sync_*` and `shfl_xor_*` with a source beyond the last one stay undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.frontend.calls.tables import Handler
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Param, Value
from vkchi.lang.simt import warp
from vkchi.types import Scalar, f32, i32, scalar_of, u32

WARP = 32  # invocations, at most


def _index(cx: Context) -> Value:
    return operator_lowering.cast(cx, cx.b.emit("subgroup_index"), u32)


def _lane(cx: Context) -> Value:
    return _in_warp(cx, _index(cx))


def _in_warp(cx: Context, k: Value) -> Value:
    return cx.b.emit("and", k, cx.b.const(WARP - 1, u32))


def _size(cx: Context) -> Value:
    size = operator_lowering.cast(cx, cx.b.emit("subgroup_size"), u32)
    return cx.b.emit("min", size, cx.b.const(WARP, u32))


def _of_warp(cx: Context, k: Value) -> Value:
    """Return the subgroup index of invocation k of this warp."""
    first = cx.b.emit("and", _index(cx), cx.b.const(0xFFFFFFFF ^ (WARP - 1), u32))
    return cx.b.emit("or", first, _in_warp(cx, k))


def _is_in(cx: Context, mask: Any) -> Value:
    shifted = cx.b.emit("shr", as_mask(cx, mask), _lane(cx))
    one = cx.b.const(1, u32)
    return cx.b.emit("eq", cx.b.emit("and", shifted, one), one)


def as_mask(cx: Context, mask: Any) -> Value:
    """Return a mask as u32; `-1` and `0xFFFFFFFF` both set all bits."""
    if isinstance(mask, int):
        return cx.b.const(mask & 0xFFFFFFFF, u32)
    return operator_lowering.cast(cx, mask, u32)


def _active(cx: Context) -> Value:
    return cx.b.emit("warp_ballot", operator_lowering.as_condition(cx, True))


# --- votes ---------------------------------------------------------------------------------------


def _holds_in_some(cx: Context, mask: Any, cond: Value) -> Value:
    bits = cx.b.emit("warp_ballot", cx.b.emit("and", _is_in(cx, mask), cond))
    return cx.b.emit("ne", bits, cx.b.const(0, u32))


def _holds_in_all(cx: Context, mask: Any, cond: Value) -> Value:
    return cx.b.emit("not", _holds_in_some(cx, mask, cx.b.emit("not", cond)))


def _all_nonzero(cx: Context, mask: Any, predicate: Any) -> Value:
    return operator_lowering.cast(
        cx, _holds_in_all(cx, mask, operator_lowering.as_condition(cx, predicate)), i32
    )


def _any_nonzero(cx: Context, mask: Any, predicate: Any) -> Value:
    return operator_lowering.cast(
        cx, _holds_in_some(cx, mask, operator_lowering.as_condition(cx, predicate)), i32
    )


def _unique(cx: Context, mask: Any, predicate: Any) -> Value:
    cond = operator_lowering.as_condition(cx, predicate)
    all_true = _holds_in_all(cx, mask, cond)
    all_false = _holds_in_all(cx, mask, cx.b.emit("not", cond))
    return operator_lowering.cast(cx, cx.b.emit("or", all_true, all_false), i32)


def _ballot(cx: Context, predicate: Any) -> Value:
    return cx.b.emit("warp_ballot", operator_lowering.as_condition(cx, predicate))


# --- values --------------------------------------------------------------------------------------


def _shuffled(kind: str, t: Scalar) -> Handler:
    """Make the handler of a shuffle of type t.

    For a source outside the warp, `up` and `down` return the invocation's own value. Source indices
    of `shfl_sync` and xor masks are taken modulo WARP.
    """

    def emit(cx: Context, mask: Any, val: Any, offset: Any) -> Value:
        v, k = operator_lowering.value(cx, val, t), operator_lowering.value(cx, offset, u32)
        own = ADDRESSED.get(kind)
        other = cx.b.emit(kind, v, k if own is None else own(cx, k))
        beyond = BEYOND.get(kind)
        return other if beyond is None else cx.b.emit("select", beyond(cx, k), v, other)

    return emit


def _is_before(cx: Context, k: Value) -> Value:
    return cx.b.emit("lt", _lane(cx), k)


def _is_behind(cx: Context, k: Value) -> Value:
    return cx.b.emit("ge", cx.b.emit("add", _lane(cx), k), _size(cx))


# Source invocation in the subgroup, for subgroups of several warps.
ADDRESSED: dict[str, Callable[[Context, Value], Value]] = {
    "subgroup_shuffle": _of_warp, "subgroup_shuffle_xor": _in_warp,
}  # fmt: skip
BEYOND: dict[str, Callable[[Context, Value], Value]] = {
    "subgroup_shuffle_up": _is_before, "subgroup_shuffle_down": _is_behind,
}  # fmt: skip


def _match_any(cx: Context, mask: Any, value: Any) -> Value:
    """Emit a loop over the warp; return the active invocations in the mask with the same value, as
    bits."""
    v, b = operator_lowering.value(cx, value), cx.b
    asked = b.emit("and", as_mask(cx, mask), _active(cx))
    size = _size(cx)
    k, found = Param(u32, "k"), Param(u32, "found")
    with b.region(k, found) as body:
        same = b.emit("eq", b.emit("subgroup_shuffle", v, _of_warp(cx, k)), v)
        bit = b.emit("shl", b.const(1, u32), k)
        both = b.emit("select", same, b.emit("or", found, bit), found)
        b.emit("yield", both)
    none = b.const(0, u32)
    bits = b.for_(none, size, (none,), body).results[0]
    return b.emit("and", bits, asked)


def _match_all(cx: Context, mask: Any, val: Any) -> Value:
    """Return the mask's active invocations, as bits, if all of them have the same value; else 0."""
    asked = cx.b.emit("and", as_mask(cx, mask), _active(cx))
    same = cx.b.emit("eq", _match_any(cx, mask, val), asked)
    return cx.b.emit("select", same, asked, cx.b.const(0, scalar_of(asked.type)))


def _sync(cx: Context, mask: Any) -> None:
    cx.b.emit("subgroup_barrier")


NAMED: dict[str, Handler] = {
    "active_mask": _active,
    "all_nonzero": _all_nonzero,
    "any_nonzero": _any_nonzero,
    "unique": _unique,
    "ballot": _ballot,
    "match_any": _match_any,
    "match_all": _match_all,
    "sync": _sync,
    "shfl_sync_i32": _shuffled("subgroup_shuffle", i32),
    "shfl_sync_f32": _shuffled("subgroup_shuffle", f32),
    "shfl_up_i32": _shuffled("subgroup_shuffle_up", i32),
    "shfl_up_f32": _shuffled("subgroup_shuffle_up", f32),
    "shfl_down_i32": _shuffled("subgroup_shuffle_down", i32),
    "shfl_down_f32": _shuffled("subgroup_shuffle_down", f32),
    "shfl_xor_i32": _shuffled("subgroup_shuffle_xor", i32),
}
HANDLERS: dict[object, Handler] = {warp.FUNCTIONS[name]: fn for name, fn in NAMED.items()}
