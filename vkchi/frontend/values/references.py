"""Compile-time values: the results of expressions while a kernel is lowered.

An expression evaluates to one of

- any Python object: numbers, functions, types, fields, ArrayRefs, tuples, lists, strings. A Python
  number is folded by Python's rules until it meets an IR value or is bound to a variable;
- an `ir.core.Value`: a typed scalar or tensor;
- a `Target`: an assignable reference that has not been read yet; `operands.value` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import CompilationError, InternalError
from vkchi.ir.builder import Builder, emit_cas_loop, updated_value
from vkchi.ir.core import Op, Value, base_memory, walk_ops
from vkchi.ir.num import Num
from vkchi.ir.ops import ATOMICS, BITWISE, Effect, effect_of
from vkchi.span import Span
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple
from vkchi.types import (
    Array,
    Ptr,
    Scalar,
    Tensor,
    bf16,
    f32,
    scalar_of,
    shape_of,
    with_scalar,
    with_shape,
)  # fmt: skip
from vkchi.types.packed_numbers import Quantised, SharedFloats

if TYPE_CHECKING:
    from vkchi.frontend.state.dependencies import Dependencies
    from vkchi.frontend.state.pending import PendingCaution
    from vkchi.frontend.state.reports import ReportBuilder
    from vkchi.frontend.state.scope import Var
    from vkchi.ndarray import Ndarray


class Context(Protocol):
    """The protocol of `cx`, which every handler receives.

    `span` is that of the expression being lowered.
    """

    b: Builder
    options: Options
    reports: ReportBuilder
    stopped: dict[Value, bool]
    cautions: list[PendingCaution]
    in_static: bool
    dependencies: Dependencies
    part_store: PartStore | None

    @property
    def in_parallel(self) -> bool: ...

    @property
    def block(self) -> int | None: ...

    @property
    def span(self) -> Span: ...

    @property
    def called(self) -> str: ...

    def fail(
        self,
        sentence: str,
        *,
        kind: type[CompilationError] = ...,
        label: str = "",
        help: str = "",
        arg: int | None = None,
        notes: tuple[tuple[str, Span | None], ...] = (),
        constant: Any = None,
    ) -> CompilationError: ...

    def array_of(self, obj: Any) -> ArrayRef: ...

    def stop_gradient(self, array: ArrayRef) -> None: ...

    def seed(self) -> None: ...

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Merge(Protocol):
    """The protocol of `flow.PathMerge`, the merge of variables where two paths join."""

    def merge(self, a: Any, b: Any, name: str) -> Any:
        """Merge two trees into one. Raises KernelTypeError where constants differ."""
        ...

    def numbers(self, a: Any, b: Any, name: str) -> Any:
        """Merge the numbers, vectors or matrices a and b. Raises KernelTypeError if b is none."""
        ...

    def differ(self, a: Any, b: Any, name: str) -> CompilationError: ...


class Target(Protocol):
    """The protocol of assignable references (lvalues): memory or a variable.

    Implementations derive from Assignable.
    """

    @property
    def type(self) -> Scalar | Tensor: ...

    def load(self, cx: Context) -> Value: ...

    def store(self, cx: Context, v: Value) -> None: ...

    def atomic(self, cx: Context, kind: str, *values: Value) -> Value:
        """Apply the ops.UPDATES row `kind`; values have the target's type. Return the old value."""
        ...

    def component(self, cx: Context, index: int | Value) -> Target:
        """Return the Target of a component of a vector or matrix; a Value as index is i32."""
        ...

    @property
    def roots(self) -> list[Var]:
        """The variables that a store changes; none for memory."""
        ...

    def is_shared(self, cx: Context) -> bool:
        """True if other invocations may access the target: memory, except variables of serial
        code."""
        ...


class Assignable:
    """Base of all Targets: assignable references that have not been read yet."""

    __slots__ = ()

    @property
    def roots(self) -> list[Var]:
        return []

    def is_shared(self, cx: Context) -> bool:
        return False


def emit_at(cx: Context, kind: str, *args: Value, index: int | Value) -> Value:
    """Emit an op of a component: `kind` with a constant index, `kind`_at with a computed one."""
    if isinstance(index, int):
        return cx.b.emit(kind, *args, attr=index)
    return cx.b.emit(f"{kind}_at", *args, index)


