"""Range analysis of implicit integer casts: finds casts whose operand fits the target type.

The traversal is that of `bounds`: integer facts from loops, conditions and the ops between. The
index of a loop with a non-constant end is assumed to fit.

Guarantees: a caution about a cast is dropped only

- if every component of the operand is proved to be in the range of the type,
- for such a loop index, or
- if the cast is no longer in the Func (dead code).

    cautions = unproved_cautions(lowered.func, lowered.cautions)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.values.ranges import Key, resolve
from vkchi.ir.core import Func, Op, Region, Value, constant_int, walk
from vkchi.ir.op_table.interval_rules import type_range
from vkchi.ir.ops import axes_of
from vkchi.opt.rewrite.bounds import WALKS, Prover
from vkchi.target.remarks import Caution
from vkchi.types import Tensor, scalar_of


def unproved_cautions(fn: Func, noted: Sequence[tuple[Caution, Op | None]]) -> list[Caution]:
    """Return the cautions in `noted`, in order, without those whose cast is proved or assumed to
    fit (see the module) or is no longer in `fn`. Those without a cast are kept."""
    casts = {cast for _, cast in noted if cast is not None}
    lossy: set[Op] = set()
    if casts:
        prover = FitProver(fn, casts)
        prover.region(fn.body)
        lossy = casts.intersection(walk(fn.body)) - set(prover.marked)
    return [caution for caution, cast in noted if cast is None or cast in lossy]


class FitProver(Prover):
    """Walks a Func; `marked` collects the casts that are proved or assumed lossless."""

    def __init__(self, fn: Func, casts: set[Op]) -> None:
        super().__init__(fn)
        self.casts = casts
        self.indices: set[Value] = set()

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.regions:
                ends = [(axis.param, axis.end) for axis in axes_of(op)]
                self.indices |= {param for param, end in ends if constant_int(end) is None}
                WALKS[op.kind](self, op)
            elif op in self.casts and self.fits(op):
                self.marked.append(op)

    def fits(self, op: Op) -> bool:
        """True if a cast's operand is proved in the range of its type.

        Also true for the index of a loop with a non-constant end.
        """
        v, (low, high) = op.args[0], type_range(scalar_of(op.type))
        if v in self.indices:
            return True
        count = v.type.size if isinstance(v.type, Tensor) else 0
        keys: list[Key] = [resolve(v, k) for k in range(count)] if count else [v]
        facts = [self.facts.of(key) for key in keys]
        return all(low <= f.lo and f.hi <= high for f in facts)
