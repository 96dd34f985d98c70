"""Interrupts that come where Python swallows exceptions, in destructors: they come back.

Owns: `bring_back`. Must not know: what was interrupted.
"""

from __future__ import annotations

import signal
import threading
import time

SOON_S = 0.02  # longer than a destructor's last lines take


def bring_back() -> None:
    """Interrupt the program again as Ctrl-C did, soon, when this destructor is over."""
    threading.Thread(target=_interrupt_soon, daemon=True).start()


def _interrupt_soon() -> None:
    time.sleep(SOON_S)
    signal.raise_signal(signal.SIGINT)
