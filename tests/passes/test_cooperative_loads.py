"""Cooperative loads in the interpreter, whose subgroups have one invocation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vkchi.ir.core import Func, Program, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.loops.serial.broadcast import broadcast_loads, load_cooperatively
from vkchi.target.caps import FULL

GOLDEN = Path(__file__).parents[1] / "golden" / "passes" / "broadcast"
N = 128
PROCESSOR = FULL._replace(kind="cpu", subgroup_size=8)


def golden(name: str) -> Func:
    """A golden's kernel, of fewer iterations."""
    text = (GOLDEN / f"{name}.chi").read_text().split("; expect:")[0]
    return parse_func(text.replace("4096", str(N)))


def kinds(fn: Func) -> list[str]:
    return [op.kind for op in walk(fn.body)]


@pytest.mark.parametrize(("name", "m"), [("row", 0), *[("length", m) for m in (1, 2, 3, 17)]])
def test_alone_in_a_subgroup(name: str, m: int) -> None:
    fn = golden(name)
    after = load_cooperatively(fn, 1)
    verify(after)
    assert "subgroup_broadcast" in kinds(after)
    numbers = np.random.default_rng(3).integers(-9, 9, 9000).astype(np.float32)
    given = {"w": numbers, "x": numbers[::-1].copy(), "y": np.zeros(N, np.float32)}
    names = {p.name for p in fn.params}
    arguments = {k: v for k, v in {**given, "m": np.int32(m)}.items() if k in names}
    before, found = (
        run_reference(Program("rows", (f,)), {**arguments, "y": given["y"].copy()})
        for f in (fn, after)
    )
    assert np.array_equal(before["y"], found["y"])
    assert before["y"].any()


@pytest.mark.parametrize(
    "caps",
    [
        FULL,
        PROCESSOR._replace(subgroup_ballot=False),
        PROCESSOR._replace(subgroup_vote=False),
        PROCESSOR._replace(subgroup_size=1),
    ],
)
def test_other_devices_are_unchanged(caps: object) -> None:
    fn = golden("row")
    assert broadcast_loads(fn, caps) is fn  # type: ignore[arg-type]
    assert broadcast_loads(fn, PROCESSOR) is not fn
