"""Kernels made from compiled ones, for calls whose member arrays differ in shape or memory.

Code depends on which arrays have equal shapes, and on whether all are disjoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]

WIDTHS = (4, 5, 9, 4)  # the first one is that of `Columns.a`
MODES = pytest.mark.parametrize("arch", [ti.python, ti.cpu])


def array(values: Any) -> Any:
    values = np.asarray(values, np.float32)
    made = ti.ndarray(ti.f32, values.shape, needs_grad=True)
    made.from_numpy(values)
    return made


def compiled(name: str) -> int:
    """The number of times that a kernel was compiled for the device."""
    return [n for n, _ in current_runtime().compiled].count(name)


@ti.data_oriented
class Columns:
    def __init__(self) -> None:
        self.total = array(0.0)
        self.give(WIDTHS[0])

    def give(self, width: int) -> None:
        self.a = array(np.arange(8).reshape(2, 4) + 1)
        self.b = array(np.arange(2 * width).reshape(2, width) + 1)

    @ti.kernel
    def dot(self):
        for i in range(2):
            self.total[None] += self.a[i, 1] * self.b[i, 1]

    def expected(self) -> float:
        return float((self.a.to_numpy()[:, 1] * self.b.to_numpy()[:, 1]).sum())


def check(s: Columns) -> None:
    assert s.total[None] == s.expected()
    assert s.a.grad.to_numpy().tolist() == [[0, x, 0, 0] for x in s.b.to_numpy()[:, 1]]
    assert s.b.grad.to_numpy()[:, 1].tolist() == s.a.to_numpy()[:, 1].tolist()


@MODES
def test_tapes(arch: Any) -> None:
    ti.init(arch=arch, log_level="error")
    s = Columns()
    for width in WIDTHS:
        s.give(width)
        with ti.ad.Tape(s.total):
            s.dot()
        check(s)
    assert compiled("dot") == 2  # for equal shapes, and for other ones


@MODES
def test_gradients_of_single_calls(arch: Any) -> None:
    ti.init(arch=arch, log_level="error")
    s = Columns()
    for width in WIDTHS:
        s.give(width)
        s.total.fill(0)
        s.total.grad.fill(1)
        s.dot()
        s.dot.grad()
        check(s)


@MODES
def test_other_objects(arch: Any) -> None:
    ti.init(arch=arch, log_level="error")
    for width in WIDTHS:
        s = Columns()
        s.give(width)
        with ti.ad.Tape(s.total):
            s.dot()
        check(s)


@MODES
def test_recorded_calls(arch: Any) -> None:
    ti.init(arch=arch, log_level="error")
    s = Columns()
    with ti.record() as g:
        s.dot()
    for width in WIDTHS:
        s.give(width)
        s.total.fill(0)
        g.run()
        assert s.total[None] == s.expected()


@MODES
def test_graphs(arch: Any) -> None:
    ti.init(arch=arch, log_level="error")
    s, builder = Columns(), ti.graph.GraphBuilder()
    builder.dispatch(s.dot)
    graph = builder.compile()
    for width in WIDTHS:
        s.give(width)
        s.total.fill(0)
        graph.run({})
        assert s.total[None] == s.expected()


def test_recorded_calls_stay_on_the_device_in_python_mode() -> None:
    ti.init(arch=ti.python, log_level="error")
    s = Columns()
    with ti.record() as g:
        s.dot()
    s.give(5)
    with ti.ad.Tape(s.total):
        g.run()
    check(s)
    assert compiled("dot") == 2


@ti.data_oriented
class Racing:
    def __init__(self) -> None:
        self.total = array(0.0)

    @ti.kernel
    def race(self, k: ti.i32):
        for i in range(6):
            self.a[i * k, 1] = 2 * self.a[i * k, 1] + self.b[i % 2, 1]

    @ti.kernel
    def add(self):
        for i in range(6):
            self.total[None] += self.a[i, 1]

    def give(self, width: int) -> None:
        self.a = array(np.zeros((6, 4)))
        self.b = array(np.arange(6 * width).reshape(6, width) + 100)

    def expected(self) -> float:
        found = 0.0
        for i in range(6):
            found = 2 * found + self.b.to_numpy()[i % 2, 1]
        return found


@pytest.fixture
def racing() -> Racing:
    """An object whose kernel has been compiled for unequal shapes, without a race."""
    ti.init(arch=ti.cpu, log_level="error")
    s = Racing()
    s.give(5)
    s.race(1)
    return s


ignores_races = pytest.mark.filterwarnings("ignore::vkchi.errors.KernelRaceWarning")


@ignores_races
def test_loops_in_order(racing: Racing) -> None:
    for width in (4, 10, 4, 7):
        racing.give(width)
        racing.race(0)
        assert racing.a[0, 1] == racing.expected()
    assert compiled("race") == 3  # a variant for equal shapes, and one for any


@ignores_races
def test_loops_in_order_of_one_array() -> None:
    """`a` and `b` are one array after they were disjoint, and disjoint again."""
    ti.init(arch=ti.cpu, log_level="error")
    s = Racing()
    for is_one in (False, True, False):
        s.give(4)
        want = s.expected()
        if is_one:
            s.b, want = s.a, 0.0
        s.race(0)
        assert s.a[0, 1] == want


@ignores_races
def test_loops_in_order_on_tapes(racing: Racing) -> None:
    for width in (4, 10, 4):
        racing.give(width)
        with ti.ad.Tape(racing.total):
            racing.race(0)
            racing.add()
        assert racing.total[None] == racing.expected()
        slopes = [2.0**5 + 2**3 + 2, 2.0**4 + 2**2 + 1]
        assert racing.b.grad.to_numpy()[:2, 1].tolist() == slopes


@ignores_races
def test_recorded_loops_in_order(racing: Racing) -> None:
    racing.give(4)
    with ti.record() as g:
        racing.race(0)
    for width in (4, 10, 4):
        racing.give(width)
        g.run()
        assert racing.a[0, 1] == racing.expected()


@ignores_races
def test_examinations_of_loops_in_order(racing: Racing, capsys: pytest.CaptureFixture[str]) -> None:
    """`explain` and `verify` take the variant that a launch takes."""
    device = current_runtime().device.info.name
    looks: list[Callable[[int], object]] = [
        racing.race.explain, lambda k: ti.verify(racing.race, k, devices=[device]),
    ]  # fmt: skip
    for width in (4, 10, 4):
        racing.give(width)
        for look in looks:
            look(0)
        racing.race(0)
        assert racing.a[0, 1] == racing.expected()
    assert capsys.readouterr().out.count("serial") >= 3


@ti.data_oriented
class Doubled:
    @ti.kernel
    def double(self, x: ti.types.ndarray(), k: ti.i32):
        for i in range(5):
            self.a[i * k] = 2 * self.a[i * k] + 1
            x[0] = self.a[i * k] + 1


@ignores_races
def test_arguments_that_are_members() -> None:
    """A kernel compiled for an argument that is a member, then called with a disjoint one."""
    ti.init(arch=ti.cpu, log_level="error")
    s = Doubled()
    s.a = array(np.zeros(6))
    s.double(s.a, 1)
    for is_member, wanted in ((False, (31, 32)), (True, (62, 62)), (False, (31, 32))):
        s.a = array(np.zeros(6))
        x = s.a if is_member else array(np.zeros(6))
        s.double(x, 0)
        assert (s.a[0], x[0]) == wanted
    assert compiled("double") == 3  # a variant for disjoint arrays, and one for any
