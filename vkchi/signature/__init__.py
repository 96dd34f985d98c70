"""Kernel parameters: from annotations to handlers that check, key and bind arguments.

There is one class per kind of parameter. `sign` returns an argument's part of the kernel's
signature: a hashable value of everything that the compiled code depends on. `bind` appends the
scalars that a launch writes. An array contributes its address, its number of scalars and its
extents; a scalar or tensor contributes its components.
"""

from __future__ import annotations

import math
import types as pytypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union, get_args, get_origin

from vkchi.compat.foreign_names import help_for_annotation
from vkchi.errors import ArgumentError, KernelNameError, KernelSyntaxError
from vkchi.fields.elements import choose_stored
from vkchi.fields.storage import Storage
from vkchi.fields.struct_arrays import StructField, StructNdarray
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.state.captured_values import is_read_by_parts
from vkchi.hooks import Hook
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.lang.value_keys import IdentityKey, value_key
from vkchi.ndarray import Ndarray
from vkchi.runtime import current_runtime
from vkchi.signature.bound import BoundArguments, ImportedArray
from vkchi.signature.wording import (
    array_hint,
    axes_text,
    describe_argument,
    other_device_message,
    scalar_hint,
    tensor_hint,
    with_article,
)
from vkchi.span import Span, place_of_line
from vkchi.tuples import NamedTuple
from vkchi.types import (
    Array,
    OptionalArray,
    Scalar,
    Tensor,
    cook,
    f64,
    integer_range,
    ndarray,
    needs_wide,
    scalar_of,
    scalar_of_dtype,
    shape_of,
    template,
    with_shape,
)
from vkchi.types.core import MOST_ALIGNED, ArrayArgument, Attributes
from vkchi.types.lazy_numpy import is_integer_scalar, is_real_scalar, np
from vkchi.types.losses import wrap_integer
from vkchi.types.struct_types import ArgPackType, StructType

VARARGS, VARKEYWORDS = 0x4, 0x8  # bits of `co_flags`
WRAPPED = ("__wrapped__", "__signature__")  # attributes that declare another signature

# Larger numbers round to infinity as f32; `struct` cannot pack them.
MOST_F32 = 3.4028235677973362e38


class Parameter:
    """One kernel parameter.

    - is_constant: values read from it carry no derivative.
    - is_optional: None is a valid argument.
    - is_saved: it is of a saved kernel, whose annotations cannot be changed.
    """

    kind, is_constant = "", False
    is_optional = is_saved = False

    def __init__(self, name: str, type: Any) -> None:
        self.name, self.type = name, type

    def sign(self, arg: Any) -> Any:
        """Return the argument's part of the signature; None if code does not depend on it. The part
        of an object is its class.

        Raises ArgumentError for arrays, groups and templates that do not fit. `bind` checks the
        components of scalars, tensors and structs.
        """
        return None

    def identify(self, arg: Any) -> Any:
        """Return the key of an object whose part of the signature is its class; None for other
        arguments."""
        return None

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        """Return the argument's description for the frontend, given its part of the signature."""
        return ArgSpec(self.name, self.kind, self.type)

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        """Append the argument's scalars. Raises ArgumentError for an argument that does not fit."""

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        """Return (slot kind, parameter, axis or component) of each scalar that `bind` appends."""
        return []

    def chosen(self, arg: Any) -> Parameter:
        """Return the handler of an argument: this one, unless it is an OpenParameter."""
        return self

    def leaves(self, arg: Any) -> Iterator[tuple[Parameter, Any]]:
        """Yield the parameter with its argument; a group yields the leaves of its members."""
        yield self, arg

    def keep(self, arg: Any, copies: Mapping[str, Storage]) -> Any:
        """Return the argument as a later replay of the call uses it.

        Tensors are copied. An array is replaced by the entry of `copies` under its name, if there
        is one. Structs and packs are rebuilt from their members; anything else is returned itself.
        """
        return arg

    def refuse(self, why: str, help: str = "", annotation: str = "") -> ArgumentError:
        """Return the error for an argument that does not fit, with a help line.

        `annotation` is another remedy: an annotation that accepts the argument.
        """
        if annotation and not self.is_saved:
            help += f", or annotate `{self.name}` with {annotation}"
        hint = f"\nhelp: {help}" if help else ""
        return ArgumentError(f"argument `{self.name}`: {why}{hint}")


