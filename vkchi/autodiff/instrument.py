"""Kernels that note what they do to elements of arrays, in arrays of their own, beside doing it.

Owns: `shadow_of`, an i32 for each number of some memory; `instrument`, which adds shadows to a Func
and what is noted at each access; two uses of it:
- `watch`: a load puts its number into its element of `NAME..read`, and a store or atomic that finds
  one there puts it into its own element of `broken`. Source: Taichi's documentation, global data
  access rule 1;
- `mark`: what was stored is marked in `NAME..marks`, and accesses after which doing the kernel
  again is something else put their number into `stale` (`tape.recompute_safety` says which).

Must not know: launches.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from vkchi.analysis.dataflow import MEMORY
from vkchi.autodiff.emit import components, place_in, store_if, zero
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, base_of
from vkchi.ir.names import MARKS, READ
from vkchi.ir.ops import WRITES, Effect, Trait, effect_of, kinds_with
from vkchi.ir.rebuild import rebuild
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Layout, Ptr, Scalar, Tensor, cell_of, i32, row_major, with_scalar

BROKEN = ".broken"  # numbers of loads, by what breaks the rules
STALE = ".stale"  # a number of an op
STORES = kinds_with(Trait.REPLACES)


class Instrumented(NamedTuple):
    """The Func, its shadows by array, the ops that it has numbers or elements for, in order, and,
    of watched ones, the loads."""

    func: Func
    shadows: dict[str, Param]
    ops: tuple[Op, ...]
    reads: tuple[Op, ...] = ()


def shadow_of(root: Value) -> Array:
    """An array with an i32 for each number of an array or private place, at the same indices."""
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
    return Array.of(elem, t.ndim, t.shape, Layout(*plain[:3], origin))


Note = Callable[[Builder, Op, Value], "Sequence[Value] | None"]


def instrument(fn: Func, title: str, shadows: dict[str, Param], more: Param, note: Note) -> Func:
    """The Func with these shadows, by array, and one parameter more. `note` is asked at each access
    of the arrays, with its place in the shadow; it may give what stands for the op."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        root = base_of(args[0]) if args and op.kind in MEMORY else None
        if not isinstance(root, Param) or root.name not in shadows:
            return None
        return note(b, op, place_in(b, args[0], shadows[root.name], lambda v: v))

    func = rebuild(fn, visit)
    return Func(f"{fn.name}.{title}", (*fn.params, *shadows.values(), more), func.body, fn.span)


def shadows_of(fn: Func, names: Container[str], suffix: str) -> dict[str, Param]:
    """Shadows of the arrays of these names."""
    return {p.name: Param(shadow_of(p), p.name + suffix) for p in fn.params if p.name in names}


def watch(fn: Func, names: frozenset[str], first: int = 1) -> Instrumented:
    """The Func that watches the arrays of these names. Its loads are numbered from `first` on."""
    broken = Param(Array.of(i32, 1), BROKEN)
    shadows = shadows_of(fn, names, READ)
    reads: list[Op] = []
    ops: list[Op] = []

    def note(b: Builder, op: Op, place: Value) -> None:
        assert isinstance(place.type, Ptr)
        if op.kind == "load":
            reads.append(op)
            b.emit("store", place, b.const(first + len(reads) - 1, place.type.elem))
            return
        for part in components(b, b.emit("load", place)):
            b.emit("atomic_max", b.emit("elem", broken, b.const(len(ops), i32)), part)
        ops.append(op)

    func = instrument(fn, "watched", shadows, broken, note)
    return Instrumented(func, shadows, tuple(ops), tuple(reads))


def mark(
    fn: Func, names: frozenset[str], settled: frozenset[str], reading: set[Op]
) -> Instrumented:
    """The Func that marks what it stores in the arrays of these names, and in those that are
    settled, which it does not write, what it reads; `reading` are the ops whose effect depends on
    what they find in memory."""
    stale = Param(cell_of(i32), STALE)
    shadows = shadows_of(fn, names, MARKS)
    ops: list[Op] = []

    def note(b: Builder, op: Op, place: Value) -> Sequence[Value] | None:
        assert isinstance(place.type, Ptr)
        root = base_of(op.args[0])
        is_settled, is_write = root.name in settled, op.kind in WRITES
        if is_write if is_settled else op in reading:
            ops.append(op)
            report(b, place, stale, len(ops), marked=is_settled)
        if op.kind in ({"load"} if is_settled else STORES):
            b.emit("store", place, b.const(1, place.type.elem))
        if is_settled and is_write:
            assert op.type is not None
            return (zero(b, op.type),)
        return None

    func = instrument(without_reports(fn), "marked", shadows, stale, note)
    return Instrumented(func, shadows, tuple(ops))


def without_reports(fn: Func) -> Func:
    """The Func without what it prints and checks."""
    return rebuild(fn, lambda b, op, args: () if effect_of(op.kind) is Effect.REPORT else None)


def report(b: Builder, place: Value, stale: Param, number: int, *, marked: bool) -> None:
    """Put the number into `stale` if something at a place is marked, or something is not. Any that
    is put there will do."""
    marks = b.emit("load", place)
    size = marks.type.size if isinstance(marks.type, Tensor) else 1
    count = b.emit("sum", marks) if isinstance(marks.type, Tensor) else marks
    cond = ("gt", 0) if marked else ("lt", size)
    is_hit = b.emit(cond[0], count, b.const(cond[1], i32))
    store_if(b, is_hit, b.emit("elem", stale), b.const(number, i32))
