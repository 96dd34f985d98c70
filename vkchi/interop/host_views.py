"""Host arrays of other libraries (numpy arrays and CPU torch tensors) as numpy views.

Recognizes torch tensors without an import of torch. Also compares, casts and measures views.

    >>> view_of(np.zeros(3)).shape
    (3,)
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local
from vkchi.runtime import await_host_memory
from vkchi.types import Scalar, bf16, cook, scalar_of_dtype, u1
from vkchi.types.bfloat16 import NAME, as_raw, as_values, convert, raw_dtype
from vkchi.types.core import is_dtype
from vkchi.types.lazy_numpy import is_array_of_numpy, np

IN_CUDA = (
    "is in CUDA's memory, which tapes, gradients, debug mode and copies do not reach: pass a copy "
    "in host memory, as tensor.cpu()"
)


def is_torch(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def is_cuda_array(source: Any) -> bool:
    """True if an object is a CUDA tensor of torch, or has a `__cuda_array_interface__`."""
    if is_torch(source):
        return bool(source.is_cuda)
    return not isinstance(source, np.ndarray) and bool(
        getattr(source, "__cuda_array_interface__", None)
    )


def without_autograd() -> AbstractContextManager[Any]:
    """Context in which torch's autograd records nothing, so that tensors that require gradients can
    be written. No effect if torch is not imported."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


def has_grad(obj: Any) -> bool:
    """True if obj is a torch tensor that requires a gradient, or already has one."""
    return is_torch(obj) and (obj.requires_grad or obj.grad is not None)


def grad_of(tensor: Any) -> Any:
    if tensor.is_leaf or tensor.retains_grad:
        return tensor.grad
    with warnings.catch_warnings():  # torch warns about .grad of a non-leaf
        warnings.simplefilter("ignore")
        return tensor.grad


def make_grad(obj: Any) -> Any:
    """Return the gradient of a torch tensor, created as zeros if it requires one and has none. None
    for objects that are no tensor, and for tensors that neither require nor have a gradient."""
    if not has_grad(obj):
        return None
    grad = grad_of(obj)
    if grad is None:
        grad = obj.grad = obj.detach().clone().zero_()
    return grad


def put_grad(tensor: Any, grad: Any) -> None:
    """Make `grad`, which has just been written, the gradient of a tensor if it is not yet.
    Increments the version of `grad`."""
    from vkchi.interop.torch_writes import version_raiser  # imports torch

    version_raiser()(grad)
    if grad_of(tensor) is not grad:
        tensor.grad = grad


def write_grad(tensor: Any, values: Any) -> None:
    """Set a torch tensor's existing gradient, in place unless torch rejects the copy, as for
    elements that share memory."""
    try:
        grad_of(tensor).detach().copy_(values)
    except local(RuntimeError):
        tensor.grad = values


def view_of(obj: Any) -> np.ndarray[Any, Any] | None:
    """Return a numpy view of an array of numpy or torch; None for other objects. Raises
    ArgumentError for masked arrays, for CUDA arrays, and as `array_of_torch`."""
    if is_array_of_numpy(obj):
        return as_plain_array(obj)
    if is_torch(obj):
        return array_of_torch(obj)
    if is_cuda_array(obj):
        raise ArgumentError(f"a {type(obj).__name__} {IN_CUDA}")
    return None


def as_plain_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array as a plain `np.ndarray`: a view if it is of a derived class, such as
    np.matrix, and one of `bfloat16.raw_dtype` for bf16 of ml_dtypes. Raises ArgumentError for
    masked arrays."""
    array = as_raw(array)
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(
            "a masked numpy array, and kernels know no masks: pass x.filled(value), or x.data for "
            "all numbers"
        )
    return np.asarray(array)


def array_of_torch(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a detached numpy view of a CPU tensor.

    Raises ArgumentError for other objects, tensors on other devices, tensors that reach beyond
    their storage, and tensors that numpy cannot view (float8, sparse). The view of a bfloat16
    tensor is of `bfloat16.raw_dtype`.
    """
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
        torch, seen = sys.modules["torch"], tensor.detach()
        if tensor.dtype is torch.bfloat16:
            seen = seen.view(torch.int16)
        view: np.ndarray[Any, Any] = seen.numpy()
    except ArgumentError:
        raise
    except local(TypeError, RuntimeError) as e:  # sparse, conjugated
        name = str(tensor.dtype).removeprefix("torch.")
        if name.startswith(("float8", "float4")):
            raise ArgumentError(f"kernels have no {name}\nhelp: pass t.float()") from None
        raise ArgumentError(f"a tensor of {tensor.dtype} that numpy cannot view: {e}") from None
    return view.view(raw_dtype()) if tensor.dtype is torch.bfloat16 else view


