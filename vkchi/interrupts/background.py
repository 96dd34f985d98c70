"""Background imports during a wait for C code, such as the start of a driver.

`fork` and the interpreter's exit wait for the background thread. In a child forked during an
import, the import locks would stay locked forever. A thread that Python starts while it ends uses
freed memory (Python 3.11), and the import starts another one.

    run_in_background(load_ahead)

Exceptions in the thread are ignored: the code that needs the module imports it again, and raises
them there. Interrupts reach only the main thread.
"""

from __future__ import annotations

import atexit
import weakref
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import ClassVar

from vkchi import platform

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
        start_new_thread(_do, (work,))


def _do(work: BackgroundTask) -> None:
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