# Annotation class -> factory of its handler, called with (name, annotation). Modules of parameter
# kinds, such as `texture.py`, register here on import.
ANNOTATIONS: dict[type, Callable[[str, Any], Parameter]] = {}


class GroupedParameters:
    """Hooks for the factories of handlers of grouped parameters, which are in `struct_params`."""

    structs, pack = Hook("parameter of structs"), Hook("parameter of a pack")


class ScalarParameter(Parameter):
    """A scalar by value. Float parameters take floats and integers; others take integers and bools.

    `bind` wraps an integer out of range, with a warning. It raises ArgumentError for other objects,
    and for integers that do not fit the 64-bit type of that signedness.
    """

    kind = "scalar"

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        t: Scalar = self.type
        if t.kind == "f":
            if is_real_scalar(arg):
                bound.flat.append(self._rounded(arg))
                return
        elif is_integer_scalar(arg):
            bound.flat.append(self._checked(int(arg)))
            return
        why = f"{with_article(t.name)} number is needed, not {describe_argument(arg)}"
        raise self.refuse(why, *scalar_hint(arg))

    def _rounded(self, arg: Any) -> float:
        try:
            value = float(arg)
        except OverflowError:
            raise self.refuse(f"{describe_argument(arg)} does not fit {self.type}") from None
        if abs(value) > MOST_F32 and self.type is not f64:
            return math.copysign(math.inf, value)
        return value

    def _checked(self, value: int) -> int:
        t: Scalar = self.type
        if t.kind == "b":
            return int(value != 0)
        low, high = integer_range(t)
        if not low <= value <= high:
            return wrap_integer(value, t, f"argument `{self.name}`")
        return value

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [("value", self.name, 0)]


class TensorParameter(Parameter):
    """A vector or matrix by value: a ti.Vector or ti.Matrix, a sequence, a numpy array or a CPU
    tensor.

    `bind` raises ArgumentError for another shape, for floats if the elements are integers or bools,
    and for integers out of range.
    """

    kind = "tensor"

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        t: Tensor = self.type
        try:
            values = host_views.to_number_array(arg)
        except ArgumentError:
            raise self.refuse(f"{t} is needed, not {describe_argument(arg)}") from None
        if values.shape != t.shape:
            shapes = f"shape {t.shape} is needed, not {values.shape}"
            raise self.refuse(shapes, tensor_hint(t))
        if t.elem.kind in "iub" and values.dtype.kind == "f":
            raise self.refuse(f"{t} is needed, not {describe_argument(arg)}")
        if t.elem.kind in "iu":
            low, high = integer_range(t.elem)
            for value in values.reshape(-1).tolist():
                if not low <= value <= high:
                    raise self.refuse(f"{value} does not fit {t.elem}")
        bound.flat.extend(host_views.cast(values, t.elem).reshape(-1).tolist())

    def keep(self, arg: Any, copies: Mapping[str, Storage]) -> Any:
        return host_views.to_number_array(arg).copy()

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [("value", self.name, k) for k in range(self.type.size)]


