"""Fast path of operators in plain Python: an autograd Function that bypasses torch's dispatcher.

It computes the same result in less time. The dispatcher is used instead if any of these holds:

- torch compiles, traces, profiles, transforms functions, or runs in forward mode or another mode;
- a tensor is not a plain CPU tensor;
- a scalar is not a Python number of the parameter's kind;
- a parameter is a vector, or an argument is given by keyword;
- the user has registered more of the operator (`op.register_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

from vkchi.errors import TensorGradientError
from vkchi.interop.torch_library import (
    has_memory,
    is_compiling,
    is_recorded,
    keeps_graph,
    make_function,
    needs_full_dispatch,
    plain_tensors,
    transforms_functions,
)
from vkchi.interop.torch_writes import forward_mode, has_tangent, may_have_tangent
from vkchi.operators.field_snapshots import current_snapshots
from vkchi.operators.operator_signature import (
    OperatorSignature,
    check_arguments,
    is_tensor,
    slope_of,
)
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter

NUMBERS = {"f": (float, int), "i": (int,), "u": (int,), "b": (bool,)}  # Python types by scalar kind
REGISTERING = (
    "register_kernel", "register_fake", "register_autograd", "register_vmap", "register_autocast",
    "register_torch_dispatch", "set_kernel_enabled",
)  # fmt: skip


def call_directly(operator: Any, backward: Any, spec: OperatorSignature) -> Any:
    """The operator itself, with the fast path installed if its parameters allow it."""
    takes = types_of(spec)
    base: Any = type(operator)
    operator.__class__ = direct_class(base)
    operator.who, operator.parameters = spec.name, spec.inputs
    operator.complete = spec.complete
    operator.direct = None if takes is None else FastPath(spec, takes, backward)
    return operator


def types_of(spec: OperatorSignature) -> list[frozenset[type]] | None:
    """Per argument, the classes that need no conversion; None if an argument is neither an array
    nor a scalar."""
    found = []
    for p in spec.inputs:
        if isinstance(p, ArrayParameter):
            found.append(plain_tensors())
        elif isinstance(p, ScalarParameter):
            found.append(frozenset(NUMBERS[p.type.kind]))
        else:
            return None
    return found


@cache
def direct_class(base: Any) -> type:
    """Subclass of `base`, torch's operator class, with the fast path; memoized."""
    compiles = is_compiling()  # a name that torch.compile recognizes in this code
    forward = forward_mode()

    class DirectOp(base):  # type: ignore[misc]
        """A torch operator; `direct` is its fast path, if any."""

        who: str
        parameters: Sequence[Parameter]
        complete: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
        direct: FastPath | None

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = self.complete(args, kwargs)
            if compiles():
                if forward._current_level >= 0:  # unknown which argument has a tangent
                    raise no_forward_mode(self.who)
                return super().__call__(*args, **kwargs)
            if kwargs or self.direct is None or not self.direct.takes(args):
                named = [kwargs[p.name] for p in self.parameters[len(args) :] if p.name in kwargs]
                check_arguments(self.who, self.parameters, (*args, *named))
                check_tangents(self.who, (*args, *kwargs.values()))
                return super().__call__(*args, **kwargs)
            return self.direct.call(args)

        def __reduce__(self) -> NoReturn:
            raise TypeError(
                f"{self.who}() is an operator that torch knows in this process, and is not "
                "pickled: define it in a module, and import it in the function that uses it"
            )

        def __copy__(self) -> DirectOp:
            return self

        def __deepcopy__(self, memo: object) -> DirectOp:
            return self

    for name in REGISTERING:
        if hasattr(base, name):
            setattr(DirectOp, name, disable_fast_path(getattr(base, name)))
    return DirectOp