def check_export(tensor: Any) -> None:
    """Raise ArgumentError for a torch tensor that DLPack would export with other values. These are
    tensors with a pending negation, or that reach beyond their storage."""
    if tensor.is_neg():
        raise ArgumentError(
            "a tensor that torch negates as it is read: pass tensor.resolve_neg(), for memory "
            "holds the opposite numbers"
        )
    if tensor.layout is sys.modules["torch"].strided:
        check_storage(tensor)


def check_storage(tensor: Any) -> None:
    """Raise ArgumentError for a tensor that reaches beyond its storage, after a resize. Raises
    RuntimeError or TypeError for a tensor without storage."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    end = tensor.storage_offset() + sum((n - 1) * step for n, step in steps) + 1
    has, needs = tensor.untyped_storage().nbytes(), end * tensor.element_size()
    if tensor.numel() and has < needs:
        raise ArgumentError(
            f"a tensor of {needs} bytes whose storage has {has}: its storage was resized"
        )


def to_number_array(value: Any) -> np.ndarray[Any, Any]:
    """Convert values to a numpy array of bools, integers or floats.

    Accepts Python numbers, nested sequences, numpy arrays, CPU tensors, and objects with
    `to_numpy`, such as fields and ti.Matrix. Waits for kernels that may still write to such an
    array. Raises ArgumentError for anything else, and for other dtypes.
    """
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    elif is_torch(value):
        await_host_memory()
        value = array_of_torch(value)
    elif isinstance(value, np.ndarray):
        await_host_memory()
        value = as_plain_array(value)
    try:
        values = np.asarray(value)
    except local(TypeError, ValueError):
        values = np.asarray(None)
    values = as_values(values)
    check_dtype(values.dtype, value)
    return values


def check_dtype(dtype: np.dtype[Any], value: Any) -> None:
    """Raise ArgumentError, naming `value`, unless this numpy dtype is of bools, integers or
    floats."""
    if dtype.kind in "OUS":
        raise ArgumentError(f"numbers are needed, not {short_repr(value)}")
    if dtype.kind not in "biuf":
        help = ": take x.real and x.imag" if dtype.kind == "c" else ""
        raise ArgumentError(f"kernels have no type for numpy's {dtype}{help}")


def short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."


def cast(values: np.ndarray[Any, Any], t: Scalar) -> np.ndarray[Any, Any]:
    """Cast values to type `t`, as `astype` without warnings; return `values` itself if it has that
    type already. Values of bf16 are rounded f32."""
    values = as_values(values)
    if values.dtype == t.dtype and t is not bf16:
        return values
    with np.errstate(all="ignore"):
        return np.asarray(convert(values, t))


def may_overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """True if two arrays share a byte, or if that is too expensive to determine."""
    try:
        effort: Any = 10_000  # numpy's stubs allow -1 and 0 only
        return np.may_share_memory(a, b) and np.shares_memory(a, b, max_work=effort)
    except local(RuntimeError):  # numpy's TooHardError
        return True


def changed_mask(before: np.ndarray[Any, Any], now: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a mask of the elements whose bits differ between two arrays of one shape and dtype; -0
    != 0. The elements have 1, 2, 4 or 8 bytes."""
    bits = f"u{before.itemsize}"
    found: np.ndarray[Any, Any] = before.view(bits) != now.view(bits)
    return found


