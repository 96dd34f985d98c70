"""Tracing of vkchi's own Python functions on kernel values: running them emits ops.

Python's loops are unrolled. A branch on a kernel value raises KernelTypeError.

    traced(mix.python)(cx, x, y, 0.5)       # the Value of x * (1.0 - 0.5) + y * 0.5
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from vkchi.errors import CompilationError, KernelTypeError
from vkchi.frontend.calls.tables import CALLS, METHODS, Handler
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.tensor_attributes import find_attribute
from vkchi.frontend.ops.tensor_construction import call_type
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.operands import components
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Value
from vkchi.lang.function import Traced
from vkchi.lang.matrix import Matrix, pack
from vkchi.types import DefaultTensor, Type, shape_of


class Tracer(Traced):
    """A kernel value for traced functions. Python's operators on it emit ops."""

    __slots__ = ("cx", "value")

    def __init__(self, cx: Context, value: Value) -> None:
        self.cx, self.value = cx, value

    def apply(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `fn`, a type or a function in CALLS, on kernel values; return its result for the
        traced function."""
        plain = tuple(map(unwrap, args))
        if isinstance(fn, Type | DefaultTensor):
            return self.give(call_type(self.cx, fn, plain))
        named = {key: unwrap(x) for key, x in kwargs.items()}
        return self.give(CALLS[fn].handler(self.cx, *plain, **named))

    def give(self, x: Any) -> Any:
        """Return x for the traced function: kernel values as Tracers, also in lists."""
        if isinstance(x, list):
            return [self.give(item) for item in x]
        return Tracer(self.cx, x) if isinstance(x, Value) else x

    def pack(self, values: Any) -> Any:
        """Return a vector from a list, or a matrix from a list of rows."""
        return self.apply(pack, (values,), {})

    @property
    def shape(self) -> tuple[int, ...]:
        """() for a scalar, (n,) for a vector, (n, m) for a matrix."""
        return shape_of(self.value.type)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return map(self.give, components(self.cx, self.value))

    def __getitem__(self, key: Any) -> Any:
        place = key if isinstance(key, int) else key[0] * self.shape[1] + key[1]
        return self.give(self.cx.b.emit("extract", self.value, attr=place))

    def __getattr__(self, name: str) -> Any:
        attribute = find_attribute(name)
        if attribute is not None:
            return self.give(attribute(self.cx, self.value))
        if name not in METHODS:
            raise AttributeError(name)
        method = METHODS[name]
        return lambda *args: self.give(method(self.cx, self.value, *map(unwrap, args)))

    def __bool__(self) -> bool:
        raise KernelTypeError("a kernel's value is not a compile-time constant")


def unwrap(x: Any) -> Any:
    """Replace Tracers by their values, also in lists and tuples, which become lists."""
    if isinstance(x, Tracer):
        return x.value
    return [unwrap(item) for item in x] if isinstance(x, list | tuple) else x


def wrap(cx: Context, x: Any) -> Any:
    """Return x for a traced function: values, Targets and lists with kernel values as a Tracer.

    Lists of constants become a Matrix. Other objects are unchanged.
    """
    x = kind_of(x).load(cx, x)
    if isinstance(x, list | tuple):
        return (
            Matrix(list(x))
            if operator_lowering.is_static(x)
            else Tracer(cx, operator_lowering.value(cx, x))
        )
    return Tracer(cx, x) if isinstance(x, Value) else x


def traced(python: Callable[..., Any] | None) -> Handler:
    """Make the call handler of a traced function.

    Its errors without a span are reported at the user's call. Arguments that do not fit the
    function raise KernelTypeError.
    """
    assert python is not None

    def call(cx: Context, *args: Any, **kwargs: Any) -> Any:
        try:
            handles = [wrap(cx, x) for x in args]
            named = {key: wrap(cx, x) for key, x in kwargs.items()}
            return unwrap(python(*handles, **named))
        except CompilationError as e:
            if e.span is not None:
                raise
            raise cx.fail(e.sentence, kind=type(e), label=e.label, help=e.help) from None
        except TypeError:
            check_arguments(cx, python, args, kwargs)
            raise

    return call


def check_arguments(cx: Context, python: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        inspect.signature(python).bind(*args, **kwargs)
    except TypeError as e:
        raise cx.fail(f"{python.__name__}(): {e}") from None


def _operator(lower: Callable[..., Any], op: str, is_reflected: bool) -> Callable[..., Any]:
    if lower is operator_lowering.operate_on:
        return lambda self: self.give(lower(self.cx, op, self.value))
    if is_reflected:
        return lambda self, other: self.give(lower(self.cx, op, unwrap(other), self.value))
    return lambda self, other: self.give(lower(self.cx, op, self.value, unwrap(other)))


for _name, _row in operator_lowering.SPECIAL_METHODS.items():
    setattr(Tracer, _name, _operator(*_row))
