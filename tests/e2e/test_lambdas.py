"""Lambdas in kernels: the same values as in Python. Errors are goldens (`lambda_*`)."""

# ruff: noqa: E731, F841

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelSyntaxError


@ti.func
def twice(f, x):
    return f(f(x))


@ti.func
def integrate(f: ti.template(), a, b, n: ti.i32):
    h = (b - a) / n
    total = 0.0
    for i in range(n):
        total += f(a + (i + 0.5) * h) * h
    return total


def test_call_by_name_and_keyword() -> None:
    @ti.kernel
    def k(n: ti.f32) -> ti.f32:
        f = lambda x, y=2.0: x * y + n
        return f(n) + f(y=3.0, x=1.0) + f(1.0, 1.0)

    assert k(3) == 9 + 6 + 4


def test_argument_of_functions() -> None:
    @ti.kernel
    def k(n: ti.f32) -> ti.math.vec2:
        c = 2 * n
        return ti.Vector(
            [twice(lambda t: t * c, 1.0), integrate(lambda x: n * x * x, 0.0, 3.0, 90)]
        )

    assert k(2.0).to_numpy() == pytest.approx([16, 18], rel=1e-3)


def test_parameters_hide_variables() -> None:
    @ti.kernel
    def k(n: ti.f32) -> ti.f32:
        x = 5.0
        f = lambda x: x + 1
        return f(n) + x

    assert k(1) == 7


def test_inside_parallel_and_serial_loops() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray(ti.f32, 1), scale: ti.f32):
        weight = lambda t: t * scale
        for i in x:
            a = ti.cast(i, ti.f32)
            f = lambda t: t * a + weight(t)
            s = 0.0
            for j in range(3):
                s += f(ti.cast(j, ti.f32))
            x[i] += s

    x = ti.ndarray(ti.f32, 5)
    x.fill(1)
    k(x, 0.5)
    assert x.to_numpy().tolist() == [1 + 3 * i + 1.5 for i in range(5)]


def test_reads_arrays() -> None:
    @ti.kernel
    def blur(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
        at = lambda i: x[ti.math.clamp(i, 0, x.shape[0] - 1)]
        for i in y:
            y[i] = at(i - 1) + at(i) + at(i + 1)

    x, y = ti.ndarray(ti.f32, 4), ti.ndarray(ti.f32, 4)
    x.from_numpy(np.array([1, 2, 4, 8], np.float32))
    blur(x, y)
    assert y.to_numpy().tolist() == [4, 7, 14, 20]


def test_lists_of_lambdas_and_python_functions() -> None:
    def apply_all(functions: Any, x: Any) -> Any:
        for f in functions:
            x = f(x)
        return x

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        steps = [lambda x: x + 1, lambda x: x * 10, lambda x: x - n]
        r = apply_all(steps, n)
        for f in ti.static(steps):
            r = f(r)
        return r

    assert k(3) == ((3 + 1) * 10 - 3 + 1) * 10 - 3


def test_gradient() -> None:
    x = ti.field(ti.f32, 3, needs_grad=True)
    total = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add():
        cube = lambda v: v * v * v
        for i in x:
            total[None] += cube(x[i])

    x.fill(2)
    with ti.ad.Tape(total):
        add()
    assert x.grad.to_numpy().tolist() == [12, 12, 12]


@ti.func
def become_three(v: ti.template()):
    v = 3.0


def assigned(x: ti.types.ndarray(ti.f32, 1)):
    h = 0.0
    f = lambda: h
    for i in x:
        x[i] = f()
        h = 1.0


def assigned_in_part(x: ti.types.ndarray(ti.f32, 1)):
    v = ti.Vector([0.0, 1.0])
    f = lambda: v[0]
    for i in x:
        x[i] = f()
        v[0] = 1.0


def assigned_by_reference(x: ti.types.ndarray(ti.f32, 1)):
    v = 1.0
    f = lambda: v
    for i in x:
        x[i] = f()
        become_three(v)


@pytest.mark.parametrize("kernel", [assigned, assigned_in_part, assigned_by_reference])
def test_variables_that_are_assigned_twice_are_errors(kernel: Any) -> None:
    with pytest.raises(KernelSyntaxError, match="which is assigned more than once"):
        ti.kernel(kernel)(ti.ndarray(ti.f32, 4))


OFFSET, K = 10, 77


def global_hidden_by_a_parameter():
    g = lambda a: a + OFFSET
    f = lambda OFFSET: g(OFFSET)
    return f(1)


def global_hidden_by_a_comprehension():
    g = lambda a: a + OFFSET
    v = [g(OFFSET) for OFFSET in range(3)]
    return v[0] + v[1] + v[2]


def variable_hidden_by_a_parameter():
    n = 5
    f = lambda b: b * n
    g = lambda n: f(n)
    return g(2)


def lambda_in_a_lambda():
    apply = lambda g, x: g(g(x))
    f = lambda a: apply(lambda b: a * b, 2)
    return f(3)


def comprehension_in_a_lambda():
    f = lambda a: [a * j for j in range(3)][2]
    return f(4)


@pytest.mark.parametrize(
    "function",
    [
        global_hidden_by_a_parameter, global_hidden_by_a_comprehension,
        variable_hidden_by_a_parameter, lambda_in_a_lambda, comprehension_in_a_lambda,
    ],
)  # fmt: skip
def test_scopes_are_lexical(function: Any) -> None:
    inner = ti.func(function)

    @ti.kernel
    def k() -> ti.i32:
        return inner()

    assert k() == function()


def parameter_of_a_lambda_that_returned():
    add = lambda K: lambda y: K + y
    return add(1)(2)


def index_of_a_loop_that_ended():
    fs = []
    for K in ti.static(range(3)):
        fs.append(lambda z: z + K)
    return fs[0](0)


def variable_assigned_later():
    f = lambda a: a + K
    K = 3
    return f(1)


@pytest.mark.parametrize(
    "function, match",
    [
        (parameter_of_a_lambda_that_returned, "whose block has ended"),
        (index_of_a_loop_that_ended, "whose block has ended"),
        (variable_assigned_later, "has no value where this lambda is made"),
    ],
)
def test_variables_that_are_not_there_are_errors(function: Any, match: str) -> None:
    inner = ti.func(function)

    @ti.kernel
    def k() -> ti.i32:
        return inner()

    with pytest.raises(KernelSyntaxError, match=match):
        k()


PROGRAM = """
import sys
import vkchi as ti

ti.init(arch=ti.vulkan)
SCALE = float(sys.argv[1])

@ti.kernel
def k(n: ti.f32) -> ti.f32:
    f = lambda x: x * SCALE
    return f(n)

print(k(3))
"""


def test_the_cache_sees_globals_of_lambdas(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    found = [
        subprocess.run(
            [sys.executable, str(program), scale], cwd=tmp_path, check=True, text=True,
            capture_output=True,
        ).stdout.split()
        for scale in ("2", "2", "5")
    ]  # fmt: skip
    assert found == [["6.0"], ["6.0"], ["15.0"]]
