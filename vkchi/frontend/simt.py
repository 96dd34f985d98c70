"""`ti.simt` in kernels: shared arrays, barriers, indices of invocations, subgroup operations.

Owns: which IR op each name is, and what to say of those that no op stands for yet.
Must not know: how a device does them.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from vkchi.errors import KernelTypeError, Unsupported
from vkchi.frontend import arith
from vkchi.frontend.call import CALLS, Call, Handler
from vkchi.frontend.operands import describe, dtype_of
from vkchi.frontend.values import ArrayRef, Context
from vkchi.ir.core import Value
from vkchi.lang.simt import block, grid, subgroup, warp
from vkchi.types import Array, Scalar, shape_of, u1


def make_shared(cx: Context, shape: Any, dtype: Any) -> ArrayRef:
    """`ti.simt.block.SharedArray(shape, dtype)`. Raises KernelTypeError for a shape not static."""
    extents = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
    if not extents or any(not isinstance(n, int | np.integer) or n < 1 for n in extents):
        raise cx.fail(
            "a shared array's shape must be positive numbers known while compiling",
            kind=KernelTypeError,
            help="SharedArray((64,), ti.f32)",
        )
    elem = dtype_of(cx, dtype)
    sizes = tuple(map(int, extents))
    t = Array.of(elem, len(sizes), sizes, None, "shared")
    return ArrayRef(cx.b.emit("shared", type=t))


def _effect(kind: str) -> Handler:
    def emit(cx: Context) -> None:
        cx.b.emit(kind)

    return emit


def _query(kind: str) -> Handler:
    def emit(cx: Context) -> Value:
        return cx.b.emit(kind)

    return emit


def _subgroup(kind: str) -> Handler:
    def emit(cx: Context, value: Any) -> Value:
        v = arith.value(cx, value)
        takes_bits = kind in ("and", "or", "xor")
        if not isinstance(v.type, Scalar) or (takes_bits and v.type.kind == "f"):
            what = "an integer" if takes_bits else "a number"
            raise cx.fail(
                f"`reduce_{kind}` takes {what}", kind=KernelTypeError, label=describe(v.type)
            )
        if v.type.kind == "b" and not takes_bits:
            v = arith.cast(cx, v, cx.options.default_ip)
        return cx.b.emit(f"subgroup_{kind}", v)

    return emit


def _all_true(cx: Context, cond: Any) -> Value:
    return cx.b.emit("subgroup_and", arith.truth(cx, cond))


def _any_true(cx: Context, cond: Any) -> Value:
    return cx.b.emit("subgroup_or", arith.truth(cx, cond))


def _all_equal(cx: Context, value: Any) -> Value:
    v = arith.value(cx, value)
    if shape_of(v.type):
        raise cx.fail("`all_equal` takes a number", kind=KernelTypeError, label=describe(v.type))
    if v.type is u1:
        v = arith.cast(cx, v, cx.options.default_ip)
    least, most = cx.b.emit("subgroup_min", v), cx.b.emit("subgroup_max", v)
    return cx.b.emit("eq", least, most)


def _refusal(name: str, instead: str) -> Handler:
    def refuse(cx: Context, *args: Any, **kwargs: Any) -> NoReturn:
        raise Unsupported(f"{cx.span.place}: {name} is not supported yet: {instead}")

    return refuse


_HANDLERS: dict[object, Handler] = {
    block.SharedArray: make_shared,
    block.sync: _effect("barrier"),
    block.mem_sync: _effect("fence"),
    block.thread_idx: _query("local_index"),
    block.global_thread_idx: _query("thread_index"),
    grid.memfence: _effect("fence"),
    subgroup.FUNCTIONS["group_size"]: _query("subgroup_size"),
    subgroup.FUNCTIONS["invocation_id"]: _query("subgroup_index"),
    subgroup.FUNCTIONS["elect"]: _query("subgroup_elect"),
    subgroup.FUNCTIONS["memory_barrier"]: _effect("fence"),
    subgroup.FUNCTIONS["all_true"]: _all_true,
    subgroup.FUNCTIONS["any_true"]: _any_true,
    subgroup.FUNCTIONS["all_equal"]: _all_equal,
    **{subgroup.FUNCTIONS[f"reduce_{name}"]: _subgroup(name) for name in subgroup.REDUCTIONS},
}

_BLOCK_LATER = (block.sync_all_nonzero, block.sync_any_nonzero, block.sync_count_nonzero)
for _fn in _BLOCK_LATER:
    _HANDLERS[_fn] = _refusal(
        f"ti.simt.block.{_fn.__name__}", "count with ti.atomic_add into a SharedArray, then sync"
    )
for _name, _fn in subgroup.FUNCTIONS.items():
    if _fn not in _HANDLERS:
        _HANDLERS[_fn] = _refusal(
            f"ti.simt.subgroup.{_name}", "exchange values through a SharedArray, then sync"
        )
for _name, _fn in warp.FUNCTIONS.items():
    _HANDLERS[_fn] = _refusal(
        f"ti.simt.warp.{_name}", "it is CUDA's own; use ti.simt.subgroup or a SharedArray"
    )

CALLS.update({fn: Call(handler) for fn, handler in _HANDLERS.items()})
