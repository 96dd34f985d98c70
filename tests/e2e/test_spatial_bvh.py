"""`ti.spatial.BVH` against all primitives by numpy: closest points, rays, overlaps, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng(35)
SIZES = (1, 2, 3, 64, 65, 700)


@pytest.fixture(autouse=True)
def fresh_random_numbers() -> None:
    """Random numbers that do not depend on the tests before."""
    globals()["RNG"] = np.random.default_rng(35)


def vectors(values: Any, kind: str = "field", offset: int = 0) -> Any:
    values = np.asarray(values)
    n, d = values.shape
    t = {"i4": ti.i32, "f4": ti.f32, "f8": ti.f64}[values.dtype.str[1:]]
    made = (
        ti.Vector.field(d, t, n, offset=offset) if kind == "field" else ti.Vector.ndarray(d, t, n)
    )
    made.from_numpy(values)
    return made


def random_triangles(n: int, size: float = 0.5) -> Any:
    """Corners of n triangles, as (n, 3, 3)."""
    centres = RNG.random((n, 1, 3)) * 4
    return (centres + RNG.standard_normal((n, 3, 3)) * size).astype(np.float32)


def mesh_of(corners: Any, **options: Any) -> Any:
    """A BVH of triangles that share no vertices."""
    indices = np.arange(3 * len(corners), dtype=np.int32).reshape(-1, 3)
    return ti.spatial.BVH(vectors(corners.reshape(-1, 3)), vectors(indices, "ndarray"), **options)


def random_boxes(n: int, d: int) -> tuple[Any, Any]:
    low = (RNG.random((n, d)) * 4).astype(np.float32)
    return low, (low + RNG.random((n, d)) * 0.4).astype(np.float32)


def ask(bvh: Any, points: Any, directions: Any, most: float = np.inf, groups: Any = None) -> Any:
    """(index, point) of the closest primitive and (index, t) of the first one on the ray, per
    point."""
    n, d = points.shape
    p, v = vectors(points), vectors(directions)
    g = ti.field(ti.i32, n)
    g.from_numpy(np.full(n, -1, np.int32) if groups is None else groups)
    near, hit, t = ti.field(ti.i32, n), ti.field(ti.i32, n), ti.field(ti.f32, n)
    x = ti.Vector.field(d, ti.f32, n)

    @ti.kernel
    def run():
        for i in p:
            near[i], x[i] = bvh.closest_point(p[i], most, g[i])
            hit[i], t[i] = bvh.ray_cast(p[i], v[i], most, g[i])

    run()
    return near.to_numpy(), x.to_numpy(), hit.to_numpy(), t.to_numpy()


def overlaps(bvh: Any, low: Any, high: Any, group: int = -1) -> Any:
    """Matrix of the numbers of times that the loop visits each primitive, per box."""
    a, b = vectors(low), vectors(high)
    first = bvh.origin
    visits = ti.field(ti.i32, (len(low), bvh.count), offset=(0, first))

    @ti.kernel
    def run():
        for i in a:
            j, at = bvh.next_overlap(bvh.first, a[i], b[i], group)
            while j >= 0:
                visits[i, j] += 1
                j, at = bvh.next_overlap(at, a[i], b[i], group)

    run()
    return visits.to_numpy()


# --- by numpy, in f64 ----------------------------------------------------------------------------


def on_segment(p: Any, a: Any, b: Any) -> Any:
    along = np.clip(((p - a) * (b - a)).sum(-1) / ((b - a) ** 2).sum(-1), 0, 1)
    return a + along[..., None] * (b - a)


def triangle_distances(points: Any, corners: Any) -> Any:
    """Distances of all points from all triangles: from the edges, and inside from the plane."""
    p = points[:, None].astype(np.float64)
    a, b, c = np.moveaxis(corners.astype(np.float64), 1, 0)
    found = [np.linalg.norm(on_segment(p, u, v) - p, axis=-1) for u, v in ((a, b), (b, c), (c, a))]
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    height = ((p - a) * normal).sum(-1)
    foot = p - height[..., None] * normal
    sides = [(np.cross(v - u, foot - u) * normal).sum(-1) for u, v in ((a, b), (b, c), (c, a))]
    is_inside = (np.array(sides) >= 0).all(0)
    return np.where(is_inside, abs(height), np.min(found, axis=0))


def triangle_hits(points: Any, directions: Any, corners: Any) -> Any:
    """t of all rays at all triangles, infinity where they miss."""
    o, d = points[:, None].astype(np.float64), directions[:, None].astype(np.float64)
    a, b, c = np.moveaxis(corners.astype(np.float64), 1, 0)
    normal = np.cross(b - a, c - a)
    t = ((a - o) * normal).sum(-1) / (d * normal).sum(-1)
    x = o + t[..., None] * d
    sides = [(np.cross(v - u, x - u) * normal).sum(-1) for u, v in ((a, b), (b, c), (c, a))]
    return np.where((np.array(sides) >= 0).all(0) & (t >= 0), t, np.inf)


def box_distances(points: Any, low: Any, high: Any) -> Any:
    p = points[:, None].astype(np.float64)
    return np.linalg.norm(np.maximum(np.maximum(low - p, p - high), 0), axis=-1)


def box_hits(points: Any, directions: Any, low: Any, high: Any) -> Any:
    o, d = points[:, None].astype(np.float64), directions[:, None].astype(np.float64)
    a, b = (low - o) / d, (high - o) / d
    enter, leave = np.minimum(a, b).max(-1).clip(0), np.maximum(a, b).min(-1)
    return np.where(enter <= leave, enter, np.inf)


def check(found: Any, points: Any, directions: Any, distances: Any, hits: Any) -> None:
    """Check results of `ask`; where several primitives are equally good, any of them will do."""
    near, x, hit, t = found
    best = distances.min(1)
    is_near = np.isfinite(best)
    rows = np.arange(len(points))
    assert ((near >= 0) == is_near).all()
    np.testing.assert_allclose(distances[rows, near][is_near], best[is_near], atol=1e-5)
    np.testing.assert_allclose(
        np.linalg.norm(x - points, axis=1)[is_near], best[is_near], atol=1e-5
    )
    np.testing.assert_array_equal(x[~is_near], points[~is_near])
    first = hits.min(1)
    is_hit = np.isfinite(first)
    assert ((hit >= 0) == is_hit).all()
    np.testing.assert_allclose(t[is_hit], first[is_hit], rtol=1e-4, atol=1e-4)


def random_rays(n: int, d: int) -> tuple[Any, Any]:
    points = (RNG.random((n, d)) * 6 - 1).astype(np.float32)
    return points, RNG.standard_normal((n, d)).astype(np.float32)


# --- queries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_triangles(n: int) -> None:
    corners = random_triangles(n)
    points, directions = random_rays(150, 3)
    bvh = mesh_of(corners)
    found = ask(bvh, points, directions)
    check(
        found, points, directions, triangle_distances(points, corners),
        triangle_hits(points, directions, corners),
    )  # fmt: skip
    low, high = corners.min(1), corners.max(1)
    a, b = points, points + np.float32(0.7)
    want = ((low[None] <= b[:, None]) & (a[:, None] <= high[None])).all(-1)
    np.testing.assert_array_equal(overlaps(bvh, a, b), want)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("n", SIZES)
def test_boxes(n: int, d: int) -> None:
    low, high = random_boxes(n, d)
    points, directions = random_rays(150, d)
    bvh = ti.spatial.BVH(lower=vectors(low, offset=3), upper=vectors(high, offset=3))
    near, x, hit, t = ask(bvh, points, directions)
    found = np.where(near >= 0, near - 3, -1), x, np.where(hit >= 0, hit - 3, -1), t
    check(
        found, points, directions, box_distances(points, low, high),
        box_hits(points, directions, low, high),
    )  # fmt: skip
    a, b = points, points + np.float32(0.3)
    want = ((low[None] <= b[:, None]) & (a[:, None] <= high[None])).all(-1)
    np.testing.assert_array_equal(overlaps(bvh, a, b), want)


def test_limits_of_distance() -> None:
    corners = random_triangles(200)
    points, directions = random_rays(150, 3)
    distances = triangle_distances(points, corners)
    hits = triangle_hits(points, directions, corners)
    found = ask(mesh_of(corners), points, directions, 0.3)
    distances[distances >= 0.3] = np.inf
    hits[hits >= 0.3] = np.inf
    assert np.isfinite(distances.min(1)).sum() in range(20, 140) and np.isfinite(hits).any()
    check(found, points, directions, distances, hits)
    assert (found[3][found[2] < 0] == np.float32(0.3)).all()


def test_groups() -> None:
    n, count = 300, 7
    corners, groups = random_triangles(n), RNG.integers(0, count, n).astype(np.int32)
    groups[groups == 3] = 4  # 3 is empty
    field = ti.field(ti.i32, n)
    field.from_numpy(groups)
    bvh = mesh_of(corners, groups=field, group_count=count)
    points, directions = random_rays(200, 3)
    wanted = np.arange(200, dtype=np.int32) % (count + 1) - 1
    is_in = (groups[None] == wanted[:, None]) | (wanted[:, None] < 0)
    distances = np.where(is_in, triangle_distances(points, corners), np.inf)
    hits = np.where(is_in, triangle_hits(points, directions, corners), np.inf)
    check(ask(bvh, points, directions, groups=wanted), points, directions, distances, hits)
    low, high = corners.min(1), corners.max(1)
    want = ((low[None] <= points[:, None] + 1) & (points[:, None] <= high[None])).all(-1)
    found = overlaps(bvh, points, points + np.float32(1), 4)
    np.testing.assert_array_equal(found, want & (groups == 4))


def test_refit_and_build_after_triangles_moved() -> None:
    corners = random_triangles(300)
    bvh = mesh_of(corners)
    points, directions = random_rays(100, 3)
    for update in (bvh.refit, bvh.build, bvh.refit):
        corners = (corners[::-1] * 0.7 + RNG.standard_normal(3) * 0.5).astype(np.float32)
        bvh.vertices.from_numpy(corners.reshape(-1, 3))
        update()
        check(
            ask(bvh, points, directions), points, directions,
            triangle_distances(points, corners), triangle_hits(points, directions, corners),
        )  # fmt: skip


def test_equal_and_flat_boxes_and_rays_along_axes() -> None:
    low = np.repeat([[1, 1, 1], [3, 1, 1]], 40, 0).astype(np.float32)
    bvh = ti.spatial.BVH(lower=vectors(low), upper=vectors(low + np.float32([0, 1, 1])))
    points = np.array([[0, 1.5, 1.5], [4, 1, 1], [2, 1.5, 1.5], [0, 2.5, 1.5]], np.float32)
    directions = np.array([[1, 0, 0], [-2, 0, 0], [1, 0, 0], [1, 0, 0]], np.float32)
    near, x, hit, t = ask(bvh, points, directions)
    np.testing.assert_array_equal(hit // 40, [0, 1, 1, -1])
    np.testing.assert_array_equal(t, [1, 0.5, 1, np.inf])
    np.testing.assert_array_equal(x[:2], [[1, 1.5, 1.5], [3, 1, 1]])
    np.testing.assert_array_equal((near // 40)[[0, 1, 3]], [0, 1, 0])


def test_nan_is_found_by_no_query() -> None:
    corners = random_triangles(100)
    corners[::3, 1, 2] = np.nan
    low, high = random_boxes(100, 2)
    low[::3, 0], high[1::3, 1], low[2::9, 0] = np.nan, np.inf, 9.0
    points, directions = random_rays(60, 3)
    near, _, hit, _ = ask(mesh_of(corners), points, directions)
    assert (near % 3 > 0).all() and (hit[hit >= 0] % 3 > 0).all() and (hit >= 0).any()
    boxes = ti.spatial.BVH(lower=vectors(low), upper=vectors(high))
    near, _, hit, _ = ask(boxes, points[:, :2].copy(), directions[:, :2].copy())
    usable = np.arange(100) % 3 == 2
    usable[2::9] = False
    assert usable[near].all() and usable[hit[hit >= 0]].all() and (hit >= 0).any()
    whole = np.full((5, 2), [-100, 100], np.float32)
    assert not overlaps(boxes, whole[:, :1].repeat(2, 1), whole[:, 1:].repeat(2, 1))[
        :, ~usable
    ].any()
    points[::2, 1], directions[1::2, 0] = np.nan, np.inf
    near, x, hit, t = ask(mesh_of(random_triangles(50)), points, directions)
    assert (near[::2] == -1).all() and (hit == -1).all() and (t == np.inf).all()


def test_shared_vertices_with_an_offset_and_f64(need: Any) -> None:
    need("f64")
    side = 12
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    heights = np.stack([x, y, np.sin(x) + np.cos(y)], -1).reshape(-1, 3).astype(np.float64)
    k = (x[:-1, :-1] * side + y[:-1, :-1]).ravel()
    faces = np.concatenate(
        [np.stack([k, k + 1, k + side], 1), np.stack([k + 1, k + side, k + side + 1], 1)]
    )
    vertices = vectors(heights, offset=-20)
    bvh = ti.spatial.BVH(vertices, vectors(faces.astype(np.int32) - 20))
    found = ti.field(ti.f64, 1)
    hit = ti.field(ti.i32, 1)

    @ti.kernel
    def cast():
        for i in hit:
            hit[i], found[i] = bvh.ray_cast(
                ti.Vector([3.25, 4.25, 10.0]), ti.Vector([0.0, 0.0, -1.0])
            )

    cast()
    corner = heights.reshape(side, side, 3)
    want = corner[3, 4, 2] * 0.5 + corner[4, 4, 2] * 0.25 + corner[3, 5, 2] * 0.25
    np.testing.assert_allclose(10 - found[0], want, rtol=1e-12)
    assert sorted(faces[hit[0]]) == [40, 41, 52]


@pytest.mark.usefixtures("own_runtime")
@pytest.mark.parametrize("options", [{"arch": ti.python}, {"debug": True}], ids=str)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_python_and_debug_mode(options: dict[str, Any]) -> None:
    ti.init(**options)
    low, high = random_boxes(20, 2)
    points, directions = random_rays(4, 2)
    boxes = ti.spatial.BVH(lower=vectors(low), upper=vectors(high))
    distances, hits = box_distances(points, low, high), box_hits(points, directions, low, high)
    check(ask(boxes, points, directions), points, directions, distances, hits)
    want = ((low[None] <= points[:, None] + 1) & (points[:, None] <= high[None])).all(-1)
    np.testing.assert_array_equal(overlaps(boxes, points, points + np.float32(1)), want)
    corners = random_triangles(20)
    points, directions = random_rays(4, 3)
    distances = triangle_distances(points, corners)
    hits = triangle_hits(points, directions, corners)
    check(ask(mesh_of(corners), points, directions), points, directions, distances, hits)


# --- gradients -----------------------------------------------------------------------------------


def test_gradients_of_the_points_found() -> None:
    corners = random_triangles(40)
    points, directions = random_rays(30, 3)
    vertices = ti.Vector.field(3, ti.f32, 120, needs_grad=True)
    vertices.from_numpy(corners.reshape(-1, 3))
    indices = np.arange(120, dtype=np.int32).reshape(-1, 3)
    bvh = ti.spatial.BVH(vertices, vectors(indices))
    p, v = ti.Vector.field(3, ti.f32, 30, needs_grad=True), vectors(directions)
    p.from_numpy(points)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def score():
        for i in p:
            k, q = bvh.closest_point(p[i])
            loss[None] += q.dot(ti.Vector([1.0, 2.0, 3.0])) * (i + 1)
            j, t = bvh.ray_cast(p[i], v[i])
            if j >= 0:
                loss[None] += t * t

    with ti.ad.Tape(loss):
        score()
    assert np.abs(vertices.grad.to_numpy()).max() > 1 and np.abs(p.grad.to_numpy()).max() > 1
    step = 1e-3
    for array, size in ((vertices, 120), (p, 30)):
        gradient, values = array.grad.to_numpy(), array.to_numpy()
        direction = RNG.standard_normal((size, 3)).astype(np.float32)
        sums = []
        for sign in (1, -1):
            array.from_numpy(values + np.float32(sign * step) * direction)
            bvh.refit()
            loss[None] = 0
            score()
            sums.append(loss[None])
        array.from_numpy(values)
        bvh.refit()
        want = (sums[0] - sums[1]) / (2 * step)
        assert (gradient * direction).sum() == pytest.approx(want, rel=0.02, abs=1)


# --- errors --------------------------------------------------------------------------------------


def test_errors() -> None:
    vertices, faces = (
        vectors(np.zeros((3, 3), np.float32)),
        vectors(np.array([[0, 1, 2]], np.int32)),
    )
    flat = ti.Vector.field(2, ti.f32, 3)
    for args, options, words in (
        ((), {}, "pass vertices and triangles, or lower and upper"),
        ((vertices,), {}, "pass vertices and triangles, or lower and upper"),
        ((vertices, faces), {"lower": flat, "upper": flat}, "pass vertices and triangles, or"),
        ((flat, faces), {}, "`vertices` must hold vectors of 3 floats, not f32<2>"),
        ((ti.Vector.ndarray(3, ti.f32, 3), faces), {}, "`vertices` must be a field"),
        ((vertices, vertices), {}, "triangles are vectors of 3 ti.i32, not f32<3>"),
        ((), {"lower": flat, "upper": vertices}, "`lower` and `upper` must have the same type"),
        ((vertices, faces), {"group_count": 2}, "group_count= needs groups="),
        ((vertices, faces), {"group_count": 0}, "group_count must be 1 or more"),
        ((vertices, faces), {"groups": ti.field(ti.i32, 2)}, "`groups` must hold 1 ti.i32"),
    ):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=words):
            ti.spatial.BVH(*args, **options)
