"""`while ti.graph.do_while(flag):` in kernels with graph=True."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti

Init = Callable[..., None]


@ti.kernel(graph=True)
def solve(x: ti.Tensor, left: ti.Tensor, by: ti.f32):
    """The text of a kernel is no statement."""
    for i in x:
        x[i] += 1
    while ti.graph.do_while(left):
        for i in x:
            x[i] *= by
        for _ in range(1):
            left[None] -= 1
    for i in x:
        x[i] += 100


@pytest.mark.parametrize("options", [{}, {"debug": True}, {"arch": ti.python}])
def test_loops_run_until_the_flag_is_zero(options: dict, init: Init) -> None:
    init(**options)
    for backend in ti.Backend:
        x = ti.tensor(ti.f32, 4, backend=backend)
        left = ti.tensor(ti.i32, (), backend=backend)
        for count, by in ((3, 2.0), (1, 2.0), (70, 1.0), (5, 2.0)):
            x.fill(0)
            left[None] = count
            solve(x, left, by=by)
            assert np.all(x.to_numpy() == by**count + 100) and left[None] == 0
    values = np.zeros(3, np.float32)
    left[None] = 2
    solve(values, left, 3.0)
    assert np.all(values == 109)


@ti.data_oriented
class Solver:
    def __init__(self) -> None:
        self.x = ti.ndarray(ti.i32, 3)
        self.inner, self.outer = ti.ndarray(ti.i32, ()), ti.ndarray(ti.i32, ())

    @ti.kernel(graph=True)
    def run(self, n: ti.i32):
        for _ in range(1):
            self.outer[None] = n
        while ti.graph.do_while(self.outer):
            for _ in range(1):
                self.inner[None] = 2
            while ti.graph.do_while(self.inner):
                for i in range(3):
                    self.x[i] += i
                for _ in range(1):
                    self.inner[None] -= 1
            for _ in range(1):
                self.outer[None] -= 1


def test_loops_in_loops_and_members() -> None:
    solver = Solver()
    solver.run(3)
    assert solver.x.to_numpy().tolist() == [0, 6, 12]
    solver.run(1)
    assert solver.x.to_numpy().tolist() == [0, 8, 16]


def test_gradients_by_tapes() -> None:
    y = ti.field(ti.f32, 3, needs_grad=True)
    loss, left = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.i32, ())

    @ti.kernel(graph=True)
    def power():
        while ti.graph.do_while(left):
            for i in y:
                loss[None] += y[i] ** 2
            for _ in range(1):
                left[None] -= 1

    y.fill(3)
    left[None] = 4
    with ti.ad.Tape(loss):
        power()
    assert loss[None] == 108 and y.grad.to_numpy().tolist() == [24, 24, 24]
    with pytest.raises(ti.TaichiRuntimeError, match=r"help: call it under `with ti.ad.Tape"):
        power.grad()


def test_wrong_uses() -> None:
    x, left = ti.ndarray(ti.f32, 3), ti.ndarray(ti.i32, ())

    @ti.kernel
    def plain(x: ti.Tensor, left: ti.Tensor):
        while ti.graph.do_while(left):
            for i in x:
                x[i] = 1

    @ti.kernel(graph=True)
    def inside(x: ti.Tensor, left: ti.Tensor):
        for i in x:
            while ti.graph.do_while(left):
                x[i] = 1

    for kernel in (plain, inside):
        with pytest.raises(ti.TaichiTypeError, match="at the top level of a kernel with"):
            kernel(x, left)
    with pytest.raises(ti.TaichiSyntaxError, match="`s` is assigned on the other side of a loop"):

        @ti.kernel(graph=True)
        def variable(x: ti.Tensor, left: ti.Tensor):
            s = 3.0
            while ti.graph.do_while(left):
                for i in x:
                    x[i] = s

    with pytest.raises(ti.TaichiSyntaxError, match="has no `return`"):

        @ti.kernel(graph=True)
        def leaves(x: ti.Tensor, left: ti.Tensor):
            if ti.static(x.shape[0] > 3):
                return
            while ti.graph.do_while(left):
                for i in x:
                    x[i] = 1

    with pytest.raises(ti.TaichiSyntaxError, match="takes an array of one integer"):

        @ti.kernel(graph=True)
        def no_flag(x: ti.Tensor):
            while ti.graph.do_while():
                for i in x:
                    x[i] = 1

    for flag in (x, ti.ndarray(ti.f32, ()), 3):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=r"solve\(\): the flag"):
            solve(x, flag, 1.0)

    @ti.kernel
    def caller(x: ti.Tensor, left: ti.Tensor):
        solve(x, left, 1.0)

    with pytest.raises(ti.TaichiSyntaxError, match="`solve` is a kernel, and kernels cannot"):
        caller(x, left)
    with pytest.raises(TypeError, match=r"solve\(x, left, by\): missing a required argument"):
        solve(x, left)
    with pytest.raises(ti.TaichiSyntaxError, match="only be called inside a kernel"):
        ti.graph.do_while(left)


def test_the_flag_may_be_assigned_after_the_definition(init: Init) -> None:
    init()

    @ti.kernel(graph=True)
    def run():
        while ti.graph.do_while(left):
            for i in x:
                x[i] += 1
            for _ in range(1):
                left[None] -= 1

    x, left = ti.field(ti.i32, 4), ti.field(ti.i32, ())
    left[None] = 3
    run()
    assert x.to_numpy().tolist() == [3] * 4


@pytest.mark.parametrize("jump", ["break", "continue"])
def test_jumps_are_errors(jump, tmp_path):
    path = tmp_path / f"jumps_{jump}.py"
    path.write_text(f"""
import vkchi as ti

def make(x, flag):
    @ti.kernel(graph=True)
    def run():
        while ti.graph.do_while(flag):
            for i in range(4):
                if i > 2:
                    break
            flag[None] = 0
            if x[0] > 1:
                {jump}
    return run
""")
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(ti.TaichiSyntaxError, match=f"has no `{jump}`"):
        scope["make"](ti.field(ti.i32, 4), ti.field(ti.i32, ()))


def test_recordings_have_no_loops() -> None:
    x, left = ti.field(ti.f32, 3), ti.field(ti.i32, ())
    left[None] = 2
    message = r"solve\(\) has loops of ti.graph.do_while, which ti.record\(\) cannot record"
    with ti.record() as recorded, pytest.raises(ti.TaichiRuntimeError, match=message):
        solve(x, left, 2.0)
    recorded.run()
    assert x[0] == 0 and left[None] == 2  # nothing ran
