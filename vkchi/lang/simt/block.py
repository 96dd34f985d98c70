"""`ti.simt.block`: the invocations of a workgroup, which share memory and wait for each other."""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import kernel_function


@kernel_function
def SharedArray(shape: Any, dtype: Any) -> Any:
    """An array of static `shape` that the workgroup shares; not initialised."""


@kernel_function
def sync() -> None:
    """Wait until all invocations of the workgroup are here, and see what they wrote."""


@kernel_function
def mem_sync() -> None:
    """Order this invocation's memory accesses for the rest of the workgroup."""


mem_fence = mem_sync


@kernel_function
def thread_idx() -> Any:
    """Index of this invocation in its workgroup."""


@kernel_function
def global_thread_idx() -> Any:
    """Index of this invocation in the dispatch."""


@kernel_function
def sync_all_nonzero(predicate: Any) -> Any:
    """`sync`, and whether the predicate is nonzero in all invocations of the workgroup."""


@kernel_function
def sync_any_nonzero(predicate: Any) -> Any:
    """`sync`, and whether the predicate is nonzero in some invocation of the workgroup."""


@kernel_function
def sync_count_nonzero(predicate: Any) -> Any:
    """`sync`, and in how many invocations of the workgroup the predicate is nonzero."""


def arch_uses_spv(arch: Any) -> bool:
    """Whether kernels of a backend become SPIR-V: always."""
    return True
