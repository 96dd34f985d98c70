"""Objects and structs that methods and functions change, or are refused to change."""

from typing import Any

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@ti.dataclass
class Struct:
    x: ti.f32

    @ti.func
    def add(self, d):
        self.x = self.x + d


class Part:
    def __init__(self, x):
        self.x = x

    def add(self, d):
        self.x = self.x + d


class Whole:
    def __init__(self, x):
        self.x, self.part = x, Part(x)

    def add(self, d):
        self.part.add(d)


@ti.func
def add_to(d: ti.f32, x: ti.template()):
    x = x + d


@ti.func
def add_by_another(x: ti.template()):
    add_to(x=x, d=1.0)


def test_iterations_that_change_structs_by_methods_have_an_order() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.f32:
        s = Struct(a)
        for _ in range(n):
            s.add(1.0)
        return s.x

    check(k(1.0, 64), 65.0)


@pytest.mark.ours("objects-made")
def test_iterations_that_change_objects_by_methods_have_an_order() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.types.vector(3, ti.f32):
        p, w, ws = Part(a), Whole(a), [Whole(a), Whole(a)]
        for _ in range(n):
            p.add(1.0)
        for _ in range(n):
            w.add(1.0)
        for _ in range(n):
            ws[1].add(1.0)
        return ti.Vector([p.x, w.part.x, ws[1].part.x])

    check(k(1.0, 64), [65.0, 65.0, 65.0])


def test_iterations_that_change_arguments_of_arguments_have_an_order() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.f32:
        s = a
        for _ in range(n):
            add_by_another(s)
        return s

    check(k(1.0, 64), 65.0)


@pytest.mark.ours("objects-made")
def test_mutation_of_a_copy_raises() -> None:
    def change(p):
        p.x = 3.0

    class Sum:
        def __init__(self, x):
            self.x = x

        def __lshift__(self, d):
            self.x = self.x + d
            return self

        def __len__(self):
            return 5

    @ti.kernel
    def by_a_function(a: ti.f32) -> ti.f32:
        p = Part(a)
        change(p)
        return p.x

    @ti.kernel
    def by_an_operator(a: ti.f32) -> ti.f32:
        s = Sum(a)
        s << 1.0
        return s.x

    @ti.kernel
    def by_a_kept_method(a: ti.f32) -> ti.f32:
        p = Part(a)
        add = p.add
        add(1.0)
        return p.x

    @ti.kernel
    def length(a: ti.f32) -> ti.i32:
        return len(Sum(a))

    refused: list[tuple[Any, str]] = [
        (by_a_function, "has a copy"), (by_an_operator, "has a copy"),
        (by_a_kept_method, "do not keep"), (length, "len"),
    ]  # fmt: skip
    for kernel, words in refused:
        with pytest.raises(ti.TaichiCompilationError, match=words):
            kernel(1.0)


class Counted:
    def __init__(self, x):
        self.x = x

    @property
    def twice(self):
        return self.x * 2.0

    @property
    def next(self):
        self.x = self.x + 1.0
        return self.x

    def add_all(self, *ds):
        for d in ti.static(ds):
            self.x = self.x + d


class Later(Counted):
    @property
    def twice(self):
        return super().twice + 1.0

    def wrong(self):
        return super().thrice


@pytest.mark.ours("objects-made")
def test_changes_through_an_alias_raise() -> None:
    def rebind(p, q):
        p = q
        p.x = 3.0

    def rename(v):
        w = v
        w[0] = 3.0

    def rename_both(v):
        w, _ = v, v
        w[0] = 3.0

    def unpack(vs):
        w, _ = vs
        w[0] = 3.0

    def choose(v):
        w = v if v[0] > 0.0 else v + 1.0
        w[0] = 3.0

    def name_at_once(v):
        if (w := v)[0] > 0.0:
            w[0] = 3.0

    @ti.kernel
    def by_a_parameter(a: ti.f32) -> ti.f32:
        p, q = Part(a), Part(a)
        rebind(p, q)
        return q.x

    @ti.kernel
    def by_a_variable(a: ti.f32) -> ti.f32:
        v = ti.Vector([a, a])
        rename(v)
        return v[0]

    @ti.kernel
    def by_two_variables(a: ti.f32) -> ti.f32:
        v = ti.Vector([a, a])
        rename_both(v)
        return v[0]

    @ti.kernel
    def by_parts(a: ti.f32) -> ti.f32:
        v = ti.Vector([a, a])
        unpack((v, v))
        return v[0]

    @ti.kernel
    def by_a_choice(a: ti.f32) -> ti.f32:
        v = ti.Vector([a, a])
        choose(v)
        return v[0]

    @ti.kernel
    def in_an_expression(a: ti.f32) -> ti.f32:
        v = ti.Vector([a, a])
        name_at_once(v)
        return v[0]

    @ti.kernel
    def in_the_kernel(a: ti.f32) -> ti.f32:
        p = Part(a)
        q = p
        q.x = 5.0
        return p.x

    @ti.kernel
    def a_member(a: ti.f32) -> ti.f32:
        w = Whole(a)
        q = w.part
        q.x = 5.0
        return w.part.x

    @ti.kernel
    def by_a_property(a: ti.f32) -> ti.f32:
        return Counted(a).next

    names = (by_a_variable, by_two_variables, by_parts, by_a_choice, in_an_expression)
    for kernel in (by_a_parameter, *names, in_the_kernel, a_member, by_a_property):
        with pytest.raises(ti.TaichiCompilationError, match="has a copy"):
            kernel(1.0)


