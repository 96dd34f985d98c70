"""Kernel calls with their arrays, integers and tensors.

`LaunchRequest` is a launch before host arrays are copied, `KernelCall` one after. `HostCopies`
shares the device copies of host arrays between calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vkchi.calls.facts import Case, case_of, deciding
from vkchi.calls.repeated import RepeatedTapedCall, find_repeated, note_repeated
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.launch.compiled_kernel import NOTHING_SHARED, CompiledKernel, bind_gradient
from vkchi.ndarray import Ndarray
from vkchi.signature import Parameter
from vkchi.signature.bound import BoundArguments, ImportedArray
from vkchi.tuples import NamedTuple
from vkchi.types import Array

if TYPE_CHECKING:
    from vkchi.types.lazy_numpy import np

    Values = np.ndarray[Any, Any]
    Memory = Storage | Values


class KernelCall(NamedTuple):
    """A kernel call whose host arrays are on the device: copied, or shared in place.

    - `args`: the arguments, with device arrays in place of host arrays.
    - `arrays`, `numbers`: device arrays and Python integers by parameter name.
    - `tensors`: torch tensors that require or have a gradient, by parameter name, except constants.
    - `hosts`, `imports`: all host arrays, as numpy views and as they were passed.
    - `constants`: names of arrays that the kernel treats as constants.
    - `case`: the key of cached analyses of this call.
    - `repeated`: data shared with other calls of the same arrays; None if the call is not cached.
    """

    name: str
    kernel: CompiledKernel
    args: tuple[Any, ...]
    arrays: dict[str, Storage]
    numbers: dict[str, int]
    tensors: dict[str, Any]
    hosts: dict[str, Any]
    imports: tuple[ImportedArray, ...]
    constants: frozenset[str]
    case: Case
    repeated: RepeatedTapedCall | None = None

    @property
    def missing(self) -> str:
        return self.kernel.runtime.options.missing_gradient


def describe_call(
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray] = NOTHING_SHARED,
) -> KernelCall:
    """Build the `KernelCall` of a launch; host arrays are copied, except for those in `shared`.

    Raises Unsupported for kernels that use fields in pools of sparse blocks.
    """
    if kernel.has_pools:
        kernel.refuse_pools("derivatives and operators")
    bound = BoundArguments(kernel.runtime, [])
    bound.imports += shared
    for parameter, arg in zip(kernel.parameters, args, strict=True):
        parameter.bind(arg, bound)
    for gradient, argument in kernel.gradients:
        bind_gradient(kernel, bound, gradient, argument)
    bound.check_written(kernel)
    bound.check_apart(kernel, kernel.fields(args))
    if shared and kernel.is_mixed:
        bound.check_types(kernel)
    given = keep_arguments(kernel, args, {one.name: one.array for one in bound.imports})
    constants = constants_of(kernel, args)
    wanted = [one for one in bound.imports if one.name not in constants]
    tensors = {one.name: one.owner for one in wanted if host_views.has_grad(one.owner)}
    hosts = {one.name: one.view for one in bound.imports}
    arrays = {**kernel.fields(args), **bound.arrays}
    numbers = integer_arguments(kernel, args)
    return KernelCall(
        name, kernel, given, arrays, numbers, tensors, hosts, tuple(bound.imports),
        constants, case_of(deciding(kernel, numbers), arrays),
    )  # fmt: skip


def constants_of(kernel: CompiledKernel, args: tuple[Any, ...]) -> frozenset[str]:
    """Names of arrays with the annotation `needs_grad=False` that the kernel does not write."""
    return (
        frozenset(p.name for p, _ in leaf_arguments(kernel, args) if p.is_constant) - kernel.written
    )


def repeat_call(name: str, repeated: RepeatedTapedCall, args: tuple[Any, ...]) -> KernelCall:
    kernel, numbers = repeated.kernel, repeated.numbers(args)
    case = tuple(deciding(kernel, numbers).items()), repeated.shapes
    return KernelCall(
        name, kernel, args, repeated.arrays(args), numbers, {}, {}, (), repeated.constants, case,
        repeated,
    )  # fmt: skip


def keep_arguments(
    kernel: CompiledKernel, args: tuple[Any, ...], copies: Mapping[str, Storage]
) -> tuple[Any, ...]:
    """Copy the arguments that Python may mutate; host arrays are replaced by `copies`."""
    return tuple(p.keep(a, copies) for p, a in zip(kernel.parameters, args, strict=True))


def copied_where_read(call: KernelCall, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not call.hosts:
        return args
    read = call.hosts.keys() & call.arrays.keys() - call.kernel.written
    return keep_arguments(call.kernel, args, {name: call.arrays[name] for name in read})


class HostCopies:
    """Memoized device copies of host arrays that calls only read.

    Calls share the latest copy of an address, shape and type as long as the contents are known to
    be equal.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], Storage] = {}

    def share(self, call: KernelCall) -> KernelCall:
        found = {}
        for name, view in call.hosts.items():
            if name not in call.kernel.written:
                made = call.arrays[name]
                key = (view.ctypes.data, view.strides, made.elem, made.shape)
                old = self.found.setdefault(key, made)
                if old is not made and not is_equal(old, made):
                    old = self.found[key] = made
                found[name] = old
        args = keep_arguments(call.kernel, call.args, found)
        return call._replace(arrays={**call.arrays, **found}, args=args)


