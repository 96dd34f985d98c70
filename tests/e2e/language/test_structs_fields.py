"""Fields and arrays of structs, and argument packs."""

import copy

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check

S = ti.types.struct(a=ti.i32, v=ti.math.vec2)
T = ti.types.struct(s=S, w=ti.f32)


def test_elements_from_python() -> None:
    f = S.field(shape=(2, 3))
    f[0, 1].a = 4
    f[0, 1].v = [1, 2]
    f[0, 1].v.y += 5
    f[1, 2] = S(7, [8, 9])
    check([f[0, 1].a, f[0, 1].v, f[1, 2].a, f[1, 2].v], [4, [1.0, 7.0], 7, [8.0, 9.0]])
    check([f.shape, f.a.shape], [[2, 3], [2, 3]])


@pytest.mark.ours("struct-from-dict")
def test_element_from_a_dict() -> None:
    f = T.field(shape=2)
    f[1] = {"s": {"a": 3, "v": [1, 2]}, "w": 5}
    check(f[1].to_dict(), {"s": {"a": 3, "v": [1.0, 2.0]}, "w": 5.0})


def test_member_fields() -> None:
    f = S.field(shape=3)
    f.a[1] = 5
    f.v[2] = [1, 2]
    f.a.fill(4)
    check(f.get_member_field("a"), [4, 4, 4])
    check([f[2].v, f.v[2].x], [[1.0, 2.0], 1.0])
    assert list(f.keys) == ["a", "v"]


def test_nested_members() -> None:
    f = T.field(shape=2)
    f[1].s.v[0] = 4
    f[0].s = S(1, 2)
    f.s.a[1] = 6
    check([f[1].s.v, f.s.v[0], f[0].s.a, f[1].s.a], [[4.0, 0.0], [2.0, 2.0], 1, 6])


def test_a_field_made_of_its_members() -> None:
    @ti.func
    def energy(self):  # type: ignore[no-untyped-def]
        return 0.5 * self.m * self.v.norm_sqr()

    @ti.kernel
    def total() -> float:
        found = 0.0
        for i in bodies:
            bodies[i].v = [i, 1]
            bodies[i].m = 2
            found += bodies[i].energy()
        return found

    members = {"v": ti.Vector.field(2, float), "m": ti.field(ti.i32)}
    bodies = ti.StructField(members, {"energy": energy}, "bodies")
    ti.root.dense(ti.i, 4).place(bodies)
    assert total() == 18.0
    check([list(bodies.keys), members["m"], bodies[3].v], [["v", "m"], [2, 2, 2, 2], [3.0, 1.0]])


def test_a_field_made_of_nested_members() -> None:
    inner = S.field(shape=3)
    whole = ti.StructField({"s": inner, "w": ti.field(float, 3)}, {})
    whole.fill(2)
    whole[1].s.v.y = 7.0
    check([inner.v, whole.w], [[[2.0, 2.0], [2.0, 7.0], [2.0, 2.0]], [2.0, 2.0, 2.0]])


@pytest.mark.ours("struct-checks")
def test_members_that_make_no_field() -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError, match="the member `a` is no field"):
        ti.StructField({"a": ti.f32}, {})
    with pytest.raises(ti.TaichiRuntimeTypeError, match="different shapes"):
        ti.StructField({"a": ti.field(float, 3), "b": ti.field(float, 4)}, {})


def test_matrices_in_a_field() -> None:
    f = ti.Struct.field({"m": ti.types.matrix(2, 2, ti.f32), "n": ti.i32}, shape=2)
    f[0].m[0, 1] = 3
    f.m[1] = [[1, 2], [3, 4]]
    check([f.m[0], f[1].m[1, 0]], [[[0.0, 3.0], [0.0, 0.0]], 3.0])


def test_whole_field_to_and_from_numpy() -> None:
    f = T.field(shape=3)
    f.from_numpy({"s": {"a": np.arange(3), "v": np.ones((3, 2))}, "w": np.full(3, 2.5)})
    check(f, {"s": {"a": [0, 1, 2], "v": [[1.0, 1.0]] * 3}, "w": [2.5] * 3})


