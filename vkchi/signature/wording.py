"""What messages say of arguments: what they are, and how to pass what does not fit.

Must not know: what a kernel's parameters take.
"""

from __future__ import annotations

from typing import Any

from vkchi.fields.storage import Storage
from vkchi.fields.structs import StructNdarray
from vkchi.interop import host
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.types import Tensor
from vkchi.types.lazy_numpy import is_array_of_numpy, is_of_numpy


def why_elsewhere(what: str, array: Storage, runtime: Runtime) -> str:
    """Why a kernel cannot use an array that is on another device."""
    here, there = runtime.device.info.name, array.device.info.name
    return (
        f"{what} is on {there}, and the kernel runs on {here}: call it in `with ti.device(...)`, "
        "or give it a copy (x.to_numpy())"
    )


def with_article(name: str) -> str:
    """`an f32`, `a u8`: as the name is spelled aloud."""
    return f"{'an' if name[0] in 'if' else 'a'} {name}"


def axes_text(n: int) -> str:
    """`1 axis`, `2 axes`."""
    return f"{n} axis" if n == 1 else f"{n} axes"


def hint_for(arg: Any) -> str:
    """How to pass what is no array of those that kernels take; nothing for what is none at all."""
    if isinstance(arg, StructNdarray):
        return ": annotate it with ti.types.ndarray(dtype=...)"
    if isinstance(arg, Storage):
        return ": annotate it with ti.template()"
    is_like = isinstance(arg, list | tuple) or hasattr(arg, "__array__")
    return ": pass np.asarray(...) of it" if is_like and not is_of_numpy(arg) else ""


def hint_for_number(arg: Any, name: str) -> str:
    """How to pass what is no number of the type of parameter `name`, or how to annotate that."""
    if isinstance(arg, float):
        return f"convert it, int(...), or annotate `{name}` with ti.f32"
    if isinstance(arg, Ndarray) or is_array_of_numpy(arg):
        return f"pass one element, or annotate `{name}` with ti.types.ndarray()"
    if isinstance(arg, Storage):
        return f"pass one element, or annotate `{name}` with ti.template()"
    if isinstance(arg, list | tuple):
        vector = f"ti.types.vector({len(arg)}, ...)"
        return f"pass one of its numbers, or annotate `{name}` with {vector}"
    return f"pass a number, or annotate `{name}` with ti.template(), which takes anything"


def hint_for_tensor(t: Tensor) -> str:
    """How to pass a vector or matrix: as a list, which need not be spelled `ti.Vector`."""
    numbers = f"a list of {t.shape[-1]} numbers"
    return f"pass {numbers}" if t.m == 1 else f"pass {t.n} rows, each {numbers}"


def describe(arg: Any) -> str:
    """What an argument is, for messages."""
    if is_array_of_numpy(arg):
        return f"a numpy array of {arg.dtype}, shape {arg.shape}"
    if isinstance(arg, Storage):
        return repr(arg)
    return f"{type(arg).__name__} {host.shorten(arg)}"
