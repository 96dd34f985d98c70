"""`ti.spatial.HashGrid`: points near a point, against numpy's distances of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.opt.cost_model import subgroup_width
from vkchi.opt.pipeline import REMARKS
from vkchi.runtime import current_runtime
from vkchi.spatial.hash_grid import RUN, row_strides

RNG = np.random.default_rng(34)


@pytest.fixture(autouse=True)
def fresh_random_numbers() -> None:
    """Random numbers that do not depend on the tests before."""
    globals()["RNG"] = np.random.default_rng(34)


def make_points(values: Any, kind: str = "field", offset: int = 0) -> Any:
    n, d = values.shape
    t = ti.f64 if values.dtype == np.float64 else ti.f32
    if kind == "field":
        points = ti.Vector.field(d, t, n, offset=offset)
    else:
        points = ti.Vector.ndarray(d, t, n)
    points.from_numpy(values)
    return points


def near_pairs(grid: Any, queries: Any) -> Any:
    """Matrix of the numbers of times that the loop visits each point, per query."""
    first = grid.points.origin[0]
    visits = ti.field(ti.i32, (len(queries), grid.points.shape[0]), offset=(0, first))
    q = make_points(queries, "ndarray")

    @ti.kernel
    def visit(q: ti.types.ndarray()):
        for i in q:
            for j in grid.near(q[i]):
                visits[i, j] += 1

    visit(q)
    return visits.to_numpy()


def all_pairs(points: Any, queries: Any, radius: float) -> Any:
    """The same matrix by numpy, in the arithmetic of the points."""
    with np.errstate(invalid="ignore"):
        away = points[None] - queries[:, None]
    square = away[..., 0] * away[..., 0]
    for k in range(1, points.shape[1]):
        square = square + away[..., k] * away[..., k]
    return (square <= points.dtype.type(radius * radius)).astype(np.int32)


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(
    ("n", "radius"), [(1, 1.0), (2, 3.0), (300, 0.1), (2000, 0.3), (500, 50.0)]
)
def test_random_points(n: int, radius: float, d: int, kind: str) -> None:
    points = (RNG.random((n, d)) * 4 - 2).astype(np.float32)
    queries = np.concatenate([points[:100], (RNG.random((60, d)) * 6 - 3).astype(np.float32)])
    grid = ti.spatial.HashGrid(make_points(points, kind), radius)
    np.testing.assert_array_equal(near_pairs(grid, queries), all_pairs(points, queries, radius))


@pytest.mark.parametrize("d", [2, 3])
def test_points_on_borders_of_cells(d: int) -> None:
    axes = np.meshgrid(*[np.arange(-4, 5)] * d, indexing="ij")
    points = np.stack(axes, -1).reshape(-1, d).astype(np.float32) * np.float32(0.25)
    for radius in (0.25, 0.5, 0.2499):
        grid = ti.spatial.HashGrid(make_points(points), np.float32(radius))
        np.testing.assert_array_equal(
            near_pairs(grid, points), all_pairs(points, points, grid.radius)
        )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_points_on_a_line_and_far_from_the_origin(axis: int) -> None:
    points = np.zeros((900, 3), np.float32)
    points[:, axis] = np.arange(900) * 0.4 + 5000
    grid = ti.spatial.HashGrid(make_points(points), 1.0)
    np.testing.assert_array_equal(near_pairs(grid, points), all_pairs(points, points, 1.0))


def test_equal_points() -> None:
    points = np.full((700, 2), 0.5, np.float32)
    grid = ti.spatial.HashGrid(make_points(points), 1e-3)
    assert (near_pairs(grid, points[:3]) == 1).all()


def test_nan_and_infinity_are_near_nothing() -> None:
    points = RNG.random((200, 3)).astype(np.float32)
    points[::7, 0], points[3::11, 2], points[5::13, 1] = np.nan, np.inf, -np.inf
    grid = ti.spatial.HashGrid(make_points(points), 0.3)
    found = near_pairs(grid, points)
    np.testing.assert_array_equal(
        found, all_pairs(points, points, 0.3) * np.isfinite(points).all(1)
    )
    assert not found[::7].any() and found.any()
    everywhere = np.full((5, 2), np.nan, np.float32)
    assert not near_pairs(ti.spatial.HashGrid(make_points(everywhere), 1.0), everywhere).any()


def test_points_of_f64_and_an_offset(need: Any) -> None:
    need("f64")
    points = RNG.random((300, 2))
    grid = ti.spatial.HashGrid(make_points(points, offset=-50), 0.2)
    q = points[:40]
    np.testing.assert_array_equal(near_pairs(grid, q), all_pairs(points, q, 0.2))


def test_build_again_after_points_moved() -> None:
    x = make_points(RNG.random((400, 2)).astype(np.float32), "ndarray")
    grid = ti.spatial.HashGrid(x, 0.1)
    for _ in range(3):
        points = (RNG.random((400, 2)) * 3 - 1).astype(np.float32)
        x.from_numpy(points)
        grid.build()
        found = near_pairs(grid, points[:50])
        np.testing.assert_array_equal(found, all_pairs(points, points[:50], 0.1))


def test_order_of_cells() -> None:
    points = RNG.random((5000, 2)).astype(np.float32)
    order = ti.spatial.HashGrid(make_points(points), 0.05).order.to_numpy()
    np.testing.assert_array_equal(np.sort(order), np.arange(5000))
    steps = np.linalg.norm(np.diff(points[order], axis=0), axis=1)
    assert np.median(steps) < 0.05


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("n", [1, 2, 777])
def test_reorder_permutes_points_and_other_arrays(n: int, kind: str) -> None:
    points = RNG.random((n, 3)).astype(np.float32)
    x = make_points(points, kind, offset=-4)
    mass, names = ti.field(ti.f32, n, offset=9), ti.Matrix.ndarray(2, 2, ti.i32, n)
    contents = RNG.integers(0, 99, (n, 2, 2)).astype(np.int32)
    mass.from_numpy(points[:, 1])
    names.from_numpy(contents)
    grid = ti.spatial.HashGrid(x, 0.2)
    order = grid.order.to_numpy() - x.origin[0]
    grid.reorder(mass, x, names, mass)
    np.testing.assert_array_equal(x.to_numpy(), points[order])
    np.testing.assert_array_equal(mass.to_numpy(), points[order, 1])
    np.testing.assert_array_equal(names.to_numpy(), contents[order])
    np.testing.assert_array_equal(grid.order.to_numpy() - x.origin[0], np.arange(n))
    pairs = all_pairs(points[order], points, 0.2)
    np.testing.assert_array_equal(near_pairs(grid, points), pairs)
    grid.build()
    np.testing.assert_array_equal(near_pairs(grid, points), pairs)


def test_reorder_of_moved_points_keeps_the_positions_of_the_build() -> None:
    points = RNG.random((300, 2)).astype(np.float32)
    x = make_points(points)
    grid = ti.spatial.HashGrid(x, 0.1)
    order, moved = grid.order.to_numpy(), points + np.float32(5)
    x.from_numpy(moved)
    grid.reorder()
    np.testing.assert_array_equal(x.to_numpy(), moved[order])
    np.testing.assert_array_equal(near_pairs(grid, points), all_pairs(points[order], points, 0.1))


def test_gradient_of_a_reorder_is_that_of_its_permutation() -> None:
    n = 200
    points = RNG.random((n, 2)).astype(np.float32)
    x = ti.Vector.field(2, ti.f32, n, needs_grad=True)
    w = ti.field(ti.f32, n, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(points)
    w.from_numpy(points[:, 0])
    grid = ti.spatial.HashGrid(x, 0.1)
    order = grid.order.to_numpy()

    @ti.kernel
    def score():
        for i in x:
            loss[None] += (x[i].norm_sqr() + 3.0 * w[i]) * i

    with ti.ad.Tape(loss):
        grid.reorder(w)
        score()
        grid.build()
        grid.reorder(w)
    rank = np.argsort(order).astype(np.float32)
    np.testing.assert_allclose(w.grad.to_numpy(), 3 * rank, rtol=1e-6)
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * points * rank[:, None], rtol=1e-5)


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_points_far_from_the_origin_of_several_types(kind: str, need: Any) -> None:
    need(kind)
    d = 3
    points = (RNG.random((600, d)) * 4 + 60).astype(np.float16).astype(np.float32)
    x = ti.Vector.field(d, getattr(ti, kind), len(points))
    x.from_numpy(points)
    for radius in (0.5, 1.0, 1.03):
        grid = ti.spatial.HashGrid(x, radius)
        found = near_pairs(grid, points[:100])
        np.testing.assert_array_equal(found, all_pairs(points, points[:100], radius))


@pytest.mark.parametrize("far", [0, -37, 4000, 60000])
@pytest.mark.parametrize("d", [2, 3])
def test_points_at_the_distance_of_the_radius(d: int, far: float) -> None:
    radius = 0.25
    points = RNG.random((400, d)) * 3
    away = RNG.standard_normal((400, d))
    away /= np.linalg.norm(away, axis=1)[:, None]
    points = np.concatenate([points, points + away]) + far
    points = (points * radius).astype(np.float32)
    grid = ti.spatial.HashGrid(make_points(points), radius)
    np.testing.assert_array_equal(near_pairs(grid, points), all_pairs(points, points, radius))


@pytest.mark.parametrize("bits", range(10, 27))
def test_rows_of_cells_are_disjoint(bits: int) -> None:
    a, b = row_strides(1 << bits)
    rows = [{(a * y + b * z + x) % (1 << bits) for x in range(RUN)}
            for y in (-1, 0, 1) for z in (-1, 0, 1)]  # fmt: skip
    assert len(set.union(*rows)) == 9 * RUN


# --- loops ---------------------------------------------------------------------------------------

POINTS = RNG.random((100, 2)).astype(np.float32)


@pytest.fixture
def grid() -> Any:
    return ti.spatial.HashGrid(make_points(POINTS), 0.25)


def test_break_continue_and_return(grid: Any) -> None:
    @ti.func
    def first_even(p):
        found = -1
        for j in grid.near(p):
            if j % 2 == 1:
                continue
            found = j
            break
        return found

    @ti.func
    def has_odd(p):
        for j in grid.near(p):
            if j % 2 == 1:
                return True
        return False

    @ti.kernel
    def run(x: ti.math.vec2) -> ti.types.vector(2, ti.i32):
        return ti.Vector([first_even(x), ti.i32(has_odd(x))])

    for x in (POINTS[3], np.array([9.0, 9.0], np.float32)):
        near = np.nonzero(all_pairs(POINTS, x[None], 0.25)[0])[0]
        even, odd = run(x)
        assert even in near[near % 2 == 0] if (near % 2 == 0).any() else even == -1
        assert odd == (near % 2 == 1).any()


def test_loop_at_the_top_of_a_kernel(grid: Any) -> None:
    found = ti.field(ti.i32, 100)

    @ti.kernel
    def mark(x: ti.math.vec2):
        for j in grid.near(x):
            found[j] += 1

    mark(POINTS[0])
    np.testing.assert_array_equal(found.to_numpy(), all_pairs(POINTS, POINTS[:1], 0.25)[0])


def test_loops_in_loops_and_members_of_objects(grid: Any) -> None:
    @ti.data_oriented
    class Fluid:
        def __init__(self):
            self.grid = grid
            self.count = ti.field(ti.i32, 100)

        @ti.kernel
        def run(self):
            for i in self.count:
                for j in self.grid.near(self.grid.points[i]):
                    for k in self.grid.near(self.grid.points[j]):
                        self.count[i] += k

    fluid = Fluid()
    fluid.run()
    pairs = all_pairs(POINTS, POINTS, 0.25)
    np.testing.assert_array_equal(fluid.count.to_numpy(), pairs @ pairs @ np.arange(100))


def test_grid_as_an_argument(grid: Any) -> None:
    other = ti.spatial.HashGrid(make_points(POINTS), 0.5)

    @ti.kernel
    def count(grid: ti.template()) -> ti.i32:
        n = 0
        for i in range(100):
            for _ in grid.near(grid.points[i]):
                n += 1
        return n

    for g in (grid, other, grid):
        assert count(g) == all_pairs(POINTS, POINTS, g.radius).sum()


@pytest.mark.usefixtures("own_runtime")
@pytest.mark.parametrize("options", [{"arch": ti.python}, {"debug": True}], ids=str)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_python_and_debug_mode(options: dict[str, Any]) -> None:
    ti.init(**options)
    points = POINTS[:20] - np.float32(0.5)
    grid = ti.spatial.HashGrid(make_points(points), 0.25)
    np.testing.assert_array_equal(near_pairs(grid, points), all_pairs(points, points, 0.25))


@pytest.mark.parametrize("is_reordered", [False, True])
def test_gradient_with_builds_in_the_tape(is_reordered: bool) -> None:
    n, radius = 150, 0.2
    x, y = (
        ti.Vector.field(2, ti.f32, n, needs_grad=True),
        ti.Vector.field(2, ti.f32, n, needs_grad=True),
    )
    loss = ti.field(ti.f32, (), needs_grad=True)
    grid = ti.spatial.HashGrid(x, radius)

    @ti.func
    def push(i, j):
        d = x[j] - x[i]
        return d * (radius * radius - d.norm_sqr())

    @ti.kernel
    def step_near():
        for i in x:
            f = ti.Vector([0.0, 0.0])
            for j in grid.near(x[i]):
                f += push(i, j)
            y[i] = x[i] + 2.0 * f

    @ti.kernel
    def step_all():
        for i in x:
            f = ti.Vector([0.0, 0.0])
            for j in range(n):
                if (x[j] - x[i]).norm_sqr() <= radius * radius:
                    f += push(i, j)
            y[i] = x[i] + 2.0 * f

    @ti.kernel
    def copy():
        for i in x:
            x[i] = y[i]

    @ti.kernel
    def score():
        for i in x:
            loss[None] += x[i].norm_sqr() * (i if not is_reordered else x[i].norm())

    start, found = RNG.random((n, 2)).astype(np.float32), []
    for step in (step_near, step_all):
        x.from_numpy(start)
        with ti.ad.Tape(loss):
            for _ in range(3):
                grid.build()
                if is_reordered and step is step_near:
                    grid.reorder()
                step()
                copy()
            score()
        found.append(x.grad.to_numpy())
    assert np.abs(found[1]).max() > 1
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 65, 97])
def test_batches_of_candidates_with_several_carried_values(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    points = np.full((max(count, 1), 2), 0.5 if count else np.nan, np.float32)
    points[1::3] += np.float32(0.9)  # a candidate of some queries, and not near
    x = make_points(points)
    grid = ti.spatial.HashGrid(x, 1.0)
    weight = ti.field(ti.i32, len(points))
    weight.from_numpy(np.arange(len(points), dtype=np.int32) + 1)
    found = ti.Vector.field(3, ti.i32, 40)

    @ti.kernel
    def run():
        for i in found:
            total, last, kept = 0, -1, i
            for j in grid.near(ti.Vector([0.5 + 1e-4 * i, 0.5])):
                total = 3 * total + weight[j]
                last = j
                if weight[j] % 2 == 1:
                    continue
                total += 1
            found[i] = total, last, kept

    run()
    near = np.nonzero(all_pairs(points, np.full((1, 2), 0.5, np.float32), 1.0)[0])[0]
    order = grid.order.to_numpy()
    total, last = 0, -1
    run.explain()
    is_split = REMARKS["inspector"] in capsys.readouterr().out
    assert is_split == (subgroup_width(current_runtime().device.caps) > 1)
    for j in order[np.isin(order, near)]:
        total, last = (3 * total + int(j) + 1 + (1 if (j + 1) % 2 == 0 else 0)) % (1 << 32), j
    total -= (total >> 31) << 32
    assert (found.to_numpy() == [[total, last, i] for i in range(40)]).all()


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0, -1.0, float("nan"), float("inf"), "1", None])
def test_radius_must_be_positive(radius: Any) -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError, match="HashGrid: a positive radius is needed"):
        ti.spatial.HashGrid(make_points(POINTS), radius)


def test_points_must_be_vectors() -> None:
    for points, words in (
        (ti.field(ti.f32, 4), "points are vectors of 2 or 3 floats, not f32"),
        (ti.Vector.field(3, ti.i32, 4), "points are vectors of 2 or 3 floats, not i32<3>"),
        (ti.Vector.field(4, ti.f32, 4), "points are vectors of 2 or 3 floats, not f32<4>"),
        (ti.Vector.field(2, ti.f32, (4, 4)), "`points` must have 1 axis, not 2"),
        (POINTS, "`points` must be a field or an ndarray"),
    ):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=words):
            ti.spatial.HashGrid(points, 1.0)


def test_arrays_to_reorder_must_have_an_element_per_point(grid: Any) -> None:
    for array, words in (
        (ti.field(ti.f32, 99), "an array has 99 elements, and the grid 100 points"),
        (ti.field(ti.f32, (100, 2)), "`arrays` must have 1 axis, not 2"),
        (POINTS, "`arrays` must be a field or an ndarray"),
    ):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=words):
            grid.reorder(array)
    np.testing.assert_array_equal(grid.points.to_numpy(), POINTS)


def test_errors_in_kernels(grid: Any) -> None:
    @ti.kernel
    def loop_over_grid():
        for j in grid:
            pass

    @ti.kernel
    def wrong_length():
        for j in grid.near(ti.Vector([1.0, 2.0, 3.0])):
            pass

    @ti.kernel
    def no_point():
        for j in grid.near():
            pass

    for kernel, words in (
        (loop_over_grid, "(?s)cannot loop over a hash grid at run time.*for j in grid.near"),
        (wrong_length, "2"),
        (no_point, "near.. needs `p`"),
    ):
        with pytest.raises(ti.TaichiCompilationError, match=words) as error:
            kernel()
        print(error.value)
    with pytest.raises(ti.TaichiSyntaxError, match="only kernels can call it"):
        grid.near([0.0, 0.0])
