"""Field trees: blocks in blocks, places, axes, several fields in one cell; loops over blocks."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check, plain


def same(got: Any, want: Any) -> None:
    """Raises AssertionError where results differ from the arrays, shapes or numbers wanted."""
    check(got, plain(want))


def ramp(shape: tuple[int, ...]) -> Any:
    """i * 100 + j * 10 + k ... for indices i, j, k."""
    weights = [10 ** (len(shape) - 1 - k) for k in range(len(shape))]
    return sum(w * axis for w, axis in zip(weights, np.indices(shape), strict=True))


@ti.kernel
def fill_ramp(x: ti.template()):
    for I in ti.grouped(x):
        s = 0
        for k in ti.static(range(len(x.shape))):
            s = s * 10 + I[k]
        x[I] = s


def placed(dtype: Any, build: Any) -> Any:
    """A field of dtype, placed under the node that `build` makes of ti.root."""
    x = ti.field(dtype)
    build(ti.root).place(x)
    return x


TREES = {
    "one-axis": (lambda r: r.dense(ti.i, 5), (5,)),
    "two-axes": (lambda r: r.dense(ti.ij, (3, 4)), (3, 4)),
    "one-number": (lambda r: r.dense(ti.ij, 3), (3, 3)),
    "j-only": (lambda r: r.dense(ti.j, 4), (4,)),
    "k-and-i": (lambda r: r.dense(ti.k, 4).dense(ti.i, 3), (3, 4)),
    "column-major": (lambda r: r.dense(ti.j, 4).dense(ti.i, 3), (3, 4)),
    "blocked": (lambda r: r.dense(ti.ij, (2, 3)).dense(ti.ij, (4, 2)), (8, 6)),
    "blocked-odd": (lambda r: r.dense(ti.ij, (3, 5)).dense(ti.ij, (7, 3)), (21, 15)),
    "three-levels": (lambda r: r.dense(ti.i, 2).dense(ti.i, 3).dense(ti.i, 5), (30,)),
    "tile-of-rows": (lambda r: r.dense(ti.i, 4).dense(ti.ij, (2, 6)), (8, 6)),
    "rows-of-tiles": (lambda r: r.dense(ti.ij, (2, 6)).dense(ti.i, 4), (8, 6)),
    "mixed-3d": (lambda r: r.dense(ti.ik, (2, 3)).dense(ti.jk, (4, 2)), (2, 4, 6)),
    "four-axes": (lambda r: r.dense(ti.ijkl, (2, 3, 4, 5)), (2, 3, 4, 5)),
    "ones": (lambda r: r.dense(ti.ij, (1, 4)).dense(ti.ij, (3, 1)), (3, 4)),
    "by-list": (lambda r: r.dense(ti.ij, [3, 4]), (3, 4)),
    "numpy-number": (lambda r: r.dense(ti.i, np.int64(6)), (6,)),
    "axes": (lambda r: r.dense(ti.axes(0, 2), (3, 4)), (3, 4)),
    "axes-backwards": (lambda r: r.dense(ti.axes(1, 0), (3, 4)), (4, 3)),
    "high-axes": (lambda r: r.dense(ti.axes(5, 7), (3, 4)), (3, 4)),
    "eight-axes": (lambda r: r.dense(ti.axes(*range(8)), 2), (2,) * 8),
}


@pytest.mark.parametrize("name", TREES)
def test_nested_field_tree(name: str) -> None:
    build, shape = TREES[name]
    x = placed(ti.i32, build)
    assert x.shape == shape
    fill_ramp(x)
    np.testing.assert_array_equal(x.to_numpy(), ramp(shape))


@pytest.mark.parametrize("name", ["column-major", "blocked-odd", "mixed-3d", "tile-of-rows"])
def test_python_reads_values_that_kernels_wrote(name: str) -> None:
    build, shape = TREES[name]
    x = placed(ti.i32, build)
    fill_ramp(x)
    want = ramp(shape)
    for index in np.ndindex(*shape):
        assert x[index] == want[index]


@pytest.mark.parametrize("name", ["column-major", "blocked-odd", "mixed-3d", "tile-of-rows"])
def test_kernels_read_values_that_python_wrote(name: str) -> None:
    build, shape = TREES[name]
    x, y = placed(ti.i32, build), ti.field(ti.i32, shape=shape)
    x.from_numpy(ramp(shape).astype(np.int32))
    x[(1,) * len(shape)] = -5

    @ti.kernel
    def take():
        for I in ti.grouped(x):
            y[I] = x[I]

    take()
    want = ramp(shape)
    want[(1,) * len(shape)] = -5
    np.testing.assert_array_equal(y.to_numpy(), want)


def test_cell_of_several_fields() -> None:
    x, y, v = ti.field(ti.i32), ti.field(ti.f32), ti.Vector.field(2, ti.f32)
    cells = ti.root.dense(ti.i, 3)
    cells.place(x, y)
    cells.place(v)

    @ti.kernel
    def k():
        for i in cells:
            x[i] = i
            y[i] = i * 0.5
            v[i] = [i, -i]

    k()
    same([x.to_numpy(), y.to_numpy()], [[0, 1, 2], [0, 0.5, 1]])
    same([v.to_numpy()], [[[0, 0], [1, -1], [2, -2]]])


def test_cell_of_many_types(lacks: Any) -> None:
    names = ["u8", "i16", "i32", "f32", "u16", "i8"]
    if any(map(lacks, names)):
        pytest.skip("no narrow types here")
    fields = [ti.field(getattr(ti, name)) for name in names]
    ti.root.dense(ti.i, 5).place(*fields)
    a, b, c, d, e, f = fields

    @ti.kernel
    def k():
        for i in a:
            a[i], b[i], c[i] = i + 250, -i, i * 100000
            d[i], e[i], f[i] = i * 0.25, i + 65533, i - 2

    k()
    i = np.arange(5)
    same([a.to_numpy(), b.to_numpy(), c.to_numpy()], [(i + 250) % 256, -i, i * 100000])
    same([d.to_numpy(), e.to_numpy(), f.to_numpy()], [i * 0.25, (i + 65533) % 65536, i - 2])


def test_bools_among_other_types() -> None:
    x, y = ti.field(ti.u1), ti.field(ti.i32)
    ti.root.dense(ti.i, 4).place(x, y)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i % 2 == 1
            y[i] = ti.select(x[i], 10, 20)

    k()
    same([y.to_numpy(), [bool(x[i]) for i in range(4)]], [[20, 10] * 2, [False, True] * 2])


def test_field_beside_a_block() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    rows = ti.root.dense(ti.i, 3)
    rows.place(x)
    rows.dense(ti.j, 2).place(y)

    @ti.kernel
    def k():
        for i, j in y:
            y[i, j] = i + j
            x[i] += y[i, j]

    k()
    same([x.to_numpy(), y.to_numpy()], [[1, 3, 5], [[0, 1], [1, 2], [2, 3]]])


def test_two_blocks_in_a_cell() -> None:
    a, b = ti.field(ti.i32), ti.field(ti.f32)
    outer = ti.root.dense(ti.ij, 2)
    outer.dense(ti.ij, (3, 1)).place(a)
    outer.dense(ti.k, 4).place(b)
    fill_ramp(a)
    fill_ramp(b)
    same([a.shape, b.shape], [(6, 2), (2, 2, 4)])
    same([a.to_numpy(), b.to_numpy()], [ramp((6, 2)), ramp((2, 2, 4))])


def test_structure_of_arrays() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.ij, (2, 3)).place(x)
    ti.root.dense(ti.ij, (2, 3)).place(y)
    fill_ramp(x)
    y.copy_from(x)
    x.fill(7)
    same([x.to_numpy(), y.to_numpy()], [np.full((2, 3), 7), ramp((2, 3))])


def test_fill_leaves_neighbours_alone() -> None:
    x, y, v = ti.field(ti.i32), ti.field(ti.f32), ti.Vector.field(3, ti.f32)
    ti.root.dense(ti.ij, (3, 2)).dense(ti.i, 2).place(x, y, v)
    x.fill(3)
    v.fill(2.5)
    y.from_numpy(np.arange(12, dtype=np.float32).reshape(6, 2))
    same([x.to_numpy(), y.to_numpy()], [np.full((6, 2), 3), np.arange(12).reshape(6, 2)])
    same([v.to_numpy()], [np.full((6, 2, 3), 2.5)])


def test_fill_in_a_kernel() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.ij, 2).dense(ti.ij, 2).place(x, y)

    @ti.kernel
    def k():
        x.fill(4)

    k()
    same([x.to_numpy(), y.to_numpy()], [np.full((4, 4), 4), np.zeros((4, 4))])


def test_copy_between_layouts() -> None:
    x = placed(ti.i32, TREES["blocked"][0])
    y = placed(ti.f32, lambda r: r.dense(ti.j, 6).dense(ti.i, 8))
    z = ti.field(ti.i32, shape=(8, 6))
    fill_ramp(x)
    y.copy_from(x)
    z.copy_from(y)
    same([z.to_numpy()], [ramp((8, 6))])


def test_list_of_fields() -> None:
    fields = [ti.field(ti.i32) for _ in range(3)]
    ti.root.dense(ti.i, 2).place(fields)

    @ti.kernel
    def k():
        for n in ti.static(range(3)):
            for i in fields[n]:
                fields[n][i] = n * 10 + i

    k()
    same([f.to_numpy() for f in fields], [[0, 1], [10, 11], [20, 21]])


def test_zero_axes() -> None:
    x, v = ti.field(ti.i32), ti.Vector.field(2, ti.f32)
    ti.root.place(x, v)

    @ti.kernel
    def k():
        x[None] += 5
        v[None] = [1, 2]
        for _ in range(10):
            x[None] += 1

    k()
    same([x[None], x[()], x.shape, x.to_numpy(), v.to_numpy()], [15, 15, (), 15, [1, 2]])


def test_matrix_fields() -> None:
    m, x = ti.Matrix.field(2, 3, ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.i, 2).place(m, x)

    @ti.kernel
    def k():
        for i in m:
            for a, b in ti.static(ti.ndrange(2, 3)):
                m[i][a, b] = i * 100 + a * 10 + b
            x[i] = m[i][1, i + 1] + m[i].sum()

    k()
    want = np.fromfunction(lambda i, a, b: i * 100 + a * 10 + b, (2, 2, 3))
    same([m.to_numpy(), x.to_numpy()], [want, [11 + want[0].sum(), 112 + want[1].sum()]])


def test_component_by_run_time_index() -> None:
    v, x = ti.Vector.field(4, ti.i32), ti.field(ti.f32)
    ti.root.dense(ti.i, 3).place(x, v)

    @ti.kernel
    def k():
        for i in v:
            for c in range(4):
                v[i][c] = i * 10 + c

    k()
    same([v.to_numpy()], [np.fromfunction(lambda i, c: i * 10 + c, (3, 4))])


def test_atomics_of_interleaved_fields() -> None:
    count, total = ti.field(ti.i32), ti.field(ti.f32)
    bins = ti.root.dense(ti.i, 4)
    bins.place(count, total)

    @ti.kernel
    def k():
        for n in range(1000):
            count[n % 4] += 1
            ti.atomic_max(total[n % 4], float(n))

    k()
    same([count.to_numpy(), total.to_numpy()], [[250] * 4, [996, 997, 998, 999]])


def test_sum_over_a_tree() -> None:
    x = placed(ti.i32, TREES["blocked-odd"][0])
    fill_ramp(x)

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i, j in x:
            s += x[i, j]
        return s

    assert k() == ramp((21, 15)).sum()


def test_neighbours_across_blocks() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.ij, (3, 3)).dense(ti.ij, (4, 4)).place(x, y)
    values = np.random.default_rng(3).integers(0, 100, (12, 12)).astype(np.int32)
    x.from_numpy(values)

    @ti.kernel
    def blur():
        for i, j in x:
            s = 0
            for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                if 0 <= i + a < 12 and 0 <= j + b < 12:
                    s += x[i + a, j + b]
            y[i, j] = s

    blur()
    padded = np.pad(values, 1)
    want = sum(padded[1 + a : 13 + a, 1 + b : 13 + b] for a in (-1, 0, 1) for b in (-1, 0, 1))
    same([y.to_numpy()], [want])


def test_dispatches_of_one_buffer_wait_for_each_other() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.i, 64).place(x, y)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i
        for i in y:
            y[i] = x[63 - i]
        for i in x:
            x[i] = y[63 - i] * 2

    k()
    same([x.to_numpy(), y.to_numpy()], [np.arange(64) * 2, 63 - np.arange(64)])


def place_apart(field, blocks) -> None:
    """Each component in a block of its own, or all in one."""
    for i in range(field.n):
        for j in range(field.m):
            blocks().place(
                field.get_scalar_field(i, j) if field.m > 1 else field.get_scalar_field(i)
            )


@pytest.mark.parametrize("is_one_block", [True, False])
def test_components_placed_one_by_one(is_one_block) -> None:
    v, m, x = ti.Vector.field(3, ti.f32), ti.Matrix.field(2, 2, ti.f32), ti.field(ti.f32)
    block = ti.root.dense(ti.i, 4)
    place_apart(v, lambda: block if is_one_block else ti.root.dense(ti.i, 4))
    block.place(x)
    place_apart(m, lambda: block if is_one_block else ti.root.dense(ti.i, 2).dense(ti.i, 2))
    v[1] = [1, 2, 3]

    @ti.kernel
    def k():
        for i in v:
            v[i] += ti.Vector([i, i * 10, 1])
            m[i] = ti.Matrix([[i, 1], [2, i * i]])
            x[i] = v[i].z

    k()
    check(v, [[0.0, 0.0, 1.0], [2.0, 12.0, 4.0], [2.0, 20.0, 1.0], [3.0, 30.0, 1.0]])
    check(m[3], [[3.0, 1.0], [2.0, 9.0]])
    check(x, [1.0, 4.0, 1.0, 1.0])
