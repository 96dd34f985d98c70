"""Checks that every rank of a group runs, in the same order; `groups` starts them."""

from __future__ import annotations

import os
import re
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import vkchi as ti
from vkchi.distributed import exchange as exchange_module
from vkchi.runtime import current_runtime

dist = ti.distributed
TIMEOUT = 60.0


def start(_: Path) -> None:
    dist.init(timeout=TIMEOUT, random_seed=7)
    assert 0 <= dist.rank() < dist.size()


def raises(kind: Any, act: Any, *words: str) -> None:
    try:
        act()
    except kind as e:
        assert all(word in str(e) for word in words), str(e)
        assert not hasattr(e, "place_note") or e.span is not None, "the user's line"
    else:
        raise AssertionError(f"no {kind.__name__}")


def reference(shape: tuple[int, ...], periodic: tuple[bool, ...], halo: int) -> Any:
    """Global numbers with a halo; -1 outside a domain that is not periodic."""
    whole = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) % 120
    for axis, wraps in enumerate(periodic):
        pad = [(halo, halo) if k == axis else (0, 0) for k in range(len(shape))]
        if wraps:
            whole = np.pad(whole, pad, mode="wrap")
        else:
            whole = np.pad(whole, pad, constant_values=-1)
    return whole


def boxes_of(grid: Any) -> tuple[slice, ...]:
    """The block with its halo, in a reference array."""
    return tuple(slice(a, b + 2 * grid.halo) for a, b in grid.owned.bounds)


GRIDS = [
    ((17,), 1, True), ((17,), 2, False), ((30, 22), 1, False), ((30, 22), 1, True),
    ((19, 13), 1, (True, False)), ((19, 21), 2, (False, True)), ((9, 8, 10), 1, True),
    ((9, 8, 10), 1, (False, True, False)), ((8, 24), 0, True),
]  # fmt: skip


def exchange_fills_halos(_: Path) -> None:
    """Of all shapes, with several types in one message, by host copies and by kernels."""
    vec3 = ti.types.vector(3, ti.f32)
    caps = current_runtime().device.caps
    narrow = [t for t in (ti.u8, ti.i16) if caps.can_store(str(t))]
    by_hand = (ti.f32, vec3, *narrow, ti.i32)
    rows = [(*one, by_hand) for one in GRIDS]
    if dist.size() == 2:  # by kernels, which compile slowly
        rows += [(*GRIDS[4], (ti.f32, vec3)), (*GRIDS[6], (ti.i32,))]
    for k, (shape, halo, periodic, types) in enumerate(rows):
        grid = dist.Grid(shape, halo, periodic)
        by_kernels = k >= len(GRIDS)
        expected = reference(shape, grid.periodic, halo)[boxes_of(grid)]
        fields = [grid.field(t) for t in types]
        inner = tuple(slice(halo, n - halo) for n in expected.shape)
        view = exchange_module.host_view
        for u in fields:
            values = np.full(expected.shape, -1, np.int64)
            values[inner] = expected[inner]
            values = values.astype(u.dtype.dtype)
            extra = (..., None) if u.element_shape else (...,)
            u.from_numpy(np.broadcast_to(values[extra], u.shape + u.element_shape))
        try:
            if by_kernels:
                exchange_module.host_view = lambda x: None
            grid.exchange(*fields)
        finally:
            exchange_module.host_view = view
        for u in fields:
            found = u.to_numpy()
            want = expected.astype(u.dtype.dtype)
            want = want if not u.element_shape else np.repeat(want[..., None], 3, -1)
            # Corners where one axis is outside of the domain keep what they had.
            assert (found == want).all(), (shape, halo, periodic, u.dtype, by_kernels)


def all_types_are_exchanged(_: Path) -> None:
    """Also those that memory or numpy hold otherwise, and matrices of arrays."""
    if dist.size() != 2:
        return  # for time
    grid = dist.Grid((7, 6), 1, True)
    rows = (np.arange(grid.owned.bounds[0][0] - 1, grid.owned.bounds[0][1] + 1)) % 7
    columns = (np.arange(grid.owned.bounds[1][0] - 1, grid.owned.bounds[1][1] + 1)) % 6
    count = 0
    for name in "u1 u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64".split():
        t = getattr(ti, name, None)
        if t is None:
            continue
        for elem in (t, ti.types.vector(3, t), ti.types.matrix(2, 2, t)):
            for layout in (ti.Layout.AOS, ti.Layout.SOA):
                try:
                    u = grid.field(elem, layout=layout)
                except ti.DeviceError:
                    continue
                shape = (7, 6, *u.element_shape)
                whole = np.arange(np.prod(shape)).reshape(shape) % (2 if name == "u1" else 100)
                u.from_numpy((whole[np.ix_(rows, columns)] * 0).astype(u.to_numpy().dtype))
                values = u.to_numpy()
                values[1:-1, 1:-1] = whole[np.ix_(rows[1:-1], columns[1:-1])]
                u.from_numpy(values)
                grid.exchange(u)
                found = u.to_numpy()
                assert (found == whole[np.ix_(rows, columns)]).all(), (name, elem, layout)
                back = grid.gather(u)
                assert back is None or (back == whole).all(), (name, elem, layout)
                assert np.allclose(grid.sum(u), whole.sum((0, 1))), (name, elem, layout)
                count += 1
    assert count >= 18


