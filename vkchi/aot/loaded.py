"""Loading and running of saved modules, without the compiler.

Example:

    m = ti.load("steps"); m.fields["x"].fill(1); m.step(0.1); m.graphs["frame"].run({"dt": 0.1})
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from vkchi.aot.capabilities import missing_features
from vkchi.aot.files import read_files
from vkchi.aot.json_format import (
    MALFORMED,
    Saved,
    SavedGraph,
    SavedKernel,
    check_signed,
    fault_of,
    read_saved,
    type_of,
)
from vkchi.aot.json_format import load_parameter as load_parameter
from vkchi.cache.compiled import Compiled
from vkchi.errors import (
    ArgumentError,
    ArgumentListError,
    DeviceError,
    GradientError,
    InternalError,
    KernelRuntimeError,
    MissingNameError,
    ModuleError,
    VkchiError,
)
from vkchi.fields.storage import Storage
from vkchi.fields.trees.tree_layout import BufferView
from vkchi.graph.graph_arguments import FACTS, Arg, ArgKind
from vkchi.graph.graph_builder import Graph, GraphNode
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.local import local
from vkchi.kernel import launch_or_record
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.runtime import Runtime, current_runtime
from vkchi.signature import Parameter
from vkchi.signature.signer import Signer
from vkchi.types import Array
from vkchi.types.formats import Format
from vkchi.types.layout import check_layout_range, shares_words

T = TypeVar("T")


class LoadedKernel:
    """A kernel of a saved module. A call launches it, like a `ti.kernel`.

    Template parameters are fixed and not arguments. A call raises ArgumentError for arguments of
    other types than it was saved for. It raises GradientError under tapes and in forward mode.
    """

    __vkchi_kind__, is_method = "loaded kernel", False

    def __init__(self, name: str, saved: SavedKernel, module: LoadedModule) -> None:
        self.__name__, self._saved, self._module = name, saved, module
        pairs = [load_parameter(tree) for tree in saved.parameters]
        self.parameters: list[Parameter] = [p for p, _ in pairs]
        self._wanted = [signed for _, signed in pairs]
        self._signer = Signer(self.parameters)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self._members = [p.name for p in self.parameters if "." in p.name]
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(p.name, kind) for p in self.parameters if "." not in p.name]
        )
        self._compiled: CompiledKernel | None = None

    @property
    def __vkchi_func__(self) -> Any:
        return SimpleNamespace(__name__=self.__name__)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}{self.__signature__} of {self._module}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(args, kwargs, partial(launch_or_record, self.__name__))

    def grad(self, *args: Any, **kwargs: Any) -> None:
        """Not supported. Raises GradientError."""
        raise GradientError(NO_GRADIENT.format(self.__name__))

    def inspect(self, look: Callable[[CompiledKernel, Any], T], *args: Any) -> T:
        """Return `look(kernel, arguments)` for a call, without running the kernel."""
        found: T = self._run(args, {}, look)
        return found

    def _run(self, args: Any, kwargs: Any, act: Callable[[CompiledKernel, Any], Any]) -> Any:
        runtime = self._module.open_runtime()
        tape = runtime.tape
        if tape is not None and tape.kind != "record":
            raise GradientError(NO_GRADIENT.format(self.__name__))
        args = self.arrange(args, kwargs)
        try:
            args = self._signer.adopt(args)
            for p, arg, wanted in zip(self.parameters, args, self._wanted, strict=True):
                check_signed(p, arg, wanted)
            if self._compiled is None:
                runtime.device.require_open()
                with restoring(runtime.lock), runtime.lock:
                    self._compiled = self._load(runtime, args)
            return act(self._compiled, args)
        except ArgumentError as e:
            raise ArgumentError(f"{self.__name__}(): {e}") from None
        except VkchiError:
            raise
        except local(*MALFORMED) as e:
            raise ModuleError(f"{self.__name__}() is none that vkchi writes: {fault_of(e)}") from e

    def _load(self, runtime: Runtime, args: tuple[Any, ...]) -> CompiledKernel:
        saved, fields = self._saved, self._module.all_fields
        arrays = {name: fields[field] for name, field in saved.fields.items()}
        compiled = Compiled(saved.artifact, saved.interface, None, arrays)
        return CompiledKernel(runtime, compiled, self._signer, args)

    def arrange(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if not kwargs and len(args) == len(self.parameters):
            return args
        missing = [name for name in self._members if name not in kwargs]
        if missing:
            raise ArgumentListError(
                f"{self.__name__}(): the array `{missing[0]}` is missing\nhelp: pass it as "
                f'{self.__name__}(..., **{{"{missing[0]}": array}})'
            )
        members = tuple([kwargs[name] for name in self._members])
        others = {key: x for key, x in kwargs.items() if key not in self._members}
        try:
            return (*self.__signature__.bind(*args, **others).args, *members)
        except TypeError as e:
            takes = ", ".join(p.name for p in self.parameters) or "nothing"
            raise ArgumentListError(f"{self.__name__}({takes}): {e}") from None


NO_GRADIENT = (
    "{}() is a kernel of a saved module, of which there is no gradient: save a kernel that "
    "computes it, or call the kernel outside of tapes and forward mode"
)


LoadedGraph = Graph


class LoadedModule:
    """A loaded module: `fields`, `kernels` and `graphs` by name.

    Kernels are attributes too. Kernels with templates are `kernel(name, parameter=value)`. The
    constructor allocates the fields' memory; it raises DeviceError for an unsuitable device.
    """

    def __init__(self, path: str, saved: Saved, runtime: Runtime) -> None:
        self._path, self._runtime = path, runtime
        check_device(path, saved, runtime)
        device = runtime.device
        blocks = [device.allocate(size_bytes) for size_bytes in saved.blocks]
        self.all_fields = {
            name: make_field(name, runtime, type_of(f.type), blocks[f.block], f.start_bytes)
            for name, f in saved.fields.items()
        }
        self.fields = {name: f for name, f in self.all_fields.items() if name[0] != "."}
        kernels = {name: LoadedKernel(name, k, self) for name, k in saved.kernels.items()}
        self.kernels = {name: k for name, k in kernels.items() if name[0] != "."}
        self.graphs = {name: make_graph(g, kernels) for name, g in saved.graphs.items()}

    def __repr__(self) -> str:
        return f"<module {self._path}>"

    def __getattr__(self, name: str) -> LoadedKernel:
        kernels = vars(self).get("kernels", {})
        if name not in kernels:
            there = ", ".join(kernels) or "none"
            sentence = f"{self._path} has no kernel {name!r}: there are {there}"
            raise MissingNameError(sentence, name, str)
        found: LoadedKernel = kernels[name]
        return found

    def kernel(self, name: str, **templates: Any) -> LoadedKernel:
        """Return the kernel `name` for these template values. Raises AttributeError if there is
        none.

        templates: numbers, or names of fields, by parameter, in the order of `instantiate`.
        """
        parts = ",".join(f"{key}={value}" for key, value in templates.items())
        return self.__getattr__(f"{name}[{parts}]" if parts else name)

    def open_runtime(self) -> Runtime:
        """Return the module's runtime. Raises KernelRuntimeError if it is not the current one."""
        runtime = current_runtime()
        if runtime is not self._runtime:
            raise KernelRuntimeError(
                f"the module {self._path} was loaded before ti.init: load it again"
            )
        return runtime


