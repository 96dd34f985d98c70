"""Whether doing a kernel again is something else, found by a run on copies that marks elements.

Owns: `find_stale`; what makes it so is said in `recompute_safety`. Must not know: how gradients are
built, tapes, IR.
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.analysis.boxes import Box
from vkchi.autodiff.answers import GradientSpec, MarkedOp
from vkchi.fields.storage import Storage
from vkchi.ir.names import NOTED
from vkchi.tape.calls import Call
from vkchi.tape.derived import facts
from vkchi.tape.variants import Variant
from vkchi.types import Array, i32, shape_of
from vkchi.types.lazy_numpy import np


def find_stale(
    call: Call, spec: GradientSpec | None, written: Mapping[str, Box], invariant: frozenset[str]
) -> MarkedOp | None:
    """An access of a kernel, in the form that its gradient takes for it, if there is one, after
    which doing it again is something else: `written` are the parts of arrays that it may overwrite,
    all to be redefined but those that are to be invariant. The memory stays as it is; waits."""
    plan, names = call.plan, frozenset(written)
    made = facts.marked(plan, spec, names, invariant)
    key = spec, names, invariant
    variant = plan.derived.marked.find(key, lambda: Variant(call, made.artifact))
    noted = Storage(plan.runtime, i32, (max(1, len(made.ops)),))
    own = {shadow: start_marks(call.arrays[name], t, None if name in invariant else written[name])
           for name, (shadow, t) in made.shadows.items()}  # fmt: skip
    variant.dry_run(call, {**own, NOTED: noted})
    return next((op for op, is_stale in zip(made.ops, noted.to_numpy()) if is_stale), None)


def start_marks(array: Storage, t: Array, box: Box | None) -> Storage:
    """Marks of an array: none, or all outside of a part, which is as good as stored."""
    made = Storage(array.runtime, t.elem, array.shape, t.layout)
    if box is None:
        return made
    origin = array.layout.origin or (0,) * len(array.shape)
    part = [slice(None) if r is None else slice(max(0, r[0] - o), max(0, r[1] + 1 - o))
            for r, o in zip(box, origin)]  # fmt: skip
    values = np.ones(array.shape + shape_of(t.elem), np.int32)
    values[tuple(part)] = 0
    made.from_numpy(values)
    return made