@pytest.mark.ours("python-functions")
def test_object_from_python_function_is_mutable() -> None:
    def shifted(v, n):
        v = v * 2.0
        v[0] = v[0] + 1.0
        for _ in range(n):
            v = v + v
        w = v
        w = w - 1.0
        w += 1.0
        return w

    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.types.vector(2, ti.f32):
        v = ti.Vector([a, a])
        return shifted(v, n) + v

    check(k(1.0, 3), [25.0, 17.0])


def test_iterations_that_change_arguments_beside_spread_ones_have_an_order() -> None:
    @ti.func
    def add(a: ti.template(), b: ti.template(), c: ti.template()):
        c = c + 1.0

    @ti.kernel
    def k(n: ti.i32) -> ti.f32:
        s, both = 0.0, [1.0, 2.0]
        for _ in range(n):
            add(*both, s)
        return s

    check(k(1000), 1000.0)


@pytest.mark.ours("objects-made")
def test_methods_of_any_number_of_arguments_and_properties_of_parents() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.types.vector(2, ti.f32):
        p, q = Counted(a), Later(a)
        for _ in range(n):
            p.add_all(1.0, 2.0)
        return ti.Vector([p.x, q.twice])

    @ti.kernel
    def wrong(a: ti.f32) -> ti.f32:
        return Later(a).wrong()

    check(k(1.0, 500), [1501.0, 3.0])
    with pytest.raises(ti.TaichiNameError, match=r"`super\(\)` has no attribute `thrice`"):
        wrong(1.0)


@pytest.mark.ours("objects-made")
def test_objects_of_literals_and_types_without_sums() -> None:
    @ti.kernel
    def changed(a: ti.f32) -> ti.f32:
        p = Part(0.0)
        if a > 0:
            p.x = a
        return p.x

    @ti.kernel
    def summed(a: ti.f32) -> ti.f32:
        return sum(Part(a))

    with pytest.raises(ti.TaichiCompilationError, match="begin with a kernel's value"):
        changed(1.0)
    with pytest.raises(ti.TaichiCompilationError, match="cannot be iterated"):
        summed(1.0)


class Holder:
    def __init__(self, part):
        self.part = part


def same(x):
    return x


@pytest.mark.ours("objects-made")
def test_an_object_that_has_two_names_cannot_change() -> None:
    def first_name(a: ti.f32) -> ti.f32:
        p = Part(a)
        q = p
        p.x = 5.0
        return q.x

    def given_to_another(a: ti.f32) -> ti.f32:
        p = Part(a)
        h = Holder(p)
        p.add(1.0)
        return h.part.x

    def held_twice(a: ti.f32) -> ti.f32:
        ps = [Part(a)] * 2
        ps[0].x = 5.0
        return ps[1].x

    def returned(a: ti.f32) -> ti.f32:
        p = Part(a)
        q = same(p)
        q.x = 5.0
        return p.x

    def on_one_path(a: ti.f32) -> ti.f32:
        p, q = Part(a), Part(2.0 * a)
        if a > 0.0:
            q = p
        p.x = 5.0
        return q.x

    def by_a_choice(a: ti.f32) -> ti.f32:
        p, q = Part(a), Part(2.0 * a)
        r = p if a > 0.0 else q
        r.x = 5.0
        return p.x

    def in_the_next_iteration(a: ti.f32) -> ti.f32:
        p, q, s = Part(a), Part(a), 0.0
        for _ in range(3):
            p.add(1.0)
            s += q.x
            q = p
        return s

    def swapped_and_unknown(a: ti.f32) -> ti.f32:
        p, q = Part(a), Part(a + 1.0)
        for _ in range(3):
            p, q = q, p
        p.x = 5.0
        return q.x

    for fn in (first_name, given_to_another, held_twice, returned, on_one_path, by_a_choice,
               in_the_next_iteration, swapped_and_unknown):  # fmt: skip
        with pytest.raises(ti.TaichiCompilationError, match="several names"):
            ti.kernel(fn)(1.0)


@pytest.mark.ours("objects-made")
def test_swapped_objects_keep_their_identity() -> None:
    @ti.kernel
    def k(a: ti.f32, n: ti.i32) -> ti.types.vector(6, ti.f32):
        p, q = Part(a), Part(a + 1.0)
        p, q = q, p
        p.x = 10.0
        u, v = Part(a), Part(a + 1.0)
        for _ in range(n):
            u, v = v, u
        ps = [Part(a), Part(a)]
        ps[0].x = 3.0
        r, s = Part(a), 0.0
        for _ in range(n):
            r = Part(r.x + 1.0)
            s += r.x
        r.add(1.0)
        return ti.Vector([p.x, q.x, u.x, ps[0].x + 10.0 * ps[1].x, s, r.x])

    check(k(1.0, 3), [10.0, 1.0, 2.0, 13.0, 9.0, 5.0])