def test_fill_and_copy_from() -> None:
    f, g = S.field(shape=3), S.field(shape=3)
    f.fill(2)
    g.copy_from(f)
    f.a.fill(0)
    check(g, {"a": [2, 2, 2], "v": [[2.0, 2.0]] * 3})


@pytest.mark.ours("struct-fill")
def test_fill_with_a_struct() -> None:
    f = S.field(shape=2)
    f.fill(S(1, [2, 3]))
    check(f, {"a": [1, 1], "v": [[2.0, 3.0]] * 2})


def test_elements_in_kernels() -> None:
    f = S.field(shape=4)

    @ti.kernel
    def k():
        for i in f:
            f[i] = S(i * 2, [i, 1])
            f[i].a += 1
            f[i].v.y *= 3
            f.a[i] += 10

    k()
    check(f, {"a": [11, 13, 15, 17], "v": [[0.0, 3.0], [1.0, 3.0], [2.0, 3.0], [3.0, 3.0]]})


def test_elements_are_copied() -> None:
    f = S.field(shape=2)

    @ti.kernel
    def k():
        f[0] = S(1, [1, 2])
        f[1] = f[0]
        t = f[0]
        f[0].a = 5
        f[0].v = [9, 9]
        f[1].v.y = t.v.y + t.a + 10
        f[0], f[1] = f[1], f[0]

    k()
    check(f, {"a": [1, 5], "v": [[1.0, 13.0], [9.0, 9.0]]})


def test_loops_over_fields() -> None:
    f = S.field(shape=(2, 3))

    @ti.kernel
    def k():
        for i, j in f:
            f[i, j].a = i * 10 + j
        for i in ti.grouped(f):
            f[i].v = i
        for i, j in ti.ndrange(f.shape[0], f.shape[1]):
            f[i, j].a += 100

    k()
    check(f.a, [[100, 101, 102], [110, 111, 112]])
    check(f.v[1, 2], [1.0, 2.0])


def test_atomics_on_members() -> None:
    total = S.field(shape=())

    @ti.kernel
    def k(n: ti.i32):
        for i in range(n):
            total[None].a += 1
            ti.atomic_add(total[None].v.x, 0.5)
            total[None].v[1] += i

    k(10)
    check([total[None].a, total[None].v], [10, [5.0, 45.0]])


def test_field_without_axes() -> None:
    f = T.field(shape=())
    f[None].s.a = 3
    f[None].w = 1.5

    @ti.kernel
    def k() -> ti.f32:
        f[None].s.a += 1
        return f[None].s.a + f[None].w

    check(k(), 5.5)


def test_fields_as_template_arguments() -> None:
    f, g = S.field(shape=3), S.field(shape=2)

    @ti.func
    def put(h: ti.template(), i, x):
        h[i].a = x

    @ti.kernel
    def k(h: ti.template(), x: ti.i32):
        for i in h:
            put(h, i, x + i)

    k(f, 1)
    k(g, 5)
    check([f.a, g.a], [[1, 2, 3], [5, 6]])


def test_member_fields_in_static_loops() -> None:
    f = ti.Struct.field({"a": ti.i32, "b": ti.i32}, shape=2)

    @ti.kernel
    def k():
        for i in range(2):
            for m in ti.static([f.a, f.b]):
                m[i] += i + 1

    k()
    check(f, {"a": [1, 2], "b": [1, 2]})


@pytest.mark.ours("struct-offset")
def test_layout_soa_and_offset() -> None:
    f = S.field(shape=(2, 2), layout=ti.Layout.SOA)
    g = S.field(shape=(3,), offset=(-1,))

    @ti.kernel
    def k():
        for i, j in f:
            f[i, j].v = [i, j]
        for i in g:
            g[i].a = i

    k()
    check([f.v[1, 0], f[0, 1].v], [[1.0, 0.0], [0.0, 1.0]])
    check([g[-1].a, g.a[1], g.a], [-1, 1, [-1, 0, 1]])


