"""Values of Python that change after a kernel was compiled: the next call has the new ones.

Expected values are those of the plain Python functions, evaluated by hand.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import decimal
import enum
import fractions
import types
import warnings
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import RecompilationWarning
from vkchi.runtime import current_runtime

SCALE, WEIGHTS, TABLE, GRAVITY = 2, [1, 2, 4], {"a": 1, "b": 5}, ti.Vector([1.0, 2.0])
SETTINGS = types.SimpleNamespace(n=3, inner=types.SimpleNamespace(k=4))
SMALL, LARGE = np.array([1, 2, 3]), np.zeros(1000)
FIELD: Any = None


@ti.func
def once(x):
    return x + 1


@ti.func
def twice(x):
    return x + 2


@ti.func
def stronger():
    return 2.0


STEP = once


@pytest.fixture(autouse=True)
def restored():
    """The globals are put back after each test."""
    names = ("SCALE", "WEIGHTS", "TABLE", "GRAVITY", "SETTINGS", "SMALL", "FIELD", "STEP")
    before = {name: globals()[name] for name in names}
    globals()["WEIGHTS"], globals()["TABLE"] = list(WEIGHTS), dict(TABLE)
    globals()["GRAVITY"], globals()["SMALL"] = ti.Vector([1.0, 2.0]), SMALL.copy()
    globals()["SETTINGS"] = types.SimpleNamespace(n=3, inner=types.SimpleNamespace(k=4))
    yield
    globals().update(before)


def compiled() -> int:
    """Number of kernels that were compiled, or found in the cache."""
    return len(current_runtime().compiled)


@ti.func
def scaled(x):
    return x * SCALE


@ti.kernel
def read_globals() -> ti.f32:
    s = 0.0
    for k in ti.static(range(SETTINGS.n)):
        s += WEIGHTS[k] * 100
    return s + scaled(1) + SETTINGS.inner.k * 10 + TABLE["a"] * 1000 + GRAVITY.y * 10000 + STEP(0)


def expected() -> float:
    s = sum(WEIGHTS[k] * 100 for k in range(SETTINGS.n))
    step = 1 if STEP is once else 2
    return s + SCALE + SETTINGS.inner.k * 10 + TABLE["a"] * 1000 + GRAVITY.y * 10000 + step


def test_globals_items_attributes_and_functions() -> None:
    global SCALE, STEP, GRAVITY, WEIGHTS, TABLE

    def check() -> None:
        for _ in range(4):  # the guard is generated in between
            assert read_globals() == expected()

    check()
    SCALE = 3
    check()
    WEIGHTS[1] = 9
    check()
    SETTINGS.n = 2
    check()
    SETTINGS.inner.k = 5
    check()
    SETTINGS.inner = types.SimpleNamespace(k=6)
    check()
    TABLE["a"] = 7
    check()
    GRAVITY[1] = 4.0
    check()
    GRAVITY = ti.Vector([0.0, 5.0])
    check()
    STEP = twice
    check()
    WEIGHTS, TABLE = [5, 6, 7], {"a": 3}
    check()


def test_unread_and_equal_values_do_not_recompile() -> None:
    global WEIGHTS, SCALE, GRAVITY
    read_globals()
    SETTINGS.n = 2
    read_globals()
    before = compiled()
    TABLE["b"], WEIGHTS[2], SETTINGS.other = 50, 70, 1
    assert read_globals() == expected()
    WEIGHTS, GRAVITY = list(WEIGHTS), ti.Vector([1.0, 2.0])
    SETTINGS.inner = types.SimpleNamespace(k=4, more=5)
    assert read_globals() == expected()
    assert compiled() == before


def test_values_that_come_back_compile_nothing() -> None:
    global SCALE
    for SCALE in (2, 3, 2):
        assert read_globals() == expected()
    before = compiled()
    for SCALE in (3, 2, 3, 2):
        assert read_globals() == expected()
    assert compiled() == before


def test_types_and_bits_count() -> None:
    global SCALE

    @ti.kernel
    def halved(n: ti.i32) -> ti.f32:
        return n / SCALE if ti.static(isinstance(SCALE, float)) else n // SCALE

    @ti.kernel
    def sign() -> ti.f32:
        return 1.0 / SCALE

    SCALE = 2
    assert halved(5) == 2
    SCALE = 2.0
    assert halved(5) == 2.5
    SCALE = True
    assert halved(5) == 5
    SCALE = 0.0
    assert sign() == np.inf
    SCALE = -0.0
    assert sign() == -np.inf


def test_closure_variables() -> None:
    def make() -> Any:
        n, deep = 1, [1, [2, 3]]

        @ti.kernel
        def k() -> ti.i32:
            s = n
            for x in ti.static(deep[1]):
                s += 10 * x
            return s

        def change(to: int) -> None:
            nonlocal n
            n = to

        return k, change, deep

    k, change, deep = make()
    assert [k(), k()] == [51, 51]
    change(4)
    assert [k(), k(), k()] == [54, 54, 54]
    deep[1][0] = 7
    assert k() == 104
    deep[1].append(1)
    assert k() == 114


@ti.data_oriented
class Solver:
    def __init__(self) -> None:
        self.dt, self.x = 1.0, ti.field(ti.f32, 2)
        self.grid = types.SimpleNamespace(n=2)
        self.terms = [types.SimpleNamespace(c=1.0), types.SimpleNamespace(c=2.0)]

    @property
    def twice(self) -> float:
        return self.dt * 2

    @ti.func
    def force(self):
        return 1.0

    def scale(self, by: float) -> float:
        return self.grid.n * by

    @ti.kernel
    def step(self) -> ti.f32:
        s = 0.0
        for term in ti.static(self.terms):
            s += term.c
        self.x[0] += self.dt
        return s * 10 + self.twice + self.grid.n * 100 + self.force() * 1000

    @ti.kernel
    def by_method(self) -> ti.f32:
        return self.scale(3.0)


def test_attributes_of_self() -> None:
    s, other = Solver(), Solver()
    assert [s.step() for _ in range(3)] == [1232.0] * 3
    s.dt = 2.0
    assert [s.step(), other.step()] == [1234.0, 1232.0]
    assert s.x[0] == 5.0
    s.grid.n = 3
    assert s.step() == 1334.0
    s.terms[1].c = 5.0
    assert s.step() == 1364.0
    s.terms.append(types.SimpleNamespace(c=1.0))
    assert s.step() == 1374.0
    s.force = stronger  # of the object itself
    assert s.step() == 2374.0
    del s.force
    assert s.step() == 1374.0


def test_a_field_of_self_that_was_replaced() -> None:
    s = Solver()
    for _ in range(3):
        s.step()
    old, s.x = s.x, ti.field(ti.f32, 3)
    for _ in range(3):
        s.step()
    assert (old[0], s.x[0]) == (3.0, 3.0)
    s.x, old = old, s.x
    s.step()
    assert (s.x[0], old[0]) == (4.0, 3.0)


def test_values_read_by_compile_time_methods() -> None:
    s = Solver()
    assert s.by_method() == 6.0
    s.grid.n = 4
    assert s.by_method() == 12.0


def test_replaced_fields_keep_few_old_ones_alive() -> None:
    import gc
    import weakref

    s, old = Solver(), []
    for _ in range(8):
        s.x = ti.field(ti.f32, 2)
        old.append(weakref.ref(s.x))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            s.step()
    gc.collect()
    assert sum(x() is not None for x in old) <= 5


class Kind(enum.Enum):
    A = 1
    B = 5


def test_python_functions_that_run_at_compile_time() -> None:
    state = types.SimpleNamespace(rate=2.0, limits={"low": 1})

    def rate() -> float:
        return state.rate * len(WEIGHTS) + state.limits["low"]

    @ti.kernel
    def k() -> ti.f32:
        return rate()

    assert k() == 7.0
    state.rate = 3.0
    assert k() == 10.0
    state.limits["low"] = 2
    assert k() == 11.0
    WEIGHTS.append(1)
    assert k() == 14.0


def test_defaults_partials_and_sets() -> None:
    import functools

    options, known = {"n": 2}, {1, 2}

    @ti.func
    def f(x, o=options):
        return x * o["n"]

    by = functools.partial(f, 3)

    @ti.kernel
    def k() -> ti.i32:
        s = by()
        if ti.static(2 in known):
            s += 100
        return s

    assert k() == 106
    options["n"] = 4
    assert k() == 112
    known.remove(2)
    assert k() == 12
    f.__vkchi_func__.__defaults__ = ({"n": 1},)
    assert k() == 3
    by = functools.partial(f, 5)
    assert k() == 5


def test_small_numpy_arrays_and_replaced_large_ones() -> None:
    global SMALL
    box = types.SimpleNamespace(table=np.zeros(1000))

    @ti.kernel
    def k() -> ti.i32:
        return SMALL[0] + 10 * ti.static(int(box.table[0]))

    assert k() == 1
    SMALL[0] = 4
    assert k() == 4
    SMALL = np.array([7])
    assert k() == 7
    box.table = np.ones(1000)
    assert k() == 17
    before = compiled()
    box.table = np.ones(1000)  # the same contents
    assert k() == 17 and compiled() == before


def test_objects_compared_with_none_and_with_each_other() -> None:
    box = types.SimpleNamespace(mesh=None, a=object(), b=object())

    @ti.kernel
    def k() -> ti.i32:
        return ti.static(1 if box.mesh is None else 2) + ti.static(10 if box.a is box.b else 0)

    assert k() == 1
    box.mesh = types.SimpleNamespace()
    assert k() == 2
    box.b = box.a
    assert k() == 12
    box.mesh = None
    assert k() == 11


def test_changed_containers() -> None:
    queue, counts = collections.deque([1, 2]), collections.OrderedDict(a=1)

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for x in ti.static(queue):
            s += x
        for _, v in ti.static(counts.items()):
            s += 10 * v
        return s

    assert k() == 13
    queue.append(3)
    assert k() == 16
    counts["b"] = 2
    assert k() == 36


def test_names_that_are_deleted_are_errors() -> None:
    box = types.SimpleNamespace(n=1)

    @ti.kernel
    def k() -> ti.i32:
        return box.n

    assert k() == 1
    del box.n
    with pytest.raises(ti.TaichiCompilationError, match="no attribute `n`"):
        k()
    box.n = 3
    assert k() == 3


def test_values_that_change_at_each_step_are_warned_of_once() -> None:
    s = Solver()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(20):
            s.dt = float(step)
            assert s.step() == 1230.0 + 2 * step
    found = [w for w in caught if w.category is RecompilationWarning]
    assert len(found) == 1  # not of `self.twice`, which is made of it
    assert "`self.dt` has had more than 8 values" in str(found[0].message)
    assert "pass it as an argument" in str(found[0].message)
    line = found[0].lineno
    assert open(__file__).read().splitlines()[line - 1].strip() == "self.x[0] += self.dt"
    before = compiled()
    for step in range(5, 20):  # they are in memory
        s.dt = float(step)
        s.step()
    assert compiled() == before


def test_seldom_changes_are_not_warned_of() -> None:
    s = Solver()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(40):
            s.dt = float(step % 8)
            s.step()


def test_tapes_and_forward_mode() -> None:
    box = types.SimpleNamespace(c=2.0)
    x, loss = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def square():
        loss[None] += box.c * x[None] ** 2

    x[None] = 3.0
    for c in (2.0, 2.0, 2.0, 5.0, 5.0, 2.0):
        box.c, loss[None] = c, 0.0
        with ti.ad.Tape(loss):
            square()
        assert (loss[None], x.grad[None]) == (c * 9, c * 6)
    box.c, x.grad[None], loss.grad[None] = 7.0, 0.0, 1.0
    square.grad()
    assert x.grad[None] == 42.0


def test_forward_mode() -> None:
    box = types.SimpleNamespace(c=2.0)
    x, y = (ti.field(ti.f32, (), needs_dual=True) for _ in range(2))
    x[None] = 3.0

    @ti.kernel
    def cube():
        y[None] = box.c * x[None] ** 3

    for c in (2.0, 2.0, 4.0, 4.0):
        box.c = c
        with ti.ad.FwdMode(loss=y, param=x):
            cube()
        assert y.dual[None] == c * 27


def test_graphs_and_records_look_once_per_run() -> None:
    box = types.SimpleNamespace(c=1)
    x = ti.ndarray(ti.i32, 2)

    @ti.kernel
    def add(x: ti.types.ndarray(ti.i32, 1)):
        for i in x:
            x[i] += box.c

    builder = ti.graph.GraphBuilder()
    builder.dispatch(add, ti.graph.Arg(ti.graph.ArgKind.NDARRAY, "x", ti.i32, ndim=1))
    graph = builder.compile()
    with ti.record() as g:
        add(x)
    for c in (1, 1, 10, 10, 1):
        box.c = c
        before = x[0]
        graph.run({"x": x})
        g.run(2)
        assert x[0] == before + 3 * c


@dataclasses.dataclass(frozen=True)
class Constants:
    n: Any


def test_templates_that_are_equal_and_of_other_types_or_bits() -> None:
    @ti.kernel
    def k(c: ti.template(), x: ti.f32) -> ti.f32:
        return x / c.n if ti.static(isinstance(c.n, float)) else x // c.n

    assert [k(Constants(2), 5), k(Constants(2.0), 5), k(Constants(True), 5)] == [2.0, 2.5, 5.0]
    assert [k(Constants(0.0), 1), k(Constants(-0.0), 1)] == [np.inf, -np.inf]
    before = compiled()
    k(Constants(2.0), 5)
    assert compiled() == before


class Named:
    """Objects that are equal by their names."""

    def __init__(self, name: str, x: Any) -> None:
        self.name, self.x = name, x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_templates_with_custom_equality_are_distinguished() -> None:
    x, y = ti.field(ti.i32, ()), ti.field(ti.i32, ())

    @ti.kernel
    def fill(to: ti.template(), value: ti.i32):
        to.x[None] = value

    a, b = Named("a", x), Named("a", y)
    fill(a, 5)
    fill(b, 6)
    assert (x[None], y[None]) == (5, 6)
    b.x = x
    fill(b, 7)
    assert (x[None], y[None]) == (7, 6)


def test_mutable_templates() -> None:
    @dataclasses.dataclass
    class State:
        n: int
        t: float = 0.0

    @ti.kernel
    def k(s: ti.template()) -> ti.i32:
        return s.n * 10

    state = State(2)
    assert k(state) == 20
    state.n = 3
    assert k(state) == 30
    before = compiled()
    state.t = 5.0  # it is not read
    assert k(state) == 30 and compiled() == before


# --- classes, names -------------------------------------------------------------------------------


class Low:
    level = 1

    def weight(self):
        return 10


class High:
    level = 2

    def weight(self):
        return 20


class Item(Low):
    pass


def test_the_class_of_an_object_and_the_bases_of_a_class() -> None:
    item, low = Item(), Low()
    boxes = [low]

    @ti.kernel
    def k() -> ti.i32:
        return item.level + item.weight()

    @ti.kernel
    def of_template(t: ti.template()) -> ti.i32:
        return t.level + t.weight()

    @ti.kernel
    def of_list() -> ti.i32:
        s = 0
        for b in ti.static(boxes):
            s += b.level
        return s

    def check(of_item: int, of_low: int) -> None:
        for _ in range(4):
            found = [k(), of_template(item), of_template(low), of_list()]
            assert found == [of_item, of_item, of_low, of_low % 10]

    try:
        check(11, 11)
        Item.__bases__ = (High,)
        check(22, 11)
        low.__class__ = High
        check(22, 22)
        Item.__bases__ = (Low,)
        check(11, 22)
        low.__class__ = Low
        check(11, 11)
    finally:
        Item.__bases__ = (Low,)


def test_the_class_of_self() -> None:
    @ti.data_oriented
    class First:
        @ti.func
        def value(self):
            return 1

        @ti.kernel
        def run(self) -> ti.i32:
            return self.value()

    class Second(First):
        @ti.func
        def value(self):
            return 2

    s = First()
    assert [s.run() for _ in range(4)] == [1] * 4
    s.__class__ = Second
    assert [s.run() for _ in range(4)] == [2] * 4
    s.__class__ = First
    assert s.run() == 1


def test_names_and_texts_of_functions_and_classes() -> None:
    def f() -> None:
        """text"""

    class C:
        pass

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        if ti.static(f.__name__ == "f"):
            s += 1
        if ti.static(f.__doc__ == "text"):
            s += 10
        if ti.static(C.__name__ == "C"):
            s += 100
        return s

    assert [k(), k(), k()] == [111] * 3
    f.__name__ = "g"
    assert k() == 110
    f.__doc__ = "other"
    assert k() == 100
    C.__name__ = "D"
    assert k() == 0
    f.__name__ = "f"
    assert k() == 1


def test_enums_that_are_made_anew() -> None:
    box = types.SimpleNamespace(kind=Kind)

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for m in ti.static(box.kind):
            s += m.value
        return s * 100 + box.kind.A.value + len(box.kind.__members__)

    assert [k(), k(), k()] == [603] * 3
    box.kind = enum.Enum("Kind", {"A": 2, "B": 7, "C": 1})
    assert k() == 1005


# --- further ways to values -----------------------------------------------------------------------


def test_attributes_that_are_added() -> None:
    box = types.SimpleNamespace(n=1)

    @ti.kernel
    def k() -> ti.i32:
        return ti.static(box.more if hasattr(box, "more") else 0) + getattr(box, "other", 5)

    assert [k(), k(), k()] == [5] * 3
    box.more = 10
    assert k() == 15
    box.other = 100
    assert k() == 110
    del box.more
    assert k() == 100


def test_python_structs_and_struct_types() -> None:
    params, pair = ti.Struct(a=1, v=ti.Vector([1.0, 2.0])), ti.types.struct(x=ti.i32)
    pair.packed = 1

    @ti.func
    def of(p):
        return p.a + p.v.y

    @ti.kernel
    def k() -> ti.f32:
        p = params
        return of(params) * 100 + p.a + params.v.x * 10 + ti.static(pair.packed) * 1000

    assert [k(), k(), k()] == [1311.0] * 3
    params.a = 2
    assert k() == 1412.0
    params.v[1] = 3.0
    assert k() == 1512.0
    pair.packed = 2
    assert k() == 2512.0


def test_objects_that_no_name_leads_to() -> None:
    bodies = collections.deque([types.SimpleNamespace(m=1), types.SimpleNamespace(m=2)])

    class Base:
        level = 1

    class Item(Base):
        def run(self):
            return 0

    item = Item()

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for b in ti.static(bodies):
            s += b.m
        return s + type(item).level * 10 + item.__class__.level * 100

    assert [k(), k(), k()] == [113] * 3
    bodies[0].m = 5
    assert k() == 117
    bodies.append(types.SimpleNamespace(m=3))
    assert k() == 120
    Base.level = 2
    assert k() == 230
    Item.level = 3
    assert k() == 340


def test_objects_made_at_compile_time_compile_nothing_again() -> None:
    class Made:
        def __init__(self, n):
            self.n, self.list = n, [n]

        @property
        def twice(self):
            return types.SimpleNamespace(n=self.n * 2)

    def make(n):
        return Made(n)

    maker = types.SimpleNamespace(make=make, made=Made(2))

    @ti.kernel
    def k() -> ti.i32:
        m = ti.static(make(3))
        return m.n + m.twice.n + m.list[0] + maker.made.twice.n * 100 + ti.static(Made(4)).n

    assert k() == 416
    before = compiled()
    assert [k() for _ in range(5)] == [416] * 5
    assert compiled() == before
    maker.made.n = 3
    assert k() == 616


def test_properties_that_change_by_themselves_compile_nothing_again() -> None:
    class Clock:
        def __init__(self):
            self.count = 0

        @property
        def time(self):
            self.count += 1
            return self.count

    clock = Clock()

    @ti.kernel
    def k() -> ti.i32:
        return ti.static(clock.time) * 0 + 1

    assert k() == 1
    before = compiled()
    assert [k() for _ in range(5)] == [1] * 5
    assert compiled() == before


def test_dicts_that_answer_attributes() -> None:
    class Config(dict):
        __getattr__ = dict.get

    config = Config(n=1, t=0.0)

    @ti.kernel
    def k() -> ti.i32:
        return config.n + ti.static(0 if config.other is None else 10)

    assert [k(), k(), k()] == [1] * 3
    before = compiled()
    config["t"] = 5.0
    assert k() == 1 and compiled() == before
    config["n"] = 2
    assert k() == 2
    config["other"] = 1
    assert k() == 12


def test_types_in_annotations_and_block_sizes() -> None:
    box = types.SimpleNamespace(t=ti.i32, block=32)
    x = ti.field(ti.f32, 100)

    @ti.kernel
    def k() -> ti.f32:
        v: box.t = 2.7
        ti.loop_config(block_dim=box.block)
        for i in x:
            x[i] = i
        return v

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [k(), k(), k()] == [2.0] * 3
        box.t, box.block = ti.f32, 64
        assert abs(k() - 2.7) < 1e-6


def test_torch_operators() -> None:
    torch = pytest.importorskip("torch")
    box = types.SimpleNamespace(c=2.0, squared=True)
    ti.init()

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def f(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
        for i in x:
            y[i] = box.c * x[i] ** 2 if ti.static(box.squared) else box.c * x[i]

    for c, squared in ((2.0, True), (2.0, False), (5.0, False), (5.0, True), (2.0, True)):
        box.c, box.squared = c, squared
        x = torch.tensor([1.0, 3.0], requires_grad=True)
        y = f(x)
        y.sum().backward()
        assert y.tolist() == ([c, 9 * c] if squared else [c, 3 * c])
        assert x.grad.tolist() == ([2 * c, 6 * c] if squared else [c, c])
    x = torch.tensor([1.0], requires_grad=True)
    y = f(x)
    box.c = 7.0
    with pytest.raises(RuntimeError, match="changed since the forward pass"):
        y.sum().backward()


def test_object_by_two_names() -> None:
    box = types.SimpleNamespace(a=types.SimpleNamespace(k=1))
    box.b = box.a

    @ti.func
    def both(p, q):
        return p.k * 10 + q.k

    @ti.kernel
    def k() -> ti.i32:
        return both(box.a, box.b)

    assert [k(), k(), k()] == [11] * 3
    box.b = types.SimpleNamespace(k=5)
    assert k() == 15
    box.a = types.SimpleNamespace(k=2)
    assert k() == 25


def test_class_attributes_by_super_and_by_class_methods() -> None:
    class Base:
        scale = 2

    @ti.data_oriented
    class Derived(Base):
        n = 3

        @ti.kernel
        def run(self) -> ti.i32:
            return super().scale

        @classmethod
        @ti.kernel
        def of_class(cls) -> ti.i32:
            return cls.n

    d = Derived()
    assert [d.run(), d.run(), d.run(), Derived.of_class()] == [2, 2, 2, 3]
    Base.scale, Derived.n = 5, 7
    assert [d.run(), Derived.of_class()] == [5, 7]


def test_objects_that_refer_to_each_other_are_freed() -> None:
    import gc
    import weakref

    @ti.data_oriented
    class Owner:
        def __init__(self):
            self.part = types.SimpleNamespace(owner=self, n=2)
            self.parts = [self.part]

        @ti.kernel
        def run(self) -> ti.i32:
            s = 0
            for part in ti.static(self.parts):
                s += part.n
            return s + self.part.n

    owner = Owner()
    assert [owner.run() for _ in range(4)] == [4] * 4
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_torch_operators_of_several_objects() -> None:
    torch = pytest.importorskip("torch")
    ti.init()

    @ti.data_oriented
    class Scaled:
        def __init__(self, c: float) -> None:
            self.c = c
            self.op = ti.torch_op(self.run, outputs={"y": "x"})

        @ti.kernel
        def run(self, x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
            for i in x:
                y[i] = self.c * x[i] ** 2

    first, second = Scaled(2.0), Scaled(3.0)
    for c in (3.0, 4.0, 5.0):  # between the passes nothing changes
        second.c = c
        x = torch.tensor([1.0, 3.0], requires_grad=True)
        y = second.op(first.op(x))
        y.sum().backward()
        assert y.tolist() == [c * 4, c * 4 * 81]
        assert x.grad.tolist() == [c * 16, c * 16 * 27]


def test_vectors_of_the_same_bits_and_of_another_type_or_shape() -> None:
    box = types.SimpleNamespace(v=ti.Vector([0.0, 0.0]), m=ti.Matrix([[1.0, 2.0, 3.0, 4.0]]))

    @ti.kernel
    def k() -> ti.f32:
        x = box.v
        x += 0.75
        return x[0] + ti.static(box.m.n) * 10

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [k() for _ in range(4)] == [10.75] * 4
        box.v = ti.Vector([0, 0])  # its sum is cut
        assert [k() for _ in range(4)] == [10.0] * 4
        box.m = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
        assert [k() for _ in range(4)] == [20.0] * 4


def test_containers_of_the_same_objects_are_compared_by_these() -> None:
    from vkchi.frontend.state.captured_values import same_as
    from vkchi.lang import value_keys

    cyclic: list[Any] = [1, [2]]
    cyclic.append(cyclic)
    given = [
        [types.SimpleNamespace(m=1) for _ in range(3)],
        [[1.0, 2.0], (3.0, [4.0])],
        {"a": [1], "b": ti.Vector([1.0, 2.0])},
        {1, 2, "c"},
        (np.zeros(3), Kind.A, twice, SMALL.dtype),
        cyclic,
    ]
    tests = [same_as(value) for value in given]
    assert all(test(value) for test, value in zip(tests, given, strict=True))
    looks: list[Any] = []
    before = value_keys._others
    value_keys._others = lambda *args: (looks.append(args), before(*args))[1]
    try:
        assert all(test(value) for test, value in zip(tests, given, strict=True))
    finally:
        value_keys._others = before
    assert not looks  # the keys of contents are not made anew
    given[0][1] = types.SimpleNamespace(m=1)
    given[1][1][1][0] = 5.0
    given[2]["b"][1] = 3.0
    given[3].remove("c")
    given[4][0][2] = 1.0
    cyclic[1][0] = 3
    assert not any(test(value) for test, value in zip(tests, given, strict=True))


def test_the_numbers_of_an_array_do_not_matter_where_its_shape_is_read() -> None:
    box = types.SimpleNamespace(image=np.zeros((100, 50)), table=np.arange(4))

    @ti.kernel
    def size() -> ti.i32:
        return box.image.shape[0] * box.image.ndim + box.image.size * 10

    @ti.kernel
    def both() -> ti.i32:
        return box.table.shape[0] * 100 + box.table[1]

    assert size() == 50200
    before = compiled()
    for k in range(4):
        box.image = np.full((100, 50), float(k))
        assert size() == 50200
    assert compiled() == before
    box.image = np.zeros((7, 2))
    assert size() == 154
    for _ in range(4):
        assert both() == 401
    box.table[1] = 9
    assert both() == 409


# --- containers of Python's library, and numbers of other classes ---------------------------------


class Meters(int):
    pass


def total(items: Any) -> int:
    return sum(int(x) for x in items)


def first_of(items: Any) -> int:
    return int(next(iter(items)))


def objects(*items: Any) -> Any:
    made = np.empty(len(items), object)
    made[:] = items
    return made


@ti.data_oriented
class Box:
    def __init__(self, held: Any) -> None:
        self.held = held

    @ti.kernel
    def total(self) -> ti.i32:
        return ti.static(total(self.held))

    @ti.kernel
    def first(self) -> ti.i32:
        return ti.static(first_of(self.held))

    @ti.kernel
    def contains(self) -> ti.i32:
        return ti.static(1 if 1 in self.held else 0)

    @ti.kernel
    def by_index(self) -> ti.i32:
        held = self.held
        return held[0] * 10 + held[1]

    @ti.kernel
    def value_or(self) -> ti.i32:
        return ti.static(self.held.get(0, 5))

    @ti.kernel
    def pairs(self) -> ti.i32:
        s = 0
        for _, x in ti.static(self.held.items()):
            s = s * 10 + x
        return s

    @ti.kernel
    def number(self) -> ti.i32:
        return ti.static(int(self.held))

    @ti.kernel
    def sum(self) -> ti.i32:
        return ti.static(int(self.held + 1))

    @ti.kernel
    def values(self) -> ti.i32:
        return ti.static([int(x) for x in self.held.values()][0])


@pytest.mark.parametrize("name, before, after", [
    ("total", 3, 9), ("first", 1, 7), ("contains", 1, 0), ("by_index", 12, 72),
])  # fmt: skip
@pytest.mark.parametrize("make", [
    collections.deque, collections.UserList, lambda items: array.array("i", items), bytearray,
    lambda items: memoryview(bytearray(items)), lambda items: objects(*items),
])  # fmt: skip
def test_items_that_python_code_reads(make: Any, name: str, before: int, after: int) -> None:
    box = Box(make([1, 2]))
    assert getattr(box, name)() == before
    box.held[0] = 7
    assert getattr(box, name)() == after


@pytest.mark.parametrize("make", [
    types.MappingProxyType, collections.UserDict, collections.ChainMap,
])  # fmt: skip
def test_values_of_mappings(make: Any) -> None:
    given = {0: 1, 1: 2}
    box = Box(make(given))
    assert (box.value_or(), box.pairs()) == (1, 12)
    changed = given if make is types.MappingProxyType else box.held
    changed[0] = 7
    assert (box.value_or(), box.pairs()) == (7, 72)


def test_views_of_dicts() -> None:
    given = {1: 3, 2: 4}
    values, keys = Box(given.values()), Box(given.keys())
    assert (values.total(), keys.total(), keys.contains()) == (7, 3, 1)
    given[5] = given.pop(1)
    assert (values.total(), keys.total(), keys.contains()) == (7, 7, 0)


@pytest.mark.parametrize(
    "make", [Meters, fractions.Fraction, decimal.Decimal, np.int64, np.float32]
)
def test_numbers_that_get_the_address_of_an_earlier_one(make: Any) -> None:
    alone, held = Box(make(1)), Box({0: make(1)})
    for k in range(1, 5):
        alone.held = None
        alone.held = make(k)
        held.held.clear()
        held.held[0] = make(k)
        assert (alone.number(), alone.sum(), held.values()) == (k, k + 1, k)


# --- objects and arrays by several ways -----------------------------------------------------------


class Part:
    def __init__(self, k: int) -> None:
        self.k, self.x = k, ti.ndarray(ti.i32, 1)
        self.x[0] = k


@ti.data_oriented
class Whole:
    """One part under several names, in containers and among other parts."""

    def __init__(self) -> None:
        one = self.one = Part(2)
        self.row, self.rows, self.all = [one, Part(2)], {"a": one}, {one}
        self.tail, self.arrays, self.named = [Part(2), one], [one.x, Part(0).x], {"x": one.x}
        self.p0 = self.p1 = self.p2 = self.p3 = self.p4 = self.p5 = self.p6 = self.p7 = one
        self.p8 = one

    @ti.kernel
    def by_values(self) -> ti.i32:
        s = self.row[-1].k * 0
        for part in ti.static(self.rows.values()):
            s += part.k
        return s

    @ti.kernel
    def by_slice(self) -> ti.i32:
        s = self.one.k * 0
        for part in ti.static(self.tail[1:]):
            s += part.k
        return s

    @ti.kernel
    def by_set(self) -> ti.i32:
        s = self.one.k * 0
        for part in ti.static(list(self.all)):
            s += part.k
        return s

    @ti.kernel
    def by_get(self) -> ti.i32:
        return self.one.k * 0 + self.rows.get("a").k

    @ti.kernel
    def by_array(self) -> ti.i32:
        s = self.arrays[-1][0]
        for x in ti.static(self.named.values()):
            s += x[0]
        return s

    @ti.kernel
    def by_many_names(self) -> ti.i32:
        first = self.p0
        second, third, fourth, fifth = self.p1, self.p2, self.p3, self.p4
        sixth, seventh, eighth, ninth = self.p5, self.p6, self.p7, self.p8
        s = second.k + third.k + fourth.k + fifth.k + sixth.k + seventh.k + eighth.k + ninth.k
        return s + first.k * 100


@pytest.mark.parametrize("name", ["by_values", "by_slice", "by_set", "by_get", "by_array"])
def test_a_part_that_loses_one_of_its_names(name: str) -> None:
    whole = Whole()
    old = whole.one
    assert getattr(whole, name)() == 2
    whole.one, whole.row[0], whole.arrays[0] = Part(2), Part(2), Part(5).x
    assert getattr(whole, name)() == 2
    old.k = old.x[0] = 9
    assert getattr(whole, name)() == 9


def test_a_part_of_nine_names() -> None:
    whole = Whole()
    assert whole.by_many_names() == 216
    whole.p0 = Part(7)
    assert whole.by_many_names() == 716
