"""Variables changed through callees that only lowering can tell."""

import vkchi as ti


@ti.func
def increase(x: ti.template()):
    x += 1


@ti.func
def decrease(x: ti.template()):
    x -= 3


BY_NAME = {"up": increase}
STEPS = [increase, decrease]


@ti.data_oriented
class Step:
    def __init__(self, size):
        self.size = size

    @ti.func
    def take(self, x: ti.template()):
        x += self.size


TAKEN = [Step(5), Step(2)]


@ti.kernel
def from_table(n: ti.i32) -> ti.i32:
    x = 0
    ti.loop_config(serialize=True)
    for _i in range(n):
        BY_NAME["up"](x)
    return x


@ti.kernel
def unrolled(n: ti.i32) -> ti.i32:
    x = 0
    k = 0
    while k < n:
        for f in ti.static(STEPS):
            f(x)
        k += 1
    return x


@ti.kernel
def renamed(n: ti.i32) -> ti.i32:
    x = 0
    ti.loop_config(serialize=True)
    for _i in range(n):
        f = ti.static(decrease)
        f(x)
    return x


@ti.kernel
def methods(n: ti.i32) -> ti.i32:
    x = 0
    ti.loop_config(serialize=True)
    for _i in range(n):
        for step in ti.static(TAKEN):
            step.take(x)
    return x


@ti.kernel
def shared(n: ti.i32) -> ti.i32:
    x = 0
    for _i in range(n):
        for f in ti.static(STEPS):
            f(x)
    return x


@ti.func
def add_both(a, b, x: ti.template()):
    x += a + b


@ti.kernel
def starred(n: ti.i32) -> ti.i32:
    x = 0
    ti.loop_config(serialize=True)
    for _i in range(n):
        add_both(*[2, 1], x)
    return x


def test_arguments_after_a_starred_one_are_passed_by_reference():
    assert starred(3) == 9


def test_loops_carry_values_changed_in_callees_found_during_lowering():
    assert from_table(10) == 10
    assert unrolled(10) == -20
    assert renamed(10) == -30
    assert methods(10) == 70


def test_parallel_loops_share_values_changed_in_such_callees():
    assert shared(10) == -20


def test_loop_targets_that_hide_functions() -> None:
    """The name is that of the loop's target, not of the function outside."""

    @ti.func
    def by_one(a: ti.template()):
        a += 1

    @ti.func
    def by_ten(a: ti.template()):
        a += 10

    @ti.func
    def hidden(a):
        return a

    @ti.kernel
    def looped(n: ti.i32) -> ti.i32:
        x = 0
        for _ in range(n):
            for hidden in ti.static([by_one, by_ten]):
                hidden(x)
        return x

    assert looped(3) == 33
