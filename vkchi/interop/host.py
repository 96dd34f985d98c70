"""Arrays in host memory that other libraries own: numpy arrays and CPU torch tensors.

Owns: telling them apart without importing torch, viewing them as numpy. Must not know: what
devices do.

    >>> view_of(np.zeros(3)).shape
    (3,)
"""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.interrupts.imports import import_whole
from vkchi.interrupts.local import local
from vkchi.runtime import await_host_memory
from vkchi.types import Scalar, cook
from vkchi.types.lazy_numpy import is_array_of_numpy, np

IN_CUDA = (
    "is in CUDA's memory, which tapes, gradients, debug mode and copies do not reach: pass a copy "
    "in host memory, as tensor.cpu()"
)


def is_torch(obj: Any) -> bool:
    """Whether obj is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def lies_in_cuda(source: Any) -> bool:
    """Whether an object is an array in CUDA's memory."""
    if is_torch(source):
        return bool(source.is_cuda)
    return not isinstance(source, np.ndarray) and bool(
        getattr(source, "__cuda_array_interface__", None)
    )


def unrecorded() -> AbstractContextManager[Any]:
    """While torch records nothing: tensors that require gradients can be written."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


def has_grad(obj: Any) -> bool:
    """Whether obj is a torch tensor that wants a gradient, or was given one."""
    return is_torch(obj) and (obj.requires_grad or obj.grad is not None)


def grad_of(tensor: Any) -> Any:
    """The gradient of a torch tensor, or None."""
    if tensor.is_leaf or tensor.retains_grad:
        return tensor.grad
    with warnings.catch_warnings():  # torch takes it for a mistake
        warnings.simplefilter("ignore")
        return tensor.grad


def make_grad(obj: Any) -> Any:
    """A torch tensor's gradient, which is made if the tensor wants one; None if it does not, and
    for what is no tensor."""
    if not has_grad(obj):
        return None
    grad = grad_of(obj)
    if grad is None:
        grad = obj.grad = obj.detach().clone().zero_()
    return grad


def put_grad(tensor: Any, grad: Any) -> None:
    """Make a tensor that was written the gradient of another one, which it may be already."""
    from vkchi.interop.written import version_raiser  # which loads torch

    version_raiser()(grad)
    if grad_of(tensor) is not grad:
        tensor.grad = grad


def write_grad(tensor: Any, values: Any) -> None:
    """Set a torch tensor's gradient, in its memory unless several elements share that."""
    try:
        grad_of(tensor).detach().copy_(values)
    except local(RuntimeError):
        tensor.grad = values


def view_of(obj: Any) -> np.ndarray[Any, Any] | None:
    """The object's memory as a numpy array sharing it, or None for objects that are no array.

    Raises ArgumentError for tensors, and arrays of CUDA's, that are not in host memory.
    """
    if is_array_of_numpy(obj):
        return plain(obj)
    if is_torch(obj):
        return array_of_torch(obj)
    if lies_in_cuda(obj):
        raise ArgumentError(f"a {type(obj).__name__} {IN_CUDA}")
    return None


def plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself; of a class that numpy derives from arrays, as np.matrix, the same memory
    without its manners. Raises ArgumentError for masked arrays: their masks would be lost."""
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            "a masked numpy array, and kernels know no masks: pass x.filled(value), or x.data for "
            "all numbers"
        )
    return np.asarray(array)


def array_of_torch(tensor: Any) -> np.ndarray[Any, Any]:
    """A numpy view of a CPU tensor, detached. Raises ArgumentError for one on another device."""
    if not is_torch(tensor):
        raise ArgumentError(f"a torch tensor is needed, not {type(tensor).__name__}")
    if tensor.device.type == "meta":
        raise ArgumentError("a tensor on the meta device has no numbers")
    if tensor.device.type == "cuda":
        raise ArgumentError(f"a tensor on {tensor.device} {IN_CUDA}")
    if tensor.device.type != "cpu":
        raise ArgumentError(
            f"a tensor on {tensor.device} cannot be used directly: pass tensor.cpu()"
        )
    try:
        check_storage(tensor)
        view: np.ndarray[Any, Any] = tensor.detach().numpy()
    except ArgumentError:
        raise
    except local(TypeError, RuntimeError) as e:  # bfloat16, sparse, conjugated
        help = "\nhelp: pass t.float()" if str(tensor.dtype) == "torch.bfloat16" else ""
        why = f"a tensor of {tensor.dtype} that numpy cannot view: {e}"
        raise ArgumentError(why + help) from None
    return view


def check_export(tensor: Any) -> None:
    """Raises ArgumentError for a torch tensor of which DLPack would give other numbers: those in
    memory are the opposite ones, or beyond its storage."""
    if tensor.is_neg():
        raise ArgumentError(
            "a tensor that torch negates as it is read: pass tensor.resolve_neg(), for memory "
            "holds the opposite numbers"
        )
    if tensor.layout is sys.modules["torch"].strided:
        check_storage(tensor)


def check_storage(tensor: Any) -> None:
    """Raises ArgumentError for a tensor that reaches beyond its storage, which was made smaller
    since; RuntimeError and TypeError for one that has none."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    end = tensor.storage_offset() + sum((n - 1) * step for n, step in steps) + 1
    has, needs = tensor.untyped_storage().nbytes(), end * tensor.element_size()
    if tensor.numel() and has < needs:
        raise ArgumentError(
            f"a tensor of {needs} bytes whose storage has {has}: its storage was resized"
        )


