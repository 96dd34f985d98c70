"""Indices that keep iterations disjoint, so that sums over them need no atomics; the interpreter
checks the proofs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.kernels import define, lower, run
from vkchi.ir.core import has_kind
from vkchi.ir.ops import UPDATES
from vkchi.opt.memory.demote import demote_all_atomics

SIZE = 40

# Loops of a kernel of y, of numbers n and m, and an array of shape p, q: the last line is an index.
OWN = [
    ["for i in range(n):", "2 * i"],
    ["for i in range(n):", "3 * i"],
    ["for i in range(n):", "i + i + 1"],
    ["for i in range(n):", "n - i"],
    ["for i in range(n):", "n * m - 2 * i"],
    ["for i in range(n // 4):", "4 * i + 3"],
    ["for i in range(9):", "i << 2"],
    ["for i in range(n // 2):", "2 * i + 1"],
    ["for i, j in ti.ndrange(n, m):", "i * m + j"],
    ["for i, j in ti.ndrange(n, m):", "j * n + i"],
    ["for i, j in ti.ndrange(n, m):", "2 * (i * m + j)"],
    ["for i, j in ti.ndrange((1, n + 1), m):", "(i - 1) * m + j"],
    ["for i, j in ti.ndrange(n, m):", "n * m - 1 - (m * i + j)"],
    ["for i, j, k in ti.ndrange(n, m, 2):", "(i * m + j) * 2 + k"],
    ["for i, j, k in ti.ndrange(n, m, 2):", "i * m * 2 + j * 2 + (1 - k)"],
    ["for i, j in z:", "i * z.shape[1] + j"],
    ["for i, j in z:", "j * p + i"],
    ["for i in range(6):", "for k in range(5):", "5 * i + k"],
    ["for i in range(6):", "for k in ti.static(range(3)):", "3 * i + k"],
    ["for i in range(6):", "for k in range(2, 5):", "3 * i + k - 1"],
    ["for i in range(6):", "k = ti.cast(z[0, 0], ti.i32) & 3", "4 * i + k"],
    ["for i, j in ti.ndrange(4, 5):", "(i * 5 + j) // 5 * 5 + (i * 5 + j) % 5"],
    ["for i in range(n):", "(i + 1) % n"],
    ["for i in range(n):", "(i - 1) % n"],
    ["for i in range(8):", "(i + 7) % 8"],
    ["for i in range(8):", "(3 + i) % 11"],
]
SHARED = [
    ["for i in range(n):", "i // 2"],
    ["for i in range(n):", "i * 0"],
    ["for i in range(n):", "i * m"],
    ["for i in range(n):", "i % 3"],
    ["for i in range(n):", "(i + 1) % m"],
    ["for i in range(n):", "(2 * i) % n"],
    ["for i in range(n):", "ti.min(i, 3)"],
    ["for i in range(n):", "n * i - i"],
    ["for i, j in ti.ndrange(n, m):", "i + j"],
    ["for i, j in ti.ndrange(n, m):", "i * n + j"],
    ["for i, j in ti.ndrange(n, m + 1):", "i * m + j"],
    ["for i, j in ti.ndrange(n, (-1, m)):", "i * m + j"],
    ["for i, j in ti.ndrange(n, m):", "i * m"],
    ["for i, j in ti.ndrange(n, m):", "i * m - j * m"],
    ["for i in range(6):", "for k in range(6):", "5 * i + k"],
    ["for i in range(6):", "for k in ti.static(range(3)):", "2 * i + k"],
    ["for i in range(6):", "for k in range(i, i + 4):", "3 * i + k"],
    ["for i in range(6):", "k = ti.cast(z[0, 0], ti.i32)", "4 * i + k"],
    ["for i in range(8):", "(3 + i) % 7"],
    ["for i in range(n):", "4 * i"],  # n may be 2**30 and more, and the index wraps
    ["for i in range(n):", "for j in range(m):", "i * m + j"],
    ["for i in range(8):", "i % (ti.max(n, 4) * 1073741825)"],  # the divisor wraps, to 4 by 4
    [  # the rest does not fit into an index
        "for i in range(9):",
        "k = ti.cast(i, ti.i64) * (1 << 33) - m",
        "ti.cast(k % ti.cast(1 << 50, ti.i64), ti.i32)",
    ],
]


def make(lines: list[str]) -> Any:
    loops = ["    " * k + line if "for" in line else line for k, line in enumerate(lines[:-1])]
    depth = sum("for" in line for line in lines[:-1])
    body = [f"    {line}" for line in loops if "for" in line]
    body += ["    " * (depth + 1) + line for line in loops if "for" not in line]
    body.append("    " * (depth + 1) + f"y[{lines[-1]}] += 1.0")
    return define(
        "def count(y: ti.types.ndarray(), z: ti.types.ndarray(ndim=2), n: ti.i32, m: ti.i32):\n"
        "    p, q = z.shape[0], z.shape[1]\n" + "\n".join(body) + "\n"
    )


def arguments(n: int, m: int) -> tuple[Any, ...]:
    return np.zeros(SIZE, np.float32), np.zeros((n, m), np.float32), n, m


def is_proved(lines: list[str]) -> bool:
    """True if iterations are known to have elements of their own."""
    fn = lower(make(lines), *arguments(2, 3)).func
    assert has_kind(fn.body, UPDATES)
    return not has_kind(demote_all_atomics(fn).body, UPDATES)


@pytest.mark.parametrize("lines", OWN, ids=" ".join)
def test_disjoint_indices_are_proved(lines: list[str]) -> None:
    assert is_proved(lines)
    for n, m in ((1, 1), (3, 4), (5, 2), (7, 5)):
        y, *others = arguments(n, m)
        run(make(lines), y, *others)
        assert y[:-1].max() <= 1


@pytest.mark.parametrize("lines", SHARED, ids=" ".join)
def test_shared_indices_are_not_proved(lines: list[str]) -> None:
    assert not is_proved(lines)
