"""Programs that were silently wrong, or failed, where tapes and forward mode meet the rest:
aliases, gradients as data, host memory, reports, gradients of one's own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import vkchi as ti


def numbers(*shape: int) -> Any:
    return ti.field(ti.f32, shape, needs_grad=True)


def test_arguments_that_are_one_array_in_a_later_call() -> None:
    a, b, c = (ti.ndarray(ti.f32, 3, needs_grad=True) for _ in range(3))
    loss = numbers()

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray(),
            w: ti.types.ndarray()):  # fmt: skip
        for i in x:
            z[i] = x[i] * 2
            w[i] = y[i] * y[i]

    @ti.kernel
    def total(w: ti.types.ndarray()):
        for i in w:
            loss[None] += w[i]

    a.fill(2)
    with ti.ad.Tape(loss):
        run(a, a, b, c)
        total(c)
    np.testing.assert_allclose(a.grad.to_numpy(), 4)
    with (
        pytest.raises(ti.ad.GradientError, match="`y` and `z` are the same memory"),
        ti.ad.Tape(loss),
    ):
        run(a, b, b, c)


def test_numbers_of_other_types_do_not_change_which_part_is_kept() -> None:
    x, loss = numbers(4), numbers()

    @ti.kernel
    def step(read: ti.i32, write: ti.i32):
        for _ in range(1):
            loss[None] += x[read] ** 2
            x[write] = 7.0

    first = np.arange(4) + 1
    with ti.ad.Tape(loss):
        step(np.int32(0), 1)
    x.from_numpy(first)
    with ti.ad.Tape(loss):
        step(2, np.int32(3))
        step(1, np.int32(2))
    np.testing.assert_allclose(x.grad.to_numpy(), [0, 4, 6, 0])


def test_gradients_as_data() -> None:
    x, loss = numbers(3), numbers()
    x.fill(2)

    @ti.kernel
    def put():
        for i in x:
            x.grad[i] = 5.0

    @ti.kernel
    def use():
        for i in x:
            loss[None] += x[i] * x.grad[i]

    @ti.kernel
    def square():
        for i in x:
            loss[None] += x[i] * x[i]

    with ti.ad.Tape(loss):
        put()
        use()
        square()
    np.testing.assert_allclose(x.grad.to_numpy(), 5 + 5 + 4)


def test_gradients_of_arguments_as_data() -> None:
    x, loss = ti.ndarray(ti.f32, 3, needs_grad=True), numbers()
    x.fill(2)

    @ti.kernel
    def use(x: ti.types.ndarray(needs_grad=True)):
        for i in x:
            loss[None] += x[i] * (x.grad[i] + 1.0)

    with ti.ad.Tape(loss):
        use(x)
    np.testing.assert_allclose(x.grad.to_numpy(), 1)


def test_operations_on_gradients_are_not_recomputed() -> None:
    x, loss = numbers(3), numbers()
    x.fill(2)

    @ti.kernel
    def step():
        for i in x:
            x[i] = x[i] * x[i] * 0.5
            x.grad[i] = 0.0

    with pytest.raises(RuntimeError, match="works on gradients"), ti.ad.Tape(loss, memory=90):
        for _ in range(10):
            step()


def test_a_failed_check_leaves_no_gradient(own_runtime: None) -> None:
    ti.init(debug=True)
    x, loss = numbers(3), numbers()

    @ti.kernel
    def step():
        for i in x:
            x[i] = x[i] ** 2
        assert x[0] < 0, "negative"

    with pytest.raises(RuntimeError, match=r"step.. ended with an exception"), ti.ad.Tape(loss):
        try:
            step()
        except AssertionError:
            pass


def test_a_destroyed_tree_has_no_gradients_to_clear() -> None:
    x, y, loss = ti.field(ti.f32), ti.field(ti.f32), numbers()
    z = numbers(3)
    trees = [ti.FieldsBuilder(), ti.FieldsBuilder()]
    for builder, field in zip(trees, (x, y)):
        builder.dense(ti.i, 3).place(field, field.grad)
    tree = trees[0].finalize()
    x.fill(1)
    tree.destroy()

    @ti.kernel
    def total():
        for i in z:
            loss[None] += z[i]

    with ti.ad.Tape(loss):
        total()
    np.testing.assert_array_equal(z.grad.to_numpy(), 1)


def test_the_old_value_of_an_atomic_on_an_array_without_gradient() -> None:
    x, between, loss = numbers(3), ti.field(ti.f32, 3), numbers()

    @ti.kernel
    def run():
        for i in x:
            between[i] = x[i] * 2
            loss[None] += ti.atomic_add(between[i], 0.0)

    with pytest.raises(ti.ad.GradientError, match="`between`"), ti.ad.Tape(loss):
        run()


# --- gradients of one's own ----------------------------------------------------------------------


class Squares:
    """y = x * x in a function with its own gradient, and possible later steps."""

    def __init__(self) -> None:
        self.x, self.y, self.loss = x, y, loss = numbers(4), numbers(4), numbers()
        x.fill(3)

        @ti.kernel
        def square(first: ti.i32, end: ti.i32):
            for i in range(first, end):
                y[i] = x[i] ** 2

        @ti.kernel
        def change(i: ti.i32):
            x[i] = x[i] + 1.0

        @ti.kernel
        def total():
            for i in y:
                loss[None] += y[i]

        @ti.ad.grad_replaced
        def run(first: int, end: int):
            square(first, end)

        @ti.ad.grad_for(run)
        def run_grad(first: int, end: int):
            square.grad(first, end)

        self.run, self.change, self.total = run, change, total


def test_a_custom_gradient_reads_overwritten_values() -> None:
    s = Squares()
    with (
        pytest.raises(ti.ad.GradientError, match=r"gradient of run.. reads `x`, which change"),
        ti.ad.Tape(s.loss),
    ):
        s.run(0, 4)
        s.change(2)
        s.total()
    s.x.fill(3)
    with (
        pytest.raises(ti.ad.GradientError, match="which Python has overwritten"),
        ti.ad.Tape(s.loss),
    ):
        s.run(0, 4)
        s.x[1] = 5.0
        s.total()


def test_a_custom_gradient_reads_unchanged_values() -> None:
    s = Squares()
    with ti.ad.Tape(s.loss):
        s.run(0, 2)
        s.change(3)
        s.run(2, 3)
        s.total()
    np.testing.assert_allclose(s.x.grad.to_numpy(), [6, 6, 6, 0])


def test_a_custom_gradient_that_recomputes_its_inputs() -> None:
    x, states, loss = numbers(), numbers(4), numbers()
    x[None] = 1.1
    found = []

    @ti.kernel
    def start():
        states[0] = x[None]

    @ti.kernel
    def step(t: ti.i32):
        states[t + 1] = states[t] * states[t]

    @ti.kernel
    def use():
        loss[None] += states[3] + 0.0

    @ti.kernel
    def clear():
        for i in states:
            states[i] = 0.0

    @ti.ad.grad_replaced
    def run():
        start()
        for t in range(3):
            step(t)
        use()

    @ti.ad.grad_for(run)
    def run_grad():
        start()
        for t in range(3):
            step(t)
        found.append(states[3])
        use.grad()
        for t in reversed(range(3)):
            step.grad(t)
        start.grad()

    with ti.ad.Tape(loss):
        run()
        clear()
    np.testing.assert_allclose(x.grad[None], 8 * 1.1**7, rtol=1e-5)
    np.testing.assert_allclose(found, 1.1**8, rtol=1e-5)


# --- forward mode --------------------------------------------------------------------------------


def with_dual(*shape: int) -> Any:
    return ti.field(ti.f32, shape, needs_dual=True)


def test_forward_mode_writes_host_arrays_draws_and_prints(capsys: Any) -> None:
    x, y = with_dual(), with_dual()
    x[None] = 3
    out = np.zeros(2, np.float32)

    @ti.kernel
    def run(o: ti.types.ndarray()) -> ti.f32:
        for i in o:
            o[i] = x[None]
        drawn = ti.random()
        y[None] = x[None] ** 2 * drawn
        print("drawn", drawn > 0)
        return drawn

    with ti.ad.FwdMode(y, x):
        drawn = [run(out) for _ in range(3)]
    assert len(set(drawn)) == 3
    assert "drawn" in capsys.readouterr().out
    np.testing.assert_array_equal(out, 3)
    np.testing.assert_allclose(y.dual[None], 6 * drawn[-1], rtol=1e-6)


def test_validation_and_hvp_print_and_write_host_arrays(capsys: Any) -> None:
    x, loss = numbers(), numbers()
    x[None] = 2
    out = np.zeros(1, np.float32)

    @ti.kernel
    def run(o: ti.types.ndarray()):
        loss[None] += x[None] ** 3
        print("cube")
        o[0] = x[None]

    assert ti.ad.hvp(lambda: run(out), loss, x, np.array(1.0)) == pytest.approx(12)
    assert capsys.readouterr().out == "cube\n"
    np.testing.assert_array_equal(out, 2)
    with ti.ad.Tape(loss, validation=True):
        run(out)
    assert x.grad[None] == pytest.approx(12)
    assert capsys.readouterr().out == "cube\n"


def test_forward_mode_and_the_order_of_iterations() -> None:
    x, y, most = with_dual(100), with_dual(100), with_dual()

    @ti.kernel
    def old_values():
        for i in x:
            y[i] = ti.atomic_add(most[None], x[i])

    with (
        pytest.raises(ti.ad.GradientError, match="order of iterations"),
        ti.ad.FwdMode(most, x, list(np.ones(100))),
    ):
        old_values()


def test_forward_mode_of_a_maximum() -> None:
    x, most = with_dual(100), with_dual()
    x.from_numpy(np.sin(np.arange(100)))

    @ti.kernel
    def run():
        m = -1.0
        for i in x:
            ti.atomic_max(m, x[i])
        most[None] = m

    with ti.ad.FwdMode(most, x, list(np.arange(100.0))):
        run()
    assert most.dual[None] == np.argmax(np.sin(np.arange(100)))


def test_forward_mode_of_minima_of_vectors_and_other_results() -> None:
    x = ti.Vector.field(2, ti.f32, 50, needs_dual=True)
    least = ti.Vector.field(2, ti.f32, 5, needs_dual=True)
    y, total = with_dual(50), with_dual()
    a = np.random.default_rng(3).random((50, 2))
    x.from_numpy(a)
    least.fill(2.0)

    @ti.kernel
    def run():
        for i in x:
            for k in range(2):
                ti.atomic_min(least[(i + k) % 5], (k + 1) * x[i])
            y[i] = x[i][0] ** 2
        for i in y:
            total[None] += y[i]
        for k in range(5):
            total[None] += least[k].sum()

    seed = np.random.default_rng(4).random((50, 2))
    with ti.ad.FwdMode(total, x, list(seed.ravel())):
        run()
    want = (2 * a[:, 0] * seed[:, 0]).sum()
    for k in range(5):
        values = np.concatenate([a[k::5], 2 * a[(k - 1) % 5 :: 5]])
        slopes = np.concatenate([seed[k::5], 2 * seed[(k - 1) % 5 :: 5]])
        want += sum(slopes[values[:, c].argmin(), c] for c in range(2))
    assert total.dual[None] == pytest.approx(want, rel=1e-4)


def test_forward_mode_of_a_maximum_of_loop_carried_values() -> None:
    x, most = with_dual(20), with_dual()
    a = np.linspace(0.1, 2.0, 20)
    x.from_numpy(a)

    @ti.kernel
    def run():
        for i in x:
            x[i] = x[i] * x[i]
            ti.atomic_max(most[None], x[i])

    with ti.ad.FwdMode(most, x, list(np.ones(20))):
        run()
    assert most.dual[None] == pytest.approx(4.0, rel=1e-5)


def test_forward_mode_of_a_product() -> None:
    x, product = with_dual(4), with_dual()
    x.from_numpy([1.0, 2.0, 3.0, 4.0])
    product[None] = 1.0

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_mul(product[None], x[i])

    with ti.ad.FwdMode(product, x, [1.0, 0.0, 0.0, 1.0]):
        run()
    assert product.dual[None] == pytest.approx(30.0)


def test_hvp_through_a_maximum() -> None:
    x, most, loss = (ti.field(ti.f32, s, needs_grad=True) for s in (4, (), ()))
    x.from_numpy([0.5, 1.0, 0.25, 0.75])

    @ti.kernel
    def run():
        most[None] = -1.0
        for i in x:
            ti.atomic_max(most[None], x[i] * x[i])
        loss[None] = most[None] ** 2

    want = [0.0, 12.0, 0.0, 0.0]  # of x ** 4
    np.testing.assert_allclose(ti.ad.hvp(run, loss, x, np.ones(4)), want, rtol=1e-5)


# --- memory of gradients -------------------------------------------------------------------------


def test_gradients_that_lie_otherwise_than_their_fields() -> None:
    x, y, loss = ti.field(ti.f32), ti.Vector.field(2, ti.f32), numbers()
    ti.root.dense(ti.i, 3).place(x, y)
    ti.root.dense(ti.i, 3).place(x.grad)
    ti.root.dense(ti.i, 3).place(y.grad)
    x.fill(2)
    y.fill(3)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] ** 2 * y[i].x

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), 12)
    np.testing.assert_allclose(y.grad.to_numpy(), [[4, 0]] * 3)
    np.testing.assert_allclose(ti.ad.hvp(run, loss, x, np.array([1, 0, 2])), [6, 0, 12])


def test_duals_that_lie_otherwise_than_their_fields() -> None:
    x, y, loss = ti.field(ti.f32), ti.Vector.field(2, ti.f32), with_dual()
    ti.root.dense(ti.i, 3).place(x, y)
    ti.root.dense(ti.i, 3).place(x.dual)
    x.fill(2)
    y.fill(3)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] ** 2 * y[i].x

    with ti.ad.FwdMode(loss, x, [1, 2, 3]):
        run()
    assert loss.dual[None] == pytest.approx(12 * 6)


def test_a_gradient_with_other_indices_raises() -> None:
    x, loss = ti.field(ti.f32), numbers()
    ti.root.dense(ti.i, 3).place(x, offset=-1)
    ti.root.dense(ti.i, 3).place(x.grad)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] ** 2

    with (
        pytest.raises(ti.ad.GradientError, match="`x` was placed with other indices"),
        ti.ad.Tape(loss),
    ):
        run()


@pytest.mark.parametrize("is_caught_inside", [True, False])
def test_a_failed_check_in_a_function_of_no_grad(own_runtime: None, is_caught_inside: bool) -> None:
    """The tape goes on: the function is not differentiated."""
    ti.init(debug=True)
    x, loss = numbers(3), numbers()

    @ti.kernel
    def check():
        for i in x:
            assert x[i] < 0, "positive"

    @ti.kernel
    def square():
        for i in x:
            loss[None] += x[i] ** 2

    @ti.ad.no_grad
    def look() -> None:
        try:
            check()
        except AssertionError:
            if not is_caught_inside:
                raise

    x.fill(2)
    with ti.ad.Tape(loss):
        with suppress(AssertionError):
            look()
        square()
    np.testing.assert_allclose(x.grad.to_numpy(), 4)
