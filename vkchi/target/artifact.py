"""What the compiler gives, as plain data: dispatches, arrays they are bound to, what they report.

Owns: the records; whatever was compiled is one, a kernel, its gradient, a trial or a copy. Nothing
in them lives: arrays are names with types, places in the user's files are spans. So artifacts can
be pickled, stored, sent to another process and run there. Must not know: ops, devices, launches.

    artifact = build(fn, options, caps)
    Executable(runtime, artifact).launch(...)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.reports.sites import Site
from vkchi.span import Span
from vkchi.target.cautions import Caution
from vkchi.target.shader import Check, Count, Shader
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, Type


class Fill(NamedTuple):
    """So many bytes from the beginning of an array, all set to a word of 32 bits."""

    name: str
    word: int
    size_bytes: int


class Dispatch(NamedTuple):
    """One shader and the parameters whose memory it reads and writes, by name. `fills`: what does
    the same, if anything."""

    shader: Shader
    reads: frozenset[str]
    writes: frozenset[str]
    fills: tuple[Fill, ...] = ()


class IrText(NamedTuple):
    """IR as text; `places[k]` is the index in `spans` of the k-th op's, in the order of the text;
    the last place is that of the Func. `hints` are the names that values have as hints, those of
    each op's results, then of its regions' parameters, in that order."""

    text: str
    spans: tuple[Span | None, ...]
    places: tuple[int, ...]
    hints: tuple[str, ...]


class Artifact(NamedTuple):
    """One compiled Func.

    arrays: types of the array parameters, by name; temps: of arrays that a launch must provide
    besides; sites: numbers of the reports that are left, and the dispatch each stands in; limits:
    what launches must check of the lengths of loops; ir: the Func that it was made of, where it was
    asked for; work: how many ops a launch does, how often (`analysis.work`); has_next: whether a
    second compile, not for the first tier, gives better code.
    """

    name: str
    dispatches: tuple[Dispatch, ...]
    arrays: dict[str, Array]
    temps: dict[str, Array]
    sites: dict[int, int]
    limits: tuple[Check, ...]
    ir: IrText | None = None
    work: tuple[tuple[int, Count], ...] = ()
    has_next: bool = False

    @property
    def used(self) -> frozenset[str]:
        """The arrays that any dispatch reads or writes."""
        return self.reads | self.writes

    @property
    def reads(self) -> frozenset[str]:
        """The arrays that any dispatch reads."""
        return frozenset(name for d in self.dispatches for name in d.reads)

    @property
    def writes(self) -> frozenset[str]:
        """The arrays that any dispatch writes."""
        return frozenset(name for d in self.dispatches for name in d.writes)

    def sites_among(self, known: Sequence[Site]) -> dict[int, Site]:
        """The reports that are left, each with its dispatch; `known` are those of the kernel."""
        if not known:
            return {}
        return {n: known[n]._replace(dispatch=k) for n, k in self.sites.items()}


# What a launch binds to a parameter: ("arg", name), ("grad", name) for the gradient of an ndarray
# argument, ("field", function, path) for what the kernel's source names so (`self.grid.v`), the
# function by its number in `Interface.functions`, ("return", index), ("seed",).
Binding = tuple[Any, ...]


class Interface(NamedTuple):
    """What a kernel's launch binds and gives: `bindings` by parameter name; `returns` the types of
    the numbers, vectors and matrices that it returns, `results` those of whole values, structs
    among them; whether it `returns_tuple`, even of one; `sites` what it may report, by number;
    `checks` what arguments must be like; `draws` whether it draws random numbers; `cautions`
    warnings about its source."""

    bindings: dict[str, Binding]
    returns: tuple[Scalar | Tensor, ...]
    results: tuple[Type, ...]
    returns_tuple: bool
    sites: tuple[Site, ...]
    checks: tuple[Check, ...]
    cautions: tuple[Caution, ...] = ()

    @property
    def draws(self) -> bool:
        """Whether the kernel draws random numbers."""
        return any(binding[0] == "seed" for binding in self.bindings.values())
