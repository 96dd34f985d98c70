"""`ti.record()`: records the kernel calls of a block as a graph.

In the block kernels do not run. A call is checked, compiled and bound with its current arguments.
These raise KernelRuntimeError in the block, since they would not be part of later runs:

- reading arrays that recorded kernels write, and writing any array from Python;
- gradients;
- kernels with return values;
- arrays in host memory.

Launches that consist of dispatches only become commands (`launch/replay.py`), with fresh random
seeds in each run. Other kernels are called, in order: those that print, assert or use gradients of
their arguments.

    with ti.record() as g:
        push(0.1, x, v)
        slow_down(0.5, v)
    g.run(100)
    steps = g.run_until(converged, max=1000)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import is_
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.graph.device_loop import DeviceLoop, cell_of_condition, is_true
from vkchi.graph.graph_builder import is_plain_launch
from vkchi.interrupts.contexts import SafeContext, restoring
from vkchi.kernel import launch_or_record
from vkchi.launch.replay import RecordedLaunch, Replay
from vkchi.runtime import Runtime, current_runtime, require_home
from vkchi.signature.wording import describe_argument
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.launch.compiled_kernel import CompiledKernel

IN_BLOCK = "in the block of ti.record() kernels are recorded and not run, so "
MOST_LOOPS = 8  # device loops kept, by condition


class RecordedCallStep(NamedTuple):
    """A recorded call: the kernel's name, the compiled kernel, the arguments."""

    name: str
    kernel: CompiledKernel
    args: tuple[Any, ...]

    @property
    def is_plain(self) -> bool:
        return is_plain_launch(self.kernel, self.args)

    def is_same(self, other: RecordedCallStep) -> bool:
        """True if the kernel and the arguments are the same objects."""
        return self.kernel is other.kernel and all(map(is_, self.args, other.args))

    def call(self) -> None:
        launch_or_record(self.name, self.kernel, self.args)


