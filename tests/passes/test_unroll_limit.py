"""Partial unrolling of loops that drivers would unroll: the same results, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.programs import ALL, EXACT, generate
from tests.ops.cases import same_bits
from vkchi.ir.core import walk
from vkchi.ir.interp import run_reference
from vkchi.ir.ops import NOUNROLL
from vkchi.ir.text import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import PASSES
from vkchi.target import tuning


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short loops are long."""
    monkeypatch.setattr(tuning, "UNROLLED_OPS", (1, 1 << 20))
    monkeypatch.setattr(tuning, "GROUP_OPS", 1 << 20)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed: int) -> None:
    case = generate(seed, ALL if seed % 3 else EXACT)
    new = PASSES["unroll_limit"](case.fn)
    verify(new)
    want, got = (run_reference(f, case.args()) for f in (case.fn, new))
    assert all(np.all(same_bits(want[name], got[name])) for name in want)


@pytest.mark.parametrize(("begin", "end", "size"), [(0, 16, 8), (3, 15, 4), (-5, 5, 2), (0, 7, 0)])
def test_groups(begin: int, end: int, size: int) -> None:
    fn = parse_func(
        f"func @f(%x: array<i32[1]>) {{\n  %a = const {begin} : i32\n  %b = const {end} : i32\n"
        "  %c0 = const 0 : i32\n  %p = elem %x, %c0 [inbounds] : ptr<i32 global>\n"
        "  %v = load %p : i32\n  %r = for %a, %b, %v : i32 {\n    ^(%k: i32, %s: i32)\n"
        "    %m = mul %s, %v : i32\n    %t = add %m, %k : i32\n    yield %t\n  }\n"
        "  store %p, %r\n  yield\n}\n"
    )
    new = PASSES["unroll_limit"](fn)
    verify(new)
    arrays = [{"x": np.array([3], np.int32)} for _ in range(2)]
    want, got = run_reference(fn, arrays[0]), run_reference(new, arrays[1])
    assert want["x"] == got["x"]
    loops = [op for op in walk(new.body) if op.kind == "for"]
    muls = sum(op.kind == "mul" and op.args[1].name == "v" for op in walk(new.body))
    assert len(loops) == 1
    assert (loops[0].attr, muls) == ((NOUNROLL, size) if size else (None, 1))
