"""Views in argument packs, graphs, `ti.algorithms`, `ti.ad.vjp`, `ti.ad.jvp`, `Tape.backward`."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.fields.views import meet, overlap

MEMORIES = pytest.mark.parametrize("is_field", [True, False], ids=["field", "ndarray"])
alg = ti.algorithms


def array_of(values: Any, *, is_field: bool, needs_grad: bool = False) -> Any:
    values = np.asarray(values)
    dtype = ti.i32 if values.dtype.kind == "i" else ti.f32
    x = (ti.field if is_field else ti.ndarray)(dtype, values.shape, needs_grad=needs_grad)
    x.from_numpy(values.astype(dtype.dtype))
    return x


# --- packs ---------------------------------------------------------------------------------------

Pair = ti.types.argpack(a=ti.types.ndarray(), b=ti.types.ndarray(), scale=ti.f32)
Nested = ti.types.argpack(pair=Pair, more=ti.types.ndarray(ndim=1))


@ti.kernel
def add_pair(p: Pair):
    for i in p.a:
        p.b[i] += p.a[i] * p.scale


@ti.kernel
def add_nested(q: Nested, c: ti.types.ndarray()):
    for i in q.pair.a:
        q.pair.b[i] = q.pair.scale * q.pair.a[i] + q.more[i] + c[i]


def test_packs_of_views() -> None:
    n = np.arange(40, dtype=np.float32).reshape(4, 10)
    x, y = array_of(n, is_field=False), ti.ndarray(ti.f32, 5)
    for low in (0, 1, 5):
        q = Nested(pair=Pair(a=x[1, low : low + 5], b=x[2, ::2], scale=2.0), more=y)
        add_nested(q, x[3, :5])
        n[2, ::2] = 2 * n[1, low : low + 5] + n[3, :5]
        np.testing.assert_array_equal(x.to_numpy(), n)
    p = Pair(a=x[0], b=x[1], scale=1.0)
    add_pair(p)  # parts of one array, which overlap in the next call
    n[1] += n[0]
    p.a, p.b, p.scale = x[1, :5], x[1, 5:], 3.0
    add_pair(p)
    n[1, 5:] += 3 * n[1, :5]
    p.a, p.b = y, x[3, 5:]
    add_pair(p)
    add_pair(Pair(a=x[0, 4:4], b=x[0], scale=1.0))
    np.testing.assert_array_equal(x.to_numpy(), n)


def test_gradients_of_packs_of_views() -> None:
    x = array_of(np.arange(10.0), is_field=False, needs_grad=True)
    x.grad[5:] = np.arange(5)
    add_pair.grad(Pair(a=x[:5], b=x[5:], scale=3.0))
    assert x.grad.to_numpy().tolist() == [0, 3, 6, 9, 12, 0, 1, 2, 3, 4]


PACKED = """
import sys
import numpy as np
import vkchi as ti

ti.init()
Pack = ti.types.argpack(a=ti.types.ndarray(), b=ti.types.ndarray())

@ti.kernel
def fill(p: Pack):
    for i in p.a:
        p.a[i] = i + 1
        p.b[i] += 1

