"""Alias test of the array arguments of a launch."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

from vkchi.interop import host_views
from vkchi.interop.in_place import HostNdarray
from vkchi.ndarray import Ndarray


def are_disjoint_arguments(arrays: list[Any]) -> bool:
    """True if no two arrays, and no array and gradient, have the same buffer or overlapping host
    memory.

    Host memory counts if it is used in place. Arrays that will be copied must not be the same view,
    which is copied once. `bound` checks other overlaps.
    """
    buffers: set[int] = set()
    gradients, others, ranges = [], [], []
    for a in arrays:
        if isinstance(a, Ndarray):
            buffers.add(id(a.buffer))
            if isinstance(a, HostNdarray):
                ranges.append((a.start, a.end))
            if a.grad is not None:
                gradients.append(a.grad.buffer)
        else:
            others.append(a)
    if len(buffers) + len(others) < len(arrays):
        return False
    if len(ranges) > 1 and any(end > start for (_, end), (start, _) in pairwise(sorted(ranges))):
        return False
    if gradients and not buffers.isdisjoint(map(id, gradients)):
        return False
    return len(others) < 2 or not any(
        a is None or b is None or host_views.is_same_view(a, b)
        for a, b in combinations(map(host_views.view_of, others), 2)
    )
