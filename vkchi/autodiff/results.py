"""Requests and results of differentiation, as data without IR, so that they can be cached.

Source spans stand for ops. Also makes the errors and warnings about lost derivatives.
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import GradientError, GradientWarning, warn_at
from vkchi.span import Span
from vkchi.target.artifact import Artifact
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple
from vkchi.types import Array

Spans = dict[str, "Span | None"]  # spans of writes, by array name
WORDS = {"grad": "gradient", "dual": "derivative"}
PUT_THERE = "a value with a derivative is put there"


class GradientRequest(NamedTuple):
    """Options of a gradient.

    `differentiable`: names of the arrays that have gradients. `invariant`: arrays that hold the
    kernel's results when the gradient runs, with unchanged values wherever the kernel read them.
    `constant`: arrays without a derivative before the call. `missing`: `error` or `warn` about
    derivatives that get lost.
    """

    differentiable: frozenset[str]
    invariant: frozenset[str] = frozenset()
    constant: frozenset[str] = frozenset()
    missing: str = "error"


class GradientSpec(NamedTuple):
    """A gradient as it is launched.

    `types`: types of adjoints whose memory layout differs from that of their arrays, by name.
    `is_second`: the gradient is differentiated again, along a direction.
    """

    request: GradientRequest
    types: tuple[tuple[str, Array], ...] = ()
    is_second: bool = False


class SaveBufferSize(NamedTuple):
    """Size of a buffer of saved values: [positions, invocations].

    `counts` are the two sizes as expressions for the host. For a None, the counting kernel computes
    the size in the cell of that position in `cells`.
    """

    name: str
    type: Array
    cells: tuple[str, str]
    counts: tuple[Count | None, Count | None]


class CompiledGradient(NamedTuple):
    """A gradient, ready to be launched.

    - `copies`, `counting_copies`: temporary array -> array of the same type and shape;
    - `adjoints`: array -> its adjoint;
    - `stores`, `escapes`: arrays with and without a gradient that receive derivatives;
    - `undefined`: calls of decompositions whose vectors the kernel stores, by number;
    - `has_draws`: the gradient needs random numbers or results of atomics from the kernel's run.
    """

    title: str
    main: Artifact
    counting: Artifact | None
    copies: dict[str, str]
    counting_copies: dict[str, str]
    adjoints: dict[str, str]
    sizes: tuple[SaveBufferSize, ...]
    stores: Spans
    escapes: Spans
    undefined: Spans
    has_draws: bool


class ForwardKernel(NamedTuple):
    """A kernel in forward mode.

    `is_apart`: the values that it writes to the arrays themselves may differ slightly from the
    kernel's.
    """

    artifact: Artifact
    is_apart: bool


class DerivativeOutflow(NamedTuple):
    """Arrays into which a call stores derivatives, with source spans.

    `stores`: arrays with a gradient. `escapes`: arrays without one that hold derivatives
    afterwards. `bits`: arrays that hold bits of such values.
    """

    stores: Spans
    escapes: Spans
    bits: Spans


class FlowTargets(NamedTuple):
    """Arrays that values flow into, with source spans.

    `left` and `bits` are those that hold such values, or their bits, when the kernel ends.
    """

    values: Spans
    left: Spans
    bits: Spans


class MarkedOp(NamedTuple):
    """An access after which a second run of the kernel may have a different result."""

    kind: str
    array: str
    span: Span | None


class MarkingKernel(NamedTuple):
    """A kernel that marks the elements that it stores.

    `shadows`: array -> name and type of its marks. `ops`: the accesses that have an element of
    `NOTED`, in order.
    """

    artifact: Artifact
    shadows: dict[str, tuple[str, Array]]
    ops: tuple[MarkedOp, ...]


def lost_derivative_error(
    name: str, read: Span | None, why: str, put: Span | None, need: str = "grad"
) -> GradientError:
    """The error for an array without gradient or dual that a derivative flows through.

    It shows where the array is read, and where the value is stored in it.
    """
    return GradientError(
        f"the {WORDS[need]} flows through `{name}`, which has none: it would be lost", read,
        notes=((why, put),),
        help=f"make `{name}` a field{' or ndarray' if need == 'grad' else ''} with "
        f"needs_{need}=True, or put ti.stop_grad(...) around the value for a constant (ti.init("
        "missing_gradient='warn') takes all such arrays for constants)",
    )  # fmt: skip


def raise_or_warn(error: GradientError, missing: str, registry: dict[Any, Any]) -> None:
    """Raise the error; if `missing` is `warn`, warn at its span instead, if it has one."""
    if missing != "warn":
        raise error
    span = error.span
    if span is not None:
        text = error.sentence.removesuffix(": it would be lost")
        text += ": what is read counts as constant"
        warn_at(text, GradientWarning, span.file, span.line, registry)
