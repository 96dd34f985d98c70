"""Reasons why policies leave loops as they are, by goldens of passes (`target.remarks.Refusal`).

`tests/e2e/test_explain.py` tests how `kernel.explain` prints them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from vkchi.ir.text import parse, print_func
from vkchi.opt import pipeline
from vkchi.opt.memo import Memo
from vkchi.target.caps import FULL
from vkchi.target.options import Options
from vkchi.target.remarks import Log, Refusal, record_refusal

GOLDEN = Path(__file__).parents[1] / "golden" / "passes"
DEVICES = {"CPU": pipeline.CPU, "GPU": FULL}
TIED = "iterations synchronize, report, draw random numbers, or depend on invocations or workgroups"
# pass, folder/golden, device -> line of the loop or atomic, and the reason
REASONS = [
    ("fusion", "fusion/apart", "CPU", [(12, "arrays that are accessed may overlap in memory")]),
    ("fusion", "fusion/axes", "CPU", [(23, "they traverse memory in different orders")]),
    ("fusion", "fusion/between", "GPU", [(30, "code between them, such as line 29, needs the first "
                                              "and is needed by the second")]),
    ("fusion", "fusion/reports", "GPU", [(13, TIED)]),
    ("fusion", "fusion/stencil", "GPU", [
        (16, "line 20 may read elements that other iterations write"),
        (25, "line 31 may write elements that other iterations write"),
        (34, "their bounds differ")]),
    ("peel", "peel/odd", "CPU", [(28, "its conditions on indices are not decided in three quarters "
                                      "of its iterations")]),
    ("peel", "peel/odd", "GPU", []),
    ("bins", "bins/left", "GPU", [(38, "the array is too large for workgroup memory, or for the "
                                       "loop's iterations")]),
    ("jam", "jam/left", "CPU", [(8, "adjacent iterations share too few loads of its serial "
                                    "loops")]),
    ("jam", "jam/left", "GPU", [(8, "too few invocations would be left to keep the device busy")]),
    ("jam", "jam/straight", "CPU", [
        (20, "too few of its accesses are contiguous along the last axis"),
        (28, "its first iteration is not aligned, or its length no known multiple")]),
    ("unroll", "unroll/left", "GPU", [(20, "its body branches, writes memory or synchronizes")]),
    ("unroll", "unroll_words/left", "CPU", [
        (9, "invocations share its loads (cooperative loads)"),
        (16, "fewer than a quarter of its accesses are contiguous and aligned"),
        (23, "fewer than a quarter of its accesses are contiguous and aligned"),
        (31, "arrays that it accesses may overlap")]),
    ("lanes", "lanes/left", "CPU", [
        (9, "line 15 may write elements that other iterations read"),
        (18, "an iteration needs variables of the previous one"),
        (25, "it has too few iterations, as far as is known at compile time"),
        (31, "line 42 may write elements that other iterations read"),
        (33, "line 42 may write elements that other iterations read"),
        (37, "it has too few iterations, as far as is known at compile time")]),
    ("broadcast", "broadcast/left", "CPU", [(13, "it may write the arrays that it loads from")]),
    ("scatter", "gather/far", "GPU", [(13, "computing its value once more costs more than the "
                                           "atomics")]),
    ("scatter", "gather/kept", "GPU", [
        (15, "the loop accesses the array, or memory that its value needs, in another way"),
        (49, "its subscripts are no indices of the loop plus offsets"),
        (50, "its subscripts are no indices of the loop plus offsets"),
        (60, "the loop accesses the array, or memory that its value needs, in another way"),
        (61, "the loop accesses the array, or memory that its value needs, in another way")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "golden", "device", "expected"), REASONS)
def test_reasons(name: str, golden: str, device: str, expected: list[tuple[int, str]]) -> None:
    text = (GOLDEN / f"{golden}.chi").read_text().partition("; expect:")[0]
    found = []
    for fn in parse(text).funcs:
        log: Log = []
        given = pipeline.given_to(DEVICES[device], Options(), Memo(log))
        made = pipeline.run_pass(name, fn, given)
        silent = pipeline.given_to(DEVICES[device], Options(), Memo())
        assert print_func(made) == print_func(pipeline.run_pass(name, fn, silent))
        for d in log:
            if d.kind == "refused" and d.span is not None:
                found.append((d.span.line, d.text.partition(": ")[2]))
    assert found == expected


def test_a_refusal_is_false_and_recorded_only_if_there_is_one() -> None:
    log: Log = []
    verdict = Refusal("it is long")
    assert not verdict and (verdict and True) is verdict
    span = parse("func @f() {\n  yield\n}").funcs[0].body.ops[0].span
    for found in (verdict, False, None, (1, 2)):
        record_refusal(log, "fusion", span, found)
    record_refusal(log, "fusion", None, verdict)
    record_refusal(None, "fusion", span, verdict)
    assert [d.text for d in log] == ["no fusion: it is long"]
