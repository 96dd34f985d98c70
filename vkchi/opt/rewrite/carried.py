"""Removal of results from control ops: carried values of loops, and results of `if`.

for %b, %e, %x0, %y0 {^(%i, %x, %y) ... yield %x1, %y1}    keeping slot 1:
for %b, %e, %y0 {^(%i, %y) ... yield %y1}
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.control_ops import bodies_of, control_of, is_loop
from vkchi.ir.core import Op, Region, Value
from vkchi.ir.rebuild import Rebuilder


def pruned_op(walk: Rebuilder, op: Op, args: Sequence[Value], keep: Sequence[int]) -> list[Value]:
    """Append the control op with only the results of these indices; return a value for each old
    result.

    A dropped result maps to itself (`if`), or to its new initial value (loop).
    """
    fixed, index = control_of(op).fixed, control_of(op).index_params
    bodies = bodies_of(op)
    regions = [pruned_region(walk, r, index, keep, r not in bodies) for r in op.regions]
    kept_args = (*args[:fixed], *(args[fixed + k] for k in keep if is_loop(op)))
    types = tuple(op.results[k].type for k in keep)
    new = Op(op.kind, kept_args, op.attr, None, op.span, op.name, tuple(regions), types)
    walk.b.insert(new)
    values = list(args[fixed:] if is_loop(op) else op.results)
    for result, k in zip(new.results, keep, strict=True):
        result.name = op.results[k].name
        values[k] = result
    return values


def pruned_region(
    walk: Rebuilder, region: Region, index: int, keep: Sequence[int], whole_yield: bool
) -> Region:
    """Rewrite a region. Its first `index` parameters are kept, of the others those numbered in
    `keep`, of the yields likewise, or all if `whole_yield`."""
    kept = [region.params[index + k] for k in keep] if region.params[index:] else []
    yielded = region.yielded if whole_yield else [region.yielded[k] for k in keep]
    with walk.inside(*region.params[:index], *kept) as new:
        walk.ops(region.ops[:-1])
        walk.b.span = region.ops[-1].span
        walk.b.emit("yield", *(walk.map.get(v, v) for v in yielded))
    return new
