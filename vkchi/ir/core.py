"""The objects CHI IR is made of. This docstring is the specification.

- A `Func` is straight code with structured control flow: parameters and a body `Region`. A
  `Program` is a tuple of Funcs run in order; before `split_dispatches` it has one Func, whose body
  may hold several `parallel` ops among serial code; after it every Func is one dispatch.
- A `Region` is a list of ops ending in `yield`, with parameters of its own (loop index, carried
  values). A region sees the values defined before its op in the enclosing regions.
- An `Op` has a kind (a row of `ops.TABLE`), arguments (object references), one hashable `attr`,
  regions, and a source span. If it has exactly one result, the op is that value. Ops with regions
  have `Result` values instead, any number of them.
- A `Value` is a `Param`, an `Op` of one result, or a `Result`. Identity is equality; there are no
  ids, parents or use lists. `name` is a hint for people, need not be unique, and may be "".
- Nothing is mutated after insertion. A pass returns a new Func and may share unchanged ops with the
  old one.
- A constant is (type, bit pattern): `const` has attr = an int of the scalar's width, or a tuple of
  them for a tensor, never a Python float.

Must not know: Python's AST, SPIR-V, devices.

    >>> b = Builder(); x = b.const(2, i32); y = b.emit("add", x, x)     # see builder.py
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.span import Span
from vkchi.types import Array, Scalar, Tensor, Type, needs_wide
from vkchi.types.attributes import PLAIN, Attributes
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.target.artifact import Fill

NO_FILLS: Mapping[str, tuple[Fill, ...]] = MappingProxyType({})


class Value:
    """Something an op can take: has a `type` and a `name` hint."""

    __slots__ = ("name", "type")
    type: Type
    name: str


class Param(Value):
    """A parameter of a Func or Region. Of a Func, `name` is unique and is what a launch binds, and
    `attributes` say what is known of an array."""

    __slots__ = ("attributes",)

    def __init__(self, type: Type, name: str = "", attributes: Attributes = PLAIN) -> None:
        self.type, self.name, self.attributes = type, name, attributes

    def companion(self, name: str) -> Param:
        """A parameter for another array of the same shape, which lies apart if this one does."""
        return Param(self.type, name, self.attributes._replace(aligned=PLAIN.aligned))


class Op(Value):
    """One operation. `type` is its result type, or None for ops with no result or with regions.
    Ops of one result hold none, themselves: what nobody refers to is gone at once, and nothing is
    left for Python's collector."""

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
        """The values that it gives: itself, if it has a type."""
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
    """One function of IR: `params`, `body` (a Region without parameters), a name, a span."""

    __slots__ = ("body", "name", "params", "span")

    def __init__(
        self, name: str, params: tuple[Param, ...], body: Region, span: Span | None = None
    ) -> None:
        self.name, self.params, self.body, self.span = name, params, body, span


class Program:
    """What a kernel compiles to: Funcs in launch order. `fills`: those that do nothing but set
    whole arrays to a number each, by name; `has_next`: better code was left to a second compile."""

    __slots__ = ("fills", "funcs", "has_next", "name")

    def __init__(
        self, name: str, funcs: tuple[Func, ...],
        fills: Mapping[str, tuple[Fill, ...]] = NO_FILLS, *, has_next: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.funcs, self.fills, self.has_next = name, funcs, fills, has_next


def walk(region: Region) -> Iterator[Op]:
    """Every op of the region and of the regions inside, in program order, an op before its own
    regions' ops."""
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
    """The ops of the region and of those inside that have a value as an operand, in order; an op
    for each operand that it is."""
    found: dict[Value, list[Op]] = {}
    for op in walk(region):
        for v in op.args:
            found.setdefault(v, []).append(op)
    return found


def used_in(region: Region) -> set[Value]:
    """Every value that an op in the region or in those inside uses."""
    return {v for op in walk(region) for v in op.args}


def find_parallel(fn: Func) -> Op | None:
    """The `parallel` op of a split Func, or None if it is a serial dispatch."""
    return next((op for op in fn.body.ops if op.kind == "parallel"), None)


def has_kind(region: Region, kinds: Container[str]) -> bool:
    """Whether an op of one of these kinds stands in the region or in the regions inside."""
    todo = [region]
    while todo:
        for op in todo.pop().ops:
            if op.kind in kinds:
                return True
            if op.regions:
                todo += op.regions
    return False


def params_under(values: Iterable[Value]) -> set[Param]:
    """The parameters, of whatever, that values are computed from."""
    seen: set[Value] = set()
    todo = list(values)
    while todo:
        v = todo.pop()
        if v not in seen:
            seen.add(v)
            todo += v.op.args if isinstance(v, Result) else v.args if isinstance(v, Op) else ()
    return {v for v in seen if isinstance(v, Param)}


def attributes_of(array: Value) -> Attributes:
    """What is known of an array: nothing, if it is no parameter."""
    return array.attributes if isinstance(array, Param) else PLAIN


def is_wide(array: Value) -> bool:
    """Whether an array is reached and looped over in 64 bits."""
    t = array.type
    assert isinstance(t, Array)
    if t.shape is None or attributes_of(array).wide:
        return attributes_of(array).wide
    count = math.prod(t.shape) * t.scalars_per_element if t.layout is None else t.layout.size
    return needs_wide(count, t.stored.size_bytes)


def shape_name(array: Value) -> str:
    """The array parameter whose extents an array has, by name; perhaps its own."""
    return attributes_of(array).like or array.name


def base_of(ptr: Value) -> Value:
    """The array or private place that a pointer (or array) leads to."""
    while isinstance(ptr, Op) and ptr.kind in ("elem", "member", "member_at", "address", "word"):
        ptr = ptr.args[0]
    return ptr


# --- constants -------------------------------------------------------------------------------


def bits_of(value: Any, t: Scalar) -> int:
    """The bit pattern of a number in type t; integers wrap, floats round to nearest.

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
    """The numpy scalar of a bit pattern in type t."""
    if t.kind == "b":
        return np.bool_(bits)
    return np.asarray(bits, f"u{t.bits // 8}").view(t.dtype)[()]


def constant_array(op: Op) -> Any:
    """The numpy value of a `const` op: a scalar, or an array of the tensor's shape."""
    t = op.type
    if isinstance(t, Tensor):
        own = np.dtype(np.bool_ if t.elem.kind == "b" else f"u{t.elem.bits // 8}")
        return np.array(op.attr, own).view(t.elem.dtype).reshape(t.shape)
    assert isinstance(t, Scalar)
    return value_of(op.attr, t)


def constant_attr(value: Any, t: Scalar | Tensor) -> Any:
    """The `const` attr for a numpy value (the inverse of `constant_array`)."""
    if isinstance(t, Scalar):
        return bits_of(value, t)
    flat = np.broadcast_to(np.asarray(value), t.shape).reshape(-1)
    return tuple(bits_of(v, t.elem) for v in flat)
