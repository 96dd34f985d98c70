"""`ti.FieldsBuilder`: trees that are finalised and destroyed one by one."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check, plain


def same(got: Any, want: Any) -> None:
    """Raises AssertionError where results differ from the arrays, shapes or numbers wanted."""
    check(got, plain(want))


@ti.kernel
def fill_sums(x: ti.template()):
    for I in ti.grouped(x):
        x[I] = I.sum()


def built(shape: Any, dtype: Any = ti.f32) -> tuple[Any, Any]:
    """A field in a tree of its own, and the tree."""
    x, fb = ti.field(dtype), ti.FieldsBuilder()
    fb.dense(ti.axes(*range(len(shape))), shape).place(x)
    return x, fb.finalize()


def test_one_tree() -> None:
    x, _ = built((2, 3))
    fill_sums(x)
    same([x.to_numpy(), x[1, 2], x.shape], [np.indices((2, 3)).sum(0), 3, (2, 3)])


def test_several_trees() -> None:
    fields = [built((n, 2))[0] for n in (1, 3, 5)]
    for x in fields:
        fill_sums(x)
    same([x.to_numpy() for x in fields], [np.indices((n, 2)).sum(0) for n in (1, 3, 5)])


def test_a_builder_of_several_blocks() -> None:
    x, y, z, fb = ti.field(ti.i32), ti.field(ti.f32), ti.field(ti.i32), ti.FieldsBuilder()
    block = fb.dense(ti.i, 4)
    block.place(x)
    block.dense(ti.j, 2).place(y)
    fb.place(z)
    fb.finalize()
    fill_sums(x)
    fill_sums(y)
    z[None] = 5
    same([x.to_numpy(), y.to_numpy(), z[None]], [np.arange(4), np.indices((4, 2)).sum(0), 5])


def test_beside_the_root() -> None:
    x, fb, y = ti.field(ti.i32), ti.FieldsBuilder(), ti.field(ti.i32)
    fb.dense(ti.i, 3).place(x)
    ti.root.dense(ti.i, 2).place(y)
    fb.finalize()
    y[1] = 2
    fill_sums(x)
    same([x.to_numpy(), y.to_numpy()], [[0, 1, 2], [0, 2]])


def test_destroy_leaves_others() -> None:
    x, tree = built((4,))
    y, _ = built((3,))
    fill_sums(x)
    fill_sums(y)
    tree.destroy()
    fill_sums(y)
    same([y.to_numpy()], [[0, 1, 2]])


def test_destroy_and_build_again() -> None:
    for n in range(1, 12):
        x, tree = built((n, n))
        fill_sums(x)
        assert x[n - 1, n - 1] == 2 * n - 2
        tree.destroy()


def test_new_trees_are_zero() -> None:
    for _ in range(5):
        x, tree = built((100,))
        assert not x.to_numpy().any()
        x.fill(3)
        tree.destroy()


def test_lazy_gradients() -> None:
    x, n, fb = ti.field(ti.f32), ti.field(ti.i32), ti.FieldsBuilder()
    fb.dense(ti.i, 3).place(x, n)
    fb.lazy_grad()
    fb.lazy_dual()
    fb.finalize()
    x.grad[1], x.dual[2] = 3, 4
    same([x.grad.to_numpy(), x.dual.to_numpy(), x.to_numpy()], [[0, 3, 0], [0, 0, 4], [0, 0, 0]])


def test_offset_in_builder() -> None:
    x, fb = ti.field(ti.i32), ti.FieldsBuilder()
    fb.dense(ti.i, 2).dense(ti.i, 2).place(x, offset=-2)
    fb.finalize()
    fill_sums(x)
    same([x.to_numpy(), x[-2]], [[-2, -1, 0, 1], -2])


def test_of_an_object() -> None:
    @ti.data_oriented
    class Pool:
        def __init__(self, n: int) -> None:
            self.x, fb = ti.Vector.field(2, ti.f32), ti.FieldsBuilder()
            fb.dense(ti.i, n).place(self.x)
            self.tree = fb.finalize()

        @ti.kernel
        def run(self) -> ti.f32:
            s = 0.0
            for i in self.x:
                self.x[i] = [i, 1]
                s += self.x[i].sum()
            return s

    for n in (2, 5):
        pool = Pool(n)
        assert pool.run() == n * (n - 1) / 2 + n
        pool.tree.destroy()


def test_finalized_twice() -> None:
    x, fb = ti.field(ti.f32), ti.FieldsBuilder()
    fb.place(x)
    fb.finalize()
    with pytest.raises(ti.TaichiRuntimeError):
        fb.finalize()


def test_too_late() -> None:
    fb = ti.FieldsBuilder()
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    fb.dense(ti.i, 4).place(x)
    fb.finalize()
    with pytest.raises(ti.TaichiRuntimeError):
        fb.dense(ti.i, 4)
    with pytest.raises(ti.TaichiRuntimeError):
        fb.place(y)
    with pytest.raises(ti.TaichiRuntimeError):
        fb.lazy_grad()
    ti.root.place(y)  # Taichi wants every field to have a place


def test_destroyed_twice() -> None:
    _, tree = built((2,))
    tree.destroy()
    with pytest.raises(ti.TaichiRuntimeError):
        tree.destroy()


@pytest.mark.ours("destroyed-field", run=False)
def test_use_after_destroy() -> None:
    x, tree = built((2,))

    @ti.kernel
    def k():
        for i in x:
            x[i] = 1

    k()
    tree.destroy()
    for use in (k, lambda: x[0], lambda: x.to_numpy(), lambda: fill_sums(x), lambda: x.fill(1)):
        with pytest.raises(ti.TaichiRuntimeError):
            use()


@pytest.mark.ours("unplaced-field")
def test_only_the_unplaced_field_raises() -> None:
    x, y = ti.field(ti.f32), ti.field(ti.f32, shape=2)
    y[1] = 3
    with pytest.raises(ti.TaichiRuntimeError):
        x[0] = 1
    assert y[1] == 3