def disable_fast_path(method: Callable[..., Any]) -> Callable[..., Any]:
    def register(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.direct = None
        return method(self, *args, **kwargs)

    return register


class FastPath:
    def __init__(
        self, spec: OperatorSignature, takes: Sequence[frozenset[type]], backward: Any
    ) -> None:
        self._spec, self._types = spec, takes
        self._places = [k for k, p in enumerate(spec.inputs) if isinstance(p, ArrayParameter)]
        self._is_recorded, self._is_disturbed = is_recorded(), needs_full_dispatch()
        self._apply = autograd_function(spec, self._places, backward)

    def takes(self, args: tuple[Any, ...]) -> bool:
        """True if the fast path applies: plain CPU arguments, and nothing in torch observes the
        call."""
        if len(args) != len(self._types):
            return False
        for arg, types in zip(args, self._types):
            if arg.__class__ not in types:
                return False
        for k in self._places:
            if not args[k].is_cpu:
                return False
        return not self._is_disturbed()

    def call(self, args: tuple[Any, ...]) -> Any:
        if self._is_recorded():
            for k in self._places:
                if args[k].requires_grad:
                    return self._apply(*args)
        return one_or_all(self._spec.run_constant(args))


def autograd_function(
    spec: OperatorSignature, places: list[int], backward: Any
) -> Callable[..., Any]:
    """The operator as an autograd Function; `places` are the indices of tensor arguments."""
    records, is_disturbed = is_recorded(), needs_full_dispatch()

    def act(ctx: Any, *args: Any) -> Any:
        found, call = spec.run(args)
        spec.save(ctx, args, found, call)
        return one_or_all(found)

    def go_back(ctx: Any, *slopes: Any) -> Any:
        if records() or is_disturbed() or not all(map(has_memory, slopes)):
            return run_backward(spec, backward, ctx, slopes)  # visible to torch
        args, kept = restore_saved(spec, ctx)
        memory = take_memory(ctx)
        wanted = [spec.inputs[k].name for k in places if ctx.needs_input_grad[k]]
        given = dict(zip(spec.outputs, slopes, strict=True))
        found = spec.differentiate(args, given, kept, wanted, memory)
        return tuple([found.get(name) for name in spec.names])

    return make_function(spec.name, act, go_back)


# --- saved values of derivatives, for both paths -------------------------------------------------


def take_memory(ctx: Any) -> Any:
    """The snapshot of fields, which `ctx` drops unless torch keeps the graph for another pass."""
    memory = ctx.memory
    if not keeps_graph()():
        ctx.memory = None  # torch does not allow a second backward pass
    return memory


def restore_saved(spec: OperatorSignature, ctx: Any) -> tuple[list[Any], dict[str, Any]]:
    saved = iter(ctx.saved_tensors)
    given = {**ctx.others, **{name: next(saved) for name in spec.tensors}}
    kept = {name: next(saved) for name in spec.outputs if name in ctx.kept}
    return [given[name] for name in spec.names], kept


def run_backward(
    spec: OperatorSignature, backward: Any, ctx: Any, slopes: Sequence[Any]
) -> tuple[Any, ...]:
    """Gradients of the operator's arguments, by the backward operator; None for those that are no
    float tensors.

    Raises TensorGradientError if a value may carry a forward-mode tangent.
    """
    args, kept = restore_saved(spec, ctx)
    check_tangents(spec.name, (*args, *slopes))
    with current_snapshots(take_memory(ctx)):
        found = backward(*args, *slopes, *map(kept.get, spec.outputs))
    found = dict(zip(spec.tensors, found if isinstance(found, tuple) else (found,), strict=True))
    given = spec.name_arguments(args)
    return tuple(
        found[name] if name in found and given[name].is_floating_point() else None
        for name in spec.names
    )


def save_for_second(spec: OperatorSignature, ctx: Any, args: Sequence[Any]) -> None:
    """Save the arguments of the backward operator, and the snapshot that it uses."""
    ctx.memory = spec.find_memory(None)
    ctx.places = [k for k, a in enumerate(args) if is_tensor(a)]
    ctx.args = [None if is_tensor(a) else a for a in args]
    ctx.save_for_backward(*[args[k] for k in ctx.places])


def run_second(
    spec: OperatorSignature, second: Any, ctx: Any, directions: Sequence[Any]
) -> tuple[Any, ...]:
    """Gradients of the backward operator's arguments, by the operator of second derivatives."""
    args = list(ctx.args)
    for k, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
        args[k] = tensor
    count = len(spec.inputs) + len(spec.outputs)
    with current_snapshots(ctx.memory):
        found = second(*args[:count], *directions)
    named = dict(zip((*spec.tensors, *map(slope_of, spec.outputs)), found, strict=True))
    names = (*spec.names, *map(slope_of, spec.outputs))
    results = [
        named.get(name) if is_tensor(a) and a.is_floating_point() else None
        for name, a in zip(names, args)
    ]
    return (*results, *[None] * len(spec.outputs))


def split_second(
    spec: OperatorSignature, args: Sequence[Any]
) -> tuple[Sequence[Any], dict[str, Any], dict[str, Any]]:
    """The inputs, the gradients of the outputs, and the directions of the inputs' gradients, among
    the arguments of the operator of second derivatives."""
    n, m = len(spec.inputs), len(spec.outputs)
    slopes = dict(zip(spec.outputs, args[n : n + m], strict=True))
    return args[:n], slopes, dict(zip(spec.tensors, args[n + m :], strict=True))


def check_tangents(who: str, args: Sequence[Any]) -> None:
    """Raise TensorGradientError if an argument may carry a forward-mode tangent: torch would treat
    the result as constant."""
    if any(hasattr(arg, "untyped_storage") and may_have_tangent(arg) for arg in args):
        raise no_forward_mode(who)


def refuse_transforms(who: str, args: Sequence[Any]) -> None:
    """Raise TensorGradientError for forward-mode tangents, and for reverse mode inside torch's
    function transforms, which do not support custom operators. Torch calls this per transform,
    when the tangents are certain."""
    if any(hasattr(arg, "untyped_storage") and has_tangent(arg) for arg in args):
        raise no_forward_mode(who)
    wants = any(getattr(arg, "requires_grad", False) for arg in args)
    if wants and is_recorded()() and transforms_functions()():
        raise TensorGradientError(
            f"{who}() has no derivative in torch's transforms (torch.func.grad, vjp, jacrev)",
            help="use backward(), torch.autograd.grad() or torch.autograd.functional.jacobian",
        )


def no_forward_mode(who: str) -> TensorGradientError:
    return TensorGradientError(
        f"{who}() has no derivative in torch's forward mode (torch.func.jvp, jacfwd)",
        help="differentiate it in reverse mode: backward(), or torch.autograd.grad()",
    )


def one_or_all(found: Sequence[Any]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)
