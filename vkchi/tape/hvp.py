"""Hessian-vector products by forward mode over reverse mode.

Arrays with a gradient get a dual when a kernel uses them, and so do their gradients. Users need not
declare duals.

    ti.ad.hvp(run, loss, x, v)          # H @ v
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.calls.call import KernelCall, LaunchRequest
from vkchi.calls.facts import facts
from vkchi.calls.variant import plan_forward
from vkchi.errors import ArgumentError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.ir.param_names import DUAL
from vkchi.races.finder import check_gradient_race as check_race
from vkchi.races.race import Found
from vkchi.runtime import Runtime, current_runtime
from vkchi.tape.adjoints import CallAdjoints
from vkchi.tape.ledger import Index
from vkchi.tape.log import ConstantOverwrite, RecordedCall, clear_elements
from vkchi.tape.plan import GradientPlan, plan_gradient
from vkchi.tape.recording import Recording
from vkchi.tape.requirements import check_alone, check_array, check_loss, check_run, numbers_like
from vkchi.tape.tape import clear_all_gradients
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import Numbers

WHOLE = "ti.ad.hvp takes fields and ndarrays, not torch tensors nor components of fields"


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
        raise Unsupported(WHOLE)
    direction = numbers_like("ti.ad.hvp: v", x, v)
    if direction.shape != x.shape + shape_of(x.elem):
        raise ArgumentError(
            f"ti.ad.hvp: v has shape {direction.shape}, x {x.shape + shape_of(x.elem)}"
        )
    gradient = loss.companion("grad")
    assert gradient is not None
    clear_all_gradients()
    loss.fill(0)
    recorder = HvpRecording(runtime, loss)
    recorder.dual(x).from_numpy(direction)
    with recorder:
        run()
        recorder.end([loss])
        clear_all_gradients()  # values that the program stored there are not seeds
        gradient.fill(1)
        recorder.reverse()
    return recorder.dual(slopes).to_numpy()


class HvpCall(RecordedCall):
    """A recorded call whose gradient is differentiated along a direction.

    `arrays` has the duals, too.
    """

    def __init__(
        self, recorder: HvpRecording, call: KernelCall, gradients: CallAdjoints, plan: GradientPlan,
        race: Found | None,
    ) -> None:  # fmt: skip
        super().__init__(call, gradients, plan, race)
        self.dual = recorder.dual
        self.arrays |= {n + DUAL: self.dual(call.arrays[n]) for n in gradients.names}

    def run(self) -> None:
        grads = self.gradients.arrays
        duals = {name: self.dual(g) for name, g in grads.items()}
        for adjoints in grads, duals:
            check_race(self.race, adjoints)
        own = {a + DUAL: duals[name] for name, a in self.plan.made.adjoints.items()}
        self.plan.launch(self.call.args, {**self.memory, **own}, grads)


class HvpRecording(Recording):
    """Recording that runs kernels in forward mode; `reverse` differentiates their gradients."""

    title = "ti.ad.hvp"

    def __init__(self, runtime: Runtime, loss: Storage) -> None:
        super().__init__(runtime)
        self.loss = loss
        self.duals: dict[int, tuple[Storage, Storage]] = {}

    def __enter__(self) -> HvpRecording:
        self.enter()
        return self

    def dual(self, array: Storage) -> Storage:
        array = array.whole
        if id(array) not in self.duals:
            made = Storage(array.runtime, array.elem, array.shape, array.layout, array.stored)
            self.duals[id(array)] = (array, made)
        return self.duals[id(array)][1]

    def launch_noted(self, given: LaunchRequest) -> Any:
        """Run a kernel in forward mode and record it, after saving the contents that it overwrites.

        Raises Unsupported for torch tensors, components of fields, and kernels that work on
        gradients.
        """
        call, name, kernel = given.call, given.name, given.kernel
        gradients = CallAdjoints(call)
        arrays = [call.arrays[name] for name in gradients.names]
        if call.tensors or any(array.whole is not array for array in arrays):
            raise Unsupported(f"{WHOLE}, as arguments of {name}()")
        if any(a.is_gradient for a in call.arrays.values()):
            raise Unsupported(f"ti.ad.hvp does not go through {name}(), which works on gradients")
        made = plan_gradient(call, gradients, is_second=True)
        met = self.check(call, gradients.names)
        race = self.races.look(call, gradients.names, made.spec)
        entry = HvpCall(self, call, gradients, made, race)
        self.save(entry)
        boxes = made.writes(call)
        written = kernel.written | {n + DUAL for n in kernel.written}
        boxes = boxes | {n + DUAL: box for n, box in boxes.items()}
        self.protect(f"{name}()", written, entry.arrays, boxes)
        duals = {n: self.dual(call.arrays[n]) for n in gradients.names}
        result = plan_forward(call, duals, self.title).run_along(call, given.args, duals)
        self.entries.append(entry)
        self.note(call, facts.outflow(kernel, made.spec, call.case), boxes, met)
        return result

    def cut(self, array: Storage, at: Index | None) -> None:
        """Clear the tangents of elements that Python overwrites with a constant, and record a step.

        Raises Unsupported for components of fields.
        """
        if array.whole is not array:
            raise Unsupported("ti.ad.hvp does not go through writes to components of fields")
        gradient = array.companion("grad")
        assert gradient is not None
        clear_elements(self.dual(array), at)
        self.entries.append(ConstantOverwrite((gradient, self.dual(gradient)), at))

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise Unsupported(
            f"ti.ad.hvp does not go through {function.__name__}(), which ti.ad.grad_replaced or "
            "ti.ad.no_grad decorates"
        )
