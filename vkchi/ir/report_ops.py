"""Rows of ops that tell the host something: printed lines, warnings, failed checks.

An op names its site, a number that the kernel's table of sites (`vkchi.reports.sites`) explains:
what text the values stand in, and which line of the user's program it is. The first argument is the
index of the invocation that reports, the others are the values. Reports of one invocation stay in
order, and nothing is said of the order between invocations.

    report_line %thread, %x [3]         ; print(x)
    report_failure %thread, %i [4]      ; assert i < n: the invocation ends here

Owns: those rows and `REPORTS`. Must not know: other rows, what a site says.
"""

from __future__ import annotations

from typing import Any

from vkchi.ir.sig import SignatureError
from vkchi.ir.table import Effect, Trait, add_row, list_types
from vkchi.types import Scalar, Tensor, Type, i32

REPORTS = {
    "report_line": "append these values to what the launch prints",
    "report_once": "the same, but only for the first invocation of a launch that comes here",
    "report_failure": "note a failed check; the invocation may end here",
}


def _report(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not ts or ts[0] is not i32:
        raise SignatureError(f"takes the invocation's index first, not {list_types(ts)}")
    if not all(isinstance(t, Scalar | Tensor) for t in ts):
        raise SignatureError(f"reports numbers and tensors, not {list_types(ts)}")
    return None


for _name, _doc in REPORTS.items():
    add_row(_name, _report, None, _doc, Effect.REPORT, attr="site: int", traits=Trait.LOWERED)
