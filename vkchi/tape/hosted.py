"""What the host computes from arrays, as steps of tapes: products with sparse matrices, solutions
of systems with them.

Owns: `Function`, what can be computed; `compute`; the steps. A result in numpy (the entries
of a matrix, a solution) has an account, and its slope there. One that the user gets has no
derivative: it is noted as lost (`breaks`), and refused where a derivative is to flow through it,
unless all of it is put into an array. Must not know: matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.runtime import running
from vkchi.tape.ledger import HostAccount
from vkchi.tape.log import Step
from vkchi.types import Scalar
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]
    Input = Storage | Values


class Function(Protocol):
    """A function of arrays that can be differentiated."""

    @property
    def who(self) -> str:
        """What users call it."""

    def value(self, *inputs: Values) -> Values:
        """Its result."""

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        """The slopes by the inputs, given the one by the result. Raises GradientError."""


class HostStep(Step):
    """A recorded computation: its inputs and output are arrays, or accounts of what the host has
    computed, which have their slopes."""

    def __init__(
        self, function: Function, inputs: Sequence[Storage | HostAccount | Values],
        found: Sequence[Values], result: Values, output: Storage | HostAccount,
    ) -> None:  # fmt: skip
        self.function, self.inputs, self.output = function, inputs, output
        self.found, self.result = [np.array(x) for x in found], np.array(result)

    @property
    def size_bytes(self) -> int:
        """What it holds."""
        return sum(x.nbytes for x in (*self.found, self.result))

    def repeat(self) -> None:
        """Compute it again, from what the arrays hold now."""
        result = self.function.value(*map(values_of, self.inputs))
        if isinstance(self.output, Storage):
            self.output.put_unnoticed(result)
        else:
            self.output.memory[...] = result

    def run(self) -> None:
        """Add to the slopes of the inputs; that of the result is used up."""
        slope = take_slope(self.output)
        if slope.any():
            slopes = self.function.slopes(slope, self.result, self.found)
            for x, more in zip(self.inputs, slopes, strict=True):
                add_slope(x, more)


def values_of(x: Storage | HostAccount | Values) -> Values:
    """What an input holds now; nobody is told."""
    if isinstance(x, Storage):
        return x.contents()
    return x.memory if isinstance(x, HostAccount) else x


def take_slope(x: Storage | HostAccount) -> Values:
    """The slope by a result, which is 0 from now on."""
    if isinstance(x, HostAccount):
        slope, x.slope = x.slope, np.zeros(x.memory.shape)
        assert slope is not None
        return slope
    gradient = x.companion("grad")
    assert gradient is not None
    slope = gradient.contents().astype(np.float64)
    gradient.fill(0)
    return slope


def add_slope(x: Storage | HostAccount | Values, slope: Values) -> None:
    """Add to the slope by an input, if it has one."""
    if isinstance(x, HostAccount) and x.slope is not None:
        x.slope += slope
    gradient = x.companion("grad") if isinstance(x, Storage) else None
    if gradient is not None:
        gradient.put_unnoticed(gradient.contents() + slope)


def compute(
    function: Function, inputs: Sequence[Input], elem: Scalar | None = None, *,
    is_shown: bool = False,
) -> Any:  # fmt: skip
    """The function's result: an ndarray of `elem`; without one, in numpy, as the entries of a
    matrix are. Tapes record it, or, like forward mode, are told that derivatives get lost: those of
    what the user `is_shown`, unless it is put into an array as it is."""
    tape = current_tape()
    is_recorded = tape is not None and tape.may_record(inputs)
    if is_shown or not is_recorded:
        tell_read(inputs)
    found = [values_of(x) for x in inputs]
    result = function.value(*found)
    output = result if elem is None else in_ndarray(result, elem, needs_grad=is_recorded)
    if is_recorded:
        tape.record(function, inputs, found, result, output)
    if tape is not None and (is_shown or not is_recorded):
        way = f"{function.who} took it from there here"
        tape.note_detached(inputs, output, way, is_shown=is_recorded)
    return output


def tell_read(inputs: Sequence[Input]) -> None:
    """Say that Python reads these."""
    for x in inputs:
        if isinstance(x, Storage):
            x.tell(Access("read"))


class Copied:
    """What Python put into an array as it was."""

    who = "from_numpy()"

    def value(self, *inputs: Values) -> Values:
        """The same."""
        return inputs[0]

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        """The same."""
        return (slope.reshape(inputs[0].shape),)


def current_tape() -> Any:
    """What records now, if anything does."""
    runtime = running()
    return runtime.tape if runtime is not None else None


def in_ndarray(values: Values, elem: Scalar, *, needs_grad: bool) -> Any:
    """An ndarray of these numbers."""
    made = ndarray(elem, values.shape, needs_grad)
    made.put_unnoticed(values)
    return made
