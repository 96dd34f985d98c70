"""Host computations as differentiable steps: sparse matrix products, linear solves.

A numpy result (the entries of a matrix, a solution) has an account in the ledger, which holds its
gradient. A numpy result that the user receives loses its derivative, unless the user stores it
unchanged into an array with a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.fields.elements import ArrayAccess, TracedFloat
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.runtime import find_runtime
from vkchi.tape.ledger import HostAccount
from vkchi.tape.log import TapeStep
from vkchi.types import Scalar
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]
    Input = Storage | Values


class HostFunction(Protocol):
    @property
    def who(self) -> str:
        pass

    def value(self, *inputs: Values) -> Values:
        pass

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        """Return the adjoints of the inputs, in order. Raises GradientError if there are none.

        `slope` is the adjoint of `result`, the value for these inputs.
        """


class HostStep(TapeStep):
    """A recorded host computation.

    Inputs and output are arrays, or accounts of earlier host results.
    """

    def __init__(
        self, function: HostFunction, inputs: Sequence[Storage | HostAccount | Values],
        found: Sequence[Values], result: Values, output: Storage | HostAccount,
    ) -> None:  # fmt: skip
        self.function, self.inputs, self.output = function, inputs, output
        self.found, self.result = [np.array(x) for x in found], np.array(result)

    @property
    def size_bytes(self) -> int:
        return sum(x.nbytes for x in (*self.found, self.result))

    def repeat(self) -> None:
        result = self.function.value(*map(values_of, self.inputs))
        if isinstance(self.output, Storage):
            self.output.put_unnoticed(result)
        else:
            self.output.memory[...] = result

    def run(self) -> None:
        """Add to the adjoints of the inputs, and set the adjoint of the result to 0."""
        slope = take_slope(self.output)
        if slope.any():
            slopes = self.function.slopes(slope, self.result, self.found)
            for x, more in zip(self.inputs, slopes, strict=True):
                add_slope(x, more)


class HostNumber:
    """Place of a number (`TracedFloat`) that Python got from a host computation. `result` is the
    numpy array of shape () that a recording may have an account of."""

    def __init__(self, result: Values) -> None:
        self.result = result


def traced_number(result: Values) -> Any:
    """The number in an array of shape (). A recording that has recorded the array recognizes a
    float if Python stores it (`Recording.store_number`)."""
    number = result.item()
    return TracedFloat(number, HostNumber(result)) if type(number) is float else number


def values_of(x: Storage | HostAccount | Values) -> Values:
    if isinstance(x, Storage):
        return x.contents()
    return x.memory if isinstance(x, HostAccount) else x


def take_slope(x: Storage | HostAccount) -> Values:
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
    if isinstance(x, HostAccount) and x.slope is not None:
        x.slope += slope
    gradient = x.companion("grad") if isinstance(x, Storage) else None
    if gradient is not None:
        gradient.put_unnoticed(gradient.contents() + slope)


def run_host_function(
    function: HostFunction, inputs: Sequence[Input], elem: Scalar | None = None, *,
    is_shown: bool = False,
) -> Any:  # fmt: skip
    """Return the value of a function of arrays, and record the computation if a recording does so.

    The result is an ndarray of `elem`, or a numpy array if that is None. If a recording is active
    but does not record the step, derivatives are marked as lost. With `is_shown`, the user receives
    the result: its derivative is lost unless it is stored into an array unchanged.
    """
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
    for x in inputs:
        if isinstance(x, Storage):
            x.tell(ArrayAccess("read"))


class IdentityFunction:
    who = "from_numpy()"

    def value(self, *inputs: Values) -> Values:
        return inputs[0]

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        return (slope.reshape(inputs[0].shape),)


def current_tape() -> Any:
    runtime = find_runtime()
    return runtime.tape if runtime is not None else None


def in_ndarray(values: Values, elem: Scalar, *, needs_grad: bool) -> Any:
    made = ndarray(elem, values.shape, needs_grad)
    made.put_unnoticed(values)
    return made
