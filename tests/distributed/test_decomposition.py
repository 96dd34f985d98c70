"""Division of grids into blocks: every cell has one owner, and messages match on both sides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from vkchi.distributed.decomposition import (
    Decomposition,
    box_shape,
    check_ranks,
    choose_ranks,
    factorizations,
    split,
)
from vkchi.errors import ArgumentError


def test_extents_differ_by_one_at_most():
    for extent, parts in itertools.product(range(1, 20), range(1, 20)):
        found = split(extent, parts)
        sizes = [end - begin for begin, end in found]
        assert found[0][0] == 0 and found[-1][1] == extent and len(found) == parts
        assert all(a[1] == b[0] for a, b in itertools.pairwise(found))
        assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


def test_arrangements_have_the_least_surface():
    assert choose_ranks((30, 22), 1, (False, False), 4) == (2, 2)
    assert choose_ranks((4096, 4096), 1, (False, False), 2) == (2, 1)
    assert choose_ranks((10, 4096), 1, (False, False), 4) == (1, 4)
    assert choose_ranks((3, 3, 64), 2, (False,) * 3, 8) == (1, 1, 8)
    assert choose_ranks((64,), 1, (True,), 7) == (7,)
    assert sorted(factorizations(6, 2)) == [(1, 6), (2, 3), (3, 2), (6, 1)]
    with pytest.raises(ArgumentError, match=r"at most ranks=\(2, 2\)"):
        choose_ranks((5, 5), 2, (False, False), 8)


def test_arrangements_that_do_not_fit_are_errors():
    check_ranks((5, 9), 4, (False, False), (1, 2), 2)
    check_ranks((2, 9), 4, (False, False), (1, 2), 2)  # an axis of one block may be narrower
    for halo, periodic, ranks, text in (
        (1, (False, False), (2, 2), "4 blocks"),
        (5, (False, False), (1, 2), "wider than a block of 4"),
        (4, (True, False), (1, 2), "wider than a block of 2"),
        (0, (False, False), (1, 10), "10 blocks"),
    ):
        with pytest.raises(ArgumentError, match=text):
            check_ranks((2, 9), halo, periodic, ranks, 2)
    with pytest.raises(ArgumentError, match="axis 0 has 2 cells for 3 ranks"):
        check_ranks((2, 9), 0, (False, False), (3, 1), 3)


CASES = [
    (shape, halo, periodic, ranks)
    for shape, ranks in (
        ((12,), (1,)), ((12,), (5,)), ((7, 9), (2, 3)), ((7, 9), (1, 4)), ((6, 5, 4), (2, 1, 2)),
        ((6, 6, 6), (2, 2, 2)),
    )
    for halo in (0, 1, 2)
    for periodic in itertools.product((False, True), repeat=len(shape))
]  # fmt: skip


@pytest.mark.parametrize("order", ["rising", "falling"])
def test_halos_get_their_owners_values(order: str):
    """Messages by numpy, on all ranks of many grids."""
    for shape, halo, periodic, ranks in CASES:
        size = math.prod(ranks)
        numbers = range(size) if order == "rising" else range(size - 1, -1, -1)
        layout = Decomposition(shape, halo, periodic, ranks, tuple(numbers))
        whole = np.arange(math.prod(shape)).reshape(shape)
        owners = np.full(shape, -1)
        blocks = {}
        for rank in range(size):
            own = tuple(slice(*ends) for ends in layout.owned(rank))
            assert (owners[own] == -1).all()
            owners[own] = rank
            block = np.full([n + 2 * halo for n in box_shape(layout.owned(rank))], -1)
            block[tuple(slice(halo, n - halo) for n in block.shape)] = whole[own]
            blocks[rank] = block
        assert (owners >= 0).all()
        before = {rank: block.copy() for rank, block in blocks.items()}
        for rank in range(size):
            assert set(layout.peers(rank)) == {p for p in range(size) if rank in layout.peers(p)}
            for peer in layout.peers(rank):
                sent, received = layout.sent(peer, rank), layout.received(rank, peer)
                assert list(map(box_shape, sent)) == list(map(box_shape, received))
                for source, target in zip(sent, received):
                    values = before[peer][at(layout, peer, source)]
                    place = at(layout, rank, target)
                    assert (blocks[rank][place] == -1).all(), "each halo cell is received once"
                    blocks[rank][place] = values
        padded = whole
        for axis, wraps in enumerate(periodic):
            pad = [(halo, halo) if k == axis else (0, 0) for k in range(len(shape))]
            options = {"mode": "wrap"} if wraps else {"constant_values": -1}
            padded = np.pad(padded, pad, **options)
        for rank, block in blocks.items():
            place = tuple(slice(a, b + 2 * halo) for a, b in layout.owned(rank))
            assert (block == padded[place]).all(), (shape, halo, periodic, ranks, rank)


def at(layout: Decomposition, rank: int, box):
    own = layout.owned(rank)
    return tuple(
        slice(a - begin + layout.halo, b - begin + layout.halo)
        for (a, b), (begin, _) in zip(box, own)
    )
