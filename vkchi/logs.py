"""What vkchi logs: to `logging.getLogger("vkchi")`, at Taichi's levels.

Owns: the names of levels, the level that was set before `logging` was loaded (3 ms, which programs
that log nothing do without). Must not know: who logs what.

    logger().warning("no gpu here")
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vkchi.errors import ArgumentError

if TYPE_CHECKING:
    import logging

# As numbers of the standard library's `logging`.
LOG_LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40, "critical": 50}
TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL = LOG_LEVELS


class Wanted:
    """The level that was set, until the logger has it."""

    level: int | None = None


def logger() -> logging.Logger:
    """Where vkchi logs: `logging.getLogger("vkchi")`."""
    import logging  # not before it is needed

    found = logging.getLogger("vkchi")
    level, Wanted.level = Wanted.level, None
    if level is not None and found.level == logging.NOTSET:
        found.setLevel(level)
    return found


def is_logging_effective(level: str) -> bool:
    """Whether lines of a level are logged: ti.TRACE to ti.CRITICAL. Raises ArgumentError."""
    return logger().isEnabledFor(_log_level(level))


def set_logging_level(level: str) -> None:
    """Log lines of a level and worse only: ti.TRACE to ti.CRITICAL. Raises ArgumentError."""
    Wanted.level = number = _log_level(level)
    if "logging" in sys.modules:
        logger().setLevel(number)


def _log_level(name: str) -> int:
    if name not in LOG_LEVELS:
        raise ArgumentError(f"no log level is called {name!r}; there are {', '.join(LOG_LEVELS)}")
    return LOG_LEVELS[name]


def note(text: str, *facts: object) -> None:
    """Log a line of level `info`. Where nobody has loaded `logging`, nobody listens."""
    if "logging" in sys.modules:
        logger().info(text, *facts)
