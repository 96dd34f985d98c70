"""Kernel calls for differentiation: their arrays, integers, tensors and adjoints.

`LaunchRequest` is a launch before host arrays are copied, `KernelCall` one after. `HostCopies`
shares the device copies of host arrays between calls. `CallAdjoints` are the adjoints of one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vkchi.autodiff.results import GradientRequest, GradientSpec
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views, leaf_gradients
from vkchi.interop.in_place import HostNdarray, host_arrays
from vkchi.interop.tensors import new_tensor, new_zeros
from vkchi.ir.param_names import ADJOINT
from vkchi.launch import NOTHING_SHARED, Plan, bind_gradient
from vkchi.ndarray import Ndarray
from vkchi.runtime import await_host_memory
from vkchi.signature import Parameter
from vkchi.signature.bound import BoundArguments, ImportedArray
from vkchi.tape.derived import Case, case_of
from vkchi.tape.repeated_taped_calls import RepeatedTapedCall, find_repeated, note_repeated
from vkchi.tuples import NamedTuple
from vkchi.types import Array, shape_of

if TYPE_CHECKING:
    from vkchi.tape.ledger import Memory, Values
    from vkchi.tape.plan import GradientPlan

NO_NAMES: frozenset[str] = frozenset()


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
    plan: Plan
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
        return self.plan.runtime.options.missing_gradient


def describe_call(
    name: str, plan: Plan, args: tuple[Any, ...], shared: Sequence[ImportedArray] = NOTHING_SHARED
) -> KernelCall:
    """Build the `KernelCall` of a launch; host arrays are copied, except for those in `shared`."""
    bound = BoundArguments(plan.runtime, [])
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
    tensors = {one.name: one.owner for one in wanted if host_views.has_grad(one.owner)}
    hosts = {one.name: one.view for one in bound.imports}
    arrays = {**plan.fields(args), **bound.arrays}
    numbers = integer_arguments(plan, args)
    return KernelCall(
        name, plan, given, arrays, numbers, tensors, hosts, tuple(bound.imports),
        constants, case_of(numbers, arrays),
    )  # fmt: skip


def constants_of(plan: Plan, args: tuple[Any, ...]) -> frozenset[str]:
    """Names of arrays with the annotation `needs_grad=False` that the kernel does not write."""
    return frozenset(p.name for p, _ in leaf_arguments(plan, args) if p.is_constant) - plan.written


def repeat_call(name: str, repeated: RepeatedTapedCall, args: tuple[Any, ...]) -> KernelCall:
    numbers = repeated.numbers(args)
    return KernelCall(
        name, repeated.plan, args, repeated.arrays(args), numbers, {}, {}, (), repeated.constants,
        repeated.case(numbers), repeated,
    )  # fmt: skip


def keep_arguments(
    plan: Plan, args: tuple[Any, ...], copies: Mapping[str, Storage]
) -> tuple[Any, ...]:
    """Copy the arguments that Python may mutate; host arrays are replaced by `copies`."""
    return tuple(p.keep(a, copies) for p, a in zip(plan.parameters, args, strict=True))


def copied_where_read(call: KernelCall, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not call.hosts:
        return args
    read = call.hosts.keys() & call.arrays.keys() - call.plan.written
    return keep_arguments(call.plan, args, {name: call.arrays[name] for name in read})


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
    if a.host is None or b.host is None:
        return False
    return not host_views.changed_mask(a.host, b.host).any()


def leaf_arguments(plan: Plan, args: tuple[Any, ...]) -> Iterator[tuple[Parameter, Any]]:
    """Yield parameters with their arguments; members of structs and packs separately."""
    for parameter, arg in zip(plan.parameters, args, strict=True):
        yield from parameter.leaves(arg)


class LaunchRequest:
    """A requested launch and the memory it accesses. Host arrays are not copied before `call` is
    used."""

    def __init__(self, name: str, plan: Plan, args: tuple[Any, ...]) -> None:
        self.name, self.plan, self.args = name, plan, args

    @cached_property
    def constants(self) -> frozenset[str]:
        return constants_of(self.plan, self.args)

    @cached_property
    def arrays(self) -> dict[str, Storage]:
        bound = BoundArguments(self.plan.runtime, [])
        for parameter, arg in leaf_arguments(self.plan, self.args):
            if parameter.kind != "array" or isinstance(arg, Ndarray):
                parameter.bind(arg, bound)
        return {**self.plan.fields(self.args), **bound.arrays}

    @cached_property
    def hosts(self) -> dict[str, Values]:
        given = [(p.name, arg) for p, arg in leaf_arguments(self.plan, self.args)
                 if p.kind == "array" and not isinstance(arg, Ndarray)]  # fmt: skip
        return {name: view for name, arg in given if (view := host_views.view_of(arg)) is not None}

    @cached_property
    def written(self) -> dict[str, Memory]:
        both: dict[str, Memory] = {**self.arrays, **self.hosts}
        return {name: memory for name, memory in both.items() if name in self.plan.written}

    @cached_property
    def call(self) -> KernelCall:
        repeated = find_repeated(self.plan, self.args)
        if repeated is not None:
            return repeat_call(self.name, repeated, self.args)
        found = describe_call(self.name, self.plan, self.args)
        noted = note_repeated(self.plan, self.args, found.arrays, found.constants)
        return found._replace(repeated=noted)


def integer_arguments(plan: Plan, args: tuple[Any, ...]) -> dict[str, int]:
    return {p.name: arg for p, arg in leaf_arguments(plan, args) if isinstance(arg, int)}


def clear_arrays(arrays: Iterable[Any]) -> None:
    for array in list(arrays):
        if array.has_memory:
            array.fill(0)


def adjoints_of(
    arrays: Mapping[str, Storage], but: frozenset[str] = NO_NAMES
) -> dict[str, Storage]:
    """Gradients by the names of their arrays. Arrays without gradient and those in `but` are
    absent."""
    found = {name: a.companion("grad") for name, a in arrays.items() if name not in but}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


class CallAdjoints:
    """The adjoints of a call's arrays.

    For fields and ndarrays these are their gradients. For torch tensors they are the `.grad`, in
    place or copied while a gradient runs. A tensor that is passed several times has one adjoint.
    """

    def __init__(self, call: KernelCall, known: Mapping[str, Storage] | None = None) -> None:
        self.call = call
        self.arrays = dict(adjoints_of(call.arrays, call.constants) if known is None else known)
        self.names = frozenset(self.arrays).union(call.tensors)  # arrays that have an adjoint
        self.fetched: dict[int, Fetched] = {}

    def fetch(self) -> None:
        """Import or copy the gradients of torch tensors to the device, into `arrays`.

        Missing gradients are zeros.
        """
        if self.call.tensors:
            await_host_memory()  # torch copies some gradients on the host
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
        """Import a tensor's gradient in place; for a result, a copy of it that torch allocates.

        None if the tensor is not in place, or if its gradient has another type or shape, or
        overlaps other arrays.
        """
        if not isinstance(array, HostNdarray):
            return None
        grad, axes = host_views.grad_of(tensor), len(shape_of(array.elem))
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
        """Store the fetched gradients in the tensors' `.grad`, and drop them here.

        Copies become new `.grad` tensors for results and for tensors without gradient. Other copies
        are written into the old `.grad`.
        """
        for tensor, array, grad, is_result in self.fetched.values():
            if grad is not None:
                host_views.put_grad(tensor, grad)
                continue
            made = array.to_torch().reshape(tensor.shape)
            if is_result or host_views.grad_of(tensor) is None:
                tensor.grad = made
            else:
                host_views.write_grad(tensor, made)
        self.fetched.clear()
        for name in self.call.tensors:
            self.arrays.pop(name, None)

    @property
    def owners(self) -> list[Any]:
        return [one.grad for one in self.fetched.values() if one.grad is not None]


class Fetched(NamedTuple):
    """Gradient of a tensor on the device; `grad` is the tensor whose memory it shares, if any."""

    tensor: Any
    array: Ndarray
    grad: Any
    is_result: bool


def copy_gradient(array: Storage, tensor: Any, *, is_result: bool) -> Fetched:
    made = Ndarray(array.runtime, array.elem, array.shape)
    grad = host_views.grad_of(tensor)
    if grad is not None:
        made.from_torch(grad)
    return Fetched(tensor, made, None, is_result)


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
                    "field has", call.plan.func.span,
                    help="place it in a block of the same shape and offset",
                )  # fmt: skip
            found[name + suffix] = companion.array_type
    return found


def plan_gradient(
    call: KernelCall,
    gradients: CallAdjoints,
    invariant: frozenset[str] = frozenset(),
    constant: frozenset[str] = frozenset(),
    *,
    is_second: bool = False,
) -> GradientPlan:
    """Return the gradient of a call, memoized per plan. Raises GradientError.

    Arrays in `invariant` hold the contents that the kernel left, not those it found. Arrays in
    `constant` hold no derivative before the call. With `is_second`, the result is the directional
    derivative of the gradient.
    """
    is_plain = not (invariant or constant or is_second)
    repeated = call.repeated if is_plain else None
    found = repeated.gradient(gradients.arrays) if repeated is not None else None
    if found is not None:
        return found
    from vkchi.tape.plan import GradientPlan

    check_aliases(call)
    request = GradientRequest(gradients.names, invariant, constant, call.missing)
    types = tuple(types_apart(call, gradients.arrays, ADJOINT).items())
    spec = GradientSpec(request, types, is_second)
    known = call.plan.derived.gradients
    made = known.find(spec, lambda: GradientPlan(call.plan, call.args, spec))
    if repeated is not None:
        repeated.note_gradient(gradients.arrays, made)
    return made


def check_numbers(name: str, plan: Plan, args: tuple[Any, ...]) -> None:
    for parameter, arg in leaf_arguments(plan, args):
        if parameter.kind == "tensor" and host_views.is_torch(arg) and arg.requires_grad:
            raise GradientError(
                f"{name}(): the gradient of `{parameter.name}`, which is passed by value, would be "
                "lost", plan.func.span,
                help=f"pass {parameter.name}.detach(), or take it as ti.types.ndarray()",
            )  # fmt: skip


def counted_twice(call: KernelCall, name: str) -> GradientError:
    return GradientError(
        f"{call.name}(): the gradient of `{name}` would be counted twice: torch is going backward, "
        "and adds what it is given to the .grad of this tensor", call.plan.func.span,
        help=f"pass {name}.detach(), and give torch the .grad of that",
    )  # fmt: skip


def count_once(call: KernelCall) -> None:
    """Keep torch from adding a gradient twice to tensors whose gradients it is accumulating.

    If that is not possible, torch's backward raises GradientError later.
    """
    for name, tensor in call.tensors.items():
        if leaf_gradients.is_added_to(tensor):
            leaf_gradients.count_once(tensor, counted_twice(call, name))


def check_leaves(call: KernelCall) -> None:
    """Raise GradientError for a tensor to whose `.grad` the tape cannot add.

    That is a tensor that torch computed from others, such as a view, without `retain_grad()`. It is
    also one whose gradient torch is accumulating.
    """
    for name, tensor in call.tensors.items():
        if leaf_gradients.is_added_to(tensor):
            raise counted_twice(call, name)
        if not (tensor.is_leaf or tensor.retains_grad):
            raise GradientError(
                f"{call.name}(): torch computed the tensor `{name}` from others, which its "
                "gradient would not reach", call.plan.func.span,
                help="pass what it was computed from, or call retain_grad() on it to find the "
                "gradient in its .grad",
            )  # fmt: skip


def make_grads(call: KernelCall) -> None:
    for tensor in call.tensors.values():
        host_views.make_grad(tensor)


def check_aliases(call: KernelCall) -> None:
    """Raise GradientError if two parameters are one array, except for ndarrays it only reads."""
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
