"""`ti.aot.Module`: collects kernels, fields and graphs, compiled to be saved.

A kernel is saved for one signature: array types, texture formats, template values. Its code does
not assume equal shapes or disjoint memory of array arguments. Fields that kernels use but that were
not added are included under names that begin with `.`. Gradients and duals of added fields are
included as `x.grad` and `x.dual`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vkchi.aot import text_table
from vkchi.aot.capabilities import caps_of, portable
from vkchi.aot.files import CONTENT, write_archive, write_folder
from vkchi.aot.json_format import (
    Saved,
    SavedField,
    SavedGraph,
    SavedKernel,
    example_of,
    is_bound,
    parameter_tree,
    write_saved,
)
from vkchi.cache.version import compiler_version
from vkchi.compile_state import compiling
from vkchi.errors import ArgumentError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.frontend.state.captured_values import value_of
from vkchi.graph import Arg, ArgKind, Graph
from vkchi.interrupts.contexts import restoring
from vkchi.kernel import BoundKernel, Kernel, find_compiled
from vkchi.lang.matrix import Matrix
from vkchi.ndarray import ndarray
from vkchi.runtime import Arch, current_runtime
from vkchi.signature import ArrayParameter, Parameter, read_parameters
from vkchi.signature.wording import describe_argument
from vkchi.span import Span, cell_name, shown_file
from vkchi.texture import Texture
from vkchi.tuples import NamedTuple
from vkchi.types import ndarray as ndarray_type
from vkchi.types.formats import Format
from vkchi.types.lazy_numpy import is_real_scalar, np

AnyKernel = Kernel | BoundKernel


class KernelTemplate:
    """A kernel with template parameters, in a module. Each `instantiate` saves it for other
    template values, as NAME[parameter=value,...]."""

    def __init__(self, kernel: AnyKernel, module: Module) -> None:
        self._kernel, self._module = kernel, module

    def instantiate(self, **values: Any) -> None:
        """Add the kernel for these template values: numbers, or fields added by `Module.add_field`.
        Raises ArgumentError for other values, and the errors of `Module.add_kernel`."""
        parts = [f"{key}={self._module.word_for(value)}" for key, value in values.items()]
        name = f"{self._kernel.__name__}[{','.join(parts)}]"  # type: ignore[union-attr]
        self._module.add_kernel(self._kernel, values, name)


class Module:
    """Kernels, fields and graphs to be saved as files.

    arch: ti.vulkan or the current arch; others warn, since all code is SPIR-V for Vulkan. caps:
    capabilities that devices must have (names of `ti.DeviceCapability`); by default those of the
    current device. Raises KernelRuntimeError before `init`, ArgumentError for unknown capabilities.
    Source: Taichi's `ti.aot.Module`.
    """

    def __init__(self, arch: Arch | None = None, caps: Iterable[str] | None = None) -> None:
        self._runtime = current_runtime()
        if (
            arch is not None
            and arch.name != "vulkan"
            and arch != vars(self._runtime.config)["arch"]
        ):
            warnings.warn(f"modules are made for Vulkan, not for {arch}", stacklevel=2)
        device = self._runtime.device.caps
        names = list(caps or ())
        self._caps = caps_of(names, device) if names else portable(device)
        self._added: dict[str, Any] = {}
        self._fields: dict[str, Storage] = {}
        self._kernels: dict[str, SavedKernel] = {}
        self._graphs: dict[str, SavedGraph] = {}

    # --- fields ----------------------------------------------------------------------------------

    def add_field(self, name: str, field: Any) -> None:
        """Add `field` under `name`; members of a field of structs as NAME.MEMBER. Raises
        ArgumentError for anything but a field, and for an invalid name or one in use."""
        check_name("add_field", name)
        if name in self._added:
            raise ArgumentError(f"add_field: the module has a field `{name}` already")
        leaves = dict(leaves_of(name, field))
        for path, one in leaves.items():
            if path in self._fields:
                raise ArgumentError(f"add_field: the module has a field `{path}` already")
            if not isinstance(one, Storage) or not hasattr(one, "snode"):
                raise ArgumentError(f"add_field takes a field, not {describe_argument(one)}")
            if one.has_shared_exponent:
                raise Unsupported(
                    f"add_field: `{path}` shares its exponent, and loaded fields cannot: copy "
                    "it to a field of ti.f32"
                )
        self._added[name] = field
        self._fields.update(leaves)

    def word_for(self, value: Any) -> str:
        """Return a template value as text: a number, or the name of a field of the module. Raises
        ArgumentError for any other value."""
        if is_real_scalar(value):
            return str(value)
        for name, field in self._added.items():
            if field is value:
                return name
        raise ArgumentError(
            f"instantiate() takes numbers and fields of the module, not "
            f"{describe_argument(value)}: add "
            "fields with add_field() first"
        )

    def _name_of(self, field: Storage, path: Any) -> str:
        for name, known in self._fields.items():
            if known is field:
                return name
            for kind in ("grad", "dual"):
                if vars(known).get("companions", {}).get(kind) is field:
                    return self._keep(f"{name}.{kind}", field)
        return self._keep(f".{path}", field)

    def _keep(self, name: str, field: Storage) -> str:
        found, n = name, 1
        while self._fields.setdefault(found, field) is not field:
            n += 1
            found = f"{name}-{n}"
        return found

    # --- kernels ---------------------------------------------------------------------------------

    def add_kernel(
        self,
        kernel_fn: AnyKernel,
        template_args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Add the kernel `kernel_fn` under `name`, by default its own.

        template_args: values by parameter name. Give template values, and sample arrays or textures
        if annotations do not determine the type.

        Raises ArgumentError for anything but a kernel, and for an invalid name or one in use.
        Raises it also for unknown parameters, parameters of unknown type, and after another
        `ti.init`. Raises the errors of compilation.
        """
        kernel, first = unbind_kernel(kernel_fn)
        found = name or kernel.__vkchi_func__.__name__
        check_name("add_kernel", found)
        if found in self._kernels:
            raise ArgumentError(f"add_kernel: the module has a kernel `{found}` already")
        given = dict(template_args or {})
        parameters = read_parameters(kernel.__vkchi_func__, kernel.is_method)
        names = [p.name for p in parameters][len(first) :]
        unknown = [key for key in given if key not in names]
        if unknown:
            raise ArgumentError(
                f"add_kernel: {found}() has no parameter {unknown[0]}: there are {', '.join(names)}"
            )
        given |= dict(zip([p.name for p in parameters], first))
        self._kernels[found] = self._compile(kernel, parameters, given)

    @contextmanager
    def add_kernel_template(self, kernel_fn: AnyKernel) -> Iterator[KernelTemplate]:
        """Context manager for a `KernelTemplate`, whose `instantiate` adds `kernel_fn` for template
        values. Entering it raises ArgumentError for anything but a kernel."""
        unbind_kernel(kernel_fn)
        yield KernelTemplate(kernel_fn, self)

    def add_exported(self) -> None:
        """Add all kernels that `ti.aot.export` marked. Raises the errors of `add_kernel`."""
        for one in EXPORTED:
            self.add_kernel(one.kernel, one.template_types, one.name)

    def _compile(
        self, kernel: Kernel, parameters: list[Parameter], given: Mapping[str, Any], *,
        held: dict[str, Any] | None = None,
    ) -> SavedKernel:  # fmt: skip
        """Compile a kernel. Member arrays become its last parameters; they are added to `held`, by
        name. Raises ArgumentError if that has another array under the name."""
        runtime, fn = self._runtime, kernel.__vkchi_func__
        if current_runtime() is not runtime:
            raise ArgumentError("this module was made before ti.init: make it again")
        try:
            args = [example_of(p, given.get(p.name)) for p in parameters]
            signs = [p.sign(arg) for p, arg in zip(parameters, args)]
        except ArgumentError as e:
            raise ArgumentError(f"{fn.__name__}(): {e}") from None
        specs = tuple(p.spec(a, s) for p, a, s in zip(parameters, args, signs))
        with restoring(runtime.lock), runtime.lock, compiling(fn.__name__):
            made = find_compiled(fn, specs, runtime.options._replace(unrelated=True), self._caps)
        bound = [(p, s) for p, s in zip(parameters, signs) if is_bound(p)]
        for m in sorted(made.members.all, key=lambda m: "." in m.name):
            what, help = "number `{}`, which may change", "annotate it with typing.Final"
            if m.role == "array":
                bound.append((ArrayParameter(m.name, ndarray_type()), m.type))
                array = value_of(m.paths[0], tuple(args))
                if held is None or held.setdefault(m.name, array) is array:
                    continue
                what, help = "ndarray `{}`, and the graph has another of this name", "rename it"
            raise ArgumentError(
                f"{fn.__name__}() reads the {what.format(m.paths[0])}\n"
                f"help: pass it to the kernel as an argument, or {help}"
            )
        fields = {}
        for name, field in made.fields.items():
            if getattr(field, "pool", None) is not None:
                raise Unsupported(f"{fn.__name__}(): {field.pool.refusal('saved modules')}")
            path = made.interface.bindings[name][-1]
            fields[name] = self._name_of(field, path)
        artifact, interface = strip_folders(
            (made.artifact._replace(ir=None, work=()), made.interface._replace(cautions=()))
        )
        return SavedKernel(
            tuple(parameter_tree(p, s) for p, s in bound), fields, artifact, interface
        )

    # --- graphs ----------------------------------------------------------------------------------

    def add_graph(
        self, name: str, graph: Graph, template_args: Mapping[str, Any] | None = None
    ) -> None:
        """Add `graph` with its kernels, under `name`.

        template_args: by argument, sample arrays, and textures whose format the kernels are
        compiled for, unless the argument states it. The default format is rgba8.

        Raises ArgumentError for anything but a graph, and for an invalid name or one in use. Raises
        it also for unknown or unfit samples. Raises it for arrays passed to dispatch(): they are
        memory of this process. Ndarrays of objects become arguments of the graph, by name; several
        of one name raise ArgumentError. Raises the errors of `add_kernel`.
        """
        if not isinstance(graph, Graph):
            raise ArgumentError(
                f"add_graph takes what compile() gave, not {describe_argument(graph)}"
            )
        check_name("add_graph", name)
        if name in self._graphs:
            raise ArgumentError(f"add_graph: the module has a graph `{name}` already")
        for key in graph.args:
            check_name("add_graph", key)
        samples = {key: example_for(arg) for key, arg in graph.args.items() if is_example(arg)}
        for key, value in (template_args or {}).items():
            if key not in samples:
                there = ", ".join(samples) or "none"
                raise ArgumentError(f"add_graph: no array or texture is called {key}: {there}")
            graph.args[key].read(value)
            samples[key] = value
        nodes, args = [], dict(graph.args)
        held: dict[str, Any] = dict(graph.args)
        for k, node in enumerate(graph.nodes):
            kernel, _ = unbind_kernel(node.kernel)
            parameters = read_parameters(kernel.__vkchi_func__, kernel.is_method)
            pairs = list(zip(parameters, node.given, strict=True))
            given = {p.name: a for p, a in pairs if not is_bound(p)}
            given |= {p.name: samples[a.name] for p, a in pairs if is_example(a)}
            saved = self._compile(kernel, parameters, given, held=held)
            entries = [entry_of(p, a) for p, a in pairs if is_bound(p)]
            entries += [("arg", p["name"]) for p in saved.parameters[len(entries) :]]
            nodes.append((self._keep_hidden(f".{name}.{k}", saved), tuple(entries)))
        for key, array in list(held.items())[len(args) :]:
            args[key] = Arg(ArgKind.NDARRAY, key, array.elem, ndim=len(array.shape))
        arguments = {key: tree_of(arg) for key, arg in args.items()}
        self._graphs[name] = SavedGraph(arguments, tuple(nodes))

    def _keep_hidden(self, name: str, saved: SavedKernel) -> str:
        """Store a kernel under `name`, unless the module has an equal hidden one; return the name
        used."""
        for known, other in self._kernels.items():
            if known[0] == "." and other == saved:
                return known
        self._kernels[name] = saved
        return name

    # --- saving ----------------------------------------------------------------------------------

    def save(self, filepath: str | os.PathLike[str], filename: str = "") -> None:
        """Write the module into the folder `filepath`, which is created if needed.

        filename: accepted for compatibility with old Taichi programs, and ignored. Raises OSError.
        Raises ModuleError if the folder has a checksum file of other files.
        """
        write_folder(os.fspath(filepath), self._files())

    def archive(self, filepath: str | os.PathLike[str]) -> None:
        """Write the module into one file; `filepath` must end in .tcm. Raises ArgumentError,
        OSError."""
        path = os.fspath(filepath)
        if not path.endswith(".tcm"):
            raise ArgumentError(f"archive: a file name that ends in .tcm is needed, not {path}")
        write_archive(path, self._files())

    def _files(self) -> dict[str, bytes]:
        blocks: dict[int, int] = {}
        sizes: list[int] = []
        fields = {}
        for name, field in self._fields.items():
            field.materialise()  # type: ignore[attr-defined]
            part: Any = field.buffer
            whole, start = getattr(part, "_whole", part), getattr(part, "_start", 0)
            block = blocks.setdefault(whole.key, len(blocks))
            if block == len(sizes):
                sizes.append(whole.size_bytes)
            fields[name] = SavedField(repr(field.array_type), block, start)
        compiler = compiler_version()[:16]
        saved = Saved(
            compiler, self._caps, tuple(sizes), fields, self._kernels, self._graphs,
        )  # fmt: skip
        content = [f"kernel:{name}" for name in self._kernels if name[0] != "."]
        content += [f"cgraph:{name}" for name in self._graphs]
        files = write_saved(saved)
        files[text_table.NAME] = text_table.write_table(saved, files)
        return {**files, CONTENT: "\n".join(content).encode()}


