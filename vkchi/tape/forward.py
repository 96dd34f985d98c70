"""Forward mode, and Hessian-vector products by forward mode over reverse mode.

In forward mode, kernels propagate tangents along one direction. The `dual` of an array holds its
tangent:

    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0]):
        compute()
    loss.dual[None]                 # d loss / d x[0]

For `ti.ad.hvp(run, loss, x, v)`, the product H @ v, users need not declare duals. Arrays with a
gradient get a dual when a kernel uses them, and so do their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.calls.call import KernelCall, LaunchRequest
from vkchi.calls.variant import plan_forward
from vkchi.errors import ArgumentError, KernelRuntimeError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.fields.views import View, base_of
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.ir.core import DUAL
from vkchi.races.finder import check_forward_race, check_gradient_race
from vkchi.races.race import Found
from vkchi.runtime import Runtime, current_runtime
from vkchi.span import user_span
from vkchi.tape import queries
from vkchi.tape.adjoints import CallAdjoints, clear_arrays
from vkchi.tape.arguments import check_alone, check_array, check_loss, check_run, numbers_like
from vkchi.tape.call_facts import BoundCall, CallFacts, facts_of
from vkchi.tape.ledger import Index, input_at
from vkchi.tape.log import ConstantOverwrite, Launch, clear_elements
from vkchi.tape.plan import plan_gradient
from vkchi.tape.recording import Recording
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.calls.call import Values
    from vkchi.types.hints import Numbers


class ForwardRecording(Recording):
    """Recording that runs kernels in forward mode."""

    def duals_of(self, call: KernelCall) -> dict[str, Storage]:
        """The duals of a call's arrays that have one, by name."""
        raise NotImplementedError

    def launch_noted(self, given: LaunchRequest) -> Any:
        call = given.call
        duals = self.duals_of(call)
        names = frozenset(duals)
        found = plan_forward(call, duals, self.title)
        met = queries.check_call(self.ledger, call, names, self.kind)
        race = self.races.look(call, names, None)
        check_forward_race(race, duals)
        result = found.run_along(call, given.args, duals)
        known = facts_of(call, None, names, {}, self.kind)
        accounts = {name: self.ledger.open(array) for name, array in call.arrays.items()}
        self.protect(known.writes, accounts, f"{call.name}()")
        self.define(call, known, met)
        return result

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of `grad_replaced` or `no_grad` like any other and return its result.

        Its kernels are differentiated.
        """
        return function.__wrapped__(*args, **kwargs)


@python_scope
class FwdMode(ForwardRecording):
    """Forward-mode differentiation of the kernels called inside `with`.

    Kernels also compute the `dual` of every array they write that has one: the derivative of its
    elements along the direction `seed` of `param`. Source: Taichi's `ti.ad.FwdMode`.

    Args:
        loss: one or several fields that hold results.
        param: a field with a dual.
        seed: one number per scalar of param (None: 1, for a param of one number).
        clear_gradients: set all duals to 0 first.

    Raises:
        KernelRuntimeError: for a seed of wrong length or if a recording is active.
        ArgumentError: for missing duals or a seed that is not of numbers.
        GradientError: if a tangent would be wrong.
    """

    title, kind = "ti.ad.FwdMode", "dual"

    def __init__(
        self, loss: Storage | Sequence[Storage], param: Storage,
        seed: Sequence[float] | None = None, clear_gradients: bool = True,
    ) -> None:  # fmt: skip
        given: Any = loss
        self.losses: list[Storage] = list(given) if isinstance(given, list | tuple) else [given]
        self.param: Any = param
        self.seed, self.clear_gradients = seed, clear_gradients
        super().__init__(current_runtime())

    def __enter__(self) -> FwdMode:
        if self.state != "new":
            raise KernelRuntimeError("forward mode can be entered once: make a new ti.ad.FwdMode")
        check_alone(self.runtime, self.title)
        for field in self.losses:
            check_array("ti.ad.FwdMode: the loss", field, "dual")
        check_array("ti.ad.FwdMode: param", self.param, "dual")
        direction = direction_of(self.param, self.seed)
        if self.clear_gradients:
            clear_arrays(self.runtime.duals)
        self.param.dual.from_numpy(direction)
        self.enter()
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the block and clear the direction, unless it shares memory with a result.

        Raises GradientError if a loss was overwritten with unknown values, unless another exception
        ends the block.
        """
        try:
            if kind is None:
                self.end(self.losses)
        finally:
            self.close()
            duals = [loss.companion("dual") for loss in self.losses]
            if not any(d is not None and d.whole is self.param.dual.whole for d in duals):
                self.param.dual.fill(0)

    def duals_of(self, call: KernelCall) -> dict[str, Storage]:
        return {k: d for k, a in call.arrays.items() if (d := a.companion("dual")) is not None}

    def cut(self, array: Storage, at: Index | None) -> None:
        dual = array.companion("dual")
        assert dual is not None
        clear_elements(dual, at)


