"""What is done beside a wait for C code: modules are loaded while a driver starts.

Owns: the thread that does it, and that no process is forked meanwhile: in a child of that moment,
the locks of modules that are being imported would be held for ever. Must not know: what is done.

    do_beside(load_ahead)

What is raised there is nobody's: whoever needs what should have been loaded loads it, and meets the
same. Interrupts come in the main thread alone.
"""

from __future__ import annotations

import os
import weakref
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import ClassVar

LONGEST_S = 5.0  # that a fork waits
PAUSE_S = 0.001


class Work:
    """Something to be done, held until it is, and by nobody afterwards."""

    __slots__ = ("__weakref__", "act")
    begun: ClassVar[Callable[[], Work | None]] = lambda: None

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act


def do_beside(act: Callable[[], object]) -> None:
    """Begin to do this in a thread of its own; nothing, where there is one processor alone."""
    if count_processors() < 2:
        return
    work = Work(act)
    Work.begun = weakref.ref(work)
    with suppress(RuntimeError):  # there are no more threads, or the interpreter ends
        start_new_thread(_do, (work,))


def _do(work: Work) -> None:
    with suppress(BaseException):
        work.act()


def count_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wait_before_fork() -> None:
    """Until nothing is being done beside, or that takes too long. Python swallows what is raised
    here: an interrupt is given on."""
    end = monotonic() + LONGEST_S
    try:
        while Work.begun() is not None and monotonic() < end:
            sleep(PAUSE_S)
    except KeyboardInterrupt:
        interrupt_main()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_before_fork)
