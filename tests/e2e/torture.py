"""Interrupts at any line, bytecode or time of small programs, and checks after each.

`scripts/interrupt-torture` interrupts thousands of times, `test_interrupts.py` less often.

    torture = Torture(seed=1)
    torture.run(1000)
    torture.wrong       # errors, one line each
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

import vkchi as ti
from vkchi.device import close_abandoned, open_device
from vkchi.runtime import current_runtime

OURS = os.path.dirname(ti.__file__) + os.sep
N = 300
SMALL = 16
LONGEST_START_S = 0.2  # until a thread runs
LONGEST_LOCKED_S = 20.0  # a lock that is left held stays so; busy machines compile for seconds
MOST_WRONG = 20


def start_opcodes() -> None:
    """Enable events for bytecodes. Call it before `sys.settrace`.

    Python 3.12 reports no bytecodes of frames that were entered before a frame has enabled them.
    """
    sys._getframe().f_trace_opcodes = True


def ask_for_opcodes(frame: FrameType, trace: Callable[..., Any]) -> None:
    """Enable events for the bytecodes of a frame; Python 3.13 needs `f_trace` set first."""
    frame.f_trace = trace
    frame.f_trace_opcodes = True


class Trace:
    """Raises an exception of class `kind` at the `at`-th line or bytecode of vkchi."""

    def __init__(
        self, at: int, *, opcodes: bool, kind: type[BaseException] = KeyboardInterrupt
    ) -> None:
        self.at, self.opcodes, self.kind = at, opcodes, kind
        self.count = 0
        self.first: dict[tuple[str, int], int] = {}  # file and line: when it first came
        self.where = ""

    @property
    def is_done(self) -> bool:
        """True if it raised."""
        return bool(self.where)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if self.opcodes:
            ask_for_opcodes(frame, self)
            frame.f_trace_lines = False
        if event == ("opcode" if self.opcodes else "line"):
            self.count += 1
            self.first.setdefault((frame.f_code.co_filename, frame.f_lineno), self.count)
            if self.count == self.at:
                name = frame.f_code.co_filename.removeprefix(OURS)
                self.where = f"{name}:{frame.f_lineno} at bytecode {frame.f_lasti}"
                raise self.kind
        return self

    def run(self, program: Callable[[], None]) -> bool:
        """Run a program; True if the exception left it."""
        before = sys.gettrace()
        if self.opcodes:
            start_opcodes()
        sys.settrace(self)
        try:
            program()
        except self.kind:
            return True
        finally:
            sys.settrace(before)
        return False


class Alarm:
    def __init__(self, after_s: float) -> None:
        self.after_s, self.where = after_s, f"signal after {after_s * 1e6:.0f} us"
        self.is_on, self.is_done = True, False

    def run(self, program: Callable[[], None]) -> bool:
        """Repeat a program until the signal comes, for 5 seconds at most; True if it was
        interrupted."""
        before = signal.signal(signal.SIGALRM, self._raise)
        try:
            self._repeat(program)
        except KeyboardInterrupt:
            return True
        finally:
            self.is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return False

    def _repeat(self, program: Callable[[], None]) -> None:
        """Repeat a program for 5 seconds, with the alarm set.

        A separate frame: in Python 3.13 a `try` around a loop misses a signal at its jump back.
        """
        signal.setitimer(signal.ITIMER_REAL, self.after_s)
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            program()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.is_on:
            self.is_on, self.is_done = False, True
            raise KeyboardInterrupt


@ti.kernel
def add(x: ti.template()):
    for i in x:
        x[i] += 1


@ti.kernel
def add_array(x: ti.types.ndarray(), by: ti.f32):
    for i in x:
        x[i] += by


@ti.kernel
def total(x: ti.template()) -> ti.f32:
    s = 0.0
    for i in x:
        s += x[i]
    return s


@ti.kernel
def speak(word: ti.i32):
    for i in range(2):
        print("said", word)


@ti.kernel
def many(
    a: ti.types.ndarray(),
    b: ti.types.ndarray(),
    c: ti.types.ndarray(),
    m: ti.types.matrix(8, 8, ti.f32),
):
    for i in a:
        a[i] = b[i] + c[i] + m[0, 0] + m[7, 7]


@ti.kernel
def square(x: ti.template(), loss: ti.template()):
    for i in x:
        loss[None] += x[i] * x[i]


@ti.kernel
def grow(x: ti.template()):
    print("grew")
    for i in x:
        x[i] = 2 * x[i] + 0 * ti.random()


@ti.kernel
def stretch(x: ti.template(), by: ti.i32):
    for i in x:
        x[i] = by * x[i]


@ti.kernel
def count_down(left: ti.template(), x: ti.template()):
    left[None] -= 1
    for i in x:
        x[i] += 1


@ti.kernel
def scale(v: ti.template()):
    for i in v:
        v[i] *= 2


@ti.ad.no_grad
def clear(x):
    x.fill(0)


class Arrays:
    """Arrays that the programs use."""

    def __init__(self) -> None:
        self.x = ti.field(ti.f32, N)
        self.a, self.b, self.c = (ti.ndarray(ti.f32, SMALL) for _ in range(3))
        self.w = ti.field(ti.f32, SMALL, needs_grad=True)
        self.loss = ti.field(ti.f32, (), needs_grad=True)
        self.v = ti.field(ti.f32, SMALL, needs_grad=True)
        self.p = ti.field(ti.f32, SMALL, needs_dual=True)
        self.q = ti.field(ti.f32, (), needs_dual=True)
        self.left = ti.field(ti.i32, ())
        self.placed: Any = None
        self.shaped: Any = None
        self.pairs = ti.Vector.field(2, ti.f32, SMALL)
        builder, (array, number) = ti.graph.GraphBuilder(), symbols()
        for _ in range(2):
            builder.dispatch(add_array, array, number)
        self.graph = builder.compile()
        with ti.record() as self.loop:
            count_down(self.left, self.x)


def symbols() -> tuple[Any, Any]:
    """Arguments of the graph: an array, a number."""
    kind = ti.graph.ArgKind
    return ti.graph.Arg(kind.NDARRAY, "x", ti.f32, ndim=1), ti.graph.Arg(kind.SCALAR, "by", ti.f32)


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Context manager that sets an environment variable."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


class Worker(threading.Thread):
    """Thread that launches kernels of its own while the main thread is interrupted."""

    LAUNCHES = 20

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.a: Any = ti.ndarray(ti.f32, SMALL)
        self.error = ""
        self.has_begun = False  # a thread has its `ident` before it can be joined

    def run(self) -> None:
        try:
            self.has_begun = True
            a = self.a
            for _ in range(self.LAUNCHES):
                add_array(a, 1.0)
            found = a.to_numpy()
            if (found != self.LAUNCHES).any():
                self.error = f"{found[0]} in a thread, not {self.LAUNCHES}"
        except BaseException as error:
            self.error = f"{type(error).__name__} in a thread: {error}"

    def check(self) -> None:
        """Join the thread, if it has begun. Raises AssertionError if it hangs or failed.

        An interrupt in `start` can leave an object that Python never drops, so its array is dropped
        here.
        """
        end = time.monotonic() + LONGEST_START_S
        while not self.has_begun and self in threading.enumerate() and time.monotonic() < end:
            time.sleep(0.001)
        if self.has_begun:
            self.join(LONGEST_LOCKED_S)
            assert not self.is_alive(), "a thread hangs"
            assert not self.error, self.error
        self.a = None


class Torture:
    """Programs, and interrupts of them.

    `done`: number of interrupts by program; `wrong`: a line for each failed check.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrays = Arrays()
        self.device = current_runtime().device
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.workers: list[Worker] = []
        self.counts: dict[tuple[str, bool], int] = {}
        self.programs: dict[str, Callable[[], None]] = {
            "launch": self.launch, "wait": self.wait, "arrays": self.make_arrays,
            "numpy": self.use_numpy, "print": self.print_lines, "tape": self.use_tape,
            "arguments": self.pass_many, "time": self.measure, "compile": self.compile,
            "copy": self.copy, "place": self.place, "forward": self.go_forward,
            "hessian": self.multiply, "again": self.tape_again,
            "threads": self.launch_beside, "devices": self.open_devices,
            "graph": self.run_graph, "record": self.record, "loop": self.go_round,
            "sort": self.sort, "late": self.write_late, "shapes": self.meet_shapes,
            "traces": self.follow_tapes,
        }  # fmt: skip
        for program in (*self.programs.values(), self.check):
            program()
        self.used = self.count_memory()

    # --- programs --------------------------------------------------------------------------------

    def launch(self) -> None:
        for _ in range(20):
            add(self.arrays.x)

    def launch_beside(self) -> None:
        worker = Worker()
        self.workers.append(worker)
        try:
            worker.start()
        except RuntimeError as error:  # Python's own: a Condition releases a lock it could not take
            raise error.__context__ or error from None
        for _ in range(5):
            add(self.arrays.x)
        add_array(self.arrays.a, 1.0)
        self.arrays.a.to_numpy()
        worker.join()

    def wait(self) -> None:
        add(self.arrays.x)
        ti.sync()
        self.arrays.x[5]

    def make_arrays(self) -> None:
        made = [ti.ndarray(ti.f32, SMALL << k) for k in range(4)]
        add_array(made[2], 1.0)
        del made[1]
        made.append(ti.ndarray(ti.f32, 64))
        field = ti.field(ti.f32, 40)
        add(field)

    def use_numpy(self) -> None:
        values = np.zeros(SMALL, np.float32)
        add_array(values, 2.0)
        assert (values == 2).all()

    def print_lines(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            speak(1)

    def use_tape(self) -> None:
        with ti.ad.Tape(self.arrays.loss):
            square(self.arrays.w, self.arrays.loss)

    def pass_many(self) -> None:
        m = ti.Matrix([[1.0] * 8 for _ in range(8)])
        many(self.arrays.a, self.arrays.b, self.arrays.c, m)

    def measure(self) -> None:
        with self.device.timing():
            for _ in range(3):
                add(self.arrays.x)

    def compile(self) -> None:
        @ti.kernel
        def fresh(x: ti.template(), k: ti.i32):
            for i in x:
                x[i] = k

        fresh(self.arrays.x, 3)

    def copy(self) -> None:
        self.arrays.a.copy_from(self.arrays.b)
        self.arrays.a.fill(2.0)
        self.arrays.a.to_numpy()
        self.arrays.a.from_numpy(np.ones(SMALL, np.float32))

    def place(self) -> None:
        x, y = ti.field(ti.f32, needs_grad=True), ti.Vector.field(2, ti.f32)
        ti.root.dense(ti.i, 20).place(x, y)
        self.arrays.placed = x
        add(x)

    def go_forward(self) -> None:
        v = self.arrays
        with ti.ad.FwdMode(loss=v.q, param=v.p, seed=[1.0] * SMALL):
            v.q[None] = 0
            square(v.p, v.q)

    def multiply(self) -> Any:
        v = self.arrays
        return ti.ad.hvp(lambda: square(v.w, v.loss), v.loss, v.w, np.ones(SMALL, np.float32))

    def tape_again(self) -> None:
        v = self.arrays
        v.v.fill(1.0)
        with contextlib.redirect_stdout(io.StringIO()), ti.ad.Tape(v.loss, memory=100):
            for _ in range(3):
                grow(v.v)
            clear(v.a)
            square(v.v, v.loss)

    def follow_tapes(self) -> None:
        """Run tapes that repeat an earlier one, and two whose calls differ from its trace."""
        for way in ("", "call", "read"):
            self.follow_tape(way)

    def follow_tape(self, way: str) -> None:
        """Run one of these tapes. After an interrupt, run other calls before the exception leaves
        the tape."""
        self.arrays.v.fill(1.0)
        with ti.ad.Tape(self.arrays.loss):
            try:
                self.stretch_twice(way)
            except KeyboardInterrupt:
                self.stretch_twice("")
                raise

    def stretch_twice(self, way: str) -> None:
        """The calls of these tapes."""
        v = self.arrays
        square(v.v, v.loss)
        stretch(v.v, 2)
        if way == "read":
            assert v.v[3] == 2
        square(v.v, v.loss)
        stretch(v.v, 3 if way == "call" else 2)
        square(v.v, v.loss)

    def run_graph(self) -> None:
        for k in range(3):
            self.arrays.graph.run({"x": self.arrays.a, "by": 1.0 + k})

    def record(self) -> None:
        with ti.record() as recorded:
            add(self.arrays.x)
            add_array(self.arrays.b, 1.0)
        recorded.run(3)

    def go_round(self) -> int:
        self.arrays.left[None] = 5
        found: int = self.arrays.loop.run_while(self.arrays.left)
        return found

    def sort(self) -> None:
        keys = ti.ndarray(ti.i32, 40)
        keys.from_numpy(np.arange(40, 0, -1, dtype=np.int32))
        ti.algorithms.parallel_sort(keys)
        assert keys[0] == 1 and keys[39] == 40, "not sorted"

    def write_late(self) -> None:
        """Write to arrays from Python while kernels use them: a few times in a row, then more
        often."""
        v = self.arrays
        for k in range(12):
            scale(v.pairs)
            v.pairs[k % SMALL] = [k, 1]
            v.pairs[3][1] = 2
            add(v.x)
            v.x[k] = k
        v.x.fill(1)
        for k in range(12):
            v.x[k] = k

    def meet_shapes(self) -> None:
        """Launch a kernel that is specialized for the shapes of its first launches.

        It is one of 1,000 kernels, so that the cache has it only sometimes.
        """
        by = time.time_ns() // 1000 % 1000

        @ti.kernel
        def fresh(a: ti.types.ndarray(ndim=2), b: ti.types.ndarray(ndim=2)):
            for i, j in b:
                b[i, j] = a[i, ti.min(j + 1, a.shape[1] - 1)] + i + by

        self.arrays.shaped = fresh, by
        with environment("VKCHI_SHAPES", "first"):
            for rows in (3, 5):
                self.use_shapes(rows)

    def use_shapes(self, rows: int) -> None:
        (kernel, by), (a, b) = self.arrays.shaped, (ti.ndarray(ti.f32, (rows, 4)) for _ in "ab")
        a.fill(2)
        for _ in range(2):
            kernel(a, b)
        assert (b.to_numpy() == np.arange(rows)[:, None] + 2 + by).all(), "wrong code for extents"

    def open_devices(self) -> None:
        """Open a device that is not closed, and one that is closed while a view of its memory
        exists."""
        abandoned = open_device()
        abandoned.allocate(64)
        device = open_device()
        view = device.allocate(64).view
        device.close()
        del abandoned, device, view

    # --- the check -------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that locks are free, results are right and new memory is zero."""
        v = self.arrays
        while self.workers:
            self.workers.pop().check()
        assert self.is_lock_free(self.device._lock), "the device is locked"
        assert self.is_lock_free(current_runtime().lock), "the runtime is locked"
        assert gc.isenabled(), "the collector is off"
        self.check_soon()
        v.b.fill(1.0)
        v.c.fill(2.0)
        self.pass_many()
        assert (v.a.to_numpy() == 5).all(), "wrong arguments"
        assert total(v.x) == 2 * N, "wrong result"
        self.use_numpy()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            speak(7)
        assert said.getvalue() == "said 7\n" * 2, f"said {said.getvalue()!r}"
        v.w.fill(3.0)
        self.use_tape()
        assert v.loss[None] == 9 * SMALL, "wrong loss"
        assert (v.w.grad.to_numpy() == 6).all(), "wrong gradient"
        self.check_traces()
        self.check_modes()
        self.check_graphs()
        self.check_writes()
        if v.shaped is not None:
            self.use_shapes(3)
            self.use_shapes(4)
            v.shaped = None
        made = ti.ndarray(ti.f32, 50)
        assert (made.to_numpy() == 0).all(), "new memory is not zero"

    def check_traces(self) -> None:
        """Assert that tapes that repeat an earlier one, perhaps an interrupted one, give right
        gradients."""
        for way, last in ("", 4), ("call", 6), ("read", 4):
            self.follow_tape(way)
            found = self.arrays.v.grad.to_numpy()
            assert (found == 2 * (1 + 4 + last**2)).all(), f"wrong gradient of a trace: {way}"

    def check_modes(self) -> None:
        """Assert right results of placed fields, forward mode, Hessian products and tapes in little
        memory."""
        v = self.arrays
        if v.placed is not None:
            v.placed.fill(1)
            add(v.placed)
            assert v.placed.to_numpy().tolist() == [2] * 20, "wrong placed field"
            v.placed.grad.fill(0)
            v.placed = None
        v.p.fill(2.0)
        self.go_forward()
        assert (v.q[None], v.q.dual[None]) == (4 * SMALL, 4 * SMALL), "wrong forward mode"
        assert (self.multiply() == 2).all(), "wrong product with the Hessian"
        self.tape_again()
        assert (v.v.grad.to_numpy() == 128).all(), "wrong gradient in little memory"

    def check_graphs(self) -> None:
        v = self.arrays
        v.a.fill(0.0)
        self.run_graph()
        assert (v.a.to_numpy() == 12).all(), "wrong graph"
        v.x.fill(0.0)
        assert self.go_round() == 5 and v.left[None] == 0, "wrong loop"
        self.record()
        assert (v.x.to_numpy() == 8).all(), "wrong recording"

    def check_writes(self) -> None:
        """Assert right results of Python writes while the device runs kernels."""
        v = self.arrays
        v.x.fill(0)
        v.pairs.fill(0)
        for k in range(12):
            add(v.x)
            v.x[k] = 20
            v.pairs[k] = [1, k]
            scale(v.pairs)
        found = v.x.to_numpy()
        assert found[:12].tolist() == [31 - k for k in range(12)], "wrong late writes"
        assert (found[12:] == 12).all(), "wrong sums beside late writes"
        expected = [[2 ** (12 - k), k * 2 ** (12 - k)] for k in range(12)]
        assert v.pairs.to_numpy()[:12].tolist() == expected, "wrong late writes of vectors"

    def check_soon(self) -> None:
        x = self.arrays.x
        x.fill(0)
        add(x)
        add(x)
        assert x[5] == 2, f"a wait came back too early: {x[5]}"
        assert (x.to_numpy() == 2).all(), "wrong sums"

    def is_lock_free(self, lock: Any) -> bool:
        found: list[bool] = []

        def take() -> None:
            found.append(lock.acquire(timeout=LONGEST_LOCKED_S))
            if found[0]:
                lock.release()

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        return found[0]

    def count_memory(self) -> int:
        """Bytes in use on the device, after garbage is freed and the device is idle."""
        gc.collect()
        close_abandoned()
        ti.sync()
        self.device.sweep()
        return self.device.heap.used_bytes

    # --- interrupting ----------------------------------------------------------------------------

    def run(self, count: int, signals: float = 0.5) -> None:
        """Interrupt programs `count` times; the fraction `signals` of them by signals."""
        while sum(self.done.values()) < count:
            name = self.random.choice(list(self.programs))
            if self.random.random() < signals:
                self.interrupt(name, Alarm(self.random.uniform(20e-6, 3e-3)))
            else:
                opcodes = self.random.random() < 0.5
                at = self.random.randint(1, self.count_events(name, opcodes=opcodes))
                self.interrupt(name, Trace(at, opcodes=opcodes))

    def run_every_line(self, name: str) -> None:
        """Interrupt a program once at each line of vkchi that it runs; check later launches."""
        trace = Trace(0, opcodes=False)
        trace.run(self.programs[name])
        for at in trace.first.values():
            how = Trace(at, opcodes=False)
            is_interrupted = how.run(self.programs[name])
            self.done[name] += 1
            try:
                assert is_interrupted or not how.is_done, "the interrupt was lost"
                self.check_soon()
            except Exception as error:
                self.note(name, how, error)
        assert self.check_memory() <= self.used, "memory is not freed"

    def count_events(self, name: str, *, opcodes: bool) -> int:
        """Lines or bytecodes of vkchi that a program runs."""
        key = name, opcodes
        if key not in self.counts:
            trace = Trace(0, opcodes=opcodes)
            trace.run(self.programs[name])
            self.counts[key] = trace.count
        return self.counts[key]

    def interrupt(self, name: str, how: Trace | Alarm) -> None:
        """Interrupt a program once, and run all checks; errors are noted in `wrong`."""
        try:
            if not how.run(self.programs[name]):
                assert not how.is_done, "the interrupt was lost"
                return
            self.done[name] += 1
            used = self.check_memory()
            assert used <= self.used, f"{used - self.used} bytes are not freed"
        except Exception as error:
            self.note(name, how, error)
            self.used = self.count_memory()

    def check_memory(self) -> int:
        """Run `check`, and return the bytes in use."""
        self.check()
        return self.count_memory()

    def note(self, name: str, how: Trace | Alarm, error: Exception) -> None:
        """Add an error to `wrong`; raise it if there are more than MOST_WRONG."""
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        self.wrong.append(f"{name}, {how.where}: {text}")
        if len(self.wrong) > MOST_WRONG:
            raise error
