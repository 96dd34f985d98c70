"""`ti.init(debug=True)`: assertions, as errors of the launch."""

import re
from collections.abc import Callable

import pytest

import vkchi as ti

Init = Callable[..., None]


@pytest.fixture
def debug(init: Init) -> None:
    """Debug mode, for one test."""
    init(debug=True)


def message(error: pytest.ExceptionInfo[BaseException]) -> str:
    return str(error.value)


# --- assert --------------------------------------------------------------------------------------


def test_assertion_fails(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n < 3, "too big"

    run(2)
    with pytest.raises(ti.TaichiAssertionError, match="too big"):
        run(3)
    run(1)
    ti.sync()


def test_assertion_is_an_assertion_error(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n < 3

    with pytest.raises(AssertionError, match="n < 3"):
        run(3)
    with pytest.raises(ti.TaichiRuntimeError):
        run(3)


def test_assertion_is_not_checked_in_release(init: Init) -> None:
    init(debug=False)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        assert n < 3, f"{n}"
        return n

    assert run(5) == 5


def test_message_with_values(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n < 3, f"n is {n}, {n * 2}"

    with pytest.raises(AssertionError, match="n is 4, 8"):
        run(4)


def test_message_with_format(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n < 3, "n = {}".format(n)  # noqa: UP032

    with pytest.raises(AssertionError, match="n = 4"):
        run(4)


@pytest.mark.ours("assert-values")
def test_message_that_is_a_value(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        v = ti.Vector([n, 1])
        assert n < 3, v

    with pytest.raises(AssertionError, match=re.escape("[7, 1]")):
        run(7)


@pytest.mark.ours("assert-values")
def test_message_with_formats(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n < 3, f"{n:4d}|{n * 0.5:.3f}"

    with pytest.raises(AssertionError, match=re.escape("   4|2.000")):
        run(4)


def test_number_as_condition(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        assert n

    run(1)
    with pytest.raises(AssertionError):
        run(0)


def test_compile_time_condition(debug: None) -> None:
    @ti.kernel
    def run():
        assert 1 == 2, "never"

    with pytest.raises(AssertionError, match="never"):
        run()


def test_condition_of_several_parts(debug: None) -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def run(n: ti.i32):
        assert 0 <= n < 4 and x[n] == 0, "not free"
        x[n] += 1

    run(1)
    with pytest.raises(AssertionError, match="not free"):
        run(1)
    with pytest.raises(AssertionError, match="not free"):
        run(9)


def test_assertion_in_a_function_in_a_loop(debug: None) -> None:
    @ti.func
    def root(a: ti.f32):
        assert a >= 0, "negative"
        return ti.sqrt(a)

    @ti.kernel
    def run(n: ti.i32) -> ti.f32:
        total = 0.0
        for i in range(n):
            total += root(4.0 - i)
        return total

    assert run(5) == pytest.approx(2 + 3**0.5 + 2**0.5 + 1, rel=1e-5)
    with pytest.raises(AssertionError, match="negative"):
        run(7)


def test_assertion_ends_an_endless_loop(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32):
        k = 0
        while k >= 0:
            k += 1
            assert k < n

    with pytest.raises(AssertionError):
        run(10)


def test_state_before_a_failure_is_there(debug: None) -> None:
    x = ti.field(ti.i32, shape=())

    @ti.kernel
    def run(n: ti.i32):
        x[None] = 1
        assert n < 3

    with pytest.raises(AssertionError):
        run(5)
    assert x[None] == 1


@pytest.mark.ours("debug-stops")
def test_statements_after_failed_assertion_do_not_run(debug: None) -> None:
    x = ti.field(ti.i32, 4)
    total = ti.field(ti.i32, ())

    @ti.kernel
    def write(n: ti.i32):
        for i in range(4):
            x[i] = 1
            assert i != n
            x[i] = 2

    @ti.kernel
    def count(n: ti.i32):
        for _ in range(1):
            for i in range(10):
                total[None] += 1
                assert i != n

    with pytest.raises(AssertionError):
        write(2)
    assert x.to_numpy().tolist() == [2, 2, 1, 2]
    with pytest.raises(AssertionError):
        count(5)
    assert total[None] == 6


@pytest.mark.ours("debug-stops")
def test_a_failed_thread_ends_and_the_others_do_not(debug: None) -> None:
    x = ti.field(ti.i32, shape=100)

    @ti.kernel
    def run():
        for i in x:
            assert i % 10 != 3
            x[i] = 1

    with pytest.raises(AssertionError, match="9 other checks failed"):
        run()
    assert x.to_numpy().tolist() == [int(i % 10 != 3) for i in range(100)]


def test_an_error_is_raised_once(debug: None) -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            assert i != n
            x[i] += 1

    with pytest.raises(AssertionError):
        run(2)
    ti.sync()
    x.fill(0)
    run(7)
    assert x.to_numpy().tolist() == [1, 1, 1, 1]


@pytest.mark.ours("debug-places")
def test_location_of_an_assertion(debug: None) -> None:
    @ti.func
    def inner(a):
        assert a < 5, f"a = {a}"

    @ti.kernel
    def run():
        for i, j in ti.ndrange(3, 4):
            inner(i + j)

    with pytest.raises(AssertionError) as error:
        run()
    text = message(error)
    assert re.search(r"test_debug\.py:\d+:16: assertion failed: a = 5", text)
    assert "assert a < 5" in text and "^^^^^" in text
    assert re.search(r"in inner\(\), called from run\(\) at .*test_debug\.py:\d+:13", text)
    assert "in the iteration i = 2, j = 3" in text


@pytest.mark.ours("debug-places")
def test_the_first_failing_iteration_is_reported(debug: None) -> None:
    @ti.kernel
    def run():
        for i in ti.grouped(ti.ndrange(4, 4)):
            assert i[0] + i[1] < 5

    with pytest.raises(AssertionError) as error:
        run()
    assert "in the iteration i = [2, 3]" in message(error)
    assert "2 other checks failed" in message(error)


def test_assertion_before_a_return(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        assert n > 0
        return n + 1

    assert run(1) == 2
    with pytest.raises(AssertionError):
        run(0)


@pytest.mark.ours("debug-stops")
def test_workgroups_with_barriers_go_on(debug: None) -> None:
    x = ti.field(ti.i32, shape=128)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i in x:
            shared = ti.simt.block.SharedArray((64,), ti.i32)
            shared[i % 64] = i
            assert i != 70, f"i is {i}"
            ti.simt.block.sync()
            x[i] = shared[63 - i % 64]

    with pytest.raises(AssertionError, match="i is 70"):
        run()
    assert x.to_numpy().tolist() == [*range(63, -1, -1), *range(127, 63, -1)]
