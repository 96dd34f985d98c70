"""Kernels on several objects of one class: code is shared where the values read are the same."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import RecompilationWarning
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]


@pytest.fixture(autouse=True)
def runtime() -> None:
    ti.init(arch=ti.vulkan, log_level="error")


def compiled(name: str) -> int:
    """The number of times that a kernel was compiled."""
    return [n for n, _ in current_runtime().compiled].count(name)


@ti.data_oriented
class Scaled:
    def __init__(self, n: int, c: float = 2.0) -> None:
        self.c, self.x = c, ti.ndarray(ti.f32, n, needs_grad=True)
        self.total = ti.ndarray(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add(self):
        for i in self.x:
            self.x[i] += self.c

    @ti.kernel
    def sum_squares(self):
        for i in self.x:
            self.total[None] += self.c * self.x[i] ** 2


def test_objects_share_code() -> None:
    objects = [Scaled(n) for n in (1, 2, 3, 8)]
    for k, s in enumerate([*objects, *objects]):
        s.add()
        s.add()
        assert s.x.to_numpy().tolist() == [4.0 + 4.0 * (k >= 4)] * s.x.shape[0]
    assert compiled("add") == 1
    other = Scaled(3, 5.0)
    for s, want in ((other, 5), (objects[0], 10), (other, 10), (objects[1], 10)):
        s.add()
        assert s.x[0] == want
    assert compiled("add") == 2
    objects[2].c = 5.0  # the code of `other`
    objects[2].add()
    assert objects[2].x[2] == 13 and compiled("add") == 2


def test_repeated_calls_of_many_objects() -> None:
    objects = [Scaled(2) for _ in range(20)]
    for _ in range(3):
        for s in objects:
            s.add()
    cache: Any = Scaled.add._cache  # type: ignore[attr-defined]
    assert len(cache.entries) == 20
    for _ in range(300):
        Scaled(2).add()
    assert not cache.notes_left
    last = Scaled(2)
    for _ in range(4):
        last.add()
    assert cache.find((last,)) is not None
    assert [s.x[1] for s in (*objects, last)] == [6.0] * 20 + [8.0]


def test_objects_that_are_gone() -> None:
    first = Scaled(2)
    first.add()
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    for _ in range(30):
        s = Scaled(3)
        s.add()
        assert s.x.to_numpy().tolist() == [2, 2, 2]
        del s
    assert compiled("add") == 1


def test_tapes_and_recordings_of_several_objects() -> None:
    one, other = Scaled(2), Scaled(3)
    for s in (one, other):
        s.x.fill(3)
        with ti.ad.Tape(s.total):
            s.sum_squares()
        assert s.x.grad.to_numpy().tolist() == [12] * s.x.shape[0]
    one.total.fill(0)
    other.total = one.total
    with ti.ad.Tape(one.total):
        one.sum_squares()
        other.sum_squares()
    assert one.total[None] == 2 * 9 * 5
    assert other.x.grad.to_numpy().tolist() == [12, 12, 12]
    with ti.record() as g:
        one.add()
        other.add()
    g.run(2)
    assert (one.x[1], other.x[2]) == (7, 7)
    assert compiled("sum_squares") == compiled("add") == 1


def test_another_class_has_its_own_code() -> None:
    class Sub(Scaled):
        @property
        def c(self) -> float:
            return 7.0

        @c.setter
        def c(self, value: float) -> None:
            pass

    for s, want in ((Scaled(1), 2), (Sub(1), 7), (Scaled(1), 2), (Sub(1), 7)):
        s.add()
        assert s.x[0] == want
    assert compiled("add") == 2


@ti.data_oriented
class Counted:
    n = 1

    @ti.kernel
    def is_class(self) -> ti.i32:
        return self.n * 10 + ti.static(1 if isinstance(self, type) else 0)


@ti.kernel
def is_counted(o: ti.template()) -> ti.i32:
    return o.n * 10 + ti.static(1 if isinstance(o, Counted) else 0)


def test_a_class_and_its_objects() -> None:
    for o, want in ((Counted, 10), (Counted(), 11), (Counted, 10), (Counted(), 11)):
        assert is_counted(o) == want
        assert Counted.is_class(o) == 21 - want


@ti.kernel
def store_twice(a: ti.template(), b: ti.template()) -> ti.f32:
    a.x[0] = 1.0
    b.x[0] = 5.0
    return a.x[0]


def test_one_object_passed_twice() -> None:
    a, b, c = Scaled(1), Scaled(1), Scaled(1)
    for p, q, want in ((a, b, 1), (a, a, 5), (b, a, 1), (b, b, 5), (a, c, 1), (c, c, 5)):
        assert store_twice(p, q) == want
    assert compiled("store_twice") == 2


def test_two_objects_of_one_array_in_python_mode() -> None:
    ti.init(arch=ti.python, log_level="error")
    a, b = Scaled(1), Scaled(1)
    for p, q, want in ((a, b, 1), (a, a, 5), (b, a, 1)):
        assert store_twice(p, q) == want
    b.x = a.x
    assert store_twice(a, b) == 5


def test_values_that_differ_often_give_one_warning() -> None:
    with pytest.warns(RecompilationWarning, match=r"`self\.c` has had more than 8 values") as found:
        for k in range(12):
            s = Scaled(1, float(k))
            s.add()
            assert s.x[0] == k
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(12):
            Scaled(1, float(k)).add()
    assert compiled("add") == 12


# --- values that code depends on otherwise -------------------------------------------------------

Y: Any = None
CHOSEN: list[Any] = []
TABLE: dict[Any, int] = {}


class Part:
    def __init__(self, n: int) -> None:
        self.n = n

    def value(self) -> int:
        return self.n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, k: int) -> int:
        return self.n + k

    def __str__(self) -> str:
        return "x" * self.n

    def __index__(self) -> int:
        return self.n


class Slots:
    __slots__ = ("call", "n")

    def __init__(self, n: int) -> None:
        self.n, self.call = n, Part(n).value


class Answering:
    def __init__(self, n: int) -> None:
        self.__dict__["_n"] = n

    def __getattr__(self, name: str) -> int:
        if name == "answer":
            return self._n
        raise AttributeError(name)


def named(part: Any) -> int:
    return getattr(part, "n" + "")


def called(f: Any) -> int:
    return f()


class Whole:
    def __init__(self, n: int) -> None:
        self.n, self.part, self.slots, self.answering = n, Part(n), Slots(n), Answering(n)
        self.list, self.parts, self.dict = [n, 1], [Part(n)], {"n": n, 3: Part(n)}
        self.space, self.call, self.partial = SimpleNamespace(n=n), Part(n).value, partial_of(n)
        self.array, self.long, self.me = np.arange(100) + n, [n] * 5000, self
        self.maybe = None if n == 2 else n
        if n == 2:
            self.extra = 5
        TABLE[self] = TABLE[self,] = n

    @property
    def computed(self) -> int:
        return self.n

    @functools.cached_property
    def cached(self) -> int:
        return self.n

    @property
    def closure(self) -> Any:
        @ti.func
        def inner():
            return self.n

        return inner

    @ti.func
    def f(self):
        return self.n

    @ti.pyfunc
    def both(self):
        return self.n

    def method(self) -> int:
        return self.n

    def make(self) -> Part:
        return Part(self.n)


def partial_of(n: int) -> Any:
    return functools.partial(int, n)


NUMBERS = """
self.n; self.part.n; self.slots.n; self.answering.answer; self.list[0]; self.parts[0].n
self.dict["n"]; self.dict[3].n; self.space.n; self.call(); ti.static(self.call()); self.partial()
self.slots.call(); self.array[0]; self.computed; self.cached; self.closure(); self.f()
self.both(); self.method()
self.make().n; ti.static(named(self)); ti.static(named(self.part)); ti.static(called(self.method))
ti.static(called(self.both)); TABLE[self]; TABLE[self,]
ti.static(TABLE.get(self)); ti.static(len(self.part)); self.part[0]; self.me.me.part.n
ti.static(str(self.part).count("x")); ti.static(list(range(9))[self.part]); self.long[1]
getattr(self, "n"); ti.static(sum(self.long) // 5000); ti.static([p.n for p in self.parts][0])
ti.static(dict(a=self)["a"].n); self.__dict__["n"]; ti.static(vars(self)["n"])
""".replace("\n", ";").split(";")
CHOICES = """
self is CHOSEN[0]; [self] == CHOSEN; (self,) == tuple(CHOSEN); self in CHOSEN
CHOSEN.count(self) == 1; id(self) == id(CHOSEN[0]); self.maybe is not None
not hasattr(self, "extra"); getattr(self, "extra", -1) == -1; self.n == 3
""".replace("\n", ";").split(";")


def kernel_of(expression: str, folder: Any) -> Any:
    """A kernel that writes an expression of its argument `self` to an array."""
    file = folder / "kernel.py"
    text = (
        f"@ti.kernel\ndef run(self: ti.template(), y: ti.types.ndarray()):\n  y[0] = {expression}\n"
    )
    file.write_text(text)
    names = {**globals()}
    exec(compile(text, str(file), "exec"), names)
    return names["run"]


@pytest.mark.parametrize("expression", [e.strip() for e in NUMBERS if e.strip()])
def test_numbers_of_objects(expression: str, tmp_path: Any) -> None:
    run, y, objects = (
        kernel_of(expression, tmp_path),
        ti.ndarray(ti.i32, 1),
        [*map(Whole, (2, 3, 2))],
    )
    for s in (*objects, *objects[::-1]):
        run(s, y)
        assert y[0] == s.n
    TABLE.clear()


@pytest.mark.parametrize("expression", [e.strip() for e in CHOICES if e.strip()])
def test_questions_about_objects(expression: str, tmp_path: Any) -> None:
    run = kernel_of(f"1 if ti.static({expression}) else 0", tmp_path)
    y, objects = ti.ndarray(ti.i32, 1), [*map(Whole, (2, 3, 2))]
    CHOSEN[:] = objects[1:2]
    for s in (*objects, *objects[::-1]):
        run(s, y)
        assert y[0] == (s is objects[1]), expression
    CHOSEN.clear(), TABLE.clear()


@pytest.mark.parametrize("kind", [Whole, Slots])
def test_a_replaced_method_of_another_object(kind: Any) -> None:
    @ti.kernel
    def run(s: ti.template(), y: ti.types.ndarray()):
        y[0] = s.call()

    s, y = kind(4), ti.ndarray(ti.i32, 1)
    for n in (4, 6, 8, 8):
        s.call = Part(n).value
        run(s, y)
        assert y[0] == n


# --- fields --------------------------------------------------------------------------------------

Pair = ti.types.struct(p=ti.f32, q=ti.math.vec2)
CHOSEN_FIELD: Any = None


def field(n: int = 2, **more: Any) -> Any:
    return ti.field(ti.f32, n, **more)


@ti.data_oriented
class Fields:
    def __init__(self, n: int = 2, c: float = 2.0) -> None:
        self.c, self.x, self.y = c, field(n, needs_grad=True), field(n)
        self.v, self.s = ti.Vector.field(2, ti.f32, n), Pair.field(shape=n)
        self.total = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add(self):
        for i in self.x:
            self.x[i] += self.c
            self.v[i] += 1
            self.s[i].p += self.c
            self.s.q[i] += 2

    @ti.kernel
    def sum_squares(self):
        for i in self.x:
            self.total[None] += self.c * self.x[i] ** 2

    @ti.kernel
    def from_gradient(self):
        for i in range(self.x.shape[0]):
            self.x[i] -= 0.5 * self.x.grad[i]

    @ti.kernel
    def store_both(self) -> ti.f32:
        self.x[0] = 1.0
        self.y[0] = 5.0
        return self.x[0]

    @ti.kernel
    def store_argument(self, z: ti.template()) -> ti.f32:
        self.x[0] = 1.0
        z[0] = 5.0
        return self.x[0]

    @ti.kernel
    def is_chosen(self) -> ti.i32:
        return ti.static(1 if self.x is CHOSEN_FIELD else 0) + 0 * int(self.x[0])

    @ti.kernel
    def is_chosen_in_list(self) -> ti.i32:
        return ti.static(1 if [self.x, 1] == [CHOSEN_FIELD, 1] else 0) + 0 * int(self.x[0])

    @ti.kernel
    def length_of_name(self) -> ti.i32:
        return ti.static(len(self.x.name)) + 0 * int(self.x[0])


def test_objects_with_fields_share_code() -> None:
    objects = [Fields() for _ in range(6)]
    for times in (1, 2, 3):
        for s in objects:
            s.add()
            assert s.x.to_numpy().tolist() == s.s.p.to_numpy().tolist() == [2 * times] * 2
            assert s.v.to_numpy().tolist() == [[times] * 2] * 2
            assert s.s.q.to_numpy().tolist() == [[2 * times] * 2] * 2
    assert compiled("add") == 1
    for s in objects:
        with ti.ad.Tape(s.total):
            s.sum_squares()
        assert s.x.grad.to_numpy().tolist() == [24, 24]
        s.from_gradient()
        assert s.x.to_numpy().tolist() == [-6, -6]
    assert compiled("sum_squares") == compiled("from_gradient") == 1
    for s, count in ((Fields(3), 2), (Fields(2, 4.0), 3), (objects[0], 3), (Fields(3, 4.0), 4)):
        before = s.x[1]
        s.add()
        assert s.x[1] == before + s.c and compiled("add") == count


def test_replaced_fields_need_no_compilation() -> None:
    s = Fields()
    for k in range(12):
        s.x = field(2, needs_grad=True)
        s.add()
        s.add()
        assert s.x.to_numpy().tolist() == [4, 4] and s.v[0][0] == 2 * k + 2
    assert compiled("add") == 1


def test_fields_that_are_the_same() -> None:
    a, b, c = Fields(), Fields(), Fields()
    b.y = b.x
    for s, want in ((a, 1), (b, 5), (c, 1), (a, 1), (b, 5)):
        assert s.store_both() == want
    for s, z, want in ((a, a.x, 5), (b, a.x, 1), (c, a.x, 1), (a, a.x, 5), (c, c.x, 5)):
        assert s.store_argument(z) == want


@pytest.mark.parametrize("name", ["is_chosen", "is_chosen_in_list"])
def test_questions_about_fields(name: str) -> None:
    global CHOSEN_FIELD
    objects = [Fields(), Fields(), Fields()]
    CHOSEN_FIELD = objects[1].x
    for s in (*objects, *objects):
        assert getattr(s, name)() == (s is objects[1])
    CHOSEN_FIELD = None


def test_attributes_of_fields() -> None:
    a, b, c = Fields(), Fields(), Fields()
    b.x = field(2, name="abcde")
    assert [s.length_of_name() for s in (a, b, c, b)] == [0, 5, 0, 5]


def test_fields_in_other_blocks() -> None:
    def sparse() -> Any:
        x = ti.field(ti.f32)
        ti.root.pointer(ti.i, 4).place(x)
        return x

    def tiled() -> Any:
        x = ti.field(ti.f32)
        ti.root.dense(ti.i, 2).dense(ti.i, 2).place(x)
        return x

    def interleaved() -> Any:
        x = ti.field(ti.f32)
        ti.root.dense(ti.i, 4).place(ti.field(ti.f32), x)
        return x

    @ti.kernel
    def add(s: ti.template()):
        for i in s.x:
            s.x[i] += 1.0

    spaces = [SimpleNamespace(x=make()) for make in (tiled, sparse, sparse, interleaved, tiled)]
    for k, s in enumerate((*spaces, *spaces)):
        s.x[k % 4] = 3.0
        before = s.x.to_numpy()
        add(s)
        is_sparse = k % 5 in (1, 2)
        assert s.x.to_numpy().tolist() == (before + ((before != 0) | (not is_sparse))).tolist()


def test_objects_with_fields_and_other_ndarrays() -> None:
    @ti.kernel
    def add(s: ti.template()):
        for i in s.x:
            s.x[i] += s.a[i] * s.b[i]

    def array(dtype: Any, n: int) -> Any:
        made = ti.ndarray(dtype, n)
        made.fill(2)
        return made

    for a, b in ((ti.f32, ti.f32), (ti.i32, ti.f32), (ti.f32, ti.f32), (ti.i32, ti.i32)):
        for n in (2, 3):
            s = SimpleNamespace(x=field(2), a=array(a, 2), b=array(b, n))
            add(s)
            assert s.x.to_numpy().tolist() == [4, 4]
    assert compiled("add") == 6
    s = SimpleNamespace(x=field(2), a=array(ti.f32, 2), b=None)
    s.b = s.a
    add(s)
    assert s.x.to_numpy().tolist() == [4, 4]


def test_fields_of_objects_that_are_gone() -> None:
    def call() -> tuple[Any, Any]:
        s = Fields()
        for _ in range(3):
            s.add()
        return weakref.ref(s), weakref.ref(s.x)

    gone = [call() for _ in range(4)]
    ti.sync()
    gc.collect()
    assert all(s() is None and x() is None for s, x in gone)
    assert compiled("add") == 1


def test_destroyed_and_unplaced_fields() -> None:
    builder, x = ti.FieldsBuilder(), ti.field(ti.f32)
    builder.dense(ti.i, 2).place(x)
    tree = builder.finalize()
    a, b = Fields(), Fields()
    a.y = x
    assert a.store_both() == b.store_both() == 1
    tree.destroy()
    with pytest.raises(ti.TaichiRuntimeError, match="destroyed"):
        a.store_both()
    assert b.store_both() == 1
    b.y = ti.field(ti.f32)
    with pytest.raises(ti.TaichiCompilationError, match="not placed"):
        b.store_both()


def test_fields_beside_ndarrays_of_other_kinds() -> None:
    """Code for other fields fits the object's ndarrays, too: their types, shapes, aliases."""

    @ti.data_oriented
    class Mixed:
        def __init__(self, y: Any, z: Any) -> None:
            self.x, self.y, self.z = ti.field(ti.f32, 3), y, z
            self.x.fill(2)

        @ti.kernel
        def add(self):
            for i in self.x:
                self.y[i] = ti.cast(self.x[i] + self.z[i], self.y.dtype)

    def row(dtype: Any = ti.f32, n: int = 3) -> Any:
        return ti.ndarray(dtype, n)

    one = row()
    pairs = [(row(), row()), (row(ti.i32), row()), (one, one), (row(), row(n=5)), (row(), row())]
    objects = [Mixed(*pair) for pair in pairs]
    for s in (*objects, *objects):
        want = (2 + s.z.to_numpy()[:3]).astype(s.y.to_numpy().dtype)
        s.add()
        assert s.y.to_numpy().tolist() == want.tolist()


def test_components_of_a_field_beside_the_whole() -> None:
    """Code for a component of the same field is not valid for one of another field."""

    @ti.data_oriented
    class Pair:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

        @ti.kernel
        def add(self):
            for i in self.y:
                self.y[i] += 10 * self.x[i][1]

        @ti.kernel
        def add_to(self, y: ti.template()):
            for i in y:
                y[i] += 10 * self.x[i][1]

    fields = [ti.Vector.field(2, ti.i32, 1) for _ in range(3)]
    for x in fields:
        x.fill(1)
    want = np.ones((3, 2), np.int64)
    for a, b, k in ((0, 0, 1), (1, 2, 1), (1, 1, 1), (1, 2, 0), (2, 2, 0), (0, 1, 0)):
        y = fields[b].get_scalar_field(k)
        Pair(fields[a], y).add()
        want[b, k] += 10 * want[a, 1]
        Pair(fields[a], y).add_to(y)
        want[b, k] += 10 * want[a, 1]
        assert [x.to_numpy()[0].tolist() for x in fields] == want.tolist()
    part = fields[0].get_scalar_field(1)
    for a in (0, 1, 0, 2):
        Pair(fields[a], None).add_to(part)
        want[0, 1] += 10 * want[a, 1]
        assert [x.to_numpy()[0].tolist() for x in fields] == want.tolist()
