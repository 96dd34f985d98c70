"""Struct values in Python: `ti.Struct`, calls of struct types, `@ti.dataclass`, conversions."""

import copy
import pickle

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check

Ball = ti.types.struct(mass=ti.f32, pos=ti.math.vec3)
Pair = ti.types.struct(ball=Ball, count=ti.i32)


def test_members_by_position_and_name() -> None:
    check(Ball(2.0, [1, 2, 3]).to_dict(), {"mass": 2.0, "pos": [1.0, 2.0, 3.0]})
    check(Ball(pos=[1, 2, 3], mass=2).to_dict(), {"mass": 2.0, "pos": [1.0, 2.0, 3.0]})
    check(Ball(2.0, pos=[1, 2, 3]).to_dict(), {"mass": 2.0, "pos": [1.0, 2.0, 3.0]})


def test_missing_members_are_zero() -> None:
    check(Ball().to_dict(), {"mass": 0.0, "pos": [0.0, 0.0, 0.0]})
    check(Ball(mass=3).pos, [0.0, 0.0, 0.0])
    check(Pair(count=1).ball.to_dict(), {"mass": 0.0, "pos": [0.0, 0.0, 0.0]})


def test_members_take_their_types() -> None:
    s = ti.types.struct(i=ti.i32, u=ti.u8, f=ti.f32)(2.0, 3, 4)
    assert s.i == 2 and isinstance(s.i, int) and s.u == 3
    assert isinstance(s.f, float)


@pytest.mark.ours("numbers-that-do-not-fit")
def test_numbers_that_members_do_not_hold_are_errors() -> None:
    S = ti.types.struct(i=ti.i32, u=ti.u8)
    with pytest.raises(ValueError, match=r"2\.9 does not fit i32: it has a fraction"):
        S(2.9, 3)
    with pytest.raises(ValueError, match="300 does not fit u8"):
        S(2, 300)


def test_number_fills_a_vector() -> None:
    check(Ball(1.0, 5.0).pos, [5.0, 5.0, 5.0])


Deep = ti.types.struct(pair=Pair, rest=Ball)


def test_number_for_a_nested_struct_is_its_first_member() -> None:
    ball = {"mass": 1.0, "pos": [0.0, 0.0, 0.0]}
    nothing = {"mass": 0.0, "pos": [0.0, 0.0, 0.0]}
    check(Pair(1).to_dict(), {"ball": ball, "count": 0})
    check(Pair(1, 2).to_dict(), {"ball": ball, "count": 2})
    check(Pair(ball=1).to_dict(), {"ball": ball, "count": 0})
    check(Pair(1, count=3).to_dict(), {"ball": ball, "count": 3})
    check(Deep(1).to_dict(), {"pair": {"ball": ball, "count": 0}, "rest": nothing})
    check(Deep(rest=1).to_dict(), {"pair": {"ball": nothing, "count": 0}, "rest": ball})


def test_number_is_no_struct() -> None:
    balls = Ball.field(shape=2)
    with pytest.raises(Exception):
        balls[0] = 1
    check(balls[0].mass, 0.0)


def test_number_fills_all_members_of_a_field() -> None:
    pairs = Pair.field(shape=2)
    pairs.fill(2)
    check([pairs[1].ball.mass, pairs[1].ball.pos, pairs[1].count], [2.0, [2.0, 2.0, 2.0], 2])


def test_matrix_member() -> None:
    m = ti.types.struct(m=ti.types.matrix(2, 2, ti.f32))([[1, 2], [3, 4]]).m
    check(m, [[1.0, 2.0], [3.0, 4.0]])
    check(m @ ti.Vector([1.0, 1.0]), [3.0, 7.0])


def test_nested_struct() -> None:
    pair = Pair(Ball(1.0, [1, 2, 3]), 7)
    pair.ball.pos.y = 9
    pair.ball.mass += 1
    check([pair.ball.mass, pair.ball.pos, pair.count], [2.0, [1.0, 9.0, 3.0], 7])


