"""Warnings about a kernel's source, as plain data.

They are kept with the compiled kernel, so that a process that finds it in the cache gives them too.

    tell(compiled.interface.cautions)
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
    """A warning of a kind of `KINDS` about a place in the user's file. In `help`, `{line}` stands
    for the line of `origin`."""

    kind: str
    sentence: str
    help: str
    span: Span
    origin: Span | None = None

    @property
    def advice(self) -> str:
        """The help with its line."""
        return self.help.replace("{line}", str(self.origin.line)) if self.origin else self.help

    def text(self) -> str:
        """The warning: sentence, calls that lead to the line, help."""
        lines = [self.sentence, *render_chain(self.span)]
        return "\n".join([*lines, f"help: {self.advice}"] if self.help else lines)

    def error(self) -> KernelTypeError:
        """The warning as an error at its line."""
        return KernelTypeError(self.sentence, self.span, help=self.advice)


def tell(cautions: Iterable[Caution]) -> None:
    """Give warnings at their lines; by default Python shows one per line and kind."""
    for caution in cautions:
        warn_line(caution.text(), KINDS[caution.kind], caution.span)
