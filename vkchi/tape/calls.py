"""Kernel calls as differentiation sees them: what they work on, and the gradient of one.

Owns: `Given`, `Call`, `Copies` of host arrays, `Gradients`, the gradients made per plan. Must not
know: tapes, who calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vkchi.autodiff.answers import GradientSpec, Request
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interop import host, leaves
from vkchi.interop.in_place import HostNdarray, host_arrays
from vkchi.interop.tensors import new_tensor, new_zeros
from vkchi.ir.names import ADJOINT
from vkchi.launch import NOTHING_SHARED, Plan, bind_gradient
from vkchi.ndarray import Ndarray
from vkchi.runtime import await_host_memory
from vkchi.signature import Parameter
from vkchi.signature.bound import Bound, Import
from vkchi.tape.derived import Case, case_of
from vkchi.tape.repeated_taped_calls import RepeatedTapedCall, find_repeated, note_repeated
from vkchi.tuples import NamedTuple
from vkchi.types import Array, shape_of

if TYPE_CHECKING:
    from vkchi.tape.ledger import Memory, Values
    from vkchi.tape.plan import GradientPlan

NO_NAMES: frozenset[str] = frozenset()


class Call(NamedTuple):
    """A kernel call: its plan, its arguments as they were, with host arrays copied to the device,
    its arrays by parameter name, its integers, torch tensors that want gradients, all host arrays,
    as numpy views and as they were passed, the names of arrays that it takes for constants, what
    answers about it depend on, and what it has in common with others."""

    name: str
    plan: Plan
    args: tuple[Any, ...]
    arrays: dict[str, Storage]
    numbers: dict[str, int]
    tensors: dict[str, Any]
    hosts: dict[str, Any]
    imports: tuple[Import, ...]
    constants: frozenset[str]
    case: Case
    repeated: RepeatedTapedCall | None = None

    @property
    def missing(self) -> str:
        """What `ti.init` said of arrays without gradient, `error` or `warn`."""
        return self.plan.runtime.options.missing_gradient


def describe_call(
    name: str, plan: Plan, args: tuple[Any, ...], shared: Sequence[Import] = NOTHING_SHARED
) -> Call:
    """What a call works on; host arrays are copied, but for those that are `shared`."""
    bound = Bound(plan.runtime, [])
    bound.imports += shared
    for parameter, arg in zip(plan.parameters, args, strict=True):
        parameter.bind(arg, bound)
    for gradient, argument in plan.gradients:
        bind_gradient(bound, gradient, argument)
    bound.check_written(plan)
    bound.check_apart(plan, plan.fields(args))
    if shared and plan.is_mixed:
        bound.check_types(plan)
    given = keep_arguments(plan, args, {one.name: one.array for one in bound.imports})
    constants = constants_of(plan, args)
    wanted = [one for one in bound.imports if one.name not in constants]
    tensors = {one.name: one.owner for one in wanted if host.has_grad(one.owner)}
    hosts = {one.name: one.view for one in bound.imports}
    arrays = {**plan.fields(args), **bound.arrays}
    numbers = numbers_of(plan, args)
    return Call(
        name, plan, given, arrays, numbers, tensors, hosts, tuple(bound.imports),
        constants, case_of(numbers, arrays),
    )  # fmt: skip


def constants_of(plan: Plan, args: tuple[Any, ...]) -> frozenset[str]:
    """The arrays that a kernel only reads, under an annotation that says they have no gradient."""
    return frozenset(p.name for p, _ in leaves_of(plan, args) if p.is_constant) - plan.written


def repeat_call(name: str, repeated: RepeatedTapedCall, args: tuple[Any, ...]) -> Call:
    """The same of a call like one before, whose arguments are numbers and what lies on the
    device."""
    numbers = repeated.numbers(args)
    return Call(
        name, repeated.plan, args, repeated.arrays(args), numbers, {}, {}, (), repeated.constants,
        repeated.case(numbers), repeated,
    )  # fmt: skip


def keep_arguments(
    plan: Plan, args: tuple[Any, ...], copies: Mapping[str, Storage]
) -> tuple[Any, ...]:
    """The arguments as they are now, which Python may change, with copies of host arrays."""
    return tuple(p.keep(a, copies) for p, a in zip(plan.parameters, args, strict=True))


def copied_where_read(call: Call, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a launch: of those in host memory that are only read, the copies made."""
    if not call.hosts:
        return args
    read = call.hosts.keys() & call.arrays.keys() - call.plan.written
    return keep_arguments(call.plan, args, {name: call.arrays[name] for name in read})


