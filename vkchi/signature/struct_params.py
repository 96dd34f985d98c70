"""Kernel parameters with members: structs, arrays of structs, argument packs.

Each is split into one parameter per member, named by its path (`ball.pos`). `bind` binds the
members. The signature of an array or pack has the signatures of its members; that of a struct is
empty.

    @ti.kernel
    def push(ball: Ball, balls: ti.types.ndarray(dtype=Ball)): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.fields.storage import Storage
from vkchi.fields.struct_arrays import StructNdarray
from vkchi.frontend.argspec import ArgSpec
from vkchi.lang.argpack import ArgPack
from vkchi.lang.struct import Struct, members_of
from vkchi.signature import Parameter, parameter_of
from vkchi.signature.bound import BoundArguments
from vkchi.signature.wording import describe_argument
from vkchi.types import ndarray
from vkchi.types.struct_types import ArgPackType, StructType


class GroupParameter(Parameter):
    """Base class of parameters with `members`, by name."""

    def __init__(self, name: str, type: Any, members: dict[str, Parameter]) -> None:
        super().__init__(name, type)
        self.members = members

    def parts(self, arg: Any) -> Mapping[str, Any]:
        """Return the members of an argument by name. Raises ArgumentError if it does not fit."""
        raise NotImplementedError

    def pairs(self, arg: Any) -> list[tuple[Parameter, Any]]:
        parts = self.parts(arg)
        return [(p.chosen(parts[name]), parts[name]) for name, p in self.members.items()]

    def sign(self, arg: Any) -> Any:
        return tuple([p.sign(part) for p, part in self.pairs(arg)])

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        specs = [p.spec(part, s) for (p, part), s in zip(self.pairs(arg), signed, strict=True)]
        return ArgSpec(self.name, self.kind, self.type, tuple(specs))

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        for p, part in self.pairs(arg):
            p.bind(part, bound)

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [place for p, part in self.pairs(arg) for place in p.places(part)]

    def leaves(self, arg: Any) -> Iterator[tuple[Parameter, Any]]:
        for p, part in self.pairs(arg):
            yield from p.leaves(part)

    def keep_parts(self, arg: Any, copies: Mapping[str, Storage]) -> dict[str, Any]:
        pairs = zip(self.members, self.pairs(arg))
        return {name: p.keep(part, copies) for name, (p, part) in pairs}


class StructParameter(GroupParameter):
    """A struct by value: a ti.Struct or a dict with the members of its type."""

    kind = "struct"

    def sign(self, arg: Any) -> Any:
        return ()

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        specs = tuple([p.spec(None, None if p.kind != "struct" else ()) for p in self._each()])
        return ArgSpec(self.name, self.kind, self.type, specs)

    def keep(self, arg: Any, copies: Mapping[str, Storage]) -> Any:
        return self.keep_parts(arg, copies)

    def _each(self) -> list[Parameter]:
        return list(self.members.values())

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [place for p in self._each() for place in p.places(None)]

    def parts(self, arg: Any) -> Mapping[str, Any]:
        if not isinstance(arg, Struct | dict):
            raise self.refuse(f"{self.type} is needed, not {describe_argument(arg)}")
        parts = members_of(arg)
        if parts.keys() != self.members.keys():
            raise self.refuse(
                f"a struct of {', '.join(self.members)} is needed, not of {', '.join(parts)}"
            )
        return parts


class StructsParameter(GroupParameter):
    """An ndarray of structs, by reference."""

    kind = "structs"

    def parts(self, arg: Any) -> Mapping[str, Any]:
        if not isinstance(arg, StructNdarray) or not self.type.is_like(arg.__vkchi_type__):
            what = arg if isinstance(arg, StructNdarray) else describe_argument(arg)
            raise self.refuse(f"a ti.ndarray of {self.type} is needed, not {what}")
        return arg.__vkchi_arrays__


class PackParameter(GroupParameter):
    """A pack of arguments, each handled like a separate argument."""

    kind = "pack"

    def parts(self, arg: Any) -> Mapping[str, Any]:
        if not isinstance(arg, ArgPack) or arg.__vkchi_type__.members != self.type.members:
            raise self.refuse(f"an {self.type} is needed, not {describe_argument(arg)}")
        return arg.entries

    def keep(self, arg: Any, copies: Mapping[str, Storage]) -> Any:
        return ArgPack(self.type, self.keep_parts(arg, copies))


# --- factories -------------------------------------------------------------------------------


def _each(name: str, notes: Mapping[str, Any]) -> dict[str, Parameter]:
    found = {key: parameter_of(f"{name}.{key}", note) for key, note in notes.items()}
    for key, parameter in found.items():
        if parameter is None or parameter.kind == "object":
            raise KernelSyntaxError(
                f"`{key}` of the argpack `{name}` has the annotation {notes[key]!r}, which is no "
                "kernel type",
                help="a number, vector, matrix or struct type, ti.types.ndarray(...) or an argpack",
            )
    return {key: parameter for key, parameter in found.items() if parameter is not None}


def pack_parameter(name: str, note: ArgPackType) -> Parameter:
    """Return the handler of an argument annotated with an argpack type. Raises KernelSyntaxError
    for a member with an unsupported annotation."""
    return PackParameter(name, note, _each(name, note.members))


def struct_parameter(name: str, note: StructType | ndarray) -> Parameter:
    """Return the handler of an argument annotated with a struct type, or an ndarray of structs."""
    if isinstance(note, StructType):
        return StructParameter(name, note, _each(name, note.members))
    t = note.dtype
    assert isinstance(t, StructType)
    notes = {
        key: ndarray(m, note.ndim, needs_grad=note.needs_grad, boundary=note.boundary)
        for key, m in t.members.items()
    }
    return StructsParameter(name, t, _each(name, notes))
