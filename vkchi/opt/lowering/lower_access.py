"""Address lowering: array element pointers become index arithmetic, clamps and `address` ops.

It replaces `elem`, `member` and `member_at` of arrays, and static extents. Loads, stores and
atomics of elements become accesses to the scalars that memory holds.

    %p = elem %x, %i, %j          ->    %r = mul %i, %n;  %o = add %r, %j
    %q = elem %x, %i, %k                %p = address %x, %o [0];  %q = address %x, %o [1]

where %k is `%j + 1`. Equal subexpressions are emitted once per scope; `layouts` emits the
arithmetic. Pointers to private memory are unchanged. Indices that `bounds` did not mark as in range
are clamped or compared with their extents. Runs after all passes that analyze elements.

A workgroup array becomes an array of scalars, with a spare element if an index may be out of range.
It is stored as unsigned integers of at least 32 bits in two cases:

- its elements are floats that are exchanged or compared and swapped;
- its elements are narrow, and a `word` op refers to one of their words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, base_memory, has_kind, shape_source_name, walk
from vkchi.ir.ops import SWAPS, UPDATES
from vkchi.opt.lowering.layouts import (
    SCALARS,
    ElementLocation,
    IndexedArray,
    LayoutAccess,
    component,
    layout_of,
)
from vkchi.opt.lowering.offsets import ArithmeticBuilder
from vkchi.opt.lowering.packed_access import PACKED
from vkchi.target.remarks import Decision, Log, record
from vkchi.types import Array, Layout, Ptr, Scalar, i32, i64, scalar_named, scalar_of, u32, u64
from vkchi.types.packed_numbers import Packed

Args = tuple[Value, ...]
# Ops that address arithmetic may share with the program (merged by CSE).
SHARED = frozenset({"const", "add", "mul", "bitcast"})
WORDS = frozenset({i32, i64, u32, u64})
# Access protocols of layouts whose elements are not plain scalars in memory, by class.
ACCESSES: dict[type[Layout], LayoutAccess] = {Packed: PACKED}


def access_of(t: Array) -> LayoutAccess:
    """Return the `LayoutAccess` of an array type: that in `ACCESSES` for its layout, else
    `SCALARS`."""
    return SCALARS if t.layout is None else ACCESSES.get(type(t.layout), SCALARS)


def lower_access(fn: Func, log: Log | None = None) -> Func:
    """Replace `elem`, and accesses through it, by address arithmetic.

    Records in `log` the accesses of array parameters that are not proved in range.
    """
    return AddressLowering(fn, log).run(fn)


class AddressLowering(ArithmeticBuilder):
    """Lowers one Func. `places` holds the locations of removed pointers, `roots` the descriptions
    of arrays.

    `kept` and `need_spare` are the sets of `survey`. Handlers of accesses return None, which keeps
    the op, for private memory.
    """

    def __init__(self, fn: Func, log: Log | None) -> None:
        super().__init__(self.visit_op, VISITED)
        self.log = log
        self.params = {p.name: p for p in fn.params}
        self.kept, self.need_spare = survey(fn)
        self.places: dict[Value, ElementLocation] = {}
        self.roots: dict[Value, IndexedArray] = {}

    def visit_op(self, b: Builder, op: Op, args: Args) -> Sequence[Value] | None:
        handler = HANDLERS.get(op.kind)
        if handler is not None:
            return handler(self, op, args)
        return self.merge(op, args) if op.type in WORDS else None

    def root(self, array: Value) -> IndexedArray:
        """Return the description of an array parameter or lowered workgroup array (memoized)."""
        found = self.roots.get(array)
        if found is None:
            t = array.type
            assert isinstance(array, Param) and isinstance(t, Array)
            shaped = self.params.get(shape_source_name(array), array)
            found = self.roots[array] = IndexedArray(t, array, t.stored, shaped)
        return found

    def shared(self, op: Op, args: Args) -> Sequence[Value]:
        """Append an array of scalars in place of a workgroup array, and record it in `roots`."""
        t = op.type
        assert isinstance(t, Array)
        elem = scalar_of(t.elem)
        stored = scalar_named(f"u{max(elem.bits, 32)}") if op in self.kept else elem
        length = layout_of(t).size + (t.scalars_per_element if op in self.need_spare else 0)
        flat = Array.of(stored, 1, (max(length, 1),), space="shared")
        array = self.b.insert(Op("shared", (), None, flat, op.span, op.name))
        self.roots[op] = IndexedArray(t, array, stored, array)
        return (op,)

    def shape(self, op: Op, args: Args) -> Sequence[Value] | None:
        t = op.args[0].type
        assert isinstance(t, Array)
        return None if t.shape is None else (self.number(t.shape[op.attr], i32),)

    # --- places

    def elem(self, op: Op, args: Args) -> Sequence[Value]:
        root = self.root(op.args[0])
        inside = op.attr == "inbounds"
        if not inside and isinstance(op.args[0], Param):
            record(self.log, Decision("unproved", op.span, name=op.args[0].name))
        self.places[op] = access_of(root.type).locate(self, root, args[1:], inside=inside)
        return (op,)

    def member(self, op: Op, args: Args) -> Sequence[Value] | None:
        place = self.places.get(op.args[0])
        if place is None:
            return None
        is_known = len(args) == 1
        by = component(place, op.attr) if is_known else place.access.part_at(self, place, args[1])
        self.places[op] = by
        return (op,)

    # --- accesses

    def load(self, op: Op, args: Args) -> Sequence[Value] | None:
        place = self.places.get(op.args[0])
        return None if place is None else (place.access.load(self, place),)

    def store(self, op: Op, args: Args) -> Sequence[Value] | None:
        place = self.places.get(op.args[0])
        if place is None:
            return None
        place.access.store(self, place, args[1])
        return ()

    def update(self, op: Op, args: Args) -> Sequence[Value] | None:
        place = self.places.get(op.args[0])
        if place is None:
            return None
        return (place.access.update(self, place, op.kind, args[1:]),)

    def word(self, op: Op, args: Args) -> Sequence[Value] | None:
        """Lower `word` to the address of the 32-bit word of a narrow value, `word_shift` to its
        first bit."""
        place = self.places.get(op.args[0])
        if place is None:
            return None
        return (place.access.word(self, place)[op.kind == "word_shift"],)


HANDLERS: dict[str, Callable[[AddressLowering, Op, Args], Sequence[Value] | None]] = {
    "shared": AddressLowering.shared,
    "shape": AddressLowering.shape,
    "elem": AddressLowering.elem,
    "member": AddressLowering.member,
    "member_at": AddressLowering.member,
    "load": AddressLowering.load,
    "store": AddressLowering.store,
    **dict.fromkeys(UPDATES, AddressLowering.update),
    "word": AddressLowering.word,
    "word_shift": AddressLowering.word,
}
VISITED = HANDLERS.keys() | SHARED


def survey(fn: Func) -> tuple[set[Value], set[Value]]:
    """Return the arrays to store as unsigned integers, and those with an index that may be out of
    range.

    Both sets matter for `shared` ops only. They may contain array parameters; they are empty if
    there is no `shared` op.
    """
    kept: set[Value] = set()
    need_spare: set[Value] = set()
    for op in walk(fn.body) if has_kind(fn.body, ("shared",)) else ():
        if op.kind == "elem" and op.attr != "inbounds":
            need_spare.add(op.args[0])
        elif op.kind == "word" or (op.kind in SWAPS and _is_of_floats(op.args[0])):
            kept.add(base_memory(op.args[0]))
    return kept, need_spare


def _is_of_floats(place: Value) -> bool:
    assert isinstance(place.type, Ptr)
    elem: Scalar = scalar_of(place.type.elem)
    return elem.kind == "f"
