"""Python objects and containers at compile time: attributes, items, iteration, lookup of names.

In an iteration, vectors give their components, matrices their rows, structs their members. Other
Python objects give the items of Python's iteration.

    items_of(cx, v, "unpack")       # the components of a vector
    is_static_call(cx, n)           # True if n is `ti.static(...)`
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, ModuleType
from typing import Any

from vkchi.compile_state import ArrayGuard
from vkchi.errors import (
    KernelIndexError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    Unsupported,
)
from vkchi.frontend.calls.tables import METHODS
from vkchi.frontend.context import Lowering
from vkchi.frontend.ops.operator_lowering import (
    OVERLOADS,
    PYTHON,
    by_python,
    refuse_repetition,
)
from vkchi.frontend.ops.tensor_attributes import hint_for_attribute
from vkchi.frontend.state.captured_values import is_object
from vkchi.frontend.state.reachable_values import find_held
from vkchi.frontend.state.user_code_errors import access_error, foreign_traceback
from vkchi.frontend.syntax.syntax_facts import LIST_CHANGES
from vkchi.frontend.values.kinds import (
    Kind,
    check_supported,
    defines,
    function_kind,
    is_static,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.object_members import read_member
from vkchi.frontend.values.operands import Operand, tensor_of
from vkchi.frontend.values.targets import ItemTarget, VariableTarget
from vkchi.frontend.values.texts import Part, print_parts
from vkchi.frontend.values.trees import TreeKind, refilled
from vkchi.interrupts.local import local
from vkchi.lang.compile_time import static
from vkchi.lang.struct import Struct
from vkchi.types.lazy_numpy import np


class ContainerKind(TreeKind):
    """Containers that Python indexes: lists, tuples, dicts and structs."""

    def item(self, cx: Any, x: Any, indices: list[Any], slot: Any) -> Any:
        """Return an item; its Target if x is in a variable.

        Raises KernelIndexError for an index that is not constant or out of range, and for a missing
        key. Raises KernelTypeError for a key of another type.
        """
        if not all(map(is_static, indices)):
            raise _not_static(cx, x, indices)
        key = indices[0] if len(indices) == 1 else tuple(indices)
        item = _item(cx, x, key)
        if slot is not None and not isinstance(key, slice):
            return item if kind_of(item).is_target else ItemTarget(slot, key)
        return cx.branch(x, ("item", key), item)

    def with_item(self, cx: Any, x: Any, key: Any, item: Any) -> Any:
        new = x.copy()
        new[key] = item
        return new

    def shown(self, cx: Any, x: Any) -> list[Part]:
        """Return the items in brackets; those of a dict or struct with their names."""
        keys = self.keys(x)
        names = [""] * len(x) if keys is None else [f"{key!r}: " for key in keys]
        parts: list[Part] = []
        for name, item in zip(names, self.children(x)):
            parts += [", " if parts else "", name, *print_parts(cx, item)]
        return ["[", *parts, "]"] if keys is None else ["{", *parts, "}"]


class CollectionKind(ContainerKind):
    """Lists, tuples and dicts."""

    methods: tuple[str, ...]  # those that change nothing

    def sized_name(self, x: Any) -> str:
        return f"{self.name(x)} of {len(x)}"

    def instead_of_attribute(self, x: Any, name: str) -> str:
        """Return the help text for an attribute of a list, tuple or dict."""
        raise NotImplementedError

    def attr(self, cx: Any, x: Any, name: str, slot: Any) -> Any:
        """Raises KernelTypeError; subclasses have attributes as Python objects."""
        if type(x) not in (list, tuple, dict):
            return NotImplemented
        help = self.instead_of_attribute(x, name)
        raise cx.fail(f"{name_of(x)} has no attribute `{name}` in a kernel", help=help)

    def method(self, cx: Any, x: Any, name: str, n: Any) -> Any:
        """Evaluate a method at compile time.

        One that changes a list assigns a changed copy to its variable. Raises KernelNameError for
        other methods, KernelSyntaxError for a change of a captured list.
        """
        args, kwargs = cx.tables.arguments(cx, n)
        if name in self.methods:
            return cx.run_python(getattr(x, name), args, kwargs)
        if name not in LIST_CHANGES or not isinstance(x, list):
            help = f"make it a vector: ti.Vector(x).{name}(...)" if name in METHODS else ""
            raise cx.fail(
                f"{name_of(x)} has no method `{name}` in a kernel",
                kind=KernelNameError,
                help=help or f"it has {', '.join(self.methods)}",
            )
        slot = cx.tables.lvalue(cx, n.func.value)
        if not isinstance(slot, VariableTarget):
            raise cx.fail("a captured list cannot change in a kernel", kind=KernelSyntaxError)
        new = list(x)
        getattr(new, name)(*args, **kwargs)
        slot.put(cx, new)
        return None


class JoinableKind(Kind):
    """Lists, tuples and dicts, named tuples included: Python joins and repeats them."""

    def binary(self, cx: Any, op: str, x: Any, y: Any, *, is_reflected: bool) -> Any:
        """Join or repeat as Python does; for other operations, lists are vectors.

        Two constants are left to Python's own operator.
        """
        if op not in ("+", "*", "|"):
            return NotImplemented
        if op == "*":
            refuse_repetition(cx, y)
        if is_static(x) and is_static(y):
            return NotImplemented
        try:
            if isinstance(y, list | tuple | dict):  # a subclass may define the reflected operator
                return by_python(cx, op, PYTHON[op], *((y, x) if is_reflected else (x, y)))
            method = getattr(type(x), OVERLOADS[op][is_reflected], None)
            return NotImplemented if method is None else by_python(cx, op, method, x, y)
        except TypeError as e:
            if foreign_traceback(e):
                raise
            return NotImplemented


class SequenceKind(JoinableKind):
    """Lists and tuples, which are vectors where one is needed."""

    is_sequence = True

    def operand(self, cx: Any, x: Any) -> Operand:
        return tensor_of(cx, x)

    def indices(self, cx: Any, x: Any) -> list[Any]:
        return [part for k in x for part in kind_of(k).indices(cx, k)]


class ListKind(SequenceKind, CollectionKind, of=[list, tuple]):
    """Lists and tuples, without subclasses of tuples."""

    methods = ("index", "count", "copy", "__len__")

    def of_subclass(self, cls: type) -> Kind:
        return NAMED_TUPLE if issubclass(cls, tuple) else self

    def instead_of_attribute(self, x: Any, name: str) -> str:
        return "index it: x[0]; or make it a vector: ti.Vector(x)"

    def children(self, x: Any) -> list[Any]:
        return list(x)

    def with_item(self, cx: Any, x: Any, key: Any, item: Any) -> Any:
        if isinstance(x, tuple):
            help = "make it a list: [...]"
            raise cx.fail("items of a tuple cannot be assigned", kind=KernelTypeError, help=help)
        return super().with_item(cx, x, key, item)

    def with_children(self, x: Any, items: Sequence[Any]) -> Any:
        return tuple(items) if type(x) is tuple else list(items)


class NamedTupleKind(SequenceKind):
    """Subclasses of tuples: their parts are read as attributes."""

    def is_static(self, x: Any) -> bool:
        return all(map(is_static, x))


NAMED_TUPLE = NamedTupleKind()


class DictKind(JoinableKind, CollectionKind, of=[dict]):
    methods = ("items", "keys", "values", "get", "copy", "__len__")

    def instead_of_attribute(self, x: Any, name: str) -> str:
        return f"write x[{name!r}]" if name in x else right_key(x)

    def keys(self, x: Any) -> Any:
        return x.keys()

    def children(self, x: Any) -> list[Any]:
        return list(x.values())

    def with_children(self, x: Any, items: Sequence[Any]) -> Any:
        return dict(zip(x, items)) if type(x) is dict else refilled(x, items)


# --- attributes ----------------------------------------------------------------------------------


def is_computed(obj: Any, name: str) -> bool:
    """True if reading an attribute of a user's object may run code of the user, each time."""
    if not is_object(obj):
        return type(obj) is super
    held = find_held(obj, name)
    if isinstance(held, functools.cached_property):
        return False
    own = getattr(obj, "__dict__", None)
    return isinstance(held, property) or not (isinstance(own, dict) and name in own)


