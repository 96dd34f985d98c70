"""Methods of structs in kernels: `@ti.dataclass`, `__struct_methods`, changes of `self`."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@ti.dataclass
class Body:
    x: ti.f32
    v: ti.math.vec2

    @ti.func
    def speed(self):
        return self.v.norm()

    @ti.func
    def move(self, dt):
        self.x += dt
        self.v += dt * 2

    @ti.func
    def give(self, out: ti.template()):
        out += self.x

    @ti.func
    def moved(self, dt):
        other = self
        other.move(dt)
        return other

    @ti.func
    def twice(self):
        self.move(1.0)
        self.move(1.0)

    @ti.func
    def distance(self, other):
        return abs(self.x - other.x)


def test_method_reads() -> None:
    @ti.kernel
    def k() -> ti.f32:
        return Body(1.0, [3, 4]).speed() + Body(v=[6, 8]).speed()

    check(k(), 15.0)


def test_method_changes_self() -> None:
    @ti.kernel
    def k() -> ti.f32:
        b = Body(1.0, [0, 0])
        b.move(0.5)
        b.twice()
        return b.x + 10 * b.v.x

    check(k(), 53.5)


def test_method_leaves_the_original() -> None:
    @ti.kernel
    def k() -> ti.f32:
        b = Body(1.0, [0, 0])
        c = b.moved(2.0)
        return b.x + 10 * c.x

    check(k(), 31.0)


def test_method_in_loops() -> None:
    @ti.kernel
    def k() -> ti.f32:
        b, total = Body(0.0, [0, 0]), 0.0
        for _ in range(1):
            for i in range(4):
                if i % 2 == 0:
                    b.move(1.0)
                for j in range(2):
                    b.give(total)
            while b.x < 5:
                b.move(1.0)
        return total + 100 * b.x

    check(k(), 512.0)


def test_method_takes_a_struct() -> None:
    @ti.kernel
    def k() -> ti.f32:
        b, c = Body(1.0), Body(x=5.0)
        return b.distance(c) + c.distance(other=b)

    check(k(), 8.0)


def test_methods_of_elements() -> None:
    f = Body.field(shape=4)

    @ti.kernel
    def k() -> ti.f32:
        for i in f:
            f[i].x = i
            f[i].move(1.0)
            f[i].twice()
        total = 0.0
        for i in range(4):
            total += f[i].speed()
        return total

    check(k(), 4 * 72**0.5)
    check(f.x, [3.0, 4.0, 5.0, 6.0])


def test_methods_of_nested_structs() -> None:
    @ti.dataclass
    class Pair:
        a: Body
        b: Body

        @ti.func
        def swap(self):
            self.a, self.b = self.b, self.a

        @ti.func
        def move(self, dt):
            self.a.move(dt)
            self.b.move(-dt)

    f = Pair.field(shape=2)

    @ti.kernel
    def k() -> ti.f32:
        p = Pair(Body(1.0), Body(2.0))
        for _ in range(3):
            p.move(0.5)
        f[1] = p
        f[1].a.move(1.0)
        f[1].b.move(2.0)
        return p.a.x * 10 + p.b.x

    check(k(), 25.5)
    check([f[1].a.x, f[1].b.x], [3.5, 2.5])


def test_methods_of_template_arguments() -> None:
    @ti.func
    def push(b: ti.template()):
        b.move(1.0)

    f = Body.field(shape=3)

    @ti.kernel
    def k() -> ti.f32:
        b = Body(1.0)
        for _ in range(2):
            push(b)
        for i in range(3):
            push(f[i])
        return b.x

    check(k(), 3.0)
    check(f.x, [1.0, 1.0, 1.0])


def test_methods_given_to_a_type() -> None:
    @ti.func
    def area(self):
        return self.r * self.r

    kind = ti.types.struct(r=ti.f32, __struct_methods={"area": area})
    f = ti.Struct.field({"r": ti.f32}, methods={"area": area}, shape=2)
    one = ti.Struct({"r": 2.0, "__struct_methods": {"area": area}})

    @ti.kernel
    def k() -> ti.f32:
        f[1].r = 4.0
        return kind(r=3.0).area() + 100 * f[1].area() + 10000 * one.area()

    check(k(), 41609.0)


def test_method_condition_changes_self() -> None:
    @ti.dataclass
    class Count:
        n: ti.i32

        @ti.func
        def next(self):
            self.n += 1
            return self.n

    f = Count.field(shape=3)

    @ti.kernel
    def k():
        for i in f:
            while True:
                if f[i].next() >= 5 + i:
                    break

    k()
    check(f.n, [5, 6, 7])


@pytest.mark.ours("struct-static-methods")
def test_static_and_class_methods_and_properties() -> None:
    @ti.dataclass
    class A:
        x: ti.f32

        @staticmethod
        @ti.func
        def double(y):
            return y * 2

        @classmethod
        def of(cls, y):
            return cls(y + 1)

        @property
        @ti.pyfunc
        def squared(self):
            return self.x * self.x

        def plain(self, y):
            return self.x + y

    @ti.kernel
    def k(y: ti.f32) -> ti.f32:
        a = A.of(y)
        return a.double(y) + A.double(1.0) + a.squared + a.plain(100.0)

    check(k(2.0), 4.0 + 2.0 + 9.0 + 103.0)


@pytest.mark.ours("struct-inheritance")
def test_methods_of_the_class_below() -> None:
    @ti.dataclass
    class A:
        x: ti.f32

        @ti.func
        def plus(self):
            return self.x + 1

    @ti.dataclass
    class B(A):
        y: ti.f32

        @ti.func
        def both(self):
            return self.plus() * self.y

    @ti.kernel
    def k() -> ti.f32:
        return B(2.0, 3.0).both()

    check(k(), 9.0)


def test_methods_of_a_plain_base_class() -> None:
    class Named:
        @ti.func
        def area(self):
            return self.w * self.h

    @ti.dataclass
    class Rect(Named):
        w: ti.f32
        h: ti.f32

        @ti.func
        def scaled(self, by):
            return Rect(self.w * by, self.h * by)

    @ti.kernel
    def k() -> ti.f32:
        return Rect(2.0, 3.0).scaled(2.0).area()

    check(k(), 24.0)


def test_ray_and_spheres() -> None:
    @ti.dataclass
    class Ray:
        o: ti.math.vec3
        d: ti.math.vec3

        @ti.func
        def at(self, t):
            return self.o + t * self.d

    @ti.dataclass
    class Sphere:
        c: ti.math.vec3
        r: ti.f32

        @ti.func
        def hit(self, ray):
            oc = ray.o - self.c
            half = oc.dot(ray.d)
            disc = half * half - oc.dot(oc) + self.r * self.r
            t = -1.0
            if disc > 0:
                t = -half - ti.sqrt(disc)
            return t

    spheres = Sphere.field(shape=3)
    spheres[0] = Sphere(c=[0, 0, 5], r=1.0)
    spheres[1].c = [0, 0, 8]
    spheres[1].r = 2
    spheres[2] = Sphere([5, 0, 0], 1)
    depth = ti.field(ti.f32, shape=3)
    point = ti.Vector.field(3, ti.f32, shape=3)

    @ti.kernel
    def render():
        for i in spheres:
            ray = Ray(o=[0, 0, 0], d=ti.Vector([0.0, 0.0, 1.0]))
            depth[i] = spheres[i].hit(ray)
            point[i] = ray.at(depth[i])

    render()
    check(depth, [4.0, 6.0, -1.0])
    check(point, [[0.0, 0.0, 4.0], [0.0, 0.0, 6.0], [0.0, 0.0, -1.0]])


@pytest.mark.ours("struct-methods")
def test_struct_methods_by_name_change_their_struct() -> None:
    @ti.func
    def scale(self, s):
        self.w *= s

    box = ti.types.struct(w=ti.f32, __struct_methods={"scale": scale})
    x = box.field(shape=2)

    @ti.kernel
    def k() -> ti.f32:
        b = box(w=2.0)
        b.scale(3.0)
        x[1] = b
        x[1].scale(2.0)
        return b.w

    check(k(), 6.0)
    check(x.w, [0.0, 12.0])
