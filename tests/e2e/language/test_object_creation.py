"""Objects that kernels make of Python classes, and Python functions that kernels inline."""

import dataclasses

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_rays_are_made_by_a_function() -> None:
    @ti.data_oriented
    class Ray:
        def __init__(self, origin, direction):
            self.origin = origin
            self.direction = direction

        def at(self, t):
            return self.origin + t * self.direction

    @ti.data_oriented
    class Camera:
        def __init__(self):
            self.eye = ti.Vector.field(3, ti.f32, shape=())
            self.eye[None] = [1.0, 2.0, 3.0]

        @ti.func
        def ray(self, u, v):
            return Ray(self.eye[None], ti.Vector([u, v, -1.0]))

    camera = Camera()
    x = ti.Vector.field(3, ti.f32, 2)

    @ti.func
    def shade(ray):
        return ray.at(0.5) + ray.at(1.0)

    @ti.kernel
    def k():
        for i in x:
            ray = camera.ray(i * 1.0, 2.0)
            x[i] = shade(ray)

    k()
    check(x, [[2.0, 7.0, 4.5], [3.5, 7.0, 4.5]])


@pytest.mark.ours("objects-made")
def test_operators_of_constants_beside_kernel_values() -> None:
    """Comparisons, `sum`, and methods called by name find the operators of a captured object."""

    class Limit:
        def __init__(self, most):
            self.most = most

        def __gt__(self, x):
            return self.most > x

        def __eq__(self, x):
            return self.most == x

        def __radd__(self, x):
            return x + self.most

    limit = Limit(3)

    @ti.kernel
    def k(n: ti.i32) -> ti.types.vector(4, ti.i32):
        return ti.Vector([n < limit, n == limit, sum([n, limit]), n.__add__(limit)])

    check(k(2), [1, 0, 5, 5])
    check(k(3), [0, 1, 6, 6])


@pytest.mark.ours("objects-made")
def test_objects_with_operators() -> None:
    class Complex:
        def __init__(self, re, im=0.0):
            self.re, self.im = re, im

        def __add__(self, other):
            return Complex(self.re + other.re, self.im + other.im)

        def __mul__(self, other):
            if not isinstance(other, Complex):
                return Complex(self.re * other, self.im * other)
            re = self.re * other.re - self.im * other.im
            return Complex(re, self.re * other.im + self.im * other.re)

        def __rmul__(self, other):
            return self * other

        def __neg__(self):
            return Complex(-self.re, -self.im)

        def __call__(self, x):
            return self.re + self.im * x

        def __lt__(self, other):
            return self.re < other.re

        @property
        def square(self):
            return self.re * self.re + self.im * self.im

        @staticmethod
        def of(x):
            return Complex(x)

    @ti.kernel
    def k(a: ti.f32, b: ti.f32) -> ti.types.vector(5, ti.f32):
        x = Complex(a, b)
        z = 2.0 * (x * x) + Complex.of(b) * 3.0 + -x
        for _ in range(2):
            z = z * x
        if z < x:
            z.im = 7.0
        return ti.Vector([z.re, z.im, z.square, z(2.0), ti.cast(hasattr(z, "re"), ti.f32)])

    z = 2 * (1.5 - 0.5j) ** 2 + 3 * -0.5 - (1.5 - 0.5j)
    z *= (1.5 - 0.5j) ** 2
    want = complex(z.real, 7.0) if z.real < 1.5 else z
    check(
        k(1.5, -0.5),
        [want.real, want.imag, abs(want) ** 2, want.real + 2 * want.imag, 1.0],
    )


@pytest.mark.ours("objects-made")
def test_objects_of_derived_classes() -> None:
    class Base:
        scale = 4

        def __init__(self, x):
            self.x = x

        def value(self):
            return self.x * self.scale

    class Derived(Base):
        def __init__(self, x, y):
            super().__init__(x)
            self.y = y

        def value(self):
            return super().value() + self.y

    @ti.kernel
    def k(a: ti.f32) -> ti.f32:
        d = Derived(a, a + 1)
        if a > 1.0:
            d.x = 10.0
        return d.value() + ti.cast(isinstance(d, Base), ti.f32)

    check([k(0.5), k(2.0)], [4.5, 44.0])


@pytest.mark.ours("objects-made")
def test_objects_of_python_dataclasses() -> None:
    @dataclasses.dataclass
    class Hit:
        t: float
        normal: object
        hits: int = 1

    @ti.func
    def trace(x):
        return Hit(x * 2, ti.Vector([x, 1.0])), x

    @ti.kernel
    def k(x: ti.f32) -> ti.f32:
        hit, y = trace(x)
        return hit.t + hit.normal.sum() * 10 + hit.hits * 1000 + y

    check(k(3.0), 1049.0)


@pytest.mark.ours("objects-made")
def test_objects_have_gradients() -> None:
    class Dual:
        def __init__(self, v, d):
            self.v, self.d = v, d

        def __mul__(self, o):
            return Dual(self.v * o.v, self.v * o.d + self.d * o.v)

    x = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def k():
        for i in x:
            d = Dual(x[i], 1.0)
            loss[None] += (d * d * d).d  # 3 x ** 2

    x.from_numpy(np.array([1.0, 2.0, 3.0], np.float32))
    with ti.ad.Tape(loss):
        k()
    check(x.grad, [6.0, 12.0, 18.0])


