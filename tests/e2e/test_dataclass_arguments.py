"""Dataclasses as arguments of kernels and functions: members, numbers at run time, Optional."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import typing
import warnings
import weakref
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
import vkchi.quadrants as qd
from vkchi.errors import ArgumentError, KernelTypeError
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]

Row = ti.types.NDArray[ti.f32, 1]


@pytest.fixture(autouse=True)
def runtime() -> None:
    ti.init(arch=ti.vulkan, log_level="error")


def row(*values: float, needs_grad: bool = False) -> Any:
    made = ti.ndarray(ti.f32, len(values), needs_grad=needs_grad)
    made.from_numpy(np.array(values, np.float32))
    return made


def compiled(name: str) -> int:
    """The number of times that a kernel was compiled."""
    return [n for n, _ in current_runtime().compiled].count(name)


class Mode(Enum):
    ADD = 1
    SUBTRACT = 2


@dataclasses.dataclass(frozen=True)
class Links:
    mass: Row
    force: Row
    mask: Row | None = None


@dataclasses.dataclass(frozen=True)
class State:
    links: Links
    v: ti.Tensor
    n: int = 1
    mode: Mode = Mode.ADD
    name: str = "free"
    order: typing.Final[int] = 2

    @ti.func
    def pushed(self, i):
        return self.links.force[i] / self.links.mass[i]


@ti.func
def masked(links: Links, i):
    found = 1.0
    if links.mask is not None:
        found = links.mask[i]
    return found


@ti.kernel
def step(state: State, dt: ti.f32):
    for i in state.v:
        for _ in ti.static(range(state.order)):
            if state.mode is Mode.ADD and state.name == "free":
                state.v[i] += dt * state.n * state.pushed(i) * masked(state.links, i)
            else:
                state.v[i] -= dt * state.n * state.pushed(i) * masked(state.links, i)


@pytest.mark.ours("dataclass-arguments")
def test_members_of_all_kinds() -> None:
    links, v = Links(row(1, 2), row(3, 4)), row(0, 0)
    for n in (1, 2, 3):
        step(State(links, v, n), 0.5)
    assert v.to_numpy().tolist() == [18, 12]
    assert compiled("step") == 1
    step(State(links, v, 6, Mode.SUBTRACT), 0.5)
    assert v.to_numpy().tolist() == [0, 0]
    step(State(links, v, 6, name="fixed"), 0.5)
    assert v.to_numpy().tolist() == [-18, -12]
    step(State(dataclasses.replace(links, mask=row(1, 0)), v, order=1), 2.0)
    assert v.to_numpy().tolist() == [-12, -12]
    field = ti.field(ti.f32, 2)
    step(state=State(links, field), dt=1.0)
    assert field.to_numpy().tolist() == [6, 4]


@dataclasses.dataclass
class Pair:
    x: Row
    y: Row
    dt: float = 0.5
    n: int = 3


@ti.kernel
def both(a: Pair, b: Pair):
    for i in a.x:
        a.x[i] += b.dt
        b.y[i] += a.dt * a.x[i]


def check_both(a: Pair, b: Pair) -> None:
    """Compare a call with numpy, which sees the arrays that the pairs share."""
    arrays = {id(x): x.to_numpy() for x in (a.x, a.y, b.x, b.y)}
    arrays[id(a.x)] += b.dt
    arrays[id(b.y)] += a.dt * arrays[id(a.x)]
    both(a, b)
    for x in (a.x, a.y, b.x, b.y):
        np.testing.assert_allclose(x.to_numpy(), arrays[id(x)], rtol=1e-5)


def test_one_dataclass_twice_and_shared_arrays() -> None:
    s = Pair(row(1, 2), row(0, 0))
    for s.dt in (0.5, 1.5, 2.5):
        check_both(s, s)
    assert compiled("both") == 1
    t = Pair(row(3, 4), row(1, 1), s.dt)
    for t.dt in (s.dt, 7.0, 3, 4.0):
        check_both(s, t)
    check_both(s, Pair(s.x, s.y, 2.0))
    check_both(s, Pair(s.y, s.x, 2.0))
    check_both(s, s)
    check_both(t, s)


@ti.kernel
def scale(p: Pair, out: Row):
    for i in out:
        out[i] = p.dt * p.n
        if p.n > 2**20:
            out[i] = 7.0


HUNDRED = [f"x{k}" for k in range(100)]
Many = dataclasses.make_dataclass("Many", [(x, ti.types.NDArray[ti.f32, 1]) for x in HUNDRED])


@ti.kernel
def add_hundred(many: Many):
    for i in many.x0:
        for name in ti.static(HUNDRED[1:]):
            many.x0[i] += getattr(many, name)[i]


def test_a_dataclass_of_a_hundred_arrays() -> None:
    many = Many(*[row(k, k) for k in range(100)])
    add_hundred(many)
    assert many.x0.to_numpy().tolist() == [4950, 4950]
    many.x7 = row(1007, 7)
    add_hundred(many)
    assert many.x0.to_numpy().tolist() == [2 * 4950 + 1000, 2 * 4950]
    assert compiled("add_hundred") == 1


def test_numbers_are_read_at_each_call() -> None:
    x = row(0)
    for k, dt in enumerate((0.5, 1.5, -0.0, 2.25)):
        scale(Pair(x, x, dt, k), x)
        assert x[0] == dt * k
    assert compiled("scale") == 1
    scale(Pair(x, x, 3, 5), x)  # an int for a float
    scale(Pair(x, x, np.float32(0.5), np.int64(6)), x)
    assert x[0] == 3
    with pytest.raises(KernelTypeError, match="`p.n` is an integer of 65 bits, which i64"):
        scale(Pair(x, x, 1.0, 2**64), x)


def test_an_integer_takes_64_bits_where_it_needs_them(need: Any) -> None:
    need("i64")
    x = row(0)
    for n, want in ((4, 2.0), (2**33, 7.0), (5, 2.5), (2**40, 7.0), (-(2**31), -(2.0**30))):
        scale(Pair(x, x, 0.5, n), x)
        assert x[0] == want
    assert compiled("scale") == 2

    @ti.kernel
    def square(p: Pair) -> ti.f32:
        return ti.f32(p.n * p.n)

    x.fill(0)
    small = square(Pair(x, x, n=100_000))  # wraps, as an i32
    assert square(Pair(x, x, n=2**33)) == 0
    assert square(Pair(x, x, n=100_000)) == small


@ti.kernel
def double(links: Links, k: ti.i32 = 2, *, pair: Pair | None = None):
    for i in links.mass:
        if pair is None:
            links.mass[i] *= k
        else:
            links.mass[i] += pair.dt


def test_keywords_defaults_and_none() -> None:
    links = Links(row(1, 2), row(0))
    double(links)
    double(links, pair=Pair(row(0), row(0), 2.0))
    double(k=3, links=links)
    double(links, pair=Pair(row(0), row(0), 1.0))
    assert links.mass.to_numpy().tolist() == [13, 19]
    assert compiled("double") == 2  # with and without a pair


def test_a_new_dataclass_for_each_call_hits_the_call_cache() -> None:
    arrays = [row(1, 1) for _ in range(6)]
    for k in range(8):
        for x in arrays:
            double(Links(x, x), 2)
    assert all(x[0] == 256 for x in arrays)
    cache = double._cache
    assert compiled("double") == 1 and len(cache.entries) == 1
    left = cache.notes_left
    for x in arrays:
        double(Links(x, x), 2)
    assert cache.notes_left == left


@dataclasses.dataclass
class Fields:
    x: ti.Field
    dt: float


@ti.kernel
def add_to_field(f: Fields):
    for i in f.x:
        f.x[i] += f.dt


def test_many_dataclasses_of_fields() -> None:
    fields = [ti.field(ti.f32, 2) for _ in range(10)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dt in (1.0, 2.0, 3.0):
            for x in fields:
                add_to_field(Fields(x, dt))
    assert [x[1] for x in fields] == [6] * 10
    assert compiled("add_to_field") <= 10


def test_dataclasses_keep_few_fields_alive() -> None:
    fields = []
    for _ in range(40):
        x = ti.field(ti.f32, 2)
        add_to_field(Fields(x, 1.0))
        assert x[0] == 1
        fields.append(weakref.ref(x))
        del x
    gc.collect()
    assert sum(x() is not None for x in fields) <= 20


# --- replaced members, tapes, graphs -------------------------------------------------------------


@ti.kernel
def loss_of(p: Pair, loss: ti.types.NDArray[ti.f32, 0]):
    for i in p.x:
        loss[None] += p.x[i] * p.x[i] * p.dt + p.y[i] * p.n


def test_tapes_use_the_members_of_the_calls() -> None:
    p = Pair(row(1, 2, needs_grad=True), row(3, 4, needs_grad=True))
    loss = ti.ndarray(ti.f32, (), needs_grad=True)
    first = p.x
    with ti.ad.Tape(loss):
        loss_of(p, loss)
        p.x, p.dt, p.n = row(5, 5, needs_grad=True), 2.0, 10
        loss_of(p, loss)
        second, p.x, p.dt, p.n = p.x, row(7, 7), 100.0, -1
    assert first.grad.to_numpy().tolist() == [1, 2]
    assert second.grad.to_numpy().tolist() == [20, 20]
    assert p.y.grad.to_numpy().tolist() == [13, 13]
    p.x, p.dt = first, 3.0
    loss.grad.fill(1)
    loss_of.grad(p, loss)
    assert first.grad.to_numpy().tolist() == [7, 14]


@ti.kernel
def move(p: Pair):
    for i in p.x:
        p.x[i] += p.dt


def test_graphs_and_records_read_the_members_at_each_run() -> None:
    p = Pair(row(0), row(0))
    builder = ti.graph.GraphBuilder()
    for _ in range(2):
        builder.dispatch(move, p)
    graph = builder.compile()
    with ti.record() as record:
        move(p)
        move(p)
    for run in (lambda: graph.run({}), record.run):
        p.x, p.dt = row(0), 0.5
        for dt, want in ((0.5, 1), (2.0, 5), (2.0, 9), (3, 15), (-7.5, 0)):
            p.dt = dt
            run()
            assert p.x[0] == want
        p.x = row(10)
        run()
        assert p.x[0] == -5


def test_an_optional_member_that_changes() -> None:
    links = Links(row(1, 1), row(2, 2))
    v = row(0, 0)
    for k in range(6):
        mask = row(k, 0) if k % 2 else None
        step(State(dataclasses.replace(links, mask=mask), v, order=1), 0.5)
    assert v.to_numpy().tolist() == [12, 3]
    assert compiled("step") == 2


@dataclasses.dataclass
class Node:
    x: Row
    k: float
    next: Node | None = None


@ti.kernel
def sum_nodes(node: Node) -> ti.f32:
    total = node.k * node.x[0]
    if node.next is not None:
        total += node.next.k * node.next.x[0]
        if ti.static(node.next.next is not None):
            total += 100
    return total


def test_optional_dataclasses_made_anew() -> None:
    x = row(1)
    for k in range(1, 5):
        assert sum_nodes(Node(x, k)) == k
        assert sum_nodes(Node(x, k, Node(row(2), k))) == 3 * k
        assert sum_nodes(Node(x, k, Node(x, 2.0 * k, Node(x, 1.0)))) == 3 * k + 100
    assert compiled("sum_nodes") <= 4
    loop = Node(x, 1.0)
    loop.next = loop
    assert sum_nodes(loop) == 102


# --- classes -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Made:
    x: Row
    a: dataclasses.InitVar[float]
    b: float = 0.0
    hundred: typing.ClassVar[int] = 100
    thousand = 1000

    def __post_init__(self, a: float) -> None:
        self.b, self.extra = 2 * a, 3 * a

    @property
    def twice(self) -> float:
        return self.b * 2


@ti.kernel
def fill_made(m: Made):
    for i in m.x:
        m.x[i] = m.b + m.twice + m.extra + m.hundred + m.thousand


def test_properties_and_class_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    x = row(0)
    for a in (1.0, 2.0, 3.5):
        fill_made(Made(x, a))
        assert x[0] == 1100 + 9 * a
    assert compiled("fill_made") == 1
    monkeypatch.setattr(Made, "hundred", 200)
    fill_made(Made(x, 1.0))
    assert x[0] == 1209

    class Child(Made):
        thousand = 0

    fill_made(Child(x, 1.0))
    assert x[0] == 209
    fill_made(Made(x, 1.0))
    assert x[0] == 1209


@dataclasses.dataclass(slots=True, frozen=True)
class Slots:
    x: Row
    dt: float


@dataclasses.dataclass(slots=True)
class More(Slots.__base__):  # type: ignore[misc]  # object
    x: Row
    dt: float
    z: Row | None = None


@ti.kernel
def add_slots(s: Slots):
    for i in s.x:
        s.x[i] += s.dt


@ti.kernel
def add_more(s: More):
    for i in s.x:
        s.x[i] += s.dt
        if ti.static(s.z is not None):
            s.x[i] += s.z[i]


def test_slots() -> None:
    x = row(0)
    for dt in (1.0, 2.0, 3.0):
        add_slots(Slots(x, dt))
    more = More(x, 1.0)
    for more.dt in (1.0, 2.0, 3.0):
        add_more(more)
    more.z = row(5)
    add_more(more)
    assert x[0] == 20
    assert (compiled("add_slots"), compiled("add_more")) == (1, 2)


@dataclasses.dataclass
class Wider(Pair):
    w: float = 1.0


def test_subclasses_and_other_objects() -> None:
    wide = Wider(row(1), row(0), 0.25)
    move(wide)
    assert wide.x[0] == 1.25
    for other, words in ((3, "int 3"), (None, "None"), (Pair, "the class itself")):
        with pytest.raises(ArgumentError, match=f"argument `p`: a Pair is needed, not {words}"):
            move(other)
    made = Pair(ti.ndarray(ti.f32, (2, 2)), row(0))
    with pytest.raises(KernelTypeError, match=r"`p.x` is an ndarray of f32 with 2 axes; its"):
        move(made)
    with pytest.raises(KernelTypeError, match=r"annotate `x` with ti.types.NDArray\[ti.i32, 1\]"):
        move(Pair(ti.ndarray(ti.i32, 2), row(0)))


# --- objects of classes --------------------------------------------------------------------------


@ti.data_oriented(template_primitives=False)
class Solver:
    size: typing.Final[int]

    def __init__(self, n: int) -> None:
        self.x, self.dt, self.on = ti.ndarray(ti.f32, n), 0.5, True
        self.size, self.pair = n, Pair(self.x, self.x, 8.0)

    @ti.kernel
    def step(self):
        for i in ti.static(range(self.size)):
            if self.on:
                self.x[i] += self.dt

    @ti.kernel
    def add(self, pair: Pair):
        for i in self.x:
            self.x[i] += pair.dt + self.pair.dt

    @ti.kernel
    def unrolled(self):
        for _ in ti.static(range(self.dt)):
            self.x[0] = 1.0


@pytest.mark.ours("numbers-of-objects")
def test_numbers_of_objects_as_arguments() -> None:
    s = Solver(2)
    for s.dt in (0.5, 1.5, 2.0):
        s.step()
    s.on = False
    s.step()
    assert s.x.to_numpy().tolist() == [4, 4]
    assert compiled("step") == 1
    with pytest.raises(KernelTypeError, match="annotate it `dt: typing.Final"):
        s.unrolled()


def test_an_object_that_two_paths_lead_to() -> None:
    s = Solver(1)
    want = 0.0
    for dt in (1.0, 2.0):
        s.pair.dt = dt
        s.add(s.pair)
        s.add(Pair(s.x, s.x, 100.0))
        want += 2 * dt + 100 + dt
        assert s.x[0] == want


@dataclasses.dataclass
class Numbers:
    x: Row
    half: ti.f16 = 1.5
    small: ti.u8 = 3
    on: bool = True
    limit: ti.f32 | None = None
    far: "float | None" = None  # noqa: UP037


@ti.kernel
def sum_numbers(s: Numbers) -> ti.f32:
    total = s.half + s.small + s.on
    if s.limit is not None:
        total += s.limit
    if s.far is not None:
        total += s.far
    return total


def test_numbers_of_declared_types(need: Any) -> None:
    need("f16", "u8")
    x = row(0)
    assert sum_numbers(Numbers(x)) == 5.5
    assert sum_numbers(Numbers(x, 2.5, np.uint8(4), on=False)) == 6.5
    assert [sum_numbers(Numbers(x, limit=k)) for k in (1, 2.0, 3.0)] == [6.5, 7.5, 8.5]
    for _ in range(3):  # beyond f32: as an argument
        assert sum_numbers(Numbers(x, far=1e300)) == float("inf")
        assert np.isnan(sum_numbers(Numbers(x, far=float("nan"))))
    with pytest.raises(ArgumentError, match=r"`s.far`: int 1000.* does not fit f32"):
        sum_numbers(Numbers(x, far=10**400))
    with pytest.raises(KernelTypeError, match="`s.small` is 300, which u8 cannot hold"):
        sum_numbers(Numbers(x, small=300))


def test_views_are_members() -> None:
    x = row(*range(6))
    for k in range(3):
        move(Pair(x[k : k + 3], x, dt=10.0))
    assert x.to_numpy().tolist() == [10, 21, 32, 23, 14, 5]
    with pytest.raises(KernelTypeError, match=r"its annotation: ti.types.NDArray\[ti.f32, 1\]"):
        move(Pair(ti.ndarray(ti.i32, 6)[1:3], x))


T = typing.TypeVar("T")


@dataclasses.dataclass
class Body(typing.Generic[T]):
    x: Row
    k: T

    def __getattr__(self, name: str) -> float:
        if name.startswith("times"):
            return float(name[5:]) * self.k
        raise AttributeError(name)


@dataclasses.dataclass
class World:
    bodies: list[Body[float]]


@ti.kernel
def sum_bodies(world: World, first: Body[float] | None) -> ti.f32:
    total = 0.0
    for body in ti.static(world.bodies):
        total += body.k * body.x[0]
    if first is not None:
        total += first.times10
    return total


def test_lists_of_dataclasses_and_computed_attributes() -> None:
    a, b = row(1), row(10)
    world = World([Body(a, 1.0)])

    def check(first: Body[float] | None) -> None:
        want = sum(body.k * body.x[0] for body in world.bodies)
        assert sum_bodies(world, first) == want + (10 * first.k if first is not None else 0)

    for first in (None, world.bodies[0], Body(a, 2.0)):
        check(first)
    world.bodies[0].k = 5.0
    check(world.bodies[0])
    world.bodies.append(Body(b, 0.5))
    check(None)
    world.bodies[0].x = b
    check(world.bodies[1])
    world = World([Body(a, 3.0), Body(b, 4.0)])
    check(world.bodies[1])
    world.bodies.reverse()
    check(world.bodies[1])


@ti.kernel
def squares(p: Pair, x: Row, y: Row):
    for i in x:
        y[i] = x[i] * x[i] * p.dt * p.x[i]


def test_torch_operators_of_functions() -> None:
    torch = pytest.importorskip("torch")
    pair = Pair(row(2, 2), row(0, 0))

    @ti.torch_op(outputs={"y": "x"})
    def op(x, y):
        squares(pair, x, y)

    x = torch.ones(2, requires_grad=True)
    first, pair.dt = op(x), 3.0
    both, pair.dt = first + op(x), 100.0
    both.sum().backward()
    assert x.grad.tolist() == [14, 14]


CACHED = """
import dataclasses, sys
import vkchi as ti
ti.init(arch=ti.vulkan, log_level="error")

