"""Kernel parameters: from annotations to handlers that check, key and bind arguments.

Owns: one class per kind of parameter. Each `sign`s an argument (a hashable part of the kernel's
signature: what the compiled code depends on) and `bind`s it (appends the numbers that a launch
writes). Must not know: IR, shaders.

A bound array contributes its address, its number of scalars and its extents; a scalar or tensor its
components.
"""

from __future__ import annotations

import inspect
import types as pytypes
from collections.abc import Callable
from typing import Any

import numpy as np

from vkchi.errors import ArgumentError, KernelSyntaxError
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec
from vkchi.interop import host
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.span import Span
from vkchi.types import (
    Array,
    Scalar,
    Tensor,
    cook,
    ndarray,
    scalar_of_dtype,
    shape_of,
    template,
    with_shape,
)


class Bound:
    """What binding the arguments of one call yields: numbers, arrays, and work to do afterwards."""

    __slots__ = ("after", "arrays", "flat", "runtime")

    def __init__(self, runtime: Runtime, constants: list[Any]) -> None:
        self.runtime = runtime
        self.flat = list(constants)
        self.arrays: dict[str, Storage] = {}
        self.after: list[tuple[str, Callable[[], None]]] = []


class Parameter:
    """One kernel parameter. `width` is how many numbers `bind` appends for it."""

    kind = ""

    def __init__(self, name: str, type: Any) -> None:
        self.name, self.type = name, type

    def sign(self, arg: Any) -> Any:
        """The part of the signature this argument is; None where code does not depend on it."""
        return None

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        """What the frontend needs to know of the argument, whose part of the signature is given."""
        return ArgSpec(self.name, self.kind, self.type)

    def like(self, signed: Any, name: str) -> Any:
        """The signature's part for an array of the same shape as the parameter called `name`."""
        return signed

    def bind(self, arg: Any, bound: Bound) -> None:
        """Append the argument's numbers. Raises ArgumentError."""

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        """(slot kind, parameter, axis) of each number that `bind` appends, in order."""
        return []

    def refuse(self, arg: Any, why: str) -> ArgumentError:
        """The error for an argument that does not fit."""
        return ArgumentError(f"argument `{self.name}`: {why}")


class ScalarParameter(Parameter):
    """A number by value. Integers take integers only; floats take both."""

    kind = "scalar"

    def bind(self, arg: Any, bound: Bound) -> None:
        t: Scalar = self.type
        if t.kind == "f":
            if isinstance(arg, float | int | np.floating | np.integer | np.bool_):
                bound.flat.append(float(arg))
                return
        elif isinstance(arg, int | np.integer | np.bool_):
            bound.flat.append(self._checked(int(arg)))
            return
        raise self.refuse(arg, f"{with_article(t.name)} number is needed, not {describe(arg)}")

    def _checked(self, value: int) -> int:
        t: Scalar = self.type
        if t.kind == "b":
            return int(value != 0)
        low, high = (
            (-(1 << t.bits - 1), (1 << t.bits - 1) - 1) if t.kind == "i" else (0, (1 << t.bits) - 1)
        )
        if not low <= value <= high:
            raise self.refuse(value, f"{value} does not fit {t}")
        return value

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [("value", self.name, 0)]


class TensorParameter(Parameter):
    """A vector or matrix by value, from a ti.Vector or ti.Matrix, a sequence or a numpy array."""

    kind = "tensor"

    def bind(self, arg: Any, bound: Bound) -> None:
        t: Tensor = self.type
        try:
            values = np.asarray(arg.to_numpy() if hasattr(arg, "to_numpy") else arg)
            flat = values.astype(
                t.elem.dtype, casting="same_kind" if t.elem.kind != "f" else "unsafe"
            )
        except (TypeError, ValueError):
            raise self.refuse(arg, f"{t} is needed, not {describe(arg)}") from None
        if flat.shape != t.shape:
            raise self.refuse(arg, f"shape {t.shape} is needed, not {flat.shape}")
        bound.flat.extend(flat.reshape(-1).tolist())

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [("value", self.name, k) for k in range(self.type.size)]