@pytest.mark.ours("python-functions")
def test_vectors_that_functions_know_under_two_names_cannot_change() -> None:
    def returned(v):
        w = same(v)
        w[0] = 5.0
        return v[0]

    def held_twice(v):
        vs = [v, v]
        vs[0][0] = 5.0
        return vs[1][0]

    def copied(v):
        w, zero, other = 1.0 * v, ti.zero(v), ti.zero(v)
        w[0] = 5.0
        zero[0] += 2.0
        return v[0] + w[0] + zero[0] + other[0]

    class Ball:
        def __init__(self, place):
            self.place = place

        def move(self):
            self.place[0] += 1.0

    def call(change):
        @ti.kernel
        def k(a: ti.f32) -> ti.f32:
            return change(ti.Vector([a, a]))

        return k(1.0)

    @ti.kernel
    def of_the_kernel(a: ti.f32) -> ti.f32:
        v = ti.Vector([a, a])
        ball = Ball(v)
        ball.move()
        return ball.place[0] * 10.0 + v[0]

    check(call(copied), 8.0)
    check(of_the_kernel(1.0), 21.0)
    for change in (returned, held_twice):
        with pytest.raises(ti.TaichiCompilationError, match="several names"):
            call(change)


class Counter:
    """A callable that changes its argument, and itself."""

    def __init__(self, step):
        self.step, self.calls = step, 0

    @ti.func
    def __call__(self, x: ti.template()):
        x += self.step
        self.calls += 1


@ti.data_oriented
class Adder:
    def __init__(self, step):
        self.step = step

    @ti.func
    def __call__(self, x: ti.template()):
        x += self.step


def test_changes_by_callable_objects_are_loop_carried() -> None:
    adder = Adder(3)

    @ti.kernel
    def of_the_kernel(n: ti.i32) -> ti.i32:
        counter = Counter(2 * n)
        s = 0
        ti.loop_config(serialize=True)
        for _ in range(n):
            counter(s)
        return 100 * s + counter.calls

    @ti.kernel
    def captured(n: ti.i32) -> ti.i32:
        s = k = 0
        while k < n:
            adder(s)
            k += 1
        return s

    check([of_the_kernel(5), captured(5)], [5005, 15])


def double(x):
    return 2 * x


class Held:
    def __init__(self, x, act):
        self.x, self.act = x, act


def test_members_that_hold_functions_are_called() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        held = Held(n, double)
        return held.act(held.x)

    check(k(4), 8)


class Log:
    def __init__(self, start):
        self.count, self.items = start, [start]

    def add(self):
        self.count += 1

    def append(self):
        self.items.append(self.count)


@pytest.mark.parametrize("method", ["add", "append"])
def test_objects_of_literals_cannot_change_in_run_time_loops(method: str) -> None:
    change: Any = getattr(Log, method)

    @ti.kernel
    def at_once(n: ti.i32) -> ti.i32:
        log = Log(2)
        change(log)
        for _ in ti.static(range(3)):
            change(log)
        return log.count * 10 + len(log.items) + n

    @ti.kernel
    def in_a_loop(n: ti.i32) -> ti.i32:
        log = Log(2)
        ti.loop_config(serialize=True)
        for _ in range(n):
            change(log)
        return log.count

    @ti.kernel
    def in_a_branch(n: ti.i32) -> ti.i32:
        log = Log(2)
        if n > 3:
            change(log)
        return log.count

    check(at_once(0), 61 if method == "add" else 25)
    for kernel in (in_a_loop, in_a_branch):
        with pytest.raises(ti.TaichiCompilationError, match="changes a Log once, at compile time"):
            kernel(5)


class Table:
    def __init__(self, n):
        self.n, self._size = n, None

    def size(self):
        if self._size is None:
            self._size = self.n * 2
        return self._size


def test_methods_that_keep_their_result_are_called_before_a_loop() -> None:
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def before_the_loop(n: ti.i32):
        table = Table(4)
        table.size()
        for i in x:
            x[i] = table.size() + i
        if n > 3:
            x[0] += table.size()

    @ti.kernel
    def made_in_the_loop():
        for i in x:
            x[i] = Table(4).size() + i
            table = Table(5)
            x[i] += table.size() + table.size()

    @ti.kernel
    def in_a_loop():
        table = Table(4)
        for i in x:
            x[i] = table.size() + i

    @ti.kernel
    def in_a_branch(n: ti.i32) -> ti.i32:
        table = Table(4)
        if n > 3:
            table.size()
        return 1 if ti.static(table._size is None) else 2

    before_the_loop(5)
    check(x.to_numpy(), [16, 9, 10, 11])
    made_in_the_loop()
    check(x.to_numpy(), [28, 29, 30, 31])
    for refused in (in_a_loop, lambda: in_a_branch(1)):
        with pytest.raises(ti.TaichiCompilationError, match="once before the loop"):
            refused()
