"""Field trees in memory: addresses of elements, out-of-range accesses, and release of memory; on
mapped memory and on staged memory, as on a discrete GPU."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.conftest import start
from vkchi.device import open_device
from vkchi.fields.trees.tree_layout import BufferView
from vkchi.opt.lowering.layouts import has_spare
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options
from vkchi.types import row_major


@pytest.fixture(params=["mapped", "staged"], autouse=True, scope="module")
def kind_of_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test on both kinds."""
    install_runtime(Runtime(open_device(staged=request.param == "staged"), Options()))
    yield
    start()


def strides(x: Any) -> list[list[tuple[int, ...]]]:
    """The terms of each axis of a field."""
    return [[tuple(term) for term in terms] for terms in x.layout.axes]


def two_in_cells() -> tuple[Any, Any]:
    """An x and a y in each of 4 cells, and 2 of y's kind."""
    x, y = ti.field(ti.i32), ti.field(ti.f32)
    ti.root.dense(ti.i, 4).place(x, y)
    return x, y


def address(x: Any) -> int:
    """Address of a field."""
    return int(x.buffer.address)


# --- addresses of elements -----------------------------------------------------------------------


def test_fields_of_a_cell_alternate() -> None:
    x, y = two_in_cells()
    assert strides(x) == strides(y) == [[(1, 0, 2)]]
    assert address(y) - address(x) == 4
    assert x.buffer.key == y.buffer.key


def test_separate_blocks_have_separate_buffers() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.i, 4).place(x)
    ti.root.dense(ti.i, 4).place(y)
    x.fill(1)
    y.fill(2)
    assert x.buffer.key != y.buffer.key


def test_cells_are_aligned_like_structs() -> None:
    x, y, z = ti.field(ti.i32), ti.Vector.field(3, ti.f32), ti.field(ti.i32)
    block = ti.root.dense(ti.ij, (2, 3))
    block.place(x, y)
    block.dense(ti.k, 2).place(z)
    assert strides(x) == [[(1, 0, 18)], [(1, 0, 6)]]
    assert strides(z) == [[(1, 0, 18)], [(1, 0, 6)], [(1, 0, 1)]]
    assert [address(y) - address(x), address(z) - address(x)] == [4, 16]
    assert y.layout.components == (0, 1, 2)


def test_narrow_types_are_aligned() -> None:
    if not all(map(current_runtime().device.caps.can_store, ("u8", "i16"))):
        pytest.skip("no narrow types here")
    x, y, z = ti.field(ti.u8), ti.field(ti.f32), ti.field(ti.i16)
    ti.root.dense(ti.i, 3).place(x, y, z)
    assert [strides(f) for f in (x, y, z)] == [[[(1, 0, 12)]], [[(1, 0, 3)]], [[(1, 0, 6)]]]
    assert [address(y) - address(x), address(z) - address(x)] == [4, 8]


def test_blocks_are_digits() -> None:
    x = ti.field(ti.i32)
    ti.root.dense(ti.ij, (2, 3)).dense(ti.ij, (4, 5)).place(x)
    assert strides(x) == [[(4, 0, 60), (1, 4, 5)], [(5, 0, 20), (1, 5, 1)]]


def test_blocks_without_gaps_are_one_digit() -> None:
    x = ti.field(ti.i32)
    ti.root.dense(ti.i, 4).dense(ti.i, 8).dense(ti.j, 3).place(x)
    assert x.layout == row_major((32, 3), 1)


def test_order_is_strides() -> None:
    x = ti.field(ti.f32, shape=(2, 3), order="ji")
    assert strides(x) == [[(1, 0, 1)], [(1, 0, 2)]]


def test_fields_with_a_shape_lie_as_ever() -> None:
    x, v = ti.field(ti.f32, shape=(2, 3)), ti.Vector.field(3, ti.f32, shape=4)
    s = ti.Vector.field(3, ti.f32, shape=(4, 2), layout=ti.Layout.SOA)
    assert x.layout == row_major((2, 3), 1) and v.layout == row_major((4,), 3)
    assert s.layout.components == (0, 8, 16) and strides(s) == [[(1, 0, 2)], [(1, 0, 1)]]


def alone() -> list[Any]:
    """Fields that fill their trees."""
    x, y, z = ti.field(ti.f32), ti.Vector.field(2, ti.f32), ti.field(ti.i32)
    ti.root.dense(ti.ij, (3, 4)).place(x)
    ti.root.dense(ti.j, 3).dense(ti.i, 2).place(y)
    ti.root.dense(ti.ij, (2, 1)).dense(ti.ij, (3, 4)).dense(ti.i, 2).place(z)
    return [x, y, z, ti.field(ti.f32, shape=(1, 5), order="ji"), ti.field(ti.f32, 5, offset=3)]


