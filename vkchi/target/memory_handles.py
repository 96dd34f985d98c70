"""Operating-system handles of memory shared with other APIs, as plain data.

Payload(3, OPAQUE_FD, 4096, type_index=0, is_dedicated=True).close()
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from vkchi.tuples import NamedTuple

OPAQUE_FD, OPAQUE_WIN32, DMA_BUF = 0x1, 0x2, 0x200  # VkExternalMemoryHandleTypeFlagBits


class Payload(NamedTuple):
    """External memory: handle, kind and allocation properties.

    kind: OPAQUE_FD, OPAQUE_WIN32 or DMA_BUF. type_index: Vulkan memory type, or -1 if not allocated
    by Vulkan. is_dedicated: True for an allocation dedicated to one buffer.
    """

    handle: int
    kind: int
    size_bytes: int
    type_index: int = -1
    is_dedicated: bool = False

    def close(self) -> None:
        """Close the handle. Precondition: no importer took ownership of a file descriptor."""
        close_handle(self.kind, self.handle)


def close_handle(kind: int, handle: int) -> None:
    """Close an NT handle or a file descriptor. Precondition: no importer took ownership of the
    descriptor."""
    if kind != OPAQUE_WIN32:
        os.close(handle)
        return
    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined]
    kernel.CloseHandle(ctypes.c_void_p(handle))