class Record(SafeContext):
    """Kernel calls, recorded in a block and run after it."""

    kind, title = "record", "ti.record()"
    ledger = None  # writes by other code need no tracking

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self.thread = get_ident()
        self._steps: list[RecordedCallStep] = []
        self._problem = "was not recorded: write `with ti.record() as g:`"
        self._watched: dict[int, Storage] = {}
        self._parts: list[tuple[Replay | None, list[RecordedCallStep]]] = []
        self._loops: dict[tuple[int, bool], DeviceLoop] = {}

    def __repr__(self) -> str:
        return f"<ti.record of {len(self._steps)} kernel calls>"

    # --- recording -------------------------------------------------------------------------------

    def __enter__(self) -> Record:
        runtime = current_runtime()
        if self.is_entered:
            raise KernelRuntimeError("a record is made once: call ti.record() again")
        if runtime.tape is not None:
            what = "another ti.record()" if runtime.tape.kind == self.kind else "a tape"
            raise KernelRuntimeError(f"ti.record() cannot be used inside {what}")
        self._problem = "is not whole: the block of ti.record() was left by an exception"
        self._runtime = runtime
        self.enter()
        runtime.recording = self
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the block. Raises KernelRuntimeError if a tape was opened, or `ti.init` called, in
        it."""
        assert self._runtime is not None
        is_own = self._runtime.recording is self
        self.close()
        if kind is not None:
            return
        if not is_own:
            self._problem = "is not whole: a tape, or ti.init, was in the block of ti.record()"
            raise KernelRuntimeError(f"the graph {self._problem}")
        with restoring(self._runtime.lock), self._runtime.lock:
            self._parts = list(self._make_parts())
        self._problem = ""

    def close(self) -> None:
        """Stop recording. Idempotent."""
        for array in self._watched.values():
            vars(array).pop("watch", None)
        if self._runtime is not None and self._runtime.recording is self:
            self._runtime.recording = None

    def _make_parts(self) -> Iterator[tuple[Replay | None, list[RecordedCallStep]]]:
        for is_plain, group in groupby(self._steps, lambda step: step.is_plain):
            steps = list(group)
            launches = [RecordedLaunch(*step) for step in steps] if is_plain else []
            yield (Replay(launches) if is_plain else None), steps

    def launch(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        """Record a kernel call; calls of other threads are launched. Raises KernelRuntimeError for
        a call that cannot be recorded, and the ArgumentErrors of a launch."""
        if get_ident() != self.thread:
            return kernel.launch(args)
        if kernel.returns:
            self._refuse(f"{name}() cannot return anything: let it write to a field")
        pairs = zip(kernel.parameters, args, strict=True)
        leaves = [leaf for p, arg in pairs for leaf in p.leaves(arg)]
        for p, arg in leaves:
            if p.kind == "array" and not isinstance(arg, Storage):
                self._refuse(f"{name}() cannot be given {describe_argument(arg)}: use a ti.ndarray")
        bound = kernel.bind_arguments(args)  # raises ArgumentError
        for check in kernel.checks:
            check(bound.flat)
        kept = tuple(p.keep(arg, {}) for p, arg in zip(kernel.parameters, args, strict=True))
        self._steps.append(RecordedCallStep(name, kernel, kept))
        for array_name, array in {**kernel.fields(args), **bound.arrays}.items():
            if array_name in kernel.written and array.watch is None:
                self._watched[id(array)] = array
                array.watch = self.on_access
        return None

    # --- hooks for accesses by Python ------------------------------------------------------------

    def on_access(self, array: Storage, access: ArrayAccess) -> None:
        """Hook before Python accesses an array. Raises KernelRuntimeError in the recording thread,
        for a write, and for a read of an array that recorded kernels write."""
        if get_ident() != self.thread:
            return
        if access.kind != "read":
            self._refuse(f"what Python writes to {array!r} would be written once, now")

        if id(array.whole) in self._watched:
            self._refuse(f"{array!r} does not hold what they will write: read it after g.run()")

    def filled(self, array: Storage, values: object) -> None:
        self.on_access(array, ArrayAccess("write"))

    def copy(self, target: Storage, source: Storage) -> bool:
        """Hook before Python copies into an array. Raises as `on_access` for a write.

        Returns False: the caller must copy.
        """
        self.on_access(target, ArrayAccess("write"))
        return False

    def copy_tensor(self, target: Storage, tensor: object) -> bool:
        return self.copy(target, target)

    refill = copy

    def grad(self, name: str) -> NoReturn:
        self._refuse(f"{name}.grad() cannot be called there")

    def __getattr__(self, name: str) -> NoReturn:
        """Raise KernelRuntimeError for the other hooks of a tape, AttributeError for special
        names."""
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse("matrices, solvers and functions with gradients cannot be used there")

    @staticmethod
    def _refuse(why: str) -> NoReturn:
        raise KernelRuntimeError(IN_BLOCK + why)

    # --- running ---------------------------------------------------------------------------------

    def _renew(self) -> None:
        steps = [RecordedCallStep(s.name, *s.kernel.renewed(s.args)) for s in self._steps]
        if not all(new.is_same(old) for new, old in zip(steps, self._steps, strict=True)):
            self._steps, self._loops = steps, {}
            self._parts = list(self._make_parts())

    def run(self, n: int = 1) -> None:
        """Run all recorded calls.

        Args:
            n: number of runs.

        Raises:
            ArgumentError: if n is not a count.
            KernelRuntimeError: if the block was not completed, or if the runtime or a field was
                destroyed.
        """
        if not is_count(n):
            raise ArgumentError(f"run() takes a number of times, not {describe_argument(n)}")
        runtime = self._open_runtime()
        with restoring(runtime.lock), runtime.lock:
            self._renew()
            if self._is_called(runtime):
                for _ in range(n):
                    for step in self._steps:
                        step.call()
            elif len(self._parts) == 1 and self._parts[0][0] is not None:
                self._parts[0][0].run(n)
            else:
                for _ in range(n):
                    self._run_parts()

    def _run_parts(self) -> None:
        for replay, steps in self._parts:
            if replay is not None:
                replay.run()
            else:
                for step in steps:
                    step.call()

    @staticmethod
    def _is_called(runtime: Runtime) -> bool:
        """True if kernels must be called one by one: under a tape, in debug mode, or timed."""
        return runtime.options.debug or runtime.tape is not None or runtime.device.is_timing

    def _open_runtime(self) -> Runtime:
        if self._problem:
            raise KernelRuntimeError(f"the graph {self._problem}")
        assert self._runtime is not None
        require_home("the graph", self._runtime, current_runtime())
        return self._runtime

    def run_while(self, field: Any, *, max: int | None = None) -> int:
        """Run while `field`, which recorded kernels write, is nonzero; return the number of runs.

        The condition is read before each run. Waits for the device.

        Args:
            field: a field or ndarray of one number.
            max: limit of the number of runs.

        Raises:
            ArgumentError: for other fields or limits. Also for an endless loop: the condition
                holds, `max` is None, and no recorded kernel writes the field.
            KernelRuntimeError: as `run`.
        """
        return self._loop(field, max, wanted=True)

    def run_until(self, field: Any, *, max: int | None = None) -> int:
        """Run until `field` is nonzero, at most `max` times: like `run_while` with the opposite
        condition."""
        return self._loop(field, max, wanted=False)

    def _loop(self, field: Any, most: int | None, *, wanted: bool) -> int:
        runtime = self._open_runtime()
        cell = cell_of_condition(field, runtime)
        if most is not None and not is_count(most):
            raise ArgumentError(f"max is a number of runs, not {describe_argument(most)}")
        with restoring(runtime.lock), runtime.lock:
            self._renew()
            if most is None and not self._writes(field) and is_true(field, cell) is wanted:
                raise ArgumentError(
                    f"no recorded kernel writes to {field!r}, so the loop would never end"
                )
            replay = self._parts[0][0] if len(self._parts) == 1 else None
            if self._is_called(runtime) or replay is None or replay.draws:
                count = 0
                while (most is None or count < most) and is_true(field, cell) is wanted:
                    self.run()
                    count += 1
                return count
            key = (id(field), wanted)
            loop = self._loops.pop(key, None)
            if loop is None:
                self._loops = dict(list(self._loops.items())[1 - MOST_LOOPS :])
                loop = DeviceLoop(runtime, replay, field, wanted=wanted)
            self._loops[key] = loop
            return loop.run(most)

    def _writes(self, field: Storage) -> bool:
        for step in self._steps:
            arrays = step.kernel.fields(step.args)
            bound = step.kernel.bind_arguments(step.args)
            for name, array in {**arrays, **bound.arrays}.items():
                if name in step.kernel.written and array.buffer.key == field.buffer.key:
                    return True
        return False


def is_count(n: Any) -> bool:
    """True for a non-negative integer other than a bool."""
    return hasattr(n, "__index__") and not isinstance(n, bool) and n.__index__() >= 0


def record() -> Record:
    """Record the kernel calls of a `with` block, without running them.

    Use `with ti.record() as g: ...`, then `g.run(n)`, `g.run_while(field)` or `g.run_until(field)`.

    Returns:
        A context manager, and after its block the recorded graph.
    """
    return Record()
