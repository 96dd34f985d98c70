"""A kernel that notes which elements it reads, and finds those it overwrites after.

Owns: `watch`, which adds to every access of the arrays of given names: a load puts its number into
its element of `NAME.read`, and a store or atomic that finds one there puts it into its own element
of `broken`.
Source: Taichi's documentation, global data access rule 1. Must not know: launches.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.autodiff.sweep import place_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, base_of
from vkchi.ir.names import READ
from vkchi.ir.ops import WRITES
from vkchi.ir.rebuild import rebuild
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Layout, Ptr, Tensor, i32, row_major, with_scalar

BROKEN = ".broken"  # numbers of loads, by what breaks the rules


class Watched(NamedTuple):
    """The Func, the names of flags by array, the loads that are numbered from `first` on, and the
    ops that `broken` has an element for."""

    func: Func
    flags: dict[str, str]
    first: int
    reads: tuple[Op, ...]
    ops: tuple[Op, ...]


def watch(fn: Func, names: frozenset[str], first: int = 1) -> Watched:
    """The Func that watches the arrays of these names. Its loads are numbered from `first` on."""
    flags = {p: Param(flag_type(p), p.name + READ) for p in fn.params if p.name in names}
    broken = Param(Array.of(i32, 1), BROKEN)
    reads: list[Op] = []
    ops: list[Op] = []

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        root = base_of(args[0]) if args and op.kind in ("load", *WRITES) else None
        flag = flags.get(root) if isinstance(root, Param) else None
        if flag is None:
            return None
        place = place_in(b, args[0], flag, lambda v: v)
        assert isinstance(place.type, Ptr)
        if op.kind == "load":
            reads.append(op)
            b.emit("store", place, b.const(first + len(reads) - 1, place.type.elem))
            return None
        found = b.emit("load", place)
        t = found.type
        parts = [b.emit("extract", found, attr=k) for k in range(t.size)
                 ] if isinstance(t, Tensor) else [found]  # fmt: skip
        for part in parts:
            b.emit("atomic_max", b.emit("elem", broken, b.const(len(ops), i32)), part)
        ops.append(op)
        return None

    func = rebuild(fn, visit)
    params = (*fn.params, *flags.values(), broken)
    made = Func(f"{fn.name}.watched", params, func.body, fn.span)
    names_of = {p.name: q.name for p, q in flags.items()}
    return Watched(made, names_of, first, tuple(reads), tuple(ops))


def flag_type(p: Param) -> Array:
    """An array of the same shape, of flags."""
    t = p.type
    assert isinstance(t, Array)
    elem = with_scalar(t.elem, i32)
    if t.shape is None:
        return Array.of(elem, t.ndim)
    plain = row_major(t.shape, t.scalars_per_element)
    origin = t.layout.origin if t.layout is not None else ()
    return Array.of(elem, t.ndim, t.shape, Layout(*plain[:3], origin))