class ArrayParameter(Parameter):
    """An ndarray, numpy array or CPU torch tensor, by reference."""

    kind = "array"

    def __init__(self, name: str, annotation: ndarray) -> None:
        super().__init__(name, None)
        self.annotation = annotation
        self._seen: dict[Any, Array] = {}
        self._alike: dict[tuple[Array, str], Array] = {}

    def like(self, t: Array, name: str) -> Array:
        """The signed type of an array of the same shape as the parameter called `name`."""
        try:
            return self._alike[t, name]
        except KeyError:
            return self._alike.setdefault((t, name), t.with_shape_of(name))

    def sign(self, arg: Any) -> Any:
        if isinstance(arg, Ndarray):
            key: Any = arg.argument_type
        else:
            view = host.view_of(arg)
            if view is None:
                raise self.refuse(arg, f"an array is needed, not {describe(arg)}")
            key = (view.dtype, view.ndim, view.shape[max(0, view.ndim - self._element_axes()) :])
        try:
            return self._seen[key]
        except KeyError:
            t = self._seen[key] = self._array_type(key)
            return t

    def _element_axes(self) -> int:
        return len(shape_of(self.annotation.dtype)) if self.annotation.dtype else 0

    def _array_type(self, key: Any) -> Array:
        if isinstance(key, Array):
            elem: Any = key.elem
            t = key
        else:
            dtype, ndim, inner = key
            scalar = scalar_of_dtype(dtype)
            if scalar is None:
                raise self.refuse(None, f"kernels have no type for numpy's {dtype}")
            inner = inner if self._element_axes() else ()
            elem = with_shape(scalar, inner)
            t = Array.of(elem, ndim - len(inner))
        self._check(elem, t.ndim)
        return t

    def _check(self, elem: Scalar | Tensor, ndim: int) -> None:
        want = self.annotation
        if want.dtype is not None and want.dtype is not elem:
            raise self.refuse(None, f"an array of {want.dtype} is needed, not of {elem}")
        if want.ndim is not None and want.ndim != ndim:
            raise self.refuse(None, f"an array of {axes_text(want.ndim)} is needed, it has {ndim}")
        axes = want.element_dim
        if axes is not None and axes != len(shape_of(elem)):
            raise self.refuse(None, f"elements of {axes} axes are needed, not {elem}")

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        return ArgSpec(self.name, "array", signed)

    def bind(self, arg: Any, bound: Bound) -> None:
        array = arg if isinstance(arg, Ndarray) else self._import(arg, bound)
        if array.device is not bound.runtime.device:
            array.check_alive()
            raise self.refuse(arg, "the array belongs to another device")
        bound.arrays[self.name] = array
        bound.flat.append(array.buffer.address)
        bound.flat.append(array.layout.size)
        bound.flat.extend(array.shape)

    def _import(self, arg: Any, bound: Bound) -> Ndarray:
        view = host.view_of(arg)
        assert view is not None
        t = self.sign(arg)
        if 0 in view.shape:
            raise self.refuse(arg, f"the array is empty: shape {view.shape}")
        array = Ndarray(bound.runtime, t.elem, view.shape[: t.ndim])
        array.from_numpy(view)
        bound.after.append((self.name, lambda: np.copyto(view, array.to_numpy())))
        return array

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        dims = [("dim", self.name, k) for k in range(self.sign(arg).ndim)]
        return [("ptr", self.name, 0), ("size", self.name, 0), *dims]


class TemplateParameter(Parameter):
    """A compile-time value: a field, a function, a number; the kernel is compiled for each."""

    kind = "template"

    def sign(self, arg: Any) -> Any:
        if isinstance(arg, bool | int | float | str | bytes):
            return (type(arg), repr(arg))
        return arg if arg.__hash__ else _ById(arg)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        return ArgSpec(self.name, "template", None, arg)


