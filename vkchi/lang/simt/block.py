"""`ti.simt.block`: shared memory and barriers of a workgroup."""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import kernel_function


@kernel_function
def SharedArray(shape: Any, dtype: Any) -> Any:
    """An uninitialized array of static `shape` in workgroup shared memory."""


@kernel_function
def sync() -> None:
    """Workgroup barrier: wait for all invocations, and make their writes visible to each other."""


@kernel_function
def mem_sync() -> None:
    """Memory fence for this invocation's accesses, at device scope; not a barrier."""


mem_fence = mem_sync


@kernel_function
def thread_idx() -> Any:
    """Index of this invocation in its workgroup."""


@kernel_function
def global_thread_idx() -> Any:
    """Index of this invocation in the dispatch."""


@kernel_function
def sync_all_nonzero(predicate: Any) -> Any:
    """`sync`; returns 1 if the predicate is nonzero in all invocations of the workgroup, else 0."""


@kernel_function
def sync_any_nonzero(predicate: Any) -> Any:
    """`sync`; returns 1 if the predicate is nonzero in any invocation of the workgroup, else 0."""


@kernel_function
def sync_count_nonzero(predicate: Any) -> Any:
    """`sync`; returns the number of invocations of the workgroup with a nonzero predicate."""


def arch_uses_spv(arch: Any) -> bool:
    """Always True: kernels of all backends compile to SPIR-V."""
    return True
