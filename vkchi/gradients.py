"""Lowered kernel x arrays with gradients -> shaders of its gradient, or of its forward mode.

Owns: the order of the steps. Must not know: devices but by Caps, launches, tapes.
"""

from __future__ import annotations

from typing import NamedTuple

from vkchi.autodiff.forward import forward
from vkchi.autodiff.refusals import check_repeatable
from vkchi.autodiff.reverse import Gradient, reverse
from vkchi.caps import Caps
from vkchi.compiler import Built, build, show
from vkchi.ir.core import Func
from vkchi.ir.verify import verify
from vkchi.options import Options
from vkchi.passes.pipeline import load_pass


class CompiledGradient(NamedTuple):
    """A gradient as dispatches, and what sizes its buffers, if it has any."""

    made: Gradient
    main: Built
    counting: Built | None


def build_gradient(
    fn: Func, differentiable: frozenset[str], options: Options, caps: Caps
) -> CompiledGradient:
    """The gradient of a lowered kernel by its arrays of these names. Raises GradientError."""
    return finish(differentiate(fn, differentiable), options, caps)


def build_second(
    fn: Func, differentiable: frozenset[str], options: Options, caps: Caps
) -> CompiledGradient:
    """The derivative of that gradient along a direction: forward mode over reverse mode, with a
    `NAME.dual` for every array of floats in it. Raises GradientError."""
    made = differentiate(fn, differentiable)
    own = (*made.copies, *made.adjoints.values(), *(s.param.name for s in made.saves))
    func = forward(made.func, differentiable | frozenset(own))
    verify(func)
    return finish(made._replace(func=load_pass("unread")(func)), options, caps)


def differentiate(fn: Func, differentiable: frozenset[str]) -> Gradient:
    """The gradient, freed of what is not read. Raises GradientError."""
    made = reverse(prepare(fn), differentiable)
    show("grad", made.func)
    verify(made.func)
    made = made._replace(func=load_pass("unread")(made.func))
    check_repeatable(made.func)
    return made


def finish(made: Gradient, options: Options, caps: Caps) -> CompiledGradient:
    """The gradient as dispatches."""
    counting = None
    if made.counting is not None and made.saves_used():
        counting = build(made.counting.func, options, caps)
    return CompiledGradient(made, build(made.func, options, caps), counting)


def build_forward(
    fn: Func, differentiable: frozenset[str], options: Options, caps: Caps
) -> tuple[Func, Built]:
    """The kernel with derivatives along the duals of these arrays. Raises GradientError."""
    made = forward(prepare(fn), differentiable)
    show("grad", made)
    verify(made)
    return made, build(made, options, caps)


def prepare(fn: Func) -> Func:
    """A lowered kernel without what is known to be dead: there is less to differentiate."""
    for name in ("simplify", "dce"):
        fn = load_pass(name)(fn)
    return fn
