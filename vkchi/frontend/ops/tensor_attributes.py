"""Attributes of vectors and matrices in kernels: `v.x`, `v.xyz`, `m.n`.

Help texts for undefined attributes are here too.

    find_attribute("zyx")(cx, v)
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from types import ModuleType
from typing import Any

from vkchi.compat.foreign_names import help_for_name
from vkchi.errors import KernelSyntaxError, KernelTypeError, nearest_name
from vkchi.frontend.calls.tables import METHODS, Handler
from vkchi.frontend.values.kinds import describe, kind_of
from vkchi.frontend.values.references import Context
from vkchi.hooks import PACKAGE
from vkchi.ir.core import Value
from vkchi.lang.matrix import components_of, is_swizzle
from vkchi.types import Tensor, Type, shape_of


def component_indices(name: str, t: Type) -> tuple[int, ...] | None:
    """Return the components that `v.name` selects for v of type t; None if it selects none."""
    if not isinstance(t, Tensor) or len(t.shape) != 1:
        return None
    return components_of(name, t.size)


def swizzle(cx: Context, v: Value, name: str) -> Value:
    """Return the component or vector of components of `v.name`.

    Raises KernelTypeError if v is no vector, KernelSyntaxError if it is too short.
    """
    t = v.type
    if not isinstance(t, Tensor) or len(t.shape) != 1:
        raise cx.fail(
            f"`.{name}` is for vectors", kind=KernelTypeError, label=describe(t),
            help="index the matrix: m[0, 1]" if shape_of(t) else "",
        )  # fmt: skip
    places = components_of(name, t.size)
    if places is None:
        raise cx.fail(f"`.{name}` needs a longer vector", kind=KernelSyntaxError, label=describe(t))
    return pick(cx, v, places)


def pick(cx: Context, v: Value, places: tuple[int, ...]) -> Value:
    t = v.type
    assert isinstance(t, Tensor)
    if len(places) > 1 and places == tuple(range(t.size)):
        return v
    found = {k: cx.b.emit("extract", v, attr=k) for k in dict.fromkeys(places)}
    if len(places) == 1:
        return found[places[0]]
    return cx.b.emit("pack", *[found[k] for k in places], type=Tensor.of(t.elem, (len(places),)))


def _tensor(cx: Context, v: Value, name: str) -> Tensor:
    if not isinstance(v.type, Tensor):
        raise cx.fail(
            f"`.{name}` is for vectors and matrices",
            kind=KernelTypeError,
            label=describe(v.type),
            help="a number has no axes",
        )
    return v.type


ATTRIBUTES: dict[str, Handler] = {
    "n": lambda cx, v: _tensor(cx, v, "n").n,
    "m": lambda cx, v: _tensor(cx, v, "m").m,
    "shape": lambda cx, v: _tensor(cx, v, "shape").shape,
    "ndim": lambda cx, v: len(_tensor(cx, v, "ndim").shape),
}


def find_attribute(name: str) -> Handler | None:
    """Return the handler (cx, v) of `v.name`; None if neither vectors nor matrices have it."""
    return ATTRIBUTES.get(name) or (partial(swizzle, name=name) if is_swizzle(name) else None)


# --- undefined attributes -------------------------------------------------------------------------


def names_of(obj: Any, *, is_private: bool) -> list[str]:
    """Return the attribute names of a Python object; for a module, its `__all__` if defined.

    Names that begin with an underscore are included if `is_private`.
    """
    names = getattr(obj, "__all__", dir(obj)) if isinstance(obj, ModuleType) else dir(obj)
    if isinstance(obj, Enum):  # some Python versions list the other members too
        names = [name for name in names if name not in type(obj).__members__]
    return [name for name in names if is_private or not name.startswith("_")]


def is_own_module(obj: Any) -> bool:
    return isinstance(obj, ModuleType) and obj.__name__.partition(".")[0] == PACKAGE


def hint_for_attribute(obj: Any, name: str) -> str:
    own = kind_of(obj).hint(obj, name)
    if own:
        return own
    if isinstance(obj, ModuleType) and name in METHODS:
        return f"it is a method of vectors and matrices: v.{name}(...)"
    if obj is None:
        return "compare it first: x is not None"
    names = names_of(obj, is_private=name.startswith("_"))
    if is_own_module(obj):
        help = help_for_name(name, names)
        if help:
            return help
    close = nearest_name(name, names)
    if isinstance(obj, ModuleType):  # constants and classes come last
        names = sorted(names, key=lambda known: not known[:1].islower())
    known = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"did you mean `{close}`?" if close else f"it has {known or 'no public attributes'}"