def python_attribute(cx: Lowering, obj: Any, name: str) -> Any:
    """Return an attribute of a Python object as the kernel sees it, and record the read.

    A property that accesses elements of an array is inlined.
    Raises KernelNameError for an absent attribute, KernelTypeError for a `grad` or `dual` that a
    field lacks, and Unsupported for a name of Taichi's without support.
    """
    guard = ArrayGuard() if is_computed(obj, name) else None
    try:
        if guard is None:
            value = getattr(obj, name)
        else:
            with guard:
                value = getattr(obj, name)
            if guard.is_tripped:
                return inline_property(cx, obj, name)
    except Unsupported as e:  # a name of Taichi's without support
        raise Unsupported(f"{cx.span.place}: {e}") from None
    except (AttributeError, KeyError) as e:
        is_found = hasattr(type(obj), name) or isinstance(e, KeyError)
        if is_found and foreign_traceback(e):  # a property raised
            raise
        raise cx.fail(
            f"{object_name(obj)} has no attribute `{name}`",
            kind=KernelNameError,
            help=hint_for_attribute(obj, name),
        ) from None
    if value is None and name in ("grad", "dual") and kind_of(obj).is_array:
        raise cx.fail("this field has no gradient", help="make it with needs_grad=True")
    if kind_of(value).is_deferred:  # from a dict whose items are attributes
        return value
    return read_member(cx, obj, name, value)


