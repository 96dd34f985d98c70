"""Calls of types in Python scope (`ti.f32(3.7)`, `vec3(xy, 1)`), and the vector types of `ti.math`.

    >>> vec3(vec2(1, 2), 3)
    [1. 2. 3.]

See also: `frontend/ops/tensor_construction.py` does the same in kernels.
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.lang.elementwise import cast_numbers, check_unmasked
from vkchi.lang.function import find_traced
from vkchi.lang.matrix import Matrix, Vector
from vkchi.types import DefaultTensor, Scalar, Tensor
from vkchi.types.lazy_numpy import is_array_of_numpy, np


def make_scalar(t: Scalar, *args: Any) -> Any:
    """Convert a number, or each component of a vector, to type t: f32 rounds, integers wrap.

    Raises KernelTypeError unless there is one argument, a number or vector.
    """
    if len(args) != 1:
        raise KernelTypeError(f"{t}() takes one value, not {len(args)}")
    traced = find_traced(args)
    return traced.apply(t, args, {}) if traced is not None else cast_numbers(args[0], t)


def make_tensor(t: Tensor, *args: Any) -> Any:
    """Return a vector or matrix of type t, from one number for all components, or from one number
    each.

    Numbers, vectors and lists among the arguments are concatenated. Raises KernelTypeError.
    """
    traced = find_traced(args)
    if traced is not None:
        return traced.apply(t, args, {})
    flat = flatten(args)
    if len(flat) == 1:
        flat = flat * t.size
    if len(flat) != t.size:
        raise KernelTypeError(f"{t} has {t.size} components, and {len(flat)} are given")
    texts = [x for x in flat if isinstance(x, str)]
    if texts:
        raise KernelTypeError(f"{t} is made from numbers, not from {texts[0]!r}")
    values = cast_numbers(np.array(flat), t.elem).reshape(t.shape)
    return (Vector if len(t.shape) == 1 else Matrix)(values, t.elem)


def flatten(args: Any) -> list[Any]:
    flat: list[Any] = []
    for arg in args:
        check_unmasked(arg)
        if isinstance(arg, Matrix) or is_array_of_numpy(arg):
            arg = (arg.entries if isinstance(arg, Matrix) else arg).reshape(-1).tolist()
        flat.extend(flatten(arg) if isinstance(arg, list | tuple) else [arg])
    return flat


vec2, vec3, vec4 = (DefaultTensor(f"vec{n}", "f", (n,)) for n in (2, 3, 4))
ivec2, ivec3, ivec4 = (DefaultTensor(f"ivec{n}", "i", (n,)) for n in (2, 3, 4))
uvec2, uvec3, uvec4 = (DefaultTensor(f"uvec{n}", "u", (n,)) for n in (2, 3, 4))
mat2, mat3, mat4 = (DefaultTensor(f"mat{n}", "f", (n, n)) for n in (2, 3, 4))
FOLLOWING = (vec2, vec3, vec4, ivec2, ivec3, ivec4, uvec2, uvec3, uvec4, mat2, mat3, mat4)