class SelfParameter(TemplateParameter):
    """`self` of a method: its attributes are read when the kernel is compiled."""

    kind = "self"

    def sign(self, arg: Any) -> Any:
        return _ById(arg)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        return ArgSpec(self.name, "self", None, arg)


class _ById:
    """A key that compares by identity and keeps its object alive."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __hash__(self) -> int:
        return object.__hash__(self.obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.obj is other.obj


def sign_all(parameters: list[Parameter], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The signature of a call. Of two arrays of one shape, the later says so in its type."""
    key = [p.sign(a) for p, a in zip(parameters, args, strict=True)]
    first: dict[Any, str] = {}
    for k, p in enumerate(parameters):
        if p.kind == "array" and key[k].ndim:
            shape = tuple(args[k].shape)[: key[k].ndim]
            if shape in first:
                key[k] = p.like(key[k], first[shape])
            else:
                first[shape] = p.name
    return tuple(key)


def with_article(name: str) -> str:
    """`an f32`, `a u8`: as the name is spelled aloud."""
    return f"{'an' if name[0] in 'if' else 'a'} {name}"


def axes_text(n: int) -> str:
    """`1 axis`, `2 axes`."""
    return f"{n} axis" if n == 1 else f"{n} axes"


def describe(arg: Any) -> str:
    """What an argument is, for messages."""
    if isinstance(arg, np.ndarray):
        return f"a numpy array of {arg.dtype}, shape {arg.shape}"
    if isinstance(arg, Storage):
        return repr(arg)
    text = repr(arg)
    return f"{type(arg).__name__} {text if len(text) < 40 else text[:37] + '...'}"


def read_parameters(fn: pytypes.FunctionType, is_method: bool) -> list[Parameter]:
    """Handlers for the function's parameters, by annotation. Raises KernelSyntaxError."""
    found: list[Parameter] = []
    for k, p in enumerate(inspect.signature(fn).parameters.values()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY, p.KEYWORD_ONLY):
            raise KernelSyntaxError(
                f"kernel {fn.__name__}() takes *{p.name}: kernels take a fixed list of arguments",
                span_of_function(fn),
            )
        if k == 0 and is_method and p.annotation is p.empty:
            found.append(SelfParameter(p.name, None))
        else:
            found.append(make_parameter(fn, p))
    return found


def make_parameter(fn: pytypes.FunctionType, p: inspect.Parameter) -> Parameter:
    """The handler for one annotated parameter. Raises KernelSyntaxError."""
    note = resolve_annotation(fn, p.annotation)
    if note is template or isinstance(note, template):
        return TemplateParameter(p.name, None)
    if note is ndarray or isinstance(note, ndarray):
        return ArrayParameter(p.name, note if isinstance(note, ndarray) else ndarray())
    t = cook(note)
    if isinstance(t, Scalar):
        return ScalarParameter(p.name, t)
    if isinstance(t, Tensor):
        return TensorParameter(p.name, t)
    missing = note is p.empty
    what = "has no type" if missing else f"has the annotation {note!r}, which is no kernel type"
    raise KernelSyntaxError(
        f"argument `{p.name}` of kernel {fn.__name__}() {what}",
        span_of_function(fn),
        help=f"write {p.name}: ti.f32, ti.types.ndarray() or ti.template()",
    )


def resolve_annotation(fn: pytypes.FunctionType, note: Any) -> Any:
    """The annotation as an object, where it was given as text."""
    if not isinstance(note, str):
        return note
    closure = inspect.getclosurevars(fn)
    return eval(note, {**closure.builtins, **fn.__globals__}, dict(closure.nonlocals))


def span_of_function(fn: pytypes.FunctionType) -> Span:
    """The line a function starts on."""
    code = fn.__code__
    return Span(code.co_filename, code.co_firstlineno, 1, code.co_firstlineno, 1, fn.__name__)
