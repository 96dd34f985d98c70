"""JSON format of a saved module: kernels, their parameters, fields, graphs. See docs/aot.md.

Compiled code is encoded as in the disk cache (`cache/codec.py`), with shaders as separate files.

    files = write_saved(saved)      # {"module.json": ..., "step.0.spv": ...}
    read_saved(files)
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

from vkchi.cache.codec import from_tree, to_tree
from vkchi.errors import ModuleError
from vkchi.interrupts.local import local
from vkchi.ir.literal import type_named
from vkchi.target.artifact import Artifact, Interface
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types.struct_types import StructType

NAME, FORMAT = "vkchi module", 15  # bump FORMAT when a record changes (tested)
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

    - parameters: parameters of calls, as trees of `aot/parameters.py`.
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