def direction_of(param: Storage, seed: Sequence[float] | None) -> np.ndarray[Any, Any]:
    """The seed in the shape of the parameter, components included.

    Raises KernelRuntimeError for a wrong length, ArgumentError if it does not consist of numbers.
    """
    shape = param.shape + shape_of(param.elem)
    count = math.prod(shape)
    if seed is None and count != 1:
        raise KernelRuntimeError(
            f"ti.ad.FwdMode needs a seed of {count} numbers, one for each of the parameter: "
            "seed=[1, 0, ...] for the derivative by the first"
        )
    values = numbers_like("ti.ad.FwdMode: the seed", param, [1.0] if seed is None else seed)
    if values.size != count:
        raise KernelRuntimeError(
            f"ti.ad.FwdMode needs a seed of {count} numbers, not of {values.size}"
        )
    return values.reshape(shape)


# --- duals of arrays with a gradient -------------------------------------------------------------


class OwnDuals(Recording):
    """Recording that makes a dual for each array with a gradient.

    It supports fields and ndarrays, but neither torch tensors nor components of fields.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.duals: dict[int, tuple[Storage, Storage]] = {}

    def __enter__(self) -> OwnDuals:
        self.enter()
        return self

    def dual(self, array: Storage) -> Storage:
        whole = array.whole
        if id(whole) not in self.duals:
            made = Storage(whole.runtime, whole.elem, whole.shape, whole.layout, whole.stored)
            self.duals[id(whole)] = (whole, made)
        found = self.duals[id(whole)][1]
        return array.like(found) if isinstance(array, View) else found

    def dual_of(self, array: Storage) -> Storage:
        """The dual of an argument of users. Raises Unsupported unless it is a whole array, or a
        view of one."""
        if not isinstance(array, Storage) or not is_whole(array):
            raise Unsupported(f"{self.title} {WHOLE}")
        return self.dual(array)

    def adjoints_of(self, call: KernelCall) -> CallAdjoints:
        """The adjoints of a call's arrays.

        Raises Unsupported for torch tensors, components of fields, and kernels that work on
        gradients.
        """
        gradients = CallAdjoints(call)
        arrays = [call.arrays[name] for name in gradients.names - call.tensors.keys()]
        if call.tensors or any(array.whole is not array for array in arrays):
            raise Unsupported(f"{self.title} {WHOLE}, as arguments of {call.name}()")
        if any(a.is_gradient for a in call.arrays.values()):
            raise Unsupported(
                f"{self.title} does not go through {call.name}(), which works on gradients"
            )
        return gradients

    def cut(self, array: Storage, at: Index | None) -> None:
        """Clear the tangents of elements that Python overwrites with a constant.

        Raises Unsupported for components of fields.
        """
        if not is_whole(array):
            raise Unsupported(f"{self.title} does not go through writes to components of fields")
        clear_elements(self.dual(array), at)


def is_whole(array: Storage) -> bool:
    """True unless an array is a component of a field, or a view of one."""
    base, _ = base_of(array)
    return base.whole is base


WHOLE = "takes fields and ndarrays, not torch tensors nor components of fields"


class JvpRecording(OwnDuals, ForwardRecording):
    title = "ti.ad.jvp"

    def duals_of(self, call: KernelCall) -> dict[str, Storage]:
        return {name: self.dual(call.arrays[name]) for name in self.adjoints_of(call).names}


# --- Hessian-vector products ---------------------------------------------------------------------


@python_scope
def hvp(
    run: Callable[[], object], loss: Storage, x: Storage, v: Numbers
) -> np.ndarray[Any, Any]:  # fmt: skip
    """Hessian-vector product: the Hessian of `loss` with respect to `x`, times `v`.

    Overwrites all gradients; that of x holds the gradient of the loss afterwards.

    Args:
        run: calls the kernels that compute the loss from x.
        loss: a field of one number, set to 0 first.
        x: a field or ndarray with a gradient.
        v: numbers of x's shape.

    Returns:
        A numpy array of the shape of `x.to_numpy()`.

    Raises:
        ArgumentError: for another shape, and for an invalid run, loss or x.
        KernelRuntimeError: if a recording is active, or for a loss that is not one number.
        GradientError: if an operation has no derivative.
        Unsupported: for torch tensors and components of fields.
    """
    runtime = current_runtime()
    check_alone(runtime, HvpRecording.title)
    check_run(HvpRecording.title, run)
    check_loss(loss)
    check_array("ti.ad.hvp: x", x)
    slopes = x.companion("grad")
    assert slopes is not None
    if host_views.is_torch(loss) or slopes.whole is not slopes:
        raise Unsupported(f"ti.ad.hvp {WHOLE}")
    direction = numbers_like("ti.ad.hvp: v", x, v)
    if direction.shape != x.shape + shape_of(x.elem):
        raise ArgumentError(
            f"ti.ad.hvp: v has shape {direction.shape}, x {x.shape + shape_of(x.elem)}"
        )
    gradient = loss.companion("grad")
    assert gradient is not None
    clear_arrays(runtime.gradients)
    loss.fill(0)

    def seed() -> None:
        clear_arrays(runtime.gradients)  # values that the program stored there are not seeds
        gradient.fill(1)

    recorder = HvpRecording(runtime, loss)
    recorder.differentiate(run, {x: direction}, [loss], seed)
    return recorder.dual(slopes).to_numpy()


class HvpLaunch(Launch):
    """A recorded call whose gradient is differentiated along a direction.

    Its arrays include their duals.
    """

    def __init__(
        self, recorder: HvpRecording, call: KernelCall, bound: BoundCall, known: CallFacts,
        race: Found | None,
    ) -> None:  # fmt: skip
        super().__init__(bound, call.args, known)
        self.call, self.dual, self.race, self.title = call, recorder.dual, race, recorder.title

    def launch(self, args: tuple[Any, ...]) -> Any:
        duals = {n: self.dual(self.call.arrays[n]) for n in self.bound.gradients}
        return plan_forward(self.call, duals, self.title).run_along(self.call, args, duals)

    def run(self) -> None:
        grads = self.bound.gradients
        duals = {name: self.dual(g) for name, g in grads.items()}
        for adjoints in grads, duals:
            check_gradient_race(self.race, adjoints)
        own = {a + DUAL: duals[name] for name, a in self.plan.made.adjoints.items()}
        self.plan.launch(self.args, {**self.memory, **own}, grads)


class HvpRecording(OwnDuals):
    """Recording that runs kernels in forward mode; `reverse` differentiates their gradients."""

    title = "ti.ad.hvp"

    def __init__(self, runtime: Runtime, loss: Storage | None = None) -> None:
        super().__init__(runtime)
        self.loss = loss

    def differentiate(
        self, run: Callable[[], object], directions: Mapping[Storage, Values],
        outputs: Sequence[Storage], seed: Callable[[], None],
    ) -> None:  # fmt: skip
        """Run kernels along directions of inputs, and their gradients for the cotangents of the
        outputs that `seed` stores.

        `dual(y)` then holds the tangent of y, `dual(x.grad)` that of the gradient of x. Raises
        GradientError.
        """
        for x, direction in directions.items():
            self.dual(x).from_numpy(direction)
        with self:
            for x in directions:
                start = input_at(repr(x), self.title, (), None, user_span())
                self.ledger.open(x).start = start
            run()
            self.end(outputs)
            seed()
            self.reverse()

    def launch_noted(self, given: LaunchRequest) -> Any:
        """Run a kernel in forward mode and record it, after saving the contents that it
        overwrites."""
        call, name = given.call, given.name
        gradients = self.adjoints_of(call)
        made = plan_gradient(call, gradients, is_second=True)
        met = queries.check_call(self.ledger, call, gradients.names, self.kind)
        race = self.races.look(call, gradients.names, made.spec)
        known = facts_of(call, made, made.spec, {}, self.kind)
        more = tuple([(n + DUAL, box) for n, box in known.writes if n in gradients.names])
        known = known._replace(writes=known.writes + more)
        duals = {n + DUAL: self.dual(call.arrays[n]) for n in gradients.names}
        bound = BoundCall(name, self.ledger, {**call.arrays, **duals}, gradients.arrays, None)
        launch = HvpLaunch(self, call, bound, known, race)
        result = self.record_launch(launch, call, given.args, met)
        self.entries.append(launch)
        return result

    def cut(self, array: Storage, at: Index | None) -> None:
        super().cut(array, at)
        gradient = array.companion("grad")
        assert gradient is not None
        self.entries.append(ConstantOverwrite((gradient, self.dual(gradient)), at))

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise Unsupported(
            f"ti.ad.hvp does not go through {function.__name__}(), which ti.ad.grad_replaced or "
            "ti.ad.no_grad decorates"
        )
