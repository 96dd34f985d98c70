"""Small programs whose results are known: puzzles, number theory, graphs, and easily lost values,
such as components of elements under run-time indices."""

import math
from itertools import product

import numpy as np

import vkchi as ti


def test_queens_by_an_explicit_stack() -> None:
    @ti.kernel
    def count(n: ti.i32) -> ti.i32:
        total = 0
        for first in range(n):
            pos = ti.Vector([0] * 8)
            pos[0], pos[1] = first, -1
            row = 1
            while row > 0:
                pos[row] += 1
                if pos[row] >= n:
                    row -= 1
                    continue
                safe = True
                for r in range(row):
                    if pos[r] == pos[row] or abs(pos[r] - pos[row]) == row - r:
                        safe = False
                        break
                if safe:
                    if row == n - 1:
                        total += 1
                    else:
                        row += 1
                        pos[row] = -1
        return total

    assert [count(n) for n in (4, 5, 6, 7, 8)] == [2, 10, 4, 40, 92]


def test_sudoku_by_backtracking() -> None:
    @ti.func
    def fits(g, p, d):
        r, c, good = p // 4, p % 4, 1
        for k in range(4):
            box = (r // 2 * 2 + k // 2) * 4 + c // 2 * 2 + k % 2
            if g[r * 4 + k] == d or g[k * 4 + c] == d or g[box] == d:
                good = 0
        return good

    @ti.kernel
    def solve(given: ti.types.vector(16, ti.i32)) -> ti.types.vector(16, ti.i32):
        g = given
        p, forward = 0, True
        while 0 <= p < 16:
            if given[p] != 0:
                p += 1 if forward else -1
                continue
            d = g[p] + 1
            g[p] = 0
            while d <= 4 and not fits(g, p, d):
                d += 1
            forward = d <= 4
            if forward:
                g[p] = d
            p += 1 if forward else -1
        return g

    given = [1, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 0, 0, 2]
    solved = np.array(solve(ti.Vector(given)).to_list()).reshape(4, 4)
    assert all(g in (0, s) for g, s in zip(given, solved.ravel()))
    boxes = solved.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
    for group in (*solved, *solved.T, *boxes):
        assert sorted(group) == [1, 2, 3, 4]


def test_number_theory() -> None:
    @ti.func
    def gcd(a, b):
        x, y = a, b
        while y != 0:
            x, y = y, x % y
        return x

    @ti.kernel
    def coprime(n: ti.i32) -> ti.i32:
        s = 0
        for i, j in ti.ndrange((1, n), (1, n)):
            s += gcd(i, j) == 1
        return s

    @ti.kernel
    def collatz(n: ti.i32) -> ti.i32:
        c, m = 0, n
        while m != 1:
            m = m // 2 if m % 2 == 0 else 3 * m + 1
            c += 1
        return c

    expected = sum(math.gcd(i, j) == 1 for i, j in product(range(1, 30), repeat=2))
    assert coprime(30) == expected
    assert [collatz(n) for n in (1, 7, 27, 97)] == [0, 16, 111, 118]


def test_chained_and_parallel_targets() -> None:
    @ti.kernel
    def run() -> ti.types.vector(6, ti.i32):
        v = ti.Vector([0, 0, 0])
        a = b = v[1] = 5
        v[0], c, v[2] = 1, a, b + 1
        a += 1
        return ti.Vector([a, b, c, v[0], v[1], v[2]])

    assert run().to_list() == [6, 5, 5, 1, 5, 6]


def test_components_under_run_time_indices() -> None:
    x = ti.Vector.field(3, ti.f32, 5)

    @ti.kernel
    def run():
        for i in x:
            for d in range(3):
                x[i][d] = i * 10 + d
            for d in ti.static(range(x.n)):
                x[i][d] += 0.5
            x[i].yz = x[i].zy

    run()
    assert x.to_numpy().tolist() == [[10 * i + 0.5, 10 * i + 2.5, 10 * i + 1.5] for i in range(5)]


def test_atomic_sum_of_one_component_beside_the_whole() -> None:
    m = ti.Matrix.field(2, 2, ti.f32, ())
    v = ti.Vector.field(3, ti.f32, 2)

    @ti.kernel
    def run():
        for i in range(100):
            p = ti.Vector([i % 3, 1])
            m[None] += p.outer_product(p)
            ti.atomic_add(m[None][0, 1], 1.0)
            v[i % 2][i % 3] += 1.0
            v[0] += ti.Vector([0.5, 0.0, 1.0])

    run()
    assert m.to_numpy().tolist() == [[165, 199], [99, 100]]
    assert v.to_numpy().tolist() == [[67, 16, 117], [17, 17, 16]]


def test_loop_with_a_kind_chosen_at_run_time() -> None:
    a = ti.field(ti.i32, 8)

    @ti.kernel
    def run(c: ti.i32) -> ti.i32:
        s = 0
        if c > 0:
            for i in range(8):
                a[i] = i * c
            for i in range(8):
                s += a[i]
        else:
            for i in a:
                a[i] = -i
        return s

    assert run(2) == 56
    assert a.to_numpy().tolist() == [2 * i for i in range(8)]
    assert run(0) == 0
    assert a.to_numpy().tolist() == [-i for i in range(8)]


def test_lambdas_and_functions_in_lists() -> None:
    offset = 7
    cut = lambda x: x if x > offset else offset  # noqa: E731

    @ti.func
    def double(x):
        return 2 * x

    steps = [cut, double]

    @ti.kernel
    def run(a: ti.i32) -> ti.i32:
        r = a
        for step in ti.static(steps):
            r = step(r)
        return r

    assert [run(a) for a in (5, 9)] == [14, 18]
