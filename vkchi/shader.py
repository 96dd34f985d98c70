"""A compiled dispatch as plain data: words, argument block, grid. What the emitter hands to the
device and what a cache can store.

Owns: the records. Must not know: ops, Vulkan.

The argument block is what a launch writes: 8-byte pointers first, then 4- and 8-byte values, each at
`offset`. It travels as push constants when `size_bytes` fits the device, otherwise in a buffer whose
address is the only push constant (`indirect`).

A grid count is a nested tuple evaluated on the host at launch:
`("const", 5)`, `("arg", name)`, `("dim", name, axis)`, `("add" | "sub" | "mul" | "max", a, b)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Count = tuple[Any, ...]


class Slot(NamedTuple):
    """One value of the argument block.

    kind `ptr`: 64-bit device address of array `param`; `dim`: i32 extent of axis `axis` of `param`;
    `size`: i32 scalars that may be touched in `param`; `value`: component `axis` of a scalar or
    tensor argument, of type `dtype`; `trash`: address of the block that stray accesses go to;
    `count`: i32 number of loop iterations when the host knows it; `groups`: unused tail guard.
    """

    kind: str
    param: str
    axis: int
    dtype: str
    offset: int


@dataclass(frozen=True)
class Grid:
    """How loop iterations map to invocations.

    mode `serial`: one invocation; `exact`: one invocation per iteration, `count` known on the host;
    `stride`: invocations walk the range by the size of the grid (`count` may be None: the shader
    finds its own range). `guard`: the shader compares its index with the count, so groups may stick
    out. `block` is the local size.
    """

    mode: str
    block: int
    count: Count | None
    guard: bool


@dataclass(frozen=True)
class Shader:
    """One dispatch. `words` is little-endian SPIR-V; `needs` are Caps field names it relies on."""

    name: str
    words: bytes
    slots: tuple[Slot, ...]
    size_bytes: int
    indirect: bool
    grid: Grid
    needs: tuple[str, ...]
