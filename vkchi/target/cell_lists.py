"""Memory layout of active lists: the active cells of a sparse block, in row-major order.

A list is an i32 array. Its words are:

- word 0: the number of active cells;
- from `groups_at(scale)`: workgroups along x, y and z for 2**scale workgroups per active cell, as
  an indirect dispatch reads them, for each scale from LEAST_SCALE to MOST_SCALE;
- from ENTRIES_AT: the linear index of each active cell in the activity array.

The activity array of a dynamic block has lengths. A cell of its list is a chunk of `chunk_of(room)`
places, and is active if the first of these is within the length. Its linear index is that of the
length, times the chunks of a list of `room` places, plus the number of the chunk.

In IR, a list is an array parameter called `list_name(activity)`, after the parameter of the
activity array.
"""

from __future__ import annotations

import math

from vkchi.tuples import NamedTuple

LIST_PREFIX = ".active."  # user names never begin with a dot
LEAST_SCALE, MOST_SCALE = -8, 24  # 2**30 iterations per cell, in workgroups of 64
GROUPS_AT, ENTRIES_AT = 4, 128
MOST_LISTED = 1 << 24  # cells of a block with a list
LEAST_CHUNK, MOST_CHUNK = 8, 128  # places


class OuterCells(NamedTuple):
    """Cells of a sparse block around another one: `activity` is the parameter of its activity
    array. `ways` has a pair per axis of it: the axis of the inner block's cells, and how many of
    these one outer cell spans."""

    activity: str
    ways: tuple[tuple[int, int], ...]


def list_name(activity: str) -> str:
    return LIST_PREFIX + activity


def listed_activity(name: str) -> str:
    """Return the name of the activity array of a list; "" for other parameters."""
    return name.removeprefix(LIST_PREFIX) if name.startswith(LIST_PREFIX) else ""


def groups_at(scale: int) -> int:
    """Return the word at which the workgroup counts for 2**scale workgroups per cell begin."""
    return GROUPS_AT + 3 * (scale - LEAST_SCALE)


def chunk_of(room: int) -> int:
    """Return a divisor of `room` from LEAST_CHUNK to MOST_CHUNK: the largest of those with the most
    factors of 2, up to 16. `room` if there is none."""
    found = [n for n in range(LEAST_CHUNK, MOST_CHUNK + 1) if room % n == 0]
    return max(found, key=lambda n: (math.gcd(n, 16), n), default=room)