def is_equal(a: Storage, b: Storage) -> bool:
    if a.host is None or b.host is None:
        return False
    return not host_views.changed_mask(a.host, b.host).any()


def leaf_arguments(
    kernel: CompiledKernel, args: tuple[Any, ...]
) -> Iterator[tuple[Parameter, Any]]:
    """Yield parameters with their arguments; members of structs and packs separately."""
    for parameter, arg in zip(kernel.parameters, args, strict=True):
        yield from parameter.leaves(arg)


class LaunchRequest:
    """A requested launch and the memory it accesses. Host arrays are not copied before `call` is
    used."""

    def __init__(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> None:
        self.name, self.kernel, self.args = name, kernel, args

    @cached_property
    def constants(self) -> frozenset[str]:
        return constants_of(self.kernel, self.args)

    @cached_property
    def arrays(self) -> dict[str, Storage]:
        if self.kernel.has_pools:
            self.kernel.refuse_pools("derivatives and operators")
        bound = BoundArguments(self.kernel.runtime, [])
        for parameter, arg in leaf_arguments(self.kernel, self.args):
            if parameter.kind != "array" or isinstance(arg, Ndarray):
                parameter.bind(arg, bound)
        return {**self.kernel.fields(self.args), **bound.arrays}

    @cached_property
    def hosts(self) -> dict[str, Values]:
        given = [(p.name, arg) for p, arg in leaf_arguments(self.kernel, self.args)
                 if p.kind == "array" and not isinstance(arg, Ndarray)]  # fmt: skip
        return {name: view for name, arg in given if (view := host_views.view_of(arg)) is not None}

    def case_of(self, arrays: Mapping[str, Storage]) -> Case:
        numbers = integer_arguments(self.kernel, self.args)
        return case_of(deciding(self.kernel, numbers), arrays)

    @cached_property
    def written(self) -> dict[str, Memory]:
        both: dict[str, Memory] = {**self.arrays, **self.hosts}
        return {name: memory for name, memory in both.items() if name in self.kernel.written}

    @cached_property
    def call(self) -> KernelCall:
        repeated = find_repeated(self.kernel, self.args)
        if repeated is not None:
            return repeat_call(self.name, repeated, self.args)
        found = describe_call(self.name, self.kernel, self.args)
        noted = note_repeated(self.kernel, self.args, found.arrays, found.constants)
        return found._replace(repeated=noted)


def integer_arguments(kernel: CompiledKernel, args: tuple[Any, ...]) -> dict[str, int]:
    return {p.name: arg for p, arg in leaf_arguments(kernel, args) if isinstance(arg, int)}


def types_apart(
    call: KernelCall, companions: Mapping[str, Storage], suffix: str
) -> dict[str, Array]:
    """Types of gradients or duals whose layout differs from their array's, by parameter name +
    `suffix`.

    Raises GradientError if the index range differs.
    """
    found = {}
    for name, companion in companions.items():
        array = call.arrays[name]
        if companion.layout != array.layout:
            if companion.shape != array.shape or companion.layout.origin != array.layout.origin:
                raise GradientError(
                    f"the gradient or dual of `{name}` was placed with other indices than the "
                    "field has", call.kernel.func.span,
                    help="place it in a block of the same shape and offset",
                )  # fmt: skip
            found[name + suffix] = companion.array_type
    return found


def check_numbers(name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> None:
    for parameter, arg in leaf_arguments(kernel, args):
        if parameter.kind == "tensor" and host_views.is_torch(arg) and arg.requires_grad:
            raise GradientError(
                f"{name}(): the gradient of `{parameter.name}`, which is passed by value, would be "
                "lost", kernel.func.span,
                help=f"pass {parameter.name}.detach(), or take it as ti.types.ndarray()",
            )  # fmt: skip