class Copies:
    """The device's copies of host arrays that calls only read: one for calls that find the same
    contents."""

    def __init__(self) -> None:
        self.found: dict[tuple[Any, ...], Storage] = {}

    def share(self, call: Call) -> Call:
        """The call with copies that were made before, where they are the same."""
        found = {}
        for name, view in call.hosts.items():
            if name not in call.plan.written:
                made = call.arrays[name]
                key = (view.ctypes.data, view.strides, made.elem, made.shape)
                old = self.found.setdefault(key, made)
                if old is not made and not is_equal(old, made):
                    old = self.found[key] = made
                found[name] = old
        args = keep_arguments(call.plan, call.args, found)
        return call._replace(arrays={**call.arrays, **found}, args=args)


def is_equal(a: Storage, b: Storage) -> bool:
    """Whether two arrays of one type are known to hold the same bits."""
    if a.host is None or b.host is None:
        return False
    return not host.changes(a.host, b.host).any()


def leaves_of(plan: Plan, args: tuple[Any, ...]) -> Iterator[tuple[Parameter, Any]]:
    """Parameters with their arguments, each part of structs and packs for itself."""
    for parameter, arg in zip(plan.parameters, args, strict=True):
        yield from parameter.leaves(arg)


class Given:
    """A launch as it is asked for, and what it works on: nothing is copied."""

    def __init__(self, name: str, plan: Plan, args: tuple[Any, ...]) -> None:
        self.name, self.plan, self.args = name, plan, args

    @cached_property
    def constants(self) -> frozenset[str]:
        """The names of the arrays that the kernel takes for constants."""
        return constants_of(self.plan, self.args)

    @cached_property
    def arrays(self) -> dict[str, Storage]:
        """The arrays on the device, by parameter name."""
        bound = Bound(self.plan.runtime, [])
        for parameter, arg in leaves_of(self.plan, self.args):
            if parameter.kind != "array" or isinstance(arg, Ndarray):
                parameter.bind(arg, bound)
        return {**self.plan.fields(self.args), **bound.arrays}

    @cached_property
    def hosts(self) -> dict[str, Values]:
        """The arrays in host memory, as numpy views, by parameter name."""
        given = [(p.name, arg) for p, arg in leaves_of(self.plan, self.args)
                 if p.kind == "array" and not isinstance(arg, Ndarray)]  # fmt: skip
        return {name: view for name, arg in given if (view := host.view_of(arg)) is not None}

    @cached_property
    def written(self) -> dict[str, Memory]:
        """What of both it writes."""
        both: dict[str, Memory] = {**self.arrays, **self.hosts}
        return {name: memory for name, memory in both.items() if name in self.plan.written}

    @cached_property
    def call(self) -> Call:
        """The call, for which host arrays are copied."""
        repeated = find_repeated(self.plan, self.args)
        if repeated is not None:
            return repeat_call(self.name, repeated, self.args)
        found = describe_call(self.name, self.plan, self.args)
        noted = note_repeated(self.plan, self.args, found.arrays, found.constants)
        return found._replace(repeated=noted)


def numbers_of(plan: Plan, args: tuple[Any, ...]) -> dict[str, int]:
    """The integer arguments by name."""
    return {p.name: arg for p, arg in leaves_of(plan, args) if isinstance(arg, int)}


def clear(arrays: Iterable[Any]) -> None:
    """Set these gradients or duals to 0, where they have memory now."""
    for array in list(arrays):
        if array.has_memory:
            array.fill(0)


def adjoints_of(
    arrays: Mapping[str, Storage], but: frozenset[str] = NO_NAMES
) -> dict[str, Storage]:
    """The gradients of arrays, but for some, by the same names."""
    found = {name: a.companion("grad") for name, a in arrays.items() if name not in but}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


