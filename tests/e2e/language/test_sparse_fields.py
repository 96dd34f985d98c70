"""Fields in sparse blocks: pointer, bitmasked, hash and dynamic ones, as Taichi documents them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def in_two_pointers() -> tuple[Any, Any, Any]:
    """A field of shape (12, 12), in blocks of 2 by 2 in blocks of 2 by 2 of those."""
    x = ti.field(ti.i32)
    outer = ti.root.pointer(ti.ij, 3)
    inner = outer.pointer(ti.ij, 2)
    inner.dense(ti.ij, 2).place(x)
    return x, inner, outer


def indices_of(node: Any) -> Callable[[], Any]:
    """A kernel that says which indices a loop over a node of two axes runs over: a set of pairs."""
    seen = ti.field(ti.i32, shape=node.shape)

    @ti.kernel
    def note():
        for i, j in node:
            seen[i, j] += 1

    def call() -> Any:
        seen.fill(0)
        note()
        found = seen.to_numpy()
        assert found.max() <= 1  # once each
        return sorted(map(tuple, np.argwhere(found).tolist()))

    return call


# --- active cells --------------------------------------------------------------------------------


def test_cells_are_inactive_at_first():
    x, inner, outer = in_two_pointers()
    assert [indices_of(node)() for node in (x, inner, outer)] == [[], [], []]
    assert x[3, 4] == 0 and not x.to_numpy().any()


def test_a_write_makes_the_cells_around_active():
    x, inner, outer = in_two_pointers()

    @ti.kernel
    def put():
        x[5, 2] = 7

    put()
    assert indices_of(x)() == [(4, 2), (4, 3), (5, 2), (5, 3)]
    assert indices_of(inner)() == [(2, 1)]
    assert indices_of(outer)() == [(1, 0)]
    assert x[5, 2] == 7 and x.to_numpy().sum() == 7


def test_a_write_of_python_makes_them_active():
    x, inner, _ = in_two_pointers()
    x[11, 0] = 1
    assert indices_of(inner)() == [(5, 0)]


def test_a_sum_makes_them_active_and_reading_does_not():
    x, inner, _ = in_two_pointers()
    y = ti.field(ti.i32, shape=())

    @ti.kernel
    def add():
        for i in range(8):
            x[i // 4, 0] += i
        y[None] = x[8, 8] + x[1, 0]

    add()
    assert indices_of(inner)() == [(0, 0)]
    check([x[0, 0], x[1, 0], y], [6, 22, 22])


@pytest.mark.parametrize(
    "kind", ["pointer", "bitmasked", pytest.param("hash", marks=pytest.mark.ours("sparse-hash"))]
)
def test_every_kind_of_cells(kind):
    x = ti.field(ti.f32)
    block = getattr(ti.root, kind)(ti.i, 8)
    block.place(x)

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            n += 1
        return n

    assert count() == 0
    x[3] = 1.0
    x[7] = 0.0  # a write is a write
    assert count() == 2


def test_pointers_of_bitmasks():
    x = ti.field(ti.i32)
    ti.root.pointer(ti.ij, 4).bitmasked(ti.ij, 4).place(x)

    @ti.kernel
    def diagonal():
        for k in range(16):
            x[k, k] = k

    diagonal()
    assert indices_of(x)() == [(k, k) for k in range(16)]


@pytest.mark.ours("sparse-loops")
def test_a_loop_iterates_over_elements_active_at_its_start():
    x = ti.field(ti.i32)
    ti.root.bitmasked(ti.i, 64).place(x)
    x[3] = 1

    @ti.kernel
    def spread():
        for i in x:
            x[i + 1] = 5
            x[i + 30] = 6

    spread()
    check(sorted(np.nonzero(x.to_numpy())[0].tolist()), [3, 4, 33])
    spread()  # 4 and 33 too: 34 is next to the one and 30 from the other
    check(sorted(np.nonzero(x.to_numpy())[0].tolist()), [3, 4, 5, 33, 34, 63])


def test_neighbours_in_one_block():
    v, m = ti.Vector.field(2, ti.f32), ti.field(ti.f32)
    grid = ti.root.pointer(ti.ij, 4)
    grid.dense(ti.ij, 4).place(v, m)

    @ti.kernel
    def scatter():
        for p in range(20):
            v[p % 5, 3] += ti.Vector([1.0, 2.0])
            m[p % 5, 3] += 1.0

    @ti.kernel
    def normalise():
        for i, j in m:
            if m[i, j] > 0:
                v[i, j] /= m[i, j]
                v[i, j][0] += 1.0

    scatter()
    normalise()
    want = np.zeros((16, 16, 2))
    want[:5, 3] = [2.0, 2.0]
    check(v, want.tolist())
    assert len(indices_of(m)()) == 32


def test_cells_of_an_offset_field():
    x = ti.field(ti.i32)
    block = ti.root.pointer(ti.i, 4)
    block.dense(ti.i, 4).place(x, offset=-8)
    y = ti.field(ti.i32, shape=16)

    @ti.kernel
    def note():
        x[-5] = 3
        x[7] = 4

    @ti.kernel
    def show():
        for i in x:
            y[i + 8] += 1 + x[i]

    note()
    show()
    check(y, [1, 1, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 5])


def test_grouped_loops_and_sums():
    x = ti.field(ti.f32)
    ti.root.pointer(ti.ijk, 2).dense(ti.ijk, 2).place(x)
    x[3, 0, 1] = 2.0
    x[0, 0, 0] = 1.0

    @ti.kernel
    def total() -> ti.f32:
        s = 0.0
        for I in ti.grouped(x):
            s += x[I] + I.sum()
        return s

    # 8 cells around (2..3, 0..1, 0..1), whose indices add up to 8 * 3.5, and 8 around the origin
    check(total(), 3.0 + 8 * 3.5 + 8 * 1.5)


# --- functions -----------------------------------------------------------------------------------


def test_activate_and_is_active():
    x, inner, outer = in_two_pointers()

    @ti.kernel
    def make():
        ti.activate(outer, [0, 1])
        ti.activate(inner, ti.Vector([0, 3]))

    @ti.kernel
    def ask(i: ti.i32, j: ti.i32) -> ti.i32:
        n = 0
        if ti.is_active(inner, [i, j]):
            n = 1
        return n

    make()
    assert indices_of(outer)() == [(0, 1)]
    assert indices_of(inner)() == [(0, 3)]
    assert indices_of(x)() == [(0, 6), (0, 7), (1, 6), (1, 7)]
    assert [ask(0, 3), ask(0, 2), ask(5, 5)] == [1, 0, 0]


def test_deactivate_zeroes_elements():
    x, inner, outer = in_two_pointers()
    x[0, 0] = x[0, 2] = x[5, 5] = 9

    @ti.kernel
    def drop():
        ti.deactivate(inner, [0, 1])

    drop()
    assert indices_of(inner)() == [(0, 0), (2, 2)]
    check([x[0, 0], x[0, 2], x[5, 5]], [9, 0, 9])

    @ti.kernel
    def drop_outer():
        ti.deactivate(outer, [0, 0])

    drop_outer()
    assert indices_of(inner)() == [(2, 2)]
    assert x.to_numpy().sum() == 9
    x[0, 1] = 1
    assert indices_of(x)() == [(0, 0), (0, 1), (1, 0), (1, 1), (4, 4), (4, 5), (5, 4), (5, 5)]


def test_a_loop_that_deactivates():
    x = ti.field(ti.i32)
    block = ti.root.pointer(ti.i, 8)
    block.dense(ti.i, 4).place(x)
    for k in range(32):
        x[k] = k

    @ti.kernel
    def prune():
        for b in block:
            if b % 2 == 0:
                ti.deactivate(block, [b])

    prune()
    check(x, [k if k // 4 % 2 else 0 for k in range(32)])

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            n += 1
        return n

    assert count() == 16


@pytest.mark.ours("sparse-writes")
def test_a_write_after_a_deactivation_in_one_iteration():
    x = ti.field(ti.i32)
    block = ti.root.pointer(ti.i, 8)
    block.place(x)
    x[2] = x[3] = 4

    @ti.kernel
    def renew():
        for i in block:
            old = x[i]
            ti.deactivate(block, [i])
            if i == 2:
                x[i] = old + 1

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            n += i
        return n

    renew()
    check([x[2], x[3], count()], [5, 0, 2])


@pytest.mark.ours("sparse-zero")
def test_deactivate_all():
    x, inner, outer = in_two_pointers()
    y = ti.field(ti.i32)
    ti.root.bitmasked(ti.i, 4).place(y)
    x[1, 1] = x[9, 9] = 3
    y[2] = 5
    inner.deactivate_all()
    assert indices_of(inner)() == []
    assert indices_of(outer)() == [(0, 0), (2, 2)]
    check([x[1, 1], y[2]], [0, 5])
    x.parent(3).deactivate_all()
    assert indices_of(outer)() == []
    ti.deactivate_all_snodes()
    assert y[2] == 0


# --- lists ---------------------------------------------------------------------------------------


def test_one_list():
    x = ti.field(ti.i32)
    ti.root.dynamic(ti.i, 32, chunk_size=4).place(x)
    n = ti.field(ti.i32, shape=3)

    @ti.kernel
    def work():
        for i in range(5):
            x.append(i * i)
        n[0] = x.length()

    @ti.kernel
    def total() -> ti.i32:
        s = 0
        for i in x:
            s += x[i] + 100
        return s

    work()
    assert n[0] == 5
    assert total() == 530

    @ti.kernel
    def clear():
        x.deactivate()
        n[1] = x.length()

    clear()
    assert n[1] == 0 and total() == 0


def test_lists_in_cells():
    x = ti.field(ti.i32)
    block = ti.root.dense(ti.i, 6).dynamic(ti.j, 16)
    block.place(x)
    lengths = ti.field(ti.i32, shape=6)

    @ti.kernel
    def fill():
        for i in range(6):
            for j in range(i):
                x[i].append(j * 10)

    @ti.kernel
    def ask():
        for i in range(6):
            lengths[i] = x[i].length() + ti.length(block, [i])

    fill()
    ask()
    check(lengths, [0, 2, 4, 6, 8, 10])
    assert indices_of(x)() == [(i, j) for i in range(6) for j in range(i)]
    x[2, 9] = 1
    ask()
    assert lengths[2] == 20

    @ti.kernel
    def clear():
        for i in range(4):
            x[i].deactivate()

    clear()
    ask()
    check(lengths, [0, 0, 0, 0, 8, 10])


def test_appended_by_many():
    x = ti.field(ti.i32)
    block = ti.root.dynamic(ti.i, 4096)
    block.place(x)

    @ti.kernel
    def fill():
        for i in range(1000):
            if i % 3 == 0:
                ti.append(block, [], i)

    @ti.kernel
    def count() -> ti.i32:
        return ti.length(block, [])

    fill()
    assert count() == 334
    assert sorted(x.to_numpy()[:334]) == list(range(0, 1000, 3))


def test_append_returns_the_index():
    x = ti.field(ti.f32)
    block = ti.root.dense(ti.i, 2).dynamic(ti.j, 8)
    block.place(x)
    places = ti.field(ti.i32, shape=4)

    @ti.kernel
    def fill():
        ti.loop_config(serialize=True)
        for k in range(4):
            places[k] = ti.append(block, [k % 2], 1.5 + k)

    fill()
    check(places, [0, 0, 1, 1])
    check(x.to_numpy()[:, :2], [[1.5, 3.5], [2.5, 4.5]])


# --- whole contents ------------------------------------------------------------------------------


def test_filling_and_taking_over_is_of_active_elements():
    x = ti.field(ti.f32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 2).place(x)
    x[5] = 1.0
    x.fill(3.0)
    check(x, [0, 0, 0, 0, 3, 3, 0, 0])
    x.from_numpy(np.arange(8, dtype=np.float32))
    check(x, [0, 0, 0, 0, 4, 5, 0, 0])


# --- whole programs ------------------------------------------------------------------------------


def test_particles_in_lists_of_cells():
    """Neighbours within a radius, found by lists of a grid, are those of all pairs."""
    n, cells = 60, 5
    rng = np.random.default_rng(3)
    where = rng.random((n, 2)).astype(np.float32)
    x = ti.Vector.field(2, ti.f32, shape=n)
    x.from_numpy(where)
    ids, found = ti.field(ti.i32), ti.field(ti.i32, shape=n)
    block = ti.root.dense(ti.ij, cells).dynamic(ti.k, n)
    block.place(ids)

    @ti.kernel
    def insert():
        for p in x:
            c = ti.cast(x[p] * cells, ti.i32)
            ti.append(block, [c[0], c[1]], p)

    @ti.kernel
    def neighbours():
        for p in x:
            c = ti.cast(x[p] * cells, ti.i32)
            for i, j in ti.ndrange((-1, 2), (-1, 2)):
                a, b = c[0] + i, c[1] + j
                if 0 <= a < cells and 0 <= b < cells:
                    for k in range(ti.length(block, [a, b])):
                        q = ids[a, b, k]
                        if q != p and (x[p] - x[q]).norm() < 1.0 / cells:
                            found[p] += 1

    insert()
    neighbours()
    distance = np.linalg.norm(where[:, None] - where[None], axis=-1)
    check(found, ((distance < 1.0 / cells).sum(1) - 1).tolist())


def test_life_on_a_bitmask():
    n = 32
    state, sums = ti.field(ti.i32), ti.field(ti.i32)
    block = ti.root.pointer(ti.ij, n // 8).bitmasked(ti.ij, 8)
    block.place(state)
    ti.root.pointer(ti.ij, n // 8).bitmasked(ti.ij, 8).place(sums)

    @ti.kernel
    def count():
        for i, j in state:
            for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                if ti.static(a != 0 or b != 0):
                    sums[i + a, j + b] += 1

    @ti.kernel
    def prune():
        for i, j in state:
            if not 2 <= sums[i, j] <= 3:
                ti.deactivate(block, [i, j])

    @ti.kernel
    def grow():
        for i, j in sums:
            if sums[i, j] == 3:
                state[i, j] = 1

    cells = [(10, 11), (11, 12), (12, 10), (12, 11), (12, 12)]  # a glider
    for i, j in cells:
        state[i, j] = 1
    for _ in range(8):
        count()
        prune()
        grow()
        sums.parent(2).deactivate_all()
    assert indices_of(state)() == [(i + 2, j + 2) for i, j in cells]


def test_gradients_go_through_active_elements():
    x, y = ti.field(ti.f32, needs_grad=True), ti.field(ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, shape=(), needs_grad=True)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(x, x.grad)
    ti.root.pointer(ti.i, 8).dense(ti.i, 4).place(y, y.grad)

    @ti.kernel
    def shifted():
        for i in x:
            y[i + 1] += x[i] * x[i]

    @ti.kernel
    def total():
        for i in y:
            loss[None] += 2.0 * y[i]

    x[3], x[17] = 2.0, 3.0
    with ti.ad.Tape(loss):
        shifted()
        total()
    check(loss, 26.0)
    want = np.zeros(32)
    want[[3, 17]] = 8.0, 12.0
    check(x.grad, want.tolist())


def test_a_list_of_structs():
    Particle = ti.types.struct(x=ti.types.vector(2, ti.f32), kind=ti.i32)
    found = Particle.field()
    ti.root.dense(ti.i, 2).dynamic(ti.j, 8).place(found)

    @ti.kernel
    def fill():
        for k in range(6):
            found[k % 2].append(Particle(x=[k, 2 * k], kind=k))

    @ti.kernel
    def total() -> ti.f32:
        s = 0.0
        for i, j in found:
            s += found[i, j].x.sum() + 100 * found[i, j].kind
        return s

    fill()
    check(total(), 15 * 3.0 + 1500.0)
    assert sorted(found.kind.to_numpy()[:, :3].flatten().tolist()) == list(range(6))
