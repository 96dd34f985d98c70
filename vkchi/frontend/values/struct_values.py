"""Structs in kernels: construction, members, methods, elements of arrays of structs.

A struct is a `trees.StructValue`: its scalars, vectors and matrices are separate values. Branches
and loops carry them like those of any tree.

    construct_struct(cx, S, (1, v), {})         # StructValue(a=1 as i32, v=v)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelNameError, KernelTypeError, nearest_name
from vkchi.frontend.context import Lowering
from vkchi.frontend.ops.conversions import convert
from vkchi.frontend.ops.operator_lowering import OVERLOADS, UNARY_METHODS
from vkchi.frontend.ops.tensor_construction import construct
from vkchi.frontend.state.identity import check_unshared, join_objects
from vkchi.frontend.state.pending import ConversionTarget
from vkchi.frontend.values.kinds import (
    Kind,
    all_but,
    describe,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.operands import as_type, operand, own_type, value
from vkchi.frontend.values.python_values import ContainerKind, python_attribute
from vkchi.frontend.values.references import Context
from vkchi.frontend.values.targets import ItemTarget
from vkchi.frontend.values.trees import StructOfArrays, StructValue, map_leaves
from vkchi.lang.struct import Struct, as_cast, bind_members, is_struct_copy, members_of
from vkchi.types import Scalar, Tensor, shape_of
from vkchi.types.struct_types import METHODS_KEY, StructType

if TYPE_CHECKING:
    from vkchi.frontend.values.references import Merge

MEMBER = "member"  # the target of `fit_member` in its messages


class StructKind(Kind):
    """Words for structs."""

    noun = "a struct"
    helps = all_but("length", "index", "print", "items", "unpack")
    fit_help = "assign a struct with these members, or to its members"

    def help_for(self, cx: Context, x: Any, use: str) -> str:
        help = f"use its members ({', '.join(self.keys(x))})"
        return help + (", or write a method" if use in ("number", "truth", "compare") else "")


class PythonStructKind(StructKind, of=[Struct]):
    """Structs of Python."""

    def keys(self, x: Any) -> Any:
        return Struct._names(x)

    def own(self, cx: Any, x: Any) -> Any:
        record = as_record(cx, x)
        return kind_of(record).own(cx, record)


class MembersKind(ContainerKind):
    """Values with members: structs, and arrays of structs."""

    is_struct = True

    def name(self, x: Any) -> str:
        word = "a struct" if x.cls is None else f"an object of {x.cls.__name__}"
        return f"{word} of {', '.join(x.keys())}" if len(x) else word

    def attr(self, cx: Any, x: Any, name: str, slot: Any) -> Any:
        if is_of_class(x, name):
            return python_attribute(cx, x.type, name)
        return member_of(cx, x if slot is None else slot, x, name)

    def peek(self, x: Any, name: str) -> Any:
        return x[name] if name in x.members else bound_method(x, x, name)

    def called(self, x: Any, slot: Any = None) -> Any:
        return bound_method(x if slot is None else slot, x, "__call__") or x

    def is_static(self, x: Any) -> bool:
        return False

    def binary(self, cx: Any, op: str, x: Any, y: Any, *, is_reflected: bool) -> Any:
        return self.overload(cx, x, OVERLOADS[op][is_reflected], y)

    def unary(self, cx: Any, op: str, x: Any) -> Any:
        return self.overload(cx, x, UNARY_METHODS[op])

    def overload(self, cx: Any, x: Any, name: str, *args: Any) -> Any:
        """Inline a special method of an object, which cannot change x; struct types have none."""
        if x.cls is None or name not in x.methods:
            return NotImplemented
        method = StructMethod(x.methods[name], x, is_copy=True)
        return cx.tables.call(cx, method, (method.__self__, *args), {})

    def join(self, merge: Merge, a: Any, b: Any, name: str) -> Any:
        made = super().join(merge, a, b, name)
        made.objects |= b.objects
        return made

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        given = StructValue(x) if isinstance(x, dict) else as_record(cx, x)
        made = super().fit(cx, old, given, name, into)
        made.objects = given.objects
        if self.is_assignable(old):
            join_objects(old, made)
        return made

    def items(self, cx: Any, x: Any, use: str) -> list[Any]:
        if x.cls is not None:
            raise unsupported_use(cx, x, use)
        return self.children(x)

    def length(self, cx: Any, x: Any) -> int:
        if x.cls is not None:
            raise cx.fail(
                "kernels do not ask objects that they made for `len`",
                kind=KernelTypeError,
                help="call a method that counts",
            )
        return len(x)

    def class_of(self, x: Any) -> type:
        return x.cls or Struct

    def keys(self, x: Any) -> Any:
        return x.members.keys()

    def children(self, x: Any) -> list[Any]:
        return list(x.members.values())

    def with_item(self, cx: Any, x: Any, key: Any, item: Any) -> Any:
        check_unshared(cx, x)
        return super().with_item(cx, x, key, item)

    def with_children(self, x: Any, items: Sequence[Any]) -> Any:
        return type(x)(dict(zip(x.members, items)), x.methods, x.type, x.objects)


class StructValueKind(StructKind, MembersKind, of=[StructValue]):
    pass


class Receiver:
    """The struct that a method is called on, passed by reference as `self`.

    `is_copy`: the method cannot change the struct (methods of operators, properties).
    """

    __slots__ = ("is_copy", "target")

    def __init__(self, target: Any, *, is_copy: bool = False) -> None:
        self.target, self.is_copy = target, is_copy


class StructMethod:
    """A method bound to a struct. Calls pass the Receiver `__self__` as first argument."""

    __vkchi_kind__ = "func"

    def __init__(self, method: Any, target: Any, *, is_copy: bool = False) -> None:
        fn = getattr(method, "__vkchi_func__", method)
        self.__vkchi_func__, self.__name__ = fn, getattr(fn, "__name__", "method")
        self.__self__ = Receiver(target, is_copy=is_copy)
        self.is_plain = fn is method


# --- tests and conversion ------------------------------------------------------------------------


def record_in(x: Any) -> StructValue | None:
    """Return the struct that x is, or that a variable or item holds; else None."""
    held = kind_of(x).held(x)
    return held if isinstance(held, StructValue) else None


def as_record(cx: Lowering, x: Any) -> Any:
    """Convert a Python struct to a StructValue; return other objects unchanged."""
    if not isinstance(x, Struct):
        return x
    t = x.__vkchi_type__
    if t is not None:
        return construct_struct(cx, t, (), members_of(x))
    return StructValue({name: as_record(cx, v) for name, v in members_of(x).items()}, x.methods)


# --- construction --------------------------------------------------------------------------------


def construct_struct(
    cx: Lowering, t: StructType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> StructValue:
    """Lower `t(*args, **kwargs)`: members in order or by name, converted; missing ones are zero.

    One struct argument with t's members is copied. Raises KernelTypeError.
    """
    first: Any = as_record(cx, args[0]) if args else None
    keys = kind_of(first).keys(first)
    if keys is not None and is_struct_copy(t, args, kwargs, keys):
        args, kwargs = (), {name: first[name] for name in t.members}
    given: dict[str, Any] = cx.run_python(bind_members, (t, args, kwargs))
    is_cast = t.target is not None
    members = {
        name: fit_member(cx, as_cast(m) if is_cast else m, given.get(name, 0), name, cast=is_cast)
        for name, m in t.members.items()
    }
    return StructValue(members, t.methods, t.target or t)


def fit_member(
    cx: Lowering, t: Any, x: Any, name: str, *, what: str = MEMBER, cast: bool = False
) -> Any:
    """Convert x to type t, for the member or argument `name`; explicitly with `cast`. Raises
    KernelTypeError."""
    x = as_record(cx, x)
    if isinstance(t, StructType):
        return _fit_struct(cx, t, x, name, what)
    if kind_of(x).keys(x) is not None:
        raise _no_fit(cx, t, x, name, what)
    if kind_of(x).is_sequence and isinstance(t, Tensor):
        return construct(cx, t, (x,))
    a = operand(cx, x)
    own = own_type(cx, a)
    if shape_of(own) not in ((), shape_of(t)):
        raise _no_fit(cx, t, x, name, what, f"a {describe(own)}")
    if cast:
        return as_type(cx, a, t)
    words = what.removesuffix(",") if what.endswith(",") else f"{what} `{name}`"
    return convert(cx, a, t, ConversionTarget(words))


def _fit_struct(cx: Lowering, t: StructType, x: Any, name: str, what: str) -> StructValue:
    """Convert a struct or dict to struct type t. Raises KernelTypeError.

    A member of a struct also accepts a scalar, as the first member of t.
    """
    keys = kind_of(x).keys(x)
    if keys is not None:
        return construct_struct(cx, t, (), {key: x[key] for key in keys})
    if what != MEMBER or shape_of(own_type(cx, operand(cx, x))):
        raise _no_fit(cx, t, x, name, what)
    return construct_struct(cx, t, (x,), {})


def _no_fit(cx: Lowering, t: Any, x: Any, name: str, what: str, given: str = "") -> Exception:
    needed = f"a {describe(t)}" if isinstance(t, Scalar | Tensor) else str(t)
    return cx.fail(f"{what} `{name}` is {needed}, and {given or name_of(x)} is given")


def make_record(cx: Lowering, /, *args: Any, **kwargs: Any) -> StructValue:
    """Lower `ti.Struct(x=1, ...)` and `ti.Struct({...})`: every member keeps its own type.

    Numbers become kernel values.
    """
    made = cx.run_python(_check_arguments, (args, kwargs))
    if isinstance(made, StructValue):
        return made.copy()
    methods = made.get(METHODS_KEY, {})
    members = {key: _own_member(cx, x) for key, x in made.items() if key != METHODS_KEY}
    return StructValue(members, methods)


def _check_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs and isinstance(args[0], dict | StructValue):
        return args[0]
    return members_of(Struct(*args)) if args else kwargs


def _own_member(cx: Lowering, x: Any) -> Any:
    x = as_record(cx, x)
    if isinstance(x, StructValue):
        return map_leaves(x, lambda leaf: _own_member(cx, leaf))
    if isinstance(x, dict):
        return make_record(cx, x)
    return x if kind_of(x).is_array else value(cx, x)


# --- members and methods -------------------------------------------------------------------------


def is_of_class(held: StructValue, name: str) -> bool:
    """True if `held.name` is an attribute of held's class, and neither a member nor a method."""
    is_own = name in held.members or name in held.methods or name in ("__class__", "__dict__")
    return not is_own and held.cls is not None and hasattr(held.cls, name)


