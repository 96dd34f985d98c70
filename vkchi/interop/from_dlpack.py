"""`ti.from_dlpack`: tensors of other libraries as ndarrays.

Chooses between the three ways: in place in CUDA memory, in place in host memory, or a copy.

    x = ti.from_dlpack(tensor)
"""

from __future__ import annotations

from vkchi.errors import ArgumentError
from vkchi.interop import dlpack, host_views
from vkchi.interop.in_place import host_arrays
from vkchi.ndarray import Ndarray, ScalarNdarray
from vkchi.runtime import await_host_memory, current_runtime
from vkchi.types import scalar_of_dtype


def from_dlpack(source: dlpack.DLPackExporter, /, *, copy: bool | None = None) -> Ndarray:
    """Return an ndarray with the values of a tensor of another library, on the current device.

    The ndarray uses the tensor's memory, and keeps it alive, if the device supports that
    (docs/interop.md) and `copy` is not True. Otherwise it is a copy.

    Args:
        source: any object with `__dlpack__` and `__dlpack_device__`.
        copy: True: always copy. False: never copy.

    Returns:
        An ndarray with the shape and dtype of the tensor.

    Raises:
        KernelRuntimeError: before `init`.
        BufferError: if `copy` is False and a copy is necessary.
        ArgumentError: for objects without `__dlpack__` or `__dlpack_device__`; tensors that are
            neither in host memory nor in CUDA memory that the device shares; torch tensors whose
            memory holds other values (a pending negation, a resized storage); tensors in host
            memory that their library does not export (sparse ones, and torch tensors that require
            gradients); dtypes without a kernel type.
    """
    if not isinstance(source, dlpack.DLPackExporter):
        raise ArgumentError(f"{type(source).__name__} has no __dlpack__()")
    if host_views.is_torch(source):
        host_views.check_export(source)
    if host_views.is_cuda_array(source):
        from vkchi.interop.cuda.arrays import cuda_arrays  # few programs need it

        return cuda_arrays(current_runtime()).take_over(source, copy=copy)
    await_host_memory()
    values = dlpack.view_of_capsule(source)
    dtype = scalar_of_dtype(values.dtype)
    if dtype is None:
        raise ArgumentError(f"kernels have no type for DLPack's {values.dtype}")
    taken = None if copy else host_arrays(current_runtime()).take_over(values)
    if taken is not None:
        return taken
    if copy is False:
        raise BufferError(
            "this tensor is copied: its memory cannot be used in place. Make the array here "
            "(ti.ndarray) and give it to the other library, which copies nothing"
        )
    made = ScalarNdarray(current_runtime(), dtype, values.shape)
    made.put_unnoticed(values)
    return made
