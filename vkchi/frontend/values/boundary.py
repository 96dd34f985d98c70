"""Index clamping for arrays annotated `boundary="clamp"`: each index is clamped to its axis."""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.values.references import ArrayRef, Context
from vkchi.ir.core import Value
from vkchi.types import Scalar


def clamp_indices(cx: Context, array: ArrayRef, indices: Sequence[Value]) -> list[Value]:
    rows = zip(indices, array.shape(cx), strict=True)
    return [clamp_index(cx, k, extent) for k, extent in rows]


def clamp_index(cx: Context, k: Value, extent: Value | int) -> Value:
    """Emit `max(0, min(k, extent - 1))` in the type of k."""
    t = k.type
    assert isinstance(t, Scalar)
    if isinstance(extent, int):
        last: Value = cx.b.const(extent - 1, t)
    else:
        last = cx.b.emit("sub", operator_lowering.cast(cx, extent, t), cx.b.const(1, t))
    k = cx.b.emit("min", k, last)
    return k if t.kind == "u" else cx.b.emit("max", k, cx.b.const(0, t))
