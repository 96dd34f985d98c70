"""`ti.no_activate`: writes that activate no cells. `show_activity()`: pictures of active cells."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, KernelRuntimeError

quant = ti.types.quant


def active(x: Any) -> int:
    """Number of elements that a loop over a field visits."""

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for _ in ti.grouped(x):
            n += 1
        return n

    return count()


# --- no_activate ---------------------------------------------------------------------------------


@pytest.mark.ours("sparse-no-activate")
@pytest.mark.parametrize("by_field", [False, True])
def test_writes_change_elements_of_active_cells_alone(by_field: bool) -> None:
    x, v, w = ti.field(ti.f32), ti.Vector.field(2, ti.f32), ti.field(quant.float(5, 8))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(w)
    block = ti.root.pointer(ti.i, 8)
    leaf = block.dense(ti.i, 4)
    leaf.place(x, v)
    leaf.place(word)
    passive = x if by_field else block

    @ti.kernel
    def activate():
        ti.activate(block, 3)

    @ti.kernel
    def put():
        ti.no_activate(passive)
        for i in range(32):
            x[i] += 1.0
            v[i] = [i, 1]
            v[i].y += 1
            ti.atomic_max(x[i], 0.5)
            w[i] += 2.0

    @ti.kernel
    def put_then_activate() -> ti.f32:
        total = 0.0
        ti.no_activate(passive)
        ti.loop_config(serialize=True)
        for i in range(32):
            total += ti.atomic_add(x[i], 1.0)
        for i in range(2):
            x[i] = 9.0
        return total

    activate()
    put()
    assert active(x) == 4
    there = np.arange(32) // 4 == 3
    np.testing.assert_array_equal(x.to_numpy(), there)
    np.testing.assert_array_equal(w.to_numpy(), 2 * there)
    np.testing.assert_array_equal(
        v.to_numpy(), np.stack([np.arange(32), np.full(32, 2)], 1) * there[:, None]
    )
    assert put_then_activate() == 4.0
    assert (active(x), x[1], x[12]) == (8, 9.0, 2.0)


def test_outer_blocks_of_passive_ones_stay_inactive() -> None:
    x = ti.field(ti.i32)
    outer = ti.root.pointer(ti.i, 4)
    inner = outer.bitmasked(ti.i, 4)
    inner.place(x)

    @ti.kernel
    def put():
        ti.no_activate(inner)
        for i in range(16):
            x[i] += 1

    put()
    assert (active(x), active(outer)) == (0, 0)
    x[5] = 7
    put()
    assert (active(x), active(outer), x[5]) == (1, 1, 8)


def test_inner_blocks_of_passive_ones_are_activated() -> None:
    x = ti.field(ti.i32)
    outer = ti.root.pointer(ti.i, 4)
    outer.bitmasked(ti.i, 4).place(x)

    @ti.kernel
    def put():
        ti.no_activate(outer)
        for i in range(16):
            x[i] = i

    x[5] = 7
    put()
    assert active(x) == 4
    assert x.to_numpy().tolist() == [0] * 4 + [4, 5, 6, 7] + [0] * 8


def test_lists_of_passive_blocks_keep_their_lengths() -> None:
    x = ti.field(ti.i32)
    lists = ti.root.dense(ti.i, 3).dynamic(ti.j, 8)
    lists.place(x)

    @ti.kernel
    def put():
        x[1].append(4)
        x[1].append(5)
        ti.no_activate(lists)
        for i, j in ti.ndrange(3, 8):
            x[i, j] += 1

    put()
    assert active(x) == 2
    assert x.to_numpy()[1].tolist() == [5, 6] + [0] * 6
    assert x.to_numpy().sum() == 11


def test_blocks_that_cannot_be_passive() -> None:
    x = ti.field(ti.f32)
    large = ti.root.pointer(ti.ij, 1024)
    large.dense(ti.ij, 16).place(x)

    @ti.kernel
    def of_number():
        ti.no_activate(3)
        for i in range(3):
            x[i, i] = 1

    @ti.kernel
    def of_large():
        ti.no_activate(large)
        for i in range(3):
            x[i, i] = 1

    with pytest.raises(ti.TaichiTypeError, match="takes blocks of fields, not an int"):
        of_number()
    with pytest.raises(ti.TaichiTypeError, match="does not support large blocks"):
        of_large()


# --- pictures ------------------------------------------------------------------------------------


def test_picture_of_nested_blocks() -> None:
    x = ti.field(ti.f32)
    outer = ti.root.pointer(ti.ij, (2, 4))
    inner = outer.bitmasked(ti.ij, 2)
    inner.place(x)
    for at in ((0, 0), (0, 1), (3, 7)):
        x[at] = 1
    found = x.show_activity()
    assert [tuple(count) for count in found.counts] == [
        ("pointer", (2, 4), 2),
        ("bitmasked", (4, 8), 3),
    ]
    assert str(found).splitlines() == [
        "pointer block of 2 x 4 cells: 2 of 8 active",
        "bitmasked block of 4 x 8 cells: 3 of 32 active",
        "+--------+",
        "|##......|",
        "|........|",
        "|........|",
        "|.......#|",
        "+--------+",
        "rows: axis i; columns: axis j; . inactive, o partly active, # active",
    ]
    assert len(outer.show_activity().counts) == 1
    outer.deactivate_all()
    assert x.show_activity().shares.sum() == 0


def test_pictures_have_limited_size() -> None:
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.bitmasked(ti.ij, (100, 130)).place(x)
    ti.root.hash(ti.ijk, 4).place(y)
    x[99, 129] = 1
    for k in range(4):
        y[1, 2, k] = 1
    y[3, 0, 1] = 1
    lines = str(x.show_activity()).splitlines()
    assert max(map(len, lines[1:-1])) <= 66
    assert len(lines) <= 28
    assert lines[-3][-2] == "o"
    assert str(y.show_activity()).splitlines()[2:6] == ["|....|", "|..#.|", "|....|", "|o...|"]


def test_pictures_of_lists() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.i, 3).dynamic(ti.j, 8).place(x)
    ti.root.dynamic(ti.i, 256).place(y)

    @ti.kernel
    def put():
        for i in range(3):
            for j in range(3 * i):
                x[i].append(j)
        for j in range(6):
            y.append(j)

    put()
    lines = str(x.show_activity()).splitlines()
    assert lines[0] == "dynamic block of 3 x 8 places: 9 of 24 active"
    assert lines[2:5] == ["|........|", "|###.....|", "|######..|"]
    assert str(y.show_activity()).splitlines()[2] == f"|#o{'.' * 62}|"


def test_pictures_of_structs_and_large_blocks() -> None:
    grid = ti.sparse.grid({"m": ti.f32}, shape=(4, 4))
    grid[1, 2].m = 1
    assert grid.show_activity().counts[0].active == 1
    x = ti.field(ti.f32)
    ti.root.pointer(ti.ij, 1024).dense(ti.ij, 16).place(x)
    x[5000, 3] = 1
    assert x.show_activity().counts[0].active == 1


def test_fields_without_pictures() -> None:
    with pytest.raises(ArgumentError, match="in sparse blocks"):
        ti.field(ti.f32, 4).show_activity()
    with pytest.raises(KernelRuntimeError, match="not placed"):
        ti.field(ti.f32).show_activity()


def test_matplotlib_draws() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    x = ti.field(ti.f32)
    ti.root.bitmasked(ti.ij, (3, 5)).place(x)
    x[1, 2] = 1
    ax = x.show_activity().plot()
    assert ax.get_title() == "bitmasked (3, 5): 1 active"
    np.testing.assert_array_equal(ax.images[0].get_array(), x.to_numpy())
    assert x.show_activity().plot(ax) is ax