def test_placed_by_hand() -> None:
    f, g = S.field(), S.field()
    ti.root.dense(ti.i, 4).place(f)
    ti.root.dense(ti.ij, (2, 3)).place(g.a)
    ti.root.dense(ti.ij, (2, 3)).place(g.v)

    @ti.kernel
    def k():
        for i in f:
            f[i] = S(i, [1, 2])
        for i, j in g:
            g[i, j].a = i + j

    k()
    check([f.a, f.v[3], g.a], [[0, 1, 2, 3], [1.0, 2.0], [[0, 1, 2], [1, 2, 3]]])


def test_struct_field_gradients() -> None:
    kind = ti.types.struct(m=ti.f32, v=ti.math.vec2)
    f = kind.field(shape=3, needs_grad=True)

    @ti.kernel
    def k():
        for i in f:
            f.grad[i].m = i
            f.m.grad[i] += 1
            f.v.grad[i] = [1, i]

    k()
    check([f.grad.m, f.m.grad, f.grad.v[2]], [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0]])


def test_wrong_use_from_python() -> None:
    f = S.field(shape=3)
    with pytest.raises(AttributeError):
        f[0].weight  # noqa: B018
    with pytest.raises(Exception):  # noqa: B017
        f.from_numpy({"a": np.zeros(3)})
    with pytest.raises((TypeError, NotImplementedError)):
        list(f)


# --- arrays --------------------------------------------------------------------------------------


@pytest.mark.ours("struct-arrays")
def test_arrays_of_structs() -> None:
    x, y = ti.ndarray(T, shape=4), S.ndarray(3)

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=T, ndim=1), y: ti.types.ndarray(dtype=S)):
        for i in x:
            x[i].s.a = i
            x[i].s.v = [i, i + 1]
            x[i].w = x.shape[0]
        for i in y:
            y[i] = x[i].s
        for i in ti.grouped(y):
            y[i].a += 1

    k(x, y)
    check(x.s.a, [0, 1, 2, 3])
    check(y, {"a": [1, 2, 3], "v": [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]})
    x[1] = T(S(5, [7, 8]), 3)
    check([x[1].s.v.x, x[1].w, x[0].w, x.shape], [7.0, 3.0, 4.0, [4]])
    z = copy.deepcopy(y)
    z[0].a = 50
    check([y[0].a, z[0].a], [1, 50])


@pytest.mark.ours("struct-arrays")
def test_gradients_of_arrays() -> None:
    kind = ti.types.struct(m=ti.f32)
    x = ti.ndarray(kind, 3, needs_grad=True)

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=kind)):
        for i in x:
            x.grad[i].m = i
            x[i].m = x.grad[i].m * 2

    k(x)
    check([x.grad.m, x.m], [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]])


# --- packs ---------------------------------------------------------------------------------------

Q = ti.types.struct(a=ti.i32, y=ti.i32)
Inner = ti.types.argpack(scale=ti.f32, one=Q)
Pack = ti.types.argpack(
    n=ti.i32,
    v=ti.math.vec3,
    m=ti.types.matrix(2, 2, ti.f32),
    x=ti.types.ndarray(dtype=ti.f32, ndim=1),
    inner=Inner,
)


def make_pack() -> object:
    inner = Inner(scale=2.5, one=Q(3, 2))
    x = ti.ndarray(ti.f32, 4)
    return Pack(n=1, v=[1, 2, 3], m=[[1, 2], [3, 4]], x=x, inner=inner)


def test_pack_members() -> None:
    p = make_pack()

    @ti.kernel
    def k(p: Pack, z: ti.i32) -> ti.f32:
        for i in p.x:
            p.x[i] = i * p.n + p.v[1]
        return p.inner.scale + p.m[0, 1] + z + p.inner.one.a + p.inner.one.y + p.v.sum()

    check(k(p, 7), 2.5 + 2 + 7 + 3 + 2 + 6)
    check(p.x, [2.0, 3.0, 4.0, 5.0])
    p.n = 5
    k(p, 0)
    check(p.x, [2.0, 7.0, 12.0, 17.0])


def test_pack_in_python() -> None:
    p = make_pack()
    assert isinstance(p, ti.ArgPack)
    check(
        [p.n, p.v, p.inner.scale, list(p.keys)],
        [1, [1.0, 2.0, 3.0], 2.5, ["n", "v", "m", "x", "inner"]],
    )
    p.v = [4, 5, 6]
    check(p["v"], [4.0, 5.0, 6.0])


