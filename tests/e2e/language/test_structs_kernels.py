"""Structs in kernels: making them, members, copies, branches and loops, calls, results."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check

S = ti.types.struct(a=ti.i32, b=ti.f32)
T = ti.types.struct(s=S, m=ti.types.matrix(2, 2, ti.f32), v=ti.math.vec3)


def test_construct_by_position_name_and_not() -> None:
    @ti.kernel
    def k() -> ti.f32:
        s, t, u = S(1, 2.5), S(b=4.0), S()
        return s.a + s.b + 10 * (t.a + t.b) + 1000 * (u.a + u.b)

    check(k(), 43.5)


def test_construct_converts() -> None:
    @ti.kernel
    def k(x: ti.f32) -> ti.f32:
        s = S(x, x)
        return s.a + s.b

    check(k(2.75), 4.75)


def test_construct_nested() -> None:
    @ti.kernel
    def k() -> ti.f32:
        t = T(s=S(1, 2.0), m=ti.Matrix([[1, 2], [3, 4]]), v=[1, 2, 3])
        u = T(S(3, 4.0))
        return t.s.a + t.s.b + t.m[1, 0] + t.v.z + 100 * (u.s.a + u.s.b + u.v.sum())

    check(k(), 709.0)


def test_number_for_a_nested_struct_is_its_first_member() -> None:
    nested = ti.types.struct(t=T, last=S)

    @ti.kernel
    def k(x: ti.f32) -> ti.types.vector(8, ti.f32):
        t, u, w, n = T(3), T(s=x), T(x, v=2), nested(5)
        all = t.s.b + t.m.sum() + t.v.sum() + u.s.b + u.v.sum() + n.t.s.b + n.last.a + n.last.b
        return ti.Vector([t.s.a, u.s.a, w.s.a, w.s.b, w.v.sum(), n.t.s.a, n.t.v.x, all])

    check(k(4.5), [3.0, 4.0, 4.0, 0.0, 6.0, 5.0, 0.0, 0.0])


def test_untyped_struct() -> None:
    @ti.kernel
    def k() -> ti.f32:
        s = ti.Struct(a=1, v=ti.Vector([1.0, 2.0]))
        t = ti.Struct({"a": s})
        s.v.y = 5.0
        t.a.v.x = 7.0
        return s.a + s.v.sum() + 100 * t.a.v.sum()

    check(k(), 907.0)


def test_members_change() -> None:
    @ti.kernel
    def k() -> ti.f32:
        t = T(S(1, 2.0))
        t.s.a += 3
        t.s.b *= 2
        t.v.xz = 1.0, 2.0
        t.v[1] = 5
        t.m[0, 1] -= 1
        return t.s.a + t.s.b + t.v.sum() + t.m.sum()

    check(k(), 15.0)


def test_copies_are_values() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = S(1, 2.0)
        t = s
        t.a = 5
        u = T(s)
        u.s.a = 7
        s.a += 1
        return s.a + 10 * t.a + 100 * u.s.a

    check(k(), 752)


def test_whole_assignment() -> None:
    @ti.kernel
    def k() -> ti.f32:
        s = S(1, 2.0)
        s = S(3, 4.0)
        t = T(s)
        t.s = S(5, 6.0)
        s, t.s = t.s, s
        return s.a + 10 * t.s.a

    check(k(), 35.0)


@pytest.mark.parametrize("c, want", [(1, 74), (0, 29)])
def test_structs_in_branches(c: int, want: int) -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.f32:
        s = S(1, 2.0)
        if c:
            s = S(7, 4.0)
        else:
            s.b = 9.0
            s.a += 1
        return s.a * 10 + s.b

    check(k(c), float(want))


def test_loops_carry_structs() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = S(0, 0.0)
        total = 0
        for _ in range(1):
            for i in range(n):
                s.a += i
                if i == 3:
                    s.b = i
            while s.a < 20:
                s.a += 7
            total += s.a * 100 + int(s.b)
        return total

    check(k(5), 2403)


def test_parallel_loops_share_structs() -> None:
    @ti.kernel
    def k(n: ti.i32) -> S:
        s = S(0, 0.0)
        for i in range(n):
            s.a += i
            s.b += 0.5
        return s

    check(k(10).to_dict(), {"a": 45, "b": 5.0})


def test_a_loop_may_break() -> None:
    @ti.func
    def nearest(x):
        best = S(-1, 1e9)
        for i in range(10):
            if abs(x - i) < best.b:
                best.a, best.b = i, abs(x - i)
            if best.b < 0.4:
                break
        return best

    @ti.kernel
    def k(x: ti.f32) -> S:
        r = S()
        for _ in range(1):
            r = nearest(x)
        return r

    check(k(3.25).to_dict(), {"a": 3, "b": 0.25})


def test_func_takes_a_copy() -> None:
    @ti.func
    def f(s, t: S):
        s.a += 10
        t.a += 20
        return s.a + t.a

    @ti.kernel
    def k() -> ti.i32:
        s = S(1, 2.0)
        r = f(s, s)
        return r * 100 + s.a

    check(k(), 3201)


def test_func_takes_a_reference() -> None:
    @ti.func
    def f(s: ti.template(), x: ti.template()):
        s.a += 10
        x = 3.5

    @ti.kernel
    def k() -> ti.f32:
        t = T(S(1, 2.0))
        f(t.s, t.v.y)
        f(t.s, t.s.b)
        return t.s.a + t.s.b + t.v.y

    check(k(), 28.0)


def test_func_returns_structs() -> None:
    @ti.func
    def split(x):
        return S(x, x * 0.5), ti.Struct(lo=x - 1, hi=x + 1)

    @ti.kernel
    def k() -> ti.f32:
        s, r = split(4)
        return s.a + s.b + r.lo * r.hi

    check(k(), 21.0)


@pytest.mark.ours("struct-branches")
def test_func_returns_early() -> None:
    @ti.func
    def f(c):
        if c > 2:
            return S(9, 9.0)
        return S(1, 1.0)

    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        return f(c).a

    check([k(3), k(1)], [9, 1])


def test_func_with_annotated_result() -> None:
    @ti.func
    def f(x) -> S:
        return S(x, x)

    @ti.kernel
    def k() -> ti.f32:
        return f(2.5).a + f(2.5).b

    check(k(), 4.5)


def test_lists_and_tuples_of_structs() -> None:
    @ti.kernel
    def k() -> ti.i32:
        some = [S(1, 2.0), S(3, 4.0)]
        some[0].a += 10
        total = 0
        for s in ti.static(some):
            total = total * 100 + s.a
        return total

    check(k(), 1103)


@pytest.mark.ours("struct-branches")
@pytest.mark.parametrize("c, want", [(1, 1), (0, 2)])
def test_conditional_expression(c: int, want: int) -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        s, t = S(1, 0.0), S(2, 0.0)
        u = s if c else t
        return u.a

    check(k(c), want)


@pytest.mark.ours("changed-values")
def test_captured_struct_is_a_constant() -> None:
    g = S(4, 5.5)

    @ti.kernel
    def k() -> ti.f32:
        s = g
        s.a = 7
        return g.a + g.b + 100 * s.a

    check(k(), 709.5)
    g.a = 50
    check(k(), 755.5)


def test_captured_untyped_struct() -> None:
    g = ti.Struct(n=3, v=[1.0, 2.0])

    @ti.kernel
    def k() -> ti.f32:
        total = 0.0
        for i in ti.static(range(g.n)):
            total += g.v[i % 2]
        return total

    check(k(), 4.0)


def test_data_oriented_members() -> None:
    @ti.data_oriented
    class Sim:
        def __init__(self):
            self.kind = ti.types.struct(a=ti.i32, b=ti.f32)
            self.first = self.kind(5, 1.5)
            self.all = self.kind.field(shape=4)

        @ti.kernel
        def run(self):
            for i in self.all:
                self.all[i] = self.kind(i, self.first.b)
                self.all[i].a += self.first.a

    sim = Sim()
    sim.run()
    check(sim.all.a, [5, 6, 7, 8])
    check(sim.all.b, [1.5] * 4)


# --- arguments and results -----------------------------------------------------------------------


def test_argument_and_result() -> None:
    @ti.kernel
    def k(t: T, n: ti.i32) -> T:
        t.s.a += n
        t.v *= t.m[0, 1]
        return t

    r = k(T(S(1, 2.5), [[1, 2], [3, 4]], [1, 2, 3]), 5)
    assert isinstance(r, ti.Struct)
    check([r.s.a, r.s.b, r.m, r.v], [6, 2.5, [[1.0, 2.0], [3.0, 4.0]], [2.0, 4.0, 6.0]])


def test_argument_can_change_in_the_kernel_only() -> None:
    @ti.kernel
    def k(s: S) -> ti.i32:
        s.a = s.a + 1
        for _ in range(3):
            s.a += 1
        return s.a

    s = S(1, 2.0)
    check([k(s), s.a], [5, 1])


def test_argument_of_untyped_struct() -> None:
    @ti.kernel
    def k(s: S) -> ti.f32:
        return s.a + s.b

    check(k(ti.Struct(a=1, b=2.0)), 3.0)


def test_result_is_a_new_struct() -> None:
    @ti.kernel
    def k(s: S) -> S:
        return s

    s = S(1, 2.0)
    r = k(s)
    r.a = 9
    check([s.a, k(r).a], [1, 9])


def test_tuple_of_struct_and_number() -> None:
    @ti.kernel
    def k(s: S) -> (S, ti.f32):
        return s, s.b * 2

    r, x = k(S(1, 2.0))
    check([r.a, r.b, x], [1, 2.0, 4.0])


def test_many_types_of_members(lacks) -> None:
    names = [n for n in ("u8", "i16", "u32", "f16", "i64", "f64") if not lacks(n)]
    kind = ti.types.struct(**{name: getattr(ti, name) for name in names})

    @ti.kernel
    def k(s: kind) -> kind:
        return s

    s = kind(*range(1, len(names) + 1))
    check(k(s).to_dict(), s.to_dict())


def test_template_argument() -> None:
    @ti.kernel
    def k(s: ti.template()) -> ti.f32:
        return s.a + s.b

    check([k(S(1, 2.0)), k(S(3, 4.0))], [3.0, 7.0])


@pytest.mark.parametrize(
    "arg", [3, ti.Vector([1, 2]), ti.Struct(a=1), ti.Struct(a=1, b=2.0, c=3), None]
)
def test_wrong_arguments(arg) -> None:
    @ti.kernel
    def k(s: S) -> ti.i32:
        return s.a

    with pytest.raises(Exception):  # noqa: B017  (Taichi raises many kinds)
        k(arg)


@pytest.mark.ours("struct-annotations")
def test_annotated_variable() -> None:
    @ti.kernel
    def k() -> ti.f32:
        s: S = ti.Struct(a=1.5, b=2)
        t: T = T(s)
        t.s.a += 1
        return s.a + s.b + 10 * t.s.a

    check(k(), 23.0)
