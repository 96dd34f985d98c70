"""`ti.from_dlpack`: tensors of other libraries as ndarrays.

Owns: which of the ways there are is gone. Must not know: what capsules say (`dlpack`), how memory
is used in place (`in_place`, `cuda.arrays`).

    x = ti.from_dlpack(tensor)
"""

from __future__ import annotations

from vkchi.errors import ArgumentError
from vkchi.interop import dlpack, host
from vkchi.interop.in_place import host_arrays
from vkchi.ndarray import Ndarray, ScalarNdarray
from vkchi.runtime import await_host_memory, current
from vkchi.types import scalar_of_dtype


def from_dlpack(source: dlpack.Exporter, /, *, copy: bool | None = None) -> Ndarray:
    """An ndarray of the numbers of a tensor of another library (`source`: anything with
    `__dlpack__`), of its shape and dtype, on the current device: in the tensor's memory, which is
    kept, where the device can use that (docs/interop.md) and `copy` is not True; else a copy.

    Raises BufferError where `copy` is False and must be made; ArgumentError for tensors that are
    neither in host memory nor in CUDA's that the device shares, for those of torch whose memory
    holds other numbers, and for dtypes that kernels have no type for.
    """
    if not isinstance(source, dlpack.Exporter):
        raise ArgumentError(f"{type(source).__name__} has no __dlpack__()")
    if host.is_torch(source):
        host.check_export(source)
    if host.lies_in_cuda(source):
        from vkchi.interop.cuda.arrays import cuda_arrays  # few programs have any

        return cuda_arrays(current()).take_over(source, copy=copy)
    await_host_memory()
    values = dlpack.view_of_capsule(source)
    dtype = scalar_of_dtype(values.dtype)
    if dtype is None:
        raise ArgumentError(f"kernels have no type for DLPack's {values.dtype}")
    taken = None if copy else host_arrays(current()).take_over(values)
    if taken is not None:
        return taken
    if copy is False:
        raise BufferError(
            "this tensor is copied: its memory cannot be used in place. Make the array here "
            "(ti.ndarray) and give it to the other library, which copies nothing"
        )
    made = ScalarNdarray(current(), dtype, values.shape)
    made.put_unnoticed(values)
    return made
