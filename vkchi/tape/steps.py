"""The steps of a tape: calls of kernels and of functions with gradients of their own, which can be
done again and differentiated.

Owns: `Entry`, `Skipped`, `Custom`. Must not know: how steps come about.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from vkchi.autodiff.refusals import depends_on_order
from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.lang.argpack import ArgPack
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.struct import Struct
from vkchi.races.gradients import Race
from vkchi.races.gradients import check as check_race
from vkchi.tape.calls import Call, Gradients, is_gradient, whole
from vkchi.tape.mutation_log import History
from vkchi.tape.replay_log import drawing_of
from vkchi.tape.snapshots import Keeper, Rewritten

if TYPE_CHECKING:
    from vkchi.tape.plan import GradientPlan


class Launch:
    """A call that can be done again. `race` is what its iterations ran,
    if any was found. `results` are copies of what it wrote, kept in limited memory if that depends
    on the order of iterations: calls after it must find the same each time."""

    def __init__(self, call: Call) -> None:
        self.call, self.draws = call, call.plan.runtime.draws
        self.results: list[Rewritten] = []
        self.race: Race | None = None

    def keep_results(self, keeper: Keeper) -> None:
        """Note what the call wrote, if it would not write the same again."""
        is_fixed = self.race is None and not depends_on_order(self.call.plan.func)
        if is_fixed or not keeper.is_limited:
            return
        written = self.call.plan.written & self.call.arrays.keys()
        arrays = {id(a): a for a in (whole(self.call.arrays[name]) for name in sorted(written))}
        self.results = [Rewritten(array) for array in arrays.values()]
        keeper.count(sum(array.size_bytes for array in arrays.values()))

    def repeat(self) -> None:
        """Call the kernel again, with the same random numbers and printing nothing; or put back
        what it wrote."""
        if self.results:
            for result in self.results:
                result.repeat()
            return
        self.launch_again()

    def launch_again(self) -> None:
        """Call the kernel as it was called first."""
        self.call.plan.launch(self.call.args, self.draws)


class Skipped(Launch):
    """A call in a function that is not differentiated."""

    needs_end = False

    def run(self) -> None:
        """It has no gradient."""


class Entry(Launch):
    """A recorded call. `memory` are its arrays, or copies of what they held; `drawn` is what it
    drew, if its gradient needs that."""

    needs_end = False

    def __init__(
        self, call: Call, gradients: Gradients, plan: GradientPlan, race: Race | None
    ) -> None:
        super().__init__(call)
        self.gradients, self.plan, self.race = gradients, plan, race
        self.memory = dict(call.arrays)
        self.drawing = drawing_of(call, plan)
        self.drawn = self.drawing.make_room(call) if self.drawing is not None else {}

    def launch_again(self) -> None:
        """Call the kernel as it was called first, but leave host memory as it is."""
        if self.drawing is not None:
            self.drawing.run(self.call._replace(hosts={}), self.drawn, self.draws)
        else:
            super().launch_again()

    def run(self) -> None:
        """Add to the adjoints. Raises GradientError if one flows through a race."""
        self.gradients.fetch()
        check_race(self.race, self.gradients.arrays)
        memory = {**self.memory, **self.drawn}
        self.plan.launch(self.call.args, memory, self.gradients.arrays)
        self.gradients.bring_back()


def as_it_is(arg: Any) -> Any:
    """A copy of a vector, matrix, struct or pack, which Python may change; what else is passed is
    itself."""
    if isinstance(arg, ArgPack):
        return copy.copy(arg)
    return copy.deepcopy(arg) if type(arg) in (Vector, Matrix, Struct) else arg


class Custom:
    """A recorded call of a Python function with a gradient of its own; `end` is when it ended. In
    limited memory, `steps` are the kernels it called and what Python wrote in it."""

    needs_end = True

    def __init__(self, history: History, function: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        self.history, self.function = history, function
        self.args = tuple(map(as_it_is, args))
        self.kwargs = {name: as_it_is(arg) for name, arg in kwargs.items()}
        self.end = 0
        self.steps: list[Launch | Rewritten] = []

    def call(self) -> None:
        """Call it again."""
        self.function(*self.args, **self.kwargs)

    def repeat(self) -> None:
        """Do again what it did to arrays; Python's own variables stay as they are."""
        for step in self.steps:
            step.repeat()

    def run(self) -> None:
        """Call its gradient."""
        gradient = self.function.grad
        if gradient is None:
            name = self.function.__name__
            raise KernelRuntimeError(
                f"{name}() is ti.ad.grad_replaced and has no gradient: define one with "
                f"@ti.ad.grad_for({name})"
            )
        self.check_gradient(gradient)
        with self.history.reading(self.end, self.function.__name__):
            gradient(*self.args, **self.kwargs)

    def check_gradient(self, gradient: Any) -> None:
        """Raises ArgumentError if the gradient takes other arguments than the call had."""
        try:
            inspect.signature(gradient).bind(*self.args, **self.kwargs)
        except TypeError as e:
            raise ArgumentError(
                f"{gradient.__name__}(), the gradient of {self.function.__name__}(), must take the "
                f"same arguments: {e}"
            ) from None


def launches_in(entries: Iterable[Any]) -> Iterator[Launch]:
    """The kernel calls among steps, and inside of them."""
    for entry in entries:
        if isinstance(entry, Launch):
            yield entry
        elif isinstance(entry, Custom):
            yield from launches_in(entry.steps)


def tensors_written(entries: Iterable[Any]) -> list[Any]:
    """The torch tensors with gradients that steps wrote."""
    found = {
        id(tensor): tensor
        for call in (launch.call for launch in launches_in(entries))
        for name, tensor in call.tensors.items()
        if name in call.plan.written
    }
    return list(found.values())


def drop_copies(entries: Iterable[Any]) -> None:
    """Let go of what was saved for single calls."""
    for entry in entries:
        if isinstance(entry, Entry):
            entry.memory = dict(entry.call.arrays)


def check_repeatable(entries: Iterable[Any]) -> int:
    """How many bytes of results are kept for calls that would not give the same again. Raises
    KernelRuntimeError if one of these steps cannot be done again at all."""
    held_bytes = 0
    for launch in launches_in(entries):
        if any(map(is_gradient, launch.call.arrays.values())):
            raise KernelRuntimeError(
                f"{launch.call.name}() works on gradients, so it cannot be done again, and "
                "Tape(memory=...) is too little to save everything: give more memory"
            )
        held_bytes += sum(result.array.size_bytes for result in launch.results)
    return held_bytes
