"""Outside debug mode, loops whose iterations provably conflict warn; under `ti.cpu` they run in
order. Programs that are right in any order say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelRaceWarning
from vkchi.runtime import current_runtime

N = 64


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    ti.init(arch=ti.vulkan, log_level=ti.ERROR)
    yield
    ti.reset()


def on_cpu(**options: Any) -> None:
    """Begin again, as a program that asks for `ti.cpu`."""
    ti.init(arch=ti.cpu, log_level=ti.ERROR, **options)
    if current_runtime().device.info.kind != "cpu":
        pytest.skip("needs a software device")


def told(*runs: Callable[[], Any]) -> list[str]:
    """The warnings of these calls, one after the other."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for run in runs:
            run()
    assert all(w.category is KernelRaceWarning for w in found), found
    return [f"{w.filename}:{w.lineno}: {w.message}" for w in found]


def line_of(run: Any, text: str) -> str:
    """`file:line` of a line of a kernel."""
    code = run.__wrapped__.__code__
    with open(code.co_filename) as source:
        lines = source.read().splitlines()
    number = next(k for k in range(code.co_firstlineno, len(lines) + 1) if text in lines[k - 1])
    return f"{code.co_filename}:{number}"


# --- the two programs of others ------------------------------------------------------------------


def prefix_sums() -> tuple[Any, Any]:
    """A kernel that sums along the rows of 65 x 40 ones in place, and its result."""
    p, c = ti.field(ti.f32, (65, 40)), ti.field(ti.f32, (65, 40))
    c.fill(1)

    @ti.kernel
    def sum_along_rows():
        for i, j in p:
            if j == 0:
                p[i, j] = c[i, j]
            else:
                p[i, j] = p[i, j - 1] + c[i, j]

    return sum_along_rows, p


def test_sums_along_rows_warn_with_line_and_help() -> None:
    run, _ = prefix_sums()
    (text,) = told(run, run, run)
    place = line_of(run, "p[i, j] = p[i, j - 1] + c[i, j]")
    assert text.startswith(f"{place}: sum_along_rows(): one iteration reads here an element of `p`")
    assert "help: write ti.loop_config(serialize=True) before the loop" in text
    assert "in order" not in text


def test_sums_along_rows_are_right_under_ti_cpu() -> None:
    on_cpu()
    run, p = prefix_sums()
    (text,) = told(run, run)
    assert "under arch=ti.cpu the loop runs serially, in order" in text
    rows = (p.to_numpy() == np.arange(1, 41)).all(axis=1)
    assert rows.sum() == 65


SIDE = 12


def cloth() -> tuple[np.ndarray, np.ndarray]:
    """The points of a stretched cloth, and its edges, sorted by point."""
    i, j = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
    points = np.stack([i, j], -1).reshape(-1, 2) * 1.2
    edges = [
        (a * SIDE + b, (a + da) * SIDE + b + db)
        for a in range(SIDE)
        for b in range(SIDE)
        for da, db in ((1, 0), (0, 1))
        if a + da < SIDE and b + db < SIDE
    ]
    return points.astype(np.float32), np.array(edges, np.int32)


def sweeps_in_order(points: np.ndarray, edges: np.ndarray, count: int) -> np.ndarray:
    """Constraints of unit length, one after the other, in f64."""
    p = points.astype(np.float64)
    for _ in range(count):
        for a, b in edges:
            d = p[b] - p[a]
            length = np.sqrt(d @ d)
            move = 0.5 * (length - 1) / length * d
            p[a] += move
            p[b] -= move
    return p


def constraints() -> tuple[Any, Any]:
    """A kernel that sweeps over the constraints of a cloth, and its points."""
    points, edges = cloth()
    pos = ti.Vector.field(2, ti.f32, len(points))
    edge = ti.Vector.field(2, ti.i32, len(edges))
    pos.from_numpy(points)
    edge.from_numpy(edges)

    @ti.kernel
    def constraints_in_a_loop():
        for e in edge:
            a, b = edge[e][0], edge[e][1]
            d = pos[b] - pos[a]
            move = 0.5 * (d.norm() - 1) / d.norm() * d
            pos[a] += move
            pos[b] -= move

    return constraints_in_a_loop, pos


def test_constraints_in_a_loop_warn() -> None:
    run, _ = constraints()
    (text,) = told(run, run)
    assert text.startswith(line_of(run, "d = pos[b] - pos[a]"))
    assert line_of(run, "pos[a] += move") in text
    assert "help: write ti.loop_config(serialize=True) before the loop" in text


