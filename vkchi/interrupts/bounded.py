"""Tables that hold so many entries and no more: the ones that came first go.

Owns: `remember`. Must not know: what is remembered.

    remember(plans, key, plan, 1000)
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Put an entry into a table, and let the oldest go beyond `most`. Others may read meanwhile."""
    table[key] = value
    while len(table) > most:
        table.pop(next(iter(table)), None)
