"""What has no right gradient, and is refused: derivatives that get lost, and things that happen
differently each time.

Owns: `check_lost`, `check_bits`, `check_second`, of a kernel; `check_repeatable`, of its
gradient; `find_changing`, `depends_on_order`. Must not know: how gradients are built.
"""

from __future__ import annotations

from vkchi.autodiff.answers import PUT_THERE, let_pass, lost
from vkchi.autodiff.primal import Activity, Bits, Primal, is_smooth_array, name_under
from vkchi.autodiff.reaching import Reach
from vkchi.autodiff.rules import RULES, SHARED, is_smooth
from vkchi.errors import GradientError
from vkchi.ir.core import Func, Op, Param, Value, base_of, used_in, walk
from vkchi.ir.names import ADJOINT, SCRATCH
from vkchi.ir.ops import UPDATES


def check_lost(primal: Primal, reach: Reach, missing: str) -> None:
    """Raises GradientError if a derivative flows through an array that has none: an active value is
    put into it, and it is read again later for something that has a derivative. With `missing`
    being `warn`, says so instead: it counts as a constant."""
    for op, reader in reach.losses(primal.active, primal.differentiable):
        let_pass(lost(name_under(op), reader.span, PUT_THERE, op.span), missing, {})


def check_bits(reach: Reach, active: Activity, differentiable: frozenset[str]) -> None:
    """Raises GradientError if a derivative flows through the bits of a number: what is computed
    with them changes with the number, but no rule says how."""
    seeds = reach.taken_bits(active)
    if not seeds:
        return
    made = reach.made_of(reach.spread(frozenset(seeds), Bits)[1])
    made += [op for op in seeds if is_smooth(op)]
    flow = reach.flow(frozenset(made)) if made else {}
    if not differentiable.isdisjoint(flow):
        raise GradientError(
            "the gradient flows through the bits of a number: it would be lost", made[0].span,
            notes=(("the bits of a value with a derivative are taken here", seeds[0].span),),
            help="put ti.stop_grad(...) around the value whose bits are taken",
        )  # fmt: skip


def check_reaches(primal: Primal, constants: frozenset[str]) -> None:
    """Raises GradientError if a kernel puts what it reads into arrays with gradients, and none of
    the arrays that it reads has one, but for constants: a gradient called for by itself would do
    nothing."""
    fn, ours = primal.fn, primal.differentiable
    if primal.active.stores:
        return
    others = frozenset(p.name for p in fn.params if is_smooth_array(p) and p.name not in ours)
    for name in sorted(others - constants):
        for target, op in Activity(fn, frozenset({name})).escapes.items():
            if target in ours:
                raise GradientError(
                    f"the gradient of `{target}` would be lost: `{name}`, which it depends on "
                    "here, has none", op.span,
                    help=f"make `{name}` with needs_grad=True, a tensor with requires_grad=True",
                )  # fmt: skip


def check_second(primal: Primal) -> None:
    """Raises GradientError where only first derivatives are known."""
    for op in walk(primal.fn.body):
        if op.kind == "stop_first_grad" and op.args[0] in primal.active:
            raise GradientError(
                "only first derivatives flow through singular values, eigenvalues and polar "
                "decompositions",
                op.span, help="take differences of the gradient",
            )  # fmt: skip


def check_repeatable(fn: Func) -> None:
    """Raises GradientError if a gradient's Func, freed of what is not read, does again what cannot
    be done again."""
    changing = find_changing(fn)
    for op in walk(fn.body):
        if op.kind == "random" or (op in changing and is_copy(base_of(op.args[0]))):
            raise gone(op)
        if RULES[op.kind] is SHARED:
            raise refuse(op)


def gone(op: Op) -> GradientError:
    """The error for an op that gives something else the next time."""
    if op.kind == "random":
        return GradientError(
            "the gradient needs the random numbers drawn here, which are gone", op.span,
            help="draw them in a kernel of their own, into a field",
        )  # fmt: skip
    return GradientError(
        "the gradient needs what an atomic operation returned here, which depends on the order of "
        "iterations", op.span, help="loop serially: ti.loop_config(serialize=True), or keep what "
        "it returns in a field",
    )  # fmt: skip


def refuse(op: Op, sentence: str = "no gradient flows through this operation") -> GradientError:
    """The error for an op that has no derivative."""
    help = "move it to a kernel without gradients, or put ti.stop_grad(...) around its value"
    if op.kind in UPDATES:
        help = "loop serially: ti.loop_config(serialize=True), or do it in a loop of its own"
    if RULES[op.kind] is SHARED:
        sentence = "a gradient does not flow through what invocations share or exchange"
        help = "write this part without ti.simt, or without gradients"
    return GradientError(sentence, op.span, help=help)


def depends_on_order(fn: Func) -> bool:
    """Whether a kernel may leave something else each time: what an atomic operation returns, as a
    counter does, tells which iteration came first."""
    return any(op.kind in UPDATES for op in find_changing(fn))


def find_changing(fn: Func) -> set[Op]:
    """The ops that give something else the next time, and whose result is used: random bits, and
    atomic operations that iterations of parallel loops do."""
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    found = {op for loop in loops for op in walk(loop.regions[0]) if op.kind in UPDATES}
    return (found | {op for op in walk(fn.body) if op.kind == "random"}) & used_in(fn.body)


def is_adjoint(root: Value) -> bool:
    """Whether memory holds adjoints."""
    return (getattr(root, "name", "") or "").endswith(ADJOINT)


def is_copy(root: Value) -> bool:
    """Whether memory is a copy of the kernel's own."""
    if isinstance(root, Param):
        return root.name.startswith(SCRATCH)
    return not (isinstance(root, Op) and is_adjoint(root))
