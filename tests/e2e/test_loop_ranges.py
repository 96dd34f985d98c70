"""Loops run as often as Python's `range` says, at the ends of every integer type: the device."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.unit.ranges import columns, corners, expected_all, kernels_of

TYPES = [ti.i8, ti.u8, ti.i16, ti.u16, ti.i32, ti.u32, ti.i64, ti.u64]
LOW, HIGH = -(2**31), 2**31 - 1
Need = Callable[..., None]
Init = Callable[..., None]


@pytest.fixture
def init(own_runtime: None) -> Init:
    """ti.init with options, for this test alone."""
    return ti.init


def array_of(values: Any, t: Any) -> Any:
    made = ti.ndarray(t, len(values))
    made.from_numpy(np.array(values, t.dtype))
    return made


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("which", [0, 1], ids=["runs_on", "may_break"])
def test_serial_loops_at_the_corners(need: Need, t: Any, which: int) -> None:
    need(t.name)
    kernel = ti.kernel(list(kernels_of(t))[which])
    ranges = corners(t)
    out = ti.ndarray(ti.i64 if t.bits == 64 else ti.i32, (len(ranges), 4))
    kernel(*[array_of(c, t) for c in columns(ranges, t)], out)
    found = [tuple(row) for row in out.to_numpy().tolist()]
    assert dict(zip(ranges, found)) == dict(zip(ranges, expected_all(ranges, t)))


# --- parallel loops ------------------------------------------------------------------------------

SOME = [
    (0, 2140000001, 10**7), (-2 * 10**9, 2 * 10**9, 10**9), (5, LOW, 1), (5, LOW, -(10**9)),
    (HIGH, LOW, -(2**30)), (HIGH, HIGH - 1, -1), (LOW, HIGH, HIGH), (LOW, HIGH, 2**30 + 1),
    (HIGH - 10, HIGH, 7), (10, 0, -1), (10, 0, 1), (LOW, LOW + 3, 2), (HIGH, LOW, LOW),
    (LOW, HIGH, -1), (0, 0, 5), (2 * 10**9, -2 * 10**9, 1), (HIGH - 300, HIGH, 1),
    (LOW, LOW + 300, 1), (-1, LOW, 3), (7, -1, -1), (HIGH, HIGH - 300, -1),
]  # fmt: skip
PLAIN = [(begin, end, step) for begin, end, step in SOME if step == 1]


class Found:
    """Results of a parallel loop's iterations: their number, sum, and extremes."""

    def __init__(self) -> None:
        self.cells = ti.field(ti.i32, 4)
        self.given = ti.field(ti.i32, 6)

    def run(self, kernel: Any, *args: int, given: tuple[int, ...] = ()) -> list[int]:
        self.cells.from_numpy(np.array([0, 0, HIGH, LOW], np.int32))
        self.given.from_numpy(np.array([*given, *[0] * (6 - len(given))], np.int32))
        kernel(*args)
        return self.cells.to_numpy().tolist()


