"""`ti.torch_memory`: a torch memory pool whose tensors Vulkan can use in place.

Torch's own memory comes from cudaMalloc and cannot be exported, so kernels copy such tensors.
Inside the block, torch allocates from a pool whose allocator (`pool.c`) makes exportable memory.

    with ti.torch_memory():
        x = torch.zeros(1 << 20, device="cuda")
    step(x)     # in place
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from vkchi import platform
from vkchi.cache.store import fault_of, find_folder
from vkchi.errors import DeviceError, MissingPackageError, Unsupported
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local

SOURCE = Path(__file__).with_name("pool.c")
COMPILERS = ("cc", "gcc", "clang")
_pools: dict[int, Any] = {}  # by device; torch keeps the reference counts


def torch_memory() -> AbstractContextManager[None]:
    """Context in which new torch tensors on the current CUDA device can be used in place by
    kernels.

    Tensors stay usable in place after the block (docs/interop.md). The first call for a device
    compiles an allocator, unless the cache folder has it.

    Returns:
        A context manager.

    Raises:
        Unsupported: on systems other than Linux.
        MissingPackageError: without torch 2.5 or a C compiler.
        DeviceError: without CUDA, or if the allocator cannot be compiled.
    """
    if not platform.SYSTEM.is_linux:
        raise Unsupported(
            f"ti.torch_memory: for Linux only, and this is {platform.SYSTEM.name}; kernels copy "
            "tensors of torch's own memory"
        )
    torch: Any = None
    with suppress(ImportError):
        torch = import_uninterrupted("torch")
    if not hasattr(getattr(torch, "cuda", None), "MemPool"):
        raise MissingPackageError("ti.torch_memory needs torch 2.5 or later: pip install torch")
    if not torch.cuda.is_available():
        raise DeviceError("ti.torch_memory: torch finds no CUDA device")
    device = torch.cuda.current_device()
    if device not in _pools:
        path = compile_allocator(Path(find_folder()) / "allocators")
        made = torch.cuda.memory.CUDAPluggableAllocator(str(path), "vkchi_alloc", "vkchi_free")
        _pools[device] = torch.cuda.MemPool(made.allocator()), made
    block: AbstractContextManager[None] = torch.cuda.use_mem_pool(_pools[device][0])
    return block


def compile_allocator(folder: Path) -> Path:
    """Compile the allocator to a shared library in `folder`, unless it exists there; return its
    path.

    Creates the folder. Raises MissingPackageError without a C compiler, DeviceError if the folder
    belongs to another user or cannot be used, or if the compiler fails.
    """
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    path = folder / f"torch_memory-{digest}.so"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fault = fault_of(str(folder), os.lstat(folder))  # the folder contains code that is executed
        if not fault and not path.exists():
            _compile(path)
    except local(OSError) as e:
        fault = f"{folder} cannot be used: {e.strerror or e}"
    if fault:
        raise DeviceError(f"ti.torch_memory: {fault}; VKCHI_CACHE_DIR names another folder")
    return path


def _compile(path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise MissingPackageError("ti.torch_memory needs a C compiler: install gcc or clang")
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        made = Path(place) / path.name
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(made), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise DeviceError(f"{compiler} did not compile ti.torch_memory: {done.stderr.strip()}")
        ctypes.CDLL(str(made))  # raises OSError if this process cannot load it
        platform.replace(str(made), str(path))
