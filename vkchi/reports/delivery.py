"""Report buffer of a device, and delivery of its reports in Python.

The buffer is allocated when a kernel that may report is first launched. Printed lines go to
standard output, overflows become warnings. Of the recorded failed checks, the first is raised.

    reports.deliver(sites)      # after a launch was recorded; waits for it
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from vkchi.errors import (
    ArgumentError,
    KernelAssertionError,
    KernelBoundsError,
    KernelDivisionError,
    KernelNanError,
    KernelOverflowWarning,
    KernelRangeError,
    warn_at,
)
from vkchi.interrupts.local import local
from vkchi.reports.sites import (
    CURSOR,
    FAILURE_SLOTS,
    FAILURE_WORDS,
    FAILURES,
    FAILURES_AT,
    FIRST,
    FLAGS_AT,
    LINE_WORDS,
    LINES_AT,
    LOST,
    SLOTS_USED,
    ReportRecord,
    ReportSite,
    dispatch_order,
    read_lines,
    read_records,
)
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.span import Span

WORD_BYTES = 4
ERRORS: dict[str, type[KernelAssertionError]] = {
    "assertion": KernelAssertionError,
    "depth": KernelAssertionError,
    "bounds": KernelBoundsError,
    "division": KernelDivisionError,
    "range": KernelRangeError,
    "nan": KernelNanError,
}


class ReportBuffer:
    """The reports of one device's kernels.

    `buffer` is zero between launches, except for the slots of failed checks. If an exception
    prevented delivery, the whole buffer is cleared before the next launch.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.buffer = device.allocate((LINES_AT + LINE_WORDS) * WORD_BYTES)
        self._is_clear = True
        self.warned: dict[Any, Any] = {}  # registry of `warnings`
        self.first: dict[tuple[str, Span], str] = {}

    def expect(self) -> None:
        """Clear the buffer if necessary. Call it before recording a launch that may report."""
        if not self._is_clear:
            self._device.fill(self.buffer, 0, self.buffer.size_bytes, 0)
        self._is_clear = False

    def deliver(self, sites: dict[int, ReportSite], *, is_muted: bool = False) -> None:
        """Wait for the recorded launch, then print, warn and raise its reports.

        `is_muted`: the launch is a replay; it neither prints nor warns. Raises KernelAssertionError
        or a subclass of it if a check failed. It reports the first one, by dispatch and invocation,
        of at most FAILURE_SLOTS recorded ones. Without one, errors of printing and warnings that
        are turned into errors propagate. Raises InternalError for a line of an unknown site.
        """
        head = self._read(0, FLAGS_AT).tolist()
        used, lost, failures = head[CURSOR], head[LOST], head[FAILURES]
        if not used and not failures:
            self._is_clear = True
            return
        lines = read_lines(self._read(LINES_AT, min(used, LINE_WORDS)), sites)
        slots = self._read(FAILURES_AT, min(head[SLOTS_USED], FAILURE_SLOTS) * FAILURE_WORDS)
        failed = read_failures(slots, sites)
        is_lossy = head[SLOTS_USED] > FAILURE_SLOTS
        least = head[FIRST] ^ 0xFFFFFFFF if is_lossy else None
        self._clear(0, FAILURES_AT)
        self._clear(LINES_AT, min(used, LINE_WORDS))
        self._is_clear = True
        try:
            if not is_muted:
                print_lines(lines, lost)
                self.warn(lines)
        except local(Exception):
            if failed:  # a failed check is more important than a print error
                raise check_error(failed, failures, least) from None
            raise
        if failed:
            raise check_error(failed, failures, least)

    def _read(self, at: int, count: int) -> Any:
        return np.frombuffer(self.buffer.read(at * WORD_BYTES, count * WORD_BYTES), "<u4")

    def _clear(self, at: int, count: int) -> None:
        self.buffer.write(at * WORD_BYTES, np.zeros(count, "<u4"))

    def warn(self, lines: list[ReportRecord]) -> None:
        """Warn of overflows. By default, Python shows each site's warning once per device. Python
        compares the text, so the text of the first warning is reused whatever the later values."""
        for record in lines:
            site = record.site
            if site.kind == "overflow" and site.span is not None:
                text = f"{site.text(record.values)} {site.where(record.values)}".rstrip()
                text = self.first.setdefault((text.partition(":")[0], site.span), text)
                file, line = site.span.file, site.span.line
                warn_at(text, KernelOverflowWarning, file, line, self.warned)


def print_lines(lines: list[ReportRecord], lost: int) -> None:
    """Print the output of kernels' `print`, and the number of lost lines. Raises ArgumentError if
    standard output is closed, OSError as Python's own print does."""
    text = "".join([r.site.text(r.values) for r in lines if r.site.kind == "line"])
    if lost:
        text += f"vkchi: {lost} more printed lines of this launch were lost: too many at once\n"
    try:
        print(escape_unencodable(text), end="")
    except local(ValueError) as e:
        raise ArgumentError(f"a kernel printed, but standard output takes nothing: {e}") from None


def escape_unencodable(text: str) -> str:
    """Escape (`\\xe9`) the characters that standard output cannot encode.

    Python's own print would lose the whole text. The text is unchanged if standard output has an
    error handler other than `strict`, or an unknown encoding.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    errors = getattr(sys.stdout, "errors", None) or "strict"
    if errors != "strict":
        return text
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:  # standard output was replaced by another object
        return text


def read_failures(slots: Any, sites: dict[int, ReportSite]) -> list[ReportRecord]:
    """Return the failed checks in these slots, ordered by dispatch and invocation."""
    found: list[ReportRecord] = []
    for at in range(0, len(slots), FAILURE_WORDS):
        site = sites[int(slots[at]) - 1]
        found += read_records(slots, site, [at])
    return sorted(found, key=dispatch_order)


def check_error(
    failed: list[ReportRecord], count: int, least: int | None = None
) -> KernelAssertionError:
    """Return the error for the first of the recorded failed checks; `count` is the number of all.
    `least`: the invocation of the first one, if its record may have been lost."""
    first = failed[0]
    message = first.site.message(first.values)
    if least is not None and all(record.thread > least for record in failed):
        message += "\nnote: an iteration before this one failed too"
    if count > 1:
        others = "another check" if count == 2 else f"{count - 1} other checks"
        message += f"\nnote: {others} failed in this launch"
    return ERRORS[first.site.kind](message)