class ArrayParameter(Parameter):
    """An ndarray, or an array of another library in host or CUDA memory. The kernel accesses its
    memory in place, or a copy that is copied back after writes."""

    kind = "array"

    def __init__(self, name: str, annotation: ndarray) -> None:
        super().__init__(name, None)
        self.annotation = annotation
        self.dtype = annotation.dtype
        known = shape_of(self.dtype) if isinstance(self.dtype, Tensor) else ()
        self._needs_grad = bool(annotation.needs_grad)
        self.is_constant = annotation.needs_grad is False
        self.element_axes = len(known) or annotation.element_dim or 0
        self._seen: dict[Any, ArrayArgument] = {}

    def sign(self, arg: Any) -> Any:
        if isinstance(arg, Ndarray):
            key: Any = arg.argument
        else:
            view = self._view(arg)
            if view is None or hasattr(type(arg), "__vkchi_view__"):
                raise self.refuse(
                    f"an array is needed, not {describe_argument(arg)}"
                    f"{array_hint(arg, is_saved=self.is_saved)}"
                )
            inner = view.shape[max(0, view.ndim - self.element_axes) :]
            key = (view.dtype, view.ndim, inner, needs_wide(view.size, view.dtype.itemsize))
        try:
            return self._seen[key]
        except KeyError:
            found = self._seen[key] = self._argument(key)
            return found

    def _view(self, arg: Any) -> np.ndarray[Any, Any] | None:
        try:
            return host_views.view_of(arg)
        except ArgumentError as e:
            raise self.refuse(str(e)) from None

    def _argument(self, key: Any) -> ArrayArgument:
        if isinstance(key, ArrayArgument):
            elem: Any = key.type.elem
            made = key
        else:
            dtype, ndim, inner, wide = key
            scalar = scalar_of_dtype(dtype)
            if scalar is None:
                raise self.refuse(f"kernels have no type for numpy's {dtype}")
            inner = inner if self.element_axes else ()
            if 0 in inner:
                raise self.refuse(f"elements of shape {inner} have no numbers")
            elem = with_shape(scalar, inner)
            stored = choose_stored(current_runtime().device, scalar)
            t = Array.of(elem, ndim - len(inner), stored=stored)
            made = ArrayArgument.of(t, Attributes(ext64=wide, aligned=MOST_ALIGNED))
        self.check(elem, made.type.ndim)
        return made

    def check(self, elem: Scalar | Tensor, ndim: int) -> None:
        """Raise ArgumentError if an element type and rank do not match the annotation."""
        want, inner = self.annotation, shape_of(elem)
        is_element = isinstance(self.dtype, Tensor) or not self.element_axes
        if self.dtype is not None and self.dtype is not (elem if is_element else scalar_of(elem)):
            raise self.refuse(
                f"an array of {self.dtype} is needed, not of {elem}", *self._conversion(elem)
            )
        if want.ndim is not None and want.ndim != ndim:
            raise self.refuse(
                f"an array of {axes_text(want.ndim)} is needed, it has {ndim}",
                f"pass one of {axes_text(want.ndim)}",
                f"ndim={ndim}",
            )
        if want.element_dim is not None and want.element_dim != len(inner):
            axes = axes_text(want.element_dim)
            raise self.refuse(f"elements of {axes} are needed, not {elem}")
        if want.element_shape is not None and want.element_shape != inner:
            raise self.refuse(f"elements of shape {want.element_shape} are needed, not {elem}")

    def _conversion(self, elem: Scalar | Tensor) -> tuple[str, str]:
        """Return help for an array of another scalar type, and the annotation that accepts it."""
        if not isinstance(elem, Scalar) or not isinstance(self.dtype, Scalar):
            return "", ""
        converted = f"{self.name}.astype(np.{self.dtype.dtype.name})"
        return f"convert it, {converted}", f"dtype=ti.{elem}"

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        return ArgSpec(self.name, "array", signed, self.annotation.boundary, arg)

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        array = arg if isinstance(arg, Ndarray) else self._import(arg, bound)
        if self._needs_grad and array.grad is None and not array.is_copy:
            raise self.refuse("an array with a gradient is needed: make it with needs_grad=True")
        if array.device is not bound.runtime.device:
            array.check_alive()
            raise self.refuse(other_device_message("the array", array, bound.runtime))
        bound.bind_array(self.name, array)

    def keep(self, arg: Any, copies: Mapping[str, Storage]) -> Any:
        return copies.get(self.name, arg)

    def _import(self, arg: Any, bound: BoundArguments) -> Ndarray:
        view = host_views.view_of(arg)
        assert view is not None
        t = self.sign(arg).type
        for other in bound.imports:
            if other.array.elem is t.elem and host_views.is_same_view(other.view, view):
                array = other.array
                break
        else:
            array = Ndarray(bound.runtime, t.elem, view.shape[: t.ndim])
            array.put_unnoticed(view)
            array.is_copy = True
        bound.imports.append(ImportedArray(self.name, view, array, arg))
        return array

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        dims = [("dim", self.name, k) for k in range(self.sign(arg).type.ndim)]
        return [("ptr", self.name, 0), ("size", self.name, 0), *dims]


