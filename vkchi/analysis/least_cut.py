"""Least cuts of networks: what to take away so that nothing flows from a source to a sink.

A network gives each edge a capacity; `math.inf` for what cannot be cut. By the theorem of Ford and
Fulkerson the least sum of capacities that parts the two is the most that flows, and the nodes that
more could flow to from the source are one side of such a cut. Paths are the shortest first (Edmonds
and Karp), so the number of steps does not depend on capacities.

Owns: `Network`. Must not know: what nodes stand for.

    >>> net = Network(); net.add("s", "a", 2.0); net.add("a", "t", 1.0)
    >>> net.near_side("s", "t")
    {'s', 'a'}
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable

SMALLEST = 1e-9  # of what is left of a capacity; less is rounding


class Network:
    """Nodes, and what may flow along each edge."""

    def __init__(self) -> None:
        self.left: dict[Hashable, dict[Hashable, float]] = {}

    def add(self, a: Hashable, b: Hashable, capacity: float) -> None:
        """Let so much more flow from a to b."""
        ahead = self.left.setdefault(a, {})
        ahead[b] = ahead.get(b, 0.0) + capacity
        self.left.setdefault(b, {}).setdefault(a, 0.0)

    def near_side(self, source: Hashable, sink: Hashable) -> set[Hashable] | None:
        """The nodes on the source's side of a least cut; None where no finite one parts them. Uses
        the network up."""
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
        """From where each node was come to, by what still has capacity, up to the sink."""
        came_from: dict[Hashable, Hashable] = {source: source}
        waiting = deque([source])
        while waiting and sink not in came_from:
            a = waiting.popleft()
            for b, capacity in self.left.get(a, {}).items():
                if b not in came_from and capacity > SMALLEST:
                    came_from[b] = a
                    waiting.append(b)
        return came_from
