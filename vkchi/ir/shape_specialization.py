"""Shape specialization of a Func: `array<f32[??]>` becomes an array type of constant shape.

The parameter gets the shape but no layout, so elements stay in row-major order. Alias analysis
still treats it as an argument: it may overlap others unless it is `noalias`. Its attributes stay,
except `like`. That is removed from arrays that get a shape, and from arrays like one of the names.

    with_shapes(fn, {"x": (640, 480)})       # %x: array<f32[??]> -> %x: array<f32[640,480]>
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.ir.core import Func, Param
from vkchi.ir.rebuild import with_params
from vkchi.types import Array

Shape = tuple[int, ...]


def with_shapes(fn: Func, shapes: Mapping[str, Shape]) -> Func:
    """Return `fn` with constant shapes for the array parameters of these names.

    Names that the Func lacks, arrays of static shape and arrays with 64-bit extents are skipped.
    """
    new: dict[Param, Param] = {}
    for p in fn.params:
        t, shape = p.type, shapes.get(p.name)
        if not isinstance(t, Array) or t.shape is not None:
            continue
        if shape is not None and not p.attributes.ext64:
            t = Array.of(t.elem, t.ndim, shape, None, t.space, t.stored)
        if t is not p.type or p.attributes.like in shapes:
            new[p] = Param(t, p.name, p.attributes._replace(like=""))
    return with_params(fn, new)