def numbers_of(value: Any) -> np.ndarray[Any, Any]:
    """The numbers of a Python number, a nested sequence, a ti.Vector or ti.Matrix, a numpy array or
    a CPU tensor, as a numpy array. Raises ArgumentError for anything else."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    elif is_torch(value):
        await_host_memory()
        value = array_of_torch(value)
    elif isinstance(value, np.ndarray):
        await_host_memory()
        value = plain(value)
    try:
        values = np.asarray(value)
    except local(TypeError, ValueError):
        values = np.asarray(None)
    check_dtype(values.dtype, value)
    return values


def check_dtype(dtype: np.dtype[Any], value: Any) -> None:
    """Raises ArgumentError for a type of numpy's that no array of ours has, which `value` is of."""
    if dtype.kind in "OUS":
        raise ArgumentError(f"numbers are needed, not {shorten(value)}")
    if dtype.kind not in "biuf":
        help = ": take x.real and x.imag" if dtype.kind == "c" else ""
        raise ArgumentError(f"kernels have no type for numpy's {dtype}{help}")


def shorten(value: Any) -> str:
    """The value as Python writes it, cut to a part of a line."""
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."


def cast(values: np.ndarray[Any, Any], t: Scalar) -> np.ndarray[Any, Any]:
    """The values as numbers of type t: floats are cut to integers, integers wrap, what f32 cannot
    hold is infinite. Itself where it is of that type already."""
    if values.dtype == t.dtype:
        return values
    with np.errstate(all="ignore"):
        return values.astype(t.dtype)


def may_overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays have an element in common; True as well where that is hard to find out."""
    try:
        effort: Any = 10_000  # numpy's stubs allow -1 and 0 only
        return np.may_share_memory(a, b) and np.shares_memory(a, b, max_work=effort)
    except local(RuntimeError):  # numpy's TooHardError
        return True


def changes(before: np.ndarray[Any, Any], now: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where two arrays of one shape and type hold other bits: -0 is another number than 0."""
    bits = f"u{before.itemsize}"
    found: np.ndarray[Any, Any] = before.view(bits) != now.view(bits)
    return found


def addresses(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where each element of an array begins, in an array of the same shape."""
    found = np.full(a.shape, a.ctypes.data, np.int64)
    for axis, (size, step) in enumerate(zip(a.shape, a.strides, strict=True)):
        along = np.arange(size, dtype=np.int64) * step
        found += along.reshape(-1, *[1] * (a.ndim - axis - 1))
    return found


def bounds(a: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The address of an array's first byte, and that after its last; the same where it has none."""
    if a.size == 0:
        return a.ctypes.data, a.ctypes.data
    ends = [(size - 1) * step for size, step in zip(a.shape, a.strides, strict=True)]
    start = a.ctypes.data + sum(min(0, end) for end in ends)
    return start, start + sum(map(abs, ends)) + a.itemsize


def spans(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether an array has all the memory of another one."""
    (start, end), (first, last) = bounds(a), bounds(b)
    is_whole = end - start == a.nbytes and not overlaps_itself(a)
    return is_same_view(a, b) or (is_whole and start <= first and last <= end)


def overlaps_itself(a: np.ndarray[Any, Any]) -> bool:
    """Whether several elements of an array share memory, as in what `np.broadcast_to` gives."""
    if a.size == 0 or a.flags.c_contiguous:
        return False
    rows = sorted((abs(step), n) for step, n in zip(a.strides, a.shape, strict=True) if n > 1)
    reach = a.itemsize  # bytes from the first element to the end of the last, of the axes so far
    for step, n in rows:
        if step < reach:
            break
        reach += step * (n - 1)
    else:
        return False
    starts = np.zeros((), np.int64)
    for step, n in rows:  # axes that are interleaved: their elements may be apart all the same
        starts = (starts[..., None] + step * np.arange(n)).reshape(-1)
    starts.sort()
    return bool((np.diff(starts) < a.itemsize).any())


def is_same_view(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays are the same memory seen in the same way."""
    return a.ctypes.data == b.ctypes.data and (
        (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
    )


def make_torch(values: np.ndarray[Any, Any], device: Any) -> Any:
    """A torch tensor of these values. Raises ImportError where torch is not installed."""
    torch = import_whole("torch")
    tensor = torch.from_numpy(values)
    return tensor if device is None else tensor.to(device)


def numpy_dtype(dtype: Any) -> Any:
    """The numpy dtype of one of our types, or of whatever numpy understands."""
    cooked = cook(dtype)
    return cooked.dtype if isinstance(cooked, Scalar) else dtype
