"""Reports without a device: reports of kernels in the interpreter, before and after the passes;
reading of records; no cost for kernels without reports."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.unit.kernels import Field, Func, define, lower
from vkchi.errors import InternalError
from vkchi.frontend.lowering import Lowered
from vkchi.ir.interp import InterpreterReport, run_reference
from vkchi.ir.parse import parse_func
from vkchi.ir.verify import verify
from vkchi.opt.mapping.map_grid import map_grid, plan_grid
from vkchi.opt.pipeline import lower_dispatch as lowered_of
from vkchi.opt.pipeline import optimize_kernel
from vkchi.reports.delivery import check_error
from vkchi.reports.sites import (
    ReportRecord,
    ReportSite,
    ValuePlaceholder,
    read_lines,
    record_starts,
)
from vkchi.span import Span
from vkchi.spirv import emit
from vkchi.target.caps import FULL
from vkchi.target.options import Options
from vkchi.target.shader import REPORTS


def texts(lowered: Lowered, reports: list[InterpreterReport]) -> list[str]:
    """Text of reports, the iterations of a loop in order."""
    return [lowered.sites[r.site].text([np.asarray(v).tolist() for v in r.values]) for r in reports]


def tell(fn: Any, bound: dict[str, Any], *args: Any, **options: Any) -> list[str]:
    """Reports of a kernel, interpreted; the same after all passes."""
    lowered = lower(fn, *args, **options)
    program, _ = optimize_kernel(lowered.func, FULL, Options(**options))
    told: list[list[InterpreterReport]] = [[], []]
    for code, reports in zip((lowered.func, program), told):
        copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in bound.items()}
        run_reference(code, copies, reports)
    before, after = (texts(lowered, reports) for reports in told)
    assert before == after
    return before


def prints(x: ti.f32, n: ti.i32) -> None:
    print("begin", x, ti.Vector([n, n + 1]))
    for i in range(n):
        if i % 2 == 0:
            print(f"{i}: {x * i:.1f}", end=";")
    print("end")


def test_print_reports() -> None:
    told = tell(prints, {"x": 1.5, "n": 3}, None, None)
    assert told == ["begin 1.500000 [3, 4]\n", "0: 0.0;", "2: 3.0;", "end\n"]


def sums(n: ti.i32, x: ti.types.ndarray(dtype=ti.i32, ndim=1)) -> None:
    total = 0
    for i in range(n):
        total += x[i]
        print(i, x[i])
    print(total)


def test_prints_around_a_reduction() -> None:
    x = np.arange(5, dtype=np.int32)
    told = tell(sums, {"n": 5, "x": x}, None, x)
    assert told == [*(f"{i} {i}\n" for i in range(5)), "10\n"]


def checks(n: ti.i32, x: ti.types.ndarray(dtype=ti.i32, ndim=1)) -> None:
    for i in range(n):
        assert i != 1, f"i is {i}"
        x[i] = 10 // (i - 2)


def test_failed_checks_end_their_iteration() -> None:
    x = np.zeros(4, np.int32)
    told = tell(checks, {"n": 5, "x": x}, None, x, debug=True)
    assert told == [
        "assertion failed: i is 1",
        "integer division by zero: 10 by 0",
        "index out of bounds: accessing `x` of size (4) with indices (4)",
    ]


def test_release_has_no_checks() -> None:
    x = np.zeros(5, np.int32)
    lowered = lower(checks, None, x)
    assert lowered.sites == ()
    program, _ = optimize_kernel(lowered.func, FULL, Options())
    for fn in program.funcs:
        shader = emit(lowered_of(fn, FULL), plan_grid(map_grid(fn, FULL), FULL), FULL, "checks")
        assert REPORTS not in [slot.param for slot in shader.slots]


def test_reports_ask_for_their_buffer() -> None:
    program, _ = optimize_kernel(lower(prints, None, None).func, FULL, Options())
    for fn in program.funcs:
        shader = emit(lowered_of(fn, FULL), plan_grid(map_grid(fn, FULL), FULL), FULL, "prints")
        assert [s.kind for s in shader.slots if s.param == REPORTS] == ["ptr"]


def test_checks_that_cannot_fail_are_not_made() -> None:
    x = Field(np.zeros((4, 4), np.float32))
    fn = define("def k():\n    x[1, 2] = 7 // 2 + x[3, 3]\n", x=x)
    assert lower(fn, debug=True).sites == ()


def test_iteration_of_a_parallel_loop() -> None:
    @Func
    def inner(i: Any) -> Any:
        assert i < 4
        return i

    fn = define(
        "def k():\n"
        "    for i, j in ti.ndrange(2, 3):\n"
        "        inner(i + j)\n"
        "    for I in ti.grouped(ti.ndrange(2, 3)):\n"
        "        inner(I.sum())\n",
        inner=inner,
    )
    sites = [s for s in lower(fn, debug=True).sites if s.kind == "assertion"]
    assert [[name for name, _ in s.iteration] for s in sites] == [["i", "j"], ["I"]]
    assert sites[0].where([1, 2]) == "in the iteration i = 1, j = 2"
    assert sites[1].where([1, 2]) == "in the iteration I = [1, 2]"


# --- records -------------------------------------------------------------------------------------


def words(*records: bytes) -> Any:
    return np.frombuffer(b"".join(records), "<u4")


NUMBERS = ReportSite(
    "line",
    (
        ValuePlaceholder(0),
        " ",
        ValuePlaceholder(1, "x"),
        " ",
        ValuePlaceholder(2),
        " ",
        ValuePlaceholder(3),
        " ",
        ValuePlaceholder(4, ".1f"),
    ),
    (("i8", ()), ("u64", ()), ("f64", ()), ("u1", (2,)), ("f16", ())),
)


def test_values_of_every_width() -> None:
    record = struct.pack("<IIiQdIIf", 6, 9, -3, 1 << 40, 0.25, 1, 0, 1.5)
    (found,) = read_lines(words(record), {5: NUMBERS})
    assert found.thread == 9 and len(record) == 4 * NUMBERS.words
    assert NUMBERS.text(found.values) == "-3 10000000000 0.250000000000 [1, 0] 1.5"


def test_lines_are_ordered_by_dispatch_and_invocation() -> None:
    sites = {
        0: ReportSite("line", ("a", ValuePlaceholder(0)), (("i32", ()),), dispatch=1),
        1: ReportSite("line", ("b",), dispatch=0),
    }
    records = [(1, 4, 0), (1, 2, 1), (2, 7), (1, 4, 2), (2, 3)]
    found = read_lines(words(*(struct.pack(f"<{len(r)}I", *r) for r in records)), sites)
    assert [(r.thread, r.site.text(r.values)) for r in found] == [
        (3, "b"), (7, "b"), (2, "a1"), (4, "a0"), (4, "a2"),
    ]  # fmt: skip


def test_sites_that_say_the_same_are_kept_apart() -> None:
    site = ReportSite("line", ("same",))
    found = read_lines(words(struct.pack("<6I", 1, 0, 2, 0, 1, 1)), {0: site, 1: site})
    assert len(found) == 3


def test_reading_stops_where_a_line_was_lost() -> None:
    site = ReportSite("line", ("a",))
    assert len(read_lines(words(struct.pack("<6I", 1, 0, 1, 1, 0, 0)), {0: site})) == 2


def test_unknown_site() -> None:
    with pytest.raises(InternalError, match="site 3"):
        record_starts([4, 0], {})


def test_message_of_a_failed_check() -> None:
    outer = Span("gone.py", 9, 5, 9, 9, "k")
    span = Span("gone.py", 4, 3, 4, 7, "f", outer)
    site = ReportSite(
        "assertion", ("bad ", ValuePlaceholder(0)), (("i32", ()),), span, (("i", (0,)),)
    )
    assert site.message([3]) == (
        "gone.py:4:3: bad 3\n"
        "      in f(), called from k() at gone.py:9:5\n"
        "note: in the iteration i = 3"
    )


# --- valid IR ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("report_line %x [0]", "takes the invocation's index first"),
        ("report_line [0]", "takes the invocation's index first"),
        ("report_line %t, %a [0]", "reports numbers and tensors"),
        ("report_failure %t", "has the attr None"),
        ('report_failure %t ["x"]', "has the attr 'x'"),
    ],
)
def test_wrong_reports(line: str, words: str) -> None:
    head = "func @f(%x: f32, %a: array<f32[?]>) {\n %t = thread_index : i32\n "
    fn = parse_func(f"{head}{line}\n yield\n}}\n")
    with pytest.raises(InternalError, match=words):
        verify(fn)


def test_a_lost_first_failure_is_mentioned() -> None:
    site = ReportSite("assertion", ("wrong",))
    failed = [ReportRecord(site, 5, ())]
    assert "before" not in str(check_error(failed, 100))
    assert "before" not in str(check_error(failed, 100, 5))
    assert "an iteration before this one failed too" in str(check_error(failed, 100, 0))
