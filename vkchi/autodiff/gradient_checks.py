"""Checks for kernels without a correct gradient: lost derivatives, and nondeterministic ops.

`check_lost`, `check_bits`, `check_reaches` and `check_second` check a kernel; `check_repeatable`
checks its gradient.
"""

from __future__ import annotations

from vkchi.autodiff.primal import (
    ActivityAnalysis,
    BitDependence,
    PrimalAnalysis,
    is_smooth_array,
    name_under,
)
from vkchi.autodiff.reaching import ReachingWrites
from vkchi.autodiff.results import PUT_THERE, lost_derivative_error, raise_or_warn
from vkchi.autodiff.rules import RULES, SHARED, is_smooth
from vkchi.errors import GradientError, LostValueError
from vkchi.ir.core import ADJOINT, SCRATCH, Func, Op, Param, Value, base_memory, used_in, walk
from vkchi.ir.ops import UPDATES


def check_lost(primal: PrimalAnalysis, reach: ReachingWrites, missing: str) -> None:
    """Raise GradientError if a derivative flows through an array that has no gradient.

    That is: an active value is stored in the array and read later to compute an output that has a
    gradient. If `missing` is `warn`, it warns instead.
    """
    for op, reader in reach.losses(primal.active, primal.differentiable):
        raise_or_warn(
            lost_derivative_error(name_under(op), reader.span, PUT_THERE, op.span), missing, {}
        )


def check_bits(
    reach: ReachingWrites, active: ActivityAnalysis, differentiable: frozenset[str]
) -> None:
    """Raise GradientError if a derivative flows through the bits of a float.

    That is: a float computed from the bits of an active value is stored in an array of
    `differentiable`, directly or through other values.
    """
    seeds = reach.taken_bits(active)
    if not seeds:
        return
    made = reach.made_of(reach.spread(frozenset(seeds), BitDependence)[1])
    made += [op for op in seeds if is_smooth(op)]
    flow = reach.flow(frozenset(made)) if made else {}
    if not differentiable.isdisjoint(flow):
        raise GradientError(
            "the gradient flows through the bits of a number: it would be lost", made[0].span,
            notes=(("the bits of a value with a derivative are taken here", seeds[0].span),),
            help="put ti.stop_grad(...) around the value whose bits are taken",
        )  # fmt: skip


def check_reaches(primal: PrimalAnalysis, constants: frozenset[str]) -> None:
    """Raise GradientError if a separate call of the gradient would have no effect.

    That is: no derivative reaches an array with a gradient, although one of them depends smoothly
    on an array without. Arrays in `constants` do not count.
    """
    fn, ours = primal.fn, primal.differentiable
    if primal.active.stores:
        return
    others = frozenset(p.name for p in fn.params if is_smooth_array(p) and p.name not in ours)
    for name in sorted(others - constants):
        for target, op in ActivityAnalysis(fn, frozenset({name})).escapes.items():
            if target in ours:
                raise GradientError(
                    f"the gradient of `{target}` would be lost: `{name}`, which it depends on "
                    "here, has none", op.span,
                    help=f"make `{name}` with needs_grad=True, a tensor with requires_grad=True",
                )  # fmt: skip


def check_second(primal: PrimalAnalysis) -> None:
    """Raise GradientError for active ops that have only first derivatives."""
    for op in walk(primal.fn.body):
        if op.kind == "stop_first_grad" and op.args[0] in primal.active:
            raise GradientError(
                "only first derivatives flow through singular values, eigenvalues and polar "
                "decompositions",
                op.span, help="take differences of the gradient",
            )  # fmt: skip


def check_repeatable(fn: Func) -> None:
    """Raise GradientError for ops in a gradient's Func that cannot be recomputed.

    These are random numbers, used results of atomics on copies of the kernel's memory, and ops that
    share values between invocations (rule SHARED). Precondition: unused reads were removed (pass
    `unread`).
    """
    changing = find_nondeterministic(fn)
    for op in walk(fn.body):
        if op.kind == "random" or (op in changing and is_copy(base_memory(op.args[0]))):
            raise nondeterminism_error(op)
        if RULES[op.kind] is SHARED:
            raise no_derivative_error(op)


def nondeterminism_error(op: Op) -> GradientError:
    if op.kind == "random":
        return LostValueError(
            "the gradient needs the random numbers drawn here, which are gone", op.span,
            help="draw them in a kernel of their own, into a field",
        )  # fmt: skip
    return LostValueError(
        "the gradient needs what an atomic operation returned here, which depends on the order of "
        "iterations", op.span, help="loop serially: ti.loop_config(serialize=True), or keep what "
        "it returns in a field",
    )  # fmt: skip


def no_derivative_error(
    op: Op, sentence: str = "no gradient flows through this operation"
) -> GradientError:
    help = "move it to a kernel without gradients, or put ti.stop_grad(...) around its value"
    if op.kind in UPDATES:
        help = "loop serially: ti.loop_config(serialize=True), or do it in a loop of its own"
    if RULES[op.kind] is SHARED or op.kind == "shared":
        sentence = "a gradient does not flow through what invocations share or exchange"
        help = "write this part without ti.simt, or without gradients"
    return GradientError(sentence, op.span, help=help)


def phase_error(shared: Op, access: Op) -> GradientError:
    """The error for a workgroup array with derivatives whose `access` may conflict with another."""
    notes = () if access is shared else (("this access may conflict with another", access.span),)
    return GradientError(
        "a gradient flows through a shared array only if barriers provably separate the accesses "
        "of different invocations to an element", shared.span, notes=notes,
        help="give ti.loop_config(block_dim=...) for a loop over one range from 0, take indices "
        "from block.thread_idx() or i % block_dim, and call block.sync() between writes and reads",
    )  # fmt: skip


def depends_on_order(fn: Func) -> bool:
    """True if a parallel loop of the kernel uses the old value that an atomic returns.

    Such values, for example counters, reveal the order of iterations.
    """
    return any(op.kind in UPDATES for op in find_nondeterministic(fn))


def find_nondeterministic(fn: Func) -> set[Op]:
    """Nondeterministic ops whose result is used: random numbers, and atomics in parallel loops."""
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    found = {op for loop in loops for op in walk(loop.regions[0]) if op.kind in UPDATES}
    return (found | {op for op in walk(fn.body) if op.kind == "random"}) & used_in(fn.body)


def is_adjoint(root: Value) -> bool:
    return (getattr(root, "name", "") or "").endswith(ADJOINT)


def is_copy(root: Value) -> bool:
    """True if memory is a copy (`.scratch.N`), or private memory that holds no adjoint."""
    if isinstance(root, Param):
        return root.name.startswith(SCRATCH)
    return not (isinstance(root, Op) and is_adjoint(root))