def test_constraints_in_a_loop_run_in_order_under_ti_cpu() -> None:
    on_cpu()
    run, pos = constraints()
    (text,) = told(*[run] * 5)
    assert "in order" in text
    points, edges = cloth()
    expected = sweeps_in_order(points, edges, 5)
    np.testing.assert_allclose(pos.to_numpy(), expected, atol=1e-4)


def test_constraints_that_change_nothing_at_first_warn() -> None:
    run, pos = constraints()
    points, _ = cloth()
    pos.from_numpy(points / np.float32(1.2))
    assert len(told(run)) == 1


# --- proofs --------------------------------------------------------------------------------------


def test_both_lines_and_a_guard_that_is_no_excuse() -> None:
    x, y = ti.field(ti.f32, N), ti.field(ti.f32, N)

    @ti.kernel
    def run():
        for i in x:
            if i > 0:
                y[i] = x[i - 1]
            x[i] = i

    (text,) = told(run)
    assert text.startswith(line_of(run, "y[i] = x[i - 1]"))
    assert line_of(run, "x[i] = i") in text


def test_extents_and_numbers_of_later_calls() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), step: ti.i32):
        for i in range(step, x.shape[0]):
            x[i] += x[i - step]

    small, large = ti.ndarray(ti.f32, 2), ti.ndarray(ti.f32, N)
    assert told(lambda: run(small, 1), lambda: run(large, N // 2)) == []
    assert len(told(lambda: run(large, 3), lambda: run(large, 2))) == 1


@pytest.mark.parametrize("make", [lambda n: np.zeros((n, 2), np.float32), None])
def test_arrays_of_vectors_from_numpy(make: Callable[[int], Any] | None) -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(dtype=ti.math.vec2, ndim=1)):
        for i in range(1, x.shape[0]):
            x[i] = x[i - 1] + 1

    array = make(N) if make is not None else ti.Vector.ndarray(2, ti.f32, N)
    assert len(told(lambda: run(array))) == 1


def test_component_read_of_another_iteration_warns() -> None:
    v, w = ti.Vector.field(2, ti.f32, N), ti.Vector.field(2, ti.f32, N)

    @ti.kernel
    def same():
        for i in range(1, N):
            v[i][0] = v[i - 1][0] + 1

    @ti.kernel
    def other():
        for i in range(1, N):
            w[i][0] = w[i - 1][1] + 1

    assert len(told(same)) == 1
    assert told(other) == []


def test_far_and_mirrored_elements_in_long_loops() -> None:
    n = 1 << 18
    x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)

    @ti.kernel
    def far():
        for i in range(n - 100_000):
            x[i + 100_000] = x[i] + 1

    @ti.kernel
    def mirrored():
        for i in y:
            y[i] = y[n - 1 - i]

    assert len(told(far)) == 1
    assert len(told(mirrored)) == 1


def test_loops_inside_and_functions() -> None:
    x = ti.field(ti.f32, (N, N))

    @ti.func
    def left(i, j):
        return x[i, j - 1]

    @ti.kernel
    def run():
        for j in range(1, N):
            for i in range(N):
                x[i, j] = 0.5 * left(i, j)

    (text,) = told(run)
    assert "test_race_warnings.py" in text


def test_stores_of_different_numbers() -> None:
    x, y = ti.field(ti.i32, 4), ti.field(ti.i32, 4)

    @ti.kernel
    def numbers():
        for i in range(N):
            x[i % 4] = i

    @ti.kernel
    def stores_and_sums():
        for i in range(N):
            y[i % 4] = 0
            y[0] += 1

    (text,) = told(numbers)
    assert "stores here to an element of `x`" in text
    assert len(told(stores_and_sums)) == 1


def test_factors_in_memory_decide() -> None:
    x, a = ti.field(ti.f32, N), ti.field(ti.f32, N)
    x.fill(1)

    @ti.kernel
    def run():
        for i in range(1, N):
            x[i] = x[i] + a[i] * x[i - 1]

    a.from_numpy((np.arange(N) % 2).astype(np.float32))
    assert told(run) == []
    ti.init(arch=ti.vulkan, log_level=ti.ERROR)
    x, a = ti.field(ti.f32, N), ti.field(ti.f32, N)
    x.fill(1)
    a.fill(0.5)
    assert len(told(run)) == 1


