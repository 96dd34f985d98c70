"""What a kernel overwrites of the memory that it finds, and reads before.

A gradient called by itself finds the memory as the kernel left it. It does the kernel again, which
gives the same in two cases, array by array:

- *Redefined*: every element that the kernel may overwrite is stored before it is read. Then the
  kernel never used what stood there. An atomic is no such store, for its result depends on what
  stood there; it counts as a read if its result is used, and if it is no addition. (A minimum or
  maximum over invocations ends with the same result once more, if nothing is added to it.)
- *Invariant*: the kernel only adds to the array or takes extremes, and changes no element that it
  has read. Then what it read stands there now, and the gradient leaves these writes out. Whether
  and where it writes must not depend on what it reads there, or reading something else could hide
  them.

Both are found out by a run on copies, which marks elements (`staleness`). Owns: `find_invariant`,
the arrays that may be so; `find_reading`, what decides. Must not know: how gradients are built,
tapes.
"""

from __future__ import annotations

from vkchi.analysis.alias import kinds_at
from vkchi.analysis.dataflow import Dependence
from vkchi.autodiff.instrument import STORES
from vkchi.ir.core import Func, Op, Param, base_of, used_in, walk
from vkchi.ir.ops import EXTREMES, WRITES


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


def find_invariant(fn: Func, names: frozenset[str]) -> frozenset[str]:
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
    moved = moved_by(fn, found)  # of fewer arrays, no more is moved: what is left stays
    return frozenset(n for n in found if moved.isdisjoint(writes[n]))


def moved_by(fn: Func, names: frozenset[str]) -> set[Op]:
    """The writes of which it depends on what is read in the arrays of these names whether or where
    they happen."""
    depends = Dependence(fn.body, [p for p in fn.params if p.name in names])
    return {op for op in depends.writes() if op in depends.decided or op.args[0] in depends.found}
