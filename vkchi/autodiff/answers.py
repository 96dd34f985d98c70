"""What differentiation is asked, and what it answers, as data: so that answers last.

Owns: the records, and the words for derivatives that get lost. Nothing here is an op: where one
matters, its place in the user's file stands for it. Must not know: IR.
"""

from __future__ import annotations

import warnings
from typing import Any

from vkchi.errors import GradientError, GradientWarning
from vkchi.span import Span
from vkchi.target.artifact import Artifact
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple
from vkchi.types import Array

Spans = dict[str, "Span | None"]  # of writes, by the names of their arrays
WORDS = {"grad": "gradient", "dual": "derivative"}
PUT_THERE = "a value with a derivative is put there"


class Request(NamedTuple):
    """What a gradient is asked for: by the arrays of the names `differentiable`. The arrays
    `invariant` it finds as the kernel left them, the arrays `constant` hold no derivative before. A
    derivative that gets lost is an error, or, if `missing` is `warn`, a warning."""

    differentiable: frozenset[str]
    invariant: frozenset[str] = frozenset()
    constant: frozenset[str] = frozenset()
    missing: str = "error"


class GradientSpec(NamedTuple):
    """A gradient as it is launched: `types` are those of adjoints that do not lie in memory as
    their arrays do, by name; `is_second` asks for its derivative along a direction."""

    request: Request
    types: tuple[tuple[str, Array], ...] = ()
    is_second: bool = False


class Size(NamedTuple):
    """How large the buffer `name` of kept values is: positions times invocations, of which the
    host can compute `counts`. Where it cannot (None), cells of these names tell, which the counting
    kernel fills."""

    name: str
    type: Array
    cells: tuple[str, str]
    counts: tuple[Count | None, Count | None]


class Differentiated(NamedTuple):
    """A gradient, ready to be launched. `copies` and `counting_copies` map arrays of its own to
    those that they are like; `adjoints` names of arrays to those of their adjoints; `stores` and
    `escapes` are the arrays with and without gradient into which the kernel puts derivatives;
    `undefined` are calls of decompositions whose vectors it stores, by number; `has_draws` says
    that it needs what the kernel drew."""

    title: str
    main: Artifact
    counting: Artifact | None
    copies: dict[str, str]
    counting_copies: dict[str, str]
    adjoints: dict[str, str]
    sizes: tuple[Size, ...]
    stores: Spans
    escapes: Spans
    undefined: Spans
    has_draws: bool


class Along(NamedTuple):
    """A kernel in forward mode; if it `is_apart`, what it writes to the arrays themselves is only
    close to what the kernel writes."""

    artifact: Artifact
    is_apart: bool


class Outflow(NamedTuple):
    """The arrays with a gradient that a call puts derivatives into, and where; those without that
    hold some afterwards, or bits of such values."""

    stores: Spans
    escapes: Spans
    bits: Spans


class Flow(NamedTuple):
    """The arrays that something goes on to, and where; those that hold it, or bits of it, when the
    kernel ends."""

    values: Spans
    left: Spans
    bits: Spans


class MarkedOp(NamedTuple):
    """An access after which doing a kernel again may be something else."""

    kind: str
    array: str
    span: Span | None


class Marked(NamedTuple):
    """A kernel that marks what it stores: of the arrays that it does so for, the names of their
    marks and the types of these; the accesses that have an element of `NOTED`, in order."""

    artifact: Artifact
    shadows: dict[str, tuple[str, Array]]
    ops: tuple[MarkedOp, ...]


def lost(
    name: str, read: Span | None, why: str, put: Span | None, need: str = "grad"
) -> GradientError:
    """The error for an array that a derivative flows through and that has no gradient or dual:
    where it is read, and where a value is put there."""
    return GradientError(
        f"the {WORDS[need]} flows through `{name}`, which has none: it would be lost", read,
        notes=((why, put),),
        help=f"make `{name}` a field{' or ndarray' if need == 'grad' else ''} with "
        f"needs_{need}=True, or put ti.stop_grad(...) around the value for a constant (ti.init("
        "missing_gradient='warn') takes all such arrays for constants)",
    )  # fmt: skip


def let_pass(error: GradientError, missing: str, registry: dict[Any, Any]) -> None:
    """Raises the error, unless `missing` is `warn`: then a warning says so, at the line that
    reads."""
    if missing != "warn":
        raise error
    span = error.span
    if span is not None:
        text = error.sentence.removesuffix(": it would be lost")
        text += ": what is read counts as constant"
        warnings.warn_explicit(text, GradientWarning, span.file, span.line, registry=registry)
