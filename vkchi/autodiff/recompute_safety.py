"""Recomputation safety: may a kernel run again on memory that it has already overwritten?

A gradient outside a tape (`kernel.grad`) finds memory as the kernel left it, and reruns the kernel.
The rerun computes the same values if each array falls into one of two classes:

- *Redefined*: every element that the kernel may overwrite is stored before it is read. The kernel
  does not depend on the old contents. An atomic is no such store, because its result depends on
  them. It counts as a read if its result is used or it is not an addition. A minimum or maximum
  over invocations is exempt if nothing is added to it: repeating it gives the same result.
  If the written elements are known exactly, others may be read at any time.
- *Invariant*: the kernel only adds to the array or takes extremes, and changes no element that it
  has read. Its reads are then still valid, and the gradient omits these writes. Neither the
  execution nor the address of such a write may depend on a read of the array.

An instrumented run on copies decides both (`staleness`). `find_invariant` gives the candidate
arrays, `find_reading` the ops to instrument.
"""

from __future__ import annotations

from vkchi.analysis.dataflow import Dependence
from vkchi.analysis.memory.alias import kinds_at
from vkchi.autodiff.instrument import STORES
from vkchi.ir.core import Func, Op, Param, base_memory, used_in, walk
from vkchi.ir.ops import EXTREMES, WRITES


def find_reading(fn: Func) -> set[Op]:
    """Loads, atomics with a used result, and other writes that are neither stores nor additions.

    The ops of `find_repeatable` are excluded.
    """
    used = used_in(fn.body)
    found = {op for op in walk(fn.body) if op.kind == "load" or (op.kind in WRITES and op in used)}
    plain = STORES | {"atomic_add"}
    found |= {op for op in walk(fn.body) if op.kind in WRITES and op.kind not in plain}
    return found - find_repeatable(fn)


def find_repeatable(fn: Func) -> set[Op]:
    """Minima and maxima over iterations of a parallel loop, in memory to which nothing is added.

    A rerun repeats them: the result is the same, from the same iteration.
    """
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    writes = [op for op in walk(fn.body) if op.kind in WRITES]
    return {
        op for loop in loops for op in walk(loop.regions[0])
        if op.kind in EXTREMES and "atomic_add" not in kinds_at(writes, op.args[0])
    }  # fmt: skip


def find_invariant(fn: Func, names: frozenset[str]) -> frozenset[str]:
    """The arrays among `names` that may be invariant, by static dependence analysis."""
    used = used_in(fn.body)
    repeatable = find_repeatable(fn)
    writes: dict[str, list[Op]] = {name: [] for name in names}
    for op in walk(fn.body):
        root = base_memory(op.args[0]) if op.kind in WRITES else None
        if isinstance(root, Param) and root.name in names:
            writes[root.name].append(op)
    found = frozenset(
        name for name, ops in writes.items()
        if all((op.kind == "atomic_add" or op in repeatable) and op not in used for op in ops)
    )  # fmt: skip
    moved = moved_by(fn, found)  # one step suffices: a smaller set moves no more writes
    return frozenset(n for n in found if moved.isdisjoint(writes[n]))


def moved_by(fn: Func, names: frozenset[str]) -> set[Op]:
    """Writes whose execution or address depends on reads of these arrays."""
    depends = Dependence(fn.body, [p for p in fn.params if p.name in names])
    return {op for op in depends.writes() if op in depends.decided or op.args[0] in depends.found}
