"""Ndarrays that kernels read from objects, by paths: `self.links.mass` is a hidden parameter."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import is_near, slope
from vkchi.errors import KernelRaceWarning
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]


@pytest.fixture(autouse=True)
def runtime() -> None:
    ti.init(arch=ti.vulkan, log_level="error")


def array(values: Any, dtype: Any = ti.f32, needs_grad: bool = False) -> Any:
    values = np.asarray(values)
    made = ti.ndarray(dtype, values.shape, needs_grad=needs_grad)
    made.from_numpy(values.astype(made.to_numpy().dtype))
    return made


def compiled(name: str) -> int:
    """The number of times that a kernel was compiled."""
    return [n for n, _ in current_runtime().compiled].count(name)


@dataclasses.dataclass
class Links:
    mass: Any
    force: Any
    scale: float = 2.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    links: Links
    x: Any


Pair = namedtuple("Pair", "x y")


@ti.func
def pushed(links: ti.template(), i: ti.i32) -> ti.f32:
    return links.force[i] / links.mass[i]


@ti.data_oriented
class Solver:
    def __init__(self, n: int, dtype: Any = ti.f32) -> None:
        self.links = Links(ti.ndarray(dtype, n), ti.ndarray(dtype, n))
        self.links.mass.from_numpy(np.arange(1, n + 1).astype(np.float32))
        self.links.force.fill(1)
        self.v = ti.ndarray(ti.f32, n)
        self.parts = [self.v, self.links.force]
        self.rows: dict[str, Any] = {"v": self.v}
        self.pair = Pair(self.v, self.links.mass)

    @property
    def velocity(self) -> Any:
        return self.v

    @ti.kernel
    def step(self, dt: ti.f32):
        for i in self.v:
            self.v[i] += dt * pushed(self.links, i) * self.links.scale

    @ti.kernel
    def by_items(self):
        for i in self.parts[0]:
            self.rows["v"][i] += self.parts[1][i]

    @ti.kernel
    def by_property(self):
        for i in self.velocity:
            self.velocity[i] += self.pair.y[i]

    @ti.kernel
    def total(self) -> ti.f32:
        s = 0.0
        for i in range(self.v.shape[0]):
            s += self.v[i]
        return s


def test_nested_members_are_read_and_written() -> None:
    solver = Solver(4)
    for k in range(1, 5):
        solver.step(0.5)
        np.testing.assert_allclose(solver.v.to_numpy(), k / np.arange(1, 5))
    solver.by_items()
    np.testing.assert_allclose(solver.v.to_numpy(), 4 / np.arange(1, 5) + 1)
    solver.by_property()
    want = 4 / np.arange(1, 5) + 1 + np.arange(1, 5)
    np.testing.assert_allclose(solver.v.to_numpy(), want, rtol=1e-6)
    assert abs(solver.total() - want.sum()) < 1e-4
    assert compiled("step") == 1


@pytest.mark.parametrize("times", [1, 4])
def test_the_next_call_sees_a_replaced_member(times: int) -> None:
    solver = Solver(3)
    for _ in range(times):
        solver.step(1.0)
    old, solver.v = solver.v, array([10, 20, 30])
    before = old.to_numpy()
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), np.array([10, 20, 30]) + 2 / np.arange(1, 4))
    assert np.array_equal(old.to_numpy(), before)
    solver.links = Links(array([1, 1, 1]), array([3, 4, 5]))
    solver.step(1.0)
    want = np.array([10, 20, 30]) + 2 / np.arange(1, 4) + [6, 8, 10]
    np.testing.assert_allclose(solver.v.to_numpy(), want)
    solver.links.scale = 1.0  # a number is part of the code
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), want + [3, 4, 5])
    assert compiled("step") == 2


def test_members_in_turn_alternate_without_compiling() -> None:
    solver, both = Solver(2), [array([0, 0]), array([5, 5])]
    for k in range(8):
        solver.v = both[k % 2]
        solver.step(1.0)
    np.testing.assert_allclose(both[0].to_numpy(), [8, 4])
    np.testing.assert_allclose(both[1].to_numpy(), [13, 9])
    assert compiled("step") == 1


def test_other_arrays_and_sizes_share_the_code_of_an_object() -> None:
    solver = Solver(3)
    for n in (3, 5, 1, 8, 3):
        solver.v = ti.ndarray(ti.f32, n)
        solver.links = Links(array(range(1, n + 1)), array([1] * n))
        solver.step(1.0)
        solver.step(1.0)
        np.testing.assert_allclose(solver.v.to_numpy(), 4 / np.arange(1, n + 1))
        gc.collect()
    assert compiled("step") == 1
    other = Solver(2)
    other.links.scale = 5.0
    other.step(1.0)
    np.testing.assert_allclose(other.v.to_numpy(), [5, 2.5])
    assert compiled("step") == 2
    solver.step(1.0), other.step(1.0)
    assert compiled("step") == 2


def twice(obj: Any) -> int:
    return 2 * getattr(obj, "".join(["nu", "mber"]))


class Count:
    """A number with operators and conversions that run in Python."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __add__(self, other: int) -> int:
        return self.number + other

    def __neg__(self) -> int:
        return -self.number

    def __str__(self) -> str:
        return "x" * self.number

    def __index__(self) -> int:
        return self.number


