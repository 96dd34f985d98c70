"""CHI IR data structures.

- A `Func` has parameters and a body `Region` with structured control flow. A `Program` is a tuple
  of Funcs that run in order. The pass `split` makes a Program of a Func with several `parallel`
  ops: each of its Funcs is one dispatch.
- A `Region` is a list of ops that ends in `yield`. It has parameters (loop index, carried values)
  and sees the values that are defined before its op in the enclosing regions.
- An `Op` has a kind (a row of `ops.TABLE`), arguments (object references), one hashable `attr`,
  regions, and a source span. An op without regions has at most one result, and is that value
  itself. An op with regions has any number of `Result` values.
- A `Value` is a `Param`, an `Op` with a result, or a `Result`. Equality is identity; there are no
  ids, parent links or use lists. `name` is a printing hint, except that parameters of a Func have
  unique names.
- Passes do not change the ops of a Func. They return a new Func, which may share unchanged ops with
  the old one, or the old Func itself.
- A constant is (type, bit pattern). The attr of a `const` is an int of the scalar's width, or a
  tuple of ints for a tensor. It is never a Python float.

    >>> b = Builder(); x = b.const(2, i32); y = b.emit("add", x, x)     # see builder.py
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from vkchi.span import Span
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, Type, bf16, integer_range, needs_wide, scalar_of
from vkchi.types.bfloat16 import decode, encode
from vkchi.types.core import PLAIN, Attributes
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
        """Return a parameter called `name` of the same type and attributes, for an array of the
        same shape.

        Its attribute `aligned` is the default.
        """
        return Param(self.type, name, self.attributes._replace(aligned=PLAIN.aligned))


class Op(Value):
    """One operation. `type` is its result type, or None for ops without a result or with regions.

    An op that has a type is its own result. Results of an op with regions are `Result` objects.
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

    def __init__(self, op: Op, index: int, type: Type) -> None:
        self.op, self.index, self.type, self.name = op, index, type, ""


class Region:
    """Parameters and ops; the last op is a `yield`."""

    __slots__ = ("ops", "params")

    def __init__(self, params: tuple[Param, ...], ops: list[Op]) -> None:
        self.params, self.ops = params, ops

    @property
    def yielded(self) -> tuple[Value, ...]:
        return self.ops[-1].args


class Func:
    """An IR function: parameters, a body without parameters, a name, a source span."""

    __slots__ = ("body", "name", "params", "span")

    def __init__(
        self, name: str, params: tuple[Param, ...], body: Region, span: Span | None = None
    ) -> None:
        self.name, self.params, self.body, self.span = name, params, body, span


class Program:
    """The IR of one kernel: its Funcs in launch order.

    - fills: memory fills that are equivalent to a Func, by its name. Funcs without are absent.
    - sizes: iterations and bytes of each Func, by its name.
    """

    __slots__ = ("fills", "funcs", "name", "sizes")

    def __init__(
        self, name: str, funcs: tuple[Func, ...],
        fills: Mapping[str, tuple[MemoryFill, ...]] = NO_FILLS,
        sizes: Mapping[str, DispatchSize] = NO_SIZES,
    ) -> None:  # fmt: skip
        self.name, self.funcs, self.fills, self.sizes = name, funcs, fills, sizes


def walk(region: Region) -> Iterator[Op]:
    """Yield every op of the region and of nested regions, in pre-order."""
    return walk_ops(region.ops)


