"""Least cuts, against all cuts of small networks."""

from __future__ import annotations

import math
import random
from itertools import combinations

from vkchi.opt.loops.scatter.rematerialization import Network


def cost_of(edges: list[tuple[int, int, float]], near: set[int]) -> float:
    return sum(c for a, b, c in edges if a in near and b not in near)


def test_none_is_less() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        count = rng.randint(2, 6)
        edges = [
            (rng.randrange(count), rng.randrange(count), rng.choice([0.5, 1.0, 3.0, math.inf]))
            for _ in range(rng.randint(1, 14))
        ]
        network = Network()
        for a, b, c in edges:
            network.add(a, b, c)
        near = network.near_side(0, count - 1)
        middle = range(1, count - 1)
        ways = [{0, *some} for k in range(count - 1) for some in combinations(middle, k)]
        least = min(cost_of(edges, way) for way in ways)
        if near is None:
            assert least == math.inf
        else:
            assert math.isclose(cost_of(edges, {v for v in near if isinstance(v, int)}), least)