class MemoryTarget(Assignable):
    """A Target in memory: an array element, a `local` variable, or a component of one."""

    __slots__ = ("ptr", "type")

    def __init__(self, ptr: Value) -> None:
        assert isinstance(ptr.type, Ptr)
        self.ptr, self.type = ptr, ptr.type.elem

    @property
    def space(self) -> str:
        """The address space: global, shared or local."""
        assert isinstance(self.ptr.type, Ptr)
        return self.ptr.type.space

    def part(self, ptr: Value) -> MemoryTarget:
        return MemoryTarget(ptr)

    def component(self, cx: Context, index: int | Value) -> MemoryTarget:
        return self.part(emit_at(cx, "member", self.ptr, index=index))

    def is_shared(self, cx: Context) -> bool:
        return cx.in_parallel or self.space != "local"

    def load(self, cx: Context) -> Op:
        """Return the value, as f32 if it is a bf16."""
        v = cx.b.emit("load", self.ptr)
        is_stopped = cx.stopped and base_memory(self.ptr) in cx.stopped
        return self._seen(cx, cx.b.emit("stop_grad", v) if is_stopped else v)

    def store(self, cx: Context, v: Value) -> None:
        cx.b.emit("store", self.ptr, self._stored(cx, v))

    def atomic(self, cx: Context, kind: str, *values: Value) -> Op:
        return self._seen(cx, cx.b.emit(kind, self.ptr, *[self._stored(cx, v) for v in values]))

    def _seen(self, cx: Context, v: Op) -> Op:
        is_bf16 = scalar_of(self.type) is bf16
        return cx.b.emit("cast", v, type=with_scalar(self.type, f32)) if is_bf16 else v

    def _stored(self, cx: Context, v: Value) -> Value:
        is_other = scalar_of(self.type) is bf16 and v.type is not self.type
        return cx.b.emit("cast", v, type=self.type) if is_other else v

    def changed(self, cx: Context, update: Callable[[Value], Value]) -> Value:
        """Store `update` of the current value by a compare-and-swap loop; return the old value."""
        return emit_cas_loop(cx.b, self.ptr, update)


class QuantisedTarget(MemoryTarget):
    """Target of a bit-packed element, or of a component of one: writes encode, reads decode.

    An encoded number is in the highest bits of a slot, an integer of 32 or 64 bits
    (`types.packed_numbers`). In the IR the array has these slots as elements.
    `slots` is the target of the slots, `number` their encoding.

        x[i] = v        # store %p, (v << 27)
        x[i] += v       # atomic_add %p, (v << 27); a compare-and-swap loop for floats
    """

    __slots__ = ("number", "slots")

    def __init__(self, slots: MemoryTarget, number: Quantised) -> None:
        self.slots, self.number, self.ptr = slots, number, slots.ptr
        self.type = with_shape(number.compute, shape_of(slots.type))

    def part(self, ptr: Value) -> MemoryTarget:
        return QuantisedTarget(self.slots.part(ptr), self.number)

    def load(self, cx: Context) -> Any:
        return self._decoded(cx, self.slots.load(cx))

    def store(self, cx: Context, v: Value) -> None:
        self.slots.store(cx, self._encoded(cx, v))

    def atomic(self, cx: Context, kind: str, *values: Value) -> Any:
        """Apply the ops.UPDATES row `kind`; return the old value.

        Additions and bitwise ops are applied to the encoded integers if `number.adds_slots`. Other
        results are encoded and stored by compare-and-swap, one component at a time.
        """
        combine = ATOMICS[kind].combine if kind in ATOMICS else ""
        if self.number.adds_slots and (combine == "add" or combine in BITWISE):
            encoded = [self._encoded(cx, v) for v in values]
            return self._decoded(cx, self.slots.atomic(cx, kind, *encoded))
        parts = components_of(cx, self, *values)
        olds = [place._swapped(cx, kind, *part) for place, part in parts]
        return cx.b.emit("pack", *olds, type=self.type) if shape_of(self.type) else olds[0]

    def _swapped(self, cx: Context, kind: str, *values: Value) -> Value:
        def update(slot: Value) -> Value:
            return self._encoded(cx, updated_value(cx.b, kind, self._decoded(cx, slot), values))

        return self._decoded(cx, self.slots.changed(cx, update))

    def _encoded(self, cx: Context, v: Value) -> Value:
        return self.number.encode(Num(cx.b, v)).v

    def _decoded(self, cx: Context, slot: Value) -> Value:
        return self.number.decode(Num(cx.b, slot)).v


