"""`ti.simt.grid`: functions at dispatch scope."""

from __future__ import annotations

from vkchi.lang.function import kernel_function


@kernel_function
def memfence() -> None:
    """Memory fence for this invocation's accesses, at device scope."""


mem_fence = memfence