CHOSEN: Any = None
TABLE: dict[Any, int] = {}


@ti.data_oriented
class Differing:
    """Objects whose code differs by more than their numbers and arrays."""

    def __init__(self, number: int) -> None:
        self.x, self.number = ti.ndarray(ti.i32, 1), number
        self.long = [number] * 5000
        self.keys = {Pair: number}
        self.count, self.tail = Count(number), [0, number]
        TABLE[self] = number

    def __str__(self) -> str:
        return f"number {self.number}"

    @property
    def half(self) -> int:
        return self.number // 2

    @ti.kernel
    def by_python(self):
        self.x[0] = ti.static(twice(self))

    @ti.kernel
    def by_identity(self):
        self.x[0] = 1 if ti.static(self is CHOSEN) else 0

    @ti.kernel
    def by_key(self):
        self.x[0] = TABLE[self]

    @ti.kernel
    def by_long_list(self):
        for k in ti.static(range(2)):
            self.x[0] += sum(self.long)

    @ti.kernel
    def by_inner_key(self):
        self.x[0] = self.keys[Pair]

    @ti.kernel
    def by_property(self):
        self.x[0] = self.half

    @ti.kernel
    def by_operator(self):
        self.x[0] = self.count + 1

    @ti.kernel
    def by_sign(self):
        self.x[0] = -self.count

    @ti.kernel
    def by_str(self):
        self.x[0] = ti.static(len(str(self.count)))

    @ti.kernel
    def by_slice(self):
        for v in ti.static(self.tail[1:]):
            self.x[0] += v

    @ti.kernel
    def by_index(self):
        self.x[0] = ti.static([*range(40)][self.count])

    @ti.kernel
    def by_text(self):
        print(self)


def test_objects_that_differ_have_code_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    global CHOSEN
    one, other = Differing(10), Differing(30)
    CHOSEN = other
    for made, chosen in ((one, 0), (other, 1)):
        n = made.number
        for name, want in (
            ("by_python", 2 * n), ("by_identity", chosen), ("by_key", n),
            ("by_long_list", 2 * 5000 * n), ("by_inner_key", n), ("by_property", n // 2),
            ("by_operator", n + 1), ("by_str", n), ("by_slice", n), ("by_index", n),
        ):  # fmt: skip
            made.x.fill(0)
            getattr(made, name)()
            assert made.x[0] == want, name
        made.by_text()
        ti.sync()
        assert f"number {n}" in capfd.readouterr().out
    TABLE.clear()
    CHOSEN = None


def test_another_type_gives_other_code() -> None:
    solver = Solver(3)
    solver.step(1.0)
    solver.links = Links(array([1, 2, 4], ti.i32), array([8, 8, 8], ti.i32))
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), 2 / np.arange(1, 4) + [16, 8, 4])
    solver.v = ti.ndarray(ti.f32, (2, 2))
    with pytest.raises(ti.TaichiCompilationError, match="the array has 2 axes"):
        solver.step(1.0)
    solver.v = None
    with pytest.raises(ti.TaichiCompilationError, match="None"):
        solver.step(1.0)
    del solver.v
    with pytest.raises(ti.TaichiCompilationError, match="has no attribute `v`"):
        solver.step(1.0)
    solver.v = array([0, 0, 0])
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), [16, 8, 4])