@pytest.mark.ours("struct-from-dict")
def test_nested_struct_from_dict() -> None:
    check(Pair(ball={"mass": 4.0}, count=1).ball.mass, 4.0)
    check(Ball({"mass": 4.0, "pos": [1, 1, 1]}).pos, [1.0, 1.0, 1.0])
    check(Ball(Ball(4.0, 2)).pos, [2.0, 2.0, 2.0])


def test_assigning_a_member() -> None:
    s = Ball(1.0, 0.0)
    s.mass = 5.0
    s.pos = [1, 2, 3]
    s["mass"] += 1.0
    check([s.mass, s["pos"], s.pos.xz], [6.0, [1.0, 2.0, 3.0], [1.0, 3.0]])


def test_python_has_one_struct_under_two_names() -> None:
    s = Ball(1.0, 0.0)
    t = s
    t.mass = 2.0
    assert s.mass == 2.0


def test_untyped_struct_of_keywords() -> None:
    s = ti.Struct(a=1, b=2.5, v=[1.0, 2.0], inner={"x": 3})
    s.v.x += 1.0
    s.inner.x = 4
    check(s.to_dict(), {"a": 1, "b": 2.5, "v": [2.0, 2.0], "inner": {"x": 4}})


def test_untyped_struct_of_a_dict() -> None:
    s = ti.Struct({"a": 1, "v": [[1.0, 2.0], [3.0, 4.0]]})
    check([s.a, s.v[1, 0], s.v.n], [1, 3.0, 2])


def test_names_and_members() -> None:
    s = Ball(1.0, [1, 2, 3])
    assert list(s.keys) == ["mass", "pos"]
    assert [name for name, _ in s.items] == ["mass", "pos"]
    check(s.entries["pos"], [1.0, 2.0, 3.0])
    assert len(s) == 2


def test_print_and_repr() -> None:
    s = Pair(Ball(1.5, [1, 2, 3]), 7)
    want = "{'ball': {'mass': 1.5, 'pos': [1.0, 2.0, 3.0]}, 'count': 7}"
    assert str(s) == want and repr(s) == want and f"{s}" == want


def test_is_instance() -> None:
    s = Ball(1.0)
    assert isinstance(s, ti.Struct)
    assert isinstance(s, Ball)
    assert not isinstance(s, Pair)


def test_to_dict_and_back() -> None:
    s = Pair(Ball(1.5, [1, 2, 3]), 7)
    t = ti.Struct(s.to_dict())
    check(t.to_dict(), s.to_dict())
    t.count = 8
    assert s.count == 7


def test_to_dict_with_methods() -> None:
    found = ti.Struct({"a": 1, "__struct_methods": {"f": len}}).to_dict(include_methods=True)
    assert found == {"a": 1, "__struct_methods": {"f": len}}


def test_to_dict_with_axes() -> None:
    found = Ball(1.0).to_dict(include_ndim=True)
    assert found["__matrix_ndim"] == {"pos": 1}


def test_members_of_numpy() -> None:
    s = Ball(np.float32(1.5), np.array([1, 2, 3]))
    check(s.to_dict(), {"mass": 1.5, "pos": [1.0, 2.0, 3.0]})


def test_members_named_as_methods() -> None:
    s = ti.Struct(keys=1, items=2, to_dict=3)
    assert (s.keys, s.items, s.to_dict) == (1, 2, 3)


def test_members_of_a_type() -> None:
    assert list(Ball.members) == ["mass", "pos"]


@pytest.mark.ours("struct-copies")
def test_copies_and_pickles() -> None:
    s = Pair(Ball(1.5, [1, 2, 3]), 7)
    for t in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        t.ball.pos.x = 9
        check(t.to_dict(), {"ball": {"mass": 1.5, "pos": [9.0, 2.0, 3.0]}, "count": 7})
    assert s.ball.pos.x == 1.0


@pytest.mark.ours("struct-checks")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Ball(1.0, [1, 2, 3], 4),
        lambda: Ball(weight=1.0),
        lambda: Ball(1.0, mass=2.0),
        lambda: Ball([1, 2]),
        lambda: ti.types.struct(a=3),
    ],
)
def test_wrong_calls(make) -> None:
    with pytest.raises(ti.TaichiTypeError):
        make()


