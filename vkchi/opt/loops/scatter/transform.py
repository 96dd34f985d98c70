"""Transformation of scatter-adds: fewer iterations conflict, so that fewer atomics remain.

1. Scalar expansion (`expand`): scatter-adds move to a second loop, which loads the added values.
2. Loop distribution (`distribute`): scatter-adds along some axes get a loop of their own.
3. Scatter to gather (`gather`): shifted scatter-adds become loops over destination elements.

Expansion is profitable if one of the other two transforms its second loop, so it runs first.

    >>> transform_scatter_adds(fn, caps)
"""

from __future__ import annotations

from vkchi.ir.core import Func
from vkchi.opt.loops.scatter.distribute import distribute
from vkchi.opt.loops.scatter.expand import expand_scalars
from vkchi.opt.loops.scatter.gather import scatter_to_gather
from vkchi.opt.loops.scatter.shifts import ScatterAnalysis
from vkchi.opt.memo import Memo
from vkchi.target.caps import Caps
from vkchi.target.remarks import record_refusal


def transform_scatter_adds(fn: Func, caps: Caps, memo: Memo) -> Func:
    """Apply the three transformations to all parallel loops, where legal and profitable. Records in
    the log of `memo` why others remain."""
    for transform in (expand_scalars, distribute, scatter_to_gather):
        fn = transform(fn, caps, memo)
    if memo.log is not None:
        for loop in fn.body.ops:
            if loop.kind == "parallel":
                analysis = ScatterAnalysis(loop)
                for writes in analysis.survey.writes.values():
                    for write in writes:
                        verdict = analysis.verdict(write)
                        record_refusal(memo.log, "scatter to gather", write.op.span, verdict)
    return fn
