"""Pseudo-terminals for tests of programs that people type to."""

from __future__ import annotations

import pytest


def open_terminal() -> tuple[int, int]:
    """File descriptors of a pseudo-terminal: ours, the program's. Skips the test without one."""
    pty = pytest.importorskip("pty")
    try:
        return pty.openpty()  # type: ignore[no-any-return]
    except OSError as error:  # a container without /dev/pts
        pytest.skip(f"no pseudo-terminal: {error}")