x = ti.ndarray(ti.i32, 12)
step = int(sys.argv[1])
fill(Pack(a=x[1:4:step], b=x[5:]))
want = np.zeros(12)
part = want[1:4:step]
part[:] = np.arange(len(part)) + 1
want[5 : 5 + len(part)] += 1
assert (x.to_numpy() == want).all(), x.to_numpy()
"""


def test_the_disk_cache_knows_steps_in_packs(tmp_path: Path) -> None:
    script = tmp_path / "packed.py"
    script.write_text(PACKED)
    env = {**os.environ, "VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path / "cache")}
    env["VKCHI_DUMP_SPV"] = ""  # would compile all kernels
    for step in ("1", "2", "1"):
        subprocess.run([sys.executable, str(script), step], env=env, check=True)


# --- graphs --------------------------------------------------------------------------------------


@ti.kernel
def add(a: ti.types.ndarray(), b: ti.types.ndarray(), v: ti.f32):
    for i in a:
        b[i] += a[i] + v


@ti.kernel
def add_fields(a: ti.template(), b: ti.template()):
    for i in a:
        b[i] += a[i]


def test_graphs_of_views() -> None:
    arg = ti.graph.Arg
    a, b = (arg(ti.graph.ArgKind.NDARRAY, name, ti.f32, ndim=1) for name in "ab")
    n = np.arange(32, dtype=np.float32).reshape(4, 8)
    x, y = array_of(n, is_field=False), array_of(np.zeros(4), is_field=False)
    f = array_of(np.ones((2, 4)), is_field=True)
    builder = ti.graph.GraphBuilder()
    builder.dispatch(add, a, b, arg(ti.graph.ArgKind.SCALAR, "v", ti.f32))
    builder.dispatch(add, x[0, :4], b, 1.0)
    builder.dispatch(add_fields, f[0], f[1, :])
    graph = builder.compile()
    places = [(1, slice(k, k + 4)) for k in (0, 1, 4)]
    for v, at in product((0.0, 2.0), places):
        graph.run({"a": x[at], "b": x[2, ::2], "v": v})
        n[2, ::2] += n[at] + v + n[0, :4] + 1
    graph.run({"a": x[1, :4], "b": x[1, 4:], "v": 0.0})
    n[1, 4:] += n[1, :4] + n[0, :4] + 1
    graph.run({"a": y, "b": x[3, 4:], "v": 0.0})
    n[3, 4:] += n[0, :4] + 1
    np.testing.assert_array_equal(x.to_numpy(), n)
    assert f.to_numpy()[1].tolist() == [9] * 4
    for wrong, message in ((x[1:], "ndim=1"), (f[0], "ti.ndarray")):
        with pytest.raises(ti.TaichiRuntimeError, match=message):
            graph.run({"a": wrong, "b": y, "v": 0.0})


@ti.kernel
def count_down(c: ti.types.ndarray()):
    c[1] -= 1


def test_recorded_views() -> None:
    x, c = array_of(np.ones((2, 8)), is_field=False), array_of(np.zeros(6, int), is_field=False)
    f = array_of(np.ones((2, 4)), is_field=True)
    with ti.record() as g:
        add(x[0, :4], x[1, :4], 2.0)
        add_pair(Pair(a=x[0, 4:], b=x[1, 4:], scale=2.0))
        add_fields(f[0], f[1, :])
        count_down(c[2:4])
        with pytest.raises(ti.TaichiRuntimeError, match="read it after"):
            x[1, 4:].to_numpy()
    g.run(3)
    c[3] = 5
    assert g.run_while(c[3:4]) == 5
    c[3] = 2
    assert g.run_while(c[3, ...], max=1) == 1
    assert x.to_numpy()[1].tolist() == [28] * 4 + [19] * 4
    assert f.to_numpy().tolist() == [[1] * 4, [10] * 4]


# --- algorithms ----------------------------------------------------------------------------------

PARTS: list[tuple[int, slice]] = [(0, slice(None)), (1, slice(5, -3, 2)), (2, slice(1, 150))]


@MEMORIES
@pytest.mark.parametrize("length", [200, 20_000])  # sorted by numpy, and on the device
def test_algorithms_of_views(is_field: bool, length: int) -> None:
    rng = np.random.default_rng(3)
    base = rng.integers(-99, 100, (3, length))
    for key in PARTS if length == 200 else PARTS[1:2]:
        part = base[key]
        order = np.argsort(part, kind="stable")
        kept = part[part != 0]

        def check(act: Callable[[Any], None], start: int, want: Any, key: Any = key) -> None:
            x, n = array_of(base, is_field=is_field), base.copy()
            act(x)
            n[key][start : start + len(want)] = want
            np.testing.assert_array_equal(x.to_numpy(), n)

        check(lambda x: alg.parallel_sort(x[key]), 0, part[order])
        check(lambda x: alg.inclusive_scan(x[key]), 0, np.cumsum(part))
        check(lambda x: alg.exclusive_scan(x[key], x[key]), 0, np.cumsum(part) - part)
        check(lambda x: alg.exclusive_scan(x[key][:-1], x[key][1:]), 1,
              np.cumsum(part[:-1]) - part[:-1])  # fmt: skip
        check(lambda x: alg.PrefixSumExecutor(3).run(x[key]), 0, np.cumsum(part[:3]))
        check(lambda x: alg.compact(x[key], x[key], x[key]), 0, kept)
        check(lambda x: alg.compact(x[key], x[key]), 0, np.nonzero(part)[0])
        x = array_of(base, is_field=is_field)
        np.testing.assert_array_equal(alg.argsort(x[key]).to_numpy(), order)
        values = x[(key[0] + 1) % 3]
        want = values.to_numpy()
        want[: len(part)] = want[: len(part)][order]
        alg.parallel_sort(x[key], values)
        np.testing.assert_array_equal(values.to_numpy(), want)
    with pytest.raises(ti.TaichiRuntimeError, match="empty"):
        alg.argsort(x[0, 4:4])
    for size in (0, 1):
        alg.parallel_sort(x[0, 4 : 4 + size])
        alg.inclusive_scan(x[0, 4 : 4 + size], x[1, :size])


def test_compaction_in_place() -> None:
    n = np.random.default_rng(0).integers(0, 2, 30_000)
    mask, values = (array_of(x, is_field=False) for x in (n, np.arange(30_000)))
    want = np.nonzero(n)[0]
    assert alg.compact(mask, values, values) == alg.compact(mask, mask) == len(want)
    np.testing.assert_array_equal(values.to_numpy()[: len(want)], want)
    np.testing.assert_array_equal(mask.to_numpy()[: len(want)], want)


# --- derivatives ---------------------------------------------------------------------------------


@ti.kernel
def square(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for i in a:
        b[i] = 3 * a[i] * a[i]


@ti.kernel
def square_fields(a: ti.template(), b: ti.template()):
    for i in a:
        b[i] = 3 * a[i] * a[i]


Squared = ti.types.argpack(a=ti.types.ndarray(), b=ti.types.ndarray())


@ti.kernel
def square_pack(p: Squared):
    for i in p.a:
        p.b[i] = 3 * p.a[i] * p.a[i]


def square_packed(a: Any, b: Any) -> None:
    square_pack(Squared(a=a, b=b))


@pytest.mark.parametrize("square", [square, square_fields, square_packed])
def test_derivatives_by_views(square: Callable[..., None]) -> None:
    rng, is_field = np.random.default_rng(5), square is square_fields
    n = rng.random((4, 6)).astype(np.float32)
    x = array_of(n, is_field=is_field, needs_grad=True)
    y = array_of(np.zeros((3, 6)), is_field=is_field, needs_grad=True)

    def run(a: Any, b: Any) -> tuple[Any, Any]:
        square(a, y[0, :3])
        square(b, y[1, ::2])
        alg.inclusive_scan(y[0, :3])
        return y[0, :3], y[1, ::2]

    inputs, c = (x[1, :3], x[2, 1::2]), np.float32([1, 2, 3])
    slope = 6 * n[1, :3] * np.cumsum(c[::-1])[::-1]
    (sums, _), pullback = ti.ad.vjp(run, *inputs)
    np.testing.assert_allclose(sums.to_numpy(), np.cumsum(3 * n[1, :3] ** 2), rtol=1e-5)
    for factor in (1, 2):
        da, db = pullback((factor * c, 5.0))
        np.testing.assert_allclose(da.to_numpy(), factor * slope, rtol=1e-5)
        np.testing.assert_allclose(db.to_numpy(), 30 * n[2, 1::2], rtol=1e-5)
    assert not x.grad.to_numpy().any()
    _, (da, db) = ti.ad.jvp(run, inputs, (c, None))
    np.testing.assert_allclose(da.to_numpy(), np.cumsum(6 * n[1, :3] * c), rtol=1e-5)
    assert not db.to_numpy().any()
    with ti.ad.Tape() as tape:
        run(*inputs)
    tape.backward({y[0, :3]: c, y[1, 1::2]: 1.0, y[1, ::2]: y[0, 3:]})
    want = np.zeros((4, 6))
    want[1, :3] = slope
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-5)
    for outputs in (y[0, :3], y[0]), (y, y[0, 1:3]), (y[0, ::2], y[0, 1:]):
        with pytest.raises(ti.TaichiRuntimeError, match="overlap"):
            tape.backward(dict.fromkeys(outputs, 1.0))
    for given in (x[1, :3], x[:, 1:3]), (x, x[1, :3]):
        with pytest.raises(ti.TaichiRuntimeError, match="overlap: copy one"):
            ti.ad.vjp(run, *given)
    with pytest.raises(ti.TaichiRuntimeError, match="no elements"):
        ti.ad.vjp(run, x[1, :3], x[2, 5:5])
    for act in (
        lambda: ti.ad.vjp(lambda a: a, x[0]),
        lambda: ti.ad.jvp(lambda a: y[2], (x[0],), (1,)),
    ):
        with pytest.raises(ti.TaichiRuntimeError, match="not written"):
            act()


@MEMORIES
def test_derivatives_of_algorithms_in_overlapping_views(is_field: bool) -> None:
    rng = np.random.default_rng(6)
    values, c = rng.permutation(5) / np.float32(5), rng.random(5).astype(np.float32)
    mask = array_of(np.array([0, 1, 0, 1, 1]), is_field=is_field)
    ways: list[Callable[[Any], Any]] = [
        lambda a: alg.exclusive_scan(a[:-1], a[1:]),
        alg.parallel_sort,
        lambda a: alg.compact(mask, a, a),
    ]

    def value(way: Callable[[Any], Any], at: Any) -> Any:
        x = array_of(at, is_field=is_field)
        way(x)
        return x.to_numpy() @ c.astype(float)

    for way in ways:
        x = array_of([values, values], is_field=is_field, needs_grad=True)
        _, pullback = ti.ad.vjp(lambda a, way=way: (way(a), a)[1], x[1])
        near = 1e-2 * np.eye(5)
        want = [(value(way, values + d) - value(way, values - d)) / 2e-2 for d in near]
        np.testing.assert_allclose(pullback(c)[0].to_numpy(), want, rtol=1e-2, atol=1e-3)


def test_jvp_of_a_view_of_a_component_raises() -> None:
    v = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    with pytest.raises(ti.Unsupported, match="components"):
        ti.ad.jvp(lambda a: a, (v.get_scalar_field(0)[1:],), (1.0,))


# --- common elements -----------------------------------------------------------------------------


def test_ranges_with_common_numbers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        begins, steps, lengths = (rng.integers(low, 9, 2).tolist() for low in (0, 1, 1))
        a, b = (range(s, s + t * n, t) for s, t, n in zip(begins, steps, lengths, strict=True))
        assert meet(a, b) == bool(set(a) & set(b)), (a, b)


def test_overlaps() -> None:
    x, v = ti.ndarray(ti.f32, (4, 6)), ti.Vector.field(2, ti.f32, 4)
    first, second = (v.get_scalar_field(k) for k in range(2))
    for a, b, want in (
        (x[::2], x[1::2], False), (x[::2], x[::3], True), (x[:, 1], x[2], True),
        (x[0], x, True), (x[0:0], x, False), (x, ti.ndarray(ti.f32, (4, 6)), False),
        (first[2:], first[:3], True), (first[2:], second, False), (first[2:], v, True),
    ):  # fmt: skip
        assert overlap(a, b) == overlap(b, a) == want