def inline_property(cx: Lowering, obj: Any, name: str) -> Any:
    """Inline a property that accesses elements of an array. Raises KernelTypeError if its code is
    not the user's."""
    me, classes = obj, type(obj).__mro__
    if type(obj) is super:
        bound: Any = obj
        me = bound.__self__
        order = type(me).__mro__
        classes = order[order.index(bound.__thisclass__) + 1 :]
    held = next((vars(c)[name] for c in classes if name in vars(c)), None)
    if isinstance(held, property) and isinstance(held.fget, FunctionType):
        return cx.tables.call(cx, held.fget, (me,), {})
    raise access_error(cx, name)


def object_name(obj: Any) -> str:
    if isinstance(obj, ModuleType):
        return f"module `{obj.__name__.replace('vkchi.lang.', 'vkchi.')}`"
    return name_of(obj)


# --- items ---------------------------------------------------------------------------------------


def python_item(cx: Lowering, obj: Any, indices: list[Any]) -> Any:
    """Return an item of a Python object, read at compile time.

    Raises KernelTypeError for an object without items, and for one that must be passed as an
    argument. Raises KernelIndexError for an index that is not constant.
    """
    check_supported(cx, obj, "index")
    if not defines(obj, "__getitem__"):
        raise unsupported_use(cx, obj, "index")
    key = indices[0] if len(indices) == 1 else tuple(indices)
    if function_kind(type(obj).__getitem__) is not None:
        return cx.call(type(obj).__getitem__, (obj, key), {})
    if not all(map(is_static, indices)):
        raise _not_static(cx, obj, indices)
    if isinstance(obj, Struct):
        return cx.part(obj, ("item", key), _item(cx, obj, key))
    return cx.part(obj, ("item", key), cx.run_python(obj.__getitem__, (key,)))


def _item(cx: Lowering, held: Any, key: Any) -> Any:
    try:
        return held[key]
    except (LookupError, TypeError) as e:
        if foreign_traceback(e):
            raise
        kind = KernelTypeError if isinstance(e, TypeError) else KernelIndexError
        raise cx.fail(_index_words(held, key, e), kind=kind, help=right_key(held)) from None


def right_key(held: Any) -> str:
    if not len(held):
        return "it is empty"
    keys = kind_of(held).keys(held)
    if keys is None:
        return f"indices are integers from 0 to {len(held) - 1}"
    return f"it has {', '.join(repr(key) for key in [*keys][:5])}"