class Gradients:
    """The adjoints of a call's arrays: their companions; of torch tensors, while a gradient runs,
    their `.grad`, in place or copied, one for a tensor that is passed several times."""

    def __init__(self, call: Call, known: Mapping[str, Storage] | None = None) -> None:
        self.call = call
        self.arrays = dict(adjoints_of(call.arrays, call.constants) if known is None else known)
        self.names = frozenset(self.arrays).union(call.tensors)  # the arrays that have one
        self.fetched: dict[int, Fetched] = {}

    def fetch(self) -> None:
        """Bring the gradients of torch tensors to the device."""
        if self.call.tensors:
            await_host_memory()  # torch copies some of them
        written = self.call.plan.written & self.call.tensors.keys()
        results = {id(self.call.tensors[name]) for name in written}
        for name, tensor in self.call.tensors.items():
            key = id(tensor)
            if key not in self.fetched:
                array = self.call.arrays[name]
                found = self._find(array, tensor, is_result=key in results)
                self.fetched[key] = found or copy_gradient(array, tensor, is_result=key in results)
            self.arrays[name] = self.fetched[key].array

    def _find(self, array: Storage, tensor: Any, *, is_result: bool) -> Fetched | None:
        """The gradient of a tensor that is in place, in place as well; None where it is not."""
        if not isinstance(array, HostNdarray):
            return None
        grad, axes = host.grad_of(tensor), len(shape_of(array.elem))
        if grad is None:
            grad = new_zeros(array.runtime, tensor, tensor.shape, tensor.dtype, axes)
        elif is_result:
            made = new_tensor(array.runtime, tensor, grad.shape, grad.dtype, axes)
            grad = made.copy_(grad.detach())
        found = host_arrays(array.runtime).find(grad, axes)
        if found is None or (found.elem, found.shape) != (array.elem, array.shape):
            return None
        others = [*self.call.arrays.values(), *(one.array for one in self.fetched.values())]
        if any(isinstance(a, HostNdarray) and a.meets(found) for a in others):
            return None
        return Fetched(tensor, found, grad, is_result=False)

    def bring_back(self) -> None:
        """Put them into the tensors' `.grad`. That of a result may be torch's own, which must not
        change: it gets a new one."""
        for tensor, array, grad, is_result in self.fetched.values():
            if grad is not None:
                host.put_grad(tensor, grad)
                continue
            made = array.to_torch().reshape(tensor.shape)
            if is_result or host.grad_of(tensor) is None:
                tensor.grad = made
            else:
                host.write_grad(tensor, made)
        self.fetched.clear()
        for name in self.call.tensors:
            self.arrays.pop(name, None)

    @property
    def owners(self) -> list[Any]:
        """Who keeps memory that gradients work in."""
        return [one.grad for one in self.fetched.values() if one.grad is not None]


class Fetched(NamedTuple):
    """The gradient of a tensor on the device; `grad` is the tensor that it is in place, if any."""

    tensor: Any
    array: Ndarray
    grad: Any
    is_result: bool


def copy_gradient(array: Storage, tensor: Any, *, is_result: bool) -> Fetched:
    """A copy of a tensor's gradient, which is like an array."""
    made = Ndarray(array.runtime, array.elem, array.shape)
    grad = host.grad_of(tensor)
    if grad is not None:
        made.from_torch(grad)
    return Fetched(tensor, made, None, is_result)


def types_apart(call: Call, companions: Mapping[str, Storage], suffix: str) -> dict[str, Array]:
    """The types of gradients or duals that lie in memory otherwise than their arrays, by the names
    of their parameters. Raises GradientError for one that has other indices."""
    found = {}
    for name, companion in companions.items():
        array = call.arrays[name]
        if companion.layout != array.layout:
            if companion.shape != array.shape or companion.layout.origin != array.layout.origin:
                raise GradientError(
                    f"the gradient or dual of `{name}` was placed with other indices than the "
                    "field has", call.plan.func.span,
                    help="place it in a block of the same shape and offset",
                )  # fmt: skip
            found[name + suffix] = companion.array_type
    return found


