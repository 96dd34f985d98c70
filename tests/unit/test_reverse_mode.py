"""Reverse mode against central differences, in the interpreter, in f64."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkchi as ti
from tests.unit.differentiate import check as check_reverse
from tests.unit.differentiate import check_forward

A = ti.types.ndarray()
V2 = ti.types.ndarray(dtype=ti.types.vector(2, ti.f64))
RANDOM = np.random.default_rng(3)


def check(k: Any, **args: Any) -> None:
    """Both modes."""
    check_reverse(k, **args)
    check_forward(k, **args)


def some(*shape: int) -> np.ndarray:
    return np.asarray(RANDOM.uniform(0.5, 2.0, size=shape))


def test_elementwise_gradients() -> None:
    def k(x: A, y: A):
        for i in x:
            y[i] = ti.sin(x[i]) * x[i] + x[i] ** 2 / (1 + x[i])

    check(k, x=some(5), y=some(5))


def test_sum_into_one() -> None:
    def k(x: A, loss: A):
        for i in x:
            loss[None] += x[i] * x[(i + 1) % 5]

    check(k, x=some(5), loss=some())


def test_in_place() -> None:
    def k(x: A):
        for i in x:
            x[i] = x[i] * x[i]

    check(k, x=some(5))


def test_read_after_write() -> None:
    def k(x: A, y: A):
        for i in x:
            x[i] = ti.sin(x[i])
            y[i] = x[i] * x[i]
            x[i] *= y[i]

    check(k, x=some(5), y=some(5))


def test_serial_code() -> None:
    def k(x: A, loss: A):
        a = x[0] * x[1]
        loss[None] = a * x[2]
        loss[None] *= a
        x[0] = loss[None] + x[0]

    check(k, x=some(5), loss=some())


def test_branch_gradients() -> None:
    def k(x: A, y: A):
        for i in x:
            v = x[i] * 2
            if v > 2.0:
                v = v * v
                if x[i] > 1.5:
                    v += ti.exp(x[i])
                y[i] += v
            else:
                v = ti.sqrt(v)
            y[i] += v * x[i]

    check(k, x=some(8), y=some(8))


def test_loop_carried() -> None:
    def k(x: A, y: A, n: ti.i32):
        for i in x:
            a = x[i]
            b = 1.0
            for j in range(n):
                a, b = ti.sin(a) * b, b + a * x[j]
            y[i] = a * b

    check(k, x=some(4), y=some(4), n=3)


def test_nested_loops() -> None:
    def k(x: A, y: A):
        for i in x:
            s = x[i]
            for j in range(i):
                t = s
                for m in range(j + 1):
                    t = t * x[m] + ti.sin(t)
                s = s + t * t
            y[i] = s

    check(k, x=some(4) * 0.3, y=some(4))


def test_while_and_break() -> None:
    def k(x: A, y: A):
        for i in x:
            s = x[i]
            count = 0
            while s < 30.0:
                s = s * x[i] * 1.5 + 1
                count += 1
                if count > 4:
                    break
            y[i] = s * s

    check(k, x=some(6), y=some(6))


def test_memory_in_serial_loops() -> None:
    def k(x: A, y: A, n: ti.i32):
        ti.loop_config(serialize=True)
        for t in range(n):
            for i in range(3):
                x[i] = x[i] * x[(i + 1) % 3] + y[i]

    check(k, x=some(3), y=some(3), n=3)


def test_several_loops() -> None:
    def k(x: A, y: A, loss: A):
        for i in x:
            y[i] = x[i] * x[i]
        for i in x:
            x[i] = y[i] * ti.sin(x[i])
        s = 0.0
        for i in x:
            s += x[i] * y[(i + 1) % 4]
        for i in x:
            y[i] = s * y[i]
        loss[None] += s * s

    check(k, x=some(4), y=some(4), loss=some())


def test_vector_gradients() -> None:
    def k(x: V2, loss: A):
        for i, j in ti.ndrange(3, 3):
            r = x[i] - x[j]
            r[(i + j) % 2] += x[i].x
            loss[None] += -1 / r.norm(1e-3) + r.dot(x[j]) * r.y

    check(k, x=some(3, 2), loss=some())


def test_constant_store_cuts() -> None:
    def k(x: A, y: A):
        for i in x:
            y[i] = x[i] * 2
            if i % 2 == 0:
                y[i] = 3.0

    check(k, x=some(4), y=some(4))


def test_same_store_by_all() -> None:
    def k(x: A, y: A):
        for i in range(5):
            y[None] = x[None] * 2

    check(k, x=some(), y=some())


def test_indirect_access_gradients() -> None:
    def k(x: A, index: A, y: A):
        for i in x:
            j = index[i]
            y[j] = x[j] * x[i]

    check(k, x=some(4), index=np.array([2, 0, 3, 1], np.int32), y=some(4))


def test_integer_memory_that_changes() -> None:
    def k(x: A, n: A, y: A):
        for i in x:
            n[i] = n[i] + 1
            y[i] = x[n[i]] * x[n[i]]
        for i in x:
            n[i] = 0

    check(k, x=some(4), n=np.array([0, 2, 1, -1], np.int32), y=some(4))


def test_atomics_of_one_invocation() -> None:
    def k(x: A, y: A):
        ti.loop_config(serialize=True)
        for i in x:
            s = x[i]
            for j in range(3):
                ti.atomic_max(y[i], s * (j + 1))
                ti.atomic_mul(y[i], x[i])
                s = s * 0.7
            old = ti.atomic_add(y[i], s * s)
            x[i] = old * x[i]

    check(k, x=some(4), y=some(4))


def test_kernel_variable_shared_by_loops() -> None:
    def k(x: A, loss: A):
        s = x[0]
        p = 1.0
        for i in x:
            s += x[i] * p
        p = s * s
        for i in x:
            x[i] = x[i] * p
        loss[None] = s * p

    check(k, x=some(4), loss=some(), tolerance=1e-4)


def test_time_loop_with_inner_parallel_like_loops() -> None:
    def k(x: A, v: A, loss: A, n: ti.i32):
        ti.loop_config(serialize=True)
        for t in range(n):
            for i in range(4):
                f = 0.0
                for j in range(4):
                    if i != j:
                        d = x[j] - x[i]
                        f += d / (d * d + 0.1)
                v[i] += 0.1 * f
            for i in range(4):
                x[i] += 0.1 * v[i]
        for i in range(4):
            loss[None] += x[i] * x[i]

    check(k, x=some(4), v=some(4), loss=some(), n=4, tolerance=1e-5)


def test_return_in_function() -> None:
    @ti.func
    def f(a, b):
        r = a * b
        if a > b:
            r = a * a
        for k in range(5):
            r = r * b
            if r > 3.0:
                r = ti.sin(r)
                break
        return r

    def k(x: A, y: A, loss: A):
        for i in x:
            loss[None] += f(x[i], y[i]) * f(y[i], x[i])

    check(k, x=some(6), y=some(6), loss=some())


def test_matrix_gradients() -> None:
    M = ti.types.ndarray(dtype=ti.types.matrix(2, 2, ti.f64))

    def k(m: M, v: V2, loss: A):
        for i in m:
            a = m[i] @ m[i].transpose()
            w = a @ v[i]
            a[0, 1] = w[0]
            o = w.outer_product(v[i])
            loss[None] += a.determinant() + (a @ o).trace() + w.norm() + a.inverse().sum()

    k.__annotations__ = {"m": M, "v": V2, "loss": A}
    check(k, m=some(3, 2, 2), v=some(3, 2), loss=some(), tolerance=1e-5)


def test_continue_and_nested_break() -> None:
    def k(x: A, loss: A):
        for i in x:
            s = x[i]
            for j in range(6):
                if j == 2:
                    continue
                t = s
                while t > 0.2:
                    t = t * 0.5 * x[j % 4]
                    s += t * t
                    if s > 4.0:
                        break
                s = s * 0.9 + t
            loss[None] += s

    check(k, x=some(4), loss=some(), tolerance=1e-4)


def test_extremes_over_invocations() -> None:
    def k(x: A, loss: A, low: A):
        for i in x:
            ti.atomic_max(loss[None], x[i] * x[i])
            ti.atomic_min(low[i % 2], x[i] * 3)
        loss[None] *= low[0]

    check_reverse(k, x=some(4), loss=some(), low=some(2) * 4)
    check_reverse(k, x=some(4), loss=np.asarray(some() * 10), low=some(2))
