"""ti.simt.subgroup and ti.simt.warp: every function, against numpy on pieces of a subgroup."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

pytestmark = pytest.mark.ours("simt-on-cpu", run=False)

COUNT = 64
TYPES = ("i8", "u8", "i16", "u16", "f16", "i32", "u32", "f32", "i64", "u64", "f64")
NUMPY = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
BITWISE = ("and", "or", "xor")
ALL = 0xFFFFFFFF
Function = Callable[..., Any]


def dtype_of(t: str) -> Any:
    """numpy's dtype of a type's name."""
    return np.dtype({"i": "int", "u": "uint", "f": "float"}[t[0]] + t[1:])


@pytest.fixture(scope="module")
def width() -> int:
    """The invocations of a subgroup."""
    size = ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for _ in range(COUNT):
            size[None] = ti.simt.subgroup.group_size()

    run()
    return int(size[None])


def each(fn: Function, values: Any, t: Any = ti.i32, out: Any = None) -> Any:
    """fn(value, iteration) of every iteration."""
    x, y = ti.field(t, COUNT), ti.field(out or t, COUNT)
    x.from_numpy(values)

    @ti.kernel
    def run():
        for i in range(COUNT):
            y[i] = fn(x[i], i)

    run()
    return y.to_numpy()


def draw(t: str) -> Any:
    rng = np.random.default_rng(4)
    low, high = (1, 4) if t[0] == "f" else (0, 100) if t[0] == "u" else (-100, 100)
    return rng.integers(low, high, COUNT).astype(dtype_of(t))


def identity(op: str, t: str) -> Any:
    """Initial value of a scan."""
    dtype = dtype_of(t)
    if op in ("min", "max") and t[0] == "f":
        return np.inf if op == "min" else -np.inf
    if op in ("min", "max"):
        info = np.iinfo(dtype)
        return info.max if op == "min" else info.min
    return {"mul": 1, "and": ~dtype.type(0) if t[0] != "f" else 0}.get(op, 0)


def expected(span: str, op: str, values: Any, t: str, width: int) -> Any:
    pieces = values.reshape(-1, width)
    with np.errstate(over="ignore"):
        scan = NUMPY[op].accumulate(pieces, axis=1, dtype=pieces.dtype)
    if span == "reduce":
        return np.repeat(scan[:, -1:], width, 1).ravel()
    if span == "inclusive":
        return scan.ravel()
    first = np.full((len(pieces), 1), identity(op, t), pieces.dtype)
    return np.concatenate([first, scan[:, :-1]], 1).ravel()


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("span", ["reduce", "inclusive", "exclusive"])
def test_reductions_and_scans(span: str, t: str, width: int, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    values = draw(t)
    for op in NUMPY:
        if t[0] == "f" and op in BITWISE:
            continue
        function = getattr(ti.simt.subgroup, f"{span}_{op}")

        @ti.func
        def apply(v, i):
            return function(v)  # noqa: B023

        got = each(apply, values, getattr(ti, t))
        np.testing.assert_array_equal(got, expected(span, op, values, t, width), err_msg=op)


@ti.func
def to_next(v, i):
    lane = ti.simt.subgroup.invocation_id()
    return ti.simt.subgroup.shuffle(v, (lane + 1) % ti.simt.subgroup.group_size())


@ti.func
def to_partner(v, i):
    return ti.simt.subgroup.shuffle_xor(v, 1)


@ti.func
def from_second(v, i):
    return ti.simt.subgroup.broadcast(v, 1)


@ti.func
def from_first(v, i):
    return ti.simt.subgroup.broadcast_first(v)


@ti.func
def from_before(v, i):
    other = ti.simt.subgroup.shuffle_up(v, 1)
    return other if ti.simt.subgroup.invocation_id() > 0 else v


@ti.func
def from_behind(v, i):
    other = ti.simt.subgroup.shuffle_down(v, 2)
    size = ti.simt.subgroup.group_size()
    return other if ti.simt.subgroup.invocation_id() < size - 2 else v


# operation -> the index that its value comes from, of the lanes of one subgroup
SOURCES: dict[str, tuple[Function, Callable[[Any, int], Any]]] = {
    "shuffle": (to_next, lambda lane, width: (lane + 1) % width),
    "shuffle_xor": (to_partner, lambda lane, width: lane ^ 1),
    "broadcast": (from_second, lambda lane, width: lane * 0 + 1),
    "broadcast_first": (from_first, lambda lane, width: lane * 0),
    "shuffle_up": (from_before, lambda lane, width: np.maximum(lane - 1, 0)),
    "shuffle_down": (from_behind, lambda lane, width: np.where(lane < width - 2, lane + 2, lane)),
}


@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("name", SOURCES)
def test_subgroup_exchanges(name: str, t: str, width: int, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")
    function, source = SOURCES[name]
    values = draw(t)
    if t == "i64":
        values = values * (1 << 40) - 3
    want = values.reshape(-1, width)[:, source(np.arange(width), width)].ravel()
    np.testing.assert_array_equal(each(function, values, getattr(ti, t)), want)


def test_subgroup_ops_on_vectors() -> None:
    sums = ti.Vector.field(2, ti.f32, COUNT)
    got = ti.Matrix.field(2, 2, ti.i32, COUNT)
    same, sizes = ti.field(ti.i32, COUNT), ti.field(ti.i32, COUNT)

    @ti.kernel
    def run():
        for i in range(COUNT):
            sums[i] = ti.simt.subgroup.reduce_add(ti.Vector([1.0, float(i)]))
            m = ti.Matrix([[i, 2 * i], [3, -i]])
            got[i] = ti.simt.subgroup.broadcast_first(m)
            same[i] = ti.simt.subgroup.all_equal(ti.Vector([4, i]))
            sizes[i] = ti.simt.subgroup.group_size()

    run()
    size = sizes[0]
    assert (sizes.to_numpy() == size).all()
    first = np.arange(COUNT) // size * size
    np.testing.assert_array_equal(sums.to_numpy()[:, 0], size)
    np.testing.assert_array_equal(sums.to_numpy()[:, 1], size * first + size * (size - 1) // 2)
    np.testing.assert_array_equal(got.to_numpy()[:, 0, 1], 2 * first)
    np.testing.assert_array_equal(got.to_numpy()[:, 1, 0], 3)
    assert not same.to_numpy().any()


@ti.func
def votes(v, i):
    ti.simt.subgroup.barrier()
    ti.simt.subgroup.memory_barrier()
    found = ti.simt.subgroup.all_true(v >= 0) + 2 * ti.simt.subgroup.any_true(v == 2)
    return found + 4 * ti.simt.subgroup.all_equal(v) + 8 * ti.simt.subgroup.elect()


def test_subgroup_votes(width: int) -> None:
    values = np.random.default_rng(2).integers(0, 3, COUNT).astype(np.int32)
    values[:width] = 1
    pieces = values.reshape(-1, width)
    want = 1 + 2 * (pieces == 2).any(1) + 4 * (pieces == pieces[:, :1]).all(1)
    want = want[:, None] + 8 * (np.arange(width) == 0)
    np.testing.assert_array_equal(each(votes, values), want.ravel())


@pytest.mark.parametrize("t", ["f16", "f32", "i64", "u8"])
def test_all_equal(t: str, width: int, lacks: Any) -> None:
    if lacks(t):
        pytest.skip(f"no {t}")

    @ti.func
    def equal(v, i):
        return ti.simt.subgroup.all_equal(v)

    values = np.ones(COUNT, dtype_of(t))
    values[width] = 2
    got = each(equal, values, getattr(ti, t), ti.i32).reshape(-1, width)
    assert got.all(1).tolist() == [k != 1 for k in range(COUNT // width)]


def test_only_active_invocations_take_part(width: int) -> None:
    @ti.func
    def parted(v, i):
        found = 0
        if i % 2:
            found = ti.simt.subgroup.reduce_add(v)
        else:
            found = ti.simt.subgroup.reduce_max(v)
        return found

    values = np.random.default_rng(8).integers(-50, 50, COUNT).astype(np.int32)
    pieces = values.reshape(-1, width)
    sums, most = pieces[:, 1::2].sum(1)[:, None], pieces[:, ::2].max(1)[:, None]
    want = np.where(np.arange(width) % 2, sums, most)
    np.testing.assert_array_equal(each(parted, values), want.ravel())


def test_in_loops(width: int) -> None:
    """A sum over the subgroup by halves."""

    @ti.func
    def fold(v, i):
        mask = 1
        while mask < ti.simt.subgroup.group_size():
            v += ti.simt.subgroup.shuffle_xor(v, mask)
            mask *= 2
        return v

    values = np.arange(COUNT, dtype=np.int32)
    want = np.repeat(values.reshape(-1, width).sum(1), width)
    np.testing.assert_array_equal(each(fold, values), want)


def test_one_atomic_per_subgroup(width: int) -> None:
    total, calls = ti.field(ti.i32, ()), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i in range(1024):
            s = ti.simt.subgroup.reduce_add(i)
            if ti.simt.subgroup.elect():
                total[None] += s
                calls[None] += 1

    run()
    assert (total[None], calls[None]) == (1024 * 1023 // 2, 1024 // width)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda i: ti.simt.subgroup.reduce_and(1.5), "`reduce_and` takes an integer"),
        (lambda i: ti.simt.subgroup.shuffle(i, 1.5), "must be an integer"),
        (lambda i: ti.simt.subgroup.broadcast(i, ti.Vector([1, 2])), "must be an integer"),
    ],
)
def test_invalid_subgroup_calls_raise(wrong: Function, message: str) -> None:
    function = ti.func(wrong) if not hasattr(wrong, "__vkchi_kind__") else wrong

    @ti.kernel
    def run():
        for i in range(COUNT):
            function(i)

    with pytest.raises(ti.TaichiTypeError, match=message):
        run()


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="has no `reduce_nand`"):
        ti.simt.subgroup.reduce_nand  # noqa: B018
    with pytest.raises(ti.TaichiSyntaxError, match="can only be called inside a kernel"):
        ti.simt.subgroup.reduce_add(1)


# --- CUDA's names ---------------------------------------------------------------------------------


def bits(truths: Any) -> Any:
    """One number per piece, with a bit per invocation."""
    return (truths * (1 << np.arange(truths.shape[1]))).sum(1)[:, None]


Pieces = Any
WARP: dict[str, tuple[Function, Callable[[Pieces], Any]]] = {
    "all_nonzero": (
        lambda v, i: ti.simt.warp.all_nonzero(ALL, v),
        lambda p: (p != 0).all(1)[:, None],
    ),
    "all_nonzero of two": (
        lambda v, i: ti.simt.warp.all_nonzero(3, v),
        lambda p: (p[:, :2] != 0).all(1)[:, None],
    ),
    "any_nonzero": (
        lambda v, i: ti.simt.warp.any_nonzero(-1, v == 2),
        lambda p: (p == 2).any(1)[:, None],
    ),
    "unique": (
        lambda v, i: ti.simt.warp.unique(ALL, v),
        lambda p: ((p != 0).all(1) | (p == 0).all(1))[:, None],
    ),
    "ballot": (lambda v, i: ti.simt.warp.ballot(v == 1), lambda p: bits(p == 1)),
    "active_mask": (lambda v, i: ti.simt.warp.active_mask(), lambda p: bits(p == p)),
    "shfl_sync_i32": (lambda v, i: ti.simt.warp.shfl_sync_i32(ALL, v, 1), lambda p: p[:, 1:2]),
    "shfl_up_i32": (
        lambda v, i: ti.simt.warp.shfl_up_i32(ALL, v, 1),
        lambda p: np.concatenate([p[:, :1], p[:, :-1]], 1),
    ),
    "shfl_down_i32": (
        lambda v, i: ti.simt.warp.shfl_down_i32(ALL, v, 2),
        lambda p: np.concatenate([p[:, 2:], p[:, -2:]], 1),
    ),
    "shfl_xor_i32": (
        lambda v, i: ti.simt.warp.shfl_xor_i32(ALL, v, 1),
        lambda p: p[:, np.arange(p.shape[1]) ^ 1],
    ),
    "shfl_down_f32": (
        lambda v, i: int(2 * ti.simt.warp.shfl_down_f32(ALL, v * 1.5, 1)),
        lambda p: 3 * np.concatenate([p[:, 1:], p[:, -1:]], 1),
    ),
    "shfl_up_f32": (
        lambda v, i: int(2 * ti.simt.warp.shfl_up_f32(ALL, v * 1.5, 1)),
        lambda p: 3 * np.concatenate([p[:, :1], p[:, :-1]], 1),
    ),
    "shfl_sync_f32": (
        lambda v, i: int(2 * ti.simt.warp.shfl_sync_f32(ALL, v * 1.5, 0)),
        lambda p: 3 * p[:, :1],
    ),
    "match_any": (
        lambda v, i: ti.simt.warp.match_any(ALL, v),
        lambda p: np.stack([bits(p == p[:, [k]])[:, 0] for k in range(p.shape[1])], 1),
    ),
    "match_all": (
        lambda v, i: ti.simt.warp.match_all(ALL, v),
        lambda p: (p == p[:, :1]).all(1)[:, None] * bits(p == p),
    ),
}


@pytest.mark.parametrize("name", WARP)
def test_warp_functions(name: str, width: int) -> None:
    written, meaning = WARP[name]
    values = np.random.default_rng(2).integers(0, 3, COUNT).astype(np.int32)
    values[: 2 * width] = np.repeat([1, 0], width)
    want = np.broadcast_to(meaning(values.reshape(-1, width)), (COUNT // width, width))
    np.testing.assert_array_equal(each(written, values), want.ravel())


def test_warp_sync() -> None:
    x = ti.field(ti.i32, COUNT)

    @ti.kernel
    def run():
        for i in range(COUNT):
            ti.simt.warp.sync(ALL)
            x[i] = ti.cast(ti.simt.warp.match_all(ALL, 5) != 0, ti.i32)

    run()
    assert x.to_numpy().all()


# --- in workgroups that the iterations do not fill -----------------------------------------------


def test_exchange_by_xor_in_a_short_workgroup() -> None:
    n = COUNT + 6
    x = ti.field(ti.i32, n)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=COUNT)
        for i in range(n):
            ti.simt.block.sync()
            x[i] = ti.simt.subgroup.shuffle_xor(i, ti.u32(1))

    run()
    np.testing.assert_array_equal(x.to_numpy(), np.arange(n) ^ 1)


def test_sums_of_vectors_in_a_short_workgroup() -> None:
    total, most = ti.Vector.field(2, ti.f32, ()), ti.Vector.field(2, ti.i32, ())

    @ti.kernel
    def run():
        ti.loop_config(block_dim=COUNT)
        for i in range(COUNT + 3):
            ti.simt.block.sync()
            total[None] += ti.Vector([1.0, 2.0])
            ti.atomic_max(most[None], ti.Vector([i, -i]))

    run()
    assert total[None].to_list() == [COUNT + 3, 2 * COUNT + 6]
    assert most[None].to_list() == [COUNT + 2, 0]


@pytest.mark.parametrize("n", [COUNT - 1, COUNT + 1])
def test_a_queue_in_a_short_workgroup(n: int) -> None:
    """The invocations beyond the end see that the queue is empty, and take nothing from it."""
    taken, x = ti.field(ti.i32, ()), ti.field(ti.i32, 300)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=COUNT)
        for _ in range(n):
            ti.simt.block.sync()
            k = ti.atomic_add(taken[None], 1)
            while k < 300:
                x[k] += 1
                k = ti.atomic_add(taken[None], 1)

    run()
    assert (x.to_numpy() == 1).all() and taken[None] == 300 + n


def test_reductions_where_a_condition_of_two_parts_is_false(width: int) -> None:
    """Invocations meet there, whichever part is false."""
    x, y, out = (ti.field(ti.i32, COUNT) for _ in range(3))
    a, b = np.arange(COUNT) % 2, np.arange(COUNT) // 2 % 2
    x.from_numpy(a.astype(np.int32))
    y.from_numpy(b.astype(np.int32))

    @ti.kernel
    def run():
        ti.loop_config(block_dim=COUNT)
        for i in range(COUNT):
            if x[i] > 0 and y[i] > 0:
                out[i] = -1
            else:
                out[i] = ti.simt.subgroup.reduce_add(1)

    run()
    is_out = (a & b) == 0
    counts = is_out.reshape(-1, width).sum(axis=1).repeat(width)
    np.testing.assert_array_equal(out.to_numpy(), np.where(is_out, counts, -1))


# --- beyond the device's subgroups ---------------------------------------------------------------


def test_unanswered_exchanges_are_reported(width: int, caps: Any) -> None:
    if caps.subgroup_size != width:
        pytest.skip("taken for a device with other subgroups")
    steps = [width >> k for k in range(width.bit_length())]  # one too many

    def total(v: Any, i: Any) -> Any:
        for k in ti.static(steps):
            v += ti.simt.subgroup.shuffle_xor(v, ti.u32(k))
        return v

    message = f"shuffle_xor of {width} goes beyond this device's subgroups of {width}"
    with pytest.warns(RuntimeWarning, match=message):
        each(total, np.ones(COUNT, np.int32))


def test_a_scan_for_wide_subgroups_is_right_in_narrow_ones(width: int) -> None:
    """Lanes read their index after the exchange, so undefined answers are not used."""

    def scan(v: Any, i: Any) -> Any:
        for k in ti.static([1, 2, 4, 8, 16, 32]):
            before = ti.simt.subgroup.shuffle_up(v, ti.u32(k))
            if ti.simt.subgroup.invocation_id() >= k:
                v += before
        return v

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = each(scan, np.ones(COUNT, np.int32))
    assert list(found) == [i % width + 1 for i in range(COUNT)]


def test_exchanges_where_the_size_is_asked_for(width: int) -> None:
    """The same sum, over warps of any size; the skipped branch does not warn."""

    def total(v: Any, i: Any) -> Any:
        for k in ti.static([32, 16, 8, 4, 2, 1]):
            if k < ti.simt.subgroup.group_size():
                v += ti.simt.subgroup.shuffle_xor(v, ti.u32(k))
        return v

    assert set(each(total, np.ones(COUNT, np.int32))) == {width}
