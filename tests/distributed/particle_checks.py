"""Checks of `grid.reduce` and of particles, run by `groups` as those of `checks`."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from checks import GRIDS, TIMEOUT, raises

import vkchi as ti
from vkchi.distributed import exchange as exchange_module
from vkchi.distributed import particles as particles_module
from vkchi.runtime import current_runtime

dist = ti.distributed


def begin(_: Path) -> None:
    dist.init(timeout=TIMEOUT, random_seed=7)


# --- reductions of halos -------------------------------------------------------------------------


def blocks_of(grid: Any) -> list[Any]:
    """The owned cells of every rank, as ranges per axis."""
    from vkchi.distributed.decomposition import split

    parts = [split(extent, count) for extent, count in zip(grid.shape, grid.ranks)]
    return list(product(*parts))


def added_halos(grid: Any, values: list[Any]) -> Any:
    """This rank's block after a reduction of the blocks `values` of all ranks, cell by cell."""
    total = np.zeros(grid.shape, values[0].dtype)
    mine = values[dist.rank()].copy()
    for rank, (block, local) in enumerate(zip(blocks_of(grid), values)):
        for at in np.ndindex(local.shape):
            cell = [k + begin - grid.halo for k, (begin, _) in zip(at, block)]
            cell = [k % n if wraps else k for k, n, wraps in zip(cell, grid.shape, grid.periodic)]
            if all(0 <= k < n for k, n in zip(cell, grid.shape)):
                total[tuple(cell)] += local[at]
                if rank == dist.rank():
                    mine[at] = 0
    inner = tuple(slice(grid.halo, n - grid.halo) for n in mine.shape)
    mine[inner] = total[tuple(slice(*ends) for ends in grid.owned.bounds)]
    return mine


def halos_are_added_to_owners(_: Path) -> None:
    """Of all shapes, with several types in one message, by host copies and by kernels."""
    rng = np.random.default_rng(11)
    vec2 = ti.types.vector(2, ti.f32)
    narrow = [t for t in (ti.u8, ti.i16) if current_runtime().device.caps.can_store(str(t))]
    rows = [(*one, (ti.f32, ti.i32, vec2, *narrow), False) for one in GRIDS]
    if dist.size() == 2:
        rows += [(*GRIDS[4], (ti.f32, vec2), True), (*GRIDS[6], (ti.i32,), True)]
    for shape, halo, periodic, types, by_kernels in rows:
        grid = dist.Grid(shape, halo, periodic)
        extents = [[e - b + 2 * halo for b, e in block] for block in blocks_of(grid)]
        values = [rng.integers(0, 9, extent) for extent in extents]
        expected = added_halos(grid, values)
        fields = [grid.field(t) for t in types]
        for u in fields:
            given = values[dist.rank()].astype(u.dtype.dtype)
            u.from_numpy(given if not u.element_shape else np.stack([given, -given], -1))
        view = exchange_module.host_view
        try:
            if by_kernels:
                exchange_module.host_view = lambda x: None
            grid.reduce(*fields)
        finally:
            exchange_module.host_view = view
        for u in fields:
            found = u.to_numpy()
            if u.element_shape:
                assert (found[..., 1] == -expected).all()
                found = found[..., 0]
            assert (found == expected).all(), (shape, halo, periodic, u.dtype, by_kernels)


def spread_gradient(values: Any, weights: Any, steps: int, wraps: bool) -> tuple[float, Any]:
    """Loss and gradient of the steps of `reductions_in_tapes` on one device, in plain fields."""
    n, m = values.shape
    loss = ti.field(ti.f32, (), needs_grad=True)
    weight = ti.field(ti.f32, (n, m))
    weight.from_numpy(weights)

    @ti.kernel
    def spread(x: ti.template(), y: ti.template()):
        for i, j in x:
            near = 1.0
            if ti.static(wraps):
                near = x[i, (j + 1) % m]
            elif j + 1 < m:
                near = x[i, j + 1]
            for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                part = (0.1 + 0.05 * (a + 2 * b)) * ti.sin(x[i, j]) * (1 + near)
                if ti.static(wraps):
                    y[(i + a + n) % n, (j + b + m) % m] += part
                elif 0 <= i + a < n and 0 <= j + b < m:
                    y[i + a, j + b] += part

    @ti.kernel
    def add_loss(x: ti.template()):
        for i, j in x:
            loss[None] += weight[i, j] * x[i, j] ** 2

    arrays = [ti.field(ti.f32, (n, m), needs_grad=True) for _ in range(steps + 1)]
    arrays[0].from_numpy(values)
    with ti.ad.Tape(loss):
        for x, y in zip(arrays, arrays[1:]):
            spread(x, y)
        add_loss(arrays[-1])
    return loss[None], arrays[0].grad.to_numpy()


