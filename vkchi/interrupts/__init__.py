"""Interrupts where Python would lose them: in destructors, and when the interpreter ends.

Owns: `bring_back`, `end_process`. Must not know: what was interrupted.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from contextlib import suppress

SOON_S = 0.02  # longer than a destructor's last lines take


def bring_back() -> None:
    """Interrupt the program again as Ctrl-C did, soon, when this destructor is over."""
    threading.Thread(target=_interrupt_soon, daemon=True).start()


def _interrupt_soon() -> None:
    time.sleep(SOON_S)
    if hasattr(signal, "pthread_kill"):  # wakes the main thread as well
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def end_process() -> None:
    """End the process at once, as Ctrl-C does where no program catches it. For the main thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(128 + signal.SIGINT)
