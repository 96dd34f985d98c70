"""Instrumented runs on copies that decide whether rerunning a kernel gives other values.

The rules are in `autodiff.instrument`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vkchi.analysis.memory.boxes import Box
from vkchi.autodiff.results import GradientSpec, MarkedOp
from vkchi.calls.call import KernelCall
from vkchi.calls.facts import facts
from vkchi.calls.variant import Variant
from vkchi.fields.storage import Storage
from vkchi.ir.core import NOTED
from vkchi.types import Array, i32, shape_of
from vkchi.types.lazy_numpy import np

NOTHING_KNOWN: Mapping[str, Storage] = MappingProxyType({})


def find_stale(
    call: KernelCall,
    spec: GradientSpec | None,
    written: Mapping[str, Box],
    invariant: frozenset[str],
    stored: Mapping[str, Storage] = NOTHING_KNOWN,
) -> MarkedOp | None:
    """Return an access after which rerunning the kernel may give other values, or None.

    `written` are the parts of arrays that it may overwrite. All must be redefined, except for those
    in `invariant` (`autodiff.instrument`). In the arrays in `stored`, it overwrites only elements
    marked there. With a `spec`, the kernel is the simplified one that its gradient is built from.
    Runs on copies; waits for the device.
    """
    kernel, names = call.kernel, frozenset(written)
    made = facts.marked(kernel, spec, names, invariant)
    key = spec, names, invariant
    variant = kernel.derived.find("marked", key, lambda: Variant(call, made.artifact))
    noted = Storage(kernel.runtime, i32, (max(1, len(made.ops)),))
    own = {shadow: start_marks(call.arrays[name], t, None if name in invariant else written[name])
           for name, (shadow, t) in made.shadows.items()}  # fmt: skip
    for name, marks in stored.items():
        own[made.shadows[name][0]].from_numpy(1 - marks.to_numpy())
    variant.dry_run(call, {**own, NOTED: noted})
    return next((op for op, is_stale in zip(made.ops, noted.to_numpy()) if is_stale), None)


def find_stored(call: KernelCall, names: frozenset[str]) -> dict[str, Storage]:
    """Return the marks of the elements that a call stored, for those of the arrays `names` of which
    a rerun stores the same elements (`questions.fixed_stores`). Runs on copies."""
    wholes = [id(array.whole) for array in call.arrays.values()]
    names &= facts.fixed_stores(call.kernel)
    if not names or len(set(wholes)) < len(wholes):
        return {}
    none: frozenset[str] = frozenset()
    made = facts.marked(call.kernel, None, names, none)
    variant = call.kernel.derived.find(
        "marked", (None, names, none), lambda: Variant(call, made.artifact)
    )
    own = {name: start_marks(call.arrays[name], t, None) for name, (_, t) in made.shadows.items()}
    noted = Storage(call.kernel.runtime, i32, (max(1, len(made.ops)),))
    shadows = {shadow: own[name] for name, (shadow, _) in made.shadows.items()}
    variant.dry_run(call, {**shadows, NOTED: noted})
    return own


def start_marks(array: Storage, t: Array, box: Box | None) -> Storage:
    """Initial marks of an array: 0 inside the box and 1 (stored) outside; without a box all 0."""
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
