"""Minimum cut of a flow network, by the algorithm of Edmonds and Karp.

Each edge has a capacity; `math.inf` marks edges that cannot be cut. By the max-flow min-cut theorem
(Ford and Fulkerson), the nodes reachable in the residual network form one side of a minimum cut.
Augmenting paths are shortest first, so the bound on their number does not depend on capacities.

    >>> net = Network(); net.add("s", "a", 2.0); net.add("a", "t", 1.0)
    >>> net.near_side("s", "t")
    {'s', 'a'}
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable

SMALLEST = 1e-9  # residual capacity; less is rounding error


class Network:
    """Flow network with residual capacities."""

    def __init__(self) -> None:
        self.left: dict[Hashable, dict[Hashable, float]] = {}

    def add(self, a: Hashable, b: Hashable, capacity: float) -> None:
        """Increase the capacity of the edge from a to b."""
        ahead = self.left.setdefault(a, {})
        ahead[b] = ahead.get(b, 0.0) + capacity
        self.left.setdefault(b, {}).setdefault(a, 0.0)

    def near_side(self, source: Hashable, sink: Hashable) -> set[Hashable] | None:
        """The nodes on the source's side of a minimum cut; None if every cut is infinite.

        Subtracts the maximum flow from the network's capacities, so call it once.
        """
        while True:
            came_from = self.search(source, sink)
            if sink not in came_from:
                return set(came_from)
            path = [sink]
            while path[-1] != source:
                path.append(came_from[path[-1]])
            edges = list(zip(path[1:], path))
            least = min(self.left[a][b] for a, b in edges)
            if least == math.inf:
                return None
            for a, b in edges:
                self.left[a][b] -= least
                self.left[b][a] += least

    def search(self, source: Hashable, sink: Hashable) -> dict[Hashable, Hashable]:
        """Breadth-first search in the residual network, until `sink` is reached.

        Maps each reached node to its predecessor, and `source` to itself.
        """
        came_from: dict[Hashable, Hashable] = {source: source}
        waiting = deque([source])
        while waiting and sink not in came_from:
            a = waiting.popleft()
            for b, capacity in self.left.get(a, {}).items():
                if b not in came_from and capacity > SMALLEST:
                    came_from[b] = a
                    waiting.append(b)
        return came_from
