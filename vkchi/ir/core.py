"""CHI IR data structures. This docstring is the specification.

- A `Func` has parameters and a body `Region` with structured control flow. A `Program` is a tuple
  of Funcs that run in order. Before `split_dispatches` it has one Func, whose body may hold several
  `parallel` ops among serial code. After it every Func is one dispatch.
- A `Region` is a list of ops that ends in `yield`. It has parameters (loop index, carried values)
  and sees the values that are defined before its op in the enclosing regions.
- An `Op` has a kind (a row of `ops.TABLE`), arguments (object references), one hashable `attr`,
  regions, and a source span. An op with one result is that value itself. Ops with regions have
  `Result` values instead, any number of them.
- A `Value` is a `Param`, an `Op` of one result, or a `Result`. Equality is identity; there are no
  ids, parent links or use lists. `name` is a printing hint, may be empty and need not be unique.
- IR is immutable after insertion. A pass returns a new Func, which may share unchanged ops with the
  old one.
- A constant is (type, bit pattern). The attr of a `const` is an int of the scalar's width, or a
  tuple of ints for a tensor. It is never a Python float.

    >>> b = Builder(); x = b.const(2, i32); y = b.emit("add", x, x)     # see builder.py
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.span import Span
from vkchi.types import Array, Scalar, Tensor, Type, needs_wide
from vkchi.types.array_attributes import PLAIN, Attributes
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.target.artifact import DispatchSize, MemoryFill

NO_FILLS: Mapping[str, tuple[MemoryFill, ...]] = MappingProxyType({})
NO_SIZES: Mapping[str, DispatchSize] = MappingProxyType({})


class Value:
    """An operand: it has a `type` and a `name` hint."""

    __slots__ = ("name", "type")
    type: Type
    name: str


class Param(Value):
    """A parameter of a Func or Region.

    A Func's parameter has a unique `name`, by which launches bind it. `attributes` are facts about
    an array.
    """

    __slots__ = ("attributes",)

    def __init__(self, type: Type, name: str = "", attributes: Attributes = PLAIN) -> None:
        self.type, self.name, self.attributes = type, name, attributes

    def companion(self, name: str) -> Param:
        """Return a parameter of the same type and attributes, for another array of the same shape.

        Its `aligned` is the default.
        """
        return Param(self.type, name, self.attributes._replace(aligned=PLAIN.aligned))


class Op(Value):
    """One operation. `type` is its result type, or None for ops without a result or with regions.

    An op of one result is that result and holds no reference to itself. Unused ops are therefore
    freed by reference counting, without Python's cyclic collector.
    """

    __slots__ = ("_several", "args", "attr", "kind", "regions", "span")

    def __init__(
        self,
        kind: str,
        args: tuple[Value, ...],
        attr: Any,
        type: Type | None,
        span: Span | None = None,
        name: str = "",
        regions: tuple[Region, ...] = (),
        result_types: tuple[Type, ...] = (),
    ) -> None:
        self.kind, self.args, self.attr, self.span, self.name = kind, args, attr, span, name
        self.regions = regions
        self.type = type  # type: ignore[assignment]
        self._several: tuple[Value, ...] = ()
        if result_types:
            self._several = tuple([Result(self, i, t) for i, t in enumerate(result_types)])

    @property
    def results(self) -> tuple[Value, ...]:
        """The results: the op itself if it has a type."""
        return (self,) if self.type is not None else self._several


class Result(Value):
    """The `index`-th result of an op with regions."""

    __slots__ = ("index", "op")

    def __init__(self, op: Op, index: int, type: Type, name: str = "") -> None:
        self.op, self.index, self.type, self.name = op, index, type, name


class Region:
    """Parameters and ops; the last op is a `yield`."""

    __slots__ = ("ops", "params")

    def __init__(self, params: tuple[Param, ...], ops: list[Op]) -> None:
        self.params, self.ops = params, ops

    @property
    def yielded(self) -> tuple[Value, ...]:
        """The arguments of the final yield."""
        return self.ops[-1].args


class Func:
    """An IR function: `params`, `body` (a Region without parameters), a name, a span."""

    __slots__ = ("body", "name", "params", "span")

    def __init__(
        self, name: str, params: tuple[Param, ...], body: Region, span: Span | None = None
    ) -> None:
        self.name, self.params, self.body, self.span = name, params, body, span


class Program:
    """The IR of one kernel: its Funcs in launch order.

    `fills` maps the name of a Func that only fills whole arrays with constants to these fills,
    `sizes` that of each Func to its iterations and bytes.
    `has_next`: a second compile can produce better code (tier 2).
    """

    __slots__ = ("fills", "funcs", "has_next", "name", "sizes")

    def __init__(
        self, name: str, funcs: tuple[Func, ...],
        fills: Mapping[str, tuple[MemoryFill, ...]] = NO_FILLS, *, has_next: bool = False,
        sizes: Mapping[str, DispatchSize] = NO_SIZES,
    ) -> None:  # fmt: skip
        self.name, self.funcs, self.fills, self.has_next = name, funcs, fills, has_next
        self.sizes = sizes


def walk(region: Region) -> Iterator[Op]:
    """Yield every op of the region and of nested regions, in pre-order."""
    stack = [iter(region.ops)]
    while stack:
        for op in stack[-1]:
            yield op
            if op.regions:
                stack += [iter(inner.ops) for inner in reversed(op.regions)]
                break
        else:
            stack.pop()


def uses_in(region: Region) -> dict[Value, list[Op]]:
    """Map each value to its uses in this and nested regions: ops, in order, once per operand."""
    found: dict[Value, list[Op]] = {}
    for op in walk(region):
        for v in op.args:
            found.setdefault(v, []).append(op)
    return found


def used_in(region: Region) -> set[Value]:
    """Return every value that an op in this or a nested region uses."""
    return {v for op in walk(region) for v in op.args}


def find_parallel(fn: Func) -> Op | None:
    """Return the `parallel` op of a split Func, or None if it is a serial dispatch."""
    return next((op for op in fn.body.ops if op.kind == "parallel"), None)


def has_kind(region: Region, kinds: Container[str]) -> bool:
    """True if this or a nested region contains an op of one of these kinds."""
    todo = [region]
    while todo:
        for op in todo.pop().ops:
            if op.kind in kinds:
                return True
            if op.regions:
                todo += op.regions
    return False


def params_under(values: Iterable[Value]) -> set[Param]:
    """Return the Func and region parameters that these values transitively depend on.

    Operands of ops are followed, but not the regions of control ops.
    """
    seen: set[Value] = set()
    todo = list(values)
    while todo:
        v = todo.pop()
        if v not in seen:
            seen.add(v)
            todo += v.op.args if isinstance(v, Result) else v.args if isinstance(v, Op) else ()
    return {v for v in seen if isinstance(v, Param)}


def attributes_of(array: Value) -> Attributes:
    """Return an array's attributes: `PLAIN` if it is not a parameter."""
    return array.attributes if isinstance(array, Param) else PLAIN