def member_of(cx: Lowering, base: Any, held: StructValue, name: str) -> Any:
    """Return `base.name`, assignable if base is. `held` is the struct in base.

    Raises KernelNameError for a name that is none of the members, methods and _FACTS.
    """
    if name in held.members:
        item = held[name]
        is_value = not kind_of(item).is_target and not kind_of(item).is_array
        return ItemTarget(base, name) if is_value and base is not held else item
    if name in held.methods:
        return method_of(cx, base, held, name)
    fact = _FACTS.get(name)
    if fact is not None and (isinstance(held, StructOfArrays) or name == "keys"):
        return fact(cx, held)
    known = [*held.members, *held.methods]
    close = nearest_name(name, known)
    raise cx.fail(
        f"{_word(held)} has no member `{name}`",
        kind=KernelNameError,
        help=f"did you mean `{close}`?" if close else f"it has {', '.join(known) or 'none'}",
    )


def _word(held: StructValue) -> str:
    if isinstance(held, StructOfArrays):
        return "an array of structs"
    return "this struct" if held.type is None else str(held.type)


def method_of(cx: Lowering, base: Any, held: StructValue, name: str) -> Any:
    """Return a method of a struct, bound to `base`; for a property, its value."""
    method = held.methods[name]
    if isinstance(method, property):
        assert method.fget is not None
        return cx.tables.call(cx, method.fget, (Receiver(held, is_copy=True),), {})
    return bound_method(base, held, name)


def bound_method(base: Any, held: StructValue, name: str) -> Any:
    """Return a method of a struct, bound to `base`; None for a property and an unknown name."""
    method = held.methods.get(name)
    is_bound = method is not None and not isinstance(method, property)
    return bind(method, base, held.type) if is_bound else None


def bind(method: Any, base: Any, cls: Any) -> Any:
    """Return a method bound to `base`; a static one itself, a class method bound to its class."""
    if isinstance(method, staticmethod):
        return method.__func__
    if isinstance(method, classmethod):
        return functools.partial(method.__func__, cls)
    return StructMethod(method, base)


def _shape(cx: Lowering, held: StructValue) -> tuple[Any, ...]:
    return kind_of(held).first_array(cx, held).shape(cx)  # type: ignore[no-any-return]


_FACTS: dict[str, Callable[[Lowering, StructValue], Any]] = {
    "shape": _shape,
    "ndim": lambda cx, held: len(_shape(cx, held)),
    "grad": lambda cx, held: map_leaves(held, cx.gradient_of),
    "keys": lambda cx, held: list(held.members),
    "dtype": lambda cx, held: held.type,
}
