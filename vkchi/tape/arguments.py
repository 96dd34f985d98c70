"""Arguments of users for `ti.ad`: their checks, conversion of numbers, the seed of a loss."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

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
    if not isinstance(x, Storage):
        what = "field" if kind == "dual" else "field or ndarray"
        more = ": give its members, s.a of s" if hasattr(type(x), "__vkchi_struct__") else ""
        raise ArgumentError(f"{who} must be a {what} with needs_{kind}=True, not {x!r}{more}")
    check_has(who, x, kind)


def check_has(who: str, x: Storage, kind: str = "grad") -> None:
    if x.dtype.kind != "f":
        raise ArgumentError(f"{who} must hold floats, not {x.dtype}: integers have no derivatives")
    if x.companion(kind) is None:
        what = "" if who == "the loss" else f", and {x!r} has none"
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


def seed_loss(loss: Any) -> None:
    if not host_views.is_torch(loss):
        loss.grad.fill(1.0)
    elif loss.grad is None:
        loss.grad = loss.detach().clone().fill_(1.0)
    else:
        loss.grad.fill_(1.0)
