"""Modules of other libraries that an interrupt must not catch half imported.

Owns: `import_whole`, `take_from`. Must not know: what is imported, and for what.

A module in C that was left while it began cannot be imported again in that process: numpy says
"cannot load module more than once per process", torch refuses as well, and what they raise where
an interrupt comes is not always the interrupt. Python runs signals' handlers in its main thread
alone, so the import is another thread's: an interrupt comes where this one waits for it, and goes
on when the import is done, for a process that ends amid one may crash.

    numpy = import_whole("numpy")
"""

from __future__ import annotations

import sys
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from vkchi.interrupts.local import local

T = TypeVar("T")


def import_whole(name: str) -> ModuleType:
    """A module, imported if it was not. Raises ImportError, and what else its import raises."""
    if name in sys.modules:
        return import_module(name)  # waits where another thread is at it
    return do_apart(partial(import_module, name))


def take_from(name: str, attribute: str) -> Any:
    """What a module has under a name: a part of it that is imported when asked for, as well.
    Raises AttributeError, and as `import_whole`."""
    found = vars(import_whole(name))
    if attribute in found:
        return found[attribute]
    return do_apart(partial(getattr, import_module(name), attribute))


def do_apart(act: Callable[[], T]) -> T:
    """Return or raise the outcome of a call in a thread of its own, where no signal handler runs.

    An interrupt may come after any call here. `left` has the act until that thread begins it, or
    until it is taken back; `said` keeps what came of it, so that waiting twice waits once.
    """
    if sys.is_finalizing():  # other threads do not run any more
        return act()
    left, said, done = [act], list[tuple[T | None, BaseException | None]](), allocate_lock()
    done.acquire()
    try:
        start_new_thread(_do, (left, said, done))
        _wait(said, done)
    except local(RuntimeError):  # there are no more threads, or the interpreter ends
        return act()
    except BaseException:
        if not _take(left):
            _wait_on(said, done)
        raise
    found, error = said[0]
    if error is not None:
        raise error
    return found  # type: ignore[return-value]


def _do(
    left: list[Callable[[], T]], said: list[tuple[T | None, BaseException | None]], done: LockType
) -> None:
    try:
        for act in _take(left):
            said.append((act(), None))
    except BaseException as e:
        said.append((None, e))
    finally:
        done.release()


def _take(left: list[T]) -> list[T]:
    """What is left, if it is, and nobody else has taken it."""
    try:
        return [left.pop()]
    except IndexError:
        return []


def _wait(said: Sized, done: LockType) -> None:
    while not said:
        done.acquire()


def _wait_on(said: Sized, done: LockType) -> None:
    """Waits, whatever interrupts come meanwhile: one has come."""
    while not said:
        with suppress(KeyboardInterrupt):
            _wait(said, done)
