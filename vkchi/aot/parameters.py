"""Parameters of saved kernels: conversion to and from JSON, and sample arguments for compilation.

Example:

    >>> parameter_tree(parameter, signed)
    {'kind': 'scalar', 'name': 'a', 'type': 'f32'}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vkchi.aot.json_format import Tree, type_of, type_tree
from vkchi.errors import ArgumentError
from vkchi.lang.argpack import ArgPack
from vkchi.ndarray import ndarray
from vkchi.signature import Parameter, parameter_of
from vkchi.signature.struct_params import GroupParameter, PackParameter
from vkchi.signature.wording import describe_argument
from vkchi.texture import Texture
from vkchi.types import ndarray as ndarray_type
from vkchi.types.array_attributes import MOST_ALIGNED, ArrayArgument, Attributes
from vkchi.types.formats import Format, rw_texture, texture
from vkchi.types.lazy_numpy import np
from vkchi.types.struct_types import ArgPackType

GIVEN = Attributes(aligned=MOST_ALIGNED)  # attributes of arrays made by vkchi
STATIC = ("template", "self")  # compiled in, not passed by calls


def is_bound(p: Parameter) -> bool:
    return p.kind not in STATIC


def example_of(p: Parameter, given: Any = None) -> Any:
    """Return a sample argument for a parameter: `given`, or one derived from the annotation. Raises
    ArgumentError if the annotation is incomplete, or a template value is not given."""
    if given is not None:
        return given
    match p.kind:
        case "array":
            return _example_array(p)
        case "structs":
            return p.type.ndarray((1,) * _ndim_of(p, p.members))  # type: ignore[attr-defined]
        case "texture":
            note: Any = p.note  # type: ignore[attr-defined]
            return Texture(getattr(note, "fmt", Format.rgba8), (1,) * note.num_dimensions)
        case "pack":
            return ArgPack(p.type, _example_members(p))
        case "tensor":
            return np.zeros(p.type.shape, p.type.elem.dtype)
        case "struct":
            return _example_members(p)
        case "scalar":
            return 0
    raise p.refuse("its value is needed: give it in template_args, or add a template of the kernel")


def _example_members(p: Any) -> dict[str, Any]:
    return {name: example_of(m) for name, m in p.members.items()}


def _example_array(p: Any) -> Any:
    note = p.annotation
    if note.dtype is None or note.ndim is None:
        raise p.refuse(
            "its annotation does not say of what type the array is: write "
            "ti.types.ndarray(dtype=..., ndim=...), or give an array in template_args"
        )
    return ndarray(note.dtype, (1,) * note.ndim)


def _ndim_of(p: Parameter, members: dict[str, Any]) -> int:
    first: Any = next(iter(members.values()), None)
    while isinstance(first, GroupParameter):
        first = next(iter(first.members.values()), None)
    if first is None or first.annotation.ndim is None:
        raise p.refuse("its annotation does not say how many axes the array has: write ndim=...")
    return int(first.annotation.ndim)


def parameter_tree(p: Any, signed: Any) -> Tree:
    """Return a parameter and its signature as JSON."""
    tree: dict[str, Any] = {"kind": p.kind, "name": p.name}
    match p.kind:
        case "array":
            note = p.annotation
            tree |= {"type": type_word(p, signed), "boundary": note.boundary}
            tree |= {"needs_grad": note.needs_grad}
        case "texture":
            tree |= {"ndim": p.note.num_dimensions, "fmt": signed[0].name}
            tree |= {"writes": isinstance(p.note, rw_texture), "type": type_word(p, signed[1])}
        case "structs":
            ndim = _ndim_of(p, p.members)
            parts = [parameter_tree(m, s) for m, s in zip(p.members.values(), signed, strict=True)]
            tree |= {"type": type_tree(p.type), "ndim": ndim, "parts": parts}
        case "pack":
            parts = [parameter_tree(m, s) for m, s in zip(p.members.values(), signed, strict=True)]
            tree |= {"members": dict(zip(p.members, parts))}
        case _:
            tree |= {"type": type_tree(p.type)}
    return tree


class SavedPack(PackParameter):
    """A parameter for an argument pack, which fits if its member names are equal."""

    def parts(self, arg: Any) -> Mapping[str, Any]:
        if not isinstance(arg, ArgPack) or arg.entries.keys() != self.members.keys():
            raise self.refuse(f"an {self.type} is needed, not {describe_argument(arg)}")
        return arg.entries


def type_word(p: Parameter, signed: ArrayArgument) -> str:
    """Return the type of an array argument as text. Raises ArgumentError for an array with unusual
    attributes, which code would depend on."""
    if signed.attributes != GIVEN:
        raise p.refuse("the code would be for this array only: give a ti.ndarray of its type")
    return repr(signed.type)


def load_parameter(tree: Tree) -> tuple[Parameter, Any]:
    """Return the parameter of a tree, and the required signature of its arguments. Raises
    ValueError and similar errors for a malformed tree."""
    name = tree["name"]
    found = parameter_of(name, annotation_of(tree))
    if found is None or found.kind != tree["kind"]:
        raise ValueError(f"no parameter: {tree}")
    if isinstance(found, PackParameter):
        found = SavedPack(name, found.type, found.members)
    mark_saved(found)
    return found, signed_of(tree)


def mark_saved(p: Parameter) -> None:
    """Leave changes of annotations out of the help of errors about a parameter and its members."""
    p.is_saved = True
    if isinstance(p, GroupParameter):
        for member in p.members.values():
            mark_saved(member)


def annotation_of(tree: Tree) -> Any:
    match tree["kind"]:
        case "array":
            t = type_of(tree["type"])
            options = {"needs_grad": tree["needs_grad"], "boundary": tree["boundary"]}
            return ndarray_type(t.elem, t.ndim, **options)
        case "texture":
            if tree["writes"]:
                return rw_texture(tree["ndim"], fmt=Format[tree["fmt"]])
            return texture(tree["ndim"])
        case "structs":
            return ndarray_type(type_of(tree["type"]), tree["ndim"])
        case "pack":
            members = {key: annotation_of(part) for key, part in tree["members"].items()}
            return ArgPackType(members)
    return type_of(tree["type"])


def signed_of(tree: Tree) -> Any:
    """Return the result of `Parameter.sign` for valid arguments."""
    match tree["kind"]:
        case "array":
            return ArrayArgument.of(type_of(tree["type"]), GIVEN)
        case "texture":
            array = ArrayArgument.of(type_of(tree["type"]), GIVEN)
            return (Format[tree["fmt"]], array)
        case "structs":
            return tuple(signed_of(part) for part in tree["parts"])
        case "pack":
            return tuple(signed_of(part) for part in tree["members"].values())
        case "struct":
            return ()
    return None


def check_signed(p: Parameter, arg: Any, wanted: Any) -> None:
    """Raise ArgumentError if an argument has another type than the code was compiled for."""
    found = p.sign(arg)
    if found == wanted:
        return
    if p.kind == "texture":
        raise ArgumentError(
            f"argument `{p.name}`: the kernel was saved for textures of ti.{wanted[0]}, not of "
            f"ti.{found[0]}: save it with such a texture in template_args"
        )
    raise ArgumentError(f"argument `{p.name}`: the kernel was saved for {wanted}, not {found}")
