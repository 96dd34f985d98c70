"""Lowered kernel x arrays with gradients -> shaders of its gradient, or of its forward mode.

Owns: the order of the steps. Must not know: devices but by Caps, launches, tapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vkchi.autodiff.forward import forward
from vkchi.autodiff.refusals import check_repeatable, check_second
from vkchi.autodiff.reverse import Gradient, reverse
from vkchi.caps import Caps
from vkchi.compiler import Built, build, show
from vkchi.ir.core import Func, Param, Value
from vkchi.ir.rebuild import Rebuilder
from vkchi.ir.verify import verify
from vkchi.options import Options
from vkchi.passes.pipeline import load_pass
from vkchi.types import Array


class CompiledGradient(NamedTuple):
    """A gradient as dispatches, and what sizes its buffers, if it has any."""

    made: Gradient
    main: Built
    counting: Built | None


Types = Mapping[str, Array]  # of parameters by name


def build_gradient(
    fn: Func, differentiable: frozenset[str], types: Types, options: Options, caps: Caps
) -> CompiledGradient:
    """The gradient of a lowered kernel by its arrays of these names. `types` are those of adjoints
    that do not lie in memory as their arrays do. Raises GradientError."""
    made = differentiate(fn, differentiable)
    return finish(made._replace(func=lay_out(made.func, types)), options, caps)


def build_second(
    fn: Func, differentiable: frozenset[str], types: Types, options: Options, caps: Caps
) -> CompiledGradient:
    """The derivative of that gradient along a direction: forward mode over reverse mode, with a
    `NAME.dual` for every array of floats in it. Raises GradientError."""
    made = differentiate(fn, differentiable)
    check_second(made.primal)
    own = (*made.copies, *made.adjoints.values(), *(s.param.name for s in made.saves))
    func = forward(made.func, differentiable | frozenset(own))
    verify(func)
    func = lay_out(
        load_pass("unread")(func), {**types, **{f"{k}.dual": t for k, t in types.items()}}
    )
    return finish(made._replace(func=func), options, caps)


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
    fn: Func, differentiable: frozenset[str], types: Types, options: Options, caps: Caps
) -> tuple[Func, Built]:
    """The kernel with derivatives along the duals of these arrays. Raises GradientError."""
    made = lay_out(forward(prepare(fn), differentiable), types)
    show("grad", made)
    verify(made)
    return made, build(made, options, caps)


def lay_out(fn: Func, types: Types) -> Func:
    """The Func with other types, of the same elements, for some of its arrays."""
    new: dict[Value, Param] = {
        p: Param(types[p.name], p.name) for p in fn.params if p.name in types
    }
    if not new:
        return fn
    rebuilder = Rebuilder(lambda b, op, args: None)
    rebuilder.map.update(new)
    params = tuple([new.get(p, p) for p in fn.params])
    return Func(fn.name, params, rebuilder.region(fn.body), fn.span)


def prepare(fn: Func) -> Func:
    """A lowered kernel without what is known to be dead: there is less to differentiate."""
    for name in ("simplify", "dce"):
        fn = load_pass(name)(fn)
    return fn
