"""Process state during a compilation: no garbage collection, deep recursion, a progress line.

    with compiling("advect"):
        ...

- Python's garbage collector is off: it would scan the many new objects repeatedly.
- The recursion limit is at least RECURSION_LIMIT, because the compiler recurses over nested
  expressions and branches. A RecursionError in the block becomes a KernelSyntaxError.
- After a second, a line on stderr reports the compilation, if that is a terminal. It is erased at
  the end.

Blocks nest, in any thread. The first open block changes the state, the end of the last restores it.
All open blocks share one object. When its last reference dies, C code restores the collector and
the limit, even if an exception skipped `__exit__` (docs/design.md, part 6, Interrupts, rules 3 and
4). `DeepRecursion.hold()` raises the limit alone, for launches of `python_mode`.

`ArrayGuard` rejects accesses to elements of arrays by Python code that runs at compile time.
"""

from __future__ import annotations

import _thread
import gc
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import methodcaller
from threading import RLock
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from vkchi import platform
from vkchi.errors import KernelSyntaxError
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.local import local
from vkchi.interrupts.weak import Finalizer

if TYPE_CHECKING:
    from queue import SimpleQueue

    from typing_extensions import Self

T = TypeVar("T")
RECURSION_LIMIT = 12_000  # Python frames; a sum of 1,000 terms nests 1,000 expressions
PATIENCE_S = 1.0


class SharedState:
    """A change of the process's state, in force while a reference to the object of `hold` exists.

    Subclasses define `change`, and `undoing`: C functions that restore the present state.
    """

    __slots__ = ("__weakref__",)
    _lock: ClassVar[RLock] = RLock()  # of all states; held only briefly
    _held: ClassVar[Callable[[], SharedState | None]] = lambda: None
    _finalizers: ClassVar[list[Finalizer[SharedState]]] = []

    @classmethod
    def hold(cls) -> Self:
        """Return the shared object; the first holder makes the change, from any thread."""
        with restoring(SharedState._lock), SharedState._lock:
            return cls._held() or cls._begin()  # type: ignore[return-value]

    @classmethod
    def _begin(cls) -> Self:
        """Make the change; the actions to undo it are registered first."""
        made = cls()
        cls._finalizers = [call_when_dead(made, act) for act in cls.undoing()]
        cls._held = weakref.ref(made)
        made.change()
        return made

    @classmethod
    def forget(cls) -> None:
        """Undo the change in a forked child, where holders of other threads never end."""
        if cls._held() is not None:
            for one in cls._finalizers:
                one.act()
        cls._held, cls._finalizers = (lambda: None), []

    @classmethod
    def undoing(cls) -> list[Callable[[], object]]:
        raise NotImplementedError

    def change(self) -> None:
        raise NotImplementedError


class DeepRecursion(SharedState):
    """A recursion limit of at least RECURSION_LIMIT."""

    __slots__ = ()

    @classmethod
    def undoing(cls) -> list[Callable[[], object]]:
        return [partial(sys.setrecursionlimit, sys.getrecursionlimit())]

    def change(self) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))


class CompileState(SharedState):
    """Deep recursion without the collector.

    - `depth`: the raised limit.
    - `telling`: the progress line of all open blocks; None without a terminal.
    """

    __slots__ = ("depth", "telling")

    def __init__(self) -> None:
        self.depth: DeepRecursion | None = None
        self.telling: ProgressLine | None = None

    @classmethod
    def undoing(cls) -> list[Callable[[], object]]:
        return [gc.enable] if gc.isenabled() else []

    def change(self) -> None:
        gc.disable()
        self.depth = DeepRecursion.hold()


