"""Interrupts where Python would lose them: in destructors, and when the interpreter ends.

Owns: `end_process`. Must not know: what was interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def end_process() -> None:
    """End the process at once, as Ctrl-C does where no program catches it. For the main thread."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(128 + signal.SIGINT)
