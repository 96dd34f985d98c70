"""What holds while something is compiled: no garbage collection, deep recursion, a sign of life.

    with compiling("advect"):
        ...

- Python's collector is off: it would look at each of the many new objects again and again, of which
  hardly any are garbage (a fifth of the time for kernels of thousands of statements).
- Python's recursion limit is RECURSION_LIMIT, for code follows code: expressions and branches nest.
  Where that is not enough, RecursionError becomes a KernelSyntaxError.
- On a terminal, a line says after a second what is being compiled, and goes when that is done.

Blocks nest, in any thread; the outermost begins and ends all this. One that an exception leaves on
its very threshold ends when it is forgotten.

Must not know: what is compiled.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from types import TracebackType
from typing import ClassVar, NamedTuple

from vkchi.errors import KernelSyntaxError
from vkchi.interrupts import bring_back
from vkchi.interrupts.locks import restoring

RECURSION_LIMIT = 12_000  # Python frames; a sum of 1,000 terms nests 1,000 expressions
PATIENCE_S = 1.0
CLEAR = "\r\x1b[K"


class Before(NamedTuple):
    """What was before the outermost block, and what tells of it."""

    is_collecting: bool
    limit: int
    telling: Telling | None


class compiling:
    """The block. `name`: of the kernel."""

    _lock = threading.RLock()
    _open: ClassVar[set[int]] = set()
    _before: ClassVar[Before | None] = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        cls = type(self)
        with restoring(cls._lock), cls._lock:
            cls._open.add(id(self))
            if cls._before is None:
                telling = tell(f"compiling {self.name}")
                cls._before = Before(gc.isenabled(), sys.getrecursionlimit(), telling)
            gc.disable()
            sys.setrecursionlimit(max(cls._before.limit, RECURSION_LIMIT))

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        self._leave()
        if kind is not None and issubclass(kind, RecursionError):
            raise KernelSyntaxError(f"{self.name}() nests too deeply to be compiled") from None

    def _leave(self) -> None:
        """What an exception left undone here is done when this is called again."""
        cls = type(self)
        with restoring(cls._lock), cls._lock:
            cls._open.discard(id(self))
            before = cls._before
            if cls._open or before is None:
                return
            if before.is_collecting:
                gc.enable()
            sys.setrecursionlimit(before.limit)
            if before.telling is not None:
                before.telling.end()
            cls._before = None

    def __del__(self) -> None:
        try:  # where an exception kept `__exit__` from it
            self._leave()
        except KeyboardInterrupt:
            self._leave()
            bring_back()


class Telling:
    """A line on the terminal that says what takes long, and for how many seconds by now; until
    `end`, or until this is forgotten."""

    def __init__(self, what: str) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=_tell, args=(what, self._done), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Take the line away."""
        self._done.set()
        self._thread.join()

    def __del__(self) -> None:
        if hasattr(self, "_done"):
            self._done.set()


def _tell(what: str, done: threading.Event) -> None:
    began, is_told = time.monotonic(), False
    while not done.wait(PATIENCE_S):
        is_told = True
        sys.stderr.write(f"{CLEAR}vkchi: {what}, {time.monotonic() - began:.0f} s ")
        sys.stderr.flush()
    if is_told:
        sys.stderr.write(CLEAR)
        sys.stderr.flush()


def tell(what: str) -> Telling | None:
    """Begin to tell, where stderr is a terminal."""
    try:
        return Telling(what) if sys.stderr.isatty() else None
    except (AttributeError, ValueError):  # no stderr, or a closed one
        return None
