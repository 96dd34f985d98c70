"""What the frontend is told of a kernel argument. Apart, so that signing needs no frontend.

Must not know: how arguments are checked or bound.

    >>> ArgSpec("a", "scalar", f32)
"""

from __future__ import annotations

from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.types import Type
from vkchi.types.attributes import ArrayArgument
from vkchi.types.structs import ArgPackType


class ArgSpec(NamedTuple):
    """A kernel argument as far as its code depends on it.

    kind: `scalar` or `tensor` (by value, of `type`), `array` (by reference, `type` an
    ArrayArgument, `value` its boundary: `unsafe` or `clamp`),
    `sparse` (a builder of sparse matrices: the count as an `array`, `value` the types of the arrays
    of rows, columns and numbers), `texture` (its texels as an `array`, `value` its annotation and
    format), `template` (the compile-time `value`), `self` (the object whose method the kernel is).
    Of several members, whose specs are the `value`, named by their paths: `struct` (by value),
    `structs` (an array of structs) and `pack` (arguments passed together), `type` their type.
    """

    name: str
    kind: str
    type: Type | ArgPackType | ArrayArgument | None
    value: Any = None