def test_minima_that_change_the_stored_value_count() -> None:
    far = np.random.default_rng(3).integers(1, 50, (N, N)).astype(np.float32)
    np.fill_diagonal(far, 0)
    d, best = ti.field(ti.f32, (N, N)), ti.field(ti.i32, 100)
    d.from_numpy(far)

    @ti.kernel
    def shorten(k: ti.i32):  # Floyd and Warshall: row and column k stay, as d[k, k] is 0
        for i, j in d:
            d[i, j] = ti.min(d[i, j], d[i, k] + d[k, j])

    @ti.kernel
    def shorten_by_choice(k: ti.i32):
        for i, j in d:
            new = d[i, k] + d[k, j]
            d[i, j] = ti.select(new < d[i, j], new, d[i, j])

    @ti.kernel
    def pack(size: ti.i32, value: ti.i32):  # a knapsack that may take the same piece twice
        for i in range(size, 100):
            best[i] = ti.max(best[i], best[i - size] + value)

    for k in range(N):
        quiet(lambda k=k: (shorten_by_choice if k % 2 else shorten)(k))  # type: ignore[misc]
        far = np.minimum(far, far[:, k : k + 1] + far[k : k + 1])
    np.testing.assert_array_equal(d.to_numpy(), far)
    assert len(told(lambda: pack(3, 4))) == 1


def test_only_the_loop_that_races_runs_in_order() -> None:
    on_cpu()
    x, y = ti.field(ti.f32, N), ti.field(ti.f32, N)

    @ti.kernel
    def run():
        for i in x:
            x[i] = 1
        for i in x:
            if i > 0:
                x[i] += x[i - 1]
        for i in x:
            y[i] = x[i]

    assert len(told(run)) == 1
    np.testing.assert_array_equal(y.to_numpy(), np.arange(1, N + 1))
    shaders = run.inspect(lambda plan, args: [d.shader for d in plan.artifact.dispatches])
    assert len(shaders) == 3


def test_long_loops_stay_parallel_under_ti_cpu() -> None:
    on_cpu()
    n = (1 << 16) + 2

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in range(1, x.shape[0]):
            x[i] = x[i - 1] + 1

    long, short = ti.ndarray(ti.i32, n), ti.ndarray(ti.i32, N)
    (text,) = told(lambda: run(long))
    assert "in order" not in text
    assert told(lambda: run(short), lambda: run(short), lambda: run(long)) == []
    np.testing.assert_array_equal(short.to_numpy(), np.arange(N))


def test_other_archs_do_not_serialize() -> None:
    run, _ = prefix_sums()
    told(run)
    text = run.inspect(lambda plan, args: plan.func.name and plan.runtime.is_cpu_wanted)
    assert text is False


# --- other calls ---------------------------------------------------------------------------------


def test_gradients_of_loops_in_order(need: Callable[..., None]) -> None:
    need("f64")
    on_cpu()
    x = ti.field(ti.f64, N, needs_grad=True)
    a = ti.field(ti.f64, N, needs_grad=True)
    loss = ti.field(ti.f64, (), needs_grad=True)

    @ti.kernel
    def chain():
        for i in a:
            if i == 0:
                x[i] = a[i]
            else:
                x[i] = 0.5 * x[i - 1] * a[i] + a[i]

    @ti.kernel
    def last():
        loss[None] = x[N - 1]

    given = np.linspace(0.5, 1.5, N)

    def value(v: np.ndarray) -> float:
        found = v[0]
        for k in range(1, N):
            found = 0.5 * found * v[k] + v[k]
        return float(found)

    def in_tape() -> None:
        with ti.ad.Tape(loss):
            chain()
            last()

    a.from_numpy(given)
    assert len(told(in_tape)) == 1
    h = 1e-6
    slopes = [(value(given + h * e) - value(given - h * e)) / (2 * h) for e in np.eye(N)]
    np.testing.assert_allclose(loss[None], value(given), rtol=1e-12)
    np.testing.assert_allclose(a.grad.to_numpy(), slopes, atol=1e-8)

    a.grad.fill(0)
    x.grad.fill(0)
    chain()
    x.grad[N - 1] = 1
    chain.grad()
    np.testing.assert_allclose(a.grad.to_numpy(), slopes, atol=1e-8)