class SharedTarget(QuantisedTarget):
    """Target of some `parts` of floats that share an exponent: a scalar, or a vector or matrix.

    All parts are in one slot. A store of some is a compare-and-swap loop that decodes the others
    and encodes all anew, with the exponent of the largest. Successive stores to parts of one
    element are combined: an old number must not decide the exponent of new ones. `index`: the
    target is the component at this computed index.

        v[i] = w        # store %p, encode(w)
        v[i].x = a      # compare and swap: encode(a, decode(old, 1), decode(old, 2))
    """

    __slots__ = ("index", "parts")
    number: SharedFloats

    def __init__(
        self, slots: MemoryTarget, number: SharedFloats, parts: tuple[int, ...],
        t: Scalar | Tensor, index: Value | None = None,
    ) -> None:  # fmt: skip
        super().__init__(slots, number)
        self.parts, self.type, self.index = parts, t, index

    def part(self, ptr: Value) -> MemoryTarget:
        raise InternalError("parts of a slot have no pointers")

    def component(self, cx: Context, index: int | Value) -> MemoryTarget:
        elem = scalar_of(self.type)
        if isinstance(index, int):
            return SharedTarget(self.slots, self.number, (self.parts[index],), elem)
        return SharedTarget(self.slots, self.number, self.parts, elem, index)

    def load(self, cx: Context) -> Any:
        return self._of_slot(cx, self.slots.load(cx))

    def store(self, cx: Context, v: Value) -> None:
        if self.index is not None:
            self.slots.changed(cx, lambda slot: self._slot_with(cx, slot, v))
            return
        values = dict(zip(self.parts, cx.b.components(v), strict=True))
        values = take_part_store(cx, self.ptr) | values
        if len(values) == len(self.number.parts):
            self.slots.store(cx, self._packed(cx, [values[k] for k in sorted(values)]))
        else:
            self.slots.changed(cx, lambda slot: self._packed(cx, self._replaced(cx, slot, values)))
            if cx.b.ops:  # none in a kernel that runs as plain Python
                cx.part_store = PartStore(cx.b.ops[-1], self.ptr, values)

    def atomic(self, cx: Context, kind: str, *values: Value) -> Any:
        """Apply the ops.UPDATES row `kind`; return the old value."""

        def update(slot: Value) -> Value:
            olds = cx.b.components(self._of_slot(cx, slot))
            columns = zip(olds, *[cx.b.components(v) for v in values], strict=True)
            new = [updated_value(cx.b, kind, old, given) for old, *given in columns]
            return self._slot_with(cx, slot, cx.b.assemble(new, self.type))

        return self._of_slot(cx, self.slots.changed(cx, update))

    def _of_slot(self, cx: Context, slot: Value) -> Value:
        """The target's value in a slot."""
        held = [self.number.unpack(Num(cx.b, slot), k).v for k in self.parts]
        if self.index is None:
            return cx.b.assemble(held, self.type)
        return cx.b.emit("extract_at", self._vector(cx, held), self.index)

    def _slot_with(self, cx: Context, slot: Value, v: Value) -> Value:
        """The slot with another value of the target."""
        new = cx.b.components(v)
        if self.index is not None:
            held = [self.number.unpack(Num(cx.b, slot), k).v for k in self.parts]
            changed = cx.b.emit("insert_at", self._vector(cx, held), v, self.index)
            new = cx.b.components(changed)
        values = dict(zip(self.parts, new, strict=True))
        return self._packed(cx, self._replaced(cx, slot, values))

    def _replaced(self, cx: Context, slot: Value, values: dict[int, Value]) -> list[Value]:
        """The numbers of all parts of a slot, some replaced."""
        number = self.number
        return [
            values[k] if k in values else number.unpack(Num(cx.b, slot), k).v
            for k in range(len(number.parts))
        ]

    def _vector(self, cx: Context, values: Sequence[Value]) -> Value:
        return cx.b.assemble(values, Tensor.of(scalar_of(self.type), (len(values),)))

    def _packed(self, cx: Context, values: Sequence[Value]) -> Value:
        return self.number.pack([Num(cx.b, v) for v in values]).v


class PartStore(NamedTuple):
    """The last store to parts of an element: the op, the pointer to the slot, values by part."""

    op: Op
    ptr: Value
    values: dict[int, Value]


