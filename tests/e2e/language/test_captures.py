"""Python objects that kernels capture: globals, closures, constants, objects, lists of fields."""

import collections
import enum
import functools
import math
import operator
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("changed-values")
def test_kernels_read_a_changed_global() -> None:
    global G
    G = 3

    @ti.kernel
    def run() -> ti.i32:
        return G

    r = [run()]
    G = 4
    r.append(run())
    check(r, [3, 4])


def test_enum_value() -> None:
    class F(enum.Enum):
        A = 3

    @ti.kernel
    def run() -> ti.i32:
        return F.A.value

    check(run(), 3)


def test_consts() -> None:
    @ti.kernel
    def run() -> ti.f32:
        return math.pi + np.pi + math.e + ti.math.pi

    check(run(), 12.14306)


def test_np_consts() -> None:
    a = np.float32(1.5)
    b = np.int64(3)
    c = np.bool_(True)

    @ti.kernel
    def run() -> ti.f32:
        r = a + b
        if c:
            r += 1
        return r

    check(run(), 5.5)


def test_np_array_captured() -> None:
    a = np.array([1, 2, 3])

    @ti.kernel
    def run() -> ti.i32:
        return a[1]

    check(run(), 2)


def test_vec_captured() -> None:
    a = ti.Vector([1, 2, 3])

    @ti.kernel
    def run() -> ti.i32:
        b = a * 2
        return b[2] + a[0]

    check(run(), 7)


@pytest.mark.ours("captured-vectors")
def test_vec_captured_assign() -> None:
    a = ti.Vector([1, 2, 3])

    @ti.kernel
    def run() -> ti.i32:
        a[0] = 5
        return a[0]

    with pytest.raises(ti.TaichiCompilationError):
        run()


def test_list_captured() -> None:
    a = [1, 2, 3]

    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for i in ti.static(range(3)):
            s += a[i]
        return s

    check(run(), 6)


def test_list_captured_dynamic() -> None:
    a = [1, 2, 3]

    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for i in range(3):
            s += a[i]
        return s

    with pytest.raises(ti.TaichiCompilationError):
        run()


def test_dict_captured() -> None:
    a = {"k": 4, 3: 5}

    @ti.kernel
    def run() -> ti.i32:
        return a["k"] + a[3]

    check(run(), 9)


def test_fields_list() -> None:
    xs = [ti.field(ti.i32, 3) for _ in range(3)]

    @ti.kernel
    def run():
        for j in ti.static(range(3)):
            for i in xs[j]:
                xs[j][i] = i * j

    run()
    check(xs, [[0, 0, 0], [0, 1, 2], [0, 2, 4]])


def test_closure_loop() -> None:
    ks = []
    for n in range(3):

        @ti.kernel
        def k() -> ti.i32:
            return n

        ks.append(k)
    check([k() for k in ks], [2, 2, 2])


def test_closure_maker() -> None:
    def make(n):
        @ti.kernel
        def k() -> ti.i32:
            return n * 10

        return k

    check([make(i)() for i in range(3)], [0, 10, 20])


@pytest.mark.ours("changed-values")
def test_closure_rebind() -> None:
    n = 1

    @ti.kernel
    def k() -> ti.i32:
        return n

    r = [k()]
    n = 2
    r.append(k())
    check(r, [1, 2])


def test_captured_module() -> None:
    @ti.kernel
    def k() -> ti.f32:
        return ti.math.sqrt(4.0) + math.floor(2.5)

    check(k(), 4.0)


def test_captured_class_const() -> None:
    class C:
        N = 4
        V = ti.Vector([1, 2])

    @ti.kernel
    def k() -> ti.i32:
        return C.N + C.V[1]

    check(k(), 6)


def test_captured_namespace() -> None:
    c = types.SimpleNamespace(a=3, b=ti.field(ti.i32, 2))

    @ti.kernel
    def k() -> ti.i32:
        c.b[0] = 2
        return c.a + c.b[0]

    check(k(), 5)


def test_global_assign() -> None:
    global GG
    GG = 1

    @ti.kernel
    def k() -> ti.i32:
        GG = 5
        return GG

    check([k(), GG], [5, 1])


