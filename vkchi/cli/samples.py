"""Arguments to compile a kernel for, where none is called: from annotations, or as texts say.

Owns: the form of such texts. Must not know: what they are used for.

    x=f32[64,64]   y=f32x3[100]   n=5   dt=1e-3   field=model.density
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.ndarray import ndarray as make_array
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter, TensorParameter
from vkchi.types import SCALARS, shape_of, with_shape
from vkchi.types.lazy_numpy import np

ARRAY = re.compile(r"([a-z]+\d+)((?:x\d+)*)\[([^\]]*)\]")
MOST_INNER = 2  # axes of elements: those of a matrix
EXTENT = 64  # of axes of which nothing is said: kernels are not compiled for extents


def sample(parameter: Parameter, given: Mapping[str, str], names: Mapping[str, Any]) -> Any:
    """An argument for a parameter. `names` are those of the kernel's file. Raises ArgumentError
    where nothing says what it is."""
    if parameter.name in given:
        return read_argument(given[parameter.name], names)
    if isinstance(parameter, ScalarParameter):
        return 1.0 if parameter.type.kind == "f" else 1
    if isinstance(parameter, TensorParameter):
        return np.ones(shape_of(parameter.type)).tolist()
    if isinstance(parameter, ArrayParameter):
        annotation = parameter.annotation
        if annotation.dtype is not None and annotation.ndim is not None:
            return make_array(annotation.dtype, (EXTENT,) * annotation.ndim)
    name = parameter.name
    raise ArgumentError(
        f"nothing says what `{name}` is: --arg {name}=f32[64,64], {name}=5 or {name}=a_global"
    )


def read_argument(text: str, names: Mapping[str, Any]) -> Any:
    """What a text says: an array of a type and extents (`?` for any), a number, or what a name of
    the file stands for. Raises ArgumentError."""
    found = ARRAY.fullmatch(text.replace(" ", ""))
    if found and found[1] in SCALARS:
        inner = tuple(int(n) for n in found[2].split("x")[1:])
        extents = found[3].split(",")
        if len(inner) > MOST_INNER or not all(n in ("?", "") or n.isdecimal() for n in extents):
            raise ArgumentError(f"{text!r} is no array: f32[64,64], f32x3[9], f32x3x3[?]")
        dtype = with_shape(SCALARS[found[1]], inner)
        return make_array(dtype, tuple(EXTENT if n in ("?", "") else int(n) for n in extents))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return find_name(text, names)


def find_name(path: str, names: Mapping[str, Any]) -> Any:
    """What a name, or attributes of one, stand for. Raises ArgumentError."""
    first, *rest = path.split(".")
    if first not in names:
        raise ArgumentError(f"the file has nothing called {first!r}")
    found = names[first]
    for name in rest:
        if not hasattr(found, name):
            raise ArgumentError(f"{path}: there is no {name!r}")
        found = getattr(found, name)
    return found
