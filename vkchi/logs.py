"""Logging to `logging.getLogger("vkchi")`, at Taichi's levels.

`logging` is imported at the first use of the logger. A level set before is stored here.

    logger().warning("no gpu here")
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vkchi.errors import ArgumentError

if TYPE_CHECKING:
    import logging

# Numeric levels of the standard library's `logging`.
LOG_LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40, "critical": 50}
TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL = LOG_LEVELS


class PendingLevel:
    """Level that was set before the first call of `logger`; None if there is none."""

    level: int | None = None


def logger() -> logging.Logger:
    """The logger `logging.getLogger("vkchi")`.

    Applies a pending level, unless the program has set one on the logger.
    """
    import logging  # loaded on demand

    found = logging.getLogger("vkchi")
    level, PendingLevel.level = PendingLevel.level, None
    if level is not None and found.level == logging.NOTSET:
        found.setLevel(level)
    return found


def is_logging_effective(level: str) -> bool:
    """True if messages of a level are logged.

    Args:
        level: ti.TRACE to ti.CRITICAL.

    Returns:
        True if they are logged.

    Raises:
        ArgumentError: for an unknown level.
    """
    return logger().isEnabledFor(_log_level(level))


def set_logging_level(level: str) -> None:
    """Log only messages of a level and above.

    Args:
        level: ti.TRACE to ti.CRITICAL.

    Raises:
        ArgumentError: for an unknown level.
    """
    PendingLevel.level = number = _log_level(level)
    if "logging" in sys.modules:
        logger().setLevel(number)


def _log_level(name: str) -> int:
    if name not in LOG_LEVELS:
        raise ArgumentError(f"no log level is called {name!r}; there are {', '.join(LOG_LEVELS)}")
    return LOG_LEVELS[name]


def log_info(text: str, *facts: object) -> None:
    """Log a message of level `info`, unless `logging` is not loaded: then no handler exists."""
    if "logging" in sys.modules:
        logger().info(text, *facts)
