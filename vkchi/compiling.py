"""What holds while something is compiled: no garbage collection, deep recursion, a sign of life.

    with compiling("advect"):
        ...

- Python's collector is off: it would look at each of the many new objects again and again, of which
  hardly any are garbage (a fifth of the time for kernels of thousands of statements).
- Python's recursion limit is RECURSION_LIMIT, for code follows code: expressions and branches nest.
  Where that is not enough, RecursionError becomes a KernelSyntaxError.
- On a terminal, a line says after a second what is being compiled, and goes when that is done.

Blocks nest, in any thread; the outermost begins and ends all this. They hold one object together,
and when nothing holds it any more, C code brings back what was before: also where an exception
kept `__exit__` from being called (docs/design.md, part 6, Interrupts, rules 3 and 4).

Must not know: what is compiled.
"""

from __future__ import annotations

import _thread
import gc
import os
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

from vkchi.errors import KernelSyntaxError
from vkchi.interrupts.local import local
from vkchi.interrupts.locks import restoring
from vkchi.interrupts.weak import Finalizer

if TYPE_CHECKING:
    from queue import SimpleQueue

T = TypeVar("T")
RECURSION_LIMIT = 12_000  # Python frames; a sum of 1,000 terms nests 1,000 expressions
PATIENCE_S = 1.0
CLEAR = "\r\x1b[K"


class Held:
    """What all open blocks hold. `telling`: what tells of them."""

    __slots__ = ("__weakref__", "telling")

    def __init__(self) -> None:
        self.telling: Telling | None = None


class compiling:
    """The block. `name`: of the kernel."""

    _lock = threading.RLock()
    _held: ClassVar[Callable[[], Held | None]] = lambda: None  # by all open blocks
    _undoing: ClassVar[list[Finalizer[Held]]] = []  # what comes when it goes

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: Held | None = None

    def __enter__(self) -> None:
        cls = type(self)
        with restoring(cls._lock), cls._lock:
            self.held = cls._held() or self._begin()

    def _begin(self) -> Held:
        """Change what is to be so; how to change it back is noted before."""
        cls, held, limit = type(self), Held(), sys.getrecursionlimit()
        acts: list[Callable[[], Any]] = [partial(sys.setrecursionlimit, limit)]
        if gc.isenabled():
            acts.append(gc.enable)
        cls._undoing = [when_gone(held, act) for act in acts]
        cls._held = weakref.ref(held)
        gc.disable()
        sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
        held.telling = tell(f"compiling {self.name}")
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
        """In a forked child: the blocks of other threads will never end, nor let go of the lock."""
        cls._lock = threading.RLock()
        if cls._held() is not None:
            for undoing in cls._undoing:
                undoing.act()
        cls._held, cls._undoing = (lambda: None), []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=compiling.forget)


def when_gone(thing: T, act: Callable[[], Any]) -> Finalizer[T]:
    """A reference that calls `act` when what it refers to goes. If that is C code, all is."""
    made = Finalizer(thing, methodcaller("act"))
    made.act = act
    return made


class Telling:
    """A line on the terminal that says what takes long, and for how many seconds by now; until
    `end`, or until this is forgotten."""

    __slots__ = ("__weakref__", "_done", "_is_over")

    def __init__(self, what: str) -> None:
        from queue import SimpleQueue  # not before there is a terminal

        self._done: SimpleQueue[None] = SimpleQueue()
        self._is_over: SimpleQueue[None] = SimpleQueue()
        going = when_gone(self, partial(self._done.put, None))
        # The objects of `threading` run Python code when they go, where an interrupt is lost.
        _thread.start_new_thread(_tell, (what, self._done, self._is_over, going))

    def end(self) -> None:
        """Take the line away."""
        from queue import Empty

        self._done.put(None)
        with suppress(Empty):  # in a forked child there is no thread
            self._is_over.get(timeout=PATIENCE_S)


def _tell(
    what: str, done: SimpleQueue[None], is_over: SimpleQueue[None], going: Finalizer[Telling]
) -> None:
    from queue import Empty

    began, is_told = time.monotonic(), False
    try:
        while True:
            with suppress(Empty):
                done.get(timeout=PATIENCE_S)
                break
            is_told = True
            sys.stderr.write(f"{CLEAR}vkchi: {what}, {time.monotonic() - began:.0f} s ")
            sys.stderr.flush()
        if is_told:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()
    finally:
        is_over.put(None)


def tell(what: str) -> Telling | None:
    """Begin to tell, where stderr is a terminal."""
    try:
        return Telling(what) if sys.stderr.isatty() else None
    except local(AttributeError, ValueError):  # no stderr, or a closed one
        return None
