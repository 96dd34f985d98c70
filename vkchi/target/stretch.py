"""A list of dispatches, as the linked shader reads it (`spirv.linking`) and a recorder writes it.

    u32 how many, 0;  then of each workgroup: u32 shader, wait;  u64 arguments;
                      u32 workgroup along x, y, z;  u32 workgroups along x, y, z

`wait`: the workgroup waits for all its invocations before this entry, and sees what they wrote.
Owns: that layout, what is known of a linked shader. Must not know: SPIR-V, Vulkan.
"""

from __future__ import annotations

import struct

from vkchi.target.shader import Shader
from vkchi.tuples import NamedTuple

HEAD = struct.Struct("<II")
ENTRY = struct.Struct("<IIQIIIIII")


class Link(NamedTuple):
    """The shader that runs lists. `members` are the numbers of those that it is made of, among
    those that were given, in the order in which entries count them; of each, whether it uses the
    workgroup's memory, for which entries wait."""

    shader: Shader
    members: tuple[int, ...]
    shares: tuple[bool, ...]
