"""Message texts about arguments: descriptions and help for unsupported ones."""

from __future__ import annotations

from typing import Any

from vkchi.fields.storage import Storage
from vkchi.fields.struct_arrays import StructNdarray
from vkchi.interop import host_views
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.types import Tensor
from vkchi.types.lazy_numpy import is_array_of_numpy, is_of_numpy


def other_device_message(what: str, array: Storage, runtime: Runtime) -> str:
    here, there = runtime.device.info.name, array.device.info.name
    return (
        f"{what} is on {there}, and the kernel runs on {here}: call it in `with ti.device(...)`, "
        "or give it a copy (x.to_numpy())"
    )


def with_article(name: str) -> str:
    return f"{'an' if name[0] in 'if' else 'a'} {name}"


def axes_text(n: int) -> str:
    return f"{n} axis" if n == 1 else f"{n} axes"


def array_hint(arg: Any) -> str:
    """Return help for an object that is no supported array. "" unless it is a field, an array of
    structs, a list, a tuple, or has `__array__`, and for numpy objects."""
    if isinstance(arg, StructNdarray):
        return ": annotate it with ti.types.ndarray(dtype=...)"
    if isinstance(arg, Storage):
        return ": annotate it with ti.template()"
    is_like = isinstance(arg, list | tuple) or hasattr(arg, "__array__")
    return ": pass np.asarray(...) of it" if is_like and not is_of_numpy(arg) else ""


def scalar_hint(arg: Any, name: str) -> str:
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


def tensor_hint(t: Tensor) -> str:
    numbers = f"a list of {t.shape[-1]} numbers"
    return f"pass {numbers}" if t.m == 1 else f"pass {t.n} rows, each {numbers}"


def describe_argument(arg: Any) -> str:
    if is_array_of_numpy(arg):
        return f"a numpy array of {arg.dtype}, shape {arg.shape}"
    if isinstance(arg, Storage):
        return repr(arg)
    return f"{type(arg).__name__} {host_views.short_repr(arg)}"
