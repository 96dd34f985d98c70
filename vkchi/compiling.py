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
from typing import ClassVar

from vkchi.errors import KernelSyntaxError
from vkchi.interrupts import bring_back
from vkchi.locks import restoring

RECURSION_LIMIT = 12_000  # Python frames; a sum of 1,000 terms nests 1,000 expressions
PATIENCE_S = 1.0
CLEAR = "\r\x1b[K"


class compiling:
    """The block. `name`: of the kernel."""

    _lock = threading.RLock()
    _open, _is_open = 0, False
    _was_collecting = False
    _old_limit = 0
    _telling: ClassVar[Telling | None] = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        cls = type(self)
        with restoring(cls._lock), cls._lock:
            self._is_open = True
            cls._open += 1
            if cls._open == 1:
                cls._was_collecting, cls._old_limit = gc.isenabled(), sys.getrecursionlimit()
                gc.disable()
                sys.setrecursionlimit(max(cls._old_limit, RECURSION_LIMIT))
                cls._telling = tell(f"compiling {self.name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        self._leave()
        if kind is not None and issubclass(kind, RecursionError):
            raise KernelSyntaxError(f"{self.name}() nests too deeply to be compiled") from None

    def _leave(self) -> None:
        cls = type(self)
        with restoring(cls._lock), cls._lock:
            if not self._is_open:
                return
            self._is_open = False
            cls._open -= 1
            if cls._open:
                return
            if cls._was_collecting:
                gc.enable()
            sys.setrecursionlimit(cls._old_limit)
            if cls._telling is not None:
                cls._telling.end()
                cls._telling = None

    def __del__(self) -> None:
        try:  # where an exception kept `__exit__` from it
            self._leave()
        except KeyboardInterrupt:
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
