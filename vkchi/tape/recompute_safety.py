"""What a kernel overwrites of the memory that it finds, and reads before.

A gradient called by itself finds the memory as the kernel left it. It does the kernel again, which
gives the same in two cases, array by array:

- *Renewed*: every element that the kernel may overwrite is stored before it is read. Then the
  kernel never used what stood there. An atomic is no such store, for its result depends on what
  stood there; it counts as a read if its result is used, and if it is no addition. (A minimum or
  maximum over invocations ends with the same result once more, if nothing is added to it.)
- *Settled*: the kernel only adds to the array or takes extremes, and changes no element that it has
  read. Then what it read stands there now, and the gradient leaves these writes out. Whether and
  where it writes must not depend on what it reads there, or reading something else could hide them.

Both are found out by a run on copies, which marks elements. Owns: `find_settled`, the arrays that
may be so; `find_stale`, the run. Must not know: how
gradients are built, tapes.
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.analysis.alias import kinds_at
from vkchi.analysis.dataflow import Dependence
from vkchi.analysis.footprint import Box
from vkchi.autodiff.instrument import NOTED, STORES, Instrumented, mark, shadow_of
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func, Op, Param, base_of, used_in, walk
from vkchi.ir.ops import EXTREMES, WRITES
from vkchi.tape.calls import Call
from vkchi.tape.variants import Variant
from vkchi.types import i32, shape_of
from vkchi.types.lazy_numpy import np


def find_reading(fn: Func) -> set[Op]:
    """The ops whose effect depends on what they find in memory."""
    used = used_in(fn.body)
    found = {op for op in walk(fn.body) if op.kind == "load" or (op.kind in WRITES and op in used)}
    plain = STORES | {"atomic_add"}
    found |= {op for op in walk(fn.body) if op.kind in WRITES and op.kind not in plain}
    return found - find_repeatable(fn)


def find_repeatable(fn: Func) -> set[Op]:
    """The minima and maxima over invocations that end with the same result once more, found by the
    same iteration: where nothing is added to."""
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    writes = [op for op in walk(fn.body) if op.kind in WRITES]
    return {
        op for loop in loops for op in walk(loop.regions[0])
        if op.kind in EXTREMES and "atomic_add" not in kinds_at(writes, op.args[0])
    }  # fmt: skip


def find_settled(fn: Func, names: frozenset[str]) -> frozenset[str]:
    """Which of these arrays the kernel only adds to or takes extremes in, where neither whether nor
    where depends on what it reads in them."""
    used = used_in(fn.body)
    repeatable = find_repeatable(fn)
    writes: dict[str, list[Op]] = {name: [] for name in names}
    for op in walk(fn.body):
        root = base_of(op.args[0]) if op.kind in WRITES else None
        if isinstance(root, Param) and root.name in names:
            writes[root.name].append(op)
    found = frozenset(
        name for name, ops in writes.items()
        if all((op.kind == "atomic_add" or op in repeatable) and op not in used for op in ops)
    )  # fmt: skip
    while True:
        moved = moved_by(fn, found)
        left = frozenset(n for n in found if moved.isdisjoint(writes[n]))
        if left == found:
            return found
        found = left


def moved_by(fn: Func, names: frozenset[str]) -> set[Op]:
    """The writes of which it depends on what is read in the arrays of these names whether or where
    they happen."""
    depends = Dependence(fn.body, [p for p in fn.params if p.name in names])
    return {op for op in depends.writes() if op in depends.decided or op.args[0] in depends.found}


def find_stale(
    call: Call, fn: Func, written: Mapping[str, Box], settled: frozenset[str]
) -> Op | None:
    """An access of a kernel, in the form `fn`, after which doing it again is something else:
    `written` are the parts of arrays that it may overwrite, all to be renewed but those that are to
    be settled. The memory stays as it is; waits."""
    plan = call.plan
    names = frozenset(written)

    def make() -> tuple[Instrumented, Variant]:
        marked = mark(fn, names, settled, find_reading(fn))
        return marked, Variant(call, marked.func)

    marked, variant = plan.derived.marked.find((names, settled), make)
    noted = Storage(plan.runtime, i32, (max(1, len(marked.ops)),))
    own = {p.name: start_marks(call.arrays[name], p, None if name in settled else written[name])
           for name, p in marked.shadows.items()}  # fmt: skip
    variant.rehearse(call, {**own, NOTED: noted})
    return next((op for op, is_stale in zip(marked.ops, noted.to_numpy()) if is_stale), None)


def start_marks(array: Storage, param: Param, box: Box | None) -> Storage:
    """Marks of an array: none, or all outside of a part, which is as good as stored."""
    t = shadow_of(param)
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
