"""Checks of gradients of reductions and of checkpoints, as in `checks`."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from checks import expect_error, raises, start  # noqa: F401
from particle_checks import Model, group_sum

import vkchi as ti
from vkchi.runtime import current_runtime

dist = ti.distributed
SOURCE = """
import vkchi as ti

@ti.func
def NAME_of(v):
    return v * 2.0

@ti.kernel
def NAME() -> ti.f32:
    return NAME_of(1.0)
"""
error = ti.ad.GradientError


def owned_part(grid: Any, whole: Any) -> Any:
    return whole[tuple(slice(a, b) for a, b in grid.owned.bounds)]


def gradients_of_reductions(_: Path) -> None:
    """Of sums and products, as the loss, in functions of it, and between fields; also under memory
    budgets that differ between ranks."""
    shape = (12, 10)
    rng = np.random.default_rng(4)
    values, weights = rng.random(shape, np.float32) + 0.5, rng.random(shape, np.float32)
    a, w = values.astype(float), weights.astype(float)
    grid = dist.Grid(shape, 1, True)
    u, v, t = (grid.field(ti.f32, needs_grad=True) for _ in range(3))
    pair = grid.field(ti.types.vector(2, ti.f32), needs_grad=True)
    weight = grid.field(ti.f32)
    s, loss = (ti.field(ti.f32, (), needs_grad=True) for _ in range(2))
    both = ti.field(ti.types.vector(2, ti.f32), (), needs_grad=True)
    s1 = ti.ndarray(ti.f32, (), needs_grad=True)
    owned = grid.owned

    @ti.kernel
    def normalize():
        for i, j in owned:
            v[i, j] = weight[i, j] * u[i, j] / s[None]

    @ti.kernel
    def average(x: ti.template(), y: ti.template()):
        for i, j in owned:
            y[i, j] = 0.5 * (x[i - 1, j] + x[i, j] ** 2)

    @ti.kernel
    def root():
        loss[None] = 3.0 * ti.sqrt(s[None])

    @ti.kernel
    def root_of_array(x: ti.types.ndarray()):
        loss[None] += x[None] ** 2

    @ti.kernel
    def split():
        for i, j in owned:
            pair[i, j] = [u[i, j], u[i, j] ** 2]

    @ti.kernel
    def join():
        loss[None] = both[None][0] * both[None][1]

    def direct() -> None:
        loss[None] = grid.sum(u)

    def product() -> None:
        grid.dot(u, weight, out=loss)

    def of_the_norm() -> None:
        grid.dot(u, u, out=s)
        root()

    def normalized() -> None:
        grid.sum(u, out=s)
        normalize()
        grid.dot(v, v, out=s1)
        root_of_array(s1)

    def vectors() -> None:
        split()
        grid.sum(pair, out=both)
        join()

    def exchanged() -> None:
        grid.exchange(u)
        average(u, t)
        grid.exchange(t)
        average(t, v)
        print(end="" if grid.sum(v) > 0 else "no")
        loss[None] = grid.dot(v, weight)

    total = a.sum()
    n = w * a / total
    d = 4 * (n**2).sum() * n  # by the normalized values
    first = 0.5 * (np.roll(a, 1, 0) + a**2)
    back = 0.5 * np.roll(w, -1, 0) + first * w
    expected = {
        direct: (total, np.ones(shape)),
        product: ((a * w).sum(), w),
        of_the_norm: (3 * np.sqrt((a**2).sum()), 3 * a / np.sqrt((a**2).sum())),
        normalized: ((n**2).sum() ** 2, d * w / total - (d * w * a).sum() / total**2),
        vectors: (total * (a**2).sum(), (a**2).sum() + total * 2 * a),
        exchanged: (
            (0.5 * (np.roll(first, 1, 0) + first**2) * w).sum(),
            0.5 * np.roll(back, -1, 0) + a * back,
        ),
    }
    for run, (value, gradient) in expected.items():
        budgets = (None, 6000 * (1 + dist.rank() % 2)) if run is exchanged else (None,)
        for memory in budgets:
            for x, given in ((u, values), (weight, weights)):
                grid.scatter(given, x)
            with ti.ad.Tape(loss, **({} if memory is None else {"memory": memory})):
                run()
            assert np.isclose(loss[None], value, rtol=1e-5), (run, memory, loss[None], value)
            found = u.grad.to_numpy()[1:-1, 1:-1]
            far = np.abs(found - owned_part(grid, gradient)).max() / np.abs(gradient).max()
            assert far < 1e-5, (run, memory, far)
    grid.scatter(values, u)
    with ti.ad.Tape() as tape:
        of_the_norm()
    for times in (1, 2):
        tape.backward({loss: 2.0})
        found, want = u.grad.to_numpy()[1:-1, 1:-1], 6 * a / np.sqrt((a**2).sum())
        assert np.allclose(found, times * owned_part(grid, want), rtol=1e-5)


def losses_that_are_ambiguous_are_refused(_: Path) -> None:
    grid = dist.Grid((8, 8), 1)
    u = grid.field(ti.f32, needs_grad=True)
    s, p, loss = (ti.field(ti.f32, (), needs_grad=True) for _ in range(3))
    vector = ti.field(ti.types.vector(2, ti.f32), (), needs_grad=True)
    several = ti.field(ti.f32, 3, needs_grad=True)
    owned = grid.owned
    u.fill(1)
    p.fill(1)

    @ti.kernel
    def add_own():
        for i, j in owned:
            loss[None] += u[i, j] * s[None]

    @ti.kernel
    def loop():
        for i, j in owned:
            loss[None] += s[None]

    @ti.kernel
    def scale():
        loss[None] = s[None] * p[None]

    @ti.kernel
    def square():
        loss[None] = s[None] ** 2

    def act(*steps: Any) -> Any:
        def run() -> None:
            with ti.ad.Tape(loss):
                for step in steps:
                    step()

        return run

    total = lambda: grid.sum(u, out=s)  # noqa: E731
    for step in (add_own, loop, scale):
        raises(error, act(total, step), "values of this rank", "grid.sum(v, out=s)")
    if dist.size() > 1:
        only_one = lambda: square() if dist.rank() == 1 else None  # noqa: E731
        raises(error, act(total, only_one), "otherwise on other ranks")

        def own_factor() -> None:
            s[None] += dist.rank()
            square()

        raises(error, act(total, own_factor), "otherwise on other ranks")
        with ti.ad.Tape(loss):
            total()
            loss.fill(0)
            raises(error, lambda: several.__setitem__(1, grid.sum(u)), "unchanged")
            raises(error, lambda: s.__setitem__(None, grid.sum(u) + 1), "unchanged")
            s[None] = float(grid.sum(u))
            square()
            loss[None] = grid.sum(u)
    wrong = ti.TaichiRuntimeTypeError
    raises(wrong, lambda: grid.sum(u, out=vector), "out=")
    raises(wrong, lambda: grid.sum(u, out=several), "out=")
    raises(wrong, lambda: grid.sum(u, out=1.0), "out=")
    for extremum in (grid.min, grid.max):
        raises(error, act(lambda act=extremum: act(u, out=loss)), "not differentiated")
        raises(error, act(lambda act=extremum: loss.__setitem__(None, act(u))), "Python")
    number = ti.field(ti.f32, ())
    grid.max(u, out=number)
    assert number[None] == 1 and grid.sum(u, out=number) is None and number[None] == 64
    x, y = (ti.field(ti.f32, 1, needs_dual=True) for _ in range(2))
    with ti.ad.FwdMode(loss=y, param=x, seed=[1.0]):
        raises(error, lambda: grid.sum(u), "forward")

    @ti.ad.no_grad
    def skipped() -> None:
        grid.sum(u)

    raises(error, act(skipped), "no_grad")
    if dist.size() == 1:
        u.from_numpy(np.random.default_rng(1).random(u.shape, np.float32))
        with ti.ad.Tape(loss, grad_check=[u]):
            grid.dot(u, u, out=s)
            square()


# --- checkpoints ---------------------------------------------------------------------------------

SHAPE = (13, 11)
cell = ti.types.struct(p=ti.f32, n=ti.i32)


def fields_of(grid: Any) -> dict[str, Any]:
    made = {"u": grid.field(ti.f32), "m": grid.field(ti.types.matrix(2, 3, ti.f32))}
    made["n"], made["s"] = grid.field(ti.i32, layout=ti.Layout.SOA), grid.field(cell)
    made["u1"] = grid.field(ti.u1)
    for name in ("u8", "bf16", "f16", "f64", "i64", "u64"):
        if current_runtime().device.caps.can_store(name):
            made[name] = grid.field(getattr(ti, name))
    return made


def leaves_of(fields: dict[str, Any]) -> list[Any]:
    return [y for x in fields.values() for y in ((x.p, x.n) if hasattr(x, "p") else (x,))]


def whole_values(k: int, inner: tuple[int, ...]) -> Any:
    return (np.arange(143 * int(np.prod(inner))).reshape(SHAPE + inner) + k) % 101


def checkpoints_are_read_by_other_ranks(folder: Path) -> None:
    """The first group of a run writes; each reads what the group before has written."""
    place = folder.parent / "kept"
    grid = dist.Grid(SHAPE, 1, (True, False))
    fields = fields_of(grid)
    leaves = leaves_of(fields)
    if folder.name != "0":
        for x in leaves:
            x.fill(7)
        assert grid.load(place, **fields) == 10 + int(folder.name) - 1
        expected = [x.to_numpy() for x in leaves]
        for k, x in enumerate(leaves):
            x.fill(7)
            grid.scatter(whole_values(k, x.element_shape), x)
            assert (x.to_numpy() == expected[k]).all(), (k, "halos outside keep their values")
    for k, x in enumerate(leaves):
        grid.scatter(whole_values(k, x.element_shape), x)
    for step in (5, 10 + int(folder.name), 10 + int(folder.name)):
        grid.save(place, step, **fields)
    names = sorted(path.name for path in place.iterdir())
    last = f"step-{10 + int(folder.name)}"
    assert names == ["latest", last, f"{last}.1"], names
    dist.barrier()


def fields_without_names_are_saved(folder: Path) -> None:
    grid = dist.Grid((9, 8))
    u, v, _ = grid.field(ti.f32, name="u"), grid.field(ti.i32), grid.field(ti.i32)
    del _
    u.fill(3)
    v.fill(4)
    place = folder / "unnamed"
    grid.save(str(place))
    u.fill(0)
    v.fill(0)
    assert grid.load(place) == 0 and u[grid.owned.bounds[0][0], 0 + grid.owned.bounds[1][0]] == 3
    assert grid.sum(v) == 4 * 72
    u.fill(0)
    grid.load(place, field1=v)
    assert grid.max(u) == 0
    wrong = ti.TaichiRuntimeTypeError
    for step in (-1, 1.5, "1"):
        raises(wrong, lambda s=step: grid.save(place, s), "0 or more", repr(step))
    twice = grid.field(ti.f32, name="u")
    raises(wrong, lambda: grid.save(place), "name 'u'")
    del twice
    raises(ti.DistributedError, lambda: grid.load(place, w=u), "w is f32", "u: f32")
    raises(ti.DistributedError, lambda: grid.load(place, u=v), "u is i32")
    raises(ti.DistributedError, lambda: grid.load(folder / "none", u=u), "no checkpoint")
    other = dist.Grid((8, 9))
    raises(ti.DistributedError, lambda: other.load(place, u=other.field(ti.f32)), "[9, 8]")
    if dist.size() > 1:
        step = int(dist.rank() > 0)
        raises(ti.DistributedError, lambda: grid.save(place, step, u=u), "step=0 on rank 0")
    file = folder / "file"
    file.write_text("")
    raises(ti.DistributedError, lambda: grid.save(file, u=u), "Error")
    with ti.ad.Tape():
        raises(error, lambda: grid.load(place, u=u), "outside of the tape")
    dist.barrier()
    if dist.rank() == 0:
        for path in place.glob("step-0/*.distcp"):
            path.write_bytes(path.read_bytes()[:100])
    dist.barrier()
    u.fill(5)
    raises(ti.DistributedError, lambda: grid.load(place, u=u), "load()")
    assert grid.max(u) == 5, "the group can still be used, and nothing was read"


def folders_that_ranks_do_not_share_are_errors(folder: Path) -> None:
    if dist.size() == 1:
        return
    grid, before = dist.Grid((9, 8)), os.getcwd()
    u = grid.field(ti.f32)
    place = folder / f"disk{dist.rank()}"
    place.mkdir()
    (place / "kept" / ".step-3.tmp").mkdir(parents=True)
    os.chdir(place)
    try:
        raises(
            ti.DistributedError, lambda: grid.save("kept", 3, u=u), "lacks __1_0.distcp", "reach"
        )
    finally:
        os.chdir(before)


def particles_are_read_by_other_ranks(folder: Path) -> None:
    """As fields; they go to the owners of their positions, which may have left their blocks."""
    place, turn = folder.parent / "particles", int(folder.name)
    model = Model(SHAPE, (True, False), 150)
    p, u = model.p, model.grid.field(ti.f32)
    empty = dist.Particles(model.grid, 5, x=ti.math.vec2, k=ti.u8) if has_u8() else None
    more = {} if empty is None else {"empty": empty}
    rng = np.random.default_rng(9)
    x, ids = rng.integers(0, model.size * 64, (100, 2)) / 64, np.arange(100)
    give = dist.rank() == 0
    if turn:
        p.add(x[:5] if give else None)  # which are replaced
        assert model.grid.load(place, p=p, u=u, **more) == turn - 1
        model.x, model.id = model.wrapped(x + [2.0 * (turn - 1), 0.0]), ids
        model.check()
        p.n[None] = 0
        assert model.grid.sum(u) == 143 and (empty is None or group_sum(empty.count) == 0)
    model.x, model.id = x, ids
    p.add(x if give else None, **(model.values(ids) if give else {}))
    model.move(np.array([2.0 * turn, 0.0]))  # without migrate
    if not turn:
        p.ghosts(0.5)  # are not saved
    u.fill(1)
    model.grid.save(place, turn, p=p, u=u, **more)
    order = p.id.to_numpy()[: p.count]
    assert model.grid.load(place, p=p) == turn
    model.x = model.wrapped(model.x)
    model.check()
    p.migrate()
    if not turn:
        assert (p.id.to_numpy()[: p.count] == order).all()
    dist.barrier()


def has_u8() -> bool:
    return bool(current_runtime().device.caps.can_store("u8"))


def particles_that_do_not_fit_are_refused(folder: Path) -> None:
    grid, failed, vec2 = dist.Grid((12, 9)), ti.DistributedError, ti.math.vec2
    u, p = grid.field(ti.f32), dist.Particles(grid, 60, x=vec2, k=ti.i32)
    x, place = np.random.default_rng(2).random((50, 2)) * [12, 9], folder / "particles"
    p.add(x if dist.rank() == 0 else None, **({"k": np.arange(50)} if dist.rank() == 0 else {}))
    u.fill(2)
    with ti.ad.Tape():
        grid.save(place)  # field0, particles0
        raises(error, lambda: grid.load(place), "outside of the tape")
    u.fill(3)

    def refuse_others() -> None:
        small, other = (dist.Particles(grid, n, x=vec2, cell=c) for n, c in ((4, 1.0), (60, 0.5)))
        small.add([[1.0, 1.0]] if dist.rank() == 0 else None)
        both = {"field0": u, "particles0": small}
        raises(failed, lambda: grid.load(place, **both), "capacity is 4")
        assert grid.max(u) == 3 and group_sum(small.count) == 1, "nothing has changed"
        typed = dist.Particles(grid, 60, x=vec2, k=ti.f32)
        struct = grid.field(ti.types.struct(x=vec2))
        for given, *words in (
            (other, "cells of 0.5", "cells of 1.0"), (struct, "is a field", "cells of 1.0"),
            (typed, "particles0.k is f32", "k: i32"),
        ):  # fmt: skip
            raises(failed, lambda a=given: grid.load(place, particles0=a), *words)
        raises(failed, lambda: grid.load(place, field0=p), "field0.x")
        wrong = ti.TaichiRuntimeTypeError
        raises(wrong, lambda: dist.Grid((12, 9)).save(place, p=p), "another grid")
        raises(wrong, lambda: grid.save(place, **{"p": p, "p.x": u}), "name 'p.x'")
        raises(wrong, lambda: grid.save(place, a=p, b=p), "given twice")
        few = dist.Particles(grid, 60, x=vec2)
        assert grid.load(place, particles0=few) == 0 and group_sum(few.count) == 50

    refuse_others()
    gc.collect()
    before = p.k.to_numpy()[: p.count]
    p.n[None] = 0
    assert grid.load(place) == 0 and (p.k.to_numpy()[: p.count] == before).all()
    assert grid.max(u) == 2
    if dist.rank() == dist.size() - 1:
        p.n[None] = 61
    raises(failed, lambda: grid.save(place, 1, p=p), "n[None] is 61")
    grid.load(place)
    outside = p.x.to_numpy()
    outside[: p.count] += 100
    p.x.from_numpy(outside)
    raises(failed, lambda: grid.save(place, 1, p=p), "outside the domain")
    assert sorted(path.name for path in place.iterdir()) == ["latest", "step-0"]


def fields_and_particles_may_share_a_name(folder: Path) -> None:
    grid = dist.Grid((12, 9))
    p = dist.Particles(grid, 9, x=ti.math.vec2)
    u = grid.field(ti.f32, name="particles0")
    u.fill(2)
    p.add([[1.0, 1.0]] if dist.rank() == 0 else None)
    grid.save(folder / "shared")
    for given in ({}, {"particles0": u}):
        u.fill(3)
        grid.load(folder / "shared", **given)
        assert grid.max(u) == 2 and group_sum(p.count) == 1
    raises(ti.DistributedError, lambda: grid.load(folder / "shared", field0=u), "particles0.x")


def start_patient(_: Path) -> None:
    """A process that is killed may take seconds to end on a busy machine."""
    dist.init(timeout=20.0)


def a_rank_is_killed_while_it_saves(folder: Path) -> None:
    grid = dist.Grid((12, 8), periodic=True)
    u = grid.field(ti.f32)
    u.fill(1)
    grid.save(folder / "kept", 1, u=u)
    u.fill(2)
    if dist.rank() == 1:
        from vkchi.distributed import checkpoint

        checkpoint.BlockSavePlanner.resolve_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    expect_error(lambda: grid.save(folder / "kept", 2, u=u), "save()", within=25.0)
    assert (folder / "kept" / "latest").read_text() == "step-1"
    os.environ.pop("RANK")
    os.environ.pop("WORLD_SIZE")
    dist.finalize()
    dist.init()
    alone = dist.Grid((12, 8))
    v = alone.field(ti.f32)
    assert alone.load(folder / "kept", u=v) == 1 and alone.sum(v) == 96


def kernels_of_other_sources_are_errors(folder: Path) -> None:
    """In debug mode, at the first exchange after a compilation."""
    dist.init(timeout=60.0, debug=True)
    mine = folder / f"rank{dist.rank()}"
    mine.mkdir()
    names = ("scale", "only_here")
    text = "\n\n".join(SOURCE.replace("NAME", name) for name in names)
    other = text.replace("2.0", "3.0")  # on rank 2
    (mine / "shared.py").write_text(other if dist.rank() == 2 else text)
    spec = importlib.util.spec_from_file_location("shared", mine / "shared.py")
    assert spec is not None and spec.loader is not None
    shared = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shared)
    grid = dist.Grid((9, 8))
    u = grid.field(ti.f32)
    grid.exchange(u)
    if dist.rank() == 0:
        shared.only_here()
    grid.exchange(u)
    shared.scale()
    if dist.size() > 2:
        raises(ti.DistributedError, lambda: grid.exchange(u), "shared.", "rank 2 than on rank 0")
    else:
        grid.exchange(u)
    dist.init(timeout=60.0)


def contiguous_faces_are_sent_in_place(_: Path) -> None:
    """Without copies, also if other ranks overlap; not while kernels may change the field."""
    for shape, halo in ((29,), 3), ((17, 6), 1), ((9, 4, 5), 1):
        ranks = (dist.size(), *(1 for _ in shape[1:]))
        grid = dist.Grid(shape, halo, ranks=ranks)
        whole = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
        u, full = grid.field(ti.f32), grid.field(ti.f32)
        grid.scatter(whole, full)
        cells = owned_part(grid, whole)
        inner = tuple(slice(halo, n - halo) for n in u.shape)
        begin, end = grid.owned.bounds[0]
        for turn in range(4):
            values = np.zeros(u.shape, np.float32)
            values[inner] = cells + turn
            u.from_numpy(values)
            overlaps = turn == 1 or (turn == 2 and dist.rank() == 1)
            pending = grid.exchange(u, wait=not overlaps)
            if overlaps:
                u.fill(-1)  # the values that were sent are those of the call
                u.from_numpy(values)
            pending.wait()
            want = np.zeros(u.shape, np.float32)
            first, last = max(begin - halo, 0), min(end + halo, shape[0])
            rows = slice(first - begin + halo, last - begin + halo)
            want[(rows, *inner[1:])] = whole[first:last] + turn
            assert (u.to_numpy() == want).all(), (shape, turn)
        plan = grid._plans[(id(u),)]
        is_direct = not plan.sent.copies[True] and not plan.received.copies[True]
        assert is_direct == (len(shape) < 3 or dist.size() == 1)
        for data in plan.sent.data.values():
            assert data.nbytes == 4 * cells[:halo].size


LASTING = [
    "start", "gradients_of_reductions", "losses_that_are_ambiguous_are_refused",
    "checkpoints_are_read_by_other_ranks", "fields_without_names_are_saved",
    "particles_are_read_by_other_ranks", "particles_that_do_not_fit_are_refused",
    "fields_and_particles_may_share_a_name", "folders_that_ranks_do_not_share_are_errors",
    "contiguous_faces_are_sent_in_place",
    "kernels_of_other_sources_are_errors",
]  # fmt: skip
