"""Description of a kernel for torch: inputs, outputs, and the values saved for its gradient.

`OperatorSpec` also caches analyses of the kernel per combination of argument types.

    spec = OperatorSpec(cube, {"y": "x"}, None)
    spec.schema()       # "Tensor x"
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from vkchi.errors import CompilationError, DeclarationError
from vkchi.fields.storage import Storage
from vkchi.interop.torch_library import plain_tensors
from vkchi.kernel import BoundKernel, Kernel, looks_like_method
from vkchi.operators.field_snapshots import (
    FieldSnapshots,
    KernelValues,
    SnapshotTable,
    are_values_current,
    has_members,
)
from vkchi.operators.operator_signature import (
    OperatorSignature,
    Rule,
    is_tensor,
    slope_of,
)
from vkchi.runtime import current_runtime
from vkchi.signature import ArrayParameter, Parameter, SelfParameter, read_parameters
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    import torch

    from vkchi.launch.compiled_kernel import CompiledKernel


T = TypeVar("T")
AnyKernel: TypeAlias = "Kernel | BoundKernel"


MOST_KINDS = 1000  # analyses of an operator that are kept


class SavedForGradient(NamedTuple):
    """Outputs and fields whose values a gradient reads; `fields` is None if unknown.

    `made`: the Python values for which this holds. `is_lost`: the gradient needs more, which only a
    recorded call saves; None if that depends on sizes and numbers among the arguments.
    """

    outputs: frozenset[str]
    fields: tuple[Storage, ...] | None
    made: tuple[KernelValues, ...] = ()
    is_lost: bool | None = False


class OperatorSpec(OperatorSignature):
    """A kernel as an operator, and the kernel of its `gradient`, if the user gave one."""

    def __init__(
        self, kernel: AnyKernel, outputs: Mapping[str, Rule], gradient: AnyKernel | None
    ) -> None:
        super().__init__(function_of(kernel).__name__, parameters_of(kernel), outputs)
        self.kernel, self.gradient = kernel, gradient
        self._known: weakref.ref[Any] | None = None  # the runtime of `_read`
        self.memories: SnapshotTable[FieldSnapshots] = SnapshotTable()
        self._read: dict[Any, SavedForGradient] = {}  # by kinds of arguments, see `kind_of`

    def check(self) -> None:
        """Raise DeclarationError for parameters that torch cannot pass, and for outputs and
        gradients that do not fit the kernel."""
        super().check()
        if self.gradient is not None:
            arrays = {p.name for p in self.parameters if isinstance(p, ArrayParameter)}
            known = {*(p.name for p in self.parameters), *map(slope_of, arrays)}
            for p in parameters_of(self.gradient):
                if p.name not in known:
                    raise DeclarationError(f"gradient=: nothing is called `{p.name}`")

    # --- analyses of the kernel ----------------------------------------------------------------

    def check_written(self, arguments: Sequence[Any]) -> None:
        """Raise DeclarationError if the kernel may write an input tensor, which torch would not
        notice."""
        written = self._find_written("written", self.kernel, arguments).intersection(self.tensors)
        if written:
            raise DeclarationError(
                f"{self.name}() writes `{min(written)}`, which is an input: name it among "
                "outputs=, or copy it in the kernel"
            )

    def check_gradient_written(self, arguments: Sequence[Any]) -> None:
        """Raise DeclarationError if the user's gradient may write other arguments than the
        gradients of input tensors."""
        assert self.gradient is not None
        written = self._find_written("gradient", self.gradient, arguments)
        wrong = written.difference(map(slope_of, self.tensors))
        if wrong:
            raise DeclarationError(
                f"the gradient of {self.name}() writes `{min(wrong)}`, which others read as well: "
                "it may fill the gradients of tensors, as `x_grad`, and fields; take a copy in a "
                "variable or a field"
            )

    def _find_written(
        self, what: str, kernel: AnyKernel, arguments: Sequence[Any]
    ) -> frozenset[str]:
        """Arguments that a kernel may write, memoized under `what` per kinds of arguments."""

        def find(made: list[KernelValues]) -> SavedForGradient:
            written = analyse(kernel, find_written, map(shape_on_host, arguments), made)
            return SavedForGradient(written & {p.name for p in parameters_of(kernel)}, ())

        return self._recall((what, *map(kind_of, arguments)), find).outputs

    def find_needs(self, arguments: Sequence[Any]) -> SavedForGradient:
        """Outputs and fields that the gradient may read, given the kernel's arguments.

        Those are the ones that the kernel reads; with a gradient of the user, its parameters and
        the fields that it reads. All outputs and unknown fields if an argument is a tensor without
        contents.
        """
        if not all(is_real(a) for a in arguments):
            return SavedForGradient(frozenset(self.outputs), None)
        kinds = tuple([kind_of(a) for a in arguments])
        return self._recall(("needs", *kinds), partial(self._find_needs, arguments))

    def _find_needs(self, arguments: Sequence[Any], made: list[KernelValues]) -> SavedForGradient:
        fields = self._find_fields(arguments, made)
        if self.gradient is not None:
            taken = frozenset(p.name for p in parameters_of(self.gradient))
            return SavedForGradient(taken.intersection(self.outputs), fields)
        used = analyse(self.kernel, find_used, map(shape_on_host, arguments), made)
        return SavedForGradient(used.intersection(self.outputs), fields)

    def _find_fields(
        self, arguments: Sequence[Any], made: list[KernelValues]
    ) -> tuple[Storage, ...]:
        given = [shape_on_host(a) for a in arguments]
        if self.gradient is None:
            return analyse(self.kernel, find_fields, given, made)
        named = {p.name: a for p, a in zip(self.parameters, given, strict=True)}
        slopes = {slope_of(k): a.new_empty(a.shape) for k, a in named.items() if is_tensor(a)}
        given = self.arrange_gradient({**named, **slopes})
        return analyse(self.gradient, find_fields, given, made)

    def snapshot(self, needs: SavedForGradient) -> FieldSnapshots | None:
        """Snapshot of the fields in `needs`; None if they are unknown."""
        if needs.fields is None:
            return None
        return FieldSnapshots(
            self.name, needs.fields, is_needed=bool(needs.fields), made=needs.made
        )

    def remember(self, args: Sequence[Any], made: Sequence[torch.Tensor], call: object) -> None:
        """Save a snapshot of the fields that the gradient needs, keyed by the first output.

        Does nothing if a needed analysis of the user's gradient raises CompilationError.
        """
        outputs = dict(zip(self.outputs, made, strict=True))
        arguments = self.arrange({**self.name_arguments(args), **outputs})

        def find(made: list[KernelValues]) -> SavedForGradient:
            fields: tuple[Storage, ...] = ()
            with suppress(CompilationError):
                fields = self._find_fields(arguments, made)
            return SavedForGradient(frozenset(), fields)

        found = self._recall(("fields", *map(kind_of, arguments)), find)
        memory = self.snapshot(found) if found.fields or has_members(found.made) else None
        if memory is not None:
            self.memories.add(made[0], memory)

    def find_memory(self, result: torch.Tensor | None) -> FieldSnapshots:
        return self.memories.find(result) or FieldSnapshots(self.name)  # without fields

    def arrange_gradient(self, found: Mapping[str, Any]) -> list[Any]:
        assert self.gradient is not None
        return [found[p.name] for p in parameters_of(self.gradient)]

    def _recall(
        self, key: Any, find: Callable[[list[KernelValues]], SavedForGradient]
    ) -> SavedForGradient:
        runtime = current_runtime()
        if self._known is None or self._known() is not runtime:
            self._known, self._read = weakref.ref(runtime), {}
        found = self._read.get(key)
        if len(self._read) > MOST_KINDS:
            self._read.clear()
        if found is None or not are_values_current(found.made):
            made: list[KernelValues] = []
            found = self._read[key] = find(made)._replace(made=tuple(made))
        return found


def analyse(
    kernel: AnyKernel,
    look: Callable[[CompiledKernel, Any], T],
    given: Iterable[Any],
    made: list[KernelValues],
) -> T:
    """Return `look(compiled, args)` for the kernel compiled for the arguments `given`.

    Appends the Python values that the kernel is compiled with to `made`.
    """

    def seen(compiled: CompiledKernel, args: tuple[Any, ...]) -> T:
        made.append(KernelValues(compiled.guard_for(args), compiled.known(args)))
        return look(compiled, args)

    return kernel.inspect(seen, *given)


def find_written(compiled: CompiledKernel, args: object) -> frozenset[str]:
    return frozenset(compiled.written)


def find_used(compiled: CompiledKernel, args: object) -> frozenset[str]:
    from vkchi.calls.facts import facts  # rarely used, slow to import

    return facts.arrays_used(compiled)


def find_fields(compiled: CompiledKernel, args: tuple[Any, ...]) -> tuple[Storage, ...]:
    fields = compiled.state(args)
    used = find_used(compiled, args) if fields else ()
    return tuple([array for name, array in fields.items() if name in used])


# --- parameters ---------------------------------------------------------------------------------


def function_of(kernel: AnyKernel) -> Any:
    inner = kernel.func if isinstance(kernel, BoundKernel) else kernel
    return inner.__vkchi_func__  # type: ignore[attr-defined]


def parameters_of(kernel: AnyKernel) -> tuple[Parameter, ...]:
    """A kernel's parameters, without `self`. Raises DeclarationError for an unbound method."""
    fn = function_of(kernel)
    found = read_parameters(fn, looks_like_method(fn))
    if found and isinstance(found[0], SelfParameter):
        if not isinstance(kernel, BoundKernel):
            raise DeclarationError(f"{fn.__name__}() is a method: take it from an object")
        found = found[1:]
    return tuple(found)


def kind_of(arg: Any) -> Any:
    """Cache key of an argument: the properties that determine a kernel's reads and writes."""
    return (arg.dtype, arg.ndim) if is_tensor(arg) else type(arg)


def value_of(arg: Any) -> Any:
    """Cache key of an argument: what the elements that a kernel reads and writes depend on."""
    if is_tensor(arg):
        return arg.dtype, tuple(arg.shape)
    return type(arg), tuple(arg) if isinstance(arg, list) else arg


def is_real(arg: Any) -> bool:
    """False for tensors without contents: subclasses such as torch's fake tensors, which exist
    while it traces, and meta tensors."""
    if not is_tensor(arg):
        return True
    return type(arg) in plain_tensors() and arg.device.type != "meta"


def shape_on_host(arg: Any) -> Any:
    """An uninitialized CPU tensor of the same shape in place of a tensor of another device, for
    compilation; other values unchanged."""
    is_elsewhere = is_tensor(arg) and arg.device.type != "cpu"
    return arg.new_empty(arg.shape, device="cpu") if is_elsewhere else arg
