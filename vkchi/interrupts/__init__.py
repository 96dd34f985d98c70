"""Exception safety under Ctrl-C: in destructors, locks, imports, and at the interpreter's end."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def end_process() -> None:
    """Terminate the process as an uncaught Ctrl-C does. Call in the main thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(128 + signal.SIGINT)
