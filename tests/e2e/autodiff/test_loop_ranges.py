"""Gradients of loops whose ranges come near the ends of i32."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

LOW, HIGH = -(2**31), 2**31 - 1
CASES = [
    (0, 2140000001, 10**7), (-2 * 10**9, 2 * 10**9, 10**9), (5, LOW, 1), (HIGH, LOW, -(2**30)),
    (LOW, HIGH, 2**30 + 1), (HIGH - 10, HIGH, 3), (LOW + 7, LOW, -2), (2 * 10**9, -2 * 10**9, 1),
    (6, -1, -1), (HIGH, HIGH - 4, -1),
]  # fmt: skip
N = 8


class Sums:
    """A number made of x in loops, and its gradient."""

    def __init__(self) -> None:
        self.x = ti.field(ti.f32, N, needs_grad=True)
        self.total = ti.field(ti.f32, (), needs_grad=True)
        self.given = ti.field(ti.i32, 3)

    def gradient(self, kernel: Any, *args: int, given: tuple[int, ...] = (0, 0, 0)) -> list[float]:
        self.x.from_numpy(np.linspace(0.5, 1.5, N, dtype=np.float32))
        self.given.from_numpy(np.array(given, np.int32))
        self.total[None] = 0.0
        with ti.ad.Tape(self.total):
            kernel(*args)
        return self.x.grad.to_numpy().tolist()


def expected_sum(r: range) -> list[float]:
    found, x = [0.0] * N, np.linspace(0.5, 1.5, N, dtype=np.float32)
    for i in r:
        found[i % N] += 2.0 * float(x[i % N])
    return found


def expected_chain(r: range) -> list[float]:
    """Of s = s * x[i % N] / 4 + 1 from 1, by the chain rule."""
    x = np.linspace(0.5, 1.5, N, dtype=np.float32).astype(float)
    steps, s = [], 1.0
    for i in r:
        steps.append((i % N, s))
        s = s * x[i % N] * 0.25 + 1.0
    found, adjoint = [0.0] * N, 1.0
    for k, before in reversed(steps):
        found[k] += adjoint * before * 0.25
        adjoint *= x[k] * 0.25
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_serial_and_parallel_loops(sums: Sums, kernels: Any, case: Any) -> None:
    wanted = expected_sum(range(*case)), expected_chain(range(*case))
    for kernel, args, given, want in [
        (kernels[0], case, (0, 0, 0), wanted[0]), (kernels[1], (), case, wanted[0]),
        (kernels[2], case, (0, 0, 0), wanted[1]), (kernels[3], (), case, wanted[1]),
        (kernels[4], (), case, wanted[1]),
    ]:  # fmt: skip
        assert sums.gradient(kernel, *args, given=given) == pytest.approx(want, rel=1e-5, abs=1e-6)


@pytest.fixture(scope="module")
def sums() -> Sums:
    return Sums()


@pytest.fixture(scope="module")
def kernels(sums: Sums) -> Any:
    x, total, given = sums.x, sums.total, sums.given

    @ti.kernel
    def parallel(a: ti.i32, b: ti.i32, s: ti.i32):
        for i in range(a, b, s):
            total[None] += x[i % N] * x[i % N]

    @ti.kernel
    def parallel_from_memory():
        for i in range(given[0], given[1], given[2]):
            total[None] += x[i % N] * x[i % N]

    @ti.kernel
    def chain(a: ti.i32, b: ti.i32, c: ti.i32):
        for _ in range(1):
            s = 1.0
            for i in range(a, b, c):
                s = s * x[i % N] * 0.25 + 1.0
            total[None] += s

    @ti.kernel
    def chain_from_memory():
        for _ in range(1):
            s = 1.0
            for i in range(given[0], given[1], given[2]):
                s = s * x[i % N] * 0.25 + 1.0
            total[None] += s

    @ti.kernel
    def chain_that_may_break():
        for _ in range(1):
            s = 1.0
            for i in range(given[0], given[1], given[2]):
                s = s * x[i % N] * 0.25 + 1.0
                if s > 5.0:
                    break
            total[None] += s

    return parallel, parallel_from_memory, chain, chain_from_memory, chain_that_may_break


def test_gradients_raise_where_their_kernels_do(sums: Sums, kernels: Any) -> None:
    sums.total.grad[None] = 1.0
    for args, words in [((LOW, HIGH, 1), "iterations"), ((0, 9, 0), "step of a range")]:
        for run in (kernels[0], kernels[0].grad):
            with pytest.raises(ValueError, match=words):
                run(*args)
