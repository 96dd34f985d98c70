"""Description of one kernel argument, which the package `signature` passes to the frontend.

>>> ArgSpec("a", "scalar", f32)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.types import Type
from vkchi.types.core import ArrayArgument
from vkchi.types.struct_types import ArgPackType


class ViewAxis(NamedTuple):
    """How an axis of a base is used: `axis` of the view, in steps of `step`, or one index (-1).

    `is_whole`: all indices are used. Otherwise the first index and, for a run, its length are
    arguments.
    """

    axis: int
    step: int
    is_whole: bool

    @property
    def arguments(self) -> int:
        """Number of arguments of this axis."""
        return 1 if self.axis < 0 else 0 if self.is_whole else 2


class ArgSpec(NamedTuple):
    """The properties of a kernel argument that the generated code depends on.

    | kind | argument | fields |
    |---|---|---|
    | `scalar`, `tensor` | by value | `type` |
    | `array` | by reference | `type` an ArrayArgument, `value` the boundary: `unsafe` or `clamp` |
    | `sparse` | builder of a sparse matrix | `type` of the count, `value` the other array types |
    | `texture` | array of texels | `type` an ArrayArgument, `value` the annotation and format |
    | `template` | compile-time constant | `value` |
    | `object` | object whose annotation is its dataclass | `value` |
    | `self` | object whose method the kernel is | `value` |
    | `struct`, `structs`, `pack` | struct, array of structs, argument pack | `type`, `value` |
    | `view` | view of an array | `value` a ViewSpec |

    `given` is the argument itself, for arrays. No code depends on it; members are compared with it.
    The array types in `value` of `sparse` are those of rows, columns and entries. Kinds with
    members have the ArgSpecs of their members in `value`, named by the members' paths.
    """

    name: str
    kind: str
    type: Type | ArgPackType | ArrayArgument | None
    value: Any = None
    given: Any = None


class ViewSpec(NamedTuple):
    """A view: the name of the base's parameter, its ArgSpec unless an earlier argument has it, the
    axes, and the integers that locate the view."""

    owner: str
    base: ArgSpec | None
    axes: tuple[ViewAxis, ...]
    numbers: tuple[ArgSpec, ...]


def passed_arrays(args: Iterable[ArgSpec]) -> Iterator[ArgSpec]:
    """Yield the arrays among the arguments, and the bases of views; without those of packs."""
    for arg in args:
        found = arg.value.base if arg.kind == "view" else arg
        if found is not None and found.kind == "array":
            yield found
