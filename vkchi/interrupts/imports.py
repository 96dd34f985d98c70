"""Imports of extension modules that interrupts cannot break, and imports in the background.

An extension module whose import was interrupted cannot be imported again in the process. Numpy
raises "cannot load module more than once per process", torch fails as well, and the interrupt may
surface as another exception. Python runs signal handlers only in the main thread, so the import
runs in another thread. An interrupt reaches the waiting thread. It is raised after the import has
ended, because a process that exits during an import may crash.

    numpy = import_uninterrupted("numpy")
"""

from __future__ import annotations

import atexit
import sys
import weakref
from _thread import LockType, allocate_lock, interrupt_main, start_new_thread
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import monotonic, sleep
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from vkchi import platform
from vkchi.interrupts.local import local

T = TypeVar("T")


def import_uninterrupted(name: str) -> ModuleType:
    """Import a module. Raises ImportError, and other exceptions of the import."""
    if name in sys.modules:
        return import_module(name)  # waits for an import in another thread
    return run_in_thread(partial(import_module, name))


def import_attribute(name: str, attribute: str) -> Any:
    """Attribute of a module, including submodules that are imported on access.

    Raises AttributeError, and as `import_uninterrupted`.
    """
    found = vars(import_uninterrupted(name))
    if attribute in found:
        return found[attribute]
    return run_in_thread(partial(getattr, import_module(name), attribute))


def run_in_thread(act: Callable[[], T]) -> T:
    """Return or raise the outcome of a call in another thread, where no signal handler runs.

    If no thread can be started, the call runs in this one. An interrupt may follow any call here.
    `left` has `act` until the thread starts it, or until it is withdrawn. `said` keeps the outcome,
    so that a second wait returns at once.
    """
    if sys.is_finalizing():  # other threads are stopped
        return act()
    left, said, done = [act], list[tuple[T | None, BaseException | None]](), allocate_lock()
    done.acquire()
    try:
        start_new_thread(_do, (left, said, done))
        _wait(said, done)
    except local(RuntimeError):  # out of threads, or the interpreter is shutting down
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
    """Remove and return the item, as a list; empty if another thread has taken it."""
    try:
        return [left.pop()]
    except IndexError:
        return []


def _wait(said: Sized, done: LockType) -> None:
    while not said:
        done.acquire()


def _wait_on(said: Sized, done: LockType) -> None:
    """Wait and ignore further interrupts; the caller raises the first one."""
    while not said:
        with suppress(KeyboardInterrupt):
            _wait(said, done)


# --- imports in the background -------------------------------------------------------------------
#
# Background imports during a wait for C code, such as the start of a driver.
#
# `fork` and the interpreter's exit wait for the background thread. In a child forked during an
# import, the import locks would stay locked forever. A thread that Python starts while it ends uses
# freed memory (Python 3.11), and the import starts another one.
#
#     run_in_background(load_ahead)
#
# Exceptions in the thread are ignored: the code that needs the module imports it again, and raises
# them there. Interrupts reach only the main thread.

LONGEST_S = 5.0  # limit for the wait of a fork
PAUSE_S = 0.001


class BackgroundTask:
    """A running background task; alive exactly until it is done."""

    __slots__ = ("__weakref__", "act")
    begun: ClassVar[Callable[[], BackgroundTask | None]] = lambda: None
    has_ended: ClassVar[bool] = False  # Python ends: no task begins

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act


def run_in_background(act: Callable[[], object]) -> None:
    """Run `act` in a background thread.

    No effect if this process may use only one CPU, cannot start a thread, or ends.
    """
    if BackgroundTask.has_ended or platform.count_processors() < 2:
        return
    work = BackgroundTask(act)
    BackgroundTask.begun = weakref.ref(work)
    with suppress(RuntimeError):  # out of threads, or the interpreter is shutting down
        start_new_thread(_do_task, (work,))


def _do_task(work: BackgroundTask) -> None:
    with suppress(BaseException):
        work.act()


def wait_before_fork() -> None:
    """Wait until the background task is done, at most 5 seconds.

    Python discards exceptions raised here, so an interrupt is raised again in the main thread.
    """
    end = monotonic() + LONGEST_S
    try:
        while BackgroundTask.begun() is not None and monotonic() < end:
            sleep(PAUSE_S)
    except KeyboardInterrupt:
        interrupt_main()


def wait_at_exit() -> None:
    """Wait until the background task is done. Ctrl-C ends the process without the wait."""
    BackgroundTask.has_ended = True
    try:
        while BackgroundTask.begun() is not None:
            sleep(PAUSE_S)
    except KeyboardInterrupt:
        platform.end_interrupted()


def forget_in_child() -> None:
    """Forget the task: its thread is not in the child, which would wait for it forever."""
    BackgroundTask.begun = lambda: None


platform.at_fork(before=wait_before_fork, in_child=forget_in_child)
for _ in range(2):  # twice: an interrupt at the start of one call would be lost
    atexit.register(wait_at_exit)