@ti.kernel
def add_pair(p: ti.template(), c: ti.f32):
    for i in p.x:
        p.y[i] += c * p.x[i]


@ti.kernel
def push_frozen(f: ti.template()):
    for i in f.x:
        f.x[i] += f.links.force[i] * f.links.scale


def test_named_tuples_and_frozen_dataclasses_as_templates() -> None:
    for k, n in enumerate((2, 3, 3)):
        p = Pair(array(range(n)), array([1] * n))
        add_pair(p, 2.0)
        add_pair(p, 1.0)
        assert p.y.to_numpy().tolist() == [1 + 3 * i for i in range(n)]
        f = Frozen(Links(array([1] * n), array(range(n))), array([0] * n))
        push_frozen(f)
        push_frozen(f)
        assert f.x.to_numpy().tolist() == [4 * i for i in range(n)]
        f.links.force = array([7] * n)
        push_frozen(f)
        assert f.x.to_numpy().tolist() == [4 * i + 14 for i in range(n)]
        assert (compiled("add_pair"), compiled("push_frozen")) == (k + 1, 1)


state = Pair(None, None)
table: Any = None


@ti.kernel
def from_globals(c: ti.f32):
    for i in table:
        table[i] += c * state.x[i]


def test_globals_and_closures() -> None:
    global state, table
    table, state = array([1, 2]), Pair(array([1, 1]), None)
    from_globals(1.0)
    from_globals(1.0)
    assert table.to_numpy().tolist() == [3, 4]
    table = array([0, 0, 0])
    state = Pair(array([1, 2, 3]), None)
    from_globals(2.0)
    assert table.to_numpy().tolist() == [2, 4, 6]
    assert compiled("from_globals") == 1
    held = array([1, 2])

    @ti.kernel
    def twice():
        for i in held:
            held[i] *= 2

    twice()
    first, held = held, array([5])
    twice()
    assert first.to_numpy().tolist() == [2, 4] and held.to_numpy().tolist() == [10]
    table = state = None


def test_changed_values_in_operators_and_slices() -> None:
    made = Differing(10)
    names = "by_operator by_sign by_str by_slice by_index".split()
    for step, n in enumerate((10, 12, 14)):
        if step == 1:
            made.count.number = n
        elif step == 2:
            made.count = Count(n)
        made.tail = [0, n]
        for name, want in zip(names, (n + 1, -n, n, n, n), strict=True):
            made.x.fill(0)
            getattr(made, name)()
            assert made.x[0] == want, (name, step)


# --- questions at compile time -------------------------------------------------------------------


@ti.data_oriented
class Asked:
    def __init__(self, needs_grad: bool = True) -> None:
        self.a = ti.ndarray(ti.f32, 1, needs_grad=needs_grad)
        self.all, self.names = [self.a], {self.a: 3, (self.a, 1): 4}

    @ti.kernel
    def inside(self) -> ti.i32:
        return ti.static(1 if self.a in self.all else 0)

    @ti.kernel
    def count(self) -> ti.i32:
        return ti.static(self.all.count(self.a))

    @ti.kernel
    def count_here(self) -> ti.i32:
        return ti.static([self.a, self.a, self.all].count(self.a))

    @ti.kernel
    def is_array(self) -> ti.i32:
        return ti.static(1 if isinstance(self.a, ti.Ndarray) else 0)

    @ti.kernel
    def named(self) -> ti.i32:
        return ti.static(self.names[self.a])

    @ti.kernel
    def named_pair(self) -> ti.i32:
        return ti.static(self.names[self.a, 1])

    @ti.kernel
    def got(self) -> ti.i32:
        return ti.static(self.names.get(self.a, -1))

    @ti.kernel
    def has_grad(self) -> ti.i32:
        return ti.static(1 if self.a.grad is not None else 0)

    @ti.kernel
    def has_methods(self) -> ti.i32:
        return ti.static(1 if hasattr(self.a, "to_numpy") else 0)

    @ti.kernel
    def extra(self) -> ti.i32:
        return ti.static(self.a.extra if hasattr(self.a, "extra") else -1)


