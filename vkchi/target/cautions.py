"""Warnings about a kernel's source, as plain data.

The cache stores them with the compiled kernel, so a process that loads it issues the same warnings.

    issue_warnings(compiled.interface.cautions)
"""

from __future__ import annotations

from collections.abc import Iterable

from vkchi.errors import (
    ConstantWarning,
    ConversionWarning,
    KernelRaceWarning,
    KernelTypeError,
    UnrollWarning,
    warn_line,
)
from vkchi.span import Span, render_chain
from vkchi.tuples import NamedTuple

KINDS: dict[str, type[Warning]] = {
    "conversion": ConversionWarning, "constant": ConstantWarning, "unroll": UnrollWarning,
    "race": KernelRaceWarning,
}  # fmt: skip
STRICT = ("conversion", "constant")  # kinds that are errors under `ti.init(strict=True)`


class Caution(NamedTuple):
    """A warning about a location in the user's source. `kind` is a key of `KINDS`; `{line}` in
    `help` is replaced by the line of `origin`."""

    kind: str
    sentence: str
    help: str
    span: Span
    origin: Span | None = None

    @property
    def advice(self) -> str:
        """The help text with `{line}` filled in."""
        return self.help.replace("{line}", str(self.origin.line)) if self.origin else self.help

    def text(self) -> str:
        """Return the full message: sentence, call chain, help."""
        lines = [self.sentence, *render_chain(self.span)]
        return "\n".join([*lines, f"help: {self.advice}"] if self.help else lines)

    def error(self) -> KernelTypeError:
        """Return the warning as a KernelTypeError at its span."""
        return KernelTypeError(self.sentence, self.span, help=self.advice)


def issue_warnings(cautions: Iterable[Caution]) -> None:
    """Issue the warnings at their source lines; by default Python shows one per line and kind."""
    for caution in cautions:
        warn_line(caution.text(), KINDS[caution.kind], caution.span)