def take_part_store(cx: Context, ptr: Value) -> dict[int, Value]:
    """Remove the last store to parts of the element at `ptr` from the open region; return its
    values. Empty if there is none, or if ops behind it may access the element."""
    last, ops = cx.part_store, cx.b.ops
    if last is None:
        return {}
    for k in reversed(range(len(ops))):
        if ops[k] is last.op:
            if not is_same_address(ptr, last.ptr):
                break
            del ops[k]
            return last.values
        if not all(leaves_alone(op, base_memory(ptr)) for op in walk_ops([ops[k]])):
            break
    return {}


def leaves_alone(op: Op, array: Value) -> bool:
    """True if an op neither accesses an array nor orders accesses of other invocations to it."""
    effect = effect_of(op.kind)
    if effect in (Effect.READ, Effect.WRITE):
        return not op.args or base_memory(op.args[0]) is not array
    is_passed = effect in (Effect.PURE, Effect.ALLOC, Effect.REPORT)
    return is_passed or op.kind in ("if", "yield")


def is_same_address(x: Value, y: Value) -> bool:
    """True if two values are computed by the same pure ops from the same values."""
    if x is y:
        return True
    if not (isinstance(x, Op) and isinstance(y, Op)) or effect_of(x.kind) is not Effect.PURE:
        return False
    is_like = (x.kind, x.attr, x.type, len(x.args)) == (y.kind, y.attr, y.type, len(y.args))
    return is_like and all(map(is_same_address, x.args, y.args))


def components_of(
    cx: Context, place: QuantisedTarget, *values: Value
) -> list[tuple[QuantisedTarget, list[Value]]]:  # fmt: skip
    """Return the components of an element, each with those of the values; one for a scalar."""
    t = place.type
    if not isinstance(t, Tensor):
        return [(place, list(values))]
    found: list[tuple[QuantisedTarget, list[Value]]] = []
    for k in range(t.size):
        part = place.part(cx.b.emit("member", place.ptr, attr=k))
        assert isinstance(part, QuantisedTarget)
        found.append((part, [cx.b.emit("extract", v, attr=k) for v in values]))
    return found


ORIGIN = "__vkchi_origin__"  # the attribute of arrays in kernels that is their `origin`


class Indexed(Protocol):
    """The protocol of what has indices: an array, or a slice of one."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> tuple[int, ...]: ...

    def shape(self, cx: Context) -> tuple[Any, ...]: ...


class ArrayRef:
    """An array in a kernel: a field, an ndarray argument or a shared array.

    - `value` has an Array type.
    - `source` is the captured Python object, if there is one.
    - `component`: the reference is to this component of each element. If floats share an exponent,
      these are the numbers of some parts.
    - `clamps`: indices are clamped to their axes.
    - `name`: for messages; by default that of `value`.
    - `member`: the ndarray that a path leads to, if it is one. The reference equals it.
    """

    __slots__ = ("clamps", "component", "member", "name", "source", "value")
    __vkchi_captures__ = True  # `member` may be set (`member_of`)

    def __init__(
        self,
        value: Value,
        source: Any = None,
        component: Any = None,
        *,
        clamps: bool = False,
        name: str = "",
        member: Ndarray | None = None,
    ) -> None:
        assert isinstance(value.type, Array)
        self.clamps, self.name, self.member = clamps, name or value.name, member
        self.value, self.source, self.component = value, source, component

    def __eq__(self, other: object) -> bool:
        return self is other or (self.member is not None and self.member is other)

    def __repr__(self) -> str:  # Python's errors may show it
        return self.name

    def __hash__(self) -> int:
        return object.__hash__(self) if self.member is None else hash(self.member)

    @property
    def type(self) -> Array:
        assert isinstance(self.value.type, Array)
        return self.value.type

    @property
    def origin(self) -> tuple[int, ...]:
        layout = self.type.layout
        return (layout.origin if layout is not None else ()) or (0,) * self.type.ndim

    def shape(self, cx: Context) -> tuple[Any, ...]:
        """Return the extents: Python ints if static, otherwise i32 values from the launch."""
        if self.type.shape is not None:
            return self.type.shape
        return tuple(cx.b.emit("shape", self.value, attr=k) for k in range(self.type.ndim))


def member_of(x: Any) -> Ndarray | None:
    """Return the captured ndarray, or ndarray of structs, that a value refers to; None for other
    values."""
    return getattr(x, "member", None) if hasattr(type(x), "__vkchi_captures__") else None