def test_questions_about_a_member_are_answered_as_in_python() -> None:
    asked = Asked()
    first, other = asked.a, ti.ndarray(ti.f32, 1)
    names = "inside count count_here is_array got has_grad has_methods".split()
    for held, want in (
        (first, [1, 1, 2, 1, 3, 1, 1]), (other, [0, 0, 2, 1, -1, 0, 1]),
        (first, [1, 1, 2, 1, 3, 1, 1]),
    ):  # fmt: skip
        asked.a = held
        assert [getattr(asked, name)() for name in names] == want
    assert Asked(needs_grad=False).has_grad() == 0
    assert (asked.named(), asked.named_pair()) == (3, 4)
    asked.a = other
    for kernel in (asked.named, asked.named_pair):
        with pytest.raises(ti.TaichiCompilationError, match="a dict has no item"):
            kernel()


def test_attributes_that_users_add_to_a_member() -> None:
    asked = Asked()
    assert asked.extra() == -1
    for number in (5, 6):
        asked.a.extra = number
        assert asked.extra() == number
    asked.a = ti.ndarray(ti.f32, 1)
    assert asked.extra() == -1
    asked.a.extra = 7
    assert asked.extra() == 7
    del asked.a.extra
    assert asked.extra() == -1


# --- aliasing ------------------------------------------------------------------------------------


@ti.data_oriented
class Two:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    @ti.kernel
    def chain(self):
        ti.loop_config(serialize=True)
        for i in range(self.a.shape[0]):
            self.a[i] = self.a[i] + 1.0
            self.b[i] = self.b[i] * 2.0
            self.a[i] = self.a[i] + 10.0

    @ti.kernel
    def with_argument(self, x: ti.types.ndarray()):
        ti.loop_config(serialize=True)
        for i in range(x.shape[0]):
            x[i] = x[i] + 1.0
            self.b[i] = self.b[i] * 2.0
            x[i] = x[i] + 10.0

    @ti.kernel
    def is_same(self) -> ti.i32:
        return int(self.a is self.b)


def chained(a: np.ndarray, b: np.ndarray) -> None:
    for i in range(len(a)):
        a[i] = a[i] + 1
        b[i] = b[i] * 2
        a[i] = a[i] + 10


@pytest.mark.parametrize("first", ["same", "apart"])
def test_two_paths_to_one_array(first: str) -> None:
    a, b = array([1, 2, 3]), array([4, 5, 6])
    two = Two(a, a if first == "same" else b)
    known = {id(a): a.to_numpy(), id(b): b.to_numpy()}
    for other in (two.b, a, b, a, a, b):
        two.b = other
        two.chain()
        chained(known[id(a)], known[id(other)])
        assert np.array_equal(a.to_numpy(), known[id(a)])
        assert np.array_equal(b.to_numpy(), known[id(b)])
        assert two.is_same() == (other is a)
    assert compiled("chain") == 2


def test_a_member_is_passed_as_an_argument_too() -> None:
    a, b = array([1, 2, 3]), array([4, 5, 6])
    two, known = Two(a, b), {id(a): a.to_numpy(), id(b): b.to_numpy()}
    for x in (a, b, a, b, b):
        two.with_argument(x)
        chained(known[id(x)], known[id(b)])
        assert np.array_equal(a.to_numpy(), known[id(a)])
        assert np.array_equal(b.to_numpy(), known[id(b)])
    x = np.array([1, 2, 3], np.float32)
    two.with_argument(x)
    chained(np.zeros(3), known[id(b)])
    assert x.tolist() == [12, 13, 14] and np.array_equal(b.to_numpy(), known[id(b)])


