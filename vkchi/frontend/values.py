"""What an expression evaluates to while a kernel is lowered, and what lowering code may ask for.

An expression is one of
- any Python object: numbers stay Python numbers (folded by Python's rules) until they meet an IR
  value or are bound to a variable; also functions, types, fields' ArrayRef, tuples, lists, strings;
- an `ir.core.Value`: a typed scalar or tensor;
- a `Target`: something assignable that has not been read yet; `arith.value` reads it.

Must not know: AST classes, passes, devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import CompilationError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value, base_of
from vkchi.ir.swaps import swap_until_done
from vkchi.span import Span
from vkchi.target.options import Options
from vkchi.types import Array, Ptr, Scalar, Tensor

if TYPE_CHECKING:
    from vkchi.frontend.conversions import Noted
    from vkchi.frontend.reports import Reports


class Context(Protocol):
    """What handlers get as `cx`. `span` is the source of the expression being lowered."""

    b: Builder
    options: Options
    reports: Reports
    stopped: dict[Value, bool]
    cautions: list[Noted]

    @property
    def span(self) -> Span: ...

    def fail(
        self,
        sentence: str,
        *,
        kind: type[CompilationError] = ...,
        label: str = "",
        help: str = "",
        arg: int | None = None,
        notes: tuple[tuple[str, Span | None], ...] = (),
    ) -> CompilationError:
        """The error to raise at the current expression (or at its `arg`-th call argument)."""
        ...

    def array_of(self, obj: Any) -> ArrayRef:
        """The array that stands for a captured field; becomes a parameter of the Func."""
        ...

    def stop_gradient(self, array: ArrayRef) -> None:
        """Let no derivative flow through what is read of an array from here on."""
        ...

    def seed(self) -> None:
        """Note that the kernel draws random numbers (adds the Func parameter `seed`)."""
        ...

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inline a Python function (a `@func`, or a plain one) on compile-time values."""
        ...


class Target(Protocol):
    """Something assignable: memory, or a variable. Implementations inherit Assignable."""

    @property
    def type(self) -> Scalar | Tensor: ...

    def load(self, cx: Context) -> Value: ...

    def store(self, cx: Context, v: Value) -> None: ...

    def atomic(self, cx: Context, kind: str, v: Value) -> Value:
        """Apply ops.ATOMICS row `kind`; v has the target's type; gives the old value."""
        ...


class Deferred:
    """Base of compile-time values that hold kernel values out of sight of `trees`."""

    __slots__ = ()


class Assignable(Deferred):
    """Base of all Targets: what is assignable and has not been read yet."""

    __slots__ = ()


class RangeOf(Deferred):
    """`range(begin, end, step)` with bounds that are no compile-time constants."""

    __slots__ = ("begin", "end", "step")

    def __init__(self, begin: Any, end: Any, step: Any = 1) -> None:
        self.begin, self.end, self.step = begin, end, step


class Place(Assignable):
    """A Target in memory: an array element or a component of one."""

    __slots__ = ("ptr", "type")

    def __init__(self, ptr: Value) -> None:
        assert isinstance(ptr.type, Ptr)
        self.ptr, self.type = ptr, ptr.type.elem

    @property
    def space(self) -> str:
        """Of what memory: global, shared or local."""
        assert isinstance(self.ptr.type, Ptr)
        return self.ptr.type.space

    def part(self, ptr: Value) -> Place:
        """A component of it, which stands there."""
        return Place(ptr)

    def load(self, cx: Context) -> Op:
        """The value that stands here now."""
        v = cx.b.emit("load", self.ptr)
        is_stopped = cx.stopped and base_of(self.ptr) in cx.stopped
        return cx.b.emit("stop_grad", v) if is_stopped else v

    def store(self, cx: Context, v: Value) -> None:
        """Put v, which has the place's type, here."""
        cx.b.emit("store", self.ptr, v)

    def atomic(self, cx: Context, kind: str, v: Value) -> Op:
        """One atomic op; the old value."""
        return cx.b.emit(kind, self.ptr, v)

    def changed(self, cx: Context, update: Callable[[Value], Value]) -> Value:
        """Put `update` of what stands here in its place, by compare-and-swap; the old value."""
        return swap_until_done(cx.b, self.ptr, update)


ORIGIN = "__vkchi_origin__"  # the attribute of arrays in kernels that is their `origin`


class Reference:
    """What only code inlined into a kernel can use."""

    __slots__ = ()


class ArrayRef(Reference):
    """An array in a kernel: a field, an ndarray argument or a shared array.

    `value` has an Array type; `source` is the Python object it stands for, if it is a captured one.
    `component`: only this component of each element is meant. `clamps`: an index outside means the
    nearest inside.
    """

    __slots__ = ("clamps", "component", "source", "value")

    def __init__(
        self,
        value: Value,
        source: Any = None,
        component: int | None = None,
        *,
        clamps: bool = False,
    ) -> None:
        assert isinstance(value.type, Array)
        self.clamps = clamps
        self.value, self.source, self.component = value, source, component

    @property
    def type(self) -> Array:
        """The array's type."""
        assert isinstance(self.value.type, Array)
        return self.value.type

    @property
    def origin(self) -> tuple[int, ...]:
        """The first index of each axis."""
        layout = self.type.layout
        return (layout.origin if layout is not None else ()) or (0,) * self.type.ndim

    def shape(self, cx: Context) -> tuple[Any, ...]:
        """Extents: Python ints where static, i32 values of the launch otherwise."""
        if self.type.shape is not None:
            return self.type.shape
        return tuple(cx.b.emit("shape", self.value, attr=k) for k in range(self.type.ndim))
