"""A Func for arrays of known extents: what `array<f32[?,?]>` says only at a launch, the type says.

Owns: the substitution, and its legality. Must not know: launches, passes.

A parameter gets the shape and no layout: `alias` goes on taking it for the argument that it is,
which may be other arguments' memory unless it is `apart`; only what has a layout is memory of its
own. All else that is known of it holds as before, but for `like`: who is like another array has a
shape of its own now, or nobody to be like. Elements are counted row by row in both forms, and
`shape` gives the same numbers; so the Func does the same in a launch of these extents.

    with_shapes(fn, {"x": (640, 480)})       # %x: array<f32[?,?]> -> %x: array<f32[640,480]>
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.ir.core import Func, Param
from vkchi.ir.rebuild import with_params
from vkchi.types import Array

Shape = tuple[int, ...]


def with_shapes(fn: Func, shapes: Mapping[str, Shape]) -> Func:
    """The Func in launches where the arrays of these names have these shapes. Those that it does
    not have, or whose shape is known, or that are reached in 64 bits, stay as they are."""
    new: dict[Param, Param] = {}
    for p in fn.params:
        t, shape = p.type, shapes.get(p.name)
        if not isinstance(t, Array) or t.shape is not None:
            continue
        if shape is not None and not p.attributes.wide:
            t = Array.of(t.elem, t.ndim, shape, None, t.space, t.stored)
        if t is not p.type or p.attributes.like in shapes:
            new[p] = Param(t, p.name, p.attributes._replace(like=""))
    return with_params(fn, new)