def test_shapes_that_were_equal_may_differ_later() -> None:
    @ti.data_oriented
    class Clamped:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

        @ti.kernel
        def move(self):
            for i in self.a:
                if i < self.b.shape[0]:
                    self.b[i] = self.a[i]

    for n, m in ((3, 3), (3, 2), (2, 5), (4, 4)):
        made = Clamped(array(range(1, n + 1)), array([0] * m))
        made.move()
        want = [i + 1 if i < n else 0 for i in range(m)]
        assert made.b.to_numpy().tolist() == want


# --- gradients -----------------------------------------------------------------------------------


@ti.data_oriented
class Model:
    def __init__(self, values: np.ndarray) -> None:
        self.links = Links(
            array(values, ti.f64, needs_grad=True), ti.ndarray(ti.f64, len(values), needs_grad=True)
        )
        self.loss = ti.ndarray(ti.f64, (), needs_grad=True)

    @ti.kernel
    def forward(self, c: ti.f64):
        for i in self.links.mass:
            self.links.force[i] = ti.sin(self.links.mass[i]) * c + self.links.mass[i] ** 2

    @ti.kernel
    def measure(self):
        for i in self.links.force:
            self.loss[None] += self.links.force[i] ** 3

    @ti.kernel
    def from_gradient(self):
        for i in self.links.mass:
            self.links.mass[i] -= 0.5 * self.links.mass.grad[i]


VALUES = np.array([0.3, 1.1, -0.7])


def loss_of(x: np.ndarray) -> float:
    return float(((np.sin(x) * 2 + x**2) ** 3).sum())


def test_tapes_differentiate_members(need: Any) -> None:
    need("f64")
    model = Model(VALUES)
    for _ in range(3):
        model.loss.fill(0)
        with ti.ad.Tape(model.loss):
            model.forward(2.0)
            model.measure()
        is_near(model.links.mass.grad, slope(loss_of, VALUES))
    before = model.links.mass.grad.to_numpy()
    model.from_gradient()
    np.testing.assert_allclose(model.links.mass.to_numpy(), VALUES - 0.5 * before)


def test_a_member_replaced_before_the_gradient_is_the_recorded_one(need: Any) -> None:
    need("f64")
    model = Model(VALUES)
    with ti.ad.Tape(model.loss):
        model.forward(2.0)
        model.measure()
        old, model.links = model.links, Model(VALUES).links
    is_near(old.mass.grad, slope(loss_of, VALUES))
    assert not model.links.mass.grad.to_numpy().any()


def test_members_of_two_objects_in_one_tape(need: Any) -> None:
    need("f64")
    one, other = Model(VALUES), Model(VALUES[:2] + 1)
    other.loss = one.loss
    for _ in range(2):
        one.loss.fill(0)
        with ti.ad.Tape(one.loss):
            for model in (one, other):
                model.forward(2.0)
                model.measure()
        is_near(one.links.mass.grad, slope(loss_of, VALUES))
        is_near(other.links.mass.grad, slope(loss_of, VALUES[:2] + 1))


def test_the_gradient_of_one_call(need: Any) -> None:
    need("f64")
    model = Model(VALUES)
    model.forward(2.0)
    model.links.force.grad.fill(1)
    model.forward.grad(2.0)
    is_near(model.links.mass.grad, 2 * np.cos(VALUES) + 2 * VALUES)


def test_a_member_without_gradient_raises(need: Any) -> None:
    need("f64")
    model = Model(VALUES)
    model.links.mass = array(VALUES, ti.f64)
    with pytest.raises(
        ti.TaichiCompilationError, match=r"`self\.links\.mass\.grad` is None: this array has no"
    ):
        model.from_gradient()
    model.links.mass = array(VALUES, ti.f64, needs_grad=True)
    model.links.mass.grad.fill(2)
    model.from_gradient()
    np.testing.assert_allclose(model.links.mass.to_numpy(), VALUES - 1)


