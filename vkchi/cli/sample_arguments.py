"""Sample arguments for compiling a kernel without a call: from annotations or command-line text.

Example:

    x=f32[64,64]   y=f32x3[100]   n=5   dt=1e-3   field=model.density
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.kernel import Kernel
from vkchi.ndarray import ndarray as make_array
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter, TensorParameter
from vkchi.types import SCALARS, shape_of, with_shape
from vkchi.types.lazy_numpy import np

ARRAY = re.compile(r"([a-z]+\d+)((?:x\d+)*)\[([^\]]*)\]")
MOST_INNER = 2  # axes of an element: 2 for a matrix
EXTENT = 64  # default extent; code does not depend on it


def sample_argument(
    parameter: Parameter, given: Mapping[str, str], names: Mapping[str, Any]
) -> Any:
    """Return an argument for a parameter: from the text in `given`, else from its annotation.

    An annotation gives 1, a tensor of ones, or a new array with axes of length EXTENT on the
    current device. `names` are the globals of the kernel's file. Raises ArgumentError if the type
    is unknown.
    """
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
    """Parse an argument: an array type with extents, a literal, or a dotted name in the file.

    An extent `?` becomes EXTENT. Raises ArgumentError for other text.
    """
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
    """Return the value of a dotted name, whose first part is in `names`. Raises ArgumentError."""
    first, *rest = path.split(".")
    if first not in names:
        kernels = [name for name, value in names.items() if isinstance(value, Kernel)]
        listed = f"; its kernels are {', '.join(kernels)}" if kernels else ""
        raise ArgumentError(f"the file has nothing called {first!r}{listed}")
    found = names[first]
    for name in rest:
        if not hasattr(found, name):
            raise ArgumentError(f"{path}: there is no {name!r}")
        found = getattr(found, name)
    return found
