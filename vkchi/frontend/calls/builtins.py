"""Python's functions in kernels: `abs`, `min`, `int`, `len`, `isinstance`, `math.sqrt`.

BUILTINS maps a function to a handler. CLASS_FORMS has those that are resolved at compile time.

    BUILTINS[len](cx, [a, b])       # 2
"""

from __future__ import annotations

import builtins
import math
from functools import reduce
from typing import Any

from vkchi.errors import KernelNameError, KernelSyntaxError, KernelTypeError
from vkchi.frontend.calls.tables import Handler
from vkchi.frontend.context import Lowering, plain_number
from vkchi.frontend.control.flow import condition_of
from vkchi.frontend.control.places import attribute_of
from vkchi.frontend.ops import methods, operator_lowering
from vkchi.frontend.ops.elementwise_calls import ELEMENTWISE, is_plain, round_to_even
from vkchi.frontend.ops.trace import traced
from vkchi.frontend.values.kinds import (
    check_supported,
    defines,
    is_static,
    kind_of,
    name_of,
)
from vkchi.frontend.values.objects import SuperProxy
from vkchi.frontend.values.operands import weak
from vkchi.frontend.values.python_values import items_of
from vkchi.frontend.values.references import Context, member_of
from vkchi.frontend.values.struct_values import is_of_class
from vkchi.frontend.values.texts import format_parts, joined
from vkchi.frontend.values.trees import StructValue, is_made
from vkchi.interrupts.local import local
from vkchi.ir.core import Value
from vkchi.lang import elementwise
from vkchi.lang import math as ti_math
from vkchi.lang.matrix import Matrix
from vkchi.types import SCALARS, Scalar, Type, u1
from vkchi.types.lazy_numpy import np


def _convert(python: type, dtype: Any) -> Handler:
    """Make the handler of `int(x)` or `float(x)`.

    Numbers, strings and Python objects that define the conversion are converted at compile time. A
    method `__int__`, `__float__` or `__index__` of a user's class is inlined. Other values are cast
    to `dtype`.
    """
    names = (f"__{python.__name__}__", "__index__")

    def call(cx: Any, x: Any = 0) -> Any:
        if is_scalar_constant(x) or isinstance(x, str):
            try:
                return python(x)
            except local(ValueError, OverflowError) as e:
                name = python.__name__
                raise cx.fail(
                    f"{name}: {e}", kind=KernelTypeError, help=f"give it a number: {name}(1)"
                ) from None
        for name in names:
            found = kind_of(x).overload(cx, x, name)
            if found is not NotImplemented:
                return call(cx, found)
        is_plain = not kind_of(x).helps and not isinstance(x, np.ndarray)
        if is_plain and any(defines(x, name) for name in names):
            return cx.run_python(python, (x,))
        return operator_lowering.cast(cx, x, dtype)

    return call


def is_scalar_constant(x: Any) -> bool:
    """True for a number of Python or numpy."""
    found = weak(x)
    return found is not None and found.shape == ()


def _bool(cx: Any, x: Any = False) -> Any:
    """Lower `bool(x)`: by component for a vector, otherwise the truth of x."""
    is_number = isinstance(x, Value | Matrix) or kind_of(x).is_target
    return operator_lowering.cast(cx, x, u1) if is_number else condition_of(cx, x)


def _text_by(conversion: str) -> Handler:
    """Make the handler of `str(x)` or `repr(x)`. Kernel values are inserted after the launch."""
    return lambda cx, x="": joined(format_parts(cx, x, conversion=conversion))


def _length(cx: Any, x: Any) -> Any:
    v = kind_of(x).load(cx, x)
    return check_supported(cx, v, "length").length(cx, v)


def _items(cx: Any, x: Any) -> list[Any] | None:
    """Return the items of a Python iterable; None for a kernel value or Target."""
    if kind_of(x).has_type:
        return None
    return items_of(cx, x)


def _sum(cx: Any, x: Any, start: Any = 0) -> Any:
    items = _items(cx, x)
    if items is None:
        total = methods.total(cx, operator_lowering.value(cx, x))
        is_default = isinstance(start, int) and start == 0
        return total if is_default else operator_lowering.operate(cx, "+", start, total)
    for item in items:
        refuse_string(cx, item)
    if items and isinstance(start, int) and start == 0:
        start, items = items[0], items[1:]
    return plain_number(reduce(lambda a, b: operator_lowering.operate(cx, "+", a, b), items, start))


def refuse_string(cx: Context, x: Any) -> None:
    if kind_of(x).string_parts(x) is not None:
        raise cx.fail(
            f"{name_of(x)} cannot be added up", kind=KernelTypeError, help='join them: "".join(...)'
        )


def _of_many(python: Any, ours: Handler, of_components: Handler) -> Handler:
    """Make the handler of `max` or `min`, of arguments, list items or vector components."""

    def call(cx: Any, *args: Any) -> Any:
        if len(args) != 1:
            return ours(cx, *args)
        items = _items(cx, args[0])
        if items is not None and is_static(items) and any(weak(x) is None for x in items):
            return cx.run_python(python, (items,))
        if items is not None:
            return ours(cx, *items)
        return of_components(cx, operator_lowering.value(cx, args[0]))

    return call