def reductions_in_tapes(_: Path) -> None:
    """Gradients of scatters over borders equal those of one device, in periodic grids and with
    walls, without and with a memory budget, which differs between ranks."""
    shape, steps = (13, 12), 8 if dist.size() == 2 else 3
    rng = np.random.default_rng(5)
    values, weights = rng.random(shape, np.float32), rng.random(shape, np.float32)
    for periodic in (True, False) if dist.size() == 2 else (dist.size() == 3,):
        total, expected = spread_gradient(values, weights, steps, periodic)
        loss = ti.field(ti.f32, (), needs_grad=True)
        grid = dist.Grid(shape, 1, periodic)
        u, v, w = *(grid.field(ti.f32, needs_grad=True) for _ in range(2)), grid.field(ti.f32)
        owned = grid.owned

        @ti.kernel
        def spread(x: ti.template(), y: ti.template()):
            for i, j in y:
                y[i, j] = 0.0
            for i, j in owned:
                near = 1.0
                if ti.static(periodic) or j + 1 < shape[1]:
                    near = x[i, j + 1]
                for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                    y[i + a, j + b] += (0.1 + 0.05 * (a + 2 * b)) * ti.sin(x[i, j]) * (1 + near)

        @ti.kernel
        def add_loss(x: ti.template()):
            for i, j in owned:
                loss[None] += w[i, j] * x[i, j] ** 2

        def run(**options: Any) -> Any:
            grid.scatter(weights, w)
            grid.scatter(values, u)
            with ti.ad.Tape(loss, **options) as tape:
                x, y = u, v
                for _ in range(steps):
                    grid.exchange(x)
                    spread(x, y)
                    grid.reduce(y)
                    x, y = y, x
                add_loss(x)
            return tape.report

        budgets: tuple[Any, ...] = (None,)
        if dist.size() == 2:
            try:
                run(memory=1)
            except ti.TaichiRuntimeError as e:
                needed = int(re.findall(r"(\d+) bytes; 1 are given", str(e))[0])
                budgets = (None, needed * (4 + dist.rank()) // 4)
        for memory in budgets:
            report = run() if memory is None else run(memory=memory)
            assert report.repeated > 0 or memory is None or dist.rank() > 0, report
            group = dist.group.current_group()
            assert np.isclose(sum(group.share("test", loss[None])), total, rtol=1e-5)
            (a, b), (c, d) = owned.bounds
            found = u.grad.to_numpy()[1:-1, 1:-1]
            error = np.abs(found - expected[a:b, c:d]).max() / np.abs(expected).max()
            assert error < 3e-6, (periodic, memory, error)


def reductions_that_are_errors(_: Path) -> None:
    grid = dist.Grid((9, 8), 1, True)
    u = grid.field(ti.f32, needs_grad=True)
    error = ti.TaichiRuntimeTypeError
    raises(error, lambda: grid.reduce(), "no field")
    raises(error, lambda: grid.reduce(u, u), "twice")
    raises(error, lambda: grid.reduce(grid.field(ti.u1)), "bools")
    pending = grid.exchange(u, wait=False)
    raises(error, lambda: grid.reduce(u), "wait()")
    pending.wait()

    def inside_record() -> None:
        with ti.record():
            grid.reduce(u)

    raises(ti.TaichiRuntimeError, inside_record, "between two exchanges")

    @ti.ad.no_grad
    def skipped():
        grid.reduce(u)

    with ti.ad.Tape():
        raises(ti.ad.GradientError, skipped, "grid.reduce()")
    cell = ti.types.struct(p=ti.f32, v=ti.types.vector(2, ti.i32))
    s = grid.field(cell)
    s.p.fill(1)
    s.v.fill(2)
    grid.reduce(s)
    assert (
        grid.sum(s.p) == sum(np.prod([e - b + 2 for b, e in block]) for block in blocks_of(grid))
        and (grid.sum(s.v) == 2 * grid.sum(s.p)).all()
    )


# --- particles -----------------------------------------------------------------------------------


def steps_of(normal: int) -> int:
    """Random steps: VKCHI_TEST_STEPS, which `scripts/long` sets, or a number."""
    return int(os.environ.get("VKCHI_TEST_STEPS", normal))


class Model:
    """All particles of all ranks in numpy: position, owner and other fields by id. The cell is 0.5,
    and positions are multiples of 1 / 64, so that everything is exact."""

    cell = 0.5

    def __init__(self, shape: tuple[int, ...], periodic: Any, capacity: int, halo: int = 1) -> None:
        self.grid = dist.Grid(shape, halo, periodic)
        axes = len(shape)
        self.size = np.array(shape) * self.cell
        self.p = dist.Particles(
            self.grid, capacity, x=ti.types.vector(axes, ti.f32), cell=self.cell,
            id=ti.i32, v=ti.types.matrix(2, 3, ti.f32), k=ti.u32,
        )  # fmt: skip
        self.x, self.id = np.zeros((0, axes)), np.zeros(0, int)

    def values(self, ids: Any) -> dict[str, Any]:
        v = np.arange(6, dtype=np.float32).reshape(2, 3) + ids[:, None, None]
        return {"id": ids, "v": v, "k": ids.astype(np.uint32) * 7}

    def owners(self, x: Any) -> Any:
        """The rank of each position, or -1, from the blocks of all ranks."""
        found = np.full(len(x), -1)
        for rank, block in enumerate(blocks_of(self.grid)):
            low, high = np.array(block).T * self.cell
            inside = ((x >= low) & (x < high)).all(1)
            assert (found[inside] == -1).all()
            found[inside] = rank
        return found

    def wrapped(self, x: Any) -> Any:
        return np.where(self.grid.periodic, x % self.size, x)

    def own(self) -> dict[int, Any]:
        mine = self.owners(self.x) == dist.rank()
        return {int(k): x for k, x in zip(self.id[mine], self.x[mine])}

    def counts(self, x: Any) -> Any:
        return np.bincount(self.owners(x), minlength=dist.size())

    def found(self, first: int, last: int) -> list[tuple[int, tuple[float, ...]]]:
        """Ids and positions of the elements first to last, whose other fields must match."""
        ids = self.p.id.to_numpy()[first:last]
        expected = self.values(ids)
        assert (self.p.v.to_numpy()[first:last] == expected["v"]).all()
        assert (self.p.k.to_numpy()[first:last] == expected["k"]).all()
        return [
            (int(k), tuple(map(float, x))) for k, x in zip(ids, self.p.x.to_numpy()[first:last])
        ]

    def check(self) -> None:
        assert self.p.count == self.p.n[None]
        found, expected = self.found(0, self.p.count), self.own()
        assert len(found) == len(expected), (len(found), len(expected))
        assert {k: tuple(x) for k, x in expected.items()} == dict(found)

    def check_ghosts(self, radius: float) -> None:
        """Every image of a particle near this rank's block is there once, and no other."""
        low, high = np.array(self.grid.owned.bounds).T * self.cell
        expected = []
        for shift in product(*((-1, 0, 1) if wraps else (0,) for wraps in self.grid.periodic)):
            images = self.x + self.size * shift
            near = ((images >= low - radius) & (images < high + radius)).all(1)
            if not any(shift):
                near &= self.owners(self.x) != dist.rank()
            expected += [(int(k), tuple(x)) for k, x in zip(self.id[near], images[near])]
        count = self.p.count
        ghosts = self.p.ghosts(radius)
        assert self.p.count == count
        found = self.found(count, count + ghosts)
        assert sorted(found) == sorted(expected), (len(found), len(expected))

    def move(self, moves: Any) -> None:
        """Move all particles by the host; those of this rank in their fields."""
        self.x = self.x + moves
        at = {int(k): x for k, x in zip(self.id, self.x)}
        now = self.p.x.to_numpy()
        for k, name in enumerate(self.p.id.to_numpy()[: self.p.count]):
            now[k] = at[int(name)]
        self.p.x.from_numpy(now)


DOMAINS = [
    ((8, 12), (True, True), 90), ((9, 8), (False, True), 90), ((8,), (True,), 90),
    ((13,), (False,), 90), ((8, 8, 8), (True, False, True), 90), ((9, 10), (False, False), 90),
]  # fmt: skip


def particles_walk_at_random(_: Path) -> None:
    """None is lost or doubled, also on borders and corners, with empty ranks, and with too little
    capacity: then all ranks raise an error and nothing has moved."""
    rng = np.random.default_rng(17)
    failed = empty = 0
    for shape, periodic, capacity in DOMAINS:
        steps = -(-steps_of(60) // len(DOMAINS))
        model = Model(shape, periodic, capacity)
        p, size, axes = model.p, model.size, len(shape)
        for step in range(steps):
            kind = rng.integers(12)
            if kind == 0 or not len(model.x):
                more = int(rng.integers(0, 60))
                x = rng.integers(0, size * 64, (more, axes)) / 64
                if rng.integers(2):
                    x = np.floor(x * 2) / 2  # on borders of cells
                if rng.integers(3) == 0:
                    x = x * 0 + rng.integers(0, size * 2, axes) / 2  # all in one place
                ids = np.arange(more) + step * 1000
                part = np.arange(more) % dist.size() == dist.rank()
                total = np.concatenate([model.x, x])
                give = lambda: p.add(x[part], **model.values(ids[part]))  # noqa: E731
                if (model.counts(total) > capacity).any():
                    raises(ti.DistributedError, give, "capacity is 90")
                    failed += 1
                else:
                    give()
                    model.x, model.id = total, np.concatenate([model.id, ids])
            elif kind == 1:  # some are removed, as by a kernel
                keep = rng.integers(0, 80)
                removed = np.concatenate([np.zeros(0, int), *exchange_ids(model, keep)])
                p.n[None] = min(p.count, keep)
                left = ~np.isin(model.id, removed)
                model.x, model.id = model.x[left], model.id[left]
            else:
                far = rng.integers(3) == 0
                moves = rng.integers(-64, 65, (len(model.x), axes)) / (64 if far else 512)
                moves = np.round(moves * 64) / 64
                if kind == 2:  # a crowd
                    moves = np.floor(rng.random(axes) * size * 64) / 64 - model.x
                after = model.x + moves
                walls = ~np.array(model.grid.periodic)
                beyond = ((after < 0) | (after >= size)) & walls
                moves[beyond] = 0
                if kind == 3:  # on borders of cells, corners included
                    moves = np.where(beyond, 0, np.floor((model.x + moves) * 2) / 2 - model.x)
                model.move(moves)
                after = model.wrapped(model.x)
                if (model.counts(after) > capacity).any():
                    before = p.count, p.x.to_numpy(), p.id.to_numpy(), p.v.to_numpy()
                    need = model.counts(after)
                    worst = int(np.flatnonzero(need > capacity)[0])
                    said = f"rank {worst} needs {need[worst]}"
                    raises(ti.DistributedError, p.migrate, said, "capacity is 90")
                    same = p.count, p.x.to_numpy(), p.id.to_numpy(), p.v.to_numpy()
                    assert all(np.array_equal(a, b) for a, b in zip(before, same))
                    failed += 1
                    model.move(-moves)
                else:
                    model.x = after
                    p.migrate()
            model.check()
            empty += p.count == 0
            if step % 3 == 0:
                least = min(n // k for n, k in zip(model.grid.shape, model.grid.ranks)) * 0.5
                radius = float(rng.integers(1, int(least * 8) + 1) / 8)
                try:
                    model.check_ghosts(radius)
                except ti.DistributedError as e:
                    assert "capacity is 90" in str(e)  # on all ranks, as the checks go on
    if steps_of(0) > 900:
        assert failed and empty + (dist.size() == 1), (failed, empty)


def exchange_ids(model: Model, keep: int) -> list[Any]:
    """The ids that each rank removes, in order of rank."""
    group = dist.group.current_group()
    mine = model.p.id.to_numpy()[: model.p.count][keep:].astype(np.int64)
    return [np.array(ids, int) for ids in group.share("ids", mine.tolist())]


def particles_in_kernels_and_of_all_types(_: Path) -> None:
    """Kernels loop over `n[None]`; fields of each type arrive as they were, by host memory and by
    copies."""
    grid = dist.Grid((8, 6), 1, True)
    types: dict[str, Any] = {}
    for name in "u1 i8 u16 i32 i64 f16 bf16 f64".split():
        try:
            ti.field(getattr(ti, name), 2)
            types["is_" + name] = getattr(ti, name)
            types["two_" + name] = ti.types.vector(2, getattr(ti, name))
        except ti.DeviceError:
            continue
    view = particles_module.host_view
    for by_copies in (False, True):
        try:
            if by_copies:
                particles_module.host_view = lambda x: None
            p = dist.Particles(grid, 64, x=ti.math.vec2, number=ti.f32, **types)
            other = dist.Particles(grid, 8, x=ti.math.vec2)
            cells = np.stack(np.meshgrid(np.arange(8), np.arange(6), indexing="ij"), -1)
            x = cells.reshape(-1, 2) + 0.25
            values = {k: np.arange(48) % 2 for k in types if k.startswith("is_")}
            values |= {k: [1, 0] for k in types if k.startswith("two_")}
            first = dist.rank() == 0
            p.add(x if first else None, **(values if first else {}))
            other.add([[0.0, 0.0]] if first else None)

            @ti.kernel
            def move(q: ti.template()):
                for k in range(p.n[None]):
                    p.number[k] += 1.0
                    q.x[k] += ti.Vector([2.0, 3.0])

            for round_ in range(4):
                move(p)
                p.migrate()
                count, total = p.count, ti.field(ti.i32, grid.field(ti.i32).shape)
                per_cell = grid.field(ti.i32)
                assert total.shape == per_cell.shape

                @ti.kernel
                def bin_cells():
                    for k in range(p.n[None]):
                        per_cell[ti.cast(ti.floor(p.x[k]), ti.i32)] += 1

                bin_cells()
                assert grid.sum(per_cell) == 48 and grid.min(per_cell) == 1 and grid.sum(per_cell)
                assert (p.number.to_numpy()[:count] == round_ + 1).all()
            at = {(float(a), float(b)): k for k, (a, b) in enumerate(x)}  # moved by the domain
            ids = [at[float(a), float(b)] for a, b in p.x.to_numpy()[:count]]
            for name in types:
                found = p.__getattribute__(name).to_numpy()[:count]
                want = np.array(ids) % 2 if name.startswith("is_") else np.array([[1, 0]] * count)
                assert (found == want).all(), name
            assert other.count == (other.x.to_numpy()[0] < 2).all() * other.count
        finally:
            particles_module.host_view = view


def particles_on_cells_that_are_not_exact(_: Path) -> None:
    """Rounded cells and domains: each particle has one owner, before and after wraps."""
    rng = np.random.default_rng(3)
    for cell, real in ((0.1, ti.f32), (1 / 3, ti.f32), (1e-3, ti.f32), (1.1, ti.f64)):
        if real is ti.f64 and not current_runtime().device.caps.can_store("f64"):
            continue
        grid = dist.Grid((11, 9), 1, True)
        p = dist.Particles(grid, 4000, x=ti.types.vector(2, real), cell=cell)
        x = rng.random((400, 2)) * [11 * cell, 9 * cell]
        edges = np.arange(-1, 13)[:, None] * np.array([cell, cell])
        ulps = [np.nextafter(edges.astype(real.dtype), to) for to in (-9, 9)]
        tiny = np.array([[-1e-30, -1e-45], [-0.0, 1e-30]])
        x = np.concatenate([x, edges, *ulps, tiny])
        p.add(x if dist.rank() == 0 else None)
        size = np.array([11 * cell, 9 * cell])
        for _ in range(6):
            counts = group_sum(p.count)
            assert counts == len(x), (counts, len(x))
            own = p.x.to_numpy()[: p.count].astype(np.float64)
            assert ((own >= 0) & (own < size)).all()
            low, high = np.array(grid.owned.bounds).T * cell
            assert ((own >= low) & (own < high)).all()
            before = p.x.to_numpy()
            p.migrate()
            assert (p.x.to_numpy() == before).all()
            before[: p.count] += rng.random(2) * size * 3 - size
            p.x.from_numpy(before)
            p.migrate()


def positions_are_rounded_before_they_are_owned(_: Path) -> None:
    """Positions of bf16, which numpy holds as f32; cells and radii that numpy made."""
    grid = dist.Grid((16,), 1, True)
    try:
        p = dist.Particles(grid, 10, x=ti.bf16, cell=np.float32(1.0))
    except ti.DeviceError:
        return
    p.add(np.array([7.99, -0.001, 15.99]) if dist.rank() == 0 else None)
    for _ in range(2):
        (low, high), x = grid.owned.bounds[0], p.x.to_numpy()[: p.count]
        assert ((x >= low) & (x < high)).all() and group_sum(p.count) == 3
        p.ghosts(np.float32(1.0))
        moved = p.x.to_numpy()
        moved[: p.count] -= 0.0001 * (x == 0)
        p.x.from_numpy(moved)
        p.migrate()
        assert group_sum(int((p.x.to_numpy()[: p.count] == 0).sum())) == 2


def group_sum(number: int) -> int:
    return int(sum(dist.group.current_group().share("count", int(number))))


def particles_that_stay_keep_their_order(_: Path) -> None:
    grid = dist.Grid((16,), 1, True)
    p = dist.Particles(grid, 200, x=ti.f32, id=ti.i32)
    x = np.arange(160) % 16 + 0.5
    p.add(x if dist.rank() == 0 else None, **({"id": np.arange(160)} if dist.rank() == 0 else {}))
    assert (np.diff(p.id.to_numpy()[: p.count]) > 0).all()
    before = p.id.to_numpy()[: p.count]
    moved = p.x.to_numpy()
    moved[: p.count] += 1
    p.x.from_numpy(moved)
    p.migrate()
    ids = p.id.to_numpy()[: p.count]
    stays = np.isin(ids, before)
    last = np.flatnonzero(stays)[-1] if stays.any() else -1
    assert stays[: last + 1].all() and (np.diff(ids[stays]) > 0).all()
    if dist.size() < 4:
        assert (np.diff(ids[~stays]) > 0).all()
    ghosts = p.ghosts(1.0)
    one = p.id.to_numpy()[p.count :][:ghosts]
    assert p.ghosts(1.0) == ghosts and (p.id.to_numpy()[p.count :][:ghosts] == one).all()


def wrong_particles_are_refused(_: Path) -> None:
    error, rank = ti.TaichiRuntimeTypeError, dist.rank()
    grid = dist.Grid((16, 16), 1, (True, False))
    vec2 = ti.math.vec2
    raises(error, lambda: dist.Particles(7, 9, x=vec2), "Grid")
    raises(error, lambda: dist.Particles(grid, 0, x=vec2), "capacity")
    raises(error, lambda: dist.Particles(grid, 2.5, x=vec2), "capacity")
    raises(error, lambda: dist.Particles(grid, 9, x=ti.math.vec3), "2 floats")
    raises(error, lambda: dist.Particles(grid, 9, x=ti.math.ivec2), "2 floats")
    raises(error, lambda: dist.Particles(grid, 9, x=vec2, cell=0.0), "cell")
    raises(error, lambda: dist.Particles(grid, 9, x=vec2, count=ti.f32), "count")
    raises(error, lambda: dist.Particles(grid, 9, x=vec2, n=ti.f32), "name")
    cell = ti.types.struct(p=ti.f32)
    raises(error, lambda: dist.Particles(grid, 9, x=vec2, s=cell), "scalars")
    if dist.size() > 1:
        raises(ti.DistributedError, lambda: dist.Particles(grid, 9 + rank, x=vec2), "capacity=9")
    other = {"y": ti.f32} if rank else {"y": ti.i32}
    if dist.size() > 1:
        raises(ti.DistributedError, lambda: dist.Particles(grid, 9, x=vec2, **other), "'y': 'i32'")
    assert dist.Particles(grid, 9, x=vec2, operation=ti.f32, facts=ti.f32).facts.shape == (9,)
    p = dist.Particles(grid, 50, x=vec2, k=ti.i32)
    raises(AttributeError, lambda: p.velocity, "velocity")
    raises(error, lambda: setattr(p, "x", p.k), "cannot be set")

    def given(x: Any, **values: Any) -> Any:
        return lambda: p.add(x, **values) if rank == 0 else p.add(None)

    refused = error if rank == 0 else ti.DistributedError
    words = lambda *w: w if rank == 0 else ("invalid arguments",)  # noqa: E731
    raises(refused, given([1.0, 2.0]), *words("shape"))
    raises(refused, given([[1.0, 2.0]], v=3), *words("v is no field"))
    raises(refused, given([[1.0, 2.0]], k=[1, 2]), *words("shape"))
    raises(refused, given(None, k=1), *words("without positions"))
    nan = float("nan")
    for place in ([3.0, -1.0], [3.0, 16.0], [nan, 1.0], [float("inf"), 1.0]):
        raises(ti.DistributedError, given([[1.0, 1.0], place]), "particle 1 of rank 0", "outside")
    assert p.count == 0
    if dist.size() > 1:
        raises(ti.DistributedError, lambda: p.add([[1.0, 1.0]]), "all ranks give the same")
    p.add(np.zeros((0, 2)))
    p.add(None)
    assert group_sum(p.count) == 0
    p.add([[rank + 0.5, 3.0]], k=rank)  # of every rank
    assert group_sum(p.count) == dist.size()
    last = dist.size() - 1
    before = p.x.to_numpy()
    if p.count:
        for bad in (nan, 17.0):
            wrong = before.copy()
            wrong[0, 1] = bad
            p.x.from_numpy(wrong)
            break
    raises(ti.DistributedError, p.migrate, "outside the domain or NaN")
    p.x.from_numpy(before)
    p.migrate()
    count = p.count
    if rank == last:
        p.n[None] = 51
    for act in (p.migrate, lambda: p.add(None), lambda: p.ghosts(1.0)):
        raises(ti.DistributedError, act, f"n[None] is 51 on rank {last}")
    p.n[None] = count
    raises(error, lambda: p.ghosts(0), "radius")
    raises(error, lambda: p.ghosts(17.0), "radius")
    moved = before.copy()
    moved[:, 0] += 16.0
    p.x.from_numpy(moved)
    raises(ti.DistributedError, lambda: p.ghosts(0.5), "migrate() first")
    p.x.from_numpy(before)
    for recording in (ti.ad.Tape(), ti.record()):
        with recording:
            for act in (p.migrate, lambda: p.add(None), lambda: p.ghosts(1.0)):
                raises(ti.ad.GradientError, act, "outside of tapes")
    full = np.full((60, 2), 0.5)
    act = lambda: p.add(full if rank == 0 else None)  # noqa: E731
    raises(ti.DistributedError, act, "rank 0 needs 6", "capacity is 50")
    assert p.count == count
    p.migrate()


def migrations_after_a_tape_keep_its_values(_: Path) -> None:
    """A second `backward` uses the positions of the recording."""
    grid = dist.Grid((8,), 1, True)
    p = dist.Particles(grid, 40, x=ti.f32)
    p.add(np.arange(32) / 4 if dist.rank() == 0 else None)
    weight = ti.field(ti.f32, 40, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add_loss():
        for k in range(p.n[None]):
            loss[None] += ti.sin(p.x[k]) * weight[k] ** 2

    weight.fill(0.5)
    x, count = p.x.to_numpy(), p.count
    with ti.ad.Tape() as tape:
        add_loss()
    moved = x.copy()
    moved[:count] += 3.25
    p.x.from_numpy(moved)
    p.migrate()
    loss.grad.fill(0)
    tape.backward({loss: 1.0})
    expected = np.where(np.arange(40) < count, np.sin(x), 0)
    assert np.allclose(weight.grad.to_numpy(), expected, atol=1e-6)


def particles_in_python_and_debug_mode(folder: Path) -> None:
    for options in ({"arch": ti.python}, {"debug": True}):
        dist.init(timeout=TIMEOUT, **options)
        model = Model((8, 8), (True, False), 200)
        x = np.random.default_rng(4).integers(0, 256, (50, 2)) / 64
        model.x, model.id = x, np.arange(50)
        model.p.add(*((x,) if dist.rank() == 0 else (None,)),
                    **(model.values(model.id) if dist.rank() == 0 else {}))  # fmt: skip
        model.check()
        model.check_ghosts(0.5)
        p = model.p

        @ti.kernel
        def move():
            for k in range(p.n[None]):
                p.x[k] += ti.Vector([1.5, 0.0])

        move()
        p.migrate()
        model.x = model.wrapped(model.x + [1.5, 0.0])
        model.check()
    dist.init(timeout=TIMEOUT)
    raises(ti.TaichiRuntimeError, p.migrate, "init()")


SMALL = [
    "begin", "halos_are_added_to_owners", "reductions_in_tapes", "reductions_that_are_errors",
    "particles_walk_at_random", "particles_in_kernels_and_of_all_types",
    "particles_on_cells_that_are_not_exact", "positions_are_rounded_before_they_are_owned",
    "particles_that_stay_keep_their_order",
    "wrong_particles_are_refused", "migrations_after_a_tape_keep_its_values",
    "particles_in_python_and_debug_mode",
]  # fmt: skip
LARGE = [
    "begin", "halos_are_added_to_owners", "particles_walk_at_random",
    "particles_on_cells_that_are_not_exact", "wrong_particles_are_refused",
]  # fmt: skip
