"""Guarded stores in loops, and loads before branches, match numpy."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti


def field(values: Any) -> Any:
    made = ti.field(ti.i32, values.shape)
    made.from_numpy(np.asarray(values, np.int32))
    return made


@pytest.mark.parametrize(("n", "degree"), [(1, 1), (17, 2), (600, 3), (600, 4), (5000, 6), (33, 8)])
def test_breadth_first_search(n: int, degree: int) -> None:
    neighbours = np.random.default_rng(n).integers(0, n, (n, degree))
    following, distance, changed = field(neighbours), field(np.full(n, -1)), field(np.zeros(1))
    distance[0] = 0

    @ti.kernel
    def level(d: ti.i32):
        for i in distance:
            if distance[i] == d:
                for k in range(degree):
                    j = following[i, k]
                    if distance[j] == -1:
                        distance[j] = d + 1
                        changed[0] = 1

    want, reached, d = np.full(n, -1), [0], 0
    want[0] = 0
    while reached:
        changed[0] = 0
        level(d)
        reached = [j for j in set(neighbours[reached].ravel()) if want[j] == -1]
        want[reached] = d = d + 1
        assert changed[0] == bool(reached)
    assert np.array_equal(distance.to_numpy(), want)


@pytest.mark.parametrize(
    "given", [[0, 0, 0, 0], [0, 1, 0, 2], [2, 0, 0, 0], [0, 0, 0, 1], [3, 1, 2, 0]]
)
def test_flags_of_serial_loops(given: list[int]) -> None:
    x = field(np.array(given))
    found, last, seen, calls = (field(np.array([7])) for _ in range(4))

    @ti.kernel
    def run(n: ti.i32):
        for _ in range(1):
            k = 0
            while k < n:
                if x[k] > 1:
                    found[0] = 5
                elif x[k] == 1:
                    last[0] = k
                    seen[0] = seen[0] + 1
                    calls[0] = 3
                else:
                    calls[0] = 4
                k += 1

    for n in (0, 4):
        run(n)
        some = np.array(given)[:n]
        ones = np.nonzero(some == 1)[0]
        assert found[0] == (5 if (some > 1).any() else 7)
        assert last[0] == (ones[-1] if len(ones) else 7)
        assert seen[0] == 7 + len(ones)
        told = [3 if v == 1 else 4 for v in some if v <= 1]
        assert calls[0] == (told[-1] if told else 7)


def test_aliased_flags() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), flag: ti.types.ndarray()):
        for _ in range(1):
            for k in range(8):
                if x[k] == 0:
                    flag[3] = 1

    x = ti.ndarray(ti.i32, 8)
    x.from_numpy(np.array([1, 0, 2, 0, 0, 2, 2, 2], np.int32))
    run(x, x)
    assert x.to_numpy().tolist() == [1, 0, 2, 1, 0, 2, 2, 2]
