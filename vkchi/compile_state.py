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
4).
"""

from __future__ import annotations

import _thread
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from vkchi import platform
from vkchi.errors import KernelSyntaxError
from vkchi.interrupts.local import local
from vkchi.interrupts.locks import restoring
from vkchi.interrupts.weak import Finalizer

if TYPE_CHECKING:
    from queue import SimpleQueue

T = TypeVar("T")
RECURSION_LIMIT = 12_000  # Python frames; a sum of 1,000 terms nests 1,000 expressions
PATIENCE_S = 1.0


class CompileState:
    """State shared by all open `compiling` blocks: `telling`, their ProgressLine or None."""

    __slots__ = ("__weakref__", "telling")

    def __init__(self) -> None:
        self.telling: ProgressLine | None = None


class compiling:
    """The context manager. `name`: the kernel's name."""

    _lock = threading.RLock()
    _held: ClassVar[Callable[[], CompileState | None]] = lambda: (
        None
    )  # referenced by all open blocks
    _undoing: ClassVar[list[Finalizer[CompileState]]] = []  # restoring finalizers

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: CompileState | None = None

    def __enter__(self) -> None:
        cls = type(self)
        with restoring(cls._lock), cls._lock:
            self.held = cls._held() or self._begin()

    def _begin(self) -> CompileState:
        """Create the shared object and change the state; the actions to restore it are registered
        first."""
        cls, held, limit = type(self), CompileState(), sys.getrecursionlimit()
        acts: list[Callable[[], Any]] = [partial(sys.setrecursionlimit, limit)]
        if gc.isenabled():
            acts.append(gc.enable)
        cls._undoing = [call_when_dead(held, act) for act in acts]
        cls._held = weakref.ref(held)
        gc.disable()
        sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
        held.telling = start_progress_line(f"compiling {self.name}")
        return held

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        telling = self.held.telling if self.held else None
        self.held = None
        if telling is not None and type(self)._held() is None:
            telling.end()
        if kind is not None and issubclass(kind, RecursionError):
            raise KernelSyntaxError(f"{self.name}() nests too deeply to be compiled") from None

    @classmethod
    def forget(cls) -> None:
        """Restore the state in a forked child, and forget all open blocks: those of other threads
        never end."""
        cls._lock = threading.RLock()
        if cls._held() is not None:
            for undoing in cls._undoing:
                undoing.act()
        cls._held, cls._undoing = (lambda: None), []


platform.at_fork(in_child=compiling.forget)


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
