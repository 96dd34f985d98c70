"""Kernels with derivatives along a direction, launched in their place.

Owns: `ForwardPlan`. Must not know: tapes.
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import GradientError
from vkchi.ir.names import DUAL
from vkchi.launch.executable import Arrays
from vkchi.tape import facts
from vkchi.tape.calls import Call, types_apart
from vkchi.tape.variants import Variant


class ForwardPlan:
    """A kernel with derivatives along the duals of some arrays. Where
    derivatives are taken of other values (`is_apart`), it runs on copies, before the kernel."""

    def __init__(self, call: Call, duals: Arrays) -> None:
        types = tuple(types_apart(call, duals, DUAL).items())
        made = facts.along(call.plan, frozenset(duals), types, call.missing)
        self.is_apart = made.is_apart
        if self.is_apart:
            self._check_repeatable(call)
        self.variant = Variant(call, made.artifact)

    def _check_repeatable(self, call: Call) -> None:
        """Raises GradientError if the kernel does something else the second time."""
        why = "draws random numbers" if call.plan.draws else "depends on the order of iterations"
        if call.plan.draws or facts.depends_on_order(call.plan):
            raise GradientError(
                f"forward mode through singular values or eigenvalues runs {call.name}() twice, "
                f"which {why}", call.plan.func.span,
                help="do that in a kernel of its own, and keep what it gives in a field",
            )  # fmt: skip

    def run(self, call: Call, args: tuple[Any, ...], duals: Arrays) -> Any:
        """Do the call; the duals become those of its results. What the kernel returns."""
        own = {k + DUAL: v for k, v in duals.items()}
        if not self.is_apart:
            return self.variant.run(call, {**call.arrays, **own})
        self.variant.rehearse(call, own)
        return call.plan.launch(args)


def plan_forward(call: Call, duals: Arrays, of: str) -> ForwardPlan:
    """The call's forward mode, made once per plan; `of` says whose duals these are. Raises
    GradientError."""
    key = of, frozenset(duals)
    return call.plan.derived.forward.find(key, lambda: ForwardPlan(call, duals))
