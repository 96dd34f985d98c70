"""`@ti.data_oriented` objects: attributes, objects in objects, lists of them, as arguments."""

import enum

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_do_nested() -> None:
    @ti.data_oriented
    class In:
        def __init__(self, k):
            self.k = k
            self.x = ti.field(ti.i32, 3)

        @ti.func
        def put(self, i, v):
            self.x[i] = v * self.k

    @ti.data_oriented
    class Out:
        def __init__(self):
            self.a = In(2)
            self.b = In(3)

        @ti.kernel
        def run(self):
            for i in range(3):
                self.a.put(i, i)
                self.b.put(i, i)

    o = Out()
    o.run()
    check([o.a.x, o.b.x], [[0, 2, 4], [0, 3, 6]])


def test_do_list_of() -> None:
    @ti.data_oriented
    class In:
        def __init__(self, k):
            self.k = k

        @ti.func
        def get(self, v):
            return v * self.k

    @ti.data_oriented
    class Out:
        def __init__(self):
            self.a = [In(2), In(3)]

        @ti.kernel
        def run(self) -> ti.i32:
            r = 0
            for o in ti.static(self.a):
                r = r * 10 + o.get(1)
            for j in ti.static(range(2)):
                r = r * 10 + self.a[j].get(1)
            return r

    check(Out().run(), 2323)


@pytest.mark.ours("changed-values")
def test_do_attr_change() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 1

        @ti.kernel
        def run(self) -> ti.i32:
            return self.k

    a = A()
    r = [a.run()]
    a.k = 5
    r.append(a.run())
    b = A()
    b.k = 9
    r.append(b.run())
    r.append(a.run())
    check(r, [1, 5, 9, 5])


def test_do_assign_attr() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 1

        @ti.kernel
        def run(self):
            self.k = 2

    a = A()
    with pytest.raises(ti.TaichiSyntaxError):
        a.run()


def test_do_func_attr() -> None:
    @ti.func
    def f(x):
        return x + 1

    @ti.data_oriented
    class A:
        def __init__(self, g):
            self.g = g

        @ti.kernel
        def run(self) -> ti.i32:
            return self.g(4)

    check(A(f).run(), 5)


def test_do_template_self() -> None:
    @ti.data_oriented
    class A:
        def __init__(self, k):
            self.k = k
            self.x = ti.field(ti.i32, 2)

        @ti.func
        def add(self, i):
            self.x[i] += self.k

    @ti.kernel
    def run(a: ti.template()):
        for i in range(2):
            a.add(i)

    a, b = A(2), A(3)
    run(a)
    run(b)
    run(a)
    check([a.x, b.x], [[4, 4], [3, 3]])


def test_do_global_obj() -> None:
    @ti.data_oriented
    class A:
        def __init__(self, k):
            self.k = k
            self.x = ti.field(ti.i32, 2)

        @ti.func
        def add(self, i):
            self.x[i] += self.k

    a = A(4)

    @ti.kernel
    def run():
        for i in range(2):
            a.add(i)

    run()
    check(a.x, [4, 4])


def test_do_ndarray_attr() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.ndarray(ti.i32, 3)

        @ti.kernel
        def run(self, x: ti.types.ndarray()):
            for i in x:
                x[i] = i

        def go(self):
            self.run(self.x)

    a = A()
    a.go()
    check(a.x, [0, 1, 2])


def test_do_ndarray_captured() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.ndarray(ti.i32, 3)

        @ti.kernel
        def run(self):
            for i in range(3):
                self.x[i] = i

    a = A()
    a.run()
    check(a.x, [0, 1, 2])


def test_do_method_plain_in_kernel() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 6

        def plain(self):
            return self.k

        @ti.kernel
        def run(self) -> ti.i32:
            return self.plain()

    check(A().run(), 6)


def test_do_init_kernel() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, 3)
            self.setup()

        @ti.kernel
        def setup(self):
            for i in self.x:
                self.x[i] = i + 1

    check(A().x, [1, 2, 3])


def test_do_slots_dict() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.d = {"a": 1, "b": ti.field(ti.i32, 2)}

        @ti.kernel
        def run(self) -> ti.i32:
            self.d["b"][1] = 5
            return self.d["a"] + self.d["b"][1]

    check(A().run(), 6)


def test_do_enum() -> None:
    class E(enum.IntEnum):
        A = 1
        B = 2

    class F(enum.Enum):
        A = 1

    @ti.kernel
    def run(x: ti.i32) -> ti.i32:
        r = 0
        if x == E.B:
            r = 5
        if ti.static(F.A == F.A):
            r += 10
        return r + E.A

    check([run(2), run(1)], [16, 11])


def test_do_return_tuple() -> None:
    @ti.data_oriented
    class A:
        @ti.func
        def f(self, a, b=4):
            return a, b

        @ti.kernel
        def run(self) -> ti.i32:
            x, y = self.f(1)
            z, w = self.f(b=2, a=3)
            return x * 1000 + y * 100 + z * 10 + w

    check(A().run(), 1432)


def test_do_in_func_local() -> None:
    @ti.data_oriented
    class Ray:
        def __init__(self):
            self.o = ti.Vector.field(3, ti.f32, shape=())
            self.o[None] = [1, 2, 3]

        @ti.func
        def at(self, t):
            return self.o[None] + t

    r = Ray()

    @ti.kernel
    def k() -> ti.types.vector(3, ti.f32):
        return r.at(2.0)

    check(list(k()), [3.0, 4.0, 5.0])


def test_do_call_dunder() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 2

        @ti.func
        def __call__(self, x):
            return x * self.k

        @ti.kernel
        def run(self) -> ti.i32:
            return self(4)

    check(A().run(), 8)


def test_do_getitem() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, 3)

        @ti.func
        def __getitem__(self, i):
            return self.x[i] + 1

        @ti.kernel
        def run(self) -> ti.i32:
            return self[1]

    check(A().run(), 1)


def test_do_del() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.a = 1

        @ti.kernel
        def k(self) -> ti.i32:
            return self.a

    r = [A().k() for _ in range(5)]
    check(r, [1, 1, 1, 1, 1])


def test_attributes_by_name() -> None:
    S = ti.types.struct(a=ti.f32, n=ti.i32)
    f = S.field(shape=3)

    @ti.kernel
    def fill() -> ti.f32:
        s = S(a=1.5, n=2)
        total = 0.0
        for key in ti.static(["a", "n"]):
            total += getattr(s, key)
            if ti.static(hasattr(s, key)):
                total += 10.0
        if ti.static(hasattr(s, "missing")):
            total += 1000.0
        for i in range(3):
            getattr(f, "n")[i] = i + getattr(f[i], "n", 7)
        return total

    assert fill() == 23.5
    assert f.n.to_numpy().tolist() == [0, 1, 2]