class TemplateParameter(Parameter):
    """A compile-time value: any object but an ndarray. The kernel is compiled for each value that
    `value_key` distinguishes, except for objects whose attributes it reads: those are guarded."""

    kind = "template"

    def sign(self, arg: Any) -> Any:
        if isinstance(arg, Ndarray | StructNdarray) or is_ndarrays_view(arg):
            raise self.refuse("an ndarray is no template: annotate it with ti.types.ndarray()")
        return class_key(arg) if is_read_by_parts(arg) else value_key(arg)

    def identify(self, arg: Any) -> Any:
        return value_key(arg) if is_read_by_parts(arg) else None

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        return ArgSpec(self.name, "template", None, arg)


def is_ndarrays_view(arg: Any) -> bool:
    """True for a view of an ndarray."""
    return hasattr(type(arg), "__vkchi_view__") and isinstance(arg.base, Ndarray)


class OpenParameter(ArrayParameter):
    """An array, or a compile-time value: None, and with `takes_fields` a field. A `Signer` replaces
    it by the handler of the argument of a call."""

    is_optional = True

    def __init__(self, name: str, annotation: ndarray, *, takes_fields: bool) -> None:
        super().__init__(name, annotation)
        self.takes_fields, self._template = takes_fields, TemplateParameter(name, None)
        self._template.is_optional = True

    def chosen(self, arg: Any) -> Parameter:
        """The handler of an argument: this one, or that of templates."""
        is_array = isinstance(arg, Ndarray) or not isinstance(arg, Storage | StructField)
        is_array = is_array or is_ndarrays_view(arg)
        is_field = self.takes_fields and not is_array
        return self._template if arg is None or is_field else self


def class_key(obj: Any) -> tuple[Any, ...]:
    """Return the key of objects of a class, which is not that of the class itself."""
    return (object, IdentityKey(type(obj)))


class SelfParameter(TemplateParameter):
    """`self` of a method: its attributes are compile-time values. `spec` raises KernelSyntaxError
    if it is an instance of a class that is not data-oriented."""

    kind = "self"

    def sign(self, arg: Any) -> Any:
        return IdentityKey(arg) if isinstance(arg, type) else class_key(arg)

    def identify(self, arg: Any) -> Any:
        return IdentityKey(arg)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        if not isinstance(arg, type) and not getattr(arg, "_data_oriented", False):
            name = type(arg).__name__
            raise KernelSyntaxError(
                f"{name} has kernels as methods and is not decorated",
                span_of_class(type(arg)),
                help=f"write @ti.data_oriented before class {name}",
            )
        return ArgSpec(self.name, "self", None, arg)


class ObjectParameter(TemplateParameter):
    """An object of the dataclass `type`, or None with `takes_none`. The frontend reads its members
    (`frontend.values.object_members`). Raises ArgumentError for another object."""

    kind = "object"

    def __init__(self, name: str, cls: type, *, takes_none: bool) -> None:
        super().__init__(name, cls)
        self.takes_none = takes_none

    def sign(self, arg: Any) -> Any:
        if not isinstance(arg, self.type) and not (arg is None and self.takes_none):
            name = self.type.__name__
            given = "the class itself" if arg is self.type else describe_argument(arg)
            hint = f"pass {name}(...)"
            if arg is None:
                raise self.refuse(f"a {name} is needed, not None", hint, f"{name} | None")
            raise self.refuse(f"a {name} is needed, not {given}", hint)
        return IdentityKey(type(arg))

    def identify(self, arg: Any) -> Any:
        return fields_key(arg)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        return ArgSpec(self.name, "template" if arg is None else "object", None, arg)


def fields_key(obj: Any, within: tuple[int, ...] = ()) -> Any:
    """Return a key of the fields in a dataclass, those of its members included; None for other
    values."""
    held = getattr(type(obj), "__dataclass_fields__", None)
    if held is None or id(obj) in within:
        is_field = isinstance(obj, Storage | StructField) and not isinstance(obj, Ndarray)
        return IdentityKey(obj) if is_field else None
    inner = (*within, id(obj))
    keys = [fields_key(getattr(obj, name, None), inner) for name in held]
    return tuple(keys) if any(keys) else None


class MissingAnnotation:
    """Marker of a missing annotation."""