def test_the_first_call_may_be_in_a_tape(need: Callable[..., None]) -> None:
    need("f64")
    on_cpu()
    pos = ti.field(ti.f64, 4, needs_grad=True)
    first = ti.field(ti.f64, 4, needs_grad=True)
    edge = ti.field(ti.i32, (6, 2))
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [1, 3]], np.int32)
    edge.from_numpy(edges)
    loss = ti.field(ti.f64, (), needs_grad=True)

    @ti.kernel
    def begin():
        for i in pos:
            pos[i] = first[i]

    @ti.kernel
    def relax():
        for e in range(6):
            a, b = edge[e, 0], edge[e, 1]
            move = 0.1 * (pos[b] - pos[a]) ** 2
            pos[a] += move
            pos[b] -= move

    @ti.kernel
    def total():
        for i in pos:
            loss[None] += pos[i] ** 2

    def value(v: np.ndarray) -> float:
        p = v.copy()
        for i, j in edges:
            move = 0.1 * (p[j] - p[i]) ** 2
            p[i] += move
            p[j] -= move
        return float(p @ p)

    given = np.array([0.3, 1.0, -0.4, 0.7])
    first.from_numpy(given)

    def in_tape() -> None:
        with ti.ad.Tape(loss):
            begin()
            relax()
            total()

    (text,) = told(in_tape)
    assert "in order" in text
    np.testing.assert_allclose(loss[None], value(given), rtol=1e-12)
    h = 1e-6
    slopes = [(value(given + h * e) - value(given - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(first.grad.to_numpy(), slopes, atol=1e-8)


def test_recorded_calls_run_in_order() -> None:
    on_cpu()
    run, p = prefix_sums()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with ti.record() as g:
            run()
    assert len(found) == 1
    g.run(2)
    assert (p.to_numpy() == np.arange(1, 41)).all()


def test_debug_mode_warns_once() -> None:
    on_cpu(debug=True)
    run, p = prefix_sums()
    assert len(told(run, run)) == 1
    assert (p.to_numpy() == np.arange(1, 41)).all()


def test_accepted_races_say_nothing_and_stay_parallel() -> None:
    on_cpu(accept_races=["sum_along_rows"])
    run, _ = prefix_sums()
    assert told(run) == []


def test_accepted_races_say_nothing_in_debug_mode() -> None:
    ti.init(debug=True, accept_races=["accepted"])
    x = ti.field(ti.f32, 4)

    def make() -> Callable[[], None]:
        def accepted():
            for i in range(64):
                x[i % 4] = i

        return accepted

    other = make()
    other.__qualname__ = other.__name__ = "other"
    assert told(ti.kernel(make())) == []
    assert len(told(ti.kernel(other))) == 1


def test_a_loop_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from vkchi.races import watch

    tried: list[int] = []
    try_loop = watch.try_loop
    monkeypatch.setattr(
        watch, "try_loop", lambda plan, args, k: tried.append(k) or try_loop(plan, args, k)
    )
    count = ti.field(ti.i32, ())
    x, near = ti.field(ti.f32, 4), ti.field(ti.i32, N)
    x.fill(1)

    @ti.kernel
    def run():
        for i in near:
            count[None] += 1
            x[near[i]] += 0.5 * x[near[i]]

    assert len(told(*[run] * 12)) == 1
    assert tried == [0]
    assert count[None] == 12 * N  # the trial left no trace


def test_warm_processes_warn(
    tmp_path: Path, cache_environment: Callable[[Path], dict[str, str]]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        import vkchi as ti

        ti.init(arch=ti.vulkan)
        x = ti.field(ti.f32, 64)

        @ti.kernel
        def run():
            for i in range(1, 64):
                x[i] = x[i - 1] + 1

        run()
        print("vkchi.compiler" in sys.modules)
        """)
    )
    env = cache_environment(tmp_path / "cache")
    for is_cold in (True, False):
        done = subprocess.run(
            [sys.executable, program], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(is_cold)
        assert f"{program}:11: KernelRaceWarning: run(): one iteration reads" in done.stderr


# --- programs that are right in any order --------------------------------------------------------


def quiet(*runs: Callable[[], Any]) -> None:
    """Nothing is said, on any arch."""
    assert told(*runs, *runs) == []


def test_red_black_sweeps() -> None:
    x, mask = ti.field(ti.f32, (N, N)), ti.field(ti.f32, (N, N))

    @ti.kernel
    def branch(color: ti.i32):
        for i, j in x:
            if (i + j) % 2 == color and 0 < i < N - 1 and 0 < j < N - 1:
                x[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])

    @ti.kernel
    def select(color: ti.i32):
        for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
            new = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
            x[i, j] = ti.select((i + j) % 2 == color, new, x[i, j])

    @ti.kernel
    def factor(color: ti.i32):
        for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
            new = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])
            x[i, j] += ti.cast((i + j) % 2 == color, ti.f32) * (new - x[i, j])

    @ti.kernel
    def masked():
        for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
            x[i, j] += mask[i, j] * (x[i - 1, j] + x[i + 1, j] - 2 * x[i, j])

    @ti.kernel
    def compact(color: ti.i32):
        for i, k in ti.ndrange((1, N - 1), N // 2 - 1):
            j = 2 * k + 1 + (i + color) % 2
            x[i, j] = 0.5 * (x[i, j - 1] + x[i, j + 1])

    @ti.kernel
    def early(color: ti.i32):
        for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
            old = x[i, j]
            change = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) - old
            if (i + j) % 2 == color:
                x[i, j] = old + 1.5 * change

    for run in (branch, select, factor, compact, early):
        quiet(lambda run=run: run(0), lambda run=run: run(1))
    mask.from_numpy((np.indices((N, N)).sum(0) % 2).astype(np.float32))
    x.from_numpy(np.random.default_rng(1).random((N, N), np.float32))
    quiet(masked)


def test_conditions_in_memory() -> None:
    """A run of the first launch decides: conflicts of a set mask warn, a clear mask and colours
    that separate the iterations do not."""
    mask, colors = ti.field(ti.i32, N), ti.field(ti.i32, (N, N))

    def make() -> Any:
        @ti.kernel
        def sums(x: ti.types.ndarray(ti.f32, 1)):
            for i in range(1, N):
                if mask[i] > 0:
                    x[i] = x[i - 1] + 1

        return sums

    def of_itself() -> Any:
        @ti.kernel
        def sums(x: ti.types.ndarray(ti.f32, 1)):
            for i in range(1, N):
                if x[i] < 1000:
                    x[i] = x[i - 1] + 1

        return sums

    grid = ti.field(ti.f32, (N, N))

    @ti.kernel
    def sweep(color: ti.i32):
        for i, j in ti.ndrange((1, N - 1), (1, N - 1)):
            if colors[i, j] == color:
                grid[i, j] = 0.25 * (
                    grid[i - 1, j] + grid[i + 1, j] + grid[i, j - 1] + grid[i, j + 1]
                )

    colors.from_numpy(np.indices((N, N)).sum(0).astype(np.int32) % 2)
    grid.from_numpy(np.random.default_rng(1).random((N, N), np.float32))
    quiet(lambda: sweep(0), lambda: sweep(1))
    numbers = ti.ndarray(ti.f32, N)
    quiet(lambda: make()(numbers))
    mask.fill(1)
    for run in (make(), of_itself()):
        numbers.fill(0)
        (text,) = told(lambda run=run: run(numbers))
        assert text.startswith(line_of(run, "x[i - 1]") + ": sums()")


def test_conditions_in_memory_under_ti_cpu() -> None:
    on_cpu()
    x, mask = ti.field(ti.f32, N), ti.field(ti.i32, N)

    @ti.kernel
    def sums():
        for i in range(1, N):
            if mask[i] > 0:
                x[i] = x[i - 1] + 1

    mask.fill(1)
    (text,) = told(sums)
    assert "in order" in text
    np.testing.assert_array_equal(x.to_numpy(), np.arange(N))


def test_early_reads_that_conflict() -> None:
    """One is also used outside the condition; the condition of the other separates nothing."""
    x, y = ti.field(ti.f32, N), ti.field(ti.f32, N)

    @ti.kernel
    def shown(color: ti.i32):
        for i in range(1, N):
            new = x[i - 1]
            if i % 2 == color:
                x[i] = new
            y[i] = new

    @ti.kernel
    def close(n: ti.i32):
        for i in range(1, N):
            new = x[i - 1] + 1.0
            if i < n:
                x[i] = new

    assert told(lambda: shown(0))
    assert told(lambda: close(N // 2))


def test_double_buffers() -> None:
    x = ti.field(ti.f32, (2, N))
    a, b = ti.ndarray(ti.f32, N), ti.ndarray(ti.f32, N)

    @ti.kernel
    def parity(t: ti.i32):
        for i in range(1, N):
            x[(t + 1) % 2, i] = x[t % 2, i - 1] + x[t % 2, i]

    @ti.kernel
    def swapped(new: ti.types.ndarray(), old: ti.types.ndarray()):
        for i in range(1, N):
            new[i] = old[i - 1] + old[i]

    quiet(lambda: parity(0), lambda: parity(1), lambda: swapped(a, b), lambda: swapped(b, a))


def test_elements_of_one_iteration_each() -> None:
    x, y = ti.field(ti.i32, N), ti.field(ti.i32, (N, N))

    @ti.kernel
    def mirror():
        for i in range(N // 2):
            x[i], x[N - 1 - i] = x[N - 1 - i], x[i]

    @ti.kernel
    def halves(n: ti.i32):
        for i in range(n):
            x[i] += x[i + n]

    @ti.kernel
    def odd_even(first: ti.i32):
        for k in range((N - first) // 2):
            i = first + 2 * k
            if x[i] > x[i + 1]:
                x[i], x[i + 1] = x[i + 1], x[i]

    @ti.kernel
    def transpose():
        for i, j in y:
            if i < j:
                y[i, j], y[j, i] = y[j, i], y[i, j]

    @ti.kernel
    def diagonal(d: ti.i32):
        for i in range(1, d):
            j = d - i
            if 0 < j < N:
                y[i, j] = y[i - 1, j] + y[i, j - 1]

    @ti.kernel
    def rows():
        for i in range(N):
            for j in range(1, N):
                y[i, j] += y[i, j - 1]

    @ti.kernel
    def butterfly(step: ti.i32):
        for k in range(N // 2):
            i = k // step * 2 * step + k % step
            a, b = x[i], x[i + step]
            x[i] = a + b
            x[i + step] = a - b

    quiet(mirror, lambda: halves(N // 2), lambda: odd_even(0), lambda: odd_even(1), transpose)
    quiet(lambda: diagonal(N - 1), rows, lambda: butterfly(1), lambda: butterfly(4))


def test_equal_stores_flags_and_atomics() -> None:
    x, out = ti.field(ti.f32, N), ti.field(ti.f32, N)
    flag, most, count = ti.field(ti.i32, ()), ti.field(ti.f32, ()), ti.field(ti.i32, ())
    kept, total, some = ti.field(ti.i32, N), ti.field(ti.f32, 4), ti.field(ti.f32, 8)

    @ti.kernel
    def run():
        for i in x:
            if x[i] > 0.5:
                flag[None] = 1
            some[i % 8] = (i % 8) * 0.5
            total[i % 4] += x[i]
        for i in x:
            if x[i] > most[None]:
                ti.atomic_max(most[None], x[i])
            k = ti.atomic_add(count[None], 1)
            if k < N:
                kept[k] = i
        for i in x:
            if flag[None] == 0:
                flag[None] = 1
            out[i] = x[i]
        for i in range(N - 1):
            ti.atomic_min(x[i + 1], x[i] + 1)

    def again() -> None:
        count.fill(0)
        run()

    quiet(again)


def test_writes_that_change_nothing() -> None:
    x, y, v = ti.field(ti.f32, N), ti.field(ti.f32, N), ti.Vector.field(2, ti.f32, 4)

    @ti.kernel
    def run(k: ti.i32):
        for i in range(N - 4):
            y[i] = x[i]
            x[i + k] = x[i + k]
        for i in range(N):
            ti.atomic_max(v[i % 4][0], i)
            v[i % 4] += ti.Vector([0, 1])

    quiet(lambda: run(0), lambda: run(3))


def test_ghost_cells_by_an_index_that_leaves_the_inside_as_it_is() -> None:
    n = 8
    u, v = ti.field(ti.f32, (n + 2, n + 2)), ti.Vector.field(2, ti.f32, n + 2)

    @ti.kernel
    def wrap():
        for i, j in u:
            u[i, j] = u[(i + n - 1) % n + 1, (j + n - 1) % n + 1]

    @ti.kernel
    def extend():
        for i in v:
            v[i] = v[ti.math.clamp(i, 1, n)]

    inside = np.arange(n * n, dtype=np.float32).reshape(n, n)
    u.from_numpy(np.pad(inside, 1))
    v.from_numpy(np.pad(inside[:, :2], ((1, 1), (0, 0))))
    quiet(wrap, extend)
    np.testing.assert_array_equal(u.to_numpy(), np.pad(inside, 1, "wrap"))
    np.testing.assert_array_equal(v.to_numpy(), np.pad(inside[:, :2], ((1, 1), (0, 0)), "edge"))

    @ti.kernel
    def shift():
        for i, j in u:
            u[i, j] = u[(i + n) % n + 1, j]

    assert len(told(shift)) == 1


def test_equal_stores_to_scratch_element_do_not_warn() -> None:
    scratch, y = ti.field(ti.f32, ()), ti.field(ti.f32, N)

    @ti.kernel
    def run():
        for i in y:
            scratch[None] = 3.0
            y[i] = scratch[None] * i

    quiet(run)


def test_scatters_that_are_read_elsewhere() -> None:
    x, grid, near = ti.field(ti.f32, N), ti.field(ti.f32, 16), ti.field(ti.i32, N)
    near.from_numpy(np.arange(N, dtype=np.int32) % 16)

    @ti.kernel
    def particles():
        for p in x:
            base = int(x[p] * 8)
            for k in range(3):
                grid[base + k] += 0.25 * x[p]
        for g in grid:
            grid[g] *= 0.5
        for p in x:
            x[p] += grid[near[p]]

    quiet(particles)


def test_searches_by_levels_and_counters_of_cells() -> None:
    n = N
    level, ends = ti.field(ti.i32, n), ti.field(ti.i32, (n, 2))
    count, table = ti.field(ti.i32, 8), ti.field(ti.i32, (8, 4))
    level.fill(-1)
    level[0] = 0
    ends.from_numpy(np.stack([np.arange(n) + 1, np.arange(n) + 3], 1).astype(np.int32) % n)

    @ti.kernel
    def search(now: ti.i32):
        for i in level:
            if level[i] == now:
                for k in range(2):
                    j = ends[i, k]
                    if level[j] == -1:
                        level[j] = now + 1

    @ti.kernel
    def insert():
        for i in range(n):
            c = ends[i, 0] % 8
            if count[c] < 4:
                k = ti.atomic_add(count[c], 1)
                if k < 4:
                    table[c, k] = i

    quiet(lambda: search(0), lambda: search(1), insert)


def test_the_second_thread_joins_both_results() -> None:
    leaves = 64
    box, arrived = ti.field(ti.i32, 2 * leaves - 1), ti.field(ti.i32, leaves)
    parent, children = ti.field(ti.i32, 2 * leaves - 1), ti.Vector.field(2, ti.i32, leaves - 1)
    inner = np.arange(leaves - 1, dtype=np.int32)
    children.from_numpy(np.stack([2 * inner + 1, 2 * inner + 2], 1))
    parent.from_numpy((np.arange(2 * leaves - 1, dtype=np.int32) - 1) // 2)

    @ti.kernel
    def climb():
        for i in range(leaves - 1, 2 * leaves - 1):
            box[i] = 1
            k = parent[i]
            while ti.atomic_add(arrived[k], 1) == 1:
                box[k] = box[children[k][0]] + box[children[k][1]]
                if k == 0:
                    break
                k = parent[k]

    quiet(climb)


def test_constraints_by_colors_and_disjoint_pairs() -> None:
    pos, color = ti.field(ti.f32, N), ti.field(ti.i32, N - 1)
    pair = ti.field(ti.i32, (N // 2, 2))
    color.from_numpy(np.arange(N - 1, dtype=np.int32) % 2)
    pair.from_numpy(np.random.default_rng(3).permutation(N).astype(np.int32).reshape(-1, 2))
    edge = ti.field(ti.i32, (N - 1, 2))
    edge.from_numpy(np.stack([np.arange(N - 1), np.arange(1, N)], 1).astype(np.int32))
    pos.from_numpy(np.linspace(0, 9, N).astype(np.float32))

    @ti.kernel
    def solve(c: ti.i32):
        for e in range(N - 1):
            if color[e] == c:
                a, b = edge[e, 0], edge[e, 1]
                d = 0.1 * (pos[b] - pos[a])
                pos[a] += d
                pos[b] -= d

    @ti.kernel
    def exchange():
        for e in range(N // 2):
            a, b = pair[e, 0], pair[e, 1]
            pos[a], pos[b] = pos[b], 0.5 * pos[a]

    quiet(lambda: solve(0), lambda: solve(1), exchange)


def test_loops_that_are_marked_serial() -> None:
    x = ti.field(ti.f32, N)

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(1, N):
            x[i] = x[i - 1] + 1

    quiet(run)


def test_bit_packed_integers() -> None:
    q = ti.types.quant.int(5, signed=False)
    x, near = ti.field(q), ti.field(ti.i32, N)
    block = ti.BitpackedFields(max_num_bits=32)
    block.place(x)
    ti.root.dense(ti.i, N).place(block)
    near.from_numpy(np.arange(N, dtype=np.int32)[::-1].copy())

    @ti.kernel
    def run():
        for i in near:
            x[near[i]] = x[near[i]] // 2
        for i in range(N):
            x[i] = (x[i] + 1) % 32

    quiet(run)


def test_loops_of_64_bit_bounds(need: Callable[..., None]) -> None:
    need("i64")
    on_cpu()
    x = ti.field(ti.i32, N)

    @ti.kernel
    def run(n: ti.i64):
        for i in range(1, n):
            x[i] = x[i - 1] + 1

    (text,) = told(lambda: run(N))
    assert "in order" in text
    assert x.to_numpy().tolist() == list(range(N))


def test_64_bit_loops_over_several_axes(need: Callable[..., None]) -> None:
    need("i64")
    on_cpu()
    x = ti.field(ti.i32, (8, 9))

    @ti.kernel
    def run(n: ti.i64, m: ti.i64):
        for i, j in ti.ndrange((0, n), (1, m)):
            x[i, j] = x[i, j - 1] + 1

    (text,) = told(lambda: run(8, 9))
    assert "in order" in text
    assert x.to_numpy().tolist() == [list(range(9))] * 8


def test_long_64_bit_loops_stay_parallel(need: Callable[..., None]) -> None:
    need("i64")
    on_cpu()
    x = ti.field(ti.i32, 70_000)

    @ti.kernel
    def run(n: ti.i64):
        for i in range(1, n):
            x[i] = x[i - 1] + 1

    (text,) = told(lambda: run(70_000))
    assert "in order" not in text


def test_serial_loops_of_64_bits_do_not_count_the_parallel_one(need: Callable[..., None]) -> None:
    need("i64")
    on_cpu()
    x, y = ti.field(ti.i32, 70_000), ti.field(ti.i32, 8)

    @ti.kernel
    def run(n: ti.i32, m: ti.u64):
        for i in range(1, n):
            x[i] = x[i - 1] + 1
            for k in range(ti.u64(0), m, 2):
                y[ti.i32(k)] = 1

    (text,) = told(lambda: run(70_000, 8))
    assert "in order" not in text


def test_kernels_with_globals_without_a_name() -> None:
    import linecache

    text = "def run(x: ti.types.ndarray()):\n    for i in range(1, 9):\n        x[i] = x[i - 1]\n"
    linecache.cache["<nameless>"] = (len(text), None, text.splitlines(keepends=True), "<nameless>")
    space: dict[str, Any] = {"ti": ti}
    exec(compile(text, "<nameless>", "exec"), space)
    run = ti.kernel(space["run"])
    (message,) = told(lambda: run(np.zeros(9, np.float32)))
    assert message.startswith("<nameless>:3: run()")


def test_forward_mode_of_loops_in_order(need: Callable[..., None]) -> None:
    need("f64")
    on_cpu()
    x, a = ti.field(ti.f64, N, needs_dual=True), ti.field(ti.f64, N, needs_dual=True)
    a.fill(0.5)

    @ti.kernel
    def chain():
        for i in range(1, N):
            x[i] = x[i - 1] + a[i] ** 2

    def along() -> None:
        with ti.ad.FwdMode(loss=x, param=a, seed=[1.0] * N):
            chain()

    (text,) = told(along)
    assert "in order" in text
    np.testing.assert_allclose(x.dual.to_numpy(), np.arange(N), rtol=1e-12)  # 2 a each


def test_warm_processes_run_in_order(
    tmp_path: Path, cache_environment: Callable[[Path], dict[str, str]]
) -> None:
    if current_runtime().device.info.kind != "cpu":
        pytest.skip("needs a software device")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import numpy as np
        import vkchi as ti

        ti.init(arch=ti.cpu)
        x, near = ti.field(ti.f32, 64), ti.field(ti.i32, 64)
        x.fill(1)
        near.from_numpy(np.arange(64, dtype=np.int32) // 2)

        @ti.kernel
        def run():
            for i in range(1, 64):
                x[near[i]] += x[near[i] - 1] if near[i] > 0 else 0.0

        run()
        print(x.to_numpy().tolist())
        """)
    )
    expected = np.ones(64, np.float32)
    for i in range(2, 64):
        expected[i // 2] += expected[i // 2 - 1]
    env = cache_environment(tmp_path / "cache")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, program], env=env, capture_output=True, text=True, check=True
        )
        np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-6)
        assert f"{program}:13: KernelRaceWarning: run(): one iteration reads" in done.stderr
        assert "in order" in done.stderr


def test_integers_and_bodies_beyond_the_search_limits() -> None:
    x, y = ti.field(ti.f32, N), ti.field(ti.f32, (N, 40))

    @ti.kernel
    def divided(n: ti.i32, k: ti.u32):
        for i in range(N):
            x[i % (n + 1)] = x[(i + ti.cast(k, ti.i32)) // n]

    @ti.kernel
    def long():
        for i in range(1, N):
            for a in ti.static(range(4)):
                for b in range(40):
                    y[i, b] = y[i - 1, b] + a

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        divided(1, 2**32 - 1)
    assert len(told(long)) == 1


def test_serialized_loop_warns_once() -> None:
    on_cpu()
    x = ti.field(ti.i32, N)

    @ti.kernel
    def run():
        for i in range(1, N):
            x[i] = x[i - 1] + 0.5

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    kinds = sorted(w.category.__name__ for w in found)
    assert kinds == ["ConversionWarning", "KernelRaceWarning"]