def expected(*indices: range) -> list[int]:
    count = functools.reduce(lambda n, r: n * len(r), indices, 1)
    first = indices[0]
    total = (sum(first) * (count // len(first)) if count else 0) + 2**31
    ends = (min(first), max(first)) if count else (HIGH, LOW)
    return [count, total % 2**32 - 2**31, *ends]


@ti.func
def note(cells: ti.template(), i: ti.i32):
    ti.atomic_add(cells[0], 1)
    ti.atomic_add(cells[1], i)
    ti.atomic_min(cells[2], i)
    ti.atomic_max(cells[3], i)


def test_parallel_loops_with_steps() -> None:
    found = Found()
    cells, given = found.cells, found.given

    @ti.kernel
    def by_arguments(a: ti.i32, b: ti.i32, s: ti.i32):
        for i in range(a, b, s):
            note(cells, i)

    @ti.kernel
    def from_memory():
        for i in range(given[0], given[1], given[2]):
            note(cells, i)

    for r in SOME:
        assert (r, found.run(by_arguments, *r)) == (r, expected(range(*r)))
        assert (r, found.run(from_memory, given=r)) == (r, expected(range(*r)))


@pytest.mark.parametrize("step", [1, 2, 7, -1, -2, -7, LOW, HIGH])
def test_parallel_loops_with_fixed_steps(step: int) -> None:
    found = Found()
    cells, given = found.cells, found.given

    @ti.kernel
    def by_arguments(a: ti.i32, b: ti.i32):
        for i in range(a, b, step):
            note(cells, i)

    @ti.kernel
    def from_memory():
        for i in range(given[0], given[1], step):
            note(cells, i)

    for begin, end, _ in SOME:
        r = range(begin, end, step)
        if len(r) < 10000:
            assert (r, found.run(by_arguments, begin, end)) == (r, expected(r))
            assert (r, found.run(from_memory, given=(begin, end))) == (r, expected(r))


@pytest.mark.parametrize("block", [None, 64, 96])
def test_plain_parallel_loops(block: int | None) -> None:
    found = Found()
    cells, given = found.cells, found.given

    @ti.kernel
    def by_arguments(a: ti.i32, b: ti.i32):
        ti.loop_config(block_dim=block)
        for i in range(a, b):
            note(cells, i)

    @ti.kernel
    def from_memory():
        ti.loop_config(block_dim=block)
        for i in range(given[0], given[1]):
            note(cells, i)

    for begin, end, _ in PLAIN:
        r = range(begin, end)
        assert (r, found.run(by_arguments, begin, end)) == (r, expected(r))
        assert (r, found.run(from_memory, given=(begin, end))) == (r, expected(r))


def test_parallel_loops_with_invocations_that_wait_for_each_other() -> None:
    found = Found()
    cells, given = found.cells, found.given

    @ti.kernel
    def by_arguments(a: ti.i32, b: ti.i32):
        ti.loop_config(block_dim=64)
        for i in range(a, b):
            ti.simt.block.sync()
            note(cells, i)

    @ti.kernel
    def from_memory():
        ti.loop_config(block_dim=64)
        for i in range(given[0], given[1]):
            ti.simt.block.sync()
            note(cells, i)

    for begin, end, _ in PLAIN:
        r = range(begin, end)
        assert (r, found.run(by_arguments, begin, end)) == (r, expected(r))
        assert (r, found.run(from_memory, given=(begin, end))) == (r, expected(r))


# --- several axes --------------------------------------------------------------------------------

BOXES = [
    ((LOW, LOW + 3), (HIGH - 3, HIGH - 1)), ((2 * 10**9, -2 * 10**9), (0, 5)),
    ((0, 5), (5, LOW)), ((LOW, HIGH), (3, 3)), ((3, 3), (LOW, HIGH)), ((-4, 3), (-2, 9)),
    ((0, 100), (-7, -3)), ((LOW, HIGH), (7, -7)),
]  # fmt: skip
Box = tuple[tuple[int, int], tuple[int, int]]


def flat(box: Box) -> tuple[int, ...]:
    return tuple(bound for ends in box for bound in ends)


def test_axes_of_ndranges() -> None:
    found = Found()
    cells, given = found.cells, found.given

    @ti.kernel
    def by_arguments(a: ti.i32, b: ti.i32, c: ti.i32, d: ti.i32):
        for i, j in ti.ndrange((a, b), (c, d)):
            note(cells, i)

    @ti.kernel
    def from_memory():
        for i, j in ti.ndrange((given[0], given[1]), (given[2], given[3])):
            note(cells, i)

    @ti.kernel
    def grouped():
        for I in ti.grouped(ti.ndrange((given[0], given[1]), (given[2], given[3]))):
            note(cells, I[0])

    @ti.kernel
    def serial():
        for _ in range(1):
            for i, j in ti.ndrange((given[0], given[1]), (given[2], given[3])):
                note(cells, i)

    @ti.kernel
    def may_break(most: ti.i32):
        for _ in range(1):
            for i, j in ti.ndrange((given[0], given[1]), (given[2], given[3])):
                note(cells, i)
                if i * 0 + j * 0 > most:
                    break

    for box in BOXES:
        want = expected(*[range(*ends) for ends in box])
        assert (box, found.run(by_arguments, *flat(box))) == (box, want)
        for kernel, args in ((from_memory, ()), (grouped, ()), (serial, ()), (may_break, (5,))):
            if kernel is serial and (LOW, HIGH) in box:
                continue  # 2**32 rounds around an empty loop
            assert (box, found.run(kernel, *args, given=flat(box))) == (box, want)


def test_order_and_breaks_of_serial_loops_over_three_axes() -> None:
    out = ti.field(ti.i32, (100, 3))

    @ti.kernel
    def run(a: ti.i32, b: ti.i32, c: ti.i32, most: ti.i32) -> ti.i32:
        n = 0
        for _ in range(1):
            for i, j, k in ti.ndrange((-1, a), b, (2, c)):
                if j == 1:
                    continue
                if n == most:
                    break
                out[n, 0], out[n, 1], out[n, 2] = i, j, k
                n += 1
        return n

    for a, b, c, most in [(2, 3, 5, 100), (2, 3, 5, 7), (2, 0, 5, 9), (2, 2, 2, 9), (-1, 3, 5, 9)]:
        boxes = [(i, j, k) for i in range(-1, a) for j in range(b) for k in range(2, c) if j != 1][
            :most
        ]
        assert run(a, b, c, most) == len(boxes)
        assert [tuple(row) for row in out.to_numpy()[: len(boxes)].tolist()] == boxes


# --- too much, and steps of 0 --------------------------------------------------------------------


def test_too_many_iterations_raise_at_launch() -> None:
    cells = ti.field(ti.i32, ())

    @ti.kernel
    def plain(a: ti.i32, b: ti.i32):
        for i in range(a, b):
            cells[None] += 1

    @ti.kernel
    def stepped(a: ti.i32, b: ti.i32):
        for i in range(a, b, -1):
            cells[None] += 1

    @ti.kernel
    def axes(a: ti.i32, b: ti.i32):
        for i, j in ti.ndrange(a, (-1, b)):
            cells[None] += 1

    @ti.kernel
    def waiting(a: ti.i32):
        for i in range(a):
            ti.simt.block.sync()
            cells[None] += 1

    for kernel, args, count in [
        (plain, (LOW, HIGH), 2**32 - 1),
        (stepped, (HIGH, LOW), 2**32 - 1),
        (stepped, (HIGH, -1), 2**31),
        (axes, (2**16, 2**15 - 1), 2**31),
        (axes, (70000, 70000), 70000 * 70001),
        (waiting, (HIGH,), HIGH),
    ]:
        with pytest.raises(ValueError, match=f"a loop of {count} iterations") as error:
            kernel(*args)
        assert "test_loop_ranges.py" in str(error.value)
    plain(-5, 5)
    axes(3, 3)
    stepped(3, -1)
    assert cells[None] == 10 + 12 + 4


@pytest.mark.parametrize("block", [None, 64])
def test_too_many_iterations_that_only_passes_see(block: int | None) -> None:
    cells = ti.field(ti.i32, ())

    @ti.kernel
    def run(a: ti.i32, b: ti.i32):
        ti.loop_config(block_dim=block)
        for i in range(a | 0, b | 0):
            if i % 2**30 == 0:
                cells[None] += 1

    for args in ((LOW, HIGH), (-5, HIGH)):
        with pytest.raises(ValueError, match="more iterations than run at once") as error:
            run(*args)
        assert "test_loop_ranges.py" in str(error.value)
    run(-5, 5)
    run(5, LOW)
    assert cells[None] == 1


def test_axes_that_only_the_device_sees_and_i32_does_not_count() -> None:
    given, cells = ti.field(ti.i32, 3), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i, j in ti.ndrange(given[0], (given[1], given[2])):
            cells[None] += 1

    for a, b, c in [(2, -5, 2**30 - 4), (LOW, LOW, HIGH), (3, -2, 2), (0, LOW, HIGH)]:
        cells[None] = 0
        given.from_numpy(np.array([a, b, c], np.int32))
        run()
        assert cells[None] == expected(range(a), range(b, c))[0] % 2**32 - (a == 2) * 2**32


def test_steps_of_zero(init: Init) -> None:
    init(debug=False)
    given, cells = ti.field(ti.i32, 1), ti.field(ti.i32, ())

    @ti.kernel
    def parallel(s: ti.i32):
        for i in range(0, 10, s):
            cells[None] += 1

    @ti.kernel
    def serial(s: ti.u32, asked: ti.i32):
        for _ in range(1):
            if asked != 0:
                for i in range(10, 0, s):
                    cells[None] += 1

    @ti.kernel
    def top(s: ti.i32):
        ti.loop_config(serialize=True)
        for i in range(10, 0, s):
            cells[None] += 1

    @ti.kernel
    def from_memory():
        for i in range(0, 10, given[0]):
            cells[None] += 1

    for kernel in (parallel, top):
        with pytest.raises(ValueError, match="the step of a range cannot be 0") as error:
            kernel(0)
        assert "test_loop_ranges.py" in str(error.value)
    serial(0, 0)
    for run in (lambda: serial(0, 1), from_memory):
        with pytest.raises(ValueError, match="the step of a range cannot be 0: it is 0") as error:
            run()
            ti.sync()
        assert "test_loop_ranges.py" in str(error.value)
    assert cells[None] == 0
    parallel(3)
    top(-5)
    given[0] = 4
    from_memory()
    assert cells[None] == 4 + 2 + 3


def test_steps_that_are_proved_to_move() -> None:
    given, cells = ti.field(ti.i32, 1), ti.field(ti.i32, ())

    @ti.kernel
    def sieve(n: ti.i32):
        for i in range(2, n):
            for j in range(i * 2 if i < 1000 else n, n, i):
                cells[None] += 1

    @ti.kernel
    def guarded(s: ti.i32):
        for i in range(3):
            if s > 0:
                for j in range(0, 10, s):
                    cells[None] += 1
            for j in range(0, 10, ti.max(given[0], 1)):
                cells[None] += 1

    sieve(30)
    guarded(5)
    assert cells[None] == sum(len(range(2 * i, 30, i)) for i in range(2, 30)) + 3 * (2 + 10)


def test_too_many_iterations_of_loops_that_wait() -> None:
    given, cells = ti.field(ti.i32, 2), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i, j in ti.ndrange(given[0], given[1]):
            ti.simt.block.sync()
            cells[None] += 1

    given.from_numpy(np.array([5, 7], np.int32))
    run()
    assert cells[None] == 35
    given.from_numpy(np.array([70000, 70000], np.int32))
    with pytest.raises(ValueError, match="more iterations than can be counted") as error:
        run()
        ti.sync()
    assert "test_loop_ranges.py" in str(error.value)
    assert cells[None] == 35


def test_steps_of_zero_in_debug_mode(init: Init) -> None:
    init(debug=True)
    given, cells = ti.field(ti.i32, 1), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i in range(3):
            for j in range(0, 10, given[0]):
                cells[None] += 1

    with pytest.raises(ValueError, match="the step of a range cannot be 0"):
        run()
    given[0] = 5
    run()
    assert cells[None] == 6


def test_bounds_beyond_the_index(init: Init) -> None:
    for debug in (False, True):
        init(debug=debug)
        given, cells = ti.field(ti.u32, 2), ti.field(ti.i32, ())

        @ti.kernel
        def by_argument(n: ti.u32):
            for i in range(n):
                cells[None] += 1

        @ti.kernel
        def from_memory():
            for i in range(given[0], given[1]):
                cells[None] += 1

        with pytest.raises(ValueError, match="this bound of a loop is beyond its indices"):
            by_argument(2**31)
        by_argument(5)
        given.from_numpy(np.array([HIGH - 3, 2**32 - 1], np.uint32))
        if debug:
            with pytest.raises(ValueError, match="beyond its indices, which are i32"):
                from_memory()
        else:
            from_memory()
        assert cells[None] == 5 + 3


def test_bounds_of_inner_loops_beyond_the_index(need: Callable[..., None]) -> None:
    """The host sees them, unless a condition decides whether the loop runs."""
    need("u64")
    cells = ti.field(ti.i32, ())

    @ti.kernel
    def inner(a: ti.u32, b: ti.u32):
        for k in range(2):
            for m in range(1):
                for i in range(a, b):
                    cells[None] += 1

    @ti.kernel
    def by_a_struct(n: ti.u64):
        for k in range(2):
            for m, i in ti.ndrange(2, n):
                cells[None] += 1

    @ti.kernel
    def guarded(n: ti.u32):
        for k in range(2):
            if n < 1000:
                for i in range(n):
                    cells[None] += 1

    inner(3, 7)
    assert cells[None] == 2 * 4
    with pytest.raises(ValueError, match="beyond its indices, which are i32"):
        inner(2**31 - 2, 2**31 + 2)
    with pytest.raises(ValueError, match="beyond its indices, which are i32"):
        by_a_struct(2**63)
    guarded(2**31)
    guarded(5)
    assert cells[None] == 8 + 2 * 5


def test_bounds_and_steps_that_wrap_raise() -> None:
    cells = ti.field(ti.i32, ())

    @ti.kernel
    def difference(a: ti.u32, b: ti.u32):
        ti.loop_config(serialize=True)
        for i in range(a - b):
            cells[None] += 1
            if i == 100:
                break

    @ti.kernel
    def product(a: ti.u32):
        ti.loop_config(serialize=True)
        for i in range(0, 10, a * a):
            cells[None] += 1

    difference(5, 2)
    product(2)
    with pytest.raises(ValueError, match="beyond its indices, which are i32"):
        difference(2, 5)
    with pytest.raises(ValueError, match="the step of a range cannot be 0"):
        product(2**16)
    assert cells[None] == 3 + 3


@pytest.mark.parametrize("bound", [float("inf"), float("nan")])
def test_bounds_that_are_no_numbers(bound: float) -> None:
    @ti.kernel
    def run():
        for _ in range(bound):
            pass

    with pytest.raises(ValueError, match="cannot be a bound of a loop") as error:
        run()
    assert "test_loop_ranges.py" in str(error.value)


def test_wide_bounds_of_axes(need: Need) -> None:
    need("i64")
    cells = ti.field(ti.i32, ())

    @ti.kernel
    def run(n: ti.i64):
        for i, j in ti.ndrange(2, (0, n)):
            cells[None] += 1

    run(3)
    run(-(2**31))
    assert cells[None] == 6
    with pytest.raises(ValueError, match="beyond its indices"):
        run(2**32 + 5)


def test_static_ranges_that_i32_does_not_count(need: Need) -> None:
    need("i64")
    cells = ti.field(ti.i64, 3)

    @ti.kernel
    def run(n: ti.i32):
        for i, j, k in ti.ndrange(n, 70000, 70000):
            cells[0] += 1
        for i in range(2**40, 2**40 + 10, 3):
            ti.atomic_max(cells[1], ti.i64(i))
        ti.loop_config(serialize=True)
        for i in range(2**40, 2**40 + 10, 3):
            cells[2] = ti.i64(i)

    run(0)
    assert cells.to_numpy().tolist() == [0, 2**40 + 9, 2**40 + 9]
