"""Decisions of the compiler about loops and accesses, as plain data for `kernel.explain`.

The code that decides appends a record to a log, if there is one.

    log: list[Decision] = []
    record(log, Decision("atomic", op.span, "several iterations may update one element"))
"""

from __future__ import annotations

from vkchi.span import Span
from vkchi.target.cautions import fill_line
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple


class Decision(NamedTuple):
    """A decision about a location in the user's source.

    - kind: such as "parallel", "serial", "dispatch", "atomic", "unproved" or "copy".
    - reason: a phrase; `{line}` is the line of `origin`.
    - help: advice that can be typed, or "".
    - trips: iterations of a loop, or bytes; None if the host cannot compute it.
    - name: the array or argument concerned.
    - is_sparse: the iterations of a loop are the cells of a sparse block, inactive ones included.
    """

    kind: str
    span: Span | None
    reason: str = ""
    help: str = ""
    origin: Span | None = None
    trips: Count | None = None
    name: str = ""
    is_sparse: bool = False

    @property
    def text(self) -> str:
        return fill_line(self.reason, self.origin)


Log = list[Decision]


def record(log: Log | None, decision: Decision) -> None:
    """Append a decision to a log, unless the log is None or has an equal one."""
    if log is not None and decision not in log:
        log.append(decision)
