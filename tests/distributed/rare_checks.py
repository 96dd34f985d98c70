"""Checks of rare uses, as in `checks`: three axes, gradients by hand, threads, operators."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from checks import TIMEOUT, raises, start  # noqa: F401

import vkchi as ti
from vkchi.runtime import current_runtime

dist = ti.distributed
wrong = ti.TaichiRuntimeTypeError
error = ti.ad.GradientError


def group_sum(number: float) -> float:
    return sum(dist.group.current_group().share("test", number))


def own_slices(grid: Any) -> tuple[slice, ...]:
    return tuple(slice(*ends) for ends in grid.owned.bounds)


class Whole:
    """A grid on one device: whole fields, whose halos a kernel fills."""

    def __init__(self, shape: tuple[int, ...], halo: int, periodic: tuple[bool, ...]) -> None:
        self.owned = ti.ndrange(*((0, n) for n in shape))
        self.halo, axes = halo, len(shape)
        self.block, self.origin = tuple(n + 2 * halo for n in shape), (-halo,) * axes
        block = ti.ndrange(*((-halo, n + halo) for n in shape))

        @ti.kernel
        def fill(x: ti.template()):
            for at in ti.grouped(block):
                source, is_halo, is_inside = at, False, True
                for k in ti.static(range(axes)):
                    if not 0 <= at[k] < shape[k]:
                        is_halo = True
                        if ti.static(periodic[k]):
                            source[k] = (at[k] + shape[k]) % shape[k]
                        else:
                            is_inside = False
                if is_halo and is_inside:
                    x[at] = x[source]

        self.fill = fill

    def field(self, dtype: Any, **options: Any) -> Any:
        return ti.field(dtype, self.block, offset=self.origin, **options)

    def exchange(self, *fields: Any) -> None:
        for x in fields:
            self.fill(x)

    def scatter(self, values: Any, x: Any) -> None:
        pads = [(self.halo, self.halo)] * len(self.block) + [(0, 0)] * len(x.element_shape)
        x.from_numpy(np.pad(values, pads).astype(np.float32))


def simulate(grid: Any, h: int, values: Any) -> Any:
    """Loss and gradients of two nonlinear steps of three fields on three axes."""
    u, w = (grid.field(ti.f32, needs_grad=True) for _ in range(2))
    a, b = (grid.field(ti.types.vector(2, ti.f32), needs_grad=True) for _ in range(2))
    m = grid.field(ti.types.matrix(2, 2, ti.f32), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    owned = grid.owned

    @ti.kernel
    def step(x: ti.template(), v: ti.template(), y: ti.template(), z: ti.template()):
        for i, j, k in owned:
            corners = x[i - h, j - h, k - h] * x[i + h, j + h, k + h]
            edges = x[i - 1, j + h, k] + v[i, j - h, k + 1][0] * v[i + h, j, k - 1][1]
            faces = m[i + 1, j, k][0, 1] * x[i, j - 1, k] + m[i, j, k - h][1, 0]
            y[i, j, k] = 0.5 * ti.sin(x[i, j, k] + 0.3 * corners) + 0.2 * edges * faces
            z[i, j, k] = v[i - h, j + 1, k - 1] * 0.5 + [0.1 * x[i, j, k], edges * 0.1]

    @ti.kernel
    def add_loss(x: ti.template(), v: ti.template()):
        for i, j, k in owned:
            loss[None] += (1 + i + 0.1 * k) * x[i, j, k] ** 2 + v[i, j, k].dot(v[i, j, k]) * 0.1

    for field, given in zip((u, a, m), values):
        grid.scatter(given, field)
    with ti.ad.Tape(loss):
        for x, v, y, z in ((u, a, w, b), (w, b, u, a)):
            grid.exchange(x, v, m)
            step(x, v, y, z)
        add_loss(u, a)
    return loss[None], [x.grad.to_numpy() for x in (u, a, m)]


def gradients_on_three_axes(_: Path) -> None:
    """Edges and corners of wide halos, for scalars, vectors and matrices in one message."""
    shape, halo, periodic = (5, 6, 8), 2, (True, False, True)
    rng = np.random.default_rng(8)
    values = [rng.random(shape + inner, np.float32) for inner in ((), (2,), (2, 2))]
    total, expected = simulate(Whole(shape, halo, periodic), halo, values)
    grid = dist.Grid(shape, halo, periodic)
    found_loss, found = simulate(grid, halo, values)
    assert np.isclose(group_sum(found_loss), total, rtol=1e-5)
    inside = tuple(slice(halo, n + halo) for n in shape)
    mine = tuple(slice(halo, n - halo) for n in found[0].shape)
    for x, want in zip(found, expected):
        far = np.abs(x[mine] - want[inside][own_slices(grid)]).max() / np.abs(want).max()
        assert far < 1e-5, far


def kernels_write_halos(_: Path) -> None:
    """Walls that mirror values, written between exchanges, in a loop in a tape."""
    n, m = shape = (9, 7)
    values = np.random.default_rng(2).random(shape, np.float32)

    def run(grid: Any) -> Any:
        x, y = (grid.field(ti.f32, needs_grad=True) for _ in range(2))
        loss, owned = ti.field(ti.f32, (), needs_grad=True), grid.owned

        @ti.kernel
        def mirror(u: ti.template()):
            for i, j in owned:
                if i == 0:
                    u[-1, j] = u[0, j] * u[0, j]
                if i == n - 1:
                    u[n, j] = u[n - 1, j] * 0.5
                if j == 0:
                    u[i, -1] = u[i, 0]
                if j == m - 1:
                    u[i, m] = ti.sin(u[i, m - 1])

        @ti.kernel
        def step(u: ti.template(), v: ti.template()):
            for i, j in owned:
                v[i, j] = u[i, j] * u[i - 1, j] + u[i + 1, j] * 0.3 + u[i, j - 1] * u[i, j + 1]

        @ti.kernel
        def add_loss(u: ti.template()):
            for i, j in owned:
                loss[None] += u[i, j] ** 2 * (i + 1)

        grid.scatter(values, x)
        with ti.ad.Tape(loss):
            for u, v in ((x, y), (y, x), (x, y)):
                mirror(u)
                grid.exchange(u)
                step(u, v)
            add_loss(y)
        return loss[None], x.grad.to_numpy()[1:-1, 1:-1]

    total, want = run(Whole(shape, 1, (False, False)))
    grid = dist.Grid(shape)
    loss, found = run(grid)
    assert np.isclose(group_sum(loss), total, rtol=1e-5)
    assert np.abs(found - want[own_slices(grid)]).max() / np.abs(want).max() < 1e-5


def gradients_by_hand(_: Path) -> None:
    """`kernel.grad` with `grid.reduce` of gradients, the adjoint of an exchange."""
    shape, rng = (8, 9), np.random.default_rng(6)
    grid = dist.Grid(shape, 1, True)
    u, y = (grid.field(ti.f32, needs_grad=True) for _ in range(2))

    @ti.kernel
    def step():
        for i, j in grid.owned:
            y[i, j] = u[i - 1, j + 1] * u[i + 1, j]

    values, slopes = rng.random(shape, np.float32), rng.random(shape, np.float32)
    grid.scatter(values, u)
    step()
    grid.scatter(slopes, y.grad)
    step.grad()
    grid.reduce(u.grad)
    one = np.roll(slopes, (1, 0), (0, 1)) * np.roll(values, (2, -1), (0, 1))
    other = np.roll(slopes, (-1, 1), (0, 1)) * np.roll(values, (-2, 1), (0, 1))
    found = u.grad.to_numpy()
    assert np.allclose(found[1:-1, 1:-1], (one + other)[own_slices(grid)], rtol=1e-5)
    assert not found[0].any() and not found[:, -1].any()


def exchanges_after_a_tape_keep_its_values(_: Path) -> None:
    """A later `backward` uses the halos of the recording."""
    shape = (8, 9)
    values = np.random.default_rng(6).random(shape, np.float32)
    grid = dist.Grid(shape, 1, True)
    u, y = (grid.field(ti.f32, needs_grad=True) for _ in range(2))

    @ti.kernel
    def step():
        for i, j in grid.owned:
            y[i, j] = ti.exp(u[i - 1, j + 1])

    @ti.kernel
    def change():
        for i, j in grid.owned:
            u[i, j] = 5.0

    def exchange_others() -> None:
        change()
        grid.exchange(u)

    seeds = np.pad(np.ones([n - 2 for n in y.shape], np.float32), 1)
    for act in (exchange_others, lambda: grid.reduce(u), lambda: grid.scatter(values * 0, u)):
        grid.scatter(values, u)
        with ti.ad.Tape() as tape:
            grid.exchange(u)
            step()
        act()
        u.grad.fill(0)
        tape.backward({y: seeds})
        found = u.grad.to_numpy()[1:-1, 1:-1]
        assert np.allclose(found, np.exp(values)[own_slices(grid)], rtol=1e-5)


def one_rank_has_the_loss(_: Path) -> None:
    """The others launch no kernel that uses the field; with `validation`, and by Hessians."""
    grid = dist.Grid((8, 6), 1, True)
    values = np.random.default_rng(1).random((8, 6), np.float32)
    u, v = (grid.field(ti.f32, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    is_here = all(a <= k < b for k, (a, b) in zip((2, 5), grid.owned.bounds))

    @ti.kernel
    def step():
        for i, j in grid.owned:
            v[i, j] = u[i - 1, j] * u[i, j + 1]

    @ti.kernel
    def sense():
        loss[None] += ti.exp(v[2, 5])

    def run() -> None:
        grid.exchange(u)
        step()
        if is_here:
            sense()

    a, b = values[1, 5], values[2, 0]
    want = np.zeros((8, 6))
    want[1, 5], want[2, 0] = b * np.exp(a * b), a * np.exp(a * b)
    for validation in (False, True):
        grid.scatter(values, u)
        with ti.ad.Tape(loss, validation=validation):
            run()
        found = u.grad.to_numpy()[1:-1, 1:-1]
        assert np.allclose(found, want[own_slices(grid)], rtol=1e-4), validation
    raises(error, lambda: ti.ad.hvp(run, loss, u, np.ones(u.shape, np.float32)), "hvp")


def operators_use_grids(_: Path) -> None:
    """An operator of torch whose kernels work on fields of a grid."""
    import torch

    grid = dist.Grid((8, 6), 1, True)
    u, v = (grid.field(ti.f32, needs_grad=True) for _ in range(2))
    (i0, i1), (j0, j1) = grid.owned.bounds

    @ti.kernel
    def read(x: ti.types.ndarray()):
        for i, j in grid.owned:
            u[i, j] = x[i - i0, j - j0]

    @ti.kernel
    def step():
        for i, j in grid.owned:
            v[i, j] = u[i - 1, j] * u[i, j + 1]

    @ti.kernel
    def write(y: ti.types.ndarray()):
        for i, j in grid.owned:
            y[i - i0, j - j0] = v[i, j]

    @ti.torch_op(outputs={"y": "x"})
    def operator(x, y):
        read(x)
        grid.exchange(u)
        step()
        write(y)

    rng = np.random.default_rng(3)
    whole = torch.from_numpy(rng.random((8, 6), np.float32)).requires_grad_()
    (torch.roll(whole, 1, 0) * torch.roll(whole, -1, 1)).square().sum().backward()
    mine = whole.detach()[i0:i1, j0:j1].clone().requires_grad_()
    operator(mine).square().sum().backward()
    assert torch.allclose(mine.grad, whole.grad[i0:i1, j0:j1], rtol=1e-5)


def reductions_of_all_types(_: Path) -> None:
    grid, rng = dist.Grid((7, 5)), np.random.default_rng(0)
    caps = current_runtime().device.caps
    for name in "u1 u8 i8 u16 i16 u32 i32 u64 i64 f16 f32 f64".split():
        if name not in ("u1", "i32", "u32", "f32") and not caps.can_store(name):
            continue
        u = grid.field(getattr(ti, name))
        kind = u.to_numpy().dtype
        if kind.kind in "iu":
            info = np.iinfo(kind)
            whole = rng.integers(info.min, info.max, (7, 5), dtype=kind, endpoint=True)
            whole[3, 2], whole[6, 4] = info.max, info.min
        else:
            whole = (rng.random((7, 5)) - 0.5).round(2 if kind.kind == "f" else 0).astype(kind)
        u.fill(1)
        grid.scatter(whole if dist.rank() == 0 else None, u)
        back = grid.gather(u)
        assert back is None or (back == whole).all(), name
        assert grid.min(u) == whole.min() and grid.max(u) == whole.max(), name
        if kind.kind == "f":
            assert np.isclose(grid.sum(u), whole.astype(float).sum(), atol=1e-12), name
            continue
        wide = np.uint64 if kind.kind == "u" else np.int64
        for found, power in ((grid.sum(u), 1), (grid.dot(u, u), 2)):
            total = sum(int(x) ** power for x in whole.flat) % 2**64
            assert found == int(np.array(total, np.uint64).astype(wide)), (name, power)


def nested_structs(_: Path) -> None:
    inner = ti.types.struct(m=ti.types.matrix(2, 2, ti.f32), k=ti.i32)
    grid = dist.Grid((6, 5, 4), 1, (True, False, True))
    s = grid.field(ti.types.struct(a=ti.f32, b=inner))
    full = []
    for x in (s.a, s.b.m, s.b.k):
        size = 120 * int(np.prod(x.element_shape))
        x.fill(-1)
        grid.scatter(np.arange(size).reshape((6, 5, 4) + x.element_shape), x)
        full.append(x.to_numpy())
        values = np.where(np.zeros_like(full[-1]), 0, -1)
        values[1:-1, 1:-1, 1:-1] = full[-1][1:-1, 1:-1, 1:-1]
        x.from_numpy(values)
    grid.exchange(s)
    for x, want in zip((s.a, s.b.m, s.b.k), full):
        assert (x.to_numpy() == want).all()
    grid.exchange(s.b, s.a)


def deleted_fields_are_freed(folder: Path) -> None:
    grid, refs = dist.Grid((6, 7)), []
    for _ in range(3):
        u = grid.field(ti.f32, name="u")
        grid.exchange(u)
        refs.append(weakref.ref(u))
        del u
    gc.collect()
    assert not any(ref() for ref in refs)
    u = grid.field(ti.f32, name="u")
    assert not grid._plans, "plans have views of memory"
    grid.save(folder / "freed")
    pending = grid.exchange(u, wait=False)
    del u
    pending.wait()


def other_threads_and_runtimes(_: Path) -> None:
    grid = dist.Grid((8, 8), 1, True)
    u, p = grid.field(ti.i32), dist.Particles(grid, 10, x=ti.math.vec2)
    found: list[BaseException] = []

    def catch(act: Any) -> None:
        try:
            act()
        except BaseException as e:
            found.append(e)

    acts = [
        lambda: grid.exchange(u), lambda: grid.sum(u), lambda: grid.gather(u), dist.barrier,
        lambda: grid.scatter(np.zeros((8, 8)), u), p.migrate, lambda: grid.field(ti.f32),
    ]  # fmt: skip
    for act in acts:
        thread = threading.Thread(target=catch, args=(act,))
        thread.start()
        thread.join()
    assert [type(e).__name__ for e in found] == ["KernelRuntimeError"] * len(acts), found
    assert all("in the thread that called" in str(e) for e in found)
    pending = grid.exchange(u, wait=False)
    with ti.ad.Tape():
        raises(wrong, lambda: grid.exchange(u), "wait()")
    thread = threading.Thread(target=pending.wait)
    thread.start()
    thread.join()
    pending = grid.exchange(u, wait=False)
    dist.init(timeout=TIMEOUT)
    raises(ti.TaichiRuntimeError, pending.wait, "init()")
    grid = dist.Grid((8, 8), 1, True)
    u = grid.field(ti.i32)
    u.fill(2)
    grid.exchange(u)
    assert grid.sum(u) == 128


RARE = [
    "start", "gradients_on_three_axes", "kernels_write_halos", "gradients_by_hand",
    "exchanges_after_a_tape_keep_its_values", "one_rank_has_the_loss", "operators_use_grids",
    "reductions_of_all_types", "nested_structs", "deleted_fields_are_freed",
    "other_threads_and_runtimes",
]  # fmt: skip
