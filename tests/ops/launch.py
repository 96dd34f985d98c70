"""Launch of split Funcs on a device with numpy arrays, without the runtime.

launch(device, fn, {"x": x, "out": out}, {"a": np.float32(2)}, count=len(x))    # changes `out`
launch_program(device, program, temps, case.args())
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.counts import read_mapping
from vkchi.device import Device
from vkchi.ir.core import Func, Param, Program, find_parallel, walk
from vkchi.opt.lowering.legalize import legalize
from vkchi.opt.mapping.map_grid import plan_grid
from vkchi.opt.pipeline import lower_dispatch
from vkchi.spirv import emit
from vkchi.target.caps import Caps
from vkchi.target.magic import MAGIC
from vkchi.target.shader import (
    SERIAL,
    ArgumentSlot,
    Grid,
    Shader,
    compile_count,
    row_grid,
    split_grid,
)
from vkchi.types import Array, Layout, Scalar, scalar_of, shape_of, u1, u32

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
    """Store arrays of u1 as u32 if the device has no 8-bit storage. Changes the types of
    `fn.params`."""
    for param in fn.params:
        t = param.type
        if isinstance(t, Array) and scalar_of(t.elem) is u1 and not (caps.storage8 and caps.int8):
            param.type = Array.of(t.elem, t.ndim, t.shape, t.layout, t.space, u32)


# --- memory --------------------------------------------------------------------------------------


def offsets_of(layout: Layout, shape: tuple[int, ...]) -> Any:
    """Offset of each component of each element, as an array of `shape` and one more axis."""
    first = np.zeros(shape, np.int64) + layout.offset([*np.indices(shape)])
    return first[..., None] + np.array(layout.components)


class Memory:
    """The buffers of array parameters by name, filled from numpy arrays of logical shape."""

    def __init__(self, device: Device, params: Mapping[str, Param], arrays: Mapping[str, Any]):
        self.device, self.arrays = device, arrays
        self.types: dict[str, Array] = {}
        self.buffers: dict[str, Any] = {"": device.trash}
        for name, array in arrays.items():
            t = params[name].type
            assert isinstance(t, Array)
            self.types[name] = t
            data = self._encode(t, array)
            spare_bytes = t.scalars_per_element * t.stored.size_bytes  # for out-of-range accesses
            self.buffers[name] = device.allocate(data.nbytes + spare_bytes)
            self.buffers[name].write(0, data.view(np.uint8))

    @staticmethod
    def _places(t: Array, array: Any) -> Any:
        """Offsets of all scalars of a logical array; None if it is row-major memory."""
        if t.layout is None or t.shape is None or array.shape != (*t.shape, *shape_of(t.elem)):
            return None  # raw memory is given as it is
        return offsets_of(t.layout, t.shape).reshape(array.shape)

    def _encode(self, t: Array, array: Any) -> Any:
        flat = np.ascontiguousarray(array.astype(t.stored.dtype, copy=False)).reshape(-1)
        places = self._places(t, array)
        if places is None:
            return flat
        assert t.layout is not None
        memory = np.zeros(t.layout.size, t.stored.dtype)
        memory[places.reshape(-1)] = flat
        return memory

    def read_back(self) -> None:
        """Copy the buffers' contents into the arrays."""
        for name, array in self.arrays.items():
            t = self.types[name]
            places = self._places(t, array)
            size = array.size if places is None else t.layout.size  # type: ignore[union-attr]
            raw = self.buffers[name].read(0, size * t.stored.size_bytes)
            memory = np.frombuffer(raw, t.stored.dtype)
            array[...] = (memory if places is None else memory[places]).reshape(array.shape)


# --- launching -----------------------------------------------------------------------------------


def pack_block(shader: Shader, give: Callable[[ArgumentSlot], Any]) -> bytes:
    """The argument block; `give(slot)` returns the value of a slot."""
    block = bytearray(shader.size_bytes)
    for slot in shader.slots:
        letter = "Q" if slot.kind in ("ptr", "trash") else FORMATS[slot.dtype]
        struct.pack_into("<" + letter, block, slot.offset, give(slot))
    return bytes(block)


def slot_value(slot: ArgumentSlot, memory: Memory, values: Mapping[str, Any]) -> Any:
    """Value that a launch writes into a slot."""
    if slot.kind in ("ptr", "trash"):
        return memory.buffers[slot.param].address
    if slot.kind == "dim":
        return memory.arrays[slot.param].shape[slot.axis]
    if slot.kind in MAGIC:
        return MAGIC[slot.kind](memory.arrays[slot.param].shape[slot.axis])
    if slot.kind == "size":
        return memory.arrays[slot.param].size
    if slot.kind in ("count", "base"):
        return np.asarray(values[slot.kind]).reshape(-1)[slot.axis].item()
    return np.asarray(values[slot.param]).reshape(-1)[slot.axis].item()


def record(
    memory: Memory, shader: Shader, values: Mapping[str, Any], groups: tuple[int, int, int]
) -> None:
    """Load a shader and record its dispatch."""
    device = memory.device
    block = pack_block(shader, lambda slot: slot_value(slot, memory, values))
    keys = frozenset(buffer.key for buffer in memory.buffers.values())
    device.record(device.load(shader), block, groups, frozenset(), keys)


def grid_for(fn: Func, block: int = BLOCK) -> Grid:
    """A guarded grid for a Func with a parallel loop, a serial grid for others."""
    loop = find_parallel(fn)
    if loop is None:
        return SERIAL
    return row_grid(("arg", "count"), loop.attr or block, guard=not loop.attr)


def launch(
    device: Device,
    fn: Func,
    arrays: Mapping[str, Any],
    values: Mapping[str, Any] | None = None,
    count: int = 1,
    groups: tuple[int, int, int] | None = None,
) -> Shader:
    """Emit, load and run one Func for `count` iterations; return the shader.

    The arrays are copied to the device and back.
    """
    shader = emit(
        lower_dispatch(legalize(fn, device.caps), device.caps), grid_for(fn), device.caps, fn.name
    )
    memory = Memory(device, {p.name: p for p in fn.params}, arrays)
    if groups is None:
        groups = (1 if shader.grid.is_serial else -(-count // shader.grid.block), 1, 1)
    record(memory, shader, {**(values or {}), "count": count}, groups)
    memory.read_back()
    return shader


def plain_numbers(value: Any) -> Any:
    """A scalar argument as a Python number, a tensor as the list of its components."""
    return np.asarray(value).reshape(-1).tolist() if np.ndim(value) else np.asarray(value).item()


def launch_program(
    device: Device, program: Program, temps: tuple[Param, ...], args: dict[str, Any]
) -> None:
    """Run a Program's dispatches in order; changes the arrays of `args`."""
    params = {p.name: p for fn in program.funcs for p in fn.params}
    arrays = {k: v for k, v in args.items() if k in params and isinstance(params[k].type, Array)}
    for p in temps:
        assert isinstance(p.type, Array)
        arrays[p.name] = np.zeros(shape_of(p.type.elem), p.type.stored.dtype)
    memory = Memory(device, params, arrays)
    known = {k: v.shape if k in arrays else plain_numbers(v) for k, v in args.items()}
    for fn in program.funcs:
        shader = emit(
            lower_dispatch(fn, device.caps), plan_grid(fn, device.caps), device.caps, fn.name
        )
        axes = shader.grid.axes
        counts = [compile_count(axis.length, read_mapping)(known) for axis in axes]
        for bases, groups in split_grid(shader.grid, counts, device.caps.workgroup_count):
            record(memory, shader, {**args, "count": counts, "base": bases}, groups)
    memory.read_back()
