"""Fields and arguments may have any name, also those of memory that kernels and gradients have for
themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti

from .slopes import X, check, field, is_near, make, slope

NAMES = ("save", "scratch", "drawn", "count", "width", "temp", "marks", "first", "stale", "adjoint")
LOOPS = """
@ti.kernel
def run():
    for i in x:
        NAME[0][i] = x[i] * x[i]
        s, k = x[i], 0
        while s < 3.0 * NAME[0][i] and k < 4:
            s = s * s + NAME[1][i]
            k += 1
        NAME[1][i] = s * NAME[0][i]
    total = 0.0
    for i in range(4):
        total += NAME[1][i]
    for i in x:
        NAME[1][i] *= NAME[1][i]
        loss[None] += NAME[1][i] + 0.25 * total * total
"""
MEMBERS = """
@ti.kernel
def run():
    for i in x:
        NAME.m[i] = x[i] * x[i]
    for i in x:
        NAME.m[i] *= x[i]
        loss[None] += NAME.m[i] + NAME.n[i]
"""


def make_kernel(text: str, name: str, path: Path, names: dict[str, Any]) -> Any:
    """The kernel of a program with a name put in."""
    file = path / "program.py"
    file.write_text(text.replace("NAME", name))
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["run"]


def add(x: np.ndarray) -> float:
    """Terms that LOOPS adds up."""
    found = []
    for v in x:
        s, k = v, 0
        while s < 3 * v * v and k < 4:
            s, k = s * s + 0.5, k + 1
        found.append(s * v * v)
    return float(np.sum(np.square(found)) + np.sum(found) ** 2)


@pytest.mark.parametrize("name", NAMES)
def test_fields_in_lists(name: str, tmp_path: Path) -> None:
    x, loss = make()
    pair = [field(4), field(4)]
    run = make_kernel(LOOPS, name, tmp_path, {"ti": ti, "x": x, "loss": loss, name: pair})

    def start() -> None:
        pair[1].fill(0.5)
        run()

    check(x, loss, start, gradient=slope(add))


@pytest.mark.parametrize("name", NAMES)
def test_members_of_structs(name: str, tmp_path: Path) -> None:
    x, loss = make()
    both = ti.Struct.field({"m": ti.f32, "n": ti.f32}, shape=4, needs_grad=True)
    run = make_kernel(MEMBERS, name, tmp_path, {"ti": ti, "x": x, "loss": loss, name: both})
    check(x, loss, run, gradient=3 * X**2)
    x.grad.fill(0)
    loss.grad[None] = 1
    run.grad()
    is_near(x.grad, 3 * X**2)


def test_a_field_and_an_array_with_gradients_of_one_name() -> None:
    @ti.data_oriented
    class Model:
        def __init__(self) -> None:
            self.x = field(3)

        @ti.kernel
        def take(self, x: ti.types.ndarray()):
            for i in x:
                x[i] = 100 * self.x.grad[i] + x.grad[i]

    model, x = Model(), ti.ndarray(ti.f32, 3, needs_grad=True)
    model.x.grad.fill(7)
    x.grad.fill(1)
    model.take(x)
    is_near(x, [701, 701, 701])


def test_forward_mode_of_a_kernel_that_reads_a_dual() -> None:
    x, y = (ti.field(ti.f32, 3, needs_dual=True) for _ in range(2))
    seen = ti.field(ti.f32, 3)

    @ti.kernel
    def square():
        for i in x:
            y[i] = x[i] ** 2
            seen[i] = x.dual[i]

    x.fill(3)
    with ti.ad.FwdMode(loss=y, param=x, seed=[1, 2, 3]):
        square()
    is_near(y.dual, [6, 12, 18])
    is_near(seen, [1, 2, 3])


def test_random_numbers_beside_a_seed() -> None:
    x, seed = ti.field(ti.f32, 8), ti.field(ti.f32, 8)

    @ti.kernel
    def draw(seed: ti.i32):
        for i in x:
            x[i] = ti.random() + seed

    @ti.kernel
    def draw_there():
        for i in seed:
            seed[i] = ti.random() + 3

    draw(3)
    draw_there()
    for drawn in (x.to_numpy(), seed.to_numpy()):
        assert ((drawn >= 3) & (drawn <= 4)).all() and len(set(drawn.tolist())) > 1