@dataclasses.dataclass
class State:
    x: ti.Tensor
    n: int
    k: "ti.template()"

@ti.kernel
def fill(s: State):
    for i in s.x:
        s.x[i] = s.n * 10 + s.k

for made in (ti.ndarray(ti.f32, 2), ti.field(ti.f32, 2)):
    for n in (int(sys.argv[1]), 7):
        fill(State(made, n, int(sys.argv[2])))
        print(made[1])
"""


def test_processes_with_one_disk_cache_and_other_numbers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CACHED)
    environment = {**os.environ, "VKCHI_CACHE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    environment["VKCHI_DUMP_SPV"] = ""  # would compile all kernels
    for n, k in ((3, 2), (3, 2), (4, 2), (4, 3), (3, 2)):
        command = [sys.executable, str(program), str(n), str(k)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert list(map(float, run.stdout.split())) == [10 * n + k, 70 + k] * 2


def consider(pair: Any) -> float:
    return float(getattr(pair, "d" + "t"))


@ti.kernel
def reflect(pair: Pair) -> ti.f32:
    return consider(pair)


def test_python_code_that_reads_computed_names() -> None:
    x = row(0)
    assert [reflect(Pair(x, x, dt)) for dt in (1.0, 2.0, 1.0, 3.0)] == [1, 2, 1, 3]


# --- programs as Quadrants has them ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DynState:
    pos: qd.Tensor
    vel: qd.types.NDArray[qd.f32, 1]


@dataclasses.dataclass(frozen=True)
class RigidInfo:
    state: DynState
    gravity: float
    enabled: qd.Template
    substeps: int = 1


@qd.func
def integrate(state: DynState, i, dt):
    state.pos[i] += dt * state.vel[i]


@qd.kernel(fastcache=True)
def substep(info: RigidInfo, dt: qd.f32):
    for i in info.state.vel:
        if qd.static(info.enabled):
            for _ in range(info.substeps):
                info.state.vel[i] += dt * info.gravity
                integrate(info.state, i, dt)


def test_a_program_of_quadrants() -> None:
    for backend in (qd.Backend.FIELD, qd.Backend.NDARRAY):
        pos, vel = qd.tensor(qd.f32, shape=3, backend=backend), qd.ndarray(qd.f32, 3)
        for gravity, substeps in ((-2.0, 2), (4.0, 1)):
            substep(RigidInfo(DynState(pos, vel), gravity, True, substeps), 0.5)
        substep(RigidInfo(DynState(pos, vel), 1e3, False), 0.5)
        assert (vel[2], pos[2]) == (0.0, -1.5)
