"""Products with the Hessian: forward mode over reverse mode.

Owns: `hvp`. Every array with a gradient gets a dual of its own here, and every gradient one too;
users need not ask for duals. Must not know: how derivatives are built.

    ti.ad.hvp(run, loss, x, v)          # H @ v
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vkchi.autodiff.calls import (
    Call,
    Gradients,
    check_aliases,
    companion,
    describe_call,
    is_gradient,
    types_apart,
    whole,
)
from vkchi.autodiff.copies import copy_floats
from vkchi.autodiff.keeper import Keeper, Wanted
from vkchi.autodiff.overwrites import Index, Overwrites, blank
from vkchi.autodiff.plan import GradientPlan
from vkchi.autodiff.taints import Taints, missing_dual
from vkchi.autodiff.tape import check_loss, clear_all_gradients
from vkchi.autodiff.variants import ForwardPlan
from vkchi.errors import ArgumentError, KernelRuntimeError, Unsupported
from vkchi.fields.storage import Access, Storage
from vkchi.gradients import build_second
from vkchi.launch import Plan
from vkchi.runtime import current
from vkchi.types import shape_of


def hvp(run: Callable[[], Any], loss: Any, x: Any, v: Any) -> np.ndarray[Any, Any]:
    """The Hessian of `loss` by `x`, times `v`: an array of the shape of `x.to_numpy()`.

    run: calls the kernels that compute the loss from x; loss: a field of one number; x: a field or
    ndarray with a gradient, which holds the gradient afterwards; v: numbers of x's shape. Raises
    ArgumentError for another shape, GradientError where an operation has no derivative.
    """
    check_loss(loss)
    runtime = current()
    if runtime.tape is not None:
        raise KernelRuntimeError("ti.ad.hvp records for itself: leave the ti.ad.Tape first")
    direction = np.asarray(v.to_numpy() if isinstance(v, Storage) else v, x.dtype.dtype)
    if direction.shape != x.shape + shape_of(x.elem):
        raise ArgumentError(
            f"ti.ad.hvp: v has shape {direction.shape}, x {x.shape + shape_of(x.elem)}"
        )
    clear_all_gradients()
    loss.fill(0)
    recorder = Recorder()
    recorder.dual(x).from_numpy(direction)
    runtime.tape = recorder
    try:
        run()
        recorder.overwrites.check_loss(loss)
        loss.grad.fill(1)
        recorder.reverse()
    finally:
        runtime.tape = None
        recorder.keeper.close()
    return recorder.dual(x.grad).to_numpy()


class Entry:
    """A recorded call. `memory` are its arrays and their duals, or copies of what they held."""

    def __init__(self, call: Call, gradients: Gradients, memory: dict[str, Storage]) -> None:
        self.call, self.gradients, self.memory = call, gradients, memory


class Cut(NamedTuple):
    """A step: Python wrote a constant to an element, or (None) to all, of an array with this
    gradient; the gradient has a dual."""

    gradient: Storage
    dual: Storage
    at: Index | None

    def run(self) -> None:
        """What stood there before has no influence."""
        blank(self.gradient, self.at)
        blank(self.dual, self.at)


class Recorder:
    """Runs kernels in forward mode and records them; `reverse` runs the derivatives of their
    gradients."""

    is_paused = False

    def __init__(self) -> None:
        self.entries: list[Entry | Cut] = []
        self.keeper, self.taints = Keeper(None, self.accessed), Taints()
        self.overwrites = Overwrites()
        self.duals: dict[int, tuple[Storage, Storage]] = {}

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
            raise Unsupported("ti.ad.hvp takes fields and ndarrays, whole")
        if any(map(is_gradient, call.arrays.values())):
            raise Unsupported("ti.ad.hvp does not go through kernels that work on gradients")
        made = self.plan_second(call, gradients)
        self.taints.check(call, gradients.names)
        self.overwrites.check_call(call, gradients.names)
        duals = {n: self.dual(call.arrays[n]) for n in gradients.names}
        memory = {**call.arrays, **{f"{n}.dual": d for n, d in duals.items()}}
        entry = Entry(call, gradients, memory)
        for key, box in made.needs.boxes(call.numbers, call.arrays).items():
            self.keeper.want(Wanted(entry, key, box))
        boxes = made.writes.boxes(call.numbers, call.arrays)
        written = plan.written | {f"{n}.dual" for n in plan.written}
        boxes = boxes | {f"{n}.dual": box for n, box in boxes.items()}
        self.keeper.protect(written, memory, boxes)
        result = self.plan_forward(call, duals).run(call, duals)
        self.entries.append(entry)
        self.taints.note(call, made.escapes)
        stores = made.made.primal.active.stores
        for array in self.overwrites.note_call(call, stores, boxes):
            self.keeper.watch(array)
        return result

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        for cut in self.overwrites.note_access(array, access):
            if whole(array) is not array:
                raise Unsupported("ti.ad.hvp does not go through writes to components of fields")
            gradient = companion(array, "grad")
            assert gradient is not None
            blank(self.dual(array), cut.at)
            self.entries.append(Cut(gradient, self.dual(gradient), cut.at))

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Raises Unsupported: such a gradient has no derivative."""
        raise Unsupported("ti.ad.hvp does not go through functions with their own gradient")

    def copy(self, target: Storage, source: Storage) -> bool:
        """Record a copy of floats as a kernel; whether it was."""
        return copy_floats(target, source)

    def plan_forward(self, call: Call, duals: dict[str, Storage]) -> ForwardPlan:
        """The call's forward mode, made once per plan."""
        names = frozenset(duals)
        key = ("forward of second", names)
        if key not in call.plan.derived:
            missing_dual(call, names)
            call.plan.derived[key] = ForwardPlan(call, duals)
        found = call.plan.derived[key]
        assert isinstance(found, ForwardPlan)
        return found

    def plan_second(self, call: Call, gradients: Gradients) -> GradientPlan:
        """The derivative of the call's gradient, made once per plan."""
        names = gradients.names
        key = ("second", names)
        check_aliases(call)
        if key not in call.plan.derived:
            types = types_apart(call, gradients.arrays, "adjoint")
            made = GradientPlan(call.plan, call.args, names, types, build_second)
            call.plan.derived[key] = made
        found = call.plan.derived[key]
        assert isinstance(found, GradientPlan)
        return found

    def reverse(self) -> None:
        """Run the derivatives of the gradients, last call first."""
        for entry in reversed(self.entries):
            if isinstance(entry, Cut):
                entry.run()
                continue
            made = self.plan_second(entry.call, entry.gradients)
            grads = entry.gradients.arrays
            duals = {
                f"{adjoint}.dual": self.dual(grads[name])
                for name, adjoint in made.made.adjoints.items()
            }
            made.launch(entry.call.args, {**entry.memory, **duals}, grads)