def _index_words(held: Any, key: Any, error: Exception) -> str:
    if isinstance(error, IndexError):
        return f"index {key} is out of range for {name_of(held)} of {len(held)}"
    return f"{name_of(held)} has no item {key!r}"


FEW = 16  # items of a list that a vector may hold
IN_STATIC_LOOP = "index it in a loop over ti.static(range(...))"


def _not_static(cx: Lowering, held: Any, indices: list[Any]) -> Any:
    return cx.fail(
        f"{name_of(held)} is indexed by a value that is not a compile-time constant",
        kind=KernelIndexError,
        help=_instead_of_index(held),
        constant=indices,
    )


def _instead_of_index(held: Any) -> str:
    if isinstance(held, np.ndarray):
        return "pass it as an argument, a: ti.types.ndarray(), or copy it into a field"
    if kind_of(held).is_sequence and len(held) > FEW:
        return "pass np.asarray(a) as an argument, a: ti.types.ndarray(), or copy it into a field"
    return f"make it a ti.Vector, or {IN_STATIC_LOOP}"


# --- iteration at compile time --------------------------------------------------------------------


Begin = Callable[[Any], Iterable[Any]]


def items_of(cx: Lowering, x: Any, use: str = "items", most: int | None = None) -> list[Any]:
    """Return the items of x, at most `most` if given.

    `use` is a key of kinds.USES, for the message. If x is not iterable, raises KernelSyntaxError if
    `use` is "unpack", else KernelTypeError.
    """
    own = own_items(cx, x, use)
    return cx.items_of(x, most) if own is None else own[:most]


def lazy_items(cx: Lowering, x: Any, begin: Begin = iter, use: str = "items") -> Iterable[Any]:
    """Return the items of x, lazily for a Python object; `begin` is `iter` or `reversed`.

    Raises KernelTypeError if x is not iterable, or cannot be reversed.
    """
    own = own_items(cx, x, use)
    if own is not None:
        return begin(own)
    if begin is reversed and not is_reversible(x):
        raise cx.fail(f"{name_of(x)} has no order to reverse", help="write reversed(list(x))")
    return cx.iterate(x, begin)


def is_reversible(x: Any) -> bool:
    is_sequence = defines(x, "__len__") and defines(x, "__getitem__")
    return defines(x, "__reversed__") or (is_sequence and not isinstance(x, Struct))


def own_items(cx: Lowering, x: Any, use: str) -> list[Any] | None:
    """Return the items of a vector, matrix or struct; None if Python iterates over the object.

    Raises KernelTypeError or KernelSyntaxError, as `items_of`, if x is not iterable.
    """
    x = kind_of(x).load(cx, x)
    return check_supported(cx, x, use).items(cx, x, use)


# --- lookup without lowering ----------------------------------------------------------------------


def peek(cx: Lowering, n: ast.expr) -> Any:
    """Return the compile-time value that a name or dotted name denotes.

    For a variable it is the value held, possibly of the kernel. None for other expressions, and if
    unknown.
    """

    def find(name: str) -> Any:
        var = cx.act.find(name)
        return cx.peek_captured(name) if var is None else var.value

    return look_up(n, find)


def look_up(n: ast.expr, find: Callable[[str], Any]) -> Any:
    """Return the value of a dotted name, by the values that `find` gives for names."""
    if isinstance(n, ast.Name):
        return find(n.id)
    return part_seen(look_up(n.value, find), n.attr) if isinstance(n, ast.Attribute) else None


def part_seen(base: Any, name: str) -> Any:
    """Return the value that `base.name` denotes; None if only lowering knows it.

    None also if a property raises.
    """
    seen = None if base is None else kind_of(base).peek(base, name)
    if seen is not NotImplemented:
        return seen
    try:
        if not is_computed(base, name):
            return getattr(base, name, None)
        with ArrayGuard() as guard:
            found = getattr(base, name, None)
        return None if guard.is_tripped else found
    except local(Exception):  # a property raised: reported where the name is read
        return None


def is_static_call(cx: Lowering, n: ast.expr) -> bool:
    return isinstance(n, ast.Call) and peek(cx, n.func) is static
