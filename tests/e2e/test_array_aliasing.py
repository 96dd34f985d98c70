"""Array arguments that share no memory say so in their types: sums into one need not be stored
while others are read. The same array given twice is still seen as one."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.signature.signer import are_disjoint_arguments


def arrays(count: int, n: int = 8) -> list[Any]:
    """Arrays of 0, 1, 2 ..."""
    found = [ti.ndarray(ti.f32, n) for _ in range(count)]
    for x in found:
        x.from_numpy(np.arange(n, dtype=np.float32))
    return found


def test_disjoint_arguments() -> None:
    x, y = arrays(2)
    z = ti.ndarray(ti.f32, 8, needs_grad=True)
    host = np.zeros(8, np.float32)
    assert (
        are_disjoint_arguments([x, y])
        and are_disjoint_arguments([x, y, host])
        and are_disjoint_arguments([x, z])
    )
    assert are_disjoint_arguments([host, host.copy()])
    assert not are_disjoint_arguments([x, y, x])
    assert not are_disjoint_arguments([x, z, z.grad])
    assert not are_disjoint_arguments([host, host]) and not are_disjoint_arguments(
        [host, x, host[:]]
    )


@ti.kernel
def follow(x: ti.types.ndarray(), y: ti.types.ndarray()):
    """Writes to one array are read from the other, where they are one."""
    for _ in range(1):
        for k in range(3):
            x[0] += 1.0
            y[k + 1] = x[0]
            x[0] += y[0]


def expected(x: Any, y: Any) -> None:
    for k in range(3):
        x[0] += 1
        y[k + 1] = x[0]
        x[0] += y[0]


@pytest.mark.parametrize("kind", ["ndarray", "numpy", "views"])
@pytest.mark.parametrize("is_same", [False, True])
def test_same_and_other_arrays(kind: str, is_same: bool) -> None:
    x, y = arrays(2)
    want_x = np.arange(8, dtype=np.float32)
    want_y = want_x if is_same else want_x.copy()
    expected(want_x, want_y)
    if kind != "ndarray":
        x, y = x.to_numpy(), y.to_numpy()
    if is_same:
        y = x[:] if kind == "views" else x
    follow(x, y)
    got = [a.to_numpy() if kind == "ndarray" else a for a in (x, y)]
    np.testing.assert_array_equal(got, [want_x, want_y])


def test_gradient_as_an_argument() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), g: ti.types.ndarray()):
        for _ in range(1):
            for k in range(3):
                x.grad[0] += 1.0
                g[k + 1] = x.grad[0]

    x = ti.ndarray(ti.f32, 8, needs_grad=True)
    run(x, x.grad)
    assert x.grad.to_numpy()[:4].tolist() == [3, 1, 2, 3]
    other = ti.ndarray(ti.f32, 8)
    run(x, other)
    assert x.grad[0] == 6 and other.to_numpy()[:4].tolist() == [0, 4, 5, 6]


def test_sums_of_a_serial_loop() -> None:
    @ti.kernel
    def multiply(c: ti.types.ndarray(), a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i, j in c:
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]

    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 5, (9, 9)).astype(np.float32) for _ in range(2))
    c = np.zeros((9, 9), np.float32)
    multiply(c, a, b)
    np.testing.assert_array_equal(c, a @ b)


@ti.kernel
def meet(x: ti.types.ndarray(ti.i32, 1), y: ti.types.ndarray(ti.i32, 1), n: int):
    """One iteration alone comes to either array."""
    for i in range(n):
        if i == n - 1:
            y[0] = 7
            x[0] += 5
            y[0] = y[0] * 2


@pytest.mark.parametrize("n", [1, 4096])
def test_a_loop_sums_into_an_alias_of_its_input(n: int) -> None:
    x, y = ti.ndarray(ti.i32, 4), ti.ndarray(ti.i32, 4)
    meet(x, x, n)
    assert x.to_numpy().tolist() == [24, 0, 0, 0]
    meet(x, y, n)
    assert (x[0], y[0]) == (29, 14)