def test_a_tree_of_objects_calls_itself() -> None:
    @ti.data_oriented
    class Ball:
        def __init__(self, x, r):
            self.x, self.r = ti.Vector(x), r

        @ti.func
        def distance(self, p):
            return (p - self.x).norm() - self.r

    @ti.data_oriented
    class Union:
        def __init__(self, a, b):
            self.a, self.b = a, b

        @ti.func
        def distance(self, p):
            return ti.min(self.a.distance(p), self.b.distance(p))

    left = Union(Ball([0.0, 0.0], 1.0), Ball([5.0, 0.0], 0.5))
    scene = Union(left, Union(Ball([0.0, 9.0], 2.0), Union(left, Ball([9.0, 9.0], 1.0))))

    @ti.kernel
    def k(x: ti.f32, y: ti.f32) -> ti.f32:
        return scene.distance(ti.Vector([x, y]))

    check([k(3.0, 0.0), k(9.0, 5.0), k(0.0, 6.0)], [1.5, 3.0, 1.0])


def test_a_method_that_never_ends_raises() -> None:
    @ti.data_oriented
    class A:
        @ti.func
        def f(self, x):
            return self.f(x + 1)

        @ti.kernel
        def k(self) -> ti.i32:
            return self.f(ti.cast(1, ti.i32))

    with pytest.raises(Exception, match=r"f\(|recursion"):
        A().k()


# --- Python functions ----------------------------------------------------------------------------


def test_python_functions_take_any_number_of_arguments() -> None:
    def add(*xs):
        return sum(xs)

    def scaled(x, **options):
        return x * options["by"] if "by" in options else x

    vec = lambda *xs: ti.Vector(list(xs))  # noqa: E731

    @ti.kernel
    def k(x: ti.f32) -> ti.types.vector(3, ti.f32):
        both = scaled(x, by=4.0) + scaled(x)
        return ti.Vector([add(x, x * 2, 3.0), vec(x, 1.0, 2.0).sum(), both])

    check(k(1.5), [7.5, 4.5, 7.5])


def test_variables_of_python_functions_take_assigned_types() -> None:
    def polynomial(x):
        r = 0
        for c in reversed([1.0, -0.5, 0.25]):
            r = r * x + c
        return r

    def dot(a, b):
        r = 0
        for i in range(len(a)):
            r = r + a[i] * b[i]
        return r

    def sizes(x):
        v = x
        v = ti.Vector([v, v * 2])
        v = v.sum()
        return v

    def powers(x, n):
        found = []
        p = 1.0
        for _ in range(n):
            found.append(p)
            p = p * x
        return found

    @ti.kernel
    def k(x: ti.f32) -> ti.types.vector(4, ti.f32):
        p = powers(x, 4)
        return ti.Vector([polynomial(x), dot([x, 2 * x], [0.5, 0.25]), sizes(x), p[0] + p[3]])

    check(k(2.0), [1.0, 2.0, 6.0, 9.0])


@pytest.mark.ours("python-functions")
def test_sums_in_python_functions() -> None:
    def total(xs):
        r = 0
        for x in xs:
            r += x
        return r

    @ti.kernel
    def k(x: ti.f32) -> ti.f32:
        return total([x, x * 2, 0.5])

    check(k(2.5), 8.0)


@pytest.mark.ours("python-functions")
def test_an_integer_that_becomes_a_float_in_a_branch_raises() -> None:
    def f(x):
        r = 0
        if x > 1:
            r = x * 0.5
        return r

    @ti.kernel
    def k(x: ti.f32) -> ti.f32:
        return f(x)

    with pytest.raises(ti.TaichiCompilationError, match="begin with a float"):
        k(2.0)


@pytest.mark.ours("python-functions")
def test_loops_at_run_time_in_python_functions() -> None:
    def f(x, n):
        r = 0.0
        for i in range(n):
            if i % 2 == 1:
                r += x
        return r

    @ti.kernel
    def k(x: ti.f32, n: ti.i32) -> ti.f32:
        return f(x, n)

    check(k(1.5, 5), 3.0)


def test_tuples_have_a_length() -> None:
    x = ti.field(ti.f32, (3, 4))

    @ti.kernel
    def k() -> ti.i32:
        n = 0
        for d in ti.static(range(x.shape.__len__())):
            n = n * 10 + x.shape[d]
        return n

    check(k(), 34)


@pytest.mark.ours("evaluation-order")
def test_the_target_of_an_augmented_assignment_is_evaluated_first() -> None:
    calls = ti.field(ti.i32, ())
    y = ti.field(ti.i32, 4)

    @ti.func
    def count():
        calls[None] += 1
        return calls[None]

    @ti.kernel
    def k():
        for _ in range(1):
            y[count()] += 10 + count()
            y[count()] *= 0
            y[0] = count() - 10 * count()

    k()
    check([y, calls], [[4 - 50, 12, 0, 0], 5])


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return self.scale * x


def test_captured_objects_are_called() -> None:
    twice = Scaled(2)

    @ti.kernel
    def k(x: ti.i32) -> ti.i32:
        return 100 * twice(x) + twice(5)

    check(k(3), 610)
    twice.scale = 3
    check(k(3), 915)
