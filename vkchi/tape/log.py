"""The log of a recording: its steps in order, and how each is repeated and differentiated.

`Launch` is a kernel call that can be differentiated. `CallStep` is one that can only be repeated.
`State` is a snapshot of arrays. `ConstantOverwrite` is a constant stored over a derivative. Modules
that record other events have steps of their own. `restore_array` and `copy_or_add` copy and add
whole arrays without notifying the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.calls.call import KernelCall
from vkchi.calls.facts import facts
from vkchi.errors import DeviceError, KernelRuntimeError
from vkchi.fields.array_versions import Read
from vkchi.fields.storage import Storage
from vkchi.fields.views import base_of
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.weak import insert_bounded
from vkchi.launch.executable import Executable
from vkchi.races.finder import check_gradient_race
from vkchi.races.race import Found, UndecidedRace
from vkchi.tape.adjoints import CallAdjoints
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.calls.variant import Variant
    from vkchi.ir.core import Func
    from vkchi.races.meeting import ObservedRun
    from vkchi.tape.call_facts import BoundCall, CallFacts
    from vkchi.tape.ledger import Index, Ledger
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.snapshots import Snapshots
    from vkchi.tape.variants import ReplayLog

MOST_MOVERS = 256  # limit on `runtime.movers`


class TapeStep:
    """An action that can be repeated and differentiated; here neither has an effect.

    If `needs_end`, its gradient is a custom one. It reads the arrays as they are at the end of the
    tape, not as they were before the step. `steps` are those that are repeated in its place.
    """

    needs_end = False
    steps: Sequence[TapeStep] = ()

    def repeat(self) -> None:
        pass

    def run(self) -> None:
        pass


class State(TapeStep):
    """Snapshot of arrays. As a step, it repeats a write by Python, which is not differentiated."""

    def __init__(self, arrays: Iterable[Storage] = ()) -> None:
        self.copies: dict[int, tuple[Storage, Storage]] = {}
        for array in arrays:
            self.keep(array)

    def keep(self, array: Storage) -> None:
        self.copies[id(array)] = array, array.copied()

    @property
    def arrays(self) -> list[Storage]:
        return [array for array, _ in self.copies.values()]

    @property
    def size_bytes(self) -> int:
        return sum(array.size_bytes for array in self.arrays)

    def repeat(self) -> None:
        for array, saved in self.copies.values():
            restore_array(array, saved)

    def add(self) -> None:
        for array, saved in self.copies.values():
            copy_or_add(array, saved, adds=True)


class ElementWrites(State):
    """Writes by Python to elements of arrays. A repetition leaves other elements as they are, for
    differences along an input.

    `before`: the arrays before the writes. Elements that changed count, and those at `cuts`, where
    a constant replaced a derivative (None: all elements). At `sums`, Python added constants, which
    a repetition adds again.
    """

    def __init__(
        self, before: State, cuts: Iterable[tuple[Storage, Index | None]],
        sums: Iterable[tuple[Storage, Index | None]],
    ) -> None:  # fmt: skip
        super().__init__(before.arrays)
        self.written: dict[int, np.ndarray[Any, Any]] = {}
        self.added: dict[int, np.ndarray[Any, Any]] = {}
        for key, (_, array) in before.copies.items():
            old, new = array.to_numpy(), self.copies[key][1].to_numpy()
            is_cut, is_sum = self._mask(key, old, cuts), self._mask(key, old, sums)
            is_sum &= ~is_cut
            self.written[key] = (is_cut | is_changed(old, new)) & ~is_sum
            self.added[key] = np.zeros_like(new)
            if is_sum.any():
                self.added[key][is_sum] = new[is_sum] - old[is_sum]

    def _mask(
        self, key: int, like: np.ndarray[Any, Any], found: Iterable[tuple[Storage, Index | None]]
    ) -> np.ndarray[Any, Any]:
        made = np.zeros(like.shape, bool)
        for array, at in found:
            base, axes = base_of(array)
            if id(base) == key:
                part = tuple([
                    k if isinstance(k, int) else slice(k.begin, k.begin + k.step * k.length, k.step)
                    for k in axes
                ])  # fmt: skip
                made[part if at is None else index_at(array, at)] = True
        return made

    def repeat(self) -> None:
        for key, (array, saved) in self.copies.items():
            written, added = self.written[key], self.added[key]
            if written.all():
                restore_array(array, saved)
            elif written.any() or added.any():
                array.from_numpy(np.where(written, saved.to_numpy(), array.to_numpy()) + added)


def is_changed(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = (old != new) & ((old == old) | (new == new))  # NaN stays NaN
    return found


class ConstantOverwrite(TapeStep):
    """A constant that Python stored to the element `at` of an array (None: to all elements).

    `derivatives` are the gradients of the array, cleared when the step runs.
    """

    def __init__(self, derivatives: tuple[Storage, ...], at: Index | None) -> None:
        self.derivatives, self.at = derivatives, at

    def run(self) -> None:
        for array in self.derivatives:
            clear_elements(array, self.at)


def clear_elements(array: Storage, at: Index | None) -> None:
    if at is None:
        array.fill(0)
    else:
        array.write(index_at(array, at), 0)


def index_at(array: Storage, at: Index) -> Index:
    axes = len(array.shape)
    return array.index(at[:axes]) + at[axes:]


class CallStep(TapeStep):
    """A kernel call that can be repeated.

    `race` are the races between its iterations, if any were found. `results` are copies of the
    arrays it wrote, to be restored in place of a repetition; `keep_results` decides when they are
    made.
    """

    def __init__(self, call: KernelCall) -> None:
        self.call, self.draws = call, call.kernel.runtime.draws
        self.results: State | None = None
        self.race: Found | None = None

    def keep_results(self, snapshots: Snapshots) -> None:
        """In limited memory, copy the arrays that the call wrote if a repetition may give other
        values.

        That is so if races were found or are accepted for the kernel, or if results of atomics
        reveal the order of iterations.
        """
        kernel = self.call.kernel
        if not snapshots.is_limited:
            return
        is_accepted = kernel.runtime.options.accepts_races(kernel.path)  # no race detection ran
        if self.race is None and not facts.depends_on_order(kernel) and not is_accepted:
            return
        written = self.call.kernel.written & self.call.arrays.keys()
        self.results = State(self.call.arrays[name].whole for name in sorted(written))
        snapshots.count(self.results.size_bytes)

    def repeat(self) -> None:
        """Restore the saved results, or call the kernel again with the same random numbers."""
        if self.results is not None:
            self.results.repeat()
        else:
            self.launch_again()

    def launch_again(self) -> None:
        self.call.kernel.launch(self.call.args, self.draws)


class SpecialLaunch(CallStep):
    """A recorded call with host arrays, drawn values, races or saved results.

    - `adjoints`: the gradients of its arrays and torch tensors.
    - `log`: the replay log, if its gradient needs drawn values; `drawn` are its buffers.
    - `observed`: the instrumented variant that detects races, if no analysis or trial can decide.
    - `flags`: the ledger, if the run also checks Taichi's data-access rules.
    """

    def __init__(
        self, call: KernelCall, adjoints: CallAdjoints, plan: GradientPlan,
        race: Found | UndecidedRace | None, flags: Ledger | None = None,
    ) -> None:  # fmt: skip
        super().__init__(call)
        self.adjoints, self.flags = adjoints, flags
        self.log: ReplayLog | None = None
        self.observed: ObservedRun | None = None
        if plan.made.has_draws:
            from vkchi.tape.variants import replay_log_of  # imports the IR; few kernels draw

            self.log = replay_log_of(call, plan)
        self.drawn = self.log.bind(call) if self.log is not None else {}
        self.race = None if isinstance(race, UndecidedRace) else race
        if isinstance(race, UndecidedRace):
            from vkchi.races.meeting import observed_variant  # imports the IR; rarely needed

            self.observed = observed_variant(call, race, self.func)
            self.race = race.race if self.observed is not None else None

    @property
    def form(self) -> Variant | None:
        return self.observed.run if self.observed is not None else self.log

    @property
    def func(self) -> Func:
        return self.call.kernel.func if self.form is None else self.form.func

    def launch(self, call: KernelCall, args: tuple[Any, ...], again: int | None = None) -> Any:
        """Run the kernel, or the variant that this call needs; return the kernel's result.

        With `flags`, it may raise DataAccessError. An `observed` variant sets `race`.
        """
        runtime = call.kernel.runtime
        with restoring(runtime.lock), runtime.lock:
            own = self.drawn | self._bind_notes()
            if self.flags is not None and again is None:
                from vkchi.tape.variants import run_watched

                result = run_watched(call, self.flags, self.func, own)
            elif self.form is not None:
                result = self.form.run(call, {**call.arrays, **own}, again)
            else:
                result = call.kernel.launch(args, again)
            if self.observed is not None:
                self.race = self.observed.race(own)
            return result

    def _bind_notes(self) -> dict[str, Storage]:
        """Allocate the arrays of race detection. If memory is short, the call runs without
        detection."""
        try:
            return self.observed.run.bind(self.call) if self.observed is not None else {}
        except DeviceError:
            self.observed = None
            return {}

    def launch_again(self) -> None:
        self.launch(self.call._replace(hosts={}), self.call.args, self.draws)


class Launch(TapeStep):
    """A recorded kernel call.

    - `bound`: its arrays, their accounts and gradients; `args`: its arguments.
    - `reads`: the parts that its gradient reads, as they were before the call.
    - `special`: None for calls that only access memory of the device.
    """

    def __init__(
        self, bound: BoundCall, args: tuple[Any, ...], facts: CallFacts,
        special: SpecialLaunch | None = None,
    ) -> None:  # fmt: skip
        self.bound, self.args, self.facts, self.special = bound, args, facts, special
        self.reads: dict[str, Read] = {}

    def launch(self, args: tuple[Any, ...]) -> Any:
        """Run the kernel with these arguments, whose host arrays are not copied; return its
        result."""
        if self.special is not None:
            return self.special.launch(self.special.call, args)
        if self.bound.repeated is not None:
            return self.bound.repeated.call.launch(args)
        return self.plan.kernel.launch(args)

    @property
    def plan(self) -> GradientPlan:
        assert self.facts.made is not None
        return self.facts.made

    @property
    def memory(self) -> Mapping[str, Storage]:
        """The arrays, or copies of their contents before the call."""
        memory = self.bound.arrays
        for name, read in self.reads.items():
            if read.copy is not None:
                memory = {**memory, name: read.copy}
        return memory

    def repeat(self) -> None:
        assert self.special is not None
        self.special.repeat()

    def run(self) -> None:
        """Add the call's derivatives to the adjoints of its inputs.

        Raises GradientError if an array that a race affects has a nonzero adjoint.
        """
        bound, special = self.bound, self.special
        if special is None:
            self.plan.launch(self.args, self.memory, bound.gradients, bound.repeated)
            return
        special.adjoints.fetch()
        check_gradient_race(special.race, bound.gradients)
        if special.log is not None:
            special.log.check(special.drawn)
        memory = {**self.memory, **special.drawn}
        self.plan.launch(self.args, memory, bound.gradients, bound.repeated)
        special.adjoints.bring_back()


def launches_in(entries: Iterable[TapeStep]) -> Iterator[CallStep]:
    """Yield the calls among steps that are repeated or access host memory, and those in their
    `steps`."""
    for entry in entries:
        if isinstance(entry, CallStep):
            yield entry
        if isinstance(entry, Launch) and entry.special is not None:
            yield entry.special
        yield from launches_in(entry.steps)


def tensors_written(entries: Iterable[Any]) -> list[Any]:
    """Torch tensors that require or have a gradient and that kernel calls wrote, without
    duplicates."""
    found = {
        id(tensor): tensor
        for call in (launch.call for launch in launches_in(entries))
        for name, tensor in call.tensors.items()
        if name in call.kernel.written
    }
    return list(found.values())


def drop_copies(entries: Iterable[Any]) -> None:
    """Replace the snapshots of recorded calls by the live arrays."""
    for entry in entries:
        if isinstance(entry, Launch):
            entry.reads.clear()


def check_repeatable(entries: Iterable[Any]) -> int:
    """Return the number of bytes of saved results of these steps.

    Raises KernelRuntimeError if a call works on gradients, because it cannot be repeated.
    """
    held_bytes = 0
    for launch in launches_in(entries):
        if any(a.is_gradient for a in launch.call.arrays.values()):
            raise KernelRuntimeError(
                f"{launch.call.name}() works on gradients, so it cannot be recomputed, and "
                "Tape(memory=...) is too little to save everything: give more memory"
            )
        held_bytes += launch.results.size_bytes if launch.results is not None else 0
    return held_bytes


# --- copies without notification -----------------------------------------------------------------


def restore_array(array: Storage, copy: Storage) -> None:
    """Restore an array from its copy, without notifying the recording."""
    if array.is_own:
        array.device.copy(copy.buffer, array.buffer, array.size_bytes)
    else:  # elements of other arrays are interleaved
        copy_or_add(array, copy, adds=False)


def copy_or_add(array: Storage, copy: Storage, *, adds: bool) -> None:
    """Set `array` to `copy`, or (`adds`) add `copy` to it, on the device."""
    with restoring(array.runtime.lock), array.runtime.lock:
        compiled_copy(array, adds=adds)(array, copy)


def compiled_copy(array: Storage, *, adds: bool) -> Callable[..., None]:
    """A function of target and source, for arrays of this type and layout; memoized."""
    runtime, t = array.runtime, array.array_type
    found = runtime.movers.get((t, adds))
    if found is None:
        from vkchi.autodiff.emit import copy_array  # imported late: few layouts are interleaved
        from vkchi.compiler import build_artifact
        from vkchi.ir.builder import Builder
        from vkchi.ir.core import Func, Param

        b, (target, source) = Builder(), (Param(t, name) for name in ("target", "source"))
        with b.region() as body:
            copy_array(b, source, target, adds=adds)
            b.emit("yield")
        fn = Func("move", (target, source), body)
        executable = Executable(runtime, build_artifact(fn, runtime.options, runtime.device.caps))

        def found(target: Storage, source: Storage) -> None:
            executable.record(executable.bind((), {"target": target, "source": source}))

        insert_bounded(runtime.movers, (t, adds), found, MOST_MOVERS)
    return found
