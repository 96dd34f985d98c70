"""Distribution of loop iterations over several axes to invocations: each is run once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from vkchi.ir import iteration_space
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, Value
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.mapping import share
from vkchi.opt.mapping.map_grid import map_grid
from vkchi.opt.mapping.rows import copy_body
from vkchi.opt.mapping.share import ThreadBudget, partition_iterations
from vkchi.target.caps import Caps
from vkchi.types import Array, i32

EXTENTS = [
    (1, 1),
    (3, 5),
    (5, 3),
    (2, 70),
    (70, 2),
    (4, 8),
    (3, 2, 5),
    (2, 2, 2, 3),
    (0, 4),
    (4, 0),
]
BEGINS = (0, -7, 3, 0)


def loop_over(
    extents: tuple[int, ...], kind: str, is_numbered: bool = False
) -> tuple[Func, dict[str, object]]:
    """A loop that counts its accesses, or numbers them from 1 on; bounds are constants, arguments,
    or in memory."""
    n, b = len(extents), Builder()
    out, at = Param(Array.of(i32, n), "out"), Param(Array.of(i32, 1), "at")
    given = [Param(i32, f"n{k}") for k in range(n)]
    bounds: list[Value] = []
    indices = [Param(i32, "ijkl"[k]) for k in range(n)]
    with b.region() as body:
        for k, extent in enumerate(extents):
            begin = b.const(BEGINS[k], i32)
            stored = b.emit("load", b.emit("elem", at, b.const(k, i32)))
            end = {"const": b.const(BEGINS[k] + extent, i32), "given": given[k], "found": stored}
            bounds += [begin, end[kind]]
        with b.region(*indices) as inner:
            keys = [b.emit("sub", i, begin) for i, begin in zip(indices, bounds[::2])]
            add = b.emit("add", b.emit("thread_index"), b.const(1, i32)) if is_numbered else None
            b.emit("atomic_add", b.emit("elem", out, *keys), add or b.const(1, i32))
            b.emit("yield")
        b.parallel(bounds, inner)
        b.emit("yield")
    ends = [BEGINS[k] + n for k, n in enumerate(extents)]
    values: dict[str, object] = {f"n{k}": np.int32(end) for k, end in enumerate(ends)}
    values |= {"out": np.zeros(extents, np.int32), "at": np.array(ends, np.int32)}
    return Func("f", (out, at, *given), body), values


def shared(fn: Func, crowd: ThreadBudget) -> Func:
    """The Func with its loop partitioned."""
    ops = [op for op in fn.body.ops if op.kind != "parallel"][:-1]
    (loop,) = (op for op in fn.body.ops if op.kind == "parallel")
    b, t = Builder(), Param(i32, "t")
    with b.region() as body:
        for op in ops:
            b.insert(op)
        found = partition_iterations(b, loop, loop.args, crowd)
        with b.region(t) as inner:
            found.emit(b, t, lambda indices, number: copy_body(b, loop, indices, number))
            b.emit("yield")
        b.parallel((b.const(0, i32), found.threads), inner)
        b.emit("yield")
    new = Func("g", fn.params, body)
    verify(new)
    return new


@pytest.mark.parametrize("kind", ["const", "given", "found"])
@pytest.mark.parametrize(
    "crowd",
    [ThreadBudget(*n, has_subgroups=True) for n in ((4, 2), (16, 4), (8, 8), (6, 3))],
    ids=str,
)
def test_every_iteration_is_run_once(kind: str, crowd: ThreadBudget) -> None:
    for extents in EXTENTS:
        fn, values = loop_over(extents, kind)
        run_reference(shared(fn, crowd), values)
        assert (np.asarray(values["out"]) == 1).all(), extents


@pytest.mark.parametrize("most", [1, 2, 5, 9, 24])
def test_axes_that_are_too_long_together_are_strided_loops(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where i32 counts no further than `most`."""
    monkeypatch.setattr(share, "INT_MAX", most)
    for extents, crowd in product(
        EXTENTS, [ThreadBudget(4, 2, has_subgroups=True), ThreadBudget(6, 3, has_subgroups=True)]
    ):
        fn, values = loop_over(extents, "found")
        run_reference(shared(fn, crowd), values)
        assert (np.asarray(values["out"]) == 1).all(), extents


@pytest.mark.parametrize("most", [1, 2, 5, 9, 24, 1000])
def test_iterations_keep_their_numbers(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by which random streams differ, also where i32 counts no further than `most`."""
    monkeypatch.setattr(share, "INT_MAX", most)
    for extents in EXTENTS:
        fn, values = loop_over(extents, "found", is_numbered=True)
        run_reference(shared(fn, ThreadBudget(4, 2, has_subgroups=True)), values)
        numbers = 1 + np.arange(np.prod(extents)).reshape(extents)
        np.testing.assert_array_equal(np.asarray(values["out"]), numbers)


@pytest.mark.parametrize(
    "extents", [(0, 70000, 70000), (70000, 0, 70000), (70000, 70000, 0), (70000, 70000, 1)]
)
def test_loops_along_an_empty_axis_are_not_too_long(extents: tuple[int, ...]) -> None:
    at, out = Param(Array.of(i32, 1), "at"), Param(Array.of(i32, 1), "out")
    b = Builder()
    with b.region() as body:
        ends = [b.emit("load", b.emit("elem", at, b.const(k, i32))) for k in range(3)]
        bounds = [v for end in ends for v in (b.const(0, i32), end)]
        fits, total = iteration_space.checked_iteration_count(
            b, iteration_space.space_of(b, bounds), iteration_space.INT_MAX
        )
        for k, v in enumerate((b.emit("cast", fits, type=i32), b.emit("bitcast", total, type=i32))):
            b.emit("store", b.emit("elem", out, b.const(k, i32)), v)
        b.emit("yield")
    values = {"at": np.array(extents, np.int32), "out": np.zeros(2, np.int32)}
    run_reference(Func("f", (at, out), body), values)
    fits_and_total = values["out"].tolist()
    assert fits_and_total == [1, 0] if 0 in extents else fits_and_total[0] == 0


def test_no_division_is_left_in_the_body() -> None:
    """But where an invocation begins."""
    fn, _ = loop_over((500, 700), "const")
    (loop,) = (
        op
        for op in map_grid(fn, Caps(kind="cpu", subgroup_size=8)).body.ops
        if op.kind == "parallel"
    )
    inner = next(op for op in loop.regions[0].ops if op.kind == "for").regions[0]
    assert not {op.kind for op in inner.ops} & {"mod", "rem", "floordiv", "truncdiv"}


def test_the_host_counts_all_axes_together() -> None:
    assert iteration_space.INT_MAX == share.INT_MAX
