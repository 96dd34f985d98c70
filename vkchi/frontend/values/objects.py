"""Objects of Python classes that kernels construct: `Ray(origin, direction)`.

An object is a StructValue whose type is the class. `__init__` is inlined and adds the members.
Methods, constants, operators and `super()` come from the class.

    make_object(cx, Ray, (o, d), {})         # StructValue(origin=o, direction=d), of type Ray
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any

from vkchi.errors import KernelCallError, KernelTypeError
from vkchi.frontend.context import Lowering
from vkchi.frontend.ops.operator_lowering import OVERLOADS
from vkchi.frontend.state.identity import new_object
from vkchi.frontend.state.scope import VARIABLE
from vkchi.frontend.values.kinds import Kind, function_kind, is_static, name_of
from vkchi.frontend.values.struct_values import Receiver, as_record, bind
from vkchi.frontend.values.targets import VariableTarget
from vkchi.frontend.values.trees import StructValue, is_made

_IN_CLASSES = (FunctionType, staticmethod, classmethod, property)
_NEW = inspect.getattr_static(object, "__new__")


def is_makeable(cls: Any) -> bool:
    """True if kernels can construct a class: one without its own `__new__`.

    Classes of vkchi, numpy and builtins are excluded.
    """
    if not isinstance(cls, type) or inspect.getattr_static(cls, "__new__") is not _NEW:
        return False
    return cls.__module__.partition(".")[0] not in ("vkchi", "numpy", "builtins")


def init_of(cls: type) -> FunctionType | None:
    """Return the `__init__` of a class if a user wrote it; None for a dataclass's or `object`'s."""
    init = inspect.getattr_static(cls, "__init__")
    return init if isinstance(init, FunctionType) and not _is_generated(init) else None


def _is_generated(fn: FunctionType) -> bool:
    return fn.__code__.co_filename == "<string>"


def make_object(
    cx: Lowering, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> StructValue:
    """Construct an object in the kernel: `cls(*args, **kwargs)`; return its StructValue.

    `__init__` is inlined. A dataclass gets its members, then `__post_init__` is inlined. Raises
    KernelCallError where the arguments do not fit.
    """
    name = f"a new {cls.__name__}"
    me = cx.declare(name, StructValue({}, methods_of(cls), cls, new_object()), VARIABLE)
    init, receiver = init_of(cls), Receiver(VariableTarget(me))
    if init is not None:
        cx.tables.call(cx, init, (receiver, *args), kwargs)
    elif hasattr(cls, "__dataclass_fields__"):
        members = _members_of_dataclass(cx, cls, args, kwargs)
        me.value = StructValue(members, me.value.methods, cls, me.value.objects)
        finish = inspect.getattr_static(cls, "__post_init__", None)
        if finish is not None:
            cx.tables.call(cx, finish, (receiver,), {})
    elif args or kwargs:
        raise cx.fail(f"{cls.__name__}() takes no arguments", kind=KernelCallError)
    made = me.value
    cx.act.blocks[-1].pop(name, None)
    assert isinstance(made, StructValue)
    return made


def _members_of_dataclass(
    cx: Lowering, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the members that the `__init__` of a dataclass sets, defaults included.

    Raises KernelCallError where the arguments do not fit.
    """
    import dataclasses  # already imported by the dataclass

    try:
        given = inspect.signature(cls).bind(*args, **kwargs).arguments
    except TypeError as e:
        raise cx.fail(f"{cls.__name__}(): {e}", kind=KernelCallError) from None
    members = {}
    for field in dataclasses.fields(cls):
        if field.name in given:
            members[field.name] = given[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            members[field.name] = cx.run_python(field.default_factory, ())
        elif field.default is not dataclasses.MISSING:
            members[field.name] = cx.outside(field.default)
    return members


def methods_of(cls: type) -> dict[str, Any]:
    """Return the methods and properties of a class by name, inherited ones included.

    Kernels, and methods that `dataclasses` generated, are left out.
    """
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        for name, item in vars(base).items():
            kind = function_kind(item)
            is_method = isinstance(item, _IN_CLASSES) or kind not in (None, "kernel")
            found.pop(name, None)
            if is_method and not (isinstance(item, FunctionType) and _is_generated(item)):
                found[name] = item
    return found


def add_member(cx: Lowering, held: VariableTarget, name: str, x: Any) -> bool:
    """Perform `self.name = x` if self is an object of the kernel without that member.

    Returns True if it did. Raises KernelTypeError for a property.
    """
    record = held.get()
    if not is_made(record) or name in record.members:
        return False
    if isinstance(record.methods.get(name), property):
        raise cx.fail(f"`{name}` is a property, which kernels cannot assign")
    new = record.copy()
    new[name] = as_record(cx, x)
    held.put(cx, new)
    return True


class SuperProxy:
    """The value of `super()` in a method of `cls`; the variable `me` holds the object.

    Reading an attribute lowers it: properties are evaluated at each access.
    """

    def __init__(self, cx: Lowering, cls: type, me: Any) -> None:
        order = me.value.type.__mro__
        known: dict[str, Any] = {"__init__": lambda: None}
        for base in reversed(order[order.index(cls) + 1 : -1]):
            known |= vars(base)
        self.find = functools.partial(_of_parents, cx, known, me)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__vkchi_"):
            raise AttributeError(name)
        return object.__getattribute__(self, "find")(name)


class SuperKind(Kind, of=[SuperProxy]):
    noun = "`super()`"


def _of_parents(cx: Lowering, known: dict[str, Any], me: Any, name: str) -> Any:
    if name not in known:
        raise AttributeError(name)
    item = known[name]
    if isinstance(item, property):
        return cx.tables.call(cx, item.fget, (Receiver(me.value, is_copy=True),), {})
    is_method = isinstance(item, _IN_CLASSES) or function_kind(item) is not None
    return bind(item, VariableTarget(me), me.value.type) if is_method else item


# --- operators -----------------------------------------------------------------------------------


class ObjectKind(Kind, of=[object]):
    """Objects of users' classes."""

    def overload(self, cx: Any, x: Any, name: str, *args: Any) -> Any:
        """Inline a method if kernels can construct x's class. Raises KernelTypeError if static."""
        if not is_makeable(type(x)) or name not in methods_of(type(x)):
            return NotImplemented
        method = getattr(x, name)
        receiver = getattr(method, "__self__", None)
        if receiver is None:
            raise cx.fail(f"{name_of(method)} has no object", kind=KernelTypeError)
        return cx.tables.call(cx, method, (receiver, *args), {})

    def binary(self, cx: Any, op: str, x: Any, y: Any, *, is_reflected: bool) -> Any:
        """Python evaluates operators on two constants."""
        if is_static(y):
            return NotImplemented
        return self.overload(cx, x, OVERLOADS[op][is_reflected], y)