# --- graphs and recordings -----------------------------------------------------------------------


def test_recorded_calls_see_replaced_members() -> None:
    solver = Solver(2)
    with ti.record() as g:
        solver.step(1.0)
    g.run(2)
    np.testing.assert_allclose(solver.v.to_numpy(), [4, 2])
    old, solver.v = solver.v, array([10, 10, 10])
    solver.links = Links(array([1, 1, 1]), array([1, 2, 3]))
    g.run()
    np.testing.assert_allclose(solver.v.to_numpy(), [12, 14, 16])
    np.testing.assert_allclose(old.to_numpy(), [4, 2])


def test_graphs_see_replaced_members() -> None:
    solver, builder = Solver(2), ti.graph.GraphBuilder()
    dt = ti.graph.Arg(ti.graph.ArgKind.SCALAR, "dt", ti.f32)
    builder.dispatch(solver.step, dt)
    graph = builder.compile()
    for _ in range(3):
        graph.run({"dt": 1.0})
    np.testing.assert_allclose(solver.v.to_numpy(), [6, 3])
    solver.v = array([1, 1])
    graph.run({"dt": 2.0})
    np.testing.assert_allclose(solver.v.to_numpy(), [5, 3])


# --- modes ---------------------------------------------------------------------------------------


def test_debug_mode_names_the_member() -> None:
    ti.init(arch=ti.vulkan, debug=True, log_level="error")
    solver = Solver(3)
    solver.step(1.0)
    solver.links.force = array([1, 1])
    solver.links.mass = array([1, 1])
    with pytest.raises(ti.TaichiAssertionError, match=r"self\.links\.force|self\.links\.mass"):
        solver.step(1.0)
        ti.sync()


def test_debug_mode_finds_races_of_members() -> None:
    ti.init(arch=ti.vulkan, debug=True, log_level="error")

    @ti.kernel
    def race(p: ti.template()):
        for i in p.x:
            p.y[i // 2] = p.x[i]

    with pytest.warns(KernelRaceWarning, match=r"p\.y"):
        race(Pair(array([1, 2, 3, 4]), array([0, 0])))


def test_kernels_as_plain_python() -> None:
    ti.init(arch=ti.python, log_level="error")
    solver = Solver(3)
    solver.step(1.0)
    solver.v = array([1, 1, 1])
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), 1 + 2 / np.arange(1, 4), rtol=1e-6)
    solver.v = solver.links.force
    solver.by_property()
    np.testing.assert_allclose(solver.v.to_numpy(), 1 + np.arange(1, 4))


def test_verify_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    solver = Solver(3)
    assert "agree, in 1 array" in str(ti.verify(solver.step, 1.0))
    solver.step.explain(1.0)
    assert "step()" in capsys.readouterr().out


# --- lifetime, threads, disk ---------------------------------------------------------------------


def test_a_replaced_member_is_freed() -> None:
    solver = Solver(3)
    for _ in range(4):
        solver.step(1.0)
    gone = weakref.ref(solver.v)
    solver.parts, solver.rows, solver.pair = [], {}, Pair(None, None)
    solver.v = array([0, 0, 0])
    gc.collect()
    assert gone() is None
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), 2 / np.arange(1, 4))


def test_threads_replace_members_while_others_call() -> None:
    solver, errors, n = Solver(4), [], 4
    done = threading.Event()

    def replace() -> None:
        while not done.is_set():
            solver.v = ti.ndarray(ti.f32, n)

    def call() -> None:
        try:
            for _ in range(300):
                solver.step(1.0)
        except Exception as e:  # reported below
            errors.append(e)

    others = [threading.Thread(target=replace), threading.Thread(target=call)]
    for thread in others:
        thread.start()
    call()
    others[1].join()
    done.set()
    others[0].join()
    assert not errors
    solver.v = array([0] * n)
    solver.step(1.0)
    np.testing.assert_allclose(solver.v.to_numpy(), 2 / np.arange(1, n + 1))


