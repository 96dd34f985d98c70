"""What has no right gradient, and is refused: derivatives that get lost, and things that happen
differently each time.

Owns: `check_lost`, of a kernel; `check_repeatable`, of its gradient. Must not know: how gradients
are built.
"""

from __future__ import annotations

from collections.abc import Iterator

from vkchi.autodiff.primal import Activity, Primal, Segment
from vkchi.autodiff.rules import RULES, SHARED
from vkchi.errors import GradientError
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, walk
from vkchi.ir.ops import ATOMICS

ADJOINT = ".adjoint"  # how the names of memory for adjoints end: no variable's name does
ORDERED = frozenset(ATOMICS) | {"atomic_exchange", "atomic_cas"}


def check_lost(primal: Primal) -> None:
    """Raises GradientError if a derivative flows through an array that has none: one that an active
    value is put into, and that is read again later for something that has a derivative."""
    todo = dict(primal.active.escapes)
    done: set[str] = set()
    while todo:
        name, op = todo.popitem()
        done.add(name)
        read = find_readers(primal, op)
        flow = Activity(primal.fn, frozenset(), read).escapes
        for target, reader in flow.items():
            if target in primal.differentiable:
                raise lost(name, op, reader)
        todo |= {k: v for k, v in flow.items() if k not in done}


def find_readers(primal: Primal, op: Op) -> frozenset[Value]:
    """The loads that may see what a write puts into an array: later ones of its segment, and all
    of later segments."""
    root = base_of(op.args[0])
    number = next(s.number for s in primal.segments if op in ops_in(s))
    return frozenset(
        x
        for s in primal.segments[number:]
        for x in ops_in(s)
        if x.kind == "load" and base_of(x.args[0]) is root
        if s.number > number or x in primal.late
    )


def ops_in(segment: Segment) -> Iterator[Op]:
    """Every op of a segment."""
    for op in segment.ops:
        yield op
        for region in op.regions:
            yield from walk(region)


def lost(name: str, op: Op, reader: Op) -> GradientError:
    """The error for an array that a derivative flows through and that has no gradient."""
    return GradientError(
        f"the gradient flows through `{name}`, which has none: it would be lost", reader.span,
        notes=(("a value with a derivative is put there", op.span),),
        help=f"make `{name}` with needs_grad=True, or put ti.stop_grad(...) around the value",
    )  # fmt: skip


def check_repeatable(fn: Func) -> None:
    """Raises GradientError if a gradient's Func, freed of what is not read, does again what cannot
    be done again."""
    used = {v for op in walk(fn.body) for v in op.args}
    for op, is_parallel in ops_of(fn.body):
        if op.kind == "random":
            raise GradientError(
                "the gradient needs the random numbers drawn here, which are gone", op.span,
                help="draw them in a kernel of their own, into a field",
            )  # fmt: skip
        if RULES[op.kind] is SHARED:
            raise GradientError(
                "a gradient does not flow through what invocations share or exchange", op.span,
                help="write this part without ti.simt, or without gradients",
            )  # fmt: skip
        if is_parallel and op.kind in ORDERED and op in used and is_copy(base_of(op.args[0])):
            raise GradientError(
                "the gradient needs what an atomic operation returned here, which depends on the "
                "order of iterations", op.span, help="loop serially: "
                "ti.loop_config(serialize=True), or keep what it returns in a field",
            )  # fmt: skip


def is_copy(root: Value) -> bool:
    """Whether memory is a copy of the kernel's own."""
    if isinstance(root, Param):
        return root.name.startswith("scratch.")
    return not (isinstance(root, Op) and (root.name or "").endswith(ADJOINT))


def ops_of(region: Region, *, is_parallel: bool = False) -> Iterator[tuple[Op, bool]]:
    """Every op, and whether it stands in a `parallel`."""
    for op in region.ops:
        yield op, is_parallel
        for inner in op.regions:
            yield from ops_of(inner, is_parallel=is_parallel or op.kind == "parallel")
