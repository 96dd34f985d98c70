"""`isinstance`, `super`, `getattr` and `hasattr` on kernel values.

All of them are resolved at compile time.

    CLASS_FORMS[isinstance](cx, v, ti.Matrix)       # True for a vector or matrix
"""

from __future__ import annotations

import builtins
from typing import Any

from vkchi.errors import KernelNameError, KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.places import attribute_of
from vkchi.frontend.values.kinds import kind_of, name_of
from vkchi.frontend.values.objects import SuperProxy
from vkchi.frontend.values.references import member_of
from vkchi.frontend.values.struct_values import is_of_class
from vkchi.frontend.values.trees import StructValue, is_made
from vkchi.ir.core import Value
from vkchi.types import Type


def is_instance(cx: Lowering, x: Any, classes: Any) -> bool:
    """True if x is an instance of one of the classes, or its `type` is one of the vkchi types.

    `classes` is a class, a vkchi type, or a tuple of them. Raises KernelTypeError for other
    objects.
    """
    if isinstance(classes, tuple):
        return any(is_instance(cx, x, c) for c in classes)
    if isinstance(classes, Type):
        return getattr(x, "type", None) is classes
    if not isinstance(classes, type):
        raise cx.fail(f"isinstance takes a class or a tuple of classes, not {name_of(classes)}")
    return issubclass(kind_of(x).class_of(x), classes)


def _isinstance(cx: Lowering, *args: Any, **kwargs: Any) -> bool:
    if len(args) != 2 or kwargs:
        raise cx.fail(f"isinstance takes a value and a class, {len(args) + len(kwargs)} given")
    return is_instance(cx, *args)


def _super(cx: Lowering, *args: Any, **kwargs: Any) -> Any:
    """Lower `super()`: of the class that defines the method, and of the method's first argument.

    Python computes it if there are arguments. Raises KernelSyntaxError outside of methods.
    """
    if args or kwargs:
        return cx.run_python(super, args, kwargs)
    cls, names = cx.peek_captured("__class__"), cx.act.fn.__code__.co_varnames
    me = cx.act.find(names[0]) if names else None
    if isinstance(cls, type) and me is not None and is_made(me.value):
        return SuperProxy(cx, cls, me)
    if not isinstance(cls, type) or me is None or isinstance(me.value, Value | StructValue):
        raise cx.fail("`super()` is for methods of Python classes", kind=KernelSyntaxError)
    return cx.run_python(super, (cls, me.value))


def _getattr(cx: Lowering, *args: Any, **kwargs: Any) -> Any:
    """Lower `getattr` with a compile-time name; the third argument is the default.

    An absent attribute becomes a dependency; without a default it raises KernelNameError.
    """
    if kwargs or not 2 <= len(args) <= 3 or not isinstance(args[1], str):
        raise cx.fail("getattr takes a value, a name that is a compile-time constant, a default")
    try:
        return attribute_of(cx, *args[:2])
    except KernelNameError:
        member = member_of(args[0])
        cx.dependencies.absent(args[0] if member is None else member, args[1])
        if len(args) == 2:
            raise
        return args[2]


def _hasattr(cx: Lowering, *args: Any, **kwargs: Any) -> bool:
    nothing = object()
    if kwargs or len(args) != 2:
        raise cx.fail(f"hasattr takes a value and a name, {len(args) + len(kwargs)} given")
    if isinstance(args[0], StructValue):
        record, name = args
        is_own = name in record.members or name in record.methods
        return is_own or is_of_class(record, name)
    member = member_of(args[0])
    if member is not None and hasattr(type(member), args[1]):
        return True
    return _getattr(cx, *args, nothing) is not nothing


CLASS_FORMS = {
    builtins.isinstance: _isinstance,
    builtins.super: _super,
    builtins.getattr: _getattr,
    builtins.hasattr: _hasattr,
}
