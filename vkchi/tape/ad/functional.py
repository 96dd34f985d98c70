"""Derivatives of Python functions that call kernels: `vjp` and `jvp`, as in JAX and torch.func."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.fields.views import overlap
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.ndarray import Ndarray, ndarray
from vkchi.runtime import current_runtime
from vkchi.span import user_span
from vkchi.tape.arguments import (
    check_alone,
    check_has,
    check_run,
    cotangent_of,
    seed_array,
    title_of,
    unwritten_error,
)
from vkchi.tape.forward import JvpRecording, is_whole
from vkchi.tape.ledger import box_at, input_at
from vkchi.tape.log import State, launches_in
from vkchi.tape.tape import Tape
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.tape.arguments import Cotangent
    from vkchi.tape.recording import Recording
    from vkchi.types.hints import Numbers, Tensors

R = TypeVar("R")
A = TypeVar("A", bound=Storage)


@python_scope
def vjp(f: Callable[..., R], *args: object) -> tuple[R, Pullback]:
    """Vector-Jacobian product of a function, as a function of cotangents.

    `f` runs once, and is recorded. It differs from `jax.vjp` in that `f` may write to its arguments
    and to other arrays: its outputs are arrays that kernels wrote.

    Args:
        f: calls kernels, and returns an array that they wrote, or a tuple, list or dictionary of
            such arrays: fields, ndarrays or torch tensors with a gradient.
        args: its arguments. `f` is differentiated with respect to those that are fields, ndarrays
            or torch tensors with a gradient.

    Returns:
        The result of `f`, and the function that maps cotangents of the outputs to those of `args`.

    Raises:
        ArgumentError: for invalid arguments or outputs.
        KernelRuntimeError: if a recording is active.
        GradientError: if a gradient would be wrong.
    """
    check_run("ti.ad.vjp", f)
    check_differentiable("ti.ad.vjp", args)
    tape = Tape(clear_gradients=False)
    given: tuple[Any, ...] = args
    tensors = [(x, host_views.grad_of(x)) for x in given if host_views.has_grad(x)]
    with tape:
        note_arguments("ti.ad.vjp", tape, args)
        result = f(*args)
    for tensor, grad in tensors:
        tensor.grad = grad
    tape.check_outputs(outputs_of("ti.ad.vjp", result))
    return result, Pullback(tape, args, result)


class Pullback:
    """The function that `ti.ad.vjp` returns. It may be called several times.

    It keeps the contents of all arrays that the recorded kernels used, as they were when `f` ended.
    """

    def __init__(self, tape: Tape, args: tuple[object, ...], result: object) -> None:
        self.tape, self.args, self.result = tape, args, result

    def __call__(
        self, cotangents: Numbers | Sequence[Numbers] | Mapping[str, Numbers]
    ) -> tuple[Ndarray | Tensors | None, ...]:
        """Map cotangents of the outputs of `f` to cotangents of its arguments.

        Args:
            cotangents: numbers in the form of the result of `f`: for one array, its cotangent; for
                a tuple, list or dictionary, one for each array in it. A single number is the
                cotangent of all elements.

        Returns:
            For each argument, its cotangent: an ndarray for a field or ndarray, a tensor for a
            tensor, None for any other. The `grad` of arrays is not changed.

        Raises:
            ArgumentError: for cotangents of another form, shape or dtype.
            GradientError: if a gradient would be wrong.
        """
        check_alone(self.tape.runtime, "a function of ti.ad.vjp")
        seeds: dict[int, tuple[Any, Cotangent]] = {}
        for y, given in matched("the cotangents", self.result, cotangents):
            made = cotangent_of(y, given)
            if id(y) in seeds:  # an output that is returned twice
                made = numbers_of(made) + numbers_of(seeds[id(y)][1])
            seeds[id(y)] = y, made
        with gradients_apart(self.tape, self.args):
            self.tape.pull_back(list(seeds.values()))
            return tuple(map(cotangent_of_input, self.args))


@contextmanager
def gradients_apart(tape: Tape, args: Sequence[object]) -> Iterator[None]:
    """Context in which the gradients of a tape's arrays are 0 at first, and have their old contents
    afterwards."""
    arrays = [one.array for one in tape.ledger.accounts.values()]
    arrays += [x.whole for x in args if isinstance(x, Storage)]
    found = {id(g): g for array in arrays if (g := array.companion("grad")) is not None}
    gradients = [(array, array.watch) for array in found.values()]
    calls = (launch.call for launch in launches_in(tape.entries))
    tensors = [tensor for call in calls for tensor in call.tensors.values()]
    tensors += [x for x in args if host_views.has_grad(x)]
    before, grads = State(found.values()), {id(t): (t, host_views.grad_of(t)) for t in tensors}
    for array, _ in gradients:
        array.fill(0)
    for tensor, _ in grads.values():
        tensor.grad = None
    try:
        yield
    finally:
        before.repeat()
        for array, watch in gradients:
            array.watch = watch
        for tensor, grad in grads.values():
            tensor.grad = grad


def cotangent_of_input(x: Any) -> Any:
    """A copy of the gradient of an argument: an ndarray or tensor; None for other arguments."""
    if not is_differentiable(x):
        return None
    if host_views.is_torch(x):
        return x.detach().clone().zero_() if x.grad is None else x.grad
    return copy_of(x.companion("grad"))


def copy_of(array: Storage) -> Ndarray:
    made: Ndarray = ndarray(array.seen_elem, array.shape)
    made.copy_from(array)
    return made


@overload
def jvp(
    f: Callable[..., A], primals: Sequence[object], tangents: Sequence[Numbers | None]
) -> tuple[A, Ndarray]: ...
@overload
def jvp(
    f: Callable[..., Mapping[str, A]],
    primals: Sequence[object],
    tangents: Sequence[Numbers | None],
) -> tuple[Mapping[str, A], Mapping[str, Ndarray]]: ...
@overload
def jvp(
    f: Callable[..., Sequence[A]], primals: Sequence[object], tangents: Sequence[Numbers | None]
) -> tuple[Sequence[A], Sequence[Ndarray]]: ...
@python_scope
def jvp(
    f: Callable[..., object], primals: Sequence[object], tangents: Sequence[Numbers | None]
) -> tuple[object, object]:
    """Jacobian-vector product of a function: its derivative along one direction.

    `f` runs once, in forward mode. As in `jax.jvp`, `primals` are its arguments.

    Args:
        f: as in `vjp`; its outputs are fields and ndarrays with a gradient.
        primals: the arguments of `f`.
        tangents: the direction: for each field or ndarray with a gradient, numbers of its shape,
            or one for all elements; None for zeros, and for any other argument.

    Returns:
        The result of `f`, and its tangents in the same form: an ndarray for each array.

    Raises:
        ArgumentError: for invalid arguments or outputs.
        KernelRuntimeError: if a recording is active.
        GradientError: if a tangent would be wrong.
        Unsupported: for torch tensors and components of fields.
    """
    runtime = current_runtime()
    check_alone(runtime, JvpRecording.title)
    check_run(JvpRecording.title, f)
    check_differentiable(JvpRecording.title, primals)
    recorder = JvpRecording(runtime)
    for x, tangent in matched("the tangents", tuple(primals), tangents):
        if tangent is not None:
            if not is_differentiable(x):
                raise ArgumentError(
                    f"ti.ad.jvp: a tangent of {title_of(x)} is given, which has no gradient: "
                    "pass None"
                )
            seed_array(recorder.dual_of(x), cotangent_of(x, tangent, "tangent"))
    with recorder:
        note_arguments(JvpRecording.title, recorder, primals)
        result = f(*primals)
        outputs = outputs_of(JvpRecording.title, result)
        for y in outputs:
            if isinstance(y, Storage) and is_whole(y) and id(y.whole) not in recorder.duals:
                check_has(title_of(y), y)
                raise unwritten_error(y)
        recorder.end(outputs)
        found = [copy_of(recorder.dual_of(y)) for y in outputs]
    return result, in_form_of(result, found)


# --- arguments and results -----------------------------------------------------------------------


def is_differentiable(x: object) -> bool:
    if isinstance(x, Storage):
        return x.dtype.kind == "f" and x.companion("grad") is not None
    return host_views.has_grad(x)


def check_differentiable(who: str, args: Sequence[object]) -> None:
    """Raise ArgumentError unless some arguments have a gradient, and these have elements, of which
    none are common."""
    found = [x for x in args if is_differentiable(x)]
    if not found:
        raise ArgumentError(
            f"{who}: no argument has a gradient: pass fields or ndarrays with needs_grad=True, or "
            "tensors with requires_grad=True"
        )
    for k, x in enumerate(found):
        check_not_empty(who, x)
        for y in found[:k]:
            if x is y:
                raise ArgumentError(
                    f"{who}: {title_of(x)} is passed twice, and its derivative is that of both: "
                    "copy it"
                )
            if isinstance(x, Storage) and isinstance(y, Storage) and overlap(x, y):
                raise ArgumentError(
                    f"{who}: {title_of(y)} and {title_of(x)} are parts of one array and overlap: "
                    "copy one"
                )


def check_not_empty(who: str, x: Any) -> None:
    if isinstance(x, Storage) and not x.size:
        raise ArgumentError(f"{who}: {title_of(x)} has no elements")


def note_arguments(who: str, recording: Recording, args: Sequence[object]) -> None:
    """Record that derivatives are with respect to the present contents of arguments.

    If Python overwrites these, the new values are constants, even if no kernel has read the old
    ones.
    """
    for x in filter(is_differentiable, args):
        box = box_at(x) if isinstance(x, Storage) else ()
        recording.ledger.define(x, input_at(title_of(x), who, box, None, user_span()))


def outputs_of(who: str, result: Any) -> list[Any]:
    """The arrays in the result of a function. Raises ArgumentError if it is no array, nor a tuple,
    list or dictionary of arrays."""
    found = parts_of(result)
    for y in found or [None]:
        if not (isinstance(y, Storage) or host_views.is_torch(y)):
            raise ArgumentError(
                f"{who}: the function must return the arrays that its kernels wrote, not "
                f"{host_views.short_repr(result)}"
            )
        check_not_empty(who, y)
    return found


def parts_of(result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        return list(result.values())
    return list(result) if isinstance(result, list | tuple) else [result]


def matched(what: str, result: Any, given: Any) -> list[tuple[Any, Any]]:
    """Pairs of arrays with numbers `given` in the same form. Raises ArgumentError for another
    form."""
    if isinstance(result, Mapping):
        is_same = isinstance(given, Mapping) and given.keys() == result.keys()
        if is_same:
            return [(y, given[key]) for key, y in result.items()]
        raise ArgumentError(f"{what} must be a dictionary of {', '.join(map(str, result))}")
    if not isinstance(result, list | tuple):
        return [(result, given)]
    if not isinstance(given, list | tuple) or len(given) != len(result):
        raise ArgumentError(
            f"{what} must be a tuple of {len(result)}, not {host_views.short_repr(given)}"
        )
    return list(zip(result, given, strict=True))


def in_form_of(result: Any, found: list[Ndarray]) -> object:
    if isinstance(result, Mapping):
        return dict(zip(result, found, strict=True))
    if isinstance(result, list):
        return found
    return tuple(found) if isinstance(result, tuple) else found[0]


def numbers_of(cotangent: Cotangent) -> Any:
    found = cotangent.to_numpy() if isinstance(cotangent, Storage) else cotangent
    return np.asarray(found, np.float64)