def test_struct_takes_no_positions() -> None:
    with pytest.raises(ti.TaichiSyntaxError):
        ti.Struct(1, 2)


@pytest.mark.ours("struct-checks")
def test_unknown_member_is_not_made() -> None:
    s = Ball(1.0)
    with pytest.raises(AttributeError, match="mass"):
        s.masss = 3


def test_unknown_member_is_not_read() -> None:
    with pytest.raises(AttributeError):
        Ball(1.0).weight  # noqa: B018


def test_no_operators() -> None:
    with pytest.raises(TypeError):
        Ball(1.0) + Ball(2.0)


@ti.dataclass
class Rect:
    size: ti.math.vec2
    name: ti.i32

    def area(self):
        return self.size.x * self.size.y

    @ti.pyfunc
    def half(self):
        return self.size * 0.5


def test_dataclass_methods_in_python() -> None:
    r = Rect([2, 3], 1)
    check([r.area(), r.half(), r.name], [6.0, [1.0, 1.5], 1])


def test_dataclass_func_is_for_kernels() -> None:
    @ti.dataclass
    class A:
        x: ti.f32

        @ti.func
        def twice(self):
            return self.x * 2

    with pytest.raises(ti.TaichiSyntaxError):
        A(1.0).twice()


def test_dataclass_has_no_defaults() -> None:
    with pytest.raises(ti.TaichiSyntaxError):

        @ti.dataclass
        class A:
            x: ti.f32 = 1.0


@pytest.mark.ours("struct-static-methods")
def test_dataclass_static_and_class_methods() -> None:
    @ti.dataclass
    class A:
        x: ti.f32

        @staticmethod
        def plus(a, b):
            return a + b

        @classmethod
        def of(cls, x):
            return cls(x + 1)

        @property
        def doubled(self):
            return self.x * 2

    a = A.of(2)
    assert (a.x, a.plus(1, 2), A.plus(3, 4), a.doubled) == (3.0, 3, 7, 6.0)


@pytest.mark.ours("struct-inheritance")
def test_dataclass_of_a_dataclass() -> None:
    @ti.dataclass
    class A:
        x: ti.f32

        def plus(self):
            return self.x + 1

    @ti.dataclass
    class B(A):
        y: ti.i32

    b = B(1.0, 2)
    assert (b.x, b.y, b.plus()) == (1.0, 2, 2.0)


def test_members_named_as_parameters() -> None:
    kind = ti.types.struct(t=ti.f32, cx=ti.i32, args=ti.i32, name=ti.i32)
    s = kind(t=1.5, cx=2, args=3, name=4)

    @ti.kernel
    def k(s: kind) -> ti.f32:
        u = kind(t=s.t, cx=s.cx, name=1)
        v = ti.Struct(cx=u.cx, t=u.t, kwargs=5)
        return v.t + v.cx * 10 + u.name * 100 + v.kwargs * 1000

    check([s.t, s.cx, s.args, s.name, k(s)], [1.5, 2, 3, 4, 5121.5])


def test_packs_with_members_named_as_parameters() -> None:
    kind = ti.types.argpack(t=ti.f32, members=ti.i32)

    @ti.kernel
    def k(p: kind) -> ti.f32:
        return p.t + p.members

    check(k(kind(t=1.5, members=2)), 3.5)


def test_struct_types_have_attributes_of_their_own() -> None:
    @ti.dataclass
    class Disc:
        center: ti.math.vec2
        radius: ti.f32

    packed = ti.types.vector(3, ti.f32)

    @ti.func
    def from_packed(v):
        return Disc(v[0:2], v[2])

    Disc.packed, Disc.sides = packed, 4
    Disc.from_packed = from_packed

    @ti.kernel
    def run(x: ti.types.ndarray(dtype=Disc.packed, ndim=1)) -> ti.f32:
        disc = Disc.from_packed(x[1])
        return disc.center.y + disc.radius * Disc.sides

    x = ti.ndarray(packed, 2)
    x[1] = [1, 2, 3]
    check(run(x), 14.0)
    assert (Disc.packed.n, Disc.sides) == (3, 4)