@pytest.mark.ours("isinstance")
def test_isinstance_static() -> None:
    @ti.func
    def f(x):
        r = 0
        if ti.static(isinstance(x, ti.Matrix)):
            r = 1
        else:
            r = 2
        return r

    @ti.kernel
    def k() -> ti.i32:
        return f(ti.Vector([1, 2])) * 10 + f(3)

    check(k(), 12)


def test_ndarrays_are_read_at_each_call() -> None:
    x = ti.ndarray(ti.f32, 4)

    @ti.kernel
    def first() -> ti.f32:
        return x[0]

    @ti.kernel
    def fill():
        x.fill(1.0)

    @ti.kernel
    def size() -> ti.i32:
        return x.shape[0]

    fill()
    check(first(), 1.0)
    check(size(), 4)
    x = ti.ndarray(ti.f32, 7)
    check(first(), 0.0)
    check(size(), 7)


def test_narrow_vectors_compute_as_literals_do() -> None:
    a, m = ti.types.vector(2, ti.u8)(200, 3), ti.Matrix([[200, 2], [3, 4]], dt=ti.i16)
    bytes_of_numpy = ti.Vector(np.array([200, 2], np.uint8))

    @ti.kernel
    def run() -> ti.types.vector(4, ti.i32):
        return ti.Vector([(a * 2)[0], (a + a)[0], (m * 400)[0, 0], (bytes_of_numpy * 2)[0]])

    check(run(), [400, 400, 80000, 400])


@pytest.mark.ours("captured-types")
def test_narrow_vectors_in_lists_and_templates_do_as_well() -> None:
    listed = [ti.types.vector(2, ti.u8)(200, 3)]

    @ti.kernel
    def run(given: ti.template()) -> ti.types.vector(3, ti.i32):
        r = ti.Vector([0, (given * 2)[0], (listed[0] * 2)[0]])
        for v in ti.static(listed):
            r[0] += (v * 2)[0]
        return r

    check(run(listed[0]), [400, 400, 400])


@pytest.mark.ours("captured-types")
def test_narrow_vectors_in_lists_and_dicts_wrap_in_every_kind_of_iteration() -> None:
    listed = [ti.types.vector(2, ti.u8)(200, 3)]
    named, nested = {"v": listed[0]}, [(listed[0],)]

    @ti.kernel
    def run() -> ti.types.vector(6, ti.i32):
        r = ti.Vector([0, 0, 0, 0, 0, 0])
        (r0,) = listed
        r[0] = (r0 * 2)[0]
        for u, v in ti.static(zip(listed, listed)):
            r[1] = (u + v)[0]
        for k, v in ti.static(enumerate(listed)):
            r[2 + k] = (v * 2)[0]
        for v in ti.static(named.values()):
            r[3] = (v * 2)[0]
        for inner in ti.static(reversed(nested)):
            r[4] = (inner[0] * 2)[0]
        again = listed
        r[5] = (again[0] * 2)[0]
        return r

    check(run(), [400] * 6)


class Giving:
    """An object that has a vector, and gives it by methods of Python's."""

    def __init__(self, v: Any) -> None:
        self.v = v

    @property
    def same(self) -> Any:
        return self.v

    def __getitem__(self, k: int) -> Any:
        return self.v

    def __iter__(self) -> Any:
        return iter([self.v])

    def __len__(self) -> int:
        return 1

    def method(self) -> Any:
        return self.v

    def listed(self) -> list[Any]:
        return [self.v]


def narrow() -> Any:
    return ti.types.vector(2, ti.u8)(200, 3)


GIVING, NAMED, LISTED = Giving(narrow()), {"v": narrow()}, [narrow()]
PAIR = collections.namedtuple("PAIR", "v w")(narrow(), narrow())
NESTED = collections.OrderedDict(inner=(LISTED,))


@ti.func
def twice(v: ti.template()):
    return (v * 2)[0]


def twice_by_default(n, v=narrow()):  # noqa: B008
    return (v * 2)[0] + n


BOUND, KEYWORD = functools.partial(twice, narrow()), functools.partial(twice, v=narrow())