def ranges_cover_cells_once(_: Path) -> None:
    for shape, halo, periodic in GRIDS:
        grid = dist.Grid(shape, halo, periodic)
        count = np.zeros(shape, int)
        for part in (grid.interior, *grid.border):
            count[tuple(slice(a, b) for a, b in part.bounds)] += 1
        own = np.zeros(shape, int)
        own[tuple(slice(a, b) for a, b in grid.owned.bounds)] = 1
        assert (count == own).all()


def wave_equals_numpy(_: Path) -> None:
    """The same bits as numpy on the whole grid, with and without overlap."""
    for periodic, overlaps in ((False, False), (True, True)):
        grid = dist.Grid((30, 22), 1, periodic)
        u, v, w = (grid.field(ti.f32) for _ in range(3))
        owned, interior, border = grid.owned, grid.interior, grid.border

        @ti.func
        def update(a: ti.template(), b: ti.template(), c: ti.template(), i, j):
            around = (a[i - 1, j] + a[i + 1, j]) + (a[i, j - 1] + a[i, j + 1])
            corners = (a[i - 1, j - 1] + a[i + 1, j + 1]) + (a[i - 1, j + 1] + a[i + 1, j - 1])
            near = around + corners
            c[i, j] = near * 0.25 - b[i, j]

        @ti.kernel
        def step(a: ti.template(), b: ti.template(), c: ti.template()):
            for i, j in owned:
                update(a, b, c, i, j)

        @ti.kernel
        def step_interior(a: ti.template(), b: ti.template(), c: ti.template()):
            for i, j in interior:
                update(a, b, c, i, j)

        @ti.kernel
        def step_border(a: ti.template(), b: ti.template(), c: ti.template()):
            for box in ti.static(border):
                for i, j in box:
                    update(a, b, c, i, j)

        start_values = np.random.default_rng(1).random((30, 22), np.float32)
        grid.scatter(start_values if dist.rank() == 0 else None, u)
        now, before = start_values, np.zeros_like(start_values)
        for _ in range(12):
            if overlaps:
                pending = grid.exchange(u, wait=False)
                step_interior(u, v, w)
                pending.wait()
                step_border(u, v, w)
            else:
                grid.exchange(u)
                step(u, v, w)
            u, v, w = w, u, v
            p = np.pad(now, 1, mode="wrap" if periodic else "constant")
            around = (p[:-2, 1:-1] + p[2:, 1:-1]) + (p[1:-1, :-2] + p[1:-1, 2:])
            corners = (p[:-2, :-2] + p[2:, 2:]) + (p[:-2, 2:] + p[2:, :-2])
            quarter = np.float32(0.25)
            now, before = (around + corners) * quarter - before, now
        whole = grid.gather(u)
        assert (whole is None) == (dist.rank() > 0)
        if whole is not None:
            assert whole.dtype == np.float32 and (whole == now).all()


