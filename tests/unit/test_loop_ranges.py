"""Loops run as often as Python's `range` says, at the ends of integer types: the interpreter."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vkchi as ti
from tests.counts import read_mapping
from tests.unit.kernels import lower, run
from tests.unit.ranges import columns, corners, expected_all, kernels_of
from vkchi.analysis.values.host_numbers import COUNTS, LEAVES, BoundedCount, host_number, limits
from vkchi.errors import CompilationError
from vkchi.frontend.control.loop_limits import GIVEN, ROOTS
from vkchi.ir.op_table.semantics import trip_count
from vkchi.ir.ops import TABLE
from vkchi.target.magic import MAGIC
from vkchi.target.shader import compile_count
from vkchi.types import i32

TYPES = [ti.i8, ti.u8, ti.i16, ti.u16, ti.i32, ti.u32, ti.i64, ti.u64]


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("which", [0, 1], ids=["runs_on", "may_break"])
def test_serial_loops_at_the_corners(t: Any, which: int) -> None:
    kernel = list(kernels_of(t))[which]
    ranges = corners(t)
    index = np.int64 if t.bits == 64 else np.int32
    out = np.zeros((len(ranges), 4), index)
    run(kernel, *columns(ranges, t), out)
    found = [tuple(row) for row in out.tolist()]
    assert dict(zip(ranges, found)) == dict(zip(ranges, expected_all(ranges, t)))


NUMBERS = {t: st.integers(*(int(n) for n in (np.iinfo(t.dtype).min, np.iinfo(t.dtype).max)))
           for t in TYPES}  # fmt: skip


@pytest.mark.parametrize("t", TYPES, ids=str)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_trip_count_is_the_length_of_a_range(t: Any, data: Any) -> None:
    begin, end, step = (data.draw(NUMBERS[t]) for _ in range(3))
    with np.errstate(all="ignore"):
        found = trip_count(*(t.dtype.type(n) for n in (begin, end, step)))
    length = max(0, -((begin - end) // step)) if step else 0
    assert int(found) == length
    assert TABLE["trip_count"].infer((t, t, t), None, None).dtype == found.dtype


SMALL = st.integers(-6, 6)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(ends=st.tuples(*[SMALL] * 6))
def test_intervals_of_trip_counts_hold(ends: tuple[int, ...]) -> None:
    pairs = [sorted(ends[k : k + 2]) for k in (0, 2, 4)]
    low, high = limits("trip_count", [BoundedCount(("const", 0), *pair) for pair in pairs])
    spans = [range(pair[0], pair[1] + 1) for pair in pairs]
    for b in spans[0]:
        for e in spans[1]:
            for s in spans[2]:
                assert low <= (len(range(b, e, s)) if s else 0) <= high


def test_trip_counts_of_host_and_frontend_agree() -> None:
    made_by_passes = set(MAGIC)  # they run when loops have their counts
    assert (GIVEN | ROOTS | {"extract"}) - made_by_passes == COUNTS | set(LEAVES)


def test_hosts_count_stepped_ranges_exactly() -> None:
    def kernel(a: ti.i32, b: ti.i32, s: ti.i32):
        for i in range(a, b, s):
            pass

    op = lower(kernel, 0, 0, 1).func.body.ops[-2]
    assert op.kind == "parallel"
    number = host_number(op.args[1])
    assert number is not None
    count = compile_count(number.expr, read_mapping)
    for begin, end, step in corners(i32):
        assert count({"a": begin, "b": end, "s": step}) == len(range(begin, end, step))


@pytest.mark.parametrize(
    "text, words",
    [
        ("range(3, 9, 0)", "the step of a range cannot be 0"),
        ("range(n, 9, 0)", "the step of a range cannot be 0"),
        ("ti.static(range(3, 9, 0))", "the step of a range cannot be 0"),
        ("range(2**70)", "beyond 64 bits"),
        ("range(n, 2**70)", "beyond 64 bits"),
        ("ti.ndrange(2**40, 2**40)", "beyond 64 bits"),
        ("ti.static(range(2**70))", "unrolled"),
        ("ti.static(range(2**40))", "unrolled"),
        ("ti.static(ti.ndrange(2**20, 2**20))", "unrolled"),
    ],
)
def test_ranges_that_raise_at_compile_time(text: str, words: str) -> None:
    from tests.unit.kernels import define

    target = "i, j" if text.startswith("ti.ndrange") else "i"
    kernel = define(f"def k(n: ti.i32):\n    for {target} in {text}:\n        pass\n")
    with pytest.raises(CompilationError, match=words) as caught:
        lower(kernel, 1)
    assert ("step" not in words) or isinstance(caught.value, ValueError)
