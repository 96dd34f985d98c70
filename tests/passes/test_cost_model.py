"""Cost model of devices: the workgroups of loops over several axes."""

from __future__ import annotations

import math
import random

import pytest

from vkchi.opt.cost_model import (
    RepeatedLoads,
    choose_tile,
    is_worth_hoisting_loads,
    is_worth_splitting,
    reduction_threads,
    words_per_iteration,
)
from vkchi.target import tuning
from vkchi.target.caps import FULL, SMALLEST

PROCESSOR = FULL._replace(kind="cpu", subgroup_size=8)
NARROW = FULL._replace(workgroup_size=(16, 8, 2), workgroup_invocations=128)


@pytest.mark.parametrize(
    ("extents", "tile"),
    [
        ((None, None), (1, 128)),  # the first index is the workgroup's
        ((1024, 1024), (1, 128)),
        ((1022, 1022), (1, 128)),
        ((480, 640), (1, 128)),
        ((800, 800), (1, 160)),
        ((1000, 3), (32, 3)),  # whole subgroups, and none idle
        ((3, 1000), (1, 125)),  # divides it
        ((None, None, None), (1, 1, 128)),
        ((5, 5, 5), (5, 5, 5)),
        ((1000, 1), (125, 1)),
        ((1, 1), (1, 1)),
    ],
)
def test_workgroup_tiles(extents: tuple[int | None, ...], tile: tuple[int, ...]) -> None:
    assert choose_tile(extents, FULL) == tile


def test_lines_that_are_used_both_ways() -> None:
    assert choose_tile((None, None), FULL, is_square=True) == (16, 16)
    assert choose_tile((None, None, None), FULL, is_square=True) == (1, 16, 16)
    assert choose_tile((None, None), SMALLEST._replace(subgroup_size=32), is_square=True) == (8, 8)


def test_processors_fill_each_row() -> None:
    assert choose_tile((None, None), PROCESSOR, is_square=True) == (1, 128)
    assert choose_tile((1000, 3), PROCESSOR) is None
    assert choose_tile((50, 16), PROCESSOR) == (10, 16)


@pytest.mark.parametrize("demand", [32, 64, 256, 1024])
def test_demanded_sizes_are_met(demand: int) -> None:
    for extents in ((None, None), (100, 100), (None, None, None)):
        tile = choose_tile(extents, FULL, demand=demand)
        assert tile is not None
        assert math.prod(tile) == demand


@pytest.mark.parametrize("seed", range(60))
def test_tiles_are_such_as_the_device_can_run(seed: int) -> None:
    rng = random.Random(seed)
    extents = tuple(
        rng.choice((None, 0, 1, 2, 3, 7, 8, 31, 100, 1000, 65536))
        for _ in range(rng.choice((2, 3)))
    )
    caps = rng.choice((FULL, SMALLEST, NARROW, PROCESSOR))
    demand = rng.choice((None, None, 32, 128))
    tile = choose_tile(extents, caps, is_square=rng.random() < 0.5, demand=demand)
    if tile is None:
        return
    assert len(tile) == len(extents)
    assert all(n <= most for n, most in zip(tile[::-1], caps.workgroup_size))
    assert math.prod(tile) <= min(
        caps.workgroup_invocations, max(tuning.MOST_EXACT_BLOCK, demand or 0)
    )
    assert demand in (None, math.prod(tile))


@pytest.mark.parametrize(
    ("work", "middle", "strays", "is_worth"),
    [
        (21, 1 << 20, 2 * 1022, True),  # a stencil of five points on 1022 by 1022
        (21, 1 << 14, 2 * 128, False),  # a small one is compiled for longer than it gains
        (32, 92 * 94 * 94, 2 * 94 * 94, False),  # ends of short rows are lines of their own
        (60, 598 * 796, 4 * 600, True),
    ],
)
def test_loops_that_are_worth_splitting(
    work: int, middle: int, strays: int, is_worth: bool
) -> None:  # fmt: skip
    assert is_worth_splitting(work, middle, strays, PROCESSOR) == is_worth
    assert not is_worth_splitting(work, middle, strays, FULL)  # a GPU


def test_iterations_of_several_words_are_for_long_sums() -> None:
    found = [words_per_iteration(4, 1, 1 << k) for k in (10, 16, 18, 21)]
    assert found == [1, 1, 2, 4]
    assert words_per_iteration(4, 2, 1 << 19) == 2  # of two arrays: more code
    assert words_per_iteration(1, 1, 1 << 24) == 1
    assert words_per_iteration(4, 1, 0) == 1  # nobody knows how many


@pytest.mark.parametrize(
    ("repeated", "is_worth"),
    [
        (RepeatedLoads(24, 6, 180, is_alike=False), True),  # six spheres of a path tracer
        (RepeatedLoads(104, 26, 780, is_alike=False), True),  # 26 of them
        (RepeatedLoads(9, 9, 40, is_alike=True), True),
        (RepeatedLoads(16, 16, 60, is_alike=True), False),  # cooperative loads
        (RepeatedLoads(129, 43, 200, is_alike=False), False),
        (RepeatedLoads(24, 6, 1025, is_alike=False), False),
    ],
)
def test_numbers_that_loops_keep(repeated: RepeatedLoads, is_worth: bool) -> None:  # fmt: skip
    assert is_worth_hoisting_loads(repeated, PROCESSOR) == is_worth
    assert not is_worth_hoisting_loads(repeated, FULL)  # a GPU


def test_reductions_of_less_than_one_invocations_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "REDUCTION_ITERATIONS", 1)
    found = [reduction_threads(("const", n), PROCESSOR) for n in (1, 8 * 300)]
    assert found == [tuning.BLOCK, 256]