PROGRAM = """
import sys, numpy as np, vkchi as ti
ti.init(arch=ti.vulkan, log_level="error")
n, dtype = int(sys.argv[1]), getattr(ti, sys.argv[2])

@ti.data_oriented
class S:
    def __init__(self):
        self.x, self.y = ti.ndarray(dtype, n), ti.ndarray(ti.f32, n)
        self.x.fill(3)
        if sys.argv[3] == "same":
            self.y = self.x

    @ti.kernel
    def run(self):
        for i in self.x:
            self.y[i] += self.x[i] * 2

s = S()
s.run(); s.run()
print(s.y.to_numpy().tolist())
"""


def test_processes_that_share_the_disk_cache(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    more = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path / "cache")}
    for given, want in (
        ("3 f32 apart", [12.0] * 3), ("3 f32 apart", [12.0] * 3), ("2 i32 apart", [12.0] * 2),
        ("3 f32 same", [27.0] * 3), ("2 f32 apart", [12.0] * 2),
    ):  # fmt: skip
        command = [sys.executable, str(file), *given.split()]
        done = subprocess.run(
            command, env={**os.environ, **more}, capture_output=True, text=True, check=False
        )
        assert done.stdout.strip() == str(want), done.stderr


# --- refusals ------------------------------------------------------------------------------------


def test_arrays_without_a_name_raise() -> None:
    arrays = {"x": array([1, 2])}

    @ti.kernel
    def run():
        x = arrays.get("x")
        x[0] = 1.0

    with pytest.raises(ti.TaichiCompilationError, match="an ndarray that no name leads to") as e:
        run()
    assert "read it from a name or an attribute" in e.value.help


def test_a_property_that_makes_arrays_raises() -> None:
    @ti.data_oriented
    class Maker:
        @property
        def x(self) -> Any:
            return ti.ndarray(ti.f32, 2)

        @ti.kernel
        def run(self):
            self.x[0] = self.x[1]

    with pytest.raises(ti.TaichiCompilationError, match=r"`self\.x` is another ndarray"):
        Maker().run()


def test_saved_modules_take_members_by_name(tmp_path: Path) -> None:
    solver, module = Solver(2), ti.aot.Module()
    for kernel in (solver.step, solver.by_items, Two(solver.v, array([1, 2])).chain):
        module.add_kernel(kernel)
    module.save(str(tmp_path))
    loaded = ti.aot.load(str(tmp_path))
    v, force, mass = array([0, 0, 0]), array([1, 1, 1]), array([1, 2, 4])
    links = {"self.links.force": force, "self.links.mass": mass}
    for _ in range(2):
        loaded.step(0.5, **{"self.v": v}, **links)
    assert v.to_numpy().tolist() == [2, 1, 0.5]
    loaded.by_items(**{"self.parts.0": v, "self.parts.1": force})
    assert v.to_numpy().tolist() == [3, 2, 1.5]
    for a, b in ((v, force), (v, v), (force, v)):  # the code assumes nothing about overlaps
        known = {id(a): a.to_numpy(), id(b): b.to_numpy()}
        chained(known[id(a)], known[id(b)])
        loaded.chain(**{"self.a": a, "self.b": b})
        assert np.array_equal(a.to_numpy(), known[id(a)])
        assert np.array_equal(b.to_numpy(), known[id(b)])
    with pytest.raises(ti.TaichiRuntimeError, match=r"the array `self\.v` is missing"):
        loaded.step(0.5, **links)
    with pytest.raises(ti.TaichiRuntimeError, match="an array of f32 is needed"):
        loaded.step(0.5, **links, **{"self.v": ti.ndarray(ti.i32, 3)})