def plan_gradient(
    call: Call,
    gradients: Gradients,
    invariant: frozenset[str] = frozenset(),
    constant: frozenset[str] = frozenset(),
    *,
    is_second: bool = False,
) -> GradientPlan:
    """The call's gradient by these arrays, made once per plan, or its derivative along a direction.
    The memory of the arrays `invariant` is to be as the kernel leaves it, not as it finds it; the
    arrays `constant` hold no derivative before. Raises GradientError."""
    is_plain = not (invariant or constant or is_second)
    repeated = call.repeated if is_plain else None
    found = repeated.gradient(gradients.arrays) if repeated is not None else None
    if found is not None:
        return found
    from vkchi.tape.plan import GradientPlan

    check_aliases(call)
    request = Request(gradients.names, invariant, constant, call.missing)
    types = tuple(types_apart(call, gradients.arrays, ADJOINT).items())
    spec = GradientSpec(request, types, is_second)
    known = call.plan.derived.gradients
    made = known.find(spec, lambda: GradientPlan(call.plan, call.args, spec))
    if repeated is not None:
        repeated.note_gradient(gradients.arrays, made)
    return made


def check_numbers(name: str, plan: Plan, args: tuple[Any, ...]) -> None:
    """Raises GradientError for a tensor that is passed by value and wants a gradient."""
    for parameter, arg in leaves_of(plan, args):
        if parameter.kind == "tensor" and host.is_torch(arg) and arg.requires_grad:
            raise GradientError(
                f"{name}(): the gradient of `{parameter.name}`, which is passed by value, would be "
                "lost", plan.func.span,
                help=f"pass {parameter.name}.detach(), or take it as ti.types.ndarray()",
            )  # fmt: skip


def counted_twice(call: Call, name: str) -> GradientError:
    """The error for a tensor whose gradient torch adds up just now: it would find there what it is
    to be given."""
    return GradientError(
        f"{call.name}(): the gradient of `{name}` would be counted twice: torch is going backward, "
        "and adds what it is given to the .grad of this tensor", call.plan.func.span,
        help=f"pass {name}.detach(), and give torch the .grad of that",
    )  # fmt: skip


def count_once(call: Call) -> None:
    """Let the gradients that were put into the call's tensors count once where torch adds up those
    tensors' gradients just now. Torch's backward raises GradientError if it cannot be."""
    for name, tensor in call.tensors.items():
        if leaves.is_added_to(tensor):
            leaves.count_once(tensor, counted_twice(call, name))


def check_leaves(call: Call) -> None:
    """Raises GradientError for a tensor that torch computed from others, as views are: a gradient
    would stay with it; and for one whose gradient torch adds up just now, before the tape does."""
    for name, tensor in call.tensors.items():
        if leaves.is_added_to(tensor):
            raise counted_twice(call, name)
        if not (tensor.is_leaf or tensor.retains_grad):
            raise GradientError(
                f"{call.name}(): torch computed the tensor `{name}` from others, which its "
                "gradient would not reach", call.plan.func.span,
                help="pass what it was computed from, or call retain_grad() on it to find the "
                "gradient in its .grad",
            )  # fmt: skip


def make_grads(call: Call) -> None:
    """Give the call's tensors that have no `.grad` yet one, of zeros, as Taichi does: whether or
    not a derivative will come there."""
    for tensor in call.tensors.values():
        host.make_grad(tensor)


def check_aliases(call: Call) -> None:
    """Raises GradientError where two parameters are one array that the kernel writes, or that it
    takes to be two."""
    seen: dict[int, str] = {}
    for name, array in call.arrays.items():
        key = id(array.whole)
        if key in seen and (
            {name, seen[key]} & call.plan.written or not isinstance(array, Ndarray)
        ):
            raise GradientError(
                f"{call.name}(): `{seen[key]}` and `{name}` are the same memory, whose gradient "
                "would be counted for one of them only", call.plan.func.span,
                help="pass it once, or copy one of them",
            )  # fmt: skip
        seen[key] = name