def _of_truths(python: Handler, op: str, of_components: Handler) -> Handler:
    """Make the handler of `any` or `all` over a list's items or a kernel vector's components.

    There is no short circuit.
    """

    def call(cx: Any, x: Any) -> Any:
        items = _items(cx, x)
        if items is None:
            return of_components(cx, operator_lowering.value(cx, x))
        if is_static(items):
            return python(items)
        return reduce(
            lambda a, b: cx.b.emit(op, a, b), [operator_lowering.as_condition(cx, v) for v in items]
        )

    return call


def _to_whole(ours: Handler, python: Any) -> Handler:
    """Make the handler of `round`, `math.floor` or `math.ceil`: an integer, unlike `ti.round`."""

    def call(cx: Context, x: Any) -> Any:
        if is_scalar_constant(x):
            return python(x)
        return ours(cx, x, int)

    return call


def _round(cx: Context, x: Any, ndigits: Any = None) -> Any:
    if ndigits is None:
        return _to_whole(round_to_even, round)(cx, x)
    if not isinstance(ndigits, int | np.integer):
        raise cx.fail(
            "the digits of `round` must be a compile-time constant integer",
            kind=KernelTypeError,
            help="multiply, round and divide: ti.round(x * 100) / 100",
            constant=ndigits,
        )
    if is_scalar_constant(x):
        return round(x, int(ndigits))
    unit = 10.0 ** int(ndigits)
    whole = round_to_even(cx, operator_lowering.binary(cx, "*", x, unit))
    return operator_lowering.binary(cx, "/", whole, unit)


def _pow(cx: Context, base: Any, exp: Any, mod: Any = None) -> Any:
    if mod is None:
        return operator_lowering.binary(cx, "**", base, exp)
    if not is_plain(base, exp, mod):
        raise cx.fail("`pow` of three arguments is not for kernels", kind=KernelTypeError)
    return pow(base, exp, mod)


def _divmod(cx: Context, x: Any, y: Any) -> tuple[Any, Any]:
    return operator_lowering.binary(cx, "//", x, y), operator_lowering.binary(cx, "%", x, y)


def _log(cx: Context, x: Any, base: Any = None) -> Any:
    log = ELEMENTWISE[elementwise.log]
    return (
        log(cx, x) if base is None else operator_lowering.binary(cx, "/", log(cx, x), log(cx, base))
    )


def _log10(cx: Context, x: Any) -> Any:
    return operator_lowering.binary(
        cx, "*", ELEMENTWISE[elementwise.log](cx, x), 1.0 / math.log(10.0)
    )


def _hypot(x: Any, y: Any) -> Any:
    return elementwise.sqrt(x * x + y * y)


def _float_power(cx: Context, x: Any, y: Any) -> Any:
    return operator_lowering.binary(cx, "**", operator_lowering.floating(cx, x), y)


# --- classes --------------------------------------------------------------------------------------


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


CLASS_FORMS: dict[object, Handler] = {
    builtins.isinstance: _isinstance,
    builtins.super: _super,
    builtins.getattr: _getattr,
    builtins.hasattr: _hasattr,
}


BUILTINS: dict[object, Handler] = {
    abs: ELEMENTWISE[elementwise.abs],
    int: _convert(int, int),
    float: _convert(float, float),
    bool: _bool,
    str: _text_by("s"),
    repr: _text_by("r"),
    format: lambda cx, x, spec="": joined(format_parts(cx, x, spec)),
    len: _length,
    sum: _sum,
    max: _of_many(max, ELEMENTWISE[elementwise.max], methods.largest),
    min: _of_many(min, ELEMENTWISE[elementwise.min], methods.smallest),
    any: _of_truths(any, "or", methods.has_any),
    all: _of_truths(all, "and", methods.has_all),
    round: _round,
    pow: _pow,
    divmod: _divmod,
    math.floor: _to_whole(ELEMENTWISE[elementwise.floor], math.floor),
    math.ceil: _to_whole(ELEMENTWISE[elementwise.ceil], math.ceil),
    math.trunc: _to_whole(operator_lowering.cast, math.trunc),
    math.log: _log,
    math.pow: _float_power,
    math.fmod: ELEMENTWISE[elementwise.raw_mod],
    math.fabs: ELEMENTWISE[elementwise.abs],
    math.hypot: traced(_hypot),
    math.log10: _log10,
    np.log10: _log10,
    math.radians: traced(ti_math.radians.python),
    math.degrees: traced(ti_math.degrees.python),
    np.rint: round_to_even,
    np.absolute: ELEMENTWISE[elementwise.abs],
    np.maximum: ELEMENTWISE[elementwise.max],
    np.minimum: ELEMENTWISE[elementwise.min],
    np.power: ELEMENTWISE[elementwise.pow],
    np.where: ELEMENTWISE[elementwise.select],
    np.dot: lambda cx, a, b: operator_lowering.binary(cx, "@", a, b),
}

for _fn, _row in elementwise.INTRINSICS.items():
    if hasattr(math, _row.math):  # math.exp2 is new in Python 3.11
        BUILTINS[getattr(math, _row.math)] = ELEMENTWISE[_fn]
    if _row.numpy:
        BUILTINS[getattr(np, _row.numpy)] = ELEMENTWISE[_fn]
BUILTINS[math.atan2] = BUILTINS[np.arctan2] = ELEMENTWISE[elementwise.atan2]


def _cast_to(t: Scalar) -> Handler:
    return lambda cx, x: operator_lowering.cast(cx, x, t)


BUILTINS.update({t.dtype.type: _cast_to(t) for t in SCALARS.values()})
