"""Remarks of the compiler as plain data: warnings about a source, decisions about loops, accesses.

The cache stores warnings with the compiled kernel, so a process that loads it issues the same. Code
that decides appends a record to a log, if there is one, for `kernel.explain`.

    issue_warnings(compiled.interface.cautions)
    record(log, Decision("atomic", op.span, "several iterations may update one element"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vkchi.errors import (
    ConstantWarning,
    ConversionWarning,
    KernelRaceWarning,
    KernelTypeError,
    SerialLoopWarning,
    UnrollWarning,
    warn_line,
)
from vkchi.span import Span, render_chain
from vkchi.target.shader import Count, Read, compile_count
from vkchi.tuples import NamedTuple

KINDS: dict[str, type[Warning]] = {
    "conversion": ConversionWarning, "constant": ConstantWarning, "unroll": UnrollWarning,
    "race": KernelRaceWarning, "serial": SerialLoopWarning,
}  # fmt: skip
MOST_SERIAL = 10_000  # iterations of a serial loop without a warning
STRICT = ("conversion", "constant")  # kinds that are errors under `ti.init(strict=True)`


class Caution(NamedTuple):
    """A warning about a location in the user's source. `kind` is a key of `KINDS`; `{line}` in
    `sentence` and `help` is replaced by the line of `origin`, if there is one."""

    kind: str
    sentence: str
    help: str
    span: Span
    origin: Span | None = None

    @property
    def advice(self) -> str:
        return fill_line(self.help, self.origin)

    def text(self) -> str:
        lines = [fill_line(self.sentence, self.origin), *render_chain(self.span)]
        return "\n".join([*lines, f"help: {self.advice}"] if self.help else lines)

    def error(self) -> KernelTypeError:
        sentence = fill_line(self.sentence, self.origin)
        return KernelTypeError(sentence, self.span, help=self.advice)


class LoopCaution(NamedTuple):
    """A warning that a launch issues if a loop has more than MOST_SERIAL iterations. `{count}` in
    the caution's sentence is replaced by their number."""

    trips: Count
    caution: Caution

    def compiled(self, read: Read) -> Callable[[Any], None]:
        """Return a function of the launch's values that issues the warning, at most once. If
        warnings are errors, it raises the warning each time."""
        count, is_told = compile_count(self.trips, read), False

        def warn(flat: Any) -> None:
            nonlocal is_told
            if not is_told and (n := count(flat)) > MOST_SERIAL:
                issue_warnings([self.counted(n)])  # raises where warnings are errors
                is_told = True

        return warn

    def counted(self, n: int) -> Caution:
        caution = self.caution
        return caution._replace(sentence=caution.sentence.replace("{count}", f"{n:,}"))


def fill_line(text: str, origin: Span | None) -> str:
    return text.replace("{line}", str(origin.line)) if origin is not None else text


def issue_warnings(cautions: Iterable[Caution]) -> None:
    for caution in cautions:
        warn_line(caution.text(), KINDS[caution.kind], caution.span)


class Decision(NamedTuple):
    """A decision about a location in the user's source.

    - kind: such as "parallel", "serial", "dispatch", "refused", "atomic", "unproved" or "copy".
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


class Refusal:
    """The reason why a policy leaves a loop as it is. It is false, so that a condition may return
    it in place of False. `{line}` in the reason is the line of `origin`.

        return len(ops) <= MOST or Refusal("its body is too long")
    """

    __slots__ = ("origin", "reason")

    def __init__(self, reason: str, origin: Span | None = None) -> None:
        self.reason, self.origin = reason, origin

    def __bool__(self) -> bool:
        return False


Verdict = bool | Refusal


def record_refusal(
    log: Log | None, technique: str, span: Span | None, found: object, name: str = ""
) -> None:
    """Append the reason why a transformation was not applied, if `found` is a Refusal. `name` is
    that of the dispatch. Loops that passes made have no `span` and no record."""
    if log is not None and span is not None and isinstance(found, Refusal):
        reason = f"no {technique}: {found.reason}"
        record(log, Decision("refused", span, reason, origin=found.origin, name=name))


def record(log: Log | None, decision: Decision) -> None:
    """Append a decision to a log, unless the log is None or has an equal one."""
    if log is not None and decision not in log:
        log.append(decision)
