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

from vkchi.errors import ArgumentError, CompilationError, DeclarationError
from vkchi.fields.storage import Storage
from vkchi.interop.host_views import short_repr
from vkchi.interop.torch_library import integers_of_torch, is_dtype, is_recorded, plain_tensors
from vkchi.kernel import BoundKernel, Kernel, looks_like_method
from vkchi.operators.field_snapshots import (
    FieldSnapshots,
    KernelValues,
    SnapshotTable,
    are_values_current,
)
from vkchi.runtime import current_runtime
from vkchi.signature import (
    ArrayParameter,
    Parameter,
    ScalarParameter,
    SelfParameter,
    TensorParameter,
    read_parameters,
)
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import is_integer_scalar

if TYPE_CHECKING:
    import torch

    from vkchi.launch.compiled_kernel import CompiledKernel


T = TypeVar("T")
Tensors: TypeAlias = "dict[str, torch.Tensor]"
Arguments: TypeAlias = "Mapping[str, Any]"  # of the operator, by name
# Shape of an output from the arguments, with a dtype if it differs from the first tensor's.
Rule: TypeAlias = "str | Callable[[Arguments], Sequence[int] | tuple[Sequence[int], torch.dtype]]"
Maker: TypeAlias = "Callable[[torch.Tensor, Sequence[int], torch.dtype, int], torch.Tensor]"
AnyKernel: TypeAlias = "Kernel | BoundKernel"

SCALARS = {"f": "float", "i": "SymInt", "u": "SymInt", "b": "bool"}  # torch's types by scalar kind


class SavedForGradient(NamedTuple):
    """Outputs and fields whose values a gradient reads; `fields` is None if unknown. `made`: the
    Python values for which this holds."""

    outputs: frozenset[str]
    fields: tuple[Storage, ...] | None
    made: tuple[KernelValues, ...] = ()


class OperatorSpec:
    """A kernel as an operator: its `inputs` (parameters), the names of those that are `tensors`,
    its `outputs`, and the kernel of its `gradient`, if the user gave one."""

    def __init__(
        self, kernel: AnyKernel, outputs: Mapping[str, Rule], gradient: AnyKernel | None
    ) -> None:
        self.kernel, self.outputs, self.gradient = kernel, outputs, gradient
        self.name = str(function_of(kernel).__name__)
        self.parameters = parameters_of(kernel)
        self.inputs = tuple(p for p in self.parameters if p.name not in outputs)
        self.names = tuple(p.name for p in self.inputs)
        self.tensors = tuple(p.name for p in self.inputs if isinstance(p, ArrayParameter))
        arrays = [p for p in self.parameters if isinstance(p, ArrayParameter)]
        self.element_axes = {p.name: p.element_axes for p in arrays}
        self._known: weakref.ref[Any] | None = None  # the runtime of `_read`
        self.memories = SnapshotTable(self.name)
        self._read: dict[Any, SavedForGradient] = {}  # by kinds of arguments, see `kind_of`

    def check(self) -> None:
        """Raise DeclarationError for parameters that torch cannot pass, and for outputs and
        gradients that do not fit the kernel."""
        self.schema()  # raises for a parameter that torch has no type for
        self.check_outputs()
        if self.gradient is not None:
            arrays = {p.name for p in self.parameters if isinstance(p, ArrayParameter)}
            known = {*(p.name for p in self.parameters), *map(slope_of, arrays)}
            for p in parameters_of(self.gradient):
                if p.name not in known:
                    raise DeclarationError(f"gradient=: nothing is called `{p.name}`")

    def check_outputs(self) -> None:
        """Raise DeclarationError for outputs that do not fit the kernel."""
        arrays = {p.name for p in self.parameters if isinstance(p, ArrayParameter)}
        for name, rule in self.outputs.items():
            if name not in arrays:
                raise DeclarationError(f"outputs=: {self.name}() has no array `{name}`")
            if not isinstance(rule, str) and not callable(rule):
                raise DeclarationError(
                    f"outputs=: the shape of `{name}` is given by the name of a tensor, or by a "
                    f"function, not by {rule!r}"
                )
            if isinstance(rule, str) and rule not in self.tensors:
                raise DeclarationError(f"outputs=: `{name}` is like `{rule}`, which is no tensor")
        if not self.outputs or not self.tensors:
            raise DeclarationError(f"{self.name}() needs an output and a tensor that it is made of")

    def schema(self) -> str:
        """The inputs in torch's schema language. Raises DeclarationError for types that torch
        lacks."""
        return ", ".join(f"{torch_type(self.name, p)} {p.name}" for p in self.inputs)

    def name_arguments(self, args: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, args, strict=True))

    def arrange(self, found: Mapping[str, Any]) -> list[Any]:
        return [found[p.name] for p in self.parameters]

    # --- outputs -----------------------------------------------------------------------------

    def make(self, given: Arguments, make: Maker) -> Tensors:
        """Create the outputs, by name, with `make(like, shape, dtype, axes)`. `axes` is the number
        of element axes, the last ones."""
        return {name: self.make_one(name, given, make) for name in self.outputs}

    def make_one(self, name: str, given: Arguments, make: Maker) -> torch.Tensor:
        """Create one output. Raises ArgumentError for an invalid shape or dtype."""
        rule, axes = self.outputs[name], self.element_axes[name]
        if isinstance(rule, str):
            source = given[rule]
            return make(source, source.shape, source.dtype, axes)
        source = given[self.tensors[0]]
        shape, dtype = read_shape(self.name, name, rule(given))
        return make(source, shape, dtype or source.dtype, axes)

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

    def remember(self, needs: SavedForGradient) -> FieldSnapshots | None:
        """Snapshot of the fields in `needs`; None if they are unknown."""
        if needs.fields is None:
            return None
        return FieldSnapshots(
            self.name, needs.fields, is_needed=bool(needs.fields), made=needs.made
        )

    def remember_by(self, args: Sequence[Any], made: Sequence[torch.Tensor]) -> None:
        """Save a snapshot of the fields that the gradient needs, keyed by the first output.

        For calls that autograd may not record. Does nothing if a needed analysis of the user's
        gradient raises CompilationError.
        """
        outputs = dict(zip(self.outputs, made, strict=True))
        arguments = self.arrange({**self.name_arguments(args), **outputs})

        def find(made: list[KernelValues]) -> SavedForGradient:
            fields: tuple[Storage, ...] = ()
            with suppress(CompilationError):
                fields = self._find_fields(arguments, made)
            return SavedForGradient(frozenset(), fields)

        found = self._recall(("fields", *map(kind_of, arguments)), find)
        memory = self.remember(found) if found.fields else None
        if memory is not None:
            self.memories.add(made[0], memory)

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
        for p in compiled.hidden.parameters if compiled.hidden is not None else ():
            raise ArgumentError(
                f"{compiled.origin[0]} is a torch operator, and reads the ndarray `{p.path}`\n"
                "help: pass it to the operator as a tensor"
            )
        made.append(KernelValues(compiled.guard, compiled.known(args)))
        return look(compiled, args)

    return kernel.inspect(seen, *given)


