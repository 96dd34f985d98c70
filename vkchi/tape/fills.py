"""Numbers that Python puts into all of an array with a gradient inside a tape: an input of the
program, or a constant of it?

Owns: `Fill`. They are an input, and the array's gradient is the derivative by them, as long as it
does not get lost. Where it would, in an array without gradient, they are taken for constants: so a
solver may begin with `x.fill(0)`. Then the array's gradient is not known, and reading it is an
error. Must not know: tapes, kernels.
"""

from __future__ import annotations

import math

from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.span import Span, user_span

Note = tuple[str, Span | None]


class Fill:
    """One of an array."""

    def __init__(self, array: Storage) -> None:
        self.array, self.span = array, user_span()
        self.lost: tuple[Note, ...] = ()

    def settle(self, lost: tuple[Note, ...]) -> None:
        """It is a constant: the derivative by it gets lost, as these notes say."""
        self.lost = self.lost or lost

    def forbid(self, gradient: Storage) -> None:
        """See to it that nobody takes what stands in the array's gradient for one."""
        gradient.fill(math.nan)
        gradient.watch = self.on_access

    def on_access(self, gradient: Storage, access: Access) -> None:
        """Python is about to access the gradient. Raises GradientError if it reads it."""
        if access.kind == "read" or access.is_sum:
            raise GradientError(
                f"the gradient of {self.array!r} is not known: Python put numbers into it inside "
                "the tape, which were taken for constants, for the derivative by them gets lost",
                user_span(), notes=(("Python put them there", self.span), *self.lost),
                help="put them there before the tape: then an error says what needs a gradient",
            )  # fmt: skip
        if access.at is None:
            gradient.watch = None
