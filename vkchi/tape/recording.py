"""Common base of tapes, forward mode and Hessian-vector products: `Recording`.

A recording observes every kernel call, and every access by Python to the arrays that it tracks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vkchi.analysis.memory.boxes import Box
from vkchi.calls.call import KernelCall, LaunchRequest
from vkchi.errors import GradientError, KernelAssertionError, VkchiError
from vkchi.fields.array_versions import Read
from vkchi.fields.elements import ArrayAccess, Elements, places_of
from vkchi.fields.storage import Storage
from vkchi.fields.views import View
from vkchi.interop import host_views
from vkchi.interrupts.contexts import SafeContext, restoring
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.ndarray import Ndarray
from vkchi.races.finder import RaceFinder
from vkchi.runtime import Runtime
from vkchi.span import user_span
from vkchi.tape import queries
from vkchi.tape.adjoints import CallAdjoints
from vkchi.tape.call_facts import CallFacts
from vkchi.tape.custom import CustomGradientCall, MutationLog
from vkchi.tape.hosted import HostFunction, HostNumber, HostStep, IdentityFunction
from vkchi.tape.ledger import (
    Account,
    Definition,
    HostAccount,
    Index,
    Ledger,
    box_at,
    derivative_at,
    input_at,
)
from vkchi.tape.log import (
    ConstantOverwrite,
    Launch,
    TapeStep,
    drop_copies,
)
from vkchi.tape.queries import MetLoss
from vkchi.tape.snapshots import Snapshots
from vkchi.tuples import NamedTuple
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.calls.call import Memory, Values

    Seeds = Sequence[tuple[Any, Any]]  # outputs and cotangents


class FunctionContext(NamedTuple):
    """Context of a function whose kernels are not recorded one by one.

    `custom` is a call that is recorded as a whole. `skipped` describes an undifferentiated
    function, for messages.
    """

    custom: CustomGradientCall | None
    skipped: str | None


T = TypeVar("T")


class UpToDate(Generic[T]):
    """Attribute of a recording, which is brought up to date (`settle`) before it is read."""

    def __set_name__(self, owner: type[Recording], name: str) -> None:
        self.name = name

    def __get__(self, recording: Recording, owner: type[Recording]) -> T:
        recording.settle()
        found: T = recording.__dict__[self.name]
        return found

    def __set__(self, recording: Recording, value: T) -> None:
        recording.__dict__[self.name] = value


class Recording(SafeContext):
    """Tracks which arrays hold derivatives, and where derivatives are lost.

    Derivatives are in the arrays' companions of this `kind`: grad or dual. A recording is active
    inside a `with` block, and observes the program through `launch` and `on_access`.

    - `entries`: recorded steps.
    - `unfinished`: by thread, names of calls and arrays of Python's writes that have begun and not
      ended.
    - `inside`: by thread, the function that is recorded as a whole or not at all.
    - `solving`: work vectors of the gradients of solvers.
    - `adjust_seeds`: returns the cotangents of outputs to be used instead of those given.
    """

    title: str  # name in error messages
    kind = "grad"
    # True if custom-gradient functions and host computations are recorded as steps.
    records_functions = False
    loss: Any = None  # the differentiated array, if any
    entries: UpToDate[list[TapeStep]] = UpToDate()
    ledger: UpToDate[Ledger] = UpToDate()
    mutation_log: UpToDate[MutationLog] = UpToDate()
    snapshots: UpToDate[Snapshots] = UpToDate()
    races: UpToDate[RaceFinder] = UpToDate()

    def __init__(self, runtime: Runtime, budget_bytes: int | None = None) -> None:
        self.runtime, self.thread, self.budget_bytes = runtime, get_ident(), budget_bytes
        self.solving: dict[Any, tuple[Any, ...]] = {}
        self.inside: dict[int, FunctionContext] = {}
        self.state = "new"
        self.unfinished: dict[int, list[str | Storage]] = {}
        self.entries = []
        ledger = self.ledger = Ledger(self.on_access, runtime.exported)
        self.mutation_log = MutationLog(ledger)
        self.snapshots = Snapshots(budget_bytes, ledger)
        self.used: dict[int, CallFacts] = {}  # facts whose uses are recorded, by id
        self.races = RaceFinder(lambda array: ledger.open(array).history.version)
        self.adjust_seeds: Callable[[Seeds], Seeds] | None = None

    @property
    def custom(self) -> CustomGradientCall | None:
        found = self.inside.get(get_ident()) if self.inside else None
        return found.custom if found is not None else None

    @property
    def skipped(self) -> str | None:
        found = self.inside.get(get_ident()) if self.inside else None
        return found.skipped if found is not None else None

    def settle(self) -> None:
        """Record the calls that ran and are not recorded yet."""

    def enter(self) -> None:
        self.state = "recording"
        super().enter()
        self.runtime.recording = self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()

    def close(self) -> None:
        """Deactivate the recording and drop its accounts. Idempotent."""
        self.state = "done"
        if self.runtime.recording is self:
            self.runtime.recording = None
        self.ledger.close()
        self.snapshots.close()

    def launch(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        """Run a kernel and return its result.

        If it fails a check or is interrupted, it stays `unfinished`. In another thread, its results
        become unknown instead. Raises Unsupported for kernels that use pools of sparse blocks.
        """
        if kernel.has_pools:
            kernel.refuse_pools("tapes and forward mode")
        begun, before = self.begin(name)
        try:
            result = self.run(name, kernel, args)
        except BaseException as error:
            if isinstance(error, VkchiError) and not isinstance(error, KernelAssertionError):
                del begun[before:]  # it was refused, and did not run
            elif get_ident() != self.thread:
                queries.lose_results(self.ledger, LaunchRequest(name, kernel, args), self.kind)
                del begun[before:]
            raise
        del begun[before:]
        return result

    def begin(self, what: str | Storage) -> tuple[list[str | Storage], int]:
        """Add a call or write to those of this thread that are `unfinished`.

        Returns their list, and its length before. Once the call or write has ended, whoever calls
        this drops the list's end: what ended with an exception inside is then finished, too.
        """
        begun = self.unfinished.setdefault(get_ident(), [])
        begun.append(what)
        return begun, len(begun) - 1

    def run(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        """Run a kernel and return its result.

        Before, writes by other code to its exported arrays are detected. Afterwards their contents
        are saved.
        """
        given = LaunchRequest(name, kernel, args)
        arrays = given.arrays.values() if self.runtime.exported else ()
        self.ledger.look(arrays)
        result = self.launch_noted(given)
        self.ledger.show(arrays)
        return result

    def launch_noted(self, given: LaunchRequest) -> Any:
        raise NotImplementedError

    def end(self, outputs: Iterable[Any]) -> None:
        """End the recording.

        Raises KernelRuntimeError if a call or write did not finish. Raises GradientError if an
        output holds an unknown value or was last written by Python.
        """
        with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
            queries.check_finished(chain(*self.unfinished.values()), self.title, self.kind)
            self.ledger.end_looking()
            for output in outputs:
                queries.check_output(self.ledger, output)
            self.state = "evaluated"

    def reverse(self) -> None:
        for entry in reversed(self.entries):
            entry.run()

    def record_launch(
        self, launch: Launch, call: KernelCall | None, args: tuple[Any, ...],
        met: Sequence[MetLoss] = (),
    ) -> Any:  # fmt: skip
        """Run a kernel and return its result.

        Before, `begin_launch`. Afterwards, record where it stored derivatives and constants, and
        what it read. `call` is None if its facts were known before; `met` are the lost gradients in
        its arrays. Raises DeviceError if memory is short.
        """
        facts, bound = launch.facts, launch.bound
        if facts.made is not None and facts.made.rooms:
            facts.made.reserve(launch.args, bound.arrays)
        self.begin_launch(launch, is_known=call is None)
        result = launch.launch(args)
        if call is not None:
            self.define(call, facts, met)
        else:
            self.note_known(launch)
        return result

    def begin_launch(self, launch: Launch, *, is_known: bool = True) -> None:
        """Begin the reads of a call's gradient, and copy the contents that the call overwrites and
        earlier gradients will read. `is_known`: its facts were known before."""
        facts, bound = launch.facts, launch.bound
        for name, box, point in facts.needs:
            array = bound.arrays[name]
            if not is_known and array.is_gradient:  # these change without notification
                launch.reads[name] = Read(array, box, array.copied())
            else:
                launch.reads[name] = self.snapshots.want(bound.accounts[name], array, box, point)
        self.protect(facts.writes, bound.accounts, bound.who)

    def note_known(self, launch: Launch) -> None:
        """Record what a call with known facts stored and read."""
        facts, bound = launch.facts, launch.bound
        for name, fills in facts.constants:
            bound.accounts[name].fills = fills
        for name, part in facts.stores:
            bound.accounts[name].definitions.put(part)
        if id(facts) not in self.used:
            for name, part in facts.uses:
                bound.accounts[name].definitions.put(part)
            self.used[id(facts)] = facts

    def define(self, call: KernelCall, facts: CallFacts, met: Sequence[MetLoss]) -> None:
        """Record where a finished call stored derivatives and constants, and what it read."""
        queries.settle_call(self.ledger, call, met)
        places = {**call.arrays, **call.tensors}
        for name, fills in facts.constants:
            self.ledger.open(call.arrays[name]).fills = fills
        self.ledger.lose(*facts.losses)
        for one in self.ledger.hosts:
            if any(one.owner is call.tensors[k] for k in call.tensors if k in call.kernel.written):
                one.remember()
        for name, part in (*facts.stores, *facts.uses):
            self.ledger.define(places[name], part)
        for view in (call.hosts[name] for name in call.hosts if name in call.kernel.written):
            for array in self.ledger.exports(view):
                self.note_detached(
                    [view], array, "that is memory of an array, into which it went here"
                )

    def protect(
        self, writes: Iterable[tuple[str, Box]], accounts: Mapping[str, Account], who: str,
        is_certain: Callable[[str], bool] = lambda name: True,
    ) -> None:  # fmt: skip
        """Copy requested contents of arrays before a launch writes these parts (`()`: all).

        Past the memory budget, all snapshots of calls are dropped instead. All arrays in `accounts`
        count as used, and the written ones not as constant.
        """
        snapshots, log = self.snapshots, self.mutation_log
        was_over = snapshots.is_over
        if snapshots.budget_bytes is not None:
            for account in accounts.values():
                account.is_used = True
        for name, box in writes:
            account = accounts[name]
            account.note_kernel()
            if log.time:
                log.note(account.array, box, who, is_certain=is_certain(name))
            snapshots.save(account, box)
        if snapshots.is_over and not was_over:
            drop_copies(self.entries)

    def note_gradient(
        self, call: KernelCall, gradients: CallAdjoints, needs: Iterable[str]
    ) -> None:
        """Record that `kernel.grad` added to gradients, after reading the arrays `needs`.

        No effect after the recording has ended.
        """
        if self.state != "recording":
            return
        adjoints: dict[str, Memory] = {}
        for name in gradients.names:
            if name not in call.tensors:
                adjoints[name] = gradients.arrays[name].whole
                self.ledger.open(gradients.arrays[name]).change(is_whole=True)
            elif (view := host_views.view_of(host_views.grad_of(call.tensors[name]))) is not None:
                adjoints[name] = view
        if not self.is_paused:
            queries.note_kernel_grad(self.ledger, call, adjoints, needs, self.kind)

    def store(self, array: Storage, access: ArrayAccess, act: Callable[[], None]) -> None:
        """Run `act`, a write from Python, after its report. See `Elements.store`."""
        with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
            begun, before = self.begin(array)
            try:
                array.tell(access)
            except VkchiError:
                del begun[before:]  # nothing was written
                raise
            act()
            if self.runtime.exported:
                self.ledger.show_again((array,))
            del begun[before:]

    def on_access(self, array: Storage, access: ArrayAccess) -> None:
        """Hook before Python accesses an array. Values that Python writes have no derivative.

        It copies requested contents before a write, and tracks overwritten derivatives and
        constants. Raises GradientError if a custom gradient reads memory overwritten since its
        call.
        """
        with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
            self.note_access(array, access)

    def note_access(self, array: Storage, access: ArrayAccess) -> None:
        self.mutation_log.note_access(array, access)
        if any(map(self.has_derivative, access.added)):
            access = access._replace(is_sum=False)  # the derivative of an addend is lost
        is_ours = self.state == "recording" and self.custom is None
        is_open = self.custom is not None or (access.kind != "read" and self.must_note(array))
        account = self.ledger.open(array) if is_open else self.ledger.find(array)
        if access.kind == "read":
            if account is not None:
                account.note_read(access.at, has_own=not is_ours)
            return
        if account is not None:
            # Before all notes: if memory is short, the write does not happen.
            if account.is_used or self.custom is not None or account.history.reads.groups:
                self.snapshots.save_all(account)
            account.change(is_whole=access.at is None or not is_ours)
            if self.is_output(array, access) and not (is_ours and access.is_sum):
                account.last_write = ("Python", user_span()) if is_ours else None
            is_cut = queries.write_by_python(account, array, access, is_ours=is_ours)
            if is_ours and access.is_sum and self.snapshots.by_elements:
                self.snapshots.sums.append((array, access.at))
            if not is_ours:
                self.written_inside(account, array)
            elif is_cut:
                if self.snapshots.by_elements:
                    self.snapshots.cuts.append((array, access.at))
                self.cut(array, access.at)
        if not (self.is_paused or access.is_sum):
            queries.fill_by_python(self.ledger, array, access.at)

    def has_derivative(self, array: Elements) -> bool:
        whole = array.whole
        return whole.companion("grad") is not None or self.ledger.derivative(whole) is not None

    def is_output(self, array: Storage, access: ArrayAccess) -> bool:
        """True if an array must not get its last value from this write of Python: it is the
        loss."""
        return array.whole is self.loss

    def must_note(self, array: Storage) -> bool:
        """True for gradients and the loss, until the recording ends.

        Writes by Python to these arrays are recorded even before a kernel uses them.
        """
        return self.state == "recording" and (array.is_gradient or array.whole is self.loss)

    def written_inside(self, account: Account, array: Storage) -> None:
        account.forget_constants()
        if self.custom is not None:
            account.is_used = True
            if array.companion("grad") is not None:
                account.is_written = True
                who = f"{self.custom.function.__name__}()"
                self.ledger.define(account.array, derivative_at(repr(array), who, user_span()))

    def cut(self, array: Storage, at: Index | None) -> None:
        gradient = array.companion("grad")
        assert gradient is not None
        self.entries.append(ConstantOverwrite((gradient,), at))
        account = self.ledger.open(array)
        account.is_written = True
        if at is None and account.array is array:
            account.fills = frozenset()

    # --- host computations and copies ------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """True if calls and copies are not recorded.

        That holds inside custom-gradient and undifferentiated functions, and once the recording has
        ended, for example while gradients run.
        """
        return self.state != "recording" or self.custom is not None or self.skipped is not None

    def may_record(self, inputs: Sequence[Memory]) -> bool:
        """True if a host computation (`hosted`) with these inputs is recorded as a step.

        The recording must support that and not be paused. At least one input must be an array with
        a gradient, or an unchanged result of an earlier host computation.
        """
        slopes = (x.companion("grad") if isinstance(x, Storage) else self.computed(x)
                  for x in inputs)  # fmt: skip
        can_record = self.records_functions and not self.is_paused
        return can_record and any(one is not None for one in slopes)

    def computed(self, x: Memory) -> HostAccount | None:
        """The account of a numpy array that is an unchanged result of a host computation, else
        None."""
        account = None if isinstance(x, Storage) else self.ledger.find(x)
        is_known = account is not None and account.slope is not None and account.is_known
        return account if is_known else None

    def record(
        self, function: HostFunction, inputs: Sequence[Memory], found: Sequence[Values],
        result: Values, output: Memory, step: type[HostStep] = HostStep,
    ) -> None:  # fmt: skip
        """Record a host computation of `result` from inputs with the contents `found`, as a step of
        the given class.

        Raises GradientError if an input was overwritten with unknown values.
        """
        queries.check_known(self.ledger, (x for x in inputs if isinstance(x, Storage)))
        here = user_span()
        if isinstance(output, Storage):
            self.protect([("", ())], {"": self.ledger.open(output)}, function.who)
            self.ledger.define(output, derivative_at(repr(output), function.who, here))
        self.note_detached(inputs, output, f"{function.who} took it from there here", is_all=False)
        for x in inputs:
            if isinstance(x, Storage) and x.companion(self.kind) is not None:
                self.ledger.define(x, input_at(repr(x), function.who, box_at(x), None, here))
        known = [self.computed(x) or x for x in inputs]
        target: Storage | HostAccount
        if isinstance(output, Storage):
            target = output
        else:
            target = self.ledger.open(output)
            target.remember()
            target.slope = np.zeros(output.shape)
        made = step(function, known, found, result, target)
        self.entries += [*self.snapshots.take_rewritten(), made]
        self.snapshots.count(made.size_bytes)

    def hold_result(self, array: Storage, who: str) -> None:
        """Record that a solver with its own gradient step stored its result in this array."""
        account = self.ledger.open(array)
        account.forget_constants()
        account.definitions.forget_unknown()
        self.ledger.define(array, derivative_at(repr(array), who, user_span()))
        self.ledger.show((array.whole,))

    def lost_in(self, array: Memory) -> list[Definition]:
        """Lost gradients in an array, except those that storing the array unchanged would keep."""
        is_known = self.computed(array) is not None
        return [t for t in self.ledger.lost(array) if not (t.is_shown and is_known)]

    def note_detached(
        self, inputs: Sequence[Memory], output: Memory, way: str, *,
        is_all: bool = True, is_shown: bool = False,
    ) -> None:  # fmt: skip
        """Record that Python computed `output` from arrays, so that its derivative is lost.

        With `is_all` False, only derivatives that were lost before count. With `is_shown`, the user
        received a recorded numpy array: storing it unchanged into an array (`filled`) keeps the
        derivative.
        """
        if not self.is_paused:
            found: list[Definition] = []
            for x in inputs:
                more = queries.derivatives_in(self.ledger, x, self.kind) if is_all else None
                found += self.lost_in(x) if more is None else more
            self.ledger.pass_on(found, output, way, is_shown=is_shown)

    def filled(self, array: Storage, values: Values) -> None:
        """Record that Python stored values into an array.

        Unchanged results of host computations keep their derivative if the array is of floats and
        has a gradient; derivatives of other values are lost.
        """
        has_place = array.compute.kind == "f" and array.companion("grad") is not None
        has_place = has_place and not isinstance(array, View)
        if self.is_paused or not (has_place and self.computed(values)):
            self.note_detached([values], array, "Python put it into an array here")
            return
        self.ledger.open(array).definitions.forget_unknown()
        self.record(IdentityFunction(), [values], [values], values, array)
        if array in self.runtime.exported:
            self.ledger.expect(array, host_views.cast(values, array.compute))

    def store_number(self, array: Storage, index: Index, value: object) -> bool:
        """Store a recorded result of a host computation that the user received, in an array of
        shape (). Return True if it was stored, False for other values.

        Raises GradientError for sums with such a result, and for other arrays with a gradient.
        """
        if self.is_paused or array.whole.companion(self.kind) is None:
            return False
        if isinstance(value, np.ndarray):
            results, is_same = [value], True
        else:
            terms = places_of(value)
            results = [x.result for x in terms if isinstance(x, HostNumber)]
            is_same = len(terms) == 1 and all(
                np.array_equal(np.asarray(value), x, equal_nan=True) for x in results
            )
        if not any(self.computed(x) for x in results):
            return False
        if index != () or array.shape != () or not is_same:
            raise GradientError(
                "the derivative of this value would be lost here", user_span(),
                help="store it unchanged into an array of shape (), s[None] = value, and compute "
                "with s[None] in a kernel; for a constant, store float(value)",
            )  # fmt: skip
        array.from_numpy(results[0])
        return True

    def copy_tensor(self, target: Storage, tensor: Any) -> bool:
        """Copy a torch tensor that requires or has a gradient, and record that. Return True if it
        did.

        False, without a copy, for other tensors, arrays of integers, paused recordings, and
        recordings without host steps. If the shapes differ, the derivative is lost.
        """
        can_record = self.records_functions and not self.is_paused
        if not (can_record and target.compute.kind == "f" and host_views.has_grad(tensor)):
            return False
        if tuple(tensor.shape) == target.shape + shape_of(target.elem):
            from vkchi.tape.copies import copy_tensor  # rarely needed

            copy_tensor(target, tensor)
            return True
        target.from_numpy(host_views.array_of_torch(tensor))
        lost = Definition(
            "lost", target, "", ("a tensor that requires a gradient was copied", None)
        )
        self.ledger.pass_on([lost], target, "it was put into an array here")
        return True

    def refill(self, target: Ndarray, source: Storage) -> bool:
        """Copy floats into the texels of a texture by a recorded kernel. Return True if it was
        copied.

        False for integers, and if the recording is paused. The target gets a gradient if the source
        has one.
        """
        is_smooth = not self.is_paused and target.compute.kind == source.compute.kind == "f"
        if is_smooth:
            has_gradient = self.kind == "grad" and source.companion("grad") is not None
            if has_gradient and target.grad is None:
                target.add_gradient()
            from vkchi.tape.copies import copy_in_order

            copy_in_order(target, source)
        return is_smooth

    def copy(self, target: Storage, source: Storage) -> bool:
        """Copy floats by a recorded kernel call. Return True if they were copied.

        False for integers, and if the recording is paused.
        """
        from vkchi.tape.copies import copy_floats

        return not self.is_paused and copy_floats(target, source)