def in_company() -> list[Any]:
    """Fields with others in their trees, some with the strides of plain arrays."""
    fields = [ti.field(ti.i32) for _ in range(6)]
    a, b, c, d, e, f = fields
    one = ti.root.dense(ti.i, 1)
    one.dense(ti.i, 4).place(a)
    one.dense(ti.i, 4).place(b)
    ones = ti.root.dense(ti.ij, (1, 1))
    ones.dense(ti.j, 4).place(c)
    ones.place(d)
    pairs = ti.root.dense(ti.i, 2)
    pairs.dense(ti.i, 1).place(e)
    pairs.place(f)
    return fields


def test_only_separate_fields_have_a_spare_element() -> None:
    assert all(has_spare(x.array_type) and x.is_own for x in alone())
    apart = ti.Vector.field(2, ti.f32, shape=4, layout=ti.Layout.SOA)
    assert not has_spare(apart.array_type)
    assert not any(has_spare(x.array_type) or x.is_own for x in in_company())


# --- out-of-range accesses ------------------------------------------------------------------------


def test_out_of_range_accesses_change_no_neighbours() -> None:
    fields = [*in_company(), *alone()]
    for n, x in enumerate(fields):
        x.fill(n + 1)

    @ti.kernel
    def stray(x: ti.template(), at: ti.i32):
        for k in range(1):
            index = ti.Vector([at for _ in ti.static(range(len(x.shape)))])
            x[index] = 77
            for axis in ti.static(range(len(x.shape))):
                index = ti.Vector([0 for _ in ti.static(range(len(x.shape)))])
                index[axis] = at
                x[index] = 77

    company = fields[:6]
    for x in fields:
        for at in (-1, -2, -1000000, 2**31 - 1, 40, 1000, 123456789):
            stray(x, at)
    for n, x in enumerate(company):
        np.testing.assert_array_equal(x.to_numpy(), np.full_like(x.to_numpy(), n + 1))
    for n, x in enumerate(fields[6:], 7):  # out of range: maybe elements of the same field
        assert set(x.to_numpy().ravel().tolist()) <= {n, 77}


def test_out_of_range_accesses_of_one_axis_of_an_interleaved_field() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    rows = ti.root.dense(ti.i, 4)
    rows.place(x)
    rows.dense(ti.j, 8).place(y)

    @ti.kernel
    def k(j: ti.i32):
        for i in x:
            y[i, j] = 9
            ti.atomic_add(y[i, j], 1)
            y[i, 3] += y[i, j]

    for j in (8, 9, -1, 10**9):
        k(j)
    assert not x.to_numpy().any()
    y_values = y.to_numpy()
    y_values[:, 3] = 0
    assert not y_values.any()


# --- bulk copies ---------------------------------------------------------------------------------


def test_bulk_copies_keep_elements_in_between() -> None:
    x, y = two_in_cells()
    y.fill(2.5)
    x.from_numpy(np.arange(4))
    x.fill(7)
    z = ti.field(ti.i32, shape=4)
    z.from_numpy(np.arange(4) * 3)
    x.copy_from(z)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(4) * 3)
    np.testing.assert_array_equal(y.to_numpy(), np.full(4, 2.5))


def test_elements_of_blocks() -> None:
    x, v = ti.field(ti.i32), ti.Vector.field(2, ti.f32)
    ti.root.dense(ti.ij, 2).dense(ti.ij, (3, 1)).place(x, v, offset=(-3, 0))
    want, vectors = np.zeros((6, 2)), np.zeros((6, 2, 2))
    for n, (i, j) in enumerate(np.ndindex(6, 2)):
        x[i - 3, j] = want[i, j] = n
        v[i - 3, j] = vectors[i, j] = [n, -n]
        v[i - 3, j][1] += 1
    vectors[..., 1] += 1
    np.testing.assert_array_equal(x.to_numpy(), want)
    np.testing.assert_array_equal(v.to_numpy(), vectors)
    assert x[2, 1] == 11 and list(v[2, 1]) == [11, -10]