def arrays_scatter_and_gather(_: Path) -> None:
    mat = ti.types.matrix(2, 3, ti.f32)
    for periodic in (False, True):
        grid = dist.Grid((11, 9), 1, periodic)
        for t in (ti.f32, ti.i32, mat):
            u = grid.field(t)
            u.fill(-1)
            size = 99 * int(np.prod(u.element_shape))
            whole = np.arange(size).reshape((11, 9) + u.element_shape) % 90
            grid.scatter(whole if dist.rank() == 0 else None, u)
            one = u.to_numpy()
            u.fill(-1)
            grid.scatter(whole, u)
            assert (u.to_numpy() == one).all()
            u_halo = grid.field(t)
            u_halo.fill(-1)
            inner = tuple(slice(1, n - 1) for n in u.shape)
            values = u_halo.to_numpy()
            values[inner] = one[inner]
            u_halo.from_numpy(values)
            grid.exchange(u_halo)
            assert (u_halo.to_numpy() == one).all(), "scatter fills the halo as exchange does"
            back = grid.gather(u)
            assert back is None if dist.rank() else (back == whole).all()
    raises(ti.TaichiRuntimeTypeError, lambda: grid.scatter(np.zeros((3, 3)), u), "shape")
    wrong = np.zeros((3, 3)) if dist.rank() == 0 else None
    raises(ti.TaichiRuntimeTypeError, lambda: grid.scatter(wrong, u), "shape")
    no_numbers = "text" if dist.rank() == 0 else None
    word = "'text'" if dist.rank() == 0 else "rank 0"
    raises(ti.TaichiRuntimeTypeError, lambda: grid.scatter(no_numbers, u), word)
    fractions = np.full((11, 9), 1.5)
    whole_numbers = grid.field(ti.i32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = fractions if dist.rank() == 0 else None
        kind = Warning if dist.rank() == 0 else ti.TaichiRuntimeTypeError
        raises(kind, lambda: grid.scatter(given, whole_numbers), "fraction")
    nobody = lambda: grid.scatter(None, u)  # noqa: E731
    raises(ti.DistributedError, nobody, "rank 0")
    if dist.size() > 2:
        some = whole if dist.rank() < 2 else None
        raises(ti.DistributedError, lambda: grid.scatter(some, u), "all ranks")


def reductions_agree(_: Path) -> None:
    grid = dist.Grid((21, 18))
    rng = np.random.default_rng(3)
    a, b = rng.random((21, 18), np.float32), rng.random((21, 18, 2), np.float32) - 0.5
    n = rng.integers(-(2**31), 2**31, (21, 18))
    u, v, k = grid.field(ti.f32), grid.field(ti.types.vector(2, ti.f32)), grid.field(ti.i32)
    for x, values in ((u, a), (v, b), (k, n)):
        x.fill(1000)  # halos do not count
        grid.scatter(values, x)
    assert np.isclose(grid.sum(u), a.astype(float).sum(), rtol=1e-14)
    assert np.allclose(grid.sum(v), b.astype(float).sum((0, 1)), rtol=1e-13)
    assert grid.sum(k) == n.sum() and isinstance(grid.sum(k), int)
    assert (
        grid.min(u) == a.min() and grid.max(k) == n.max() and (grid.max(v) == b.max((0, 1))).all()
    )
    assert np.isclose(grid.dot(v, v), (b.astype(float) ** 2).sum(), rtol=1e-13)
    assert np.isclose(grid.dot(u, u), (a.astype(float) ** 2).sum(), rtol=1e-13)
    if current_runtime().device.caps.can_store("u64"):
        large, one = grid.field(ti.u64), grid.field(ti.i32)
        large.fill(2**53 + 1)
        one.fill(1)
        assert grid.dot(large, one) == 21 * 18 * (2**53 + 1)  # no sum of floats
    last = tuple(e - 1 for _, e in grid.owned.bounds)
    if dist.rank() == dist.size() - 1:
        u[last] = float("nan")
    assert np.isnan(grid.max(u)) and np.isnan(grid.min(u)) and np.isnan(grid.sum(u))


def wrong_arguments_are_refused(_: Path) -> None:
    size = dist.size()
    error = ti.TaichiRuntimeTypeError
    raises(error, lambda: dist.Grid((2, 2, 2, 2)), "1 to 3")
    raises(error, lambda: dist.Grid((0, 4)), "positive")
    raises(error, lambda: dist.Grid((4.5, 4)), "integers")
    raises(error, lambda: dist.Grid((8, 8), ranks=(size, 2)), "group has")
    raises(error, lambda: dist.Grid((size, 8), 2, True, ranks=(size, 1)), "wider")
    raises(error, lambda: dist.Grid((8, 8), halo=-1), "halo")
    for periodic in ((True,), 1, "yes", (1, 0)):
        raises(error, lambda p=periodic: dist.Grid((8, 8), periodic=p), "periodic")
    assert dist.Grid((8, 8), 1, np.True_).periodic == (True, True)
    assert dist.Grid(np.array([8, 9]), np.int64(1)).shape == (8, 9)
    if size > 1:
        raises(error, lambda: dist.Grid(size - 1), "fewer processes")
        raises(error, lambda: dist.Grid((size - 1, 99), ranks=(size, 1)), "at most")
    grid, other = dist.Grid((12, 12)), dist.Grid((16, 14))
    u = grid.field(ti.f32)
    raises(error, lambda: grid.exchange(), "no field")
    raises(error, lambda: grid.exchange(u, u), "twice")
    raises(error, lambda: other.exchange(u), "offset")
    raises(error, lambda: grid.exchange(ti.field(ti.f32, (12, 12))), "offset")
    raises(error, lambda: grid.exchange(u.to_numpy()), "takes fields")
    mine = ti.field(ti.f32, u.shape, offset=u.origin)
    grid.exchange(mine, u)
    pending = grid.exchange(u, wait=False)
    raises(error, lambda: grid.exchange(mine, u), "wait()")
    raises(error, lambda: grid.sum(u), "wait()")
    second = grid.exchange(mine, wait=False)
    second.wait()
    pending.wait()
    pending.wait()
    grid.exchange(u)


def structs_are_exchanged_by_member(_: Path) -> None:
    grid = dist.Grid((10, 9), 1, True)
    cell = ti.types.struct(p=ti.f32, v=ti.types.vector(2, ti.f32))
    s, u = grid.field(cell), grid.field(ti.f32)
    whole = np.arange(90, dtype=np.float32).reshape(10, 9)
    grid.scatter(whole, u)
    full = u.to_numpy()
    values = np.zeros_like(full)
    values[1:-1, 1:-1] = full[1:-1, 1:-1]
    s.p.from_numpy(values)
    s.v.from_numpy(np.stack([values, -values], -1))
    grid.exchange(s)
    assert (s.p.to_numpy() == full).all() and (s.v.to_numpy()[..., 1] == -full).all()
    raises(ti.TaichiRuntimeTypeError, lambda: grid.gather(s), "member")


def disagreement_is_an_error_on_all_ranks(_: Path) -> None:
    if dist.size() == 1:
        return
    rank = dist.rank()
    raises(ti.DistributedError, lambda: dist.Grid((16 + rank, 16)), "shape=(16, 16) on rank 0")
    grid = dist.Grid((16, 16))
    types = ti.f32 if rank else ti.i32
    raises(ti.DistributedError, lambda: grid.field(types), "dtype", "rank 1")
    grid.exchange(grid.field(ti.f32))  # the group can still be used


def recordings_are_refused(_: Path) -> None:
    grid = dist.Grid((8, 9))
    u = grid.field(ti.f32, needs_grad=True)

    def inside_record() -> None:
        with ti.record():
            grid.exchange(u)

    raises(ti.TaichiRuntimeError, inside_record, "between two exchanges")
    pending = grid.exchange(u, wait=False)
    for recording in (ti.ad.Tape(), ti.record()):
        with recording:
            raises(ti.ad.GradientError, pending.wait, "before it")
    pending.wait()
    with ti.ad.Tape():
        raises(ti.ad.GradientError, lambda: grid.scatter(None, u), "outside of the tape")


def whole_gradient(values: Any, weights: Any, steps: int, wraps: bool) -> tuple[float, Any]:
    """Loss and gradient of `steps` nonlinear steps on one device, in plain fields."""
    n, m = values.shape
    loss = ti.field(ti.f32, (), needs_grad=True)
    weight = ti.field(ti.f32, (n, m))
    weight.from_numpy(weights)

    @ti.func
    def at(x: ti.template(), i, j):
        v = 0.0
        if ti.static(wraps):
            v = x[(i + n) % n, (j + m) % m]
        elif 0 <= i < n and 0 <= j < m:
            v = x[i, j]
        return v

    @ti.kernel
    def step(x: ti.template(), y: ti.template()):
        for i, j in y:
            near = at(x, i - 1, j - 1) * 0.3 + at(x, i + 1, j) * at(x, i, j + 1)
            y[i, j] = 0.6 * ti.sin(x[i, j] + near) + at(x, i + 1, j - 1) ** 2 * 0.1

    @ti.kernel
    def add_loss(x: ti.template()):
        for i, j in x:
            loss[None] += weight[i, j] * x[i, j] ** 2

    arrays = [ti.field(ti.f32, (n, m), needs_grad=True) for _ in range(steps + 1)]
    arrays[0].from_numpy(values)
    with ti.ad.Tape(loss):
        for x, y in zip(arrays, arrays[1:]):
            step(x, y)
        add_loss(arrays[-1])
    return loss[None], arrays[0].grad.to_numpy()


def gradients_equal_those_of_one_device(_: Path) -> None:
    """Of nonlinear steps with corners, in periodic grids and grids with walls, without and with a
    memory budget, which differs between ranks."""
    is_large = dist.size() > 3  # no memory budgets, for time
    shape, steps = (13, 12), 3 if is_large else 8
    rng = np.random.default_rng(5)
    values, weights = rng.random(shape, np.float32), rng.random(shape, np.float32)
    for periodic in (True,) if dist.size() > 4 else (True, False):
        total, expected = whole_gradient(values, weights, steps, periodic)
        loss = ti.field(ti.f32, (), needs_grad=True)
        grid = dist.Grid(shape, 1, periodic)
        u, v = (grid.field(ti.f32, needs_grad=True) for _ in range(2))
        w, pair = grid.field(ti.f32), grid.field(ti.types.vector(2, ti.f32), needs_grad=True)
        owned = grid.owned

        @ti.kernel
        def step(x: ti.template(), y: ti.template()):
            for i, j in owned:
                near = x[i - 1, j - 1] * 0.3 + x[i + 1, j] * pair[i, j + 1][1]
                y[i, j] = 0.6 * ti.sin(x[i, j] + near) + x[i + 1, j - 1] ** 2 * 0.1

        @ti.kernel
        def split(x: ti.template()):
            for i, j in owned:
                pair[i, j] = [0.0, x[i, j]]

        @ti.kernel
        def add_loss(x: ti.template()):
            for i, j in owned:
                loss[None] += w[i, j] * x[i, j] ** 2

        def run(**options: Any) -> Any:
            for x in (u, v, pair):
                x.fill(0)
            grid.scatter(values, u)
            grid.scatter(weights, w)
            with ti.ad.Tape(loss, **options) as tape:
                x, y = u, v
                for _ in range(steps):
                    split(x)
                    grid.exchange(x, pair, w)
                    step(x, y)
                    x, y = y, x
                add_loss(x)
            return tape.report

        needed = 0
        try:
            if not is_large and periodic:
                run(memory=1)
        except ti.TaichiRuntimeError as e:
            needed = int(re.findall(r"(\d+) bytes; 1 are given", str(e))[0])
        budgets = (
            (None,)
            if not needed
            else (None, needed * (4 + dist.rank()) // 4, needed + dist.rank() % 2 * 100_000_000)
        )
        for memory in budgets:
            report = run() if memory is None else run(memory=memory)
            assert (report.repeated > 0) == (memory is not None and memory < 50_000_000), report
            group = dist.group.current_group()
            assert np.isclose(sum(group.share("test", loss[None])), total, rtol=1e-5)
            (a, b), (c, d) = owned.bounds
            found = u.grad.to_numpy()
            error = np.abs(found[1:-1, 1:-1] - expected[a:b, c:d]).max() / np.abs(expected).max()
            assert error < 3e-6, (periodic, memory, error)
            if periodic:
                edges = found[0], found[-1], found[:, 0], found[:, -1]
                assert not any(edge.any() for edge in edges), "the halos' adjoints are cleared"


def exchanges_that_tapes_do_not_record_are_errors(_: Path) -> None:
    grid = dist.Grid((9, 8), 1, True)
    u = grid.field(ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    owned = grid.owned

    @ti.kernel
    def add_loss():
        for i, j in owned:
            loss[None] += u[i + 1, j] ** 2

    @ti.ad.grad_replaced
    def replaced():
        grid.exchange(u)

    @ti.ad.grad_for(replaced)
    def gradient():
        pass

    @ti.ad.no_grad
    def skipped():
        grid.exchange(u)

    error = ti.ad.GradientError

    def taped(function):
        with ti.ad.Tape():
            function()

    for function in (replaced, skipped):
        raises(error, lambda f=function: taped(f), "grad_replaced")
    w = grid.field(ti.f32)

    @ti.kernel
    def lose():
        for i, j in owned:
            w[i, j] = u[i, j] * 2.0

    def lost():
        with ti.ad.Tape(loss):
            lose()
            grid.exchange(w)
            add_loss()

    raises(error, lost, "derivative")

    def gradients_exchanged():
        with ti.ad.Tape(loss):
            grid.exchange(u.grad)
            add_loss()

    raises(error, gradients_exchanged, "derivative")
    p, q = (ti.field(ti.f32, 1, needs_dual=True) for _ in range(2))
    with ti.ad.FwdMode(loss=q, param=p, seed=[1.0]):
        raises(error, lambda: grid.exchange(u), "forward")
    if dist.size() > 1:

        def checked():
            with ti.ad.Tape(loss, grad_check=[u]):
                grid.exchange(u)

        raises(error, checked, "grad_check")


def a_tape_without_loss_runs_backward_twice(_: Path) -> None:
    """Also after other exchanges, in debug mode; arrays of vectors and integers."""
    dist.init(timeout=TIMEOUT, debug=True)
    grid = dist.Grid((12, 9), 1, (True, False))
    u, n = grid.field(ti.types.vector(2, ti.f32), needs_grad=True), grid.field(ti.i32)
    y = ti.field(ti.f32, u.shape, offset=u.origin, needs_grad=True)
    owned = grid.owned

    @ti.kernel
    def shift():
        for i, j in owned:
            y[i, j] = u[i + 1, j][1] * n[i - 1, j]

    whole = np.arange(108, dtype=np.int32).reshape(12, 9)
    grid.scatter(whole, n)
    full = n.to_numpy()
    n.fill(0)
    n.from_numpy(np.where(np.pad(np.ones(np.array(full.shape) - 2, bool), 1), full, 0))
    with ti.ad.Tape() as tape:
        grid.exchange(u, n)
        shift()
    grid.exchange(u)
    i, j = np.meshgrid(np.arange(12), np.arange(9), indexing="ij")
    weight = (i + 10 * j).astype(np.float32)
    mine = grid.field(ti.f32)
    grid.scatter(weight, mine)
    inside = np.pad(np.ones(np.array(full.shape) - 2, bool), 1)
    for times in (1, 2):
        tape.backward({y: np.where(inside, mine.to_numpy(), 0)})
        # u[i + 1, j] has the weight of cell i, times n[i - 1, j]
        expected = np.roll(weight * np.roll(whole, 1, axis=0), 1, axis=0) * times
        (a, b), (c, d) = owned.bounds
        found = u.grad.to_numpy()
        assert np.allclose(found[1:-1, 1:-1, 1], expected[a:b, c:d])
        assert not found[..., 0].any() and not found[0].any() and not found[-1].any()


def seeds_differ(_: Path) -> None:
    grid = dist.Grid((8, 8), 0)
    u = grid.field(ti.f32)
    owned = grid.owned

    @ti.kernel
    def draw():
        for i, j in owned:
            u[i, j] = ti.random()

    draw()
    whole = grid.gather(u)
    assert whole is None or len(np.unique(whole)) > 60


def a_mesh_is_an_arrangement(_: Path) -> None:
    if dist.size() != 4:
        return
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    mesh = DeviceMesh("cpu", torch.tensor([[3, 1], [2, 0]]), mesh_dim_names=("x", "y"))
    grid = dist.Grid((8, 6), periodic=True, mesh=mesh)
    assert grid.ranks == (2, 2) and grid.position == ((1, 1), (0, 1), (1, 0), (0, 0))[dist.rank()]
    u = grid.field(ti.i32)
    whole = np.arange(48).reshape(8, 6)
    grid.scatter(whole, u)
    full = u.to_numpy()
    u.fill(0)
    grid.scatter(whole if dist.rank() == 0 else None, u)
    grid.exchange(u)
    assert (u.to_numpy() == full).all()
    back = grid.gather(u)
    assert back is None or (back == whole).all()


def kernels_follow_the_grid_that_they_name(_: Path) -> None:
    """A global grid that was replaced, in debug mode, and other layouts."""
    dist.init(timeout=TIMEOUT, debug=True)
    for shape in ((9, 8), (12, 17), (1, 40)):
        grid = dist.Grid(shape, 1, (False, True))
        cells = grid  # noqa: F841
        u = grid.field(ti.types.vector(2, ti.i32), layout=ti.Layout.SOA)
        v = ti.field(ti.i32, u.shape, offset=u.origin, order="ji")

        @ti.kernel
        def number():
            for i, j in grid.owned:
                u[i, j] = [i, j]
                v[i, j] = i * 100 + j

        u.fill(-1)
        v.fill(-1)
        number()
        grid.exchange(u, v)
        found, single = u.to_numpy(), v.to_numpy()
        rows = np.arange(u.shape[0]) + u.origin[0]
        columns = (np.arange(u.shape[1]) + u.origin[1]) % shape[1]
        i, j = np.meshgrid(rows, columns, indexing="ij")
        is_inside = (i >= 0) & (i < shape[0])
        assert (found[..., 0] == np.where(is_inside, i, -1)).all()
        assert (found[..., 1] == np.where(is_inside, j, -1)).all()
        assert (single == np.where(is_inside, i * 100 + j, -1)).all()


def one_kernel_serves_several_grids(_: Path) -> None:
    @ti.kernel
    def count(owned: ti.template()) -> ti.i32:
        n = 0
        for _ in ti.grouped(owned):
            n += 1
        return n

    @ti.kernel
    def count_captured() -> ti.i32:
        n = 0
        for _ in ti.grouped(held["grid"].owned):
            n += 1
        return n

    held = {}
    for shape in ((9, 8), (12, 17), (40, 1)):
        grid = held["grid"] = dist.Grid(shape, 0)
        cells = int(np.prod([b - a for a, b in grid.owned.bounds]))
        assert count(grid.owned) == cells
        assert count_captured() == cells, shape


def python_mode_gives_the_same(_: Path) -> None:
    dist.init(timeout=TIMEOUT, arch=ti.python)
    grid = dist.Grid((9, 8), 1, True)
    u = grid.field(ti.i32)

    @ti.kernel
    def number():
        for i, j in grid.owned:
            u[i, j] = i * 8 + j

    number()
    grid.exchange(u)
    whole = np.arange(72).reshape(9, 8)
    rows = (np.arange(u.shape[0]) + u.origin[0]) % 9
    columns = (np.arange(u.shape[1]) + u.origin[1]) % 8
    assert (u.to_numpy() == whole[np.ix_(rows, columns)]).all()
    assert grid.sum(u) == whole.sum()


def end(_: Path) -> None:
    dist.barrier()
    grid = dist.Grid((8, 8))
    u = grid.field(ti.f32)
    dist.finalize()
    dist.finalize()
    raises(ti.TaichiRuntimeError, dist.rank, "init()")
    raises(ti.TaichiRuntimeError, lambda: grid.exchange(u), "finalize()")
    dist.init(timeout=TIMEOUT)
    grid = dist.Grid((8, 8))
    u = grid.field(ti.f32)
    u.fill(1)
    assert grid.sum(u) == 64
    dist.barrier()


BASIC = [
    "start", "exchange_fills_halos", "all_types_are_exchanged", "ranges_cover_cells_once",
    "wave_equals_numpy", "arrays_scatter_and_gather", "reductions_agree", "seeds_differ",
    "wrong_arguments_are_refused", "structs_are_exchanged_by_member", "a_mesh_is_an_arrangement",
    "disagreement_is_an_error_on_all_ranks", "recordings_are_refused",
    "gradients_equal_those_of_one_device", "exchanges_that_tapes_do_not_record_are_errors",
    "a_tape_without_loss_runs_backward_twice", "kernels_follow_the_grid_that_they_name",
    "one_kernel_serves_several_grids", "python_mode_gives_the_same", "end",
]  # fmt: skip

LARGE = [
    "start", "exchange_fills_halos", "ranges_cover_cells_once", "wave_equals_numpy",
    "arrays_scatter_and_gather", "reductions_agree", "wrong_arguments_are_refused",
    "disagreement_is_an_error_on_all_ranks", "gradients_equal_those_of_one_device", "end",
]  # fmt: skip


# --- failures: each is the last check of a group of three ----------------------------------------


def start_short(_: Path) -> None:
    dist.init(timeout=2.0)


def expect_error(act: Any, *words: str, within: float = 7.0) -> None:
    """`act` raises DistributedError with these words, and so does every operation after it."""
    begun = time.monotonic()
    raises(ti.DistributedError, act, *words)
    assert time.monotonic() - begun < within
    raises(ti.DistributedError, dist.barrier, "failed before")


def a_rank_is_killed(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    grid.exchange(u)
    if dist.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect_error(lambda: grid.exchange(u), "exchange()", "died", within=25.0)


def a_rank_is_killed_before_a_reduction(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    if dist.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect_error(lambda: grid.sum(u), "sum()", "died", within=25.0)


def a_rank_hangs(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    grid.exchange(u)
    if dist.rank() == 1:
        time.sleep(9)
        return
    expect_error(lambda: grid.exchange(u), "timed out after 2 s", "rank 1 did not reach operation")


def a_rank_raises(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    if dist.rank() == 1:
        raise ValueError("on purpose")  # the process ends
    expect_error(lambda: grid.gather(u) if dist.rank() == 0 else grid.exchange(u))


def a_rank_is_killed_in_a_gradient(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u, loss = grid.field(ti.f32, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add_loss():
        for i, j in grid.owned:
            loss[None] += u[i + 1, j] ** 2

    def run() -> None:
        with ti.ad.Tape(loss):
            grid.exchange(u)
            add_loss()
            if dist.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    expect_error(run, "the gradient of exchange()", "died", within=25.0)


def the_first_rank_is_killed(_: Path) -> None:
    """It has the store by which ranks report what they do."""
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    grid.exchange(u)
    if dist.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    expect_error(lambda: grid.exchange(u), "exchange()", "died", within=25.0)


FAILURES = [
    "a_rank_is_killed", "a_rank_is_killed_before_a_reduction", "a_rank_is_killed_in_a_gradient",
    "the_first_rank_is_killed", "a_rank_hangs", "a_rank_raises",
]  # fmt: skip


def other_reduction(_: Path) -> None:
    u = dist.Grid((12, 8)).field(ti.f32)
    grid = dist.Grid((12, 8))
    act = grid.sum if dist.rank() == 0 else grid.max
    expect_error(lambda: act(u), "different operations", "0: sum(), 1: max(), 2: max()")


def other_fields(_: Path) -> None:
    """Messages of other sizes: gloo would end the process."""
    grid = dist.Grid((12, 8), periodic=True)
    u, v = grid.field(ti.f32), grid.field(ti.f32)
    given = (u, v) if dist.rank() == 1 else (u,)
    expect_error(lambda: grid.exchange(*given), "timed out", "exchange()")


def other_order(_: Path) -> None:
    """Of fields with the same type."""
    grid = dist.Grid((12, 8), periodic=True)
    u, v = grid.field(ti.f32), grid.field(ti.f32)
    given = (v, u) if dist.rank() == 1 else (u, v)

    def exchange() -> None:
        try:
            grid.exchange(*given)
        except ti.DistributedError as e:
            assert "did not reach" not in str(e)
            raise

    expect_error(exchange, "timed out", "exchange()")


def other_field(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u, v = grid.field(ti.f32), grid.field(ti.f32)
    x = v if dist.rank() == 1 else u
    expect_error(lambda: grid.sum(x), "for different arrays", "1: sum()")


def other_operation(_: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    act = (grid.gather, grid.exchange, grid.sum)[dist.rank()]
    expect_error(lambda: act(u), act.__name__, f"on rank {dist.rank()}")


def other_grid(_: Path) -> None:
    """Blocks of other sizes: gloo would end the process."""
    grid = (dist.Grid((16, 16)), dist.Grid((12, 12)))[dist.rank() > 0]
    u = grid.field(ti.f32)
    expect_error(lambda: grid.gather(u), "different operations", "2: gather()")


def other_particles(_: Path) -> None:
    """Of the same names, and other types."""
    grid = dist.Grid((16, 16))
    made = [dist.Particles(grid, 50, x=ti.math.vec2, v=t) for t in (ti.f32, ti.math.vec2)]
    p = made[dist.rank() > 0]
    expect_error(lambda: p.add([[3.0, 15.0 - dist.rank()]]), "different operations", "2: add()")


DISAGREEMENTS = [
    "other_reduction", "other_fields", "other_order", "other_field", "other_operation",
    "other_grid", "other_particles",
]  # fmt: skip


def a_rank_is_missing(_: Path) -> None:
    os.environ["WORLD_SIZE"] = "4"
    place = f"127.0.0.1:{os.environ['MASTER_PORT']}"
    raises(ti.DistributedError, lambda: dist.init(timeout=2.0), place)


def nobody_has_the_address(_: Path) -> None:
    os.environ["RANK"] = "1"
    place = f"127.0.0.1:{os.environ['MASTER_PORT']}"
    raises(ti.DistributedError, lambda: dist.init(timeout=1.0), place, "rank 0")


def no_address(_: Path) -> None:
    del os.environ["MASTER_ADDR"]
    raises(ti.DistributedError, dist.init, "MASTER_ADDR")


def other_options(_: Path) -> None:
    options = {"debug": True} if os.environ["RANK"] == "2" else {}
    raises(ti.DistributedError, lambda: dist.init(timeout=5.0, **options), "debug=True on rank 2")


def no_place_in_the_group(_: Path) -> None:
    os.environ["RANK"] = "3"
    raises(ti.TaichiRuntimeTypeError, dist.init, "RANK=3", "WORLD_SIZE=3")
    os.environ["RANK"] = "0"
    for seconds in (0, float("inf"), float("nan"), "1"):
        raises(ti.TaichiRuntimeTypeError, lambda s=seconds: dist.init(timeout=s), "timeout")


def other_versions(_: Path) -> None:
    ti.__version__ = f"1.{os.environ['RANK']}"
    raises(ti.DistributedError, lambda: dist.init(timeout=5.0), "vkchi='1.0' on rank 0")


def grid_of_numbers() -> None:
    grid = dist.Grid((9, 8), 1, True)
    u = grid.field(ti.i32)
    whole = np.arange(72).reshape(9, 8)
    grid.scatter(whole if dist.rank() == 0 else None, u)
    grid.exchange(u)
    assert grid.sum(u) == whole.sum()


def the_program_made_the_group(_: Path) -> None:
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    dist.init(timeout=TIMEOUT)
    assert (dist.rank(), dist.size()) == (torch.distributed.get_rank(), 3)
    grid_of_numbers()
    dist.finalize()
    assert torch.distributed.is_initialized()
    dist.init(timeout=TIMEOUT)
    grid_of_numbers()


def slurm_made_the_group(_: Path) -> None:
    place = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    del os.environ["MASTER_ADDR"]
    os.environ.update(SLURM_PROCID=place["RANK"], SLURM_STEP_NUM_TASKS=place["WORLD_SIZE"],
                      SLURM_NTASKS="64", SLURM_STEP_NODELIST="127.0.0.1,node[2-7]",
                      SLURM_JOB_ID=place["MASTER_PORT"], SLURM_STEP_ID="1")  # fmt: skip
    dist.init(timeout=TIMEOUT)
    assert (dist.rank(), dist.size()) == (int(place["RANK"]), 3)
    grid_of_numbers()


def torch_is_missing(_: Path) -> None:
    import sys

    sys.modules["torch.distributed"] = None  # type: ignore[assignment]
    raises(ImportError, dist.init, "pip install 'vkchi[distributed]'")
    del os.environ["RANK"]
    dist.init()
    grid_of_numbers()


UNFORMED = [
    "a_rank_is_missing", "nobody_has_the_address", "no_address", "other_options", "other_versions",
    "no_place_in_the_group", "torch_is_missing",
]  # fmt: skip
FORMED = ["the_program_made_the_group", "slurm_made_the_group"]