def test_saved_graphs_take_members_by_name(tmp_path: Path) -> None:
    solver, graph, module = Solver(2), ti.graph.GraphBuilder(), ti.aot.Module()
    graph.dispatch(solver.step, ti.graph.Arg(ti.graph.ArgKind.SCALAR, "dt", ti.f32))
    graph.dispatch(Two(solver.v, array([1, 2])).chain)
    graph.dispatch(solver.step, 1.0)
    module.add_graph("run", graph.compile())
    module.save(str(tmp_path))
    loaded = ti.aot.load(str(tmp_path)).graphs["run"]
    v, force, mass = array([0, 0, 0]), array([1, 1, 1]), array([1, 2, 4])
    given = {"self.v": v, "self.links.force": force, "self.links.mass": mass, "self.a": v}
    other, want = array([1, 1, 1]), np.zeros(3)
    for dt in (0.5, 2.0):
        loaded.run({"dt": dt, "self.b": other, **given})
        want = want + 2 * dt / mass.to_numpy() + 11 + 2 / mass.to_numpy()
    assert v.to_numpy().tolist() == want.tolist()
    assert other.to_numpy().tolist() == [4, 4, 4]
    with pytest.raises(ti.TaichiRuntimeError, match=r"no values: self\.b"):
        loaded.run({"dt": 1.0, **given})
    graph.dispatch(Solver(2).step, 1.0)
    with pytest.raises(ti.TaichiRuntimeError, match="the graph has another of this name"):
        module.add_graph("other", graph.compile())


# --- random programs -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_edits_between_calls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [array(rng.integers(0, 9, 6)) for _ in range(5)]
    values = {id(a): a.to_numpy() for a in arrays}
    two, made = Two(arrays[0], arrays[1]), 1
    for _ in range(40):
        if rng.random() < 0.6:
            name = "ab"[rng.integers(2)]
            setattr(two, name, arrays[rng.integers(5)])
        elif rng.random() < 0.3:
            two, made = Two(arrays[rng.integers(5)], arrays[rng.integers(5)]), made + 1
        if rng.random() < 0.5:
            two.chain()
            chained(values[id(two.a)], values[id(two.b)])
        else:
            x = arrays[rng.integers(5)]
            two.with_argument(x)
            chained(values[id(x)], values[id(two.b)])
        for a in arrays:
            values[id(a)] %= 64
            a.from_numpy(a.to_numpy() % 64)
            assert np.array_equal(a.to_numpy(), values[id(a)])
    assert compiled("chain") <= 3 * made


# --- arrays that code reaches without a path ------------------------------------------------------


@ti.func
def first_of(arrays):
    return arrays[0][0]


@ti.data_oriented
class Parts:
    """An array that is an attribute, an item of a list and a value of a dict."""

    def __init__(self) -> None:
        self.x = array([1])
        self.parts = [self.x, array([2])]
        self.rows = {"v": self.x}

    @ti.kernel
    def variable(self) -> ti.f32:
        s = self.x[0]
        parts = self.parts
        return s * 10 + parts[0][0]

    @ti.kernel
    def argument(self) -> ti.f32:
        return self.x[0] * 10 + first_of(self.parts)

    @ti.kernel
    def values(self) -> ti.f32:
        s = self.x[0]
        for a in ti.static(self.rows.values()):
            s = s * 10 + a[0]
        return s

    @ti.kernel
    def part(self) -> ti.f32:
        s = self.x[0]
        for a in ti.static(self.parts[:1]):
            s = s * 10 + a[0]
        return s

    @ti.kernel
    def comparison(self) -> ti.i32:
        return ti.static(self.parts[:1] == [self.x])


@pytest.mark.parametrize(
    "name, before, after",
    [
        ("variable", 11, 71), ("argument", 11, 71), ("values", 11, 71), ("part", 11, 71),
        ("comparison", 1, 0),
    ],
)  # fmt: skip
def test_a_replaced_attribute_leaves_containers_alone(name: str, before: int, after: int) -> None:
    parts = Parts()
    assert getattr(parts, name)() == before
    parts.x = array([7])
    assert getattr(parts, name)() == after
