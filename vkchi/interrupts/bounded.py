"""Bounded tables with first-in, first-out eviction.

insert_bounded(plans, key, plan, 1000)
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def insert_bounded(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Insert an entry and evict the oldest beyond `most`. Other threads may read the table."""
    table[key] = value
    while len(table) > most:
        table.pop(next(iter(table)), None)
