"""The steps of a tape: calls of kernels and of functions with gradients of their own, which can be
done again and differentiated.

Owns: `Launch`, a call that is not differentiated, `Entry`, one that is, `Custom`. Must not know:
how steps come about.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, DeviceError, KernelRuntimeError
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.struct import Struct
from vkchi.races.finder import check as check_race
from vkchi.races.race import Doubt, Found
from vkchi.tape.calls import Call, Gradients
from vkchi.tape.derived import facts
from vkchi.tape.log import State, Step
from vkchi.tape.mutation_log import MutationLog
from vkchi.tape.snapshots import Snapshots

if TYPE_CHECKING:
    from vkchi.ir.core import Func
    from vkchi.races.trials import Observed
    from vkchi.tape.ledger import Ledger, Values
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.replays import ReplayLog
    from vkchi.tape.variants import Variant


class Launch(Step):
    """A call that can be done again. `race` is what its iterations ran,
    if any was found. `results` are copies of what it wrote, kept in limited memory if that depends
    on the order of iterations: calls after it must find the same each time."""

    def __init__(self, call: Call) -> None:
        self.call, self.draws = call, call.plan.runtime.draws
        self.results: State | None = None
        self.race: Found | None = None

    def keep_results(self, snapshots: Snapshots) -> None:
        """Note what the call wrote, if it would not write the same again."""
        plan = self.call.plan
        if not snapshots.is_limited:
            return
        is_accepted = plan.runtime.options.accepts_races(plan.path)  # nobody has looked
        if self.race is None and not facts.depends_on_order(plan) and not is_accepted:
            return
        written = self.call.plan.written & self.call.arrays.keys()
        self.results = State(self.call.arrays[name].whole for name in sorted(written))
        snapshots.count(self.results.size_bytes)

    def repeat(self) -> None:
        """Call the kernel again, with the same random numbers and printing nothing; or put back
        what it wrote."""
        if self.results is not None:
            self.results.repeat()
        else:
            self.launch_again()

    def launch_again(self) -> None:
        """Call the kernel as it was called first."""
        self.call.plan.launch(self.call.args, self.draws)


class Entry(Launch):
    """A recorded call. `memory` are its arrays, or copies of what they held; `log` records what it
    draws, if its gradient needs that, which is `drawn`; `observed` tells who meets, if only the run
    does; `position` is its place among the calls of a tape, `kept` what its `memory` was before
    it was noted, if it was done by then."""

    position = 0
    kept: Mapping[str, Storage] = MappingProxyType({})

    def __init__(
        self, call: Call, gradients: Gradients, plan: GradientPlan, race: Found | Doubt | None
    ) -> None:
        super().__init__(call)
        self.gradients, self.plan = gradients, plan
        self.memory = dict(call.arrays)
        self.log: ReplayLog | None = None
        self.observed: Observed | None = None
        if plan.made.has_draws:
            from vkchi.tape.replays import replay_log_of  # few kernels draw anything

            self.log = replay_log_of(call, plan)
        self.drawn = self.log.bind(call) if self.log is not None else {}
        self.race = None if isinstance(race, Doubt) else race
        if isinstance(race, Doubt):
            from vkchi.races.meeting import observe  # few calls are in doubt

            self.observed = observe(call, race, self.func)
            self.race = race.race if self.observed is not None else None

    @property
    def form(self) -> Variant | None:
        """What is run in the kernel's place, which itself is None."""
        return self.observed or self.log

    @property
    def func(self) -> Func:
        """What is run, as IR."""
        return self.call.plan.func if self.form is None else self.form.func

    def launch(
        self, call: Call, args: tuple[Any, ...], again: int | None = None,
        flags: Ledger | None = None,
    ) -> Any:  # fmt: skip
        """Call the kernel in the form that this call needs, watched for validation if its `flags`
        stand somewhere; what it returns."""
        with restoring(self.plan.runtime.lock), self.plan.runtime.lock:
            own = self.drawn | self._bind_notes()
            if flags is not None:
                from vkchi.tape.validation import run_watched

                result = run_watched(call, flags, self.func, own)
            elif self.form is not None:
                result = self.form.run(call, {**call.arrays, **own}, again)
            elif call.repeated is not None and again is None:
                result = call.repeated.call.launch(args)
            else:
                result = call.plan.launch(args, again)
            if self.observed is not None:
                self.race = self.observed.race(own)
            return result

    def _bind_notes(self) -> dict[str, Storage]:
        """Where the run notes who meets. Without memory for that, it remains unknown."""
        try:
            return self.observed.bind(self.call) if self.observed is not None else {}
        except DeviceError:
            self.observed = None
            return {}

    def launch_again(self) -> None:
        """Call the kernel as it was called first, but leave host memory as it is."""
        self.launch(self.call._replace(hosts={}), self.call.args, self.draws)

    def run(self) -> None:
        """Add to the adjoints. Raises GradientError if one flows through a race."""
        self.gradients.fetch()
        check_race(self.race, self.gradients.arrays)
        memory = {**self.memory, **self.drawn}
        self.plan.launch(self.call.args, memory, self.gradients.arrays, self.call.repeated)
        self.gradients.bring_back()


def as_it_is(arg: Any) -> Any:
    """A copy of a vector, matrix, struct or pack, which Python may change; what else is passed is
    itself."""
    from vkchi.lang.argpack import ArgPack  # few functions have gradients of their own

    if isinstance(arg, ArgPack):
        return copy.copy(arg)
    return copy.deepcopy(arg) if type(arg) in (Vector, Matrix, Struct) else arg


class Custom(Step):
    """A recorded call of a Python function with a gradient of its own; `end` is when it ended, and
    `left` what stood then in the `views`, memory of the host that its kernels had to do with. In
    limited memory, `steps` are the kernels it called and what Python wrote in it."""

    needs_end = True

    def __init__(
        self, mutation_log: MutationLog, function: Any, args: tuple[Any, ...], kwargs: Any
    ) -> None:
        self.mutation_log, self.function = mutation_log, function
        self.args = tuple(map(as_it_is, args))
        self.kwargs = {name: as_it_is(arg) for name, arg in kwargs.items()}
        self.end = 0
        self.steps: list[Step] = []
        self.views: list[Values] = []
        self.left: list[tuple[Values, Values]] = []

    def end_call(self) -> None:
        """It has come to its end."""
        self.end = self.mutation_log.end_call()
        self.left = [(view, view.copy()) for view in self.views]

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
        with self.mutation_log.reading(self.end, self.function.__name__, self.left):
            gradient(*self.args, **self.kwargs)

    def check_gradient(self, gradient: Any) -> None:
        """Raises ArgumentError if the gradient takes other arguments than the call had."""
        import inspect  # which loads parsers

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
        if any(a.is_gradient for a in launch.call.arrays.values()):
            raise KernelRuntimeError(
                f"{launch.call.name}() works on gradients, so it cannot be recomputed, and "
                "Tape(memory=...) is too little to save everything: give more memory"
            )
        held_bytes += launch.results.size_bytes if launch.results is not None else 0
    return held_bytes
