"""Memory outside of Vulkan as a handle of the system: plain data.

Owns: the kinds of handles, and their end. Must not know: who makes or takes them.

    Payload(3, OPAQUE_FD, 4096, type_index=0, is_dedicated=True).close()
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from vkchi.tuples import NamedTuple

OPAQUE_FD, OPAQUE_WIN32, DMA_BUF = 0x1, 0x2, 0x200  # VkExternalMemoryHandleTypeFlagBits


class Payload(NamedTuple):
    """Memory as a handle, and how it was made. kind: OPAQUE_FD, OPAQUE_WIN32 or DMA_BUF; type_index
    is -1 where not Vulkan made it; is_dedicated: for one buffer alone."""

    handle: int
    kind: int
    size_bytes: int
    type_index: int = -1
    is_dedicated: bool = False

    def close(self) -> None:
        """Give up a handle that nobody took."""
        close_handle(self.kind, self.handle)


def close_handle(kind: int, handle: int) -> None:
    """Close a handle that nobody took, or an NT handle."""
    if kind != OPAQUE_WIN32:
        os.close(handle)
        return
    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined]
    kernel.CloseHandle(ctypes.c_void_p(handle))