def find_written(compiled: CompiledKernel, args: object) -> frozenset[str]:
    return frozenset(compiled.written)


def find_used(compiled: CompiledKernel, args: object) -> frozenset[str]:
    from vkchi.calls.facts import facts  # rarely used, slow to import

    return facts.arrays_used(compiled)


def find_fields(compiled: CompiledKernel, args: tuple[Any, ...]) -> tuple[Storage, ...]:
    fields = compiled.fields(args)
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


def torch_type(who: str, p: Parameter) -> str:
    """Torch's schema type of a parameter. Raises DeclarationError if there is none."""
    if isinstance(p, ArrayParameter):
        return "Tensor"
    if isinstance(p, ScalarParameter):
        return SCALARS[p.type.kind]
    if isinstance(p, TensorParameter) and len(p.type.shape) == 1:
        return f"{SCALARS[p.type.elem.kind]}[]"
    raise DeclarationError(
        f"torch has no type for `{p.name}` of {who}(): they take tensors, numbers and vectors; "
        "take other things from a closure or from self"
    )


def slope_of(name: str) -> str:
    return f"{name}_grad"


def is_tensor(arg: Any) -> bool:
    return hasattr(arg, "untyped_storage")


def kind_of(arg: Any) -> Any:
    """Cache key of an argument: the properties that determine a kernel's reads and writes."""
    return (arg.dtype, arg.ndim) if is_tensor(arg) else type(arg)


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


BY_RULE = "give a tuple of sizes, as (n,), or a shape and a dtype, as ((n, 3), torch.float32)"


# --- arguments and shapes -------------------------------------------------------------------------


def read_shape(who: str, name: str, said: Any) -> tuple[tuple[int, ...], torch.dtype | None]:
    """The shape of the output `name`, and its dtype if given, from the result `said` of its rule.
    Raises ArgumentError for other objects."""
    shape, dtype = said, None
    is_pair = isinstance(said, list | tuple) and len(said) == 2
    if is_pair and isinstance(said[0], list | tuple):
        shape, dtype = said
        if not is_dtype(dtype):
            why = f"{short_repr(dtype)} is no dtype of torch's"
            raise operator_argument_error(f"{who}(): outputs= of `{name}`: {why}", BY_RULE)
    if not isinstance(shape, list | tuple):
        raise operator_argument_error(
            f"{who}(): outputs= of `{name}` gave {short_repr(said)}, no shape", BY_RULE
        )
    for n in shape:
        is_number = is_integer_scalar(n) and not isinstance(n, bool)
        if not (is_number and n >= 0) and not isinstance(n, integers_of_torch()):
            what = f"{short_repr(n)} in the shape {short_repr(tuple(shape))} is no size"
            raise operator_argument_error(f"{who}(): outputs= of `{name}`: {what}", BY_RULE)
    return tuple(shape), dtype


def check_arguments(who: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> None:
    """Raise ArgumentError if an array argument is no tensor. Also if, while autograd records, a
    tensor passed by value requires a gradient, which would be lost. Other arguments are left to
    torch."""
    for p, arg in zip(parameters, args):
        if isinstance(p, ArrayParameter):
            if not hasattr(type(arg), "__torch_function__"):
                raise operator_argument_error(
                    f"{who}(): argument `{p.name}`: a tensor is needed, not "
                    f"{'None' if arg is None else f'{type(arg).__name__} {short_repr(arg)}'}",
                    f"{p.name}=torch.as_tensor(...)",
                )
            continue
        for one in arg if isinstance(arg, list | tuple) else (arg,):
            if getattr(one, "requires_grad", False) and is_recorded()():
                raise operator_argument_error(
                    f"{who}(): the gradient of `{p.name}`, which is passed by value, would be lost",
                    f"pass {p.name}.detach(), or take it as ti.types.ndarray()",
                )


def operator_argument_error(why: str, what_to_do: str) -> ArgumentError:
    return ArgumentError(f"{why}\nhelp: {what_to_do}")