def test_deepcopy_of_an_interleaved_field() -> None:
    x, y = two_in_cells()
    x.from_numpy(np.arange(4))
    z = copy.deepcopy(x)
    x.fill(0)
    z[0] = 9
    np.testing.assert_array_equal(z.to_numpy(), [9, 1, 2, 3])
    assert not y.to_numpy().any() and not x.to_numpy().any()


def test_deepcopy_of_a_field_and_its_components() -> None:
    v = ti.Vector.field(2, ti.f32, shape=2, needs_grad=True, offset=1)
    v[1], v.grad[2] = [1, 2], [3, 4]
    first = v.get_scalar_field(0)
    w = copy.deepcopy(v)
    w.get_scalar_field(0).fill(9)
    w.grad[1] = [5, 5]
    np.testing.assert_array_equal(first.to_numpy(), [1, 0])
    np.testing.assert_array_equal(w.to_numpy(), [[9, 2], [9, 0]])
    np.testing.assert_array_equal(v.grad.to_numpy(), [[0, 0], [3, 4]])


# --- the life of memory --------------------------------------------------------------------------


def used_bytes() -> int:
    """Bytes that arrays hold now."""
    device = current_runtime().device
    device.wait()
    device.sweep()
    return int(device.heap.used_bytes)


def test_fields_with_a_shape_are_freed_with_their_last_reference() -> None:
    gc.collect()
    gc.disable()
    try:
        before = used_bytes()
        x = ti.field(ti.f32, shape=(100, 100), needs_grad=True)
        ref = weakref.ref(x)
        assert used_bytes() > before
        del x
        assert ref() is None and used_bytes() == before
    finally:
        gc.enable()


def test_trees_are_freed_with_their_last_field() -> None:
    gc.collect()
    before = used_bytes()
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.dense(ti.i, 10000).place(x, y)
    x[0] = 1
    assert used_bytes() > before
    del x
    y[0] = 2
    del y
    assert used_bytes() == before


def test_destroyed_trees_are_freed_though_fields_are_held() -> None:
    gc.collect()
    before = used_bytes()
    x, fb = ti.field(ti.f32), ti.FieldsBuilder()
    fb.dense(ti.i, 10000).place(x)
    tree = fb.finalize()

    @ti.kernel
    def k():
        for i in x:
            x[i] = i

    k()
    assert used_bytes() > before
    tree.destroy()
    assert used_bytes() == before


def test_windows_of_a_freed_buffer_raise() -> None:
    whole = current_runtime().device.allocate(64)
    part = BufferView(whole, 16, 16)
    part.write(0, b"\1" * 16)
    assert bytes(part.read(0, 16)) == b"\1" * 16
    assert bytes(whole.read(12, 8)) == b"\0\0\0\0\1\1\1\1"


def test_fields_of_an_older_runtime_raise() -> None:
    device = current_runtime().device
    x, y = two_in_cells()
    x[0] = 1
    z = ti.field(ti.f32)
    block = ti.root.dense(ti.i, 2)
    install_runtime(Runtime(open_device(staged=not device.unified), Options()))
    for use in (lambda: x[0], lambda: y.to_numpy(), lambda: block.place(z), lambda: z[0]):
        with pytest.raises(ti.TaichiRuntimeError):
            use()
    with pytest.raises(ti.TaichiRuntimeError):
        ti.root.dense(ti.i, 2).place(z)


def test_an_interrupt_while_fields_get_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that has its part is used; the others get theirs later, of the same memory."""
    x, y = ti.field(ti.i32, needs_grad=False), ti.Vector.field(2, ti.f32)
    block = ti.root.dense(ti.i, 20)
    block.place(x, y)
    attach = type(y).attach

    def interrupted(field: Any, *args: Any, **kwargs: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(type(y), "attach", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x.fill(1)
    assert type(y).attach is attach
    x.fill(1)
    with pytest.raises(RuntimeError, match="cannot grow"):
        block.place(ti.field(ti.i32))
    y.fill(3)
    assert x.to_numpy().tolist() == [1] * 20
    assert (y.to_numpy() == 3).all()

    @ti.kernel
    def add():
        for i in x:
            x[i] += 1

    add()
    assert x.to_numpy().tolist() == [2] * 20


def test_placing_a_gradient_finds_its_field_once() -> None:
    x = ti.field(ti.f32)
    block = ti.root.dense(ti.i, 2)
    block.place(x)
    found = [x]
    x.snode._field = lambda: found.pop() if found else None  # collected from the second look on
    block.lazy_grad()
    x.grad[1] = 4
    assert x.grad.to_numpy().tolist() == [0, 4]