def walk_ops(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield these ops and every op of their regions, in pre-order."""
    stack = [iter(ops)]
    while stack:
        for op in stack[-1]:
            yield op
            if op.regions:
                stack += [iter(inner.ops) for inner in reversed(op.regions)]
                break
        else:
            stack.pop()


def uses_in(region: Region) -> dict[Value, list[Op]]:
    """Map each value to the ops that use it in this and nested regions, in order, once per
    operand."""
    found: dict[Value, list[Op]] = {}
    for op in walk(region):
        for v in op.args:
            found.setdefault(v, []).append(op)
    return found


def used_in(region: Region) -> set[Value]:
    """Return every value that is an operand of an op in this or a nested region."""
    return {v for op in walk(region) for v in op.args}


def find_parallel(fn: Func) -> Op | None:
    """Return the first `parallel` op of a Func's body, or None if it has none."""
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

    Operands of ops are followed. Regions of control ops are not, so values that only their ops use
    are missed.
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
    """Return the attributes of an array parameter, or the default `PLAIN` for any other array."""
    return array.attributes if isinstance(array, Param) else PLAIN


def is_wide(array: Value) -> bool:
    """True if the array needs 64-bit indices and extents.

    For an array of dynamic shape, that is its attribute `ext64`. One of static shape also needs
    them if `needs_wide` holds for its size.
    """
    t = array.type
    assert isinstance(t, Array)
    if t.shape is None or attributes_of(array).ext64:
        return attributes_of(array).ext64
    count = math.prod(t.shape) * t.scalars_per_element if t.layout is None else t.layout.size
    return needs_wide(count, t.stored.size_bytes)


def shape_source_name(array: Value) -> str:
    """Return the name of the array parameter whose shape this array has: its attribute `like`, or
    its own name."""
    return attributes_of(array).like or array.name


def base_memory(ptr: Value) -> Value:
    """Return the array, or the `local` op, that a pointer is derived from; an array is returned as
    is."""
    while isinstance(ptr, Op) and ptr.kind in ("elem", "member", "member_at", "address", "word"):
        ptr = ptr.args[0]
    return ptr


# --- constants -------------------------------------------------------------------------------


def bits_of(value: Any, t: Scalar) -> int:
    """Return the bit pattern of a number in type `t`.

    Integers wrap. Floats are truncated for an integer type, and rounded to nearest for a float
    type.

    >>> bits_of(-1, i32) == 0xFFFFFFFF
    True
    """
    if t.kind == "b":
        return int(bool(value))
    if t.kind in "iu":
        return int(value) & ((1 << t.bits) - 1)
    if t is bf16:
        return int(encode(value))
    with np.errstate(all="ignore"):
        return int(np.asarray(value, t.dtype).view(f"u{t.bits // 8}"))


def extreme_bits(t: Scalar, sign: int) -> int:
    """Return the bits of the greatest (`sign` 1) or least (-1) value of a type."""
    return bits_of(sign * float("inf") if t.kind == "f" else integer_range(t)[sign > 0], t)


def value_of(bits: int, t: Scalar) -> Any:
    if t.kind == "b":
        return np.bool_(bits)
    if t is bf16:
        return decode(bits)
    return np.asarray(bits, f"u{t.bits // 8}").view(t.dtype)[()]


def constant_array(op: Op) -> Any:
    """Return the numpy value of a `const` op: a scalar, or an array of the tensor's shape."""
    t = op.type
    if isinstance(t, Tensor):
        if t.elem is bf16:
            return decode(np.array(op.attr, np.uint16)).reshape(t.shape)
        own = np.dtype(np.bool_ if t.elem.kind == "b" else f"u{t.elem.bits // 8}")
        return np.array(op.attr, own).view(t.elem.dtype).reshape(t.shape)
    assert isinstance(t, Scalar)
    return value_of(op.attr, t)


def constant_attr(value: Any, t: Scalar | Tensor) -> Any:
    """Return the `const` attr of a value of type `t`: one bit pattern, or a tuple of them for a
    tensor.

    `value` is a number, or an array that broadcasts to the tensor's shape. It is converted by
    `bits_of`.
    """
    if isinstance(t, Scalar):
        return bits_of(value, t)
    flat = np.broadcast_to(np.asarray(value), t.shape).reshape(-1)
    return tuple(bits_of(v, t.elem) for v in flat)


# --- constants -----------------------------------------------------------------------------------

Number = Scalar | Tensor


class Constant(NamedTuple):
    """Type and bit pattern of a `const` op. For a tensor, `attr` is a tuple of bit patterns."""

    type: Number
    attr: Any


def is_constant(v: Value) -> TypeGuard[Op]:
    return type(v) is Op and v.kind == "const"


def numeric_type_of(v: Value) -> Number:
    assert isinstance(v.type, Scalar | Tensor)
    return v.type


def as_constant(v: Value) -> Constant:
    assert isinstance(v, Op)
    return Constant(numeric_type_of(v), v.attr)


def constant_int(v: Value) -> int | None:
    """Return the value of a scalar integer `const`, with its sign, or None for any other value."""
    if not is_constant(v):
        return None
    t = v.type
    if not isinstance(t, Scalar) or t.kind not in "iu":
        return None
    bits: int = v.attr
    return bits - (1 << t.bits) if t.kind == "i" and bits >> (t.bits - 1) else bits


def is_equal_value(a: Value, b: Value) -> bool:
    """True if both are the same Value, or `const` ops of one type and bit pattern."""
    if a is b:
        return True
    if not is_constant(a) or not is_constant(b):
        return False
    return a.type is b.type and bool(a.attr == b.attr)


@lru_cache(maxsize=1024)
def is_power_of_two(c: Constant) -> bool:
    """True if every component of `c` is a power of two by which a division can be strength-reduced.

    - Integers: positive and less than 2**(bits - 1).
    - Floats: of either sign; the value and its reciprocal are normal numbers.
    """
    bits = (c.attr,) if isinstance(c.type, Scalar) else c.attr
    scalar = scalar_of(c.type)
    if scalar.kind != "f":
        return all(b & (b - 1) == 0 < b < 1 << (scalar.bits - 1) for b in bits)
    mantissa = {16: 10, 32: 23, 64: 52}[scalar.bits]
    top = (1 << (scalar.bits - 1 - mantissa)) - 2
    exponents = [(b >> mantissa) & (top + 1) for b in bits]
    exact = all(b & ((1 << mantissa) - 1) == 0 for b in bits)
    return exact and all(0 < e < top for e in exponents)


# --- names of parameters that passes add ---------------------------------------------------------
#
# Names of the parameters that passes add to a kernel's own.
#
# User names are words with single dots between: `x`, `ball.pos`, `parts.0`, `x.grad`. Names here
# begin with a dot or contain two in a row, so the two sets are disjoint.
#
#     >>> SCRATCH + "0", "x" + ADJOINT
#     ('.scratch.0', 'x..adjoint')

# Prefixes, followed by a number.
TEMP = ".temp."  # temporaries passed between dispatches
SCRATCH, SAVE, REPLAY = ".scratch.", ".save.", ".replay."  # copies, saved values, replay logs
HIDDEN = (SCRATCH, SAVE, REPLAY)  # arrays private to their kernel
NOTED = ".noted"  # one element per access that records something
COUNT, WIDTH = ".count.", ".width."  # trip counts of loops

# Suffixes of an array's name.
ADJOINT, DUAL = "..adjoint", "..dual"
MARKS, READ = "..marks", "..read"  # shadow arrays: elements that were stored, or read
