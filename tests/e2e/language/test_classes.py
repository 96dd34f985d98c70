"""`@ti.data_oriented`: methods, inheritance, properties, calls of kernels and funcs."""

import abc
import dataclasses

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_do_basic() -> None:
    @ti.data_oriented
    class A:
        def __init__(self, n):
            self.n = n
            self.x = ti.field(ti.i32, shape=n)

        @ti.func
        def sq(self, i):
            return i * i + self.n

        @ti.kernel
        def run(self, k: ti.i32):
            for i in self.x:
                self.x[i] = self.sq(i) * k

    a, b = A(3), A(4)
    a.run(1)
    b.run(2)
    check([a.x, b.x], [[3, 4, 7], [8, 10, 16, 26]])


def test_do_inherit() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, shape=())

        @ti.func
        def f(self):
            return 1

        @ti.kernel
        def run(self):
            self.x[None] = self.f()

    @ti.data_oriented
    class B(A):
        @ti.func
        def f(self):
            return 2

    a, b = A(), B()
    a.run()
    b.run()
    check([a.x[None], b.x[None]], [1, 2])


def test_do_inherit_undecorated() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, shape=())

        @ti.func
        def f(self):
            return 1

        @ti.kernel
        def run(self):
            self.x[None] = self.f()

    class B(A):
        @ti.func
        def f(self):
            return 2

    b = B()
    b.run()
    check(b.x[None], 2)


@pytest.mark.ours("super-and-class-calls")
def test_do_super_py() -> None:
    @ti.data_oriented
    class A:
        def __init__(self, n):
            self.n = n
            self.x = ti.field(ti.i32, shape=n)

        @ti.kernel
        def run(self):
            for i in self.x:
                self.x[i] = i

    @ti.data_oriented
    class B(A):
        def __init__(self, n):
            super().__init__(n)
            self.y = ti.field(ti.i32, shape=n)

        @ti.kernel
        def run2(self):
            for i in self.y:
                self.y[i] = self.x[i] * 2

        def all(self):
            super().run()
            self.run2()

    b = B(3)
    b.all()
    check(b.y, [0, 2, 4])


@pytest.mark.ours("super-and-class-calls")
def test_do_super_kernel_override() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, shape=())

        @ti.kernel
        def run(self):
            self.x[None] += 1

    @ti.data_oriented
    class B(A):
        @ti.kernel
        def run(self):
            self.x[None] += 10

        def both(self):
            super().run()
            self.run()

    b = B()
    b.both()
    check(b.x[None], 11)


@pytest.mark.ours("super-and-class-calls")
def test_do_super_in_func() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, shape=())

        @ti.func
        def f(self):
            return 1

    @ti.data_oriented
    class B(A):
        @ti.func
        def f(self):
            return super().f() + 10

        @ti.kernel
        def run(self):
            self.x[None] = self.f()

    b = B()
    b.run()
    check(b.x[None], 11)


def test_do_parent_func_by_class() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, shape=())

        @ti.func
        def f(self):
            return 1

    @ti.data_oriented
    class B(A):
        @ti.func
        def f(self):
            return A.f(self) + 10

        @ti.kernel
        def run(self):
            self.x[None] = self.f()

    b = B()
    b.run()
    check(b.x[None], 11)


@pytest.mark.ours("class-and-static-methods")
def test_do_classmethod() -> None:
    @ti.data_oriented
    class Counter:
        num = ti.field(ti.i32, shape=())

        @ti.kernel
        def add(cls: ti.template(), k: ti.i32):
            cls.num[None] += k

        @classmethod
        @ti.kernel
        def addc(cls, k: ti.i32):
            cls.num[None] += k

    c = Counter()
    Counter.addc(3)
    c.addc(4)
    check(Counter.num[None], 7)


@pytest.mark.ours("class-and-static-methods")
def test_do_classmethod_doc() -> None:
    @ti.data_oriented
    class Counter:
        num_ = ti.field(dtype=ti.i32, shape=(32,))

        def __init__(self, add_input):
            self.a = add_input

        @classmethod
        @ti.kernel
        def sum(cls, add_input: ti.i32) -> ti.i32:
            s = 0
            for i in range(32):
                s += i
            return s + add_input

    check([Counter.sum(2), Counter(1).sum(3)], [498, 499])


def test_do_property() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.n = 3
            self.f_ = ti.field(ti.i32, 2)

        @property
        def m(self):
            return self.n * 2

        @property
        def f(self):
            return self.f_

        @ti.kernel
        def run(self) -> ti.i32:
            self.f[1] = 5
            return self.m + self.f[1]

    check(A().run(), 11)


def test_do_class_attr() -> None:
    @ti.data_oriented
    class A:
        K = 7
        v = ti.Vector([1.0, 2.0])

        @ti.kernel
        def run(self) -> ti.f32:
            return self.K + self.v[1]

    check(A().run(), 9.0)


def test_do_kernel_attr() -> None:
    @ti.kernel
    def k(x: ti.i32) -> ti.i32:
        return x + 1

    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = k

        def run(self):
            return self.k(3)

    check(A().run(), 4)


def test_do_plain_class() -> None:
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, 2)

        @ti.kernel
        def run(self):
            self.x[0] = 1

    with pytest.raises(ti.TaichiSyntaxError, match="data_oriented"):
        A().run()


def test_do_plain_class_func() -> None:
    class A:
        def __init__(self):
            self.x = ti.field(ti.i32, 2)
            self.k = 6

        @ti.func
        def f(self):
            return self.k

    a = A()

    @ti.kernel
    def run() -> ti.i32:
        return a.f()

    check(run(), 6)


def test_do_pyfunc() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 6

        @ti.pyfunc
        def f(self, x):
            return self.k * x

        @ti.kernel
        def run(self) -> ti.i32:
            return self.f(2)

    a = A()
    check([a.run(), a.f(3)], [12, 18])


def test_do_kwargs() -> None:
    @ti.data_oriented
    class A:
        @ti.kernel
        def run(self, a: ti.i32, b: ti.i32) -> ti.i32:
            return a * 10 + b

    check([A().run(1, b=2), A().run(b=1, a=2)], [12, 21])


@pytest.mark.ours("super-and-class-calls")
def test_do_kernel_by_class() -> None:
    @ti.data_oriented
    class A:
        def __init__(self):
            self.k = 3

        @ti.kernel
        def run(self) -> ti.i32:
            return self.k

    check(A.run(A()), 3)


def test_do_mixin() -> None:
    class M:
        @ti.func
        def g(self, x):
            return x + self.off

    @ti.data_oriented
    class A(M):
        def __init__(self):
            self.off = 6

        @ti.kernel
        def run(self) -> ti.i32:
            return self.g(1)

    check(A().run(), 7)


def test_do_abc() -> None:
    class M(abc.ABC):
        @abc.abstractmethod
        def g(self, x): ...
        @ti.kernel
        def run(self) -> ti.i32:
            return self.g(1)

    @ti.data_oriented
    class A(M):
        @ti.func
        def g(self, x):
            return x + 4

    check(A().run(), 5)


@pytest.mark.ours("unhashable-objects")
def test_do_dataclass_py() -> None:
    @ti.data_oriented
    @dataclasses.dataclass
    class A:
        k: int = 3

        @ti.kernel
        def run(self) -> ti.i32:
            return self.k

    check([A().run(), A(5).run()], [3, 5])
