"""Op table rows for reports to the host: printed lines, warnings, failed checks.

An op's attr is a site: an index into the kernel's table of sites (`vkchi.reports.sites`). A site
holds the message and the source line. The first argument is the index of the reporting invocation,
the others are the values. Lines of one invocation stay in order; there is no order between
invocations.

    report_line %thread, %x [3]         ; print(x)
    report_failure %thread, %i [4]      ; assert i < n: the invocation may end here
    report_first %thread, %x [5]        ; a stored value is not finite
"""

from __future__ import annotations

from typing import Any

from vkchi.ir.op_table.sig import SignatureError
from vkchi.ir.op_table.table import Effect, Trait, add_row, list_types
from vkchi.types import Scalar, Tensor, Type, i32

REPORTS = {
    "report_line": "append these values to what the launch prints",
    "report_once": "the same, but only for the first invocation of a launch that comes here",
    "report_failure": "note a failed check; the invocation may end here",
    "report_first": "note a failed check; the invocation goes on",
}


def _report(ts: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    if not ts or ts[0] is not i32:
        raise SignatureError(f"takes the invocation's index first, not {list_types(ts)}")
    if not all(isinstance(t, Scalar | Tensor) for t in ts):
        raise SignatureError(f"reports numbers and tensors, not {list_types(ts)}")
    return None


for _name, _doc in REPORTS.items():
    add_row(_name, _report, None, _doc, Effect.REPORT, attr="site: int", traits=Trait.LOWERED)
