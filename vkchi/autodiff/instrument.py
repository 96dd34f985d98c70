"""Instrumentation: kernels that also record their accesses in shadow arrays.

A shadow has an i32 for each scalar of some memory (`shadow_of`). `instrument` adds shadows to a
Func and records each access as an `AccessAction` specifies. Uses:

- `instrument_reads`: a load writes its number to its element of `NAME..read`. A store or atomic
  records the largest number that it finds there. Source: Taichi's documentation, global data access
  rule 1;
- `instrument_stores`: a store marks its element in `NAME..marks`. Accesses after which a second run
  of the kernel may have a different result are recorded.

Recomputation safety: may a kernel run again on memory that it has already overwritten? A gradient
outside a tape (`kernel.grad`) finds memory as the kernel left it, and reruns the kernel. The rerun
computes the same values if each array falls into one of two classes:

- *Redefined*: every element that the kernel may overwrite is stored before it is read. The kernel
  does not depend on the old contents. An atomic is no such store, because its result depends on
  them. It counts as a read if its result is used or it is not an addition. A minimum or maximum
  over invocations is exempt if nothing is added to it: repeating it gives the same result.
  If the written elements are known exactly, others may be read at any time.
- *Invariant*: the kernel only adds to the array or takes extremes, and changes no element that it
  has read. Its reads are then still valid, and the gradient omits these writes. Neither the
  execution nor the address of such a write may depend on a read of the array.

A run of `instrument_stores` on copies decides both (`calls.variant`). `find_invariant` gives the
candidate arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from vkchi.analysis.dataflow import Dependence
from vkchi.analysis.memory.alias import kinds_at
from vkchi.autodiff.emit import place_in, zero
from vkchi.ir.builder import Builder
from vkchi.ir.core import MARKS, NOTED, READ, Func, Op, Param, Value, base_memory, used_in, walk
from vkchi.ir.ops import ACCESSES, EXTREMES, WRITES, Effect, Trait, effect_of, kinds_with
from vkchi.ir.rebuild import rebuild
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Scalar, Tensor, cell_of, i32, row_major, with_scalar

STORES = kinds_with(Trait.REPLACES)


class Instrumented(NamedTuple):
    """The instrumented Func.

    `shadows`: by array name. `ops`: those with an element of `NOTED`, in order. `reads`: the loads
    in the order of their numbers, for `instrument_reads`.
    """

    func: Func
    shadows: dict[str, Param]
    ops: tuple[Op, ...]
    reads: tuple[Op, ...] = ()


class AccessAction(NamedTuple):
    """Actions at an access, in order.

    - `finds`: True records the largest number in the shadow, False records 1 if any is 0.
      None records nothing. Records are in `NOTED`;
    - `puts`: stored in the shadow unless 0;
    - `is_dropped`: the access itself is removed, and its result is 0.
    """

    finds: bool | None = None
    puts: int = 0
    is_dropped: bool = False


def shadow_of(root: Value) -> Array:
    """The type with an i32 for each scalar of an array or private location, at the same indices."""
    t = root.type
    assert isinstance(t, Array | Ptr)
    elem = t.elem
    assert isinstance(elem, Scalar | Tensor)
    elem = with_scalar(elem, i32)
    if not isinstance(t, Array):
        return cell_of(elem)
    if t.shape is None:
        return Array.of(elem, t.ndim)
    plain = row_major(t.shape, t.scalars_per_element)
    origin = t.layout.origin if t.layout is not None else ()
    return Array.of(elem, t.ndim, t.shape, plain._replace(origin=origin))


def instrument(
    fn: Func, title: str, names: Container[str], suffix: str, rule: Callable[[Op], AccessAction]
) -> Instrumented:
    """Return a copy of `fn` with shadows of the named arrays and the parameter `NOTED`.

    It is called NAME.`title`. `rule` returns the action at each access to these arrays.
    """
    noted = Param(Array.of(i32, 1), NOTED)
    shadows = {p.name: Param(shadow_of(p), p.name + suffix) for p in fn.params if p.name in names}
    ops: list[Op] = []

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        root = base_memory(args[0]) if args and op.kind in ACCESSES else None
        if not isinstance(root, Param) or root.name not in shadows:
            return None
        place, note = place_in(b, args[0], shadows[root.name], lambda v: v), rule(op)
        assert isinstance(place.type, Ptr)
        if note.finds is not None:
            emit_finding(b, place, b.emit("elem", noted, b.const(len(ops), i32)), note.finds)
            ops.append(op)
        if note.puts:
            b.emit("store", place, b.const(note.puts, place.type.elem))
        return tuple([zero(b, v.type) for v in op.results]) if note.is_dropped else None

    body = rebuild(fn, visit).body
    params = (*fn.params, *shadows.values(), noted)
    return Instrumented(Func(f"{fn.name}.{title}", params, body, fn.span), shadows, tuple(ops))


def emit_finding(b: Builder, place: Value, noted: Value, finds: bool) -> None:
    for found in b.components(b.emit("load", place)):
        b.emit("atomic_max", noted, found if finds else b.emit("sub", b.const(1, i32), found))


def instrument_reads(fn: Func, names: frozenset[str], first: int = 1) -> Instrumented:
    """Instrument a Func to detect writes over elements of the named arrays that were read.

    Its loads are numbered from `first`.
    """
    reads: list[Op] = []

    def rule(op: Op) -> AccessAction:
        if op.kind != "load":
            return AccessAction(finds=True)
        reads.append(op)
        return AccessAction(puts=first + len(reads) - 1)

    return instrument(fn, "watched", names, READ, rule)._replace(reads=tuple(reads))


def instrument_stores(fn: Func, names: frozenset[str], invariant: frozenset[str]) -> Instrumented:
    """Instrument a Func to mark the elements that it stores in the named arrays, and drop its
    reports.

    Ops whose effect depends on memory contents (`find_reading`) are recorded if their element is
    unmarked. In `invariant` arrays, the elements that it reads are marked instead. Writes there are
    dropped, and those to marked elements recorded.
    """
    reading = find_reading(fn)

    def rule(op: Op) -> AccessAction:
        if base_memory(op.args[0]).name in invariant:
            is_write = op.kind in WRITES
            return AccessAction(True, 0, is_dropped=True) if is_write else AccessAction(None, 1)
        return AccessAction(False if op in reading else None, int(op.kind in STORES))

    return instrument(without_reports(fn), "marked", names, MARKS, rule)


def without_reports(fn: Func) -> Func:
    return rebuild(fn, lambda b, op, args: () if effect_of(op.kind) is Effect.REPORT else None)


# --- recomputation safety ------------------------------------------------------------------------


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