def is_wide(array: Value) -> bool:
    """True if the array needs 64-bit indices and extents."""
    t = array.type
    assert isinstance(t, Array)
    if t.shape is None or attributes_of(array).ext64:
        return attributes_of(array).ext64
    count = math.prod(t.shape) * t.scalars_per_element if t.layout is None else t.layout.size
    return needs_wide(count, t.stored.size_bytes)


def shape_source_name(array: Value) -> str:
    """Return the name of the array parameter whose shape this array has: its `like`, or its own."""
    return attributes_of(array).like or array.name


def base_memory(ptr: Value) -> Value:
    """Return the array or private variable that a pointer (or array) is derived from."""
    while isinstance(ptr, Op) and ptr.kind in ("elem", "member", "member_at", "address", "word"):
        ptr = ptr.args[0]
    return ptr


# --- constants -------------------------------------------------------------------------------


def bits_of(value: Any, t: Scalar) -> int:
    """Return the bit pattern of a number in type t. Integers wrap, floats round to nearest.

    >>> bits_of(-1, i32) == 0xFFFFFFFF
    True
    """
    if t.kind == "b":
        return int(bool(value))
    if t.kind in "iu":
        return int(value) & ((1 << t.bits) - 1)
    with np.errstate(all="ignore"):
        return int(np.asarray(value, t.dtype).view(f"u{t.bits // 8}"))


def value_of(bits: int, t: Scalar) -> Any:
    """Return the numpy scalar of a bit pattern in type t."""
    if t.kind == "b":
        return np.bool_(bits)
    return np.asarray(bits, f"u{t.bits // 8}").view(t.dtype)[()]


def constant_array(op: Op) -> Any:
    """Return the numpy value of a `const` op: a scalar, or an array of the tensor's shape."""
    t = op.type
    if isinstance(t, Tensor):
        own = np.dtype(np.bool_ if t.elem.kind == "b" else f"u{t.elem.bits // 8}")
        return np.array(op.attr, own).view(t.elem.dtype).reshape(t.shape)
    assert isinstance(t, Scalar)
    return value_of(op.attr, t)


def constant_attr(value: Any, t: Scalar | Tensor) -> Any:
    """Return the `const` attr of a numpy value: the inverse of `constant_array`.

    The value is converted to t; a number fills a tensor.
    """
    if isinstance(t, Scalar):
        return bits_of(value, t)
    flat = np.broadcast_to(np.asarray(value), t.shape).reshape(-1)
    return tuple(bits_of(v, t.elem) for v in flat)
