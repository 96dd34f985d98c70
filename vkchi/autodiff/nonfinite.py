"""Where an adjoint is multiplied with what may be infinite or no number, and must yet come out as 0
if it is 0: a `select` or `if` did not choose the value, or nobody read it.

Owns: `NonFinite`, which tells the ops whose rules must see to that. They have an operand that
- comes of an op which makes infinities of plain numbers (`Trait.MAKES_NONFINITE`); or
- comes from an array, where it may stand for missing data; but for results that always count, as
  what is added to one total does: a result that is no number spoils the total anyway. Of totals
  that differ from iteration to iteration, some may count for nothing later.

Must not know: how adjoints are built.
"""

from __future__ import annotations

from collections.abc import Iterator

from vkchi.analysis.dataflow import largest
from vkchi.autodiff.primal import Primal, Spread
from vkchi.autodiff.rules import is_smooth
from vkchi.ir.constants import constant_int
from vkchi.ir.control import carried_params, first_values
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, walk
from vkchi.ir.ops import LOOPS, Trait, kinds_with

MAKING = kinds_with(Trait.MAKES_NONFINITE)
KEEPING = kinds_with(Trait.KEEPS_NONFINITE)
Slots = tuple[Value, ...]


class NonFinite:
    """The answers for one Func."""

    def __init__(self, primal: Primal) -> None:
        loads = (op for op in walk(primal.fn.body) if op.kind == "load" and is_smooth(op))
        read = frozenset[Value](op for op in loads if isinstance(base_of(op.args[0]), Param))
        self.made = spread_nonfinite(primal.fn)
        self.read = Spread(primal.fn, frozenset(), read).values
        self.counting = find_counting(primal)

    def __contains__(self, op: Op) -> bool:
        if not self.made.isdisjoint(op.args):
            return True
        return op not in self.counting and not self.read.isdisjoint(op.args)


def spread_nonfinite(fn: Func) -> set[Value]:
    """The values that come of ops which make infinities of plain numbers."""
    made = frozenset[Value](op for op in walk(fn.body) if op.kind in MAKING)
    return Spread(fn, frozenset(), made).values


def find_counting(primal: Primal) -> set[Value]:
    """The values that count wherever they are computed: in their own region, they go into memory's
    sums or into values that count."""
    links: dict[Value, list[Slots]] = {}
    for region, around in primal.around.items():
        for v, slots in links_in(region, around[-1] if around else None):
            if primal.home.get(v) is region:
                links.setdefault(v, []).append(slots)
    return largest(links)


def links_in(region: Region, owner: Op | None) -> Iterator[tuple[Value, Slots]]:
    """Values that a region uses, and what must count for them to count."""
    for op in region.ops:
        if op.kind == "atomic_add" and is_total(op.args[0]):
            yield op.args[1], ()
        elif op.kind in KEEPING or (op.kind == "cast" and is_smooth(op)):
            yield from ((v, (op,)) for v in op.args)
        elif op.kind == "div":
            yield op.args[0], (op,)
        elif op.kind in LOOPS:
            yield from ((v, carried(op, k)) for k, v in enumerate(first_values(op)))
        elif op.kind == "yield" and owner is not None:
            is_loop = owner.kind in LOOPS and region is owner.regions[-1]
            for k, v in enumerate(op.args if is_loop or owner.kind == "if" else ()):
                yield v, carried(owner, k) if is_loop else (owner.results[k],)


def is_total(ptr: Value) -> bool:
    """Whether a place in an array is the same in all iterations."""
    while isinstance(ptr, Op) and ptr.kind == "member":
        ptr = ptr.args[0]
    if not isinstance(ptr, Op) or ptr.kind != "elem":
        return False
    return all(constant_int(v) is not None for v in ptr.args[1:])


def carried(loop: Op, k: int) -> Slots:
    """What a loop carries: its last value, and the one that an iteration begins with."""
    return loop.results[k], carried_params(loop)[k]
