"""Run one split Func on a device with numpy arrays: what a launch does, in the plainest way.

launch(device, fn, {"x": x, "out": out}, {"a": np.float32(2)}, count=len(x))    # changes `out`
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from vkchi.caps import Caps
from vkchi.device import Device
from vkchi.ir.core import Func, find_parallel, walk
from vkchi.shader import Grid, Shader, Slot
from vkchi.spirv import emit
from vkchi.types import SCALARS, Array, Scalar, scalar_of, u1, u32

BLOCK = 64
FORMATS = {"i32": "i", "u32": "I", "f32": "f", "i64": "q", "u64": "Q", "f64": "d"}


def lacks_of(fn: Func, caps: Caps) -> list[str]:
    """Names of scalar types in the Func that the device cannot compute with or store."""
    used: set[Scalar] = set()
    for param in fn.params:
        t = param.type
        used.add(scalar_of(t.elem if isinstance(t, Array) else t))
    for op in walk(fn.body):
        used.update(scalar_of(v.type) for v in op.results if hasattr(v.type, "bits"))
    used.discard(u1)
    return sorted(t.name for t in used if not (caps.has_type(t.name) and caps.can_store(t.name)))


def store_truths_as_words(fn: Func, caps: Caps) -> None:
    """Let arrays of u1 be stored as u32 where the device has no bytes. Changes the parameters."""
    for param in fn.params:
        t = param.type
        if isinstance(t, Array) and scalar_of(t.elem) is u1 and not (caps.storage8 and caps.int8):
            param.type = Array.of(t.elem, t.ndim, t.shape, t.layout, t.space, u32)


def slot_value(slot: Slot, fn: Func, buffers: Mapping[str, Any], arrays: Any, values: Any) -> Any:
    """What a launch writes into a slot."""
    if slot.kind in ("ptr", "trash"):
        return buffers[slot.param].address
    if slot.kind == "dim":
        return arrays[slot.param].shape[slot.axis]
    if slot.kind == "size":
        return arrays[slot.param].size
    if slot.kind == "count":
        return values["count"]
    return np.asarray(values[slot.param]).reshape(-1)[slot.axis].item()


def pack_block(shader: Shader, give: Any) -> bytes:
    """The argument block; `give(slot)` is a slot's value."""
    block = bytearray(shader.size_bytes)
    for slot in shader.slots:
        letter = "Q" if slot.kind in ("ptr", "trash") else FORMATS[slot.dtype]
        struct.pack_into("<" + letter, block, slot.offset, give(slot))
    return bytes(block)


def grid_for(fn: Func, count: int, block: int = BLOCK) -> Grid:
    """A guarded grid for a Func with a parallel loop, a serial one for others."""
    loop = find_parallel(fn)
    if loop is None:
        return Grid("serial", 1, None, False)
    return Grid("exact", loop.attr or block, ("arg", "count"), not loop.attr)


def launch(
    device: Device,
    fn: Func,
    arrays: Mapping[str, Any],
    values: Mapping[str, Any] | None = None,
    count: int = 1,
    groups: tuple[int, int] | None = None,
) -> Shader:
    """Emit, load and run; every array is copied to the device and back."""
    shader = emit(fn, grid_for(fn, count), device.caps, fn.name)
    pipeline = device.load(shader)
    stored = {p.name: p.type.stored for p in fn.params if isinstance(p.type, Array)}
    buffers: dict[str, Any] = {"": device.trash}
    for name, array in arrays.items():
        data = np.ascontiguousarray(array.astype(stored[name].dtype, copy=False))
        buffers[name] = device.allocate(max(data.nbytes, 4))
        buffers[name].write(0, data.reshape(-1).view(np.uint8))
    known = {**(values or {}), "count": count}
    block = pack_block(shader, lambda slot: slot_value(slot, fn, buffers, arrays, known))
    if groups is None:
        groups = (1, 1) if shader.grid.mode == "serial" else (-(-count // shader.grid.block), 1)
    device.record(pipeline, block, *groups, frozenset(), frozenset(b.key for b in buffers.values()))
    for name, array in arrays.items():
        raw = buffers[name].read(0, array.size * stored[name].size_bytes)
        array[...] = np.frombuffer(raw, stored[name].dtype).reshape(array.shape)
    return shader


def carrier_names() -> set[str]:
    """Scalar types that travel in argument blocks as they are."""
    return set(FORMATS) & set(SCALARS)
