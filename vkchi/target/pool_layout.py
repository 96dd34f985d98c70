"""Memory layout of node pools: numbers of nodes, values of slots, and the words of a header.

See also: `fields.trees.pools`, which has the memory; `frontend.values.pool_access`, which writes
the code of kernels.
"""

from __future__ import annotations

ZERO, TRASH, FIRST = 0, 1, 2  # nodes; the first that a cell can have
CLAIMED, NO_ROOM = -1, -2  # slots during a launch; 0 for inactive cells, else a node
# Words of a pool's header: addresses of two words, and counters. Those that kernels add to are
# apart from each other.
NODES_AT, BOOKS_AT, FREE_AT, FRESH_AT, CAPACITY_AT = 0, 2, 4, 5, 6
TAKEN_AT, RETURNED_AT, RECYCLED_AT, HEADER_WORDS = 16, 32, 48, 64
# Columns of `books`: free nodes; nodes that were taken in vain; nodes of deactivated cells.
FREE, RETURNED, RECYCLED, COLUMNS = 0, 1, 2, 3
# The last words of messages.
NOT_POOLED = "VKCHI_POOLS=0 in the environment gives memory to all cells"
