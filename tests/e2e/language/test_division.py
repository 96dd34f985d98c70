"""`//`, `%` and `ti.math.mod` of floats, of numbers and vectors, and their gradients."""

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check

N = 6000


def operands() -> tuple[np.ndarray, np.ndarray]:
    """Multiples of the divisors 1 to 2000, and their neighbours."""
    b = np.tile(np.arange(1, 2001), 3).astype(np.float32)
    a = b * np.repeat(np.arange(1, 4), 2000).astype(np.float32)
    return a + np.tile(np.float32([-1, 0, 0, 1]), N // 4), b


def test_multiples_are_whole() -> None:
    a, b = ti.field(ti.f32, N), ti.field(ti.f32, N)
    whole, rest = ti.field(ti.f32, N), ti.field(ti.f32, N)
    x, y = operands()
    a.from_numpy(x)
    b.from_numpy(y)

    @ti.kernel
    def run():
        for i in a:
            whole[i] = a[i] // b[i]
            rest[i] = a[i] % b[i]

    run()
    np.testing.assert_array_equal(whole.to_numpy(), np.floor_divide(x, y))
    np.testing.assert_array_equal(rest.to_numpy(), np.mod(x, y))


@pytest.mark.ours("float-quotients")
def test_constant_divisors() -> None:
    @ti.kernel
    def run(x: ti.f32) -> ti.types.vector(8, ti.f32):
        return ti.Vector(
            [x // 41.0, x % 41.0, x // 2.0, x % 2.0, x // -4, x % -4, x % 0.25, x // 1]
        )

    for x in (-82.0, -41.25, -1e-6, 0.0, 3.75, 41.0, 81.99999, 123456.0):
        a = np.float32(x)
        b = np.float32([41, 41, 2, 2, -4, -4, 0.25, 1])
        want = [(np.mod if k in (1, 3, 5, 6) else np.floor_divide)(a, d) for k, d in enumerate(b)]
        check(run(x), [float(w) for w in want])


def test_division_of_vectors() -> None:
    @ti.kernel
    def run(v: ti.math.vec3, w: ti.math.vec3) -> ti.types.matrix(3, 3, ti.f32):
        return ti.Matrix.rows([v // w, v % w, ti.math.mod(v, w)])

    got = run([7.5, -7.5, 7.5], [2.0, 2.5, -3.5])
    check(got, [[3.0, -3.0, -3.0], [1.5, 0.0, -3.0], [1.5, 0.0, -3.0]])


def test_special_numbers() -> None:
    inf, nan = float("inf"), float("nan")
    a, b = ti.field(ti.f32, 8), ti.field(ti.f32, 8)
    c = ti.field(ti.f32, (2, 8))
    a.from_numpy(np.float32([inf, -inf, 1, -1, 0, nan, 1, 5]))
    b.from_numpy(np.float32([2, 2, 0, 0, 0, 1, nan, inf]))

    @ti.kernel
    def run():
        for i in a:
            c[0, i] = a[i] // b[i]
            c[1, i] = a[i] % b[i]

    run()
    want = [[inf, -inf, inf, -inf, nan, nan, nan, 0], [nan] * 8]
    np.testing.assert_array_equal(c.to_numpy(), np.float32(want))


@pytest.mark.ours("float-quotients")
def test_quotients_are_those_of_the_exact_numbers() -> None:
    """1.0 / 0.1 rounds to 10 and is less; 1e10 holds 0.1 so often that the quotient is not known
    to the last place, but the remainder is."""

    @ti.kernel
    def run(x: ti.f32, y: ti.f32) -> ti.types.vector(2, ti.f32):
        return ti.Vector([x // y, x % y])

    check(run(1.0, 0.1), [9.0, float(np.mod(np.float32(1), np.float32(0.1)))])
    check(run(1e10, 0.1)[1], float(np.mod(np.float32(1e10), np.float32(0.1))))
    check(run(-3e38, 7e-38)[1], float(np.mod(np.float32(-3e38), np.float32(7e-38))))


@pytest.mark.ours("float-quotients")
def test_in_both_scopes() -> None:
    @ti.kernel
    def run(x: ti.f32, y: ti.f32) -> ti.types.vector(2, ti.f32):
        return ti.Vector([ti.math.mod(x, y), x % y])

    for x, y in ((5.5, 2.0), (-5.5, 2.0), (5.5, -2.0), (6.0, -2.0), (-1e-3, 0.7)):
        of_floats = ti.math.mod(np.float32(x), np.float32(y))
        check(run(x, y), [float(of_floats), float(of_floats)])


def test_gradients_of_division() -> None:
    x, y = (ti.field(ti.f32, 6, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.float32([7.5, -7.5, 7.5, -7.5, 41.0, -41.0]))
    y.from_numpy(np.float32([2.0, 2.0, -2.0, -2.0, 41.0, 41.0]))

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] % y[i] + 100 * (x[i] // y[i])

    with ti.ad.Tape(loss):
        run()
    check(x.grad.to_numpy().tolist(), [1.0] * 6)
    check(y.grad.to_numpy().tolist(), [-3.0, 4.0, 4.0, -3.0, -1.0, 1.0])
