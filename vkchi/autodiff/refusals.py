"""What a gradient must not contain when it is done: things that happen differently each time.

Owns: `check_repeatable`. Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Iterator

from vkchi.autodiff.rules import RULES, SHARED
from vkchi.errors import GradientError
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, walk
from vkchi.ir.ops import ATOMICS

ORDERED = frozenset(ATOMICS) | {"atomic_exchange", "atomic_cas"}


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
    return not isinstance(root, Param) or root.name.startswith("scratch.")


def ops_of(region: Region, *, is_parallel: bool = False) -> Iterator[tuple[Op, bool]]:
    """Every op, and whether it stands in a `parallel`."""
    for op in region.ops:
        yield op, is_parallel
        for inner in op.regions:
            yield from ops_of(inner, is_parallel=is_parallel or op.kind == "parallel")