class compiling:
    """The context manager. `name`: the kernel's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: CompileState | None = None

    def __enter__(self) -> None:
        with restoring(SharedState._lock), SharedState._lock:
            self.held = CompileState.hold()
            if self.held.telling is None:
                self.held.telling = start_progress_line(f"compiling {self.name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        telling = self.held.telling if self.held else None
        self.held = None
        if telling is not None and CompileState._held() is None:
            telling.end()
        if kind is not None and issubclass(kind, RecursionError):
            raise KernelSyntaxError(f"{self.name}() nests too deeply to be compiled") from None


def _forget() -> None:
    SharedState._lock = RLock()
    for state in (CompileState, DeepRecursion):
        state.forget()
    own = ArrayGuard.threads.get(_thread.get_ident())
    ArrayGuard.threads = {} if own is None else {_thread.get_ident(): own}


platform.at_fork(in_child=_forget)


def call_when_dead(thing: T, act: Callable[[], Any]) -> Finalizer[T]:
    """Return a weak reference, to be kept alive, that calls `act` when `thing` dies.

    If `act` is C code, no Python code runs.
    """
    made = Finalizer(thing, methodcaller("act"))
    made.act = act
    return made


class ProgressLine:
    """Line on stderr with the elapsed seconds, until `end` or until the object dies.

    A thread writes it after PATIENCE_S, and again each second.
    """

    __slots__ = ("__weakref__", "_done", "_is_over")

    def __init__(self, what: str) -> None:
        from queue import SimpleQueue  # only needed on a terminal

        self._done: SimpleQueue[None] = SimpleQueue()
        self._is_over: SimpleQueue[None] = SimpleQueue()
        going = call_when_dead(self, partial(self._done.put, None))
        # Not `threading`: its objects run Python code when they die, where an interrupt is lost.
        _thread.start_new_thread(_tell, (what, self._done, self._is_over, going))

    def end(self) -> None:
        """Erase the line; waits up to PATIENCE_S for the thread that writes it."""
        from queue import Empty

        self._done.put(None)
        with suppress(Empty):  # a forked child has no such thread
            self._is_over.get(timeout=PATIENCE_S)


def _tell(
    what: str, done: SimpleQueue[None], is_over: SimpleQueue[None], going: Finalizer[ProgressLine]
) -> None:
    from queue import Empty

    began, is_told = time.monotonic(), False
    try:
        while True:
            with suppress(Empty):
                done.get(timeout=PATIENCE_S)
                break
            is_told = True
            sys.stderr.write(
                f"{platform.clearing(sys.stderr)}vkchi: {what}, {time.monotonic() - began:.0f} s "
            )
            sys.stderr.flush()
        if is_told:
            sys.stderr.write(platform.clearing(sys.stderr))
            sys.stderr.flush()
    finally:
        is_over.put(None)


def start_progress_line(what: str) -> ProgressLine | None:
    """Start a progress line, which appears after a second; None without a terminal on stderr."""
    try:
        return ProgressLine(what) if sys.stderr.isatty() else None
    except local(AttributeError, ValueError):  # no stderr, or closed
        return None


# --- arrays at compile time ----------------------------------------------------------------------


class ArrayAccessed(BaseException):
    """Raised by an access to an array's elements in a Python function that runs at compile time.

    Not an Exception, so that handlers in the user's function do not catch it.
    """


class ArrayGuard:
    """A block in which accesses to elements of arrays, by this thread, raise ArrayAccessed.

    `is_tripped` tells that there was one, also if the user's code caught the exception. While a
    block is open, every device counts as busy: accesses then take the path that calls
    `check_access`. A guard is in force only while the frame that opened it is on the stack: an
    interrupt may skip `__exit__`. It holds no reference to that, whose variables would live on.

        with ArrayGuard() as guard:
            value = fn()
    """

    threads: ClassVar[dict[int, ArrayGuard]] = {}
    on_enter: ClassVar[list[Callable[[], None]]] = []  # marks devices as busy

    def __init__(self) -> None:
        self.is_tripped = False
        self.frame = 0  # its id
        self.code: CodeType | None = None
        self.outer: ArrayGuard | None = None

    def __enter__(self) -> Self:
        self.outer = self.current()
        frame = sys._getframe(1)
        self.frame, self.code = id(frame), frame.f_code
        self.threads[_thread.get_ident()] = self
        for mark in self.on_enter:
            mark()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, tb: object) -> bool:
        self.frame, self.code = 0, None
        self.current()
        return kind is ArrayAccessed

    @classmethod
    def current(cls) -> ArrayGuard | None:
        """Return the innermost guard in force in this thread; forget others."""
        thread = _thread.get_ident()
        first = guard = cls.threads.get(thread)
        while guard is not None and not guard.is_on_stack():
            guard = guard.outer
        if guard is not first:
            if guard is None:
                cls.threads.pop(thread, None)
            else:
                cls.threads[thread] = guard
        return guard

    def is_on_stack(self) -> bool:
        frame: FrameType | None = sys._getframe(1) if self.frame else None
        while frame is not None and not (id(frame) == self.frame and frame.f_code is self.code):
            frame = frame.f_back
        return frame is not None


def check_access() -> None:
    """Raise ArrayAccessed in a thread with an ArrayGuard in force."""
    guard = ArrayGuard.current() if ArrayGuard.threads else None
    if guard is not None:
        guard.is_tripped = True
        raise ArrayAccessed
