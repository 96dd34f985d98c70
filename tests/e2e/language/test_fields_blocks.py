"""Blocks of field trees: loops over them, their properties, `ti.rescale_index`."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check, plain


def same(got: Any, want: Any) -> None:
    """Raises AssertionError where results differ from the arrays, shapes or numbers wanted."""
    check(got, plain(want))


def two_levels() -> tuple[Any, Any, Any]:
    """A field of shape (4, 3), its block, and the block around that."""
    x = ti.field(ti.i32)
    outer = ti.root.dense(ti.i, 2)
    inner = outer.dense(ti.ij, (2, 3))
    inner.place(x)
    return x, inner, outer


def test_loop_over_the_innermost_block() -> None:
    x, inner, _ = two_levels()

    @ti.kernel
    def k():
        for i, j in inner:
            x[i, j] = i * 10 + j

    k()
    same([x.to_numpy()], [np.fromfunction(lambda i, j: i * 10 + j, (4, 3))])


def test_loop_over_an_outer_block() -> None:
    x, _, outer = two_levels()

    @ti.kernel
    def k():
        for i in outer:
            x[i * 2, 1] = i + 1

    k()
    same([x.to_numpy()], [[[0, 1, 0], [0] * 3, [0, 2, 0], [0] * 3]])


def test_grouped_loop_over_a_block() -> None:
    x, inner, _ = two_levels()

    @ti.kernel
    def k():
        for I in ti.grouped(inner):
            x[I] = I.sum()

    k()
    same([x.to_numpy()], [np.indices((4, 3)).sum(0)])


def test_loop_over_parent() -> None:
    x, _, _ = two_levels()

    @ti.kernel
    def k() -> ti.i32:
        n = 0
        for i, j in x.parent():
            n += 1
        for i in x.parent(2):
            n += 100
        return n

    assert k() == 212


def test_loop_over_the_snode_of_a_field() -> None:
    x, _, _ = two_levels()

    @ti.kernel
    def k():
        for i, j in x.snode:
            x[i, j] = 1

    k()
    same([x.to_numpy()], [np.ones((4, 3))])


def test_block_as_template() -> None:
    x, inner, outer = two_levels()

    @ti.kernel
    def count(block: ti.template()) -> ti.i32:
        n = 0
        for I in ti.grouped(block):
            n += 1
        return n

    same([count(inner), count(outer), count(x), count(inner)], [12, 2, 12, 12])


def test_block_of_an_object() -> None:
    @ti.data_oriented
    class Grid:
        def __init__(self) -> None:
            self.x, self.v = ti.field(ti.f32), ti.Vector.field(2, ti.f32)
            self.block = ti.root.dense(ti.i, 8)
            self.block.dense(ti.j, 2).place(self.x)
            self.block.place(self.v)

        @ti.kernel
        def step(self):
            for i in self.block:
                self.v[i] = ti.Vector([i, i * 2])
            for i, j in self.x:
                self.x[i, j] = self.v[i][j]

    g = Grid()
    g.step()
    same([g.x.to_numpy()], [np.stack([np.arange(8), np.arange(8) * 2], 1)])


def test_serial_loop_over_a_block() -> None:
    x, inner, _ = two_levels()

    @ti.kernel
    def k():
        n = 0
        ti.loop_config(serialize=True)
        for i, j in inner:
            n += 1
            x[i, j] = n

    k()
    assert sorted(x.to_numpy().ravel().tolist()) == list(range(1, 13))


def test_inner_loop_over_a_block() -> None:
    x, inner, outer = two_levels()
    sums = ti.field(ti.i32, shape=2)

    @ti.kernel
    def k():
        for i, j in inner:
            x[i, j] = 1
        for n in sums:
            for i in range(x.shape[0] // outer.shape[0]):
                for j in range(3):
                    sums[n] += x[n * 2 + i, j]

    k()
    same([sums.to_numpy()], [[6, 6]])


def test_block_shapes() -> None:
    x, inner, outer = two_levels()
    same([x.shape, inner.shape, outer.shape, ti.root.shape], [(4, 3), (4, 3), (2,), ()])
    assert len(x.shape) == 2


def test_shape_in_a_kernel() -> None:
    x, inner, outer = two_levels()

    @ti.kernel
    def k() -> ti.i32:
        s = outer.shape[0] + 10 * len(inner.shape)
        for axis in ti.static(range(len(x.shape))):
            s += 100 * x.shape[axis]
        return s + 1000 * x.parent().shape[1]

    assert k() == 2 + 20 + 700 + 3000


def test_block_parents() -> None:
    x, inner, outer = two_levels()
    assert str(x.parent()) == str(inner)
    assert str(x.parent(2)) == str(outer) == str(inner.parent())
    assert str(x.parent(3)) == "ti.root"
    assert x.parent(4) is None


def test_block_repr() -> None:
    x, inner, _ = two_levels()
    assert str(inner) == "ti.root => dense [2] => dense [4, 3]"
    assert str(x.snode) == "ti.root => dense [2] => dense [4, 3] => place [4, 3]"
    assert repr(inner) == "<ti.SNode of type dense>"
    assert repr(x.snode) == "<ti.SNode of type place>"
    assert repr(ti.root) == str(ti.root) == "ti.root"


def test_text_of_fields_with_a_shape() -> None:
    x = ti.field(ti.i32, shape=(2, 3))
    y = ti.field(ti.i32, shape=(2, 3), order="ji")
    assert str(x.parent()) == "ti.root => dense [2, 3]"
    assert str(y.parent()) == "ti.root => dense [3] => dense [2, 3]"
    assert isinstance(x.snode, ti.SNode)


def test_place_returns_the_block() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    block = ti.root.dense(ti.i, 2)
    assert str(block.place(x)) == str(block)
    block.place(y).dense(ti.j, 2)


def test_offsets_and_sizes_in_a_cell(lacks: Any) -> None:
    if lacks("u8") or lacks("i16"):
        pytest.skip("no narrow types here")
    x, y, z = ti.field(ti.u8), ti.field(ti.f32), ti.field(ti.i16)
    block = ti.root.dense(ti.i, 3)
    block.place(x, y, z)
    offsets = [f.snode._offset_bytes_in_parent_cell for f in (x, y, z)]
    same([offsets, block._cell_size_bytes], [[0, 4, 8], 12])


@pytest.mark.parametrize(
    ("index", "up", "want"),
    [((3, 6), False, (1, 3)), ((1, 3), True, (2, 6)), ((0, 1), True, (0, 2))],
)
def test_rescale_index(index: Any, up: bool, want: Any) -> None:
    fine, coarse = ti.field(ti.f32, shape=(4, 8)), ti.field(ti.f32, shape=(2, 4))
    a, b = (coarse, fine) if up else (fine, coarse)
    assert list(ti.rescale_index(a, b, ti.Vector(list(index)))) == list(want)
    assert list(ti.rescale_index(a, b, list(index))) == list(want)


def test_rescale_index_in_a_kernel() -> None:
    fine, coarse = ti.field(ti.f32, shape=(4, 8)), ti.field(ti.f32)
    block = ti.root.dense(ti.ij, (2, 4))
    block.place(coarse)

    @ti.kernel
    def k():
        for I in ti.grouped(fine):
            coarse[ti.rescale_index(fine, block, I)] += 1

    k()
    same([coarse.to_numpy()], [np.full((2, 4), 4)])
