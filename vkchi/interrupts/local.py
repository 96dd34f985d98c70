"""Exception filters: catch errors of the guarded code, never those of a signal handler.

A signal handler, or a debugger's trace function, runs between any two bytecodes and may raise any
exception. For example, `TimeoutError` is an OSError: `except OSError` around a call of `os` would
catch it. Python passes such functions the frame that they interrupt, and that frame precedes theirs
in the traceback. Ordinary functions do not receive their caller's frame.

    try:
        size = os.stat(path).st_size
    except local(OSError):
        size = 0

Not recognized: exceptions that C code raises without a frame (`PyThreadState_SetAsyncExc`).
"""

from __future__ import annotations

import os
import stat
import sys
from types import TracebackType
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)
VARARGS = 4  # inspect.CO_VARARGS


def local(*kinds: type[E]) -> tuple[type[E], ...]:
    """The classes to catch, for an `except` clause; the empty tuple if a signal handler raised."""
    return () if is_raised_by_handler(sys.exc_info()[2]) else kinds


class suppress:
    """`contextlib.suppress`, which passes on exceptions of signal handlers."""

    __slots__ = ("kinds",)

    def __init__(self, *kinds: type[BaseException]) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> bool:
        is_meant = kind is not None and issubclass(kind, self.kinds)
        return is_meant and not is_raised_by_handler(traceback)


def is_raised_by_handler(traceback: TracebackType | None) -> bool:
    """True if a frame of the traceback received the frame before it as an argument."""
    while traceback is not None and traceback.tb_next is not None:
        interrupted, traceback = traceback.tb_frame, traceback.tb_next
        code = traceback.tb_frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & VARARGS)
        if count:
            values = traceback.tb_frame.f_locals
            if any(_holds(values.get(name), interrupted) for name in code.co_varnames[:count]):
                return True
    return False


def _holds(value: Any, frame: object) -> bool:
    if type(value) is tuple:
        return any(item is frame for item in value)
    return value is frame


# --- functions of os that discard exceptions of handlers ---


def make_folders(path: str, mode: int = 0o777) -> None:
    """Create a folder and its missing parents. Raises OSError.

    As `os.makedirs` with `exist_ok`, but a file at `path` is no error.
    """
    try:
        os.mkdir(path, mode)
    except local(FileExistsError):
        pass
    except local(FileNotFoundError):
        parent = os.path.dirname(path)
        if parent in ("", path):
            raise
        make_folders(parent, mode)
        with suppress(FileExistsError):
            os.mkdir(path, mode)


def is_file(path: str) -> bool:
    """True if a regular file exists, as `os.path.isfile`."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except local(OSError, ValueError):  # ValueError: a NUL in the name
        return False