class DeclaredParameter(NamedTuple):
    """A parameter; `kind` is `usual`, `keyword` (keyword-only), `*` or `**`."""

    name: str
    annotation: Any
    kind: str = "usual"


def declared_parameters(fn: pytypes.FunctionType) -> list[DeclaredParameter]:
    """The parameters of a plain function, in order. Faster than `inspect.signature`."""
    if any(hasattr(fn, name) for name in WRAPPED):
        return inspected_parameters(fn)
    code, notes = fn.__code__, fn.__annotations__
    usual, keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    kinds = ["usual"] * usual
    order = list(names[:usual])
    at = usual + keywords
    if code.co_flags & VARARGS:
        order.append(names[at])
        kinds.append("*")
        at += 1
    order += names[usual : usual + keywords]
    kinds += ["keyword"] * keywords
    if code.co_flags & VARKEYWORDS:
        order.append(names[at])
        kinds.append("**")
    return [
        DeclaredParameter(name, notes.get(name, MissingAnnotation), kind)
        for name, kind in zip(order, kinds)
    ]


def inspected_parameters(fn: pytypes.FunctionType) -> list[DeclaredParameter]:
    """The parameters by `inspect`, for a function that declares the signature of another one."""
    import inspect

    kinds: dict[Any, str] = {
        inspect.Parameter.KEYWORD_ONLY: "keyword", inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }  # fmt: skip
    return [
        DeclaredParameter(p.name, MissingAnnotation if p.annotation is p.empty else p.annotation,
                 kinds.get(p.kind, "usual"))
        for p in inspect.signature(fn).parameters.values()
    ]  # fmt: skip


def read_parameters(fn: pytypes.FunctionType, is_method: bool) -> list[Parameter]:
    """Return handlers for the function's parameters, by annotation.

    The first parameter of a method needs no annotation. Raises KernelSyntaxError for `*args` and
    `**kwargs`, and for missing or unsupported annotations; KernelNameError for a string annotation
    with an unknown name.
    """
    found: list[Parameter] = []
    for k, p in enumerate(declared_parameters(fn)):
        if p.kind in ("*", "**"):
            raise KernelSyntaxError(
                f"kernel {fn.__name__}() takes *{p.name}: kernels take a fixed list of arguments",
                span_of_function(fn),
                help="name every argument, or pass an ndarray",
            )
        if k == 0 and is_method and p.annotation is MissingAnnotation:
            found.append(SelfParameter(p.name, None))
        else:
            found.append(make_parameter(fn, p))
    return found


def make_parameter(fn: pytypes.FunctionType, p: DeclaredParameter) -> Parameter:
    """Return the handler for one annotated parameter. Raises KernelSyntaxError for a missing or
    unsupported annotation, and the errors of `resolve_annotation`."""
    note = resolve_annotation(fn, p.annotation)
    found = parameter_of(p.name, note)
    if found is not None:
        return found
    missing = note is MissingAnnotation
    is_builtin = type(note) is type and note.__module__ == "builtins"  # list, not list[int]
    shown = note.__name__ if is_builtin else repr(note)
    what = "has no type" if missing else f"has the annotation {shown}, which is no kernel type"
    raise KernelSyntaxError(
        f"argument `{p.name}` of kernel {fn.__name__}() {what}",
        span_of_function(fn),
        help=help_for_annotation(p.name, note),
    )


def parameter_of(name: str, note: Any) -> Parameter | None:
    """Return the handler for a parameter of this annotation; None for an unsupported annotation.
    Raises KernelSyntaxError for an argpack with a member of unsupported annotation."""
    if note is template or isinstance(note, template):
        return TemplateParameter(name, None)
    note, is_optional = without_none(note)
    if note is Storage:  # ti.Tensor
        return OpenParameter(name, ndarray(), takes_fields=True)
    cls = get_origin(note) or note
    if isinstance(cls, type) and hasattr(cls, "__dataclass_fields__"):
        return ObjectParameter(name, cls, takes_none=is_optional)
    if is_optional:
        is_array = isinstance(note, ndarray) or note is ndarray
        given = note if isinstance(note, ndarray) else ndarray()
        return OpenParameter(name, given, takes_fields=False) if is_array else None
    if isinstance(note.dtype if isinstance(note, ndarray) else note, StructType):
        return GroupedParameters.structs(name, note)  # type: ignore[no-any-return]
    if isinstance(note, ArgPackType):
        return GroupedParameters.pack(name, note)  # type: ignore[no-any-return]
    if note is ndarray or isinstance(note, ndarray):
        return ArrayParameter(name, note if isinstance(note, ndarray) else ndarray())
    for annotation, parameter in ANNOTATIONS.items():
        if isinstance(note, annotation):
            return parameter(name, note)
    t = cook(note)
    if isinstance(t, Scalar):
        return ScalarParameter(name, t)
    return TensorParameter(name, t) if isinstance(t, Tensor) else None