def load(path: str | os.PathLike[str]) -> LoadedModule:
    """Load a module on the current device. Its fields are zero.

    Args:
        path: a folder or a .tcm archive.

    Returns:
        The module, with its kernels, graphs and fields.

    Raises:
        KernelRuntimeError: before `init`.
        ModuleError: for a module that is missing, damaged or of another format version.
        DeviceError: if the device lacks a feature that the kernels need.
    """
    runtime = current_runtime()
    saved = read_saved(read_files(path))
    try:
        return LoadedModule(os.fspath(path), saved, runtime)
    except local(*MALFORMED, InternalError) as e:
        raise ModuleError(f"{path} is no module that vkchi writes: {fault_of(e)}") from None


def check_device(path: str, saved: Saved, runtime: Runtime) -> None:
    """Raise DeviceError, naming them, if the device lacks features that the module's kernels
    need."""
    lacks: dict[str, None] = {}
    for kernel in saved.kernels.values():
        for dispatch in kernel.artifact.dispatches:
            found = missing_features(dispatch.shader, saved.caps, runtime.device.caps)
            lacks |= dict.fromkeys(found)
    if lacks:
        raise DeviceError(
            f"{runtime.device.info.name} cannot run {path}: it lacks {', '.join(lacks)}; save the "
            "module with caps= that leave these out, or choose another device"
        )


def make_field(name: str, runtime: Runtime, t: Any, block: Any, start_bytes: int) -> Storage:
    """Create a field in a memory block. Raises ValueError for an invalid type or start, and if the
    field exceeds the block."""
    if not isinstance(t, Array) or t.shape is None or t.layout is None:
        raise ValueError(f"the type of field {name!r} is {t}, which is not that of a field")
    check_layout_range(t.shape, t.layout)
    if type(start_bytes) is not int or start_bytes < 0:
        raise ValueError(f"field {name!r} cannot begin at {start_bytes!r}")
    if shares_words(t.layout):
        from vkchi.fields.trees.bitpacked import quantised_like

        made: Storage = quantised_like(runtime, t)
    else:
        made = object.__new__(Storage)
        made.describe(runtime, t.elem, t.stored)
    made.arrange(t.shape, t.layout)
    if start_bytes + made.size_bytes > block.size_bytes:
        raise ValueError(
            f"field {name!r} of {made.size_bytes} bytes at {start_bytes} exceeds its memory block "
            f"of {block.size_bytes}"
        )
    made.attach(BufferView(block, start_bytes, made.size_bytes), is_own=False)
    return made


def make_graph(saved: SavedGraph, kernels: Mapping[str, LoadedKernel]) -> Graph:
    args = {name: arg_of(name, tree) for name, tree in saved.arguments.items()}
    nodes = []
    for name, entries in saved.nodes:
        given = tuple(args[v] if kind == "arg" else v for kind, v in entries)
        nodes.append(GraphNode(kernels[name], given))
    return Graph(nodes)


def arg_of(name: str, tree: Mapping[str, Any]) -> Arg:
    facts = {"dtype": type_of(tree["dtype"]) if tree["dtype"] else None, "ndim": tree["ndim"]}
    facts["fmt"] = Format[tree["fmt"]] if tree["fmt"] else None
    tag = ArgKind[tree["tag"]]
    return Arg(tag, name, **{k: v for k, v in facts.items() if k in FACTS[tag]})