def test_pack_copies_are_variables() -> None:
    @ti.kernel
    def k(p: Inner) -> ti.f32:
        s = p.one
        s.a += 10
        by = p.scale
        by += 1
        return s.a + by + 100 * p.one.a

    check(k(Inner(scale=0.5, one=Q(1))), 112.5)


def test_pack_is_not_written() -> None:
    @ti.kernel
    def k(p: Inner):
        p.scale = 3.0

    with pytest.raises(ti.TaichiSyntaxError):
        k(Inner(scale=0.5, one=Q()))


@pytest.mark.ours("struct-packs")
def test_packs_and_funcs() -> None:
    @ti.func
    def f(p: ti.template()):
        return p.scale + p.one.y

    @ti.func
    def g(p):
        return p.scale * 2

    @ti.kernel
    def k(p: Inner) -> ti.f32:
        return f(p) + g(p)

    check(k(Inner(scale=1.5, one=Q(y=3))), 7.5)


@pytest.mark.ours("struct-packs")
def test_packs_of_host_and_struct_arrays() -> None:
    kind = ti.types.argpack(x=ti.types.ndarray(), s=ti.types.ndarray(dtype=S))

    @ti.kernel
    def k(p: kind):
        for i in p.x:
            p.x[i] += 1
            p.s[i].a = i

    x, s = np.zeros(3, np.float32), ti.ndarray(S, 3)
    k(kind(x=x, s=s))
    check([x, s.a], [[1.0, 1.0, 1.0], [0, 1, 2]])


@pytest.mark.parametrize("given", [{}, {"n": 1}, {"scale": "x", "one": 1}])
def test_wrong_packs(given) -> None:
    with pytest.raises(Exception):  # noqa: B017
        Inner(**given)


def test_members_named_as_attributes() -> None:
    kind = ti.types.struct(type=ti.i32, member=ti.f32, index=ti.i32, arrays=ti.i32)
    f = kind.field(shape=2)

    @ti.kernel
    def k():
        for i in f:
            f[i] = kind(1, 2.0, index=3)
            f.arrays[i] = 5

    k()
    f[1].index += 10
    check([f.type, f[0].member, f[1].index, f[0].arrays], [[1, 1], 2.0, 13, 5])


def test_elements_are_sorted_and_swapped() -> None:
    f = ti.types.struct(key=ti.i32, value=ti.f32).field(shape=8)
    f.from_numpy({"key": (np.arange(8) * 5) % 8, "value": np.arange(8.0)})

    @ti.kernel
    def sort():
        ti.loop_config(serialize=True)
        for i in range(8):
            for j in range(7 - i):
                if f[j].key > f[j + 1].key:
                    t = f[j]
                    f[j] = f[j + 1]
                    f[j + 1] = t

    @ti.kernel
    def swap():
        for i in range(4):
            f[i], f[7 - i] = f[7 - i], f[i]

    sort()
    check(f.value, [0.0, 5.0, 2.0, 7.0, 4.0, 1.0, 6.0, 3.0])
    swap()
    check(f.key, [7, 6, 5, 4, 3, 2, 1, 0])


def test_members_by_reference() -> None:
    f = S.field(shape=2)

    @ti.func
    def grow(x: ti.template(), by):
        x += by

    @ti.kernel
    def k():
        for i in f:
            grow(f[i].a, 2)
            grow(f[i].v, ti.Vector([1.0, 2.0]))
            grow(f[i].v.y, 10.0)
            grow(f[i].v[0], 5.0)
            f[i].v.xy = f[i].v.yx

    k()
    check(f, {"a": [2, 2], "v": [[12.0, 6.0]] * 2})


def test_elements_index_elements() -> None:
    f = S.field(shape=4)
    for i in range(4):
        f[i].a = (i + 1) % 4

    @ti.kernel
    def k():
        for i in f:
            f[f[i].a].v[f[i].a % 2] += f[f[i].a].a

    k()
    check(f.v, [[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
