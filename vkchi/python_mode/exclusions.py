"""Kernels that do not run as plain Python, and parts of programs that differ in this mode.

`EXCLUDED` and `DIFFERENT` are the list in docs/language/debugging.md.
"""

from __future__ import annotations

from vkchi.ir.core import Func, walk
from vkchi.ir.ops import GROUPED, SYNCS
from vkchi.tuples import NamedTuple


class Exclusion(NamedTuple):
    """Kernels that raise an error: those with one of these ops.

    `subject` is the user's name of them, and the subject of the error's sentence.
    """

    subject: str
    kinds: frozenset[str]


class Difference(NamedTuple):
    """A part of programs, and its behaviour in this mode."""

    subject: str
    behaviour: str


EXCLUDED = (
    Exclusion(
        "operations of workgroups and subgroups (`ti.simt`), shared arrays",
        frozenset({*GROUPED, *SYNCS, "shared"}),
    ),
)
DIFFERENT = (
    Difference(
        "gradients, tapes, forward mode; graphs and `ti.record`; exported modules",
        "run on the device, without stops",
    ),
    Difference("kernels of vkchi itself, such as solvers and `ti.algorithms`", "run on the device"),
    Difference("recursive real functions", "run as Python, without stops in them"),
    Difference(
        "functions of Python that run at compile time, and change objects",
        "run at each launch, and once before the first and after each change of values that they "
        "read",
    ),
    Difference(
        "a failed check of debug mode", "raises at once; the remaining iterations do not run"
    ),
    Difference("sums of f16 in a loop", "are rounded at each addition, not once"),
    Difference("lines that kernels print", "appear immediately, and their number has no limit"),
    Difference('`ti.init(debug="nan")`', "reports nothing"),
    Difference(
        "`ti.profiler`", "lists only kernels that run on the device, such as those in tapes"
    ),
    Difference("races in debug mode", "are not reported: iterations run in order"),
)
NOT_RUN = "kernels with them do not run as Python"  # in the error of each excluded kernel


def exclusion_of(fn: Func) -> str | None:
    """Return the error of a kernel that does not run as Python; None for others."""
    for op in walk(fn.body):
        for row in EXCLUDED:
            if op.kind in row.kinds:
                place = f"{op.span.place}: " if op.span is not None else ""
                return f"{place}{row.subject}: {NOT_RUN}"
    return None
