"""JSON format of a saved module: kernels, their parameters, fields, graphs. See docs/aot.md.

Compiled code is encoded as in the disk cache (`cache/codec.py`), with shaders as separate files.

    files = write_saved(saved)      # {"module.json": ..., "step.0.spv": ...}
    read_saved(files)
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import Any

from vkchi.cache.codec import from_tree, to_tree
from vkchi.errors import ArgumentError, ModuleError
from vkchi.interrupts.local import local
from vkchi.ir.literal import type_named
from vkchi.lang.argpack import ArgPack
from vkchi.ndarray import ndarray
from vkchi.signature import Parameter, parameter_of
from vkchi.signature.struct_params import GroupParameter, PackParameter
from vkchi.signature.wording import describe_argument
from vkchi.target.artifact import Artifact, Interface
from vkchi.target.caps import Caps
from vkchi.texture import Texture
from vkchi.tuples import NamedTuple
from vkchi.types import ndarray as ndarray_type
from vkchi.types.core import MOST_ALIGNED, ArrayArgument, Attributes
from vkchi.types.formats import Format, rw_texture, texture
from vkchi.types.lazy_numpy import np
from vkchi.types.struct_types import ArgPackType, StructType

NAME, FORMAT = "vkchi module", 16  # bump FORMAT when a record changes (tested)
METADATA = "module.json"
SPIRV_MAGIC = b"\x03\x02\x23\x07"
CODE = "tuple[Artifact, Interface]"
MALFORMED: tuple[type[Exception], ...] = (
    ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError,
    StopIteration, AssertionError, struct.error,
)  # fmt: skip

Tree = Any  # a JSON value


class SavedField(NamedTuple):
    """A field: the text of its array type, the index of its memory block, its offset in bytes."""

    type: str
    block: int
    start_bytes: int


class SavedKernel(NamedTuple):
    """A kernel for one signature.

    - parameters: parameters of calls, as trees of `aot/json_format.py`.
    - fields: the name of the field bound to each parameter of the artifact.
    """

    parameters: tuple[Tree, ...]
    fields: dict[str, str]
    artifact: Artifact
    interface: Interface


class SavedGraph(NamedTuple):
    """A graph: arguments by name, and kernels with arguments: ["arg", name] or ["value", v]."""

    arguments: dict[str, Tree]
    nodes: tuple[tuple[str, tuple[tuple[str, Tree], ...]], ...]


class Saved(NamedTuple):
    """A saved module.

    - compiler: the compiler's version.
    - caps: the capabilities that code was compiled for.
    - blocks: sizes in bytes of memory blocks for fields.

    Names of fields and kernels that were included implicitly begin with `.`. Exceptions are
    gradients and duals of named fields: `x.grad`.
    """

    compiler: str
    caps: Caps
    blocks: tuple[int, ...]
    fields: dict[str, SavedField]
    kernels: dict[str, SavedKernel]
    graphs: dict[str, SavedGraph]


def type_tree(t: Any) -> Tree:
    if isinstance(t, StructType):
        return {"struct": {name: type_tree(m) for name, m in t.members.items()}}
    return repr(t)


def type_of(tree: Tree) -> Any:
    """Return the type of a tree. Raises ValueError, KeyError, TypeError."""
    if isinstance(tree, dict):
        return StructType({name: type_of(m) for name, m in tree["struct"].items()})
    return type_named(tree)


# --- writing -------------------------------------------------------------------------------------


def write_saved(saved: Saved) -> dict[str, bytes]:
    """Return the files of a module, by name: metadata and shaders."""
    shaders: dict[str, bytes] = {}
    kernels = {name: _kernel_tree(name, k, shaders) for name, k in saved.kernels.items()}
    tree = {
        "format": NAME,
        "version": FORMAT,
        "compiler": saved.compiler,
        "caps": saved.caps._asdict(),
        "blocks": saved.blocks,
        "fields": {name: f._asdict() for name, f in saved.fields.items()},
        "kernels": kernels,
        "graphs": {name: g._asdict() for name, g in saved.graphs.items()},
    }
    return {METADATA: json.dumps(tree, indent=1).encode(), **shaders}


def _kernel_tree(name: str, kernel: SavedKernel, shaders: dict[str, bytes]) -> Tree:
    blobs: list[bytes] = []
    interface = kernel.interface._replace(results=())
    code = to_tree((kernel.artifact, interface), CODE, blobs)
    known = {data: name for name, data in shaders.items()}
    names = [known.get(data) or file_name(name, k, shaders) for k, data in enumerate(blobs)]
    shaders.update(zip(names, blobs))
    return {
        "parameters": kernel.parameters,
        "results": [type_tree(t) for t in kernel.interface.results],
        "fields": kernel.fields,
        "shaders": names,
        "code": code,
    }


def file_name(kernel: str, k: int, taken: dict[str, bytes]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", kernel)[:80].strip("-.") or "kernel"
    name, n = f"{plain}.{k}.spv", 1
    while name in taken:
        n += 1
        name = f"{plain}-{n}.{k}.spv"
    return name


# --- reading -------------------------------------------------------------------------------------


def read_saved(files: dict[str, bytes]) -> Saved:
    """Return the module in these files. Raises ModuleError."""
    try:
        tree = json.loads(files[METADATA])
        name, version = tree["format"], tree["version"]
    except local(*MALFORMED):
        raise ModuleError(f"{METADATA} says nothing of a vkchi module") from None
    if name != NAME:
        raise ModuleError(f"{METADATA} is that of a {name!r}, not of a vkchi module")
    if version != FORMAT:
        raise ModuleError(
            f"the module is of format {version}, and this vkchi reads format {FORMAT}: save it "
            "again with this version of vkchi"
        )
    try:
        return _saved(tree, files)
    except ModuleError:
        raise
    except local(*MALFORMED) as e:
        raise ModuleError(f"{METADATA} is none that vkchi writes: {fault_of(e)}") from None


def fault_of(error: Exception) -> str:
    """Description of an error of `MALFORMED`, without the name of its class."""
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]!r} is missing"
    return str(error) or "its structure is another one"


def _saved(tree: Tree, files: dict[str, bytes]) -> Saved:
    caps = tree["caps"]
    for name in ("workgroup_count", "workgroup_size"):
        caps[name] = tuple(caps[name])
    return Saved(
        tree["compiler"],
        Caps(**caps),
        tuple(tree["blocks"]),
        {name: SavedField(**f) for name, f in tree["fields"].items()},
        {name: _kernel_of(k, files) for name, k in tree["kernels"].items()},
        {name: _graph_of(g) for name, g in tree["graphs"].items()},
    )


def _kernel_of(tree: Tree, files: dict[str, bytes]) -> SavedKernel:
    missing = [name for name in tree["shaders"] if name not in files]
    if missing:
        raise ModuleError(f"{METADATA} names the file {missing[0]!r}, which the module lacks")
    shaders = [files[name] for name in tree["shaders"]]
    for name, words in zip(tree["shaders"], shaders):
        if len(words) % 4 or words[:4] != SPIRV_MAGIC:
            raise ModuleError(f"{name} is no SPIR-V")
    artifact, interface = from_tree(tree["code"], CODE, shaders)
    interface = interface._replace(results=tuple(type_of(t) for t in tree["results"]))
    return SavedKernel(tuple(tree["parameters"]), tree["fields"], artifact, interface)


def _graph_of(tree: Tree) -> SavedGraph:
    nodes = [(name, tuple((kind, v) for kind, v in given)) for name, given in tree["nodes"]]
    return SavedGraph(tree["arguments"], tuple(nodes))


# --- parameters of kernels -----------------------------------------------------------------------
#
# Parameters of saved kernels: conversion to and from JSON, and sample arguments for compilation.
#
# Example:
#
#     >>> parameter_tree(parameter, signed)
#     {'kind': 'scalar', 'name': 'a', 'type': 'f32'}

GIVEN = Attributes(aligned=MOST_ALIGNED)  # attributes of arrays made by vkchi
STATIC = ("template", "object", "self")  # compiled in, not passed by calls


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
