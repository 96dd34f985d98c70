"""Products with the Hessian: forward mode over reverse mode.

Owns: `hvp`. Every array with a gradient gets a dual of its own here, and every gradient one too;
users need not ask for duals. Must not know: how derivatives are built.

    ti.ad.hvp(run, loss, x, v)          # H @ v
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vkchi.errors import ArgumentError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.ir.names import ADJOINT, DUAL
from vkchi.launch import Plan
from vkchi.races.finder import Found
from vkchi.races.finder import check as check_race
from vkchi.runtime import Runtime, current
from vkchi.tape.arguments import check_alone, check_array, check_loss, check_run, numbers_like
from vkchi.tape.calls import (
    Call,
    Gradients,
    check_aliases,
    companion,
    describe_call,
    is_gradient,
    types_apart,
    whole,
)
from vkchi.tape.clobbers import Cut, Index, blank
from vkchi.tape.gradients import build_second
from vkchi.tape.plan import GradientPlan
from vkchi.tape.recording import Recording
from vkchi.tape.tape import clear_all_gradients
from vkchi.tape.variants import plan_forward
from vkchi.types import shape_of

WHOLE = "ti.ad.hvp takes fields and ndarrays, not torch tensors nor components of fields"


def hvp(run: Callable[[], Any], loss: Any, x: Any, v: Any) -> np.ndarray[Any, Any]:
    """The Hessian of `loss` by `x`, times `v`: an array of the shape of `x.to_numpy()`.

    run: calls the kernels that compute the loss from x; loss: a field of one number; x: a field or
    ndarray with a gradient, which holds the gradient afterwards; v: numbers of x's shape. Raises
    ArgumentError for another shape, GradientError where an operation has no derivative.
    """
    runtime = current()
    check_alone(runtime, Recorder.title)
    check_run(Recorder.title, run)
    check_loss(loss)
    check_array("ti.ad.hvp: x", x)
    slopes = companion(x, "grad")
    assert slopes is not None
    if host.is_torch(loss) or whole(slopes) is not slopes:
        raise Unsupported(WHOLE)
    direction = numbers_like("ti.ad.hvp: v", x, v)
    if direction.shape != x.shape + shape_of(x.elem):
        raise ArgumentError(
            f"ti.ad.hvp: v has shape {direction.shape}, x {x.shape + shape_of(x.elem)}"
        )
    gradient = companion(loss, "grad")
    assert gradient is not None
    clear_all_gradients()
    loss.fill(0)
    recorder = Recorder(runtime)
    recorder.dual(x).from_numpy(direction)
    with recorder:
        run()
        recorder.clobbers.check_loss(loss)
        gradient.fill(1)
        recorder.reverse()
    return recorder.dual(slopes).to_numpy()


class Entry:
    """A recorded call. `memory` are its arrays and their duals, or copies of what they held."""

    def __init__(
        self, recorder: Recorder, call: Call, gradients: Gradients, race: Found | None
    ) -> None:
        self.recorder, self.call, self.gradients, self.race = recorder, call, gradients, race
        duals = {n + DUAL: recorder.dual(call.arrays[n]) for n in gradients.names}
        self.memory = {**call.arrays, **duals}

    def run(self) -> None:
        """Run the derivative of the call's gradient."""
        made = plan_second(self.call, self.gradients)
        grads = self.gradients.arrays
        for adjoints in grads, {name: self.recorder.dual(g) for name, g in grads.items()}:
            check_race(self.race, adjoints)
        duals = {
            adjoint + DUAL: self.recorder.dual(grads[name])
            for name, adjoint in made.made.adjoints.items()
        }
        made.launch(self.call.args, {**self.memory, **duals}, grads)


class Recorder(Recording):
    """Runs kernels in forward mode and records them; `reverse` runs the derivatives of their
    gradients."""

    title = "ti.ad.hvp"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.entries: list[Entry | Cut] = []
        self.duals: dict[int, tuple[Storage, Storage]] = {}

    def __enter__(self) -> Recorder:
        self.enter()
        return self

    def dual(self, array: Storage) -> Storage:
        """The dual of an array: zeros when first asked for."""
        array = whole(array)
        if id(array) not in self.duals:
            made = Storage(array.runtime, array.elem, array.shape, array.layout, array.stored)
            self.duals[id(array)] = (array, made)
        return self.duals[id(array)][1]

    def launch(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel in forward mode, having saved what it overwrites."""
        call = describe_call(name, plan, args)
        gradients = Gradients(call)
        arrays = [call.arrays[name] for name in gradients.names]
        if call.tensors or any(whole(array) is not array for array in arrays):
            raise Unsupported(f"{WHOLE}, as arguments of {name}()")
        if any(map(is_gradient, call.arrays.values())):
            raise Unsupported(f"ti.ad.hvp does not go through {name}(), which works on gradients")
        made = plan_second(call, gradients)
        self.check(call, gradients.names)
        race = self.races.look(call, gradients.names, made.made.func)
        entry = Entry(self, call, gradients, race)
        boxes = self.save(call, entry, made)
        written = plan.written | {n + DUAL for n in plan.written}
        boxes = boxes | {n + DUAL: box for n, box in boxes.items()}
        self.protect(written, entry.memory, boxes)
        duals = {n: self.dual(call.arrays[n]) for n in gradients.names}
        result = plan_forward(call, duals, self.title).run(call, args, duals)
        self.entries.append(entry)
        self.note(call, made.outflows.of(call.numbers, call.arrays), boxes)
        return result

    def cut(self, array: Storage, at: Index | None) -> None:
        """Python writes a constant."""
        if whole(array) is not array:
            raise Unsupported("ti.ad.hvp does not go through writes to components of fields")
        gradient = companion(array, "grad")
        assert gradient is not None
        blank(self.dual(array), at)
        self.entries.append(Cut((gradient, self.dual(gradient)), at))

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Raises Unsupported: such a gradient has no derivative."""
        raise Unsupported(
            f"ti.ad.hvp does not go through {function.__name__}(), which ti.ad.grad_replaced or "
            "ti.ad.no_grad decorates"
        )

    def reverse(self) -> None:
        """Run the derivatives of the gradients, last call first."""
        for entry in reversed(self.entries):
            entry.run()


def plan_second(call: Call, gradients: Gradients) -> GradientPlan:
    """The derivative of the call's gradient, made once per plan."""
    check_aliases(call)
    names = gradients.names

    def make() -> GradientPlan:
        types = types_apart(call, gradients.arrays, ADJOINT)
        return GradientPlan(call.plan, call.args, names, types, build=build_second)

    return call.plan.derived.second.find(names, make)