@ti.kernel
def by_attributes() -> ti.types.vector(4, ti.i32):
    return ti.Vector([(PAIR.v * 2)[0], (GIVING.v * 2)[0], (GIVING.same * 2)[0],
                      (getattr(GIVING, "v") * 2)[0]])  # fmt: skip


@ti.kernel
def by_items() -> ti.types.vector(4, ti.i32):
    return ti.Vector([(PAIR[0] * 2)[0], (GIVING[0] * 2)[0], (NAMED["v"] * 2)[0],
                      (NESTED["inner"][0][0] * 2)[0]])  # fmt: skip


@ti.kernel
def by_what_is_in_lists() -> ti.types.vector(4, ti.i32):
    return ti.Vector([(NAMED.get("v") * 2)[0], (sorted(LISTED, key=len)[0] * 2)[0],
                      ((LISTED + LISTED)[1] * 2)[0], (next(iter(LISTED)) * 2)[0]])  # fmt: skip


@ti.kernel
def by_arguments(n: ti.i32) -> ti.types.vector(4, ti.i32):
    return ti.Vector([twice_by_default(n), BOUND(), KEYWORD(), twice(*GIVING)])


@ti.kernel
def by_loops() -> ti.types.vector(4, ti.i32):
    r = ti.Vector([0, 0, 0, 0])
    for v in ti.static(GIVING):
        r[0] = (v * 2)[0]
    for v in ti.static(PAIR):
        r[1] = (v * 2)[0]
    (v,) = GIVING
    r[2] = (v * 2)[0]
    r[3] = [v * 2 for v in ti.static(GIVING)][0][0]
    return r


@ti.kernel
def by_builtin_iteration() -> ti.types.vector(4, ti.i32):
    r = ti.Vector([0, 0, 0, (list(GIVING)[0] * 2)[0]])
    for u, v in ti.static(zip(GIVING, PAIR)):
        r[0] = (u + v)[0]
    for _, v in ti.static(enumerate(GIVING)):
        r[1] = (v * 2)[0]
    for v in ti.static(reversed(GIVING)):
        r[2] = (v * 2)[0]
    return r


@pytest.mark.ours("captured-types")
@pytest.mark.parametrize(
    "run",
    [
        by_attributes,
        by_items,
        by_what_is_in_lists,
        lambda: by_arguments(0),
        by_loops,
        by_builtin_iteration,
    ],
)
def test_narrow_vectors_that_kernels_read_compute_as_literals_do(run: Any) -> None:
    check(run(), [400] * 4)


def first():
    return LISTED[0]


def free(o):
    return o.v


remembered, asked = functools.lru_cache(free), operator.attrgetter("v")


@ti.kernel
def by_methods() -> ti.types.vector(4, ti.i32):
    return ti.Vector([(GIVING.method() * 2)[0], (GIVING.listed()[0] * 2)[0],
                      (sorted(GIVING, key=len)[0] * 2)[0], (vars(GIVING)["v"] * 2)[0]])  # fmt: skip


@ti.kernel
def by_functions() -> ti.types.vector(4, ti.i32):
    return ti.Vector([(first() * 2)[0], (free(GIVING) * 2)[0], (remembered(GIVING) * 2)[0],
                      (asked(GIVING) * 2)[0]])  # fmt: skip


@ti.kernel
def by_functions_after_reading() -> ti.types.vector(4, ti.i32):
    known = GIVING.v[0] + LISTED[0][0] + PAIR.w[0]
    return ti.Vector([(first() * 2)[0] + known - known, (free(GIVING) * 2)[0],
                      (GIVING.method() * 2)[0], (GIVING.listed()[0] * 2)[0]])  # fmt: skip


@pytest.mark.parametrize("run", [by_methods, by_functions, by_functions_after_reading])
def test_narrow_vectors_that_calls_give_stay_narrow(run: Any) -> None:
    check(run(), [144] * 4)


@pytest.mark.ours("captured-types")
def test_defaultdicts_convert_narrow_vectors() -> None:
    made = collections.defaultdict(lambda: 7, v=narrow())

    @ti.kernel
    def run() -> ti.types.vector(2, ti.i32):
        return ti.Vector([(made["v"] * 2)[0], made["w"]])

    check(run(), [400, 7])


