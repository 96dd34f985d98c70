"""Description of one kernel argument, which the package `signature` passes to the frontend.

>>> ArgSpec("a", "scalar", f32)
"""

from __future__ import annotations

from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.types import Type
from vkchi.types.core import ArrayArgument
from vkchi.types.struct_types import ArgPackType


class ArgSpec(NamedTuple):
    """The properties of a kernel argument that the generated code depends on.

    | kind | argument | fields |
    |---|---|---|
    | `scalar`, `tensor` | by value | `type` |
    | `array` | by reference | `type` an ArrayArgument, `value` the boundary: `unsafe` or `clamp` |
    | `sparse` | builder of a sparse matrix | `type` of the count, `value` the other array types |
    | `texture` | array of texels | `type` an ArrayArgument, `value` the annotation and format |
    | `template` | compile-time constant | `value` |
    | `self` | object whose method the kernel is | `value` |
    | `struct`, `structs`, `pack` | struct, array of structs, argument pack | `type`, `value` |

    `given` is the argument itself, for arrays. No code depends on it; members are compared with it.
    The array types in `value` of `sparse` are those of rows, columns and entries. Kinds with
    members have the ArgSpecs of their members in `value`, named by the members' paths.
    """

    name: str
    kind: str
    type: Type | ArgPackType | ArrayArgument | None
    value: Any = None
    given: Any = None