def element_addresses(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = np.full(a.shape, a.ctypes.data, np.int64)
    for axis, (size, step) in enumerate(zip(a.shape, a.strides, strict=True)):
        along = np.arange(size, dtype=np.int64) * step
        found += along.reshape(-1, *[1] * (a.ndim - axis - 1))
    return found


def address_range(a: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The address of the first byte, and that after the last byte; equal for an empty array."""
    if a.size == 0:
        return a.ctypes.data, a.ctypes.data
    ends = [(size - 1) * step for size, step in zip(a.shape, a.strides, strict=True)]
    start = a.ctypes.data + sum(min(0, end) for end in ends)
    return start, start + sum(map(abs, ends)) + a.itemsize


def covers_memory(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """True if `a` is the same view as `b`, or has no gaps and contains the memory of `b`."""
    (start, end), (first, last) = address_range(a), address_range(b)
    is_whole = end - start == a.nbytes and not overlaps_itself(a)
    return is_same_view(a, b) or (is_whole and start <= first and last <= end)


def overlaps_itself(a: np.ndarray[Any, Any]) -> bool:
    """True if several elements of an array share memory, as in results of `np.broadcast_to`."""
    if a.size == 0 or a.flags.c_contiguous:
        return False
    rows = sorted((abs(step), n) for step, n in zip(a.strides, a.shape, strict=True) if n > 1)
    reach = a.itemsize  # byte extent over the axes so far
    for step, n in rows:
        if step < reach:
            break
        reach += step * (n - 1)
    else:
        return False
    starts = np.zeros((), np.int64)
    for step, n in rows:  # interleaved axes: elements may still be disjoint
        starts = (starts[..., None] + step * np.arange(n)).reshape(-1)
    starts.sort()
    return bool((np.diff(starts) < a.itemsize).any())


def is_same_view(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.ctypes.data == b.ctypes.data and (
        (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
    )


def make_torch(values: np.ndarray[Any, Any], device: Any) -> Any:
    """Return a torch tensor of these values on `device`; if None, on the CPU, in the array's
    memory. Raises ImportError if torch is not installed."""
    torch = import_uninterrupted("torch")
    if values.dtype == raw_dtype():
        tensor = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(values)
    return tensor if device is None else tensor.to(device)


def view_as_numpy(array: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """Return a numpy array in the memory of a field or ndarray, by DLPack.

    Waits for the device. Results of later kernels are visible after `ti.sync()`. Raises
    ArgumentError if the host cannot address the memory, if the layout has no strides, or if the
    elements are not of `dtype`.
    """
    if array.number is bf16:
        raise ArgumentError("copy=False: numpy has no bfloat16\nhelp: take x.to_torch(copy=False)")
    found = np.asarray(_export(np.from_dlpack, array))
    if dtype is not None and np.dtype(numpy_dtype(dtype)) != found.dtype:
        raise ArgumentError(
            f"copy=False: the elements are {found.dtype}, not {dtype}\nhelp: leave dtype out"
        )
    return found


def view_as_torch(array: Any, device: Any = None) -> Any:
    """Return a torch tensor in the memory of a field or ndarray, by DLPack.

    Raises ArgumentError if there can be none, or if the memory is not that of torch's `device`.
    """
    torch = import_uninterrupted("torch")
    tensor = _export(torch.from_dlpack, array)
    if device is not None and torch.device(device).type != tensor.device.type:
        raise ArgumentError(
            f"copy=False: the memory is on {tensor.device.type}, not on {device}\n"
            "help: leave copy=False out"
        )
    return tensor


class _WithoutCopy:
    """The DLPack export of an array that raises BufferError rather than copy."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.array.__dlpack_device__()
        return found

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**{**options, "copy": False})


def _export(take: Callable[[Any], Any], array: Any) -> Any:
    try:
        return take(_WithoutCopy(array))
    except BufferError as e:
        raise ArgumentError(f"copy=False: {e}\nhelp: leave copy=False out") from None


def numpy_dtype(dtype: Any) -> Any:
    """Return the numpy dtype of a vkchi scalar type; other arguments unchanged."""
    if is_dtype(dtype):
        return dtype
    cooked = cook(dtype)
    return cooked.dtype if isinstance(cooked, Scalar) else dtype


def to_taichi_type(dtype: Any) -> Scalar:
    """Convert a numpy or torch dtype, a Python number type, or a scalar type to a scalar type of
    vkchi. Raises ArgumentError for other arguments, vector and matrix types included."""
    t = cook(dtype)
    if isinstance(t, Scalar):
        return t
    name = str(dtype).rpartition(".")[2]  # torch.float32
    if name == NAME:
        return bf16
    try:
        found = scalar_of_dtype(np.dtype(name))
    except TypeError:
        found = None
    if found is None:
        raise ArgumentError(f"kernels have no number type for {dtype!r}")
    return found


def to_numpy_type(dtype: Any) -> np.dtype[Any]:
    """Convert `dtype`, of any kind that `to_taichi_type` accepts, to a numpy dtype: f32 for bf16.
    Raises ArgumentError."""
    return to_taichi_type(dtype).dtype


def raw_view_type(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype of a view of memory of `dtype`: as `to_numpy_type`, but `raw_dtype` for
    bf16."""
    t = to_taichi_type(dtype)
    return raw_dtype() if t is bf16 else t.dtype


def to_pytorch_type(dtype: Any) -> Any:
    """Convert `dtype`, of any kind that `to_taichi_type` accepts, to a torch dtype. Raises
    ArgumentError, also if the installed torch has no such dtype; ImportError without torch."""
    torch = import_uninterrupted("torch")
    t = to_taichi_type(dtype)
    name = {u1: "bool", bf16: NAME}.get(t) or t.dtype.name
    if not hasattr(torch, name):
        raise ArgumentError(f"torch {torch.__version__} has no dtype {name}")
    return getattr(torch, name)


def has_pytorch() -> bool:
    """True if torch is installed."""
    return importlib.util.find_spec("torch") is not None