@pytest.mark.ours("is-none")
def test_vector_captured_twice_is_one_object() -> None:
    d = {"x": narrow(), "y": [narrow()]}

    @ti.kernel
    def run() -> ti.types.vector(3, ti.i32):
        return ti.Vector([int(ti.static(d["x"] is d["x"])), int(ti.static(d["y"] is d["y"])),
                          int(ti.static(d["x"] is d["y"][0]))])  # fmt: skip

    check(run(), [1, 1, 0])


@pytest.mark.ours("captured-types")
def test_lists_that_functions_change_at_compile_time() -> None:
    narrow_ones, numbers, another = [narrow()], [1], narrow()

    def more(k):
        narrow_ones.append(another)
        numbers.append(another)
        return k

    @ti.kernel
    def run() -> ti.types.vector(4, ti.i32):
        before = len(narrow_ones) + len(numbers)
        added = more(1)
        return ti.Vector([before, added + len(narrow_ones) + len(numbers),
                          (narrow_ones[1] * 2)[0], (numbers[1] * 2)[0]])  # fmt: skip

    check(run(), [2, 5, 400, 400])


@pytest.mark.ours("captured-types")
def test_vectors_that_functions_change_at_compile_time() -> None:
    changed, held = narrow(), [narrow()]

    def change(k):
        changed[0] = held[0][0] = k
        return k

    @ti.kernel
    def run() -> ti.types.vector(4, ti.i32):
        before, same = changed[0], ti.static(changed is changed)
        k = change(50)
        return ti.Vector([before, changed[0] + held[0][0], (changed * 4)[0], k * same])

    check(run(), [200, 100, 200, 50])


def test_a_zero_with_a_sign_that_functions_change_at_compile_time() -> None:
    changed = ti.Vector([0.0, 1.0], ti.f16)

    def change(k):
        changed[0] = -0.0
        return k

    @ti.kernel
    def run() -> ti.types.vector(2, ti.f32):
        before = 1.0 / changed[0]
        k = change(1.0)
        return ti.Vector([before, k / changed[0]])

    check(run(), [np.inf, -np.inf])


@pytest.mark.ours("captured-types")
def test_a_list_in_itself() -> None:
    own: list[Any] = [narrow()]
    own.append(own)

    @ti.kernel
    def run() -> ti.i32:
        return (own[0] * 2)[0]

    check(run(), 400)


def test_narrow_vectors_made_in_kernels_stay_narrow() -> None:
    @ti.kernel
    def run() -> ti.i32:
        a = ti.Vector([200, 2], dt=ti.u8)
        return (a + a)[0] + (ti.Vector([100, 2], dt=ti.u8) + ti.Vector([200, 2], dt=ti.u8))[0]

    check(run(), 144 + 44)


@ti.data_oriented
class Constants:
    """A vector of f32, as modules of constants make them before `init` is called."""

    def __init__(self) -> None:
        self.zero = ti.types.vector(2, ti.f32)(0, 0)


@pytest.fixture
def left_as_it_was() -> Iterator[None]:
    """Floats are f32 afterwards, as other tests take for granted."""
    yield
    ti.init(arch=ti.cpu)


@pytest.mark.usefixtures("left_as_it_was")
def test_constants_of_f32_where_floats_are_f64() -> None:
    zero, held = ti.types.vector(2, ti.f32)(0, 0), Constants()
    ti.init(arch=ti.cpu, default_fp=ti.f64)

    @ti.kernel
    def run(x: ti.f64) -> ti.types.vector(2, ti.f64):
        a, b = zero, held.zero
        a[0] = x
        b[0] += x
        return ti.Vector([a[0], b[0]])

    assert run(1 / 3).to_list() == [1 / 3, 1 / 3]


@pytest.mark.ours("captured-types")
def test_wide_vectors_keep_their_type() -> None:
    v = ti.types.vector(2, ti.f64)(1 / 3, 2)

    @ti.kernel
    def run() -> ti.types.vector(2, ti.f64):
        return (v * 2 + v) / 3

    assert abs(run()[0] - 1 / 3) < 1e-15
