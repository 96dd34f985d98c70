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


def array_hint(arg: Any, *, is_saved: bool) -> str:
    """Return help for an object that is no supported array. "" unless it is a field, an array of
    structs, a list, a tuple, or has `__array__`, and for numpy objects. `is_saved`: the kernel is a
    saved one."""
    if is_saved and isinstance(arg, Storage | StructNdarray):
        return ": pass a ti.ndarray or .to_numpy() of it"
    if hasattr(type(arg), "__vkchi_view__") and isinstance(arg.base, Ndarray):
        return ": pass a copy of the view"
    if isinstance(arg, StructNdarray):
        return ": annotate it with ti.types.ndarray(dtype=...)"
    if isinstance(arg, Storage):
        return ": annotate it with ti.template()"
    is_like = isinstance(arg, list | tuple) or hasattr(arg, "__array__")
    return ": pass np.asarray(...) of it" if is_like and not is_of_numpy(arg) else ""


def scalar_hint(arg: Any) -> tuple[str, str]:
    """Return help for an object that is no scalar, and the annotation that accepts it."""
    if isinstance(arg, float):
        return "convert it, int(...)", "ti.f32"
    if isinstance(arg, Ndarray) or is_array_of_numpy(arg):
        return "pass one element", "ti.types.ndarray()"
    if isinstance(arg, Storage):
        return "pass one element", "ti.template()"
    if isinstance(arg, list | tuple):
        return "pass one of its numbers", f"ti.types.vector({len(arg)}, ...)"
    return "pass a number", "ti.template(), which takes anything"


def tensor_hint(t: Tensor) -> str:
    numbers = f"a list of {t.shape[-1]} numbers"
    return f"pass {numbers}" if t.m == 1 else f"pass {t.n} rows, each {numbers}"


def describe_argument(arg: Any) -> str:
    if is_array_of_numpy(arg):
        return f"a numpy array of {arg.dtype}, shape {arg.shape}"
    if isinstance(arg, Storage):
        return repr(arg)
    return f"{type(arg).__name__} {host_views.short_repr(arg)}"