def check_name(who: str, name: Any) -> None:
    """Raise ArgumentError unless the name is a nonempty printable string without spaces or leading
    dot."""
    if not isinstance(name, str) or not name.isprintable() or name[:1] in ("", ".") or " " in name:
        raise ArgumentError(f"{who}: a name without spaces is needed, not {name!r}")


def unbind_kernel(kernel_fn: Any) -> tuple[Kernel, tuple[Any, ...]]:
    """Return a kernel and, in a tuple, the object it is bound to, if any. Raises ArgumentError for
    anything but a kernel."""
    if isinstance(kernel_fn, BoundKernel):
        return kernel_fn.func, kernel_fn.args  # type: ignore[return-value]
    if not isinstance(kernel_fn, Kernel):
        raise ArgumentError(f"a module takes a ti.kernel, not {describe_argument(kernel_fn)}")
    return kernel_fn, ()


def leaves_of(name: str, field: Any) -> Iterator[tuple[str, Any]]:
    """Yield a field with its name, or the members of a field of structs with their paths."""
    arrays = getattr(field, "__vkchi_arrays__", None)
    if arrays is None:
        yield name, field
        return
    for member, one in arrays.items():
        yield from leaves_of(f"{name}.{member}", one)


def strip_folders(value: Any) -> Any:
    """Return a copy of records whose spans have file names without folders, in angle brackets. So a
    shipped module does not reveal paths of the machine it was made on."""
    if isinstance(value, Span):
        caller = None if value.caller is None else strip_folders(value.caller)
        file = cell_name(value.file) or os.path.basename(shown_file(value.file)).strip("<>")
        return value._replace(file=f"<{file}>", caller=caller)
    if isinstance(value, dict):
        return {k: strip_folders(v) for k, v in value.items()}
    if isinstance(value, tuple):
        parts = [strip_folders(v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


# --- graphs' arguments ----------------------------------------------------------------------------


def is_example(a: Any) -> bool:
    """True if `a` is an array or texture argument of a graph: kernels are compiled for its type."""
    return isinstance(a, Arg) and not a.is_number


def example_for(arg: Arg) -> Any:
    ones = (1,) * arg.ndim
    if arg.tag is ArgKind.NDARRAY:
        return ndarray(arg.dtype, ones)
    return Texture(arg.fmt or Format.rgba8, ones)


def entry_of(p: Parameter, a: Any) -> tuple[str, Any]:
    """Return a kernel's argument in a graph as JSON. Raises ArgumentError for constants other than
    scalars, vectors and matrices."""
    if isinstance(a, Arg):
        return ("arg", a.name)
    if isinstance(a, bool | np.bool_):
        return ("value", bool(a))
    if is_real_scalar(a):
        return ("value", float(a) if isinstance(a, float | np.floating) else int(a))
    if p.kind == "tensor":
        values = a.to_list() if isinstance(a, Matrix) else np.asarray(a).tolist()
        return ("value", values)
    raise ArgumentError(
        f"add_graph: argument `{p.name}` was given {describe_argument(a)} in dispatch(), which "
        f"is memory of "
        "this process: make it a ti.graph.Arg"
    )


def tree_of(arg: Arg) -> dict[str, Any]:
    dtype = None if arg.dtype is None else repr(arg.dtype)
    fmt = None if arg.fmt is None else arg.fmt.name
    return {"tag": arg.tag.name, "dtype": dtype, "ndim": arg.ndim, "fmt": fmt}


# --- marked kernels ------------------------------------------------------------------------------


class Exported(NamedTuple):
    """A marked kernel, its name in modules, and its template arguments."""

    kernel: Kernel
    name: str
    template_types: Mapping[str, Any]


EXPORTED: list[Exported] = []


def export_as(
    name: str, *, template_types: Mapping[str, Any] | None = None
) -> Callable[[Kernel], Kernel]:
    """Return a decorator that marks a kernel under `name`, for `Module.add_exported`; it returns
    the kernel.

    template_types: template arguments, as in `Module.add_kernel`. The decorator raises
    ArgumentError for anything but a kernel. Source: Taichi's `ti.aot.export_as`.
    """

    def mark(kernel: Kernel) -> Kernel:
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"ti.aot.export marks kernels, not {describe_argument(kernel)}")
        EXPORTED.append(Exported(kernel, name, template_types or {}))
        return kernel

    return mark


def export(kernel: Kernel) -> Kernel:
    """Mark `kernel` under its own name and return it. Raises ArgumentError for anything but a
    kernel."""
    return export_as(getattr(kernel, "__name__", ""))(kernel)
