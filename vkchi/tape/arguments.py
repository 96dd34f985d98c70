"""Arguments of users for `ti.ad`: their checks, conversion of numbers, the seed of a loss."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.fields.storage import Storage
from vkchi.fields.views import OrderedNdarray, View
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    # A copy of the user's: numbers of the shape of an output, or one for all elements.
    Cotangent: TypeAlias = Storage | np.ndarray[Any, Any] | float

COMPANIONS = {"grad": "gradient", "dual": "dual"}


def check_alone(runtime: Runtime, title: str) -> None:
    """Raise KernelRuntimeError if a recording is active, in this thread or another."""
    if runtime.tape is not None and runtime.tape.thread != get_ident():
        raise KernelRuntimeError(
            f"{title} cannot be used while another thread is inside {runtime.tape.title}, which "
            "records the kernels of all: let threads take turns, with a lock"
        )
    if runtime.tape is not None:
        raise KernelRuntimeError(
            f"tapes do not nest: {title} cannot be used inside {runtime.tape.title}, leave that "
            "first"
        )


def check_run(who: str, run: Any) -> None:
    if not callable(run):
        raise ArgumentError(
            f"{who}: run must be a kernel or a function that calls kernels, not {run!r}: pass "
            "`run`, not `run()`"
        )


def check_place(loss: Any, runtime: Runtime) -> None:
    if isinstance(loss, Storage) and loss.device is not runtime.device:
        loss.check_alive()
        raise KernelRuntimeError(
            f"the loss is on {loss.device.info.name}, and the tape records what runs on "
            f"{runtime.device.info.name}: enter it in `with ti.device(...)`"
        )


def check_loss(loss: Any) -> None:
    """Raise an error for a value that cannot be a loss.

    KernelRuntimeError if it is not one number. ArgumentError if it is no array, holds no floats or
    has no gradient. For torch tensors it is always KernelRuntimeError.
    """
    if host_views.is_torch(loss):
        check_tensor_loss(loss)
        return
    check_no_view("the loss", loss)
    if not isinstance(loss, Storage):
        more = ": pass the field itself, not an element" if isinstance(loss, float | int) else ""
        raise ArgumentError(f"the loss must be a field, ndarray or tensor, not {loss!r}{more}")
    is_one = loss.layout.size == 1 if isinstance(loss, Ndarray) else loss.shape == ()
    if not is_one or not (loss.is_scalar or isinstance(loss, Ndarray)):
        raise KernelRuntimeError(
            f"the loss must be one number, a field of shape (), not {loss!r}: add up into "
            "ti.field(ti.f32, shape=(), needs_grad=True) in a kernel"
        )
    check_has("the loss", loss)


def check_tensor_loss(loss: Any) -> None:
    if loss.numel() != 1:
        raise KernelRuntimeError(f"the loss must be one number, not {loss.numel()}")
    if not loss.dtype.is_floating_point:
        raise KernelRuntimeError(f"the loss must hold a float, not {loss.dtype}")
    if not loss.requires_grad:
        raise KernelRuntimeError("the loss needs a gradient: make it with requires_grad=True")


def check_array(who: str, x: Any, kind: str = "grad") -> None:
    """Raise ArgumentError unless `x` is an array of floats with a gradient or (`kind`) dual."""
    check_no_view(who, x)
    if not isinstance(x, Storage):
        what = "field" if kind == "dual" else "field or ndarray"
        more = ": give its members, s.a of s" if hasattr(type(x), "__vkchi_struct__") else ""
        raise ArgumentError(f"{who} must be a {what} with needs_{kind}=True, not {x!r}{more}")
    check_has(who, x, kind)


def check_no_view(who: str, x: object) -> None:
    """Raise ArgumentError for a view: derivatives are stored for whole arrays."""
    if isinstance(x, View):
        is_ordered = isinstance(x, OrderedNdarray)
        why = "has a layout=" if is_ordered else "is a view of one"
        give = "make it without" if is_ordered else "give that array"
        raise ArgumentError(
            f"{who} must be a whole array, and {x!r} {why}\n"
            f"help: {give}, or copy it to another array in a kernel"
        )


def check_has(who: str, x: Storage, kind: str = "grad") -> None:
    if x.dtype.kind != "f":
        raise ArgumentError(f"{who} must hold floats, not {x.dtype}: integers have no derivatives")
    if x.companion(kind) is None:
        what = "" if who in ("the loss", repr(x)) else f", and {x!r} has none"
        is_field = kind == "grad" or not isinstance(x, Ndarray)  # ndarrays have no duals
        more = f"with needs_{kind}=True" if is_field else "a field with needs_dual=True"
        raise ArgumentError(f"{who} needs a {COMPANIONS[kind]}{what}: make it {more}")


def numbers_like(who: str, x: Storage, given: Any) -> np.ndarray[Any, Any]:
    """Convert `given` to a numpy array of the dtype of `x`; the shape is not checked.

    Raises ArgumentError for values that are no numbers.
    """
    shape = x.shape + shape_of(x.elem)
    try:
        values = given.to_numpy() if isinstance(given, Storage) else np.asarray(given)
        values = values.astype(x.dtype.dtype)
    except local(TypeError, ValueError):
        raise ArgumentError(f"{who} must be numbers of shape {shape}, not {given!r}") from None
    return values


def set_loss(loss: Any, value: float) -> None:
    if host_views.is_torch(loss):
        loss.detach().fill_(value)
    else:
        loss.fill(value)


# --- outputs and cotangents ----------------------------------------------------------------------


def unwritten_error(output: Any) -> ArgumentError:
    return ArgumentError(
        f"{title_of(output)} was not written by a recorded kernel, so it has no derivative: give "
        "arrays that kernels wrote"
    )


def title_of(output: Any) -> str:
    if host_views.is_torch(output):
        return f"the tensor of shape {tuple(output.shape)}"
    return repr(output)


def cotangent_of(output: Any, given: Any, what: str = "cotangent") -> Cotangent:
    """Copy the cotangent of an output: a number for all elements, or numbers of its shape.

    It may share memory with a gradient, which changes while gradients run. Raises ArgumentError for
    another shape, and for values that are no real numbers.
    """
    is_array = isinstance(output, Storage)
    shape = output.shape + shape_of(output.elem) if is_array else tuple(output.shape)
    who = f"the {what} of {title_of(output)}"
    if isinstance(given, Storage):
        is_whole = given.whole is given and given.device is getattr(output, "device", None)
        if is_array and is_whole and (given.elem, given.shape) == (output.elem, output.shape):
            return given.copied()
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    try:
        values = np.array(host_views.to_number_array(given))
    except ArgumentError as e:
        raise ArgumentError(f"{who} must be real numbers of shape {shape}: {e}") from None
    if values.dtype.kind == "b":
        raise ArgumentError(f"{who} must be real numbers, not bools")
    if values.shape != shape:
        if values.shape == ():
            return float(values)
        raise ArgumentError(
            f"{who} has shape {values.shape}, and {shape} is needed: give numbers of that shape, "
            "or one number for all elements"
        )
    return values


def seed(output: Any, cotangent: Cotangent) -> None:
    """Set the gradient of an output to its cotangent.

    The gradient of a tensor is written in place if there is one.
    """
    if isinstance(output, Storage):
        gradient = output.companion("grad")
        assert gradient is not None
        seed_array(gradient, cotangent)
        return
    values = np.broadcast_to(cotangent, tuple(output.shape)).astype(np.float64)
    made = host_views.make_torch(values, output.device).to(output.dtype)
    if host_views.grad_of(output) is None:
        output.grad = made
    else:
        host_views.write_grad(output, made)


def seed_array(array: Storage, cotangent: Cotangent) -> None:
    if isinstance(cotangent, Storage):
        array.copy_from(cotangent)
    elif isinstance(cotangent, float):
        array.fill(cotangent)
    else:
        array.put_unnoticed(cotangent)