def without_none(note: Any) -> tuple[Any, bool]:
    """Return X and True for `X | None`, any other annotation and False."""
    if isinstance(note, OptionalArray):
        return note.array, True
    if isinstance(note, pytypes.UnionType) or get_origin(note) is Union:
        others = [part for part in get_args(note) if part is not type(None)]
        if len(others) == 1:
            return others[0], True
    return note, False


def resolve_annotation(fn: pytypes.FunctionType, note: Any) -> Any:
    """Evaluate an annotation that is a string; others are returned as they are. Raises
    KernelNameError for an unknown name, KernelSyntaxError for another error."""
    if not isinstance(note, str):
        return note
    import inspect  # rarely needed

    closure = inspect.getclosurevars(fn)
    try:
        return eval(note, {**closure.builtins, **fn.__globals__}, dict(closure.nonlocals))
    except NameError as e:
        raise KernelNameError(
            f"the annotation `{note}` of kernel {fn.__name__}() cannot be read: {e}",
            span_of_function(fn),
            help="define it in the module, or leave out `from __future__ import annotations`",
        ) from None
    except local(Exception) as e:
        why, _, help = str(e).partition("\nhelp: ")
        kind = KernelNameError if isinstance(e, AttributeError) else KernelSyntaxError
        raise kind(
            f"the annotation `{note}` of kernel {fn.__name__}() cannot be read: {why}",
            span_of_function(fn),
            help=help,
        ) from e


def span_of_class(cls: type) -> Span | None:
    """Return the span of the line at which a class begins; of its first kernel, if that line is
    unknown. None if neither is known, as for a class whose kernels are in a base class."""
    import inspect  # rarely needed

    functions = [getattr(member, "__vkchi_func__", None) for member in vars(cls).values()]
    span = next((span_of_function(fn) for fn in functions if fn is not None), None)
    try:
        lines, line = inspect.findsource(cls)
        file = inspect.getsourcefile(cls)
    except local(OSError, TypeError):  # a notebook's class has no file
        return span
    words = f"class {cls.__name__}"
    while line < len(lines) and words not in lines[line]:  # decorators come first
        line += 1
    if file is None or line == len(lines):
        return span
    begin = lines[line].index(words) + 1
    return Span(file, line + 1, begin, line + 1, begin + len(words), cls.__name__)


def span_of_function(fn: pytypes.FunctionType) -> Span:
    """Span of the line at which a function begins, that of its first decorator if it has one."""
    code = fn.__code__
    return Span(code.co_filename, code.co_firstlineno, 1, code.co_firstlineno, 1, fn.__name__)


def show_function(kind: str, fn: pytypes.FunctionType) -> str:
    """`repr` of a kernel or func: its name, its parameters, and its file and line."""
    parts = [f"{p.name}{show_annotation(p.annotation)}" for p in declared_parameters(fn)]
    returned = fn.__annotations__.get("return", MissingAnnotation)
    result = show_annotation(returned).replace(":", " ->", 1)
    place = place_of_line(fn.__code__.co_filename, fn.__code__.co_firstlineno)
    return f"<ti.{kind} {fn.__qualname__}({', '.join(parts)}){result} at {place}>"


def show_annotation(note: Any) -> str:
    """`: ti.f32` for an annotation; "" if there is none."""
    if note is MissingAnnotation:
        return ""
    if isinstance(note, str):
        return f": {note}"
    if isinstance(note, type):
        return f": {'ti.Tensor' if note is Storage else note.__name__}"
    shown = repr(note)
    return f": {type(note).__name__}" if " object at 0x" in shown else f": {shown}"
