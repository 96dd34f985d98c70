"""Changes in Python after a kernel was compiled: the next call has them."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check

STEP = 1


@ti.func
def scaled(x):
    return x * 2


@pytest.mark.ours("changed-classes")
def test_a_method_that_was_changed_counts_from_the_next_call_on() -> None:
    @ti.data_oriented
    class Solver:
        def __init__(self):
            self.x = ti.field(ti.i32, ())

        @ti.func
        def step(self):
            return 1

        @ti.kernel
        def run(self) -> ti.i32:
            self.x[None] += self.step()
            return self.x[None]

    @ti.kernel
    def run_of(s: ti.template()) -> ti.i32:
        return s.step()

    @ti.func
    def other(self):
        return 10

    s = Solver()
    first = Solver.step
    check([s.run(), s.run(), run_of(s)], [1, 2, 1])
    Solver.step = other
    check([s.run(), s.run(), run_of(s)], [12, 22, 10])
    Solver.step = first
    check([s.run(), s.run(), run_of(s)], [23, 24, 1])


@pytest.mark.ours("changed-classes")
def test_objects_that_kernels_make_are_of_the_class_as_it_is() -> None:
    class Base:
        def __init__(self, x):
            self.x = x

        def value(self):
            return self.x + 1.0

    class Item(Base):
        pass

    @ti.kernel
    def k(x: ti.f32) -> ti.f32:
        a = Item(x)
        return a.value()

    @ti.kernel
    def added(x: ti.f32) -> ti.f32:
        return (Item(x) + 1.0).x

    check(k(1.0), 2.0)
    Base.value = lambda self: self.x + 5.0
    check(k(1.0), 6.0)
    Item.value = lambda self: self.x + 7.0
    check([k(1.0), k(2.0)], [8.0, 9.0])
    del Item.value
    check(k(1.0), 6.0)
    Item.__add__ = lambda self, d: Item(self.x + d)
    check(added(1.0), 2.0)
    Item.__add__ = lambda self, d: Item(self.x - d)
    check(added(1.0), 0.0)


@pytest.mark.ours("changed-values")
def test_captured_numbers_functions_and_attributes_are_those_of_each_call() -> None:
    global STEP, scaled
    kept = STEP, scaled

    @ti.data_oriented
    class Holder:
        def __init__(self, c):
            self.c = c

        @ti.kernel
        def run(self, x: ti.i32) -> ti.i32:
            return scaled(x) + STEP + self.c

    h = Holder(100)
    check(h.run(1), 103)
    STEP, h.c = 50, 700

    @ti.func
    def other(x):
        return x * 5

    scaled = other
    check(h.run(2), 760)
    check(Holder(300).run(1), 355)
    STEP, scaled = kept
    check(h.run(2), 705)
