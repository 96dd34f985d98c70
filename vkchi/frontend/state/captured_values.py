"""Python values that a kernel was compiled with: their paths, and tests for changes.

A path begins at a global, a closure variable, an argument of the kernel, a function, a class, or an
object without a name. It continues by attributes and items: `self.grid.dx`, `WEIGHTS[2]`. Values
are compared by type and bits (numbers, containers, vectors, small numpy arrays) or by identity
(fields, functions, classes).

    read = PathRead(Path(PathRoot("global", fn, "N")), "value", 3)
    value_of(read.path, args), is_current(read, read.test(), args)
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Literal

from vkchi.interrupts.local import local
from vkchi.lang.matrix import Matrix
from vkchi.lang.struct import Struct
from vkchi.lang.value_keys import PLAIN, SHOWN, identity_keys, is_bound, value_key
from vkchi.span import Span
from vkchi.tuples import NamedTuple
from vkchi.types import DefaultTensor, Scalar, Type
from vkchi.types.core import ArrayArgument
from vkchi.types.lazy_numpy import is_array_of_numpy, is_number_of_numpy
from vkchi.types.struct_types import StructType

MOST_NUMBERS = 64  # in a numpy array that is compared by contents at each call
MOST_ITEMS = 4096  # in a container that is compared by contents
NUMBERS: frozenset[type] = PLAIN | {float, complex, range}
NOT_USERS = ("vkchi", "builtins", "math", "numpy")  # packages whose objects are immutable here
CONTAINERS = (list, tuple, dict, set, frozenset, Struct)
VALUES = (int, float, complex, str, bytes)

# "value": by contents or identity; "kind": by the class alone; "unshadowed": the object itself has
# no such attribute, so its class decides; "items": by the items of an iteration.
# "absent": there is no such attribute; "entry": by identity, an entry of a class, which is kept.
# "wide": an integer beyond 32 bits; "contents": by class and attributes.
How = Literal["value", "kind", "unshadowed", "items", "absent", "entry", "wide", "contents"]
OF_PARENTS = ("unshadowed", "absent")  # these test the object before the last step
Test = Callable[[Any], bool]


class PathRoot(NamedTuple):
    """The start of a path.

    | kind | `fn` | `name` |
    |---|---|---|
    | `global`, `cell` | function | global or closure variable of it |
    | `argument` | kernel | argument of it |
    | `function` | function | attribute of it |
    | `class` | class | entry of its dict, or None; `__mro__` |
    | `object` | function that returns an object, or None if it is gone | attribute of that object |
    """

    kind: Literal["global", "cell", "argument", "function", "class", "object"]
    fn: Any
    name: str


# An attribute (`"attr"`, name) or an item (`"item"`, key).
Step = tuple[str, Any]


class Path(NamedTuple):
    """A path from a root to a value."""

    root: PathRoot
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        inner = "".join([f".{k}" if kind == "attr" else f"[{k!r}]" for kind, k in self.steps])
        owner = ""
        if self.root.kind in ("function", "class", "object"):
            held = self.root.fn() if self.root.kind == "object" else self.root.fn
            owner = f"{getattr(held, '__name__', type(held).__name__)}."
        return f"{owner}{self.root.name}{inner}"

    @property
    def dotted(self) -> str:
        """The path with names only, for parameters: `self.links.0.mass`."""
        return re.sub(r"\W+", ".", str(self)).strip(".")


class PathRead(NamedTuple):
    """A value read at compile time, the way to compare it, and the line that read it.

    By `how`, `value` is the value itself, its class ("kind"), or the attribute's name
    ("unshadowed", "absent").
    """

    path: Path
    how: How
    value: Any
    span: Span | None = None

    def test(self) -> Test:
        return test_of(self.how, self.value)


class Member(NamedTuple):
    """An ndarray or a number that a kernel reads by a path, and takes as a hidden parameter.

    - role: "array" for an ndarray, "scalar" for a number.
    - name: of the parameter.
    - type: the array's type and attributes, or the number's type.
    - paths: all paths that lead to the value. The first one is read at each call.
    - like: an earlier array parameter that must have the same shape, or "".
    """

    role: Literal["array", "scalar"]
    name: str
    type: ArrayArgument | Scalar
    paths: tuple[Path, ...]
    like: str = ""


class Members(NamedTuple):
    """The `Member`s of a kernel, in the order of their parameters. If `are_disjoint`, the code
    requires that all array arguments are disjoint, members included."""

    all: tuple[Member, ...] = ()
    are_disjoint: bool = False


class FieldSources(NamedTuple):
    """The fields that a kernel accesses.

    - paths: those that lead to a field, by its parameter.
    - facts: the attributes of fields that the kernel was compiled with.
    """

    paths: dict[str, tuple[Path, ...]]
    facts: tuple[PathRead, ...]

    @property
    def is_of_arguments(self) -> bool:
        """True if an argument of the kernel leads to a field."""
        return any(path.root.kind == "argument" for found in self.paths.values() for path in found)


def root_value(root: PathRoot, args: tuple[Any, ...]) -> Any:
    """Return the current value at a root. `args` are the kernel's arguments.

    Raises KeyError, ValueError or AttributeError if there is none.
    """
    kind, fn, name = root
    if kind == "global":
        return fn.__globals__[name]
    if kind == "cell":
        assert fn.__closure__ is not None
        return fn.__closure__[fn.__code__.co_freevars.index(name)].cell_contents
    if kind == "argument":
        return args[fn.__code__.co_varnames.index(name)]
    if kind == "class":
        return fn.__mro__ if name == "__mro__" else vars(fn).get(name)
    return getattr(fn if kind == "function" else fn(), name)


def value_of(path: Path, args: tuple[Any, ...]) -> Any:
    """Return the current value at a path. Raises any error of the objects on the path."""
    value = root_value(path.root, args)
    for kind, key in path.steps:
        value = getattr(value, key) if kind == "attr" else value[key]
    return value


def is_current(read: PathRead, test: Test, args: tuple[Any, ...]) -> bool:
    """True if the value at the path still passes the test; False if reading it raises an exception.

    True also if the path begins at an object that is gone.
    """
    path = read.path
    if path.root.kind == "object" and path.root.fn() is None:
        return True
    try:
        return test(value_of(parent_of(path) if read.how in OF_PARENTS else path, args))
    except local(Exception):
        return False


def repeatable_reads(reads: Iterable[PathRead], args: tuple[Any, ...]) -> tuple[PathRead, ...]:
    """Return the reads that pass their own test when repeated now.

    This excludes properties whose value differs each time.
    """
    return tuple([read for read in reads if is_current(read, read.test(), args)])


def parent_of(path: Path) -> Path:
    return path._replace(steps=path.steps[:-1])


# --- tests ---------------------------------------------------------------------------------------


def test_of(how: How, value: Any) -> Test:
    """Return a predicate on a later value: it holds if that matches `value`.

    By `how`, it compares by `same_as` ("value"), the class ("kind"), or the items of an iteration
    ("items"). For "unshadowed" and "absent", the predicate takes the object that must not have the
    attribute named `value`.
    """
    if how == "kind":
        return lambda now: type(now) is value
    if how == "unshadowed":
        return lambda now: value not in getattr(now, "__dict__", ())
    if how == "absent":
        return lambda now: not hasattr(now, value)
    if how == "contents":
        given = contents_key(value)
        for part in identity_keys(given):
            part.weaken()
        return lambda now: contents_key(now) == given
    if how == "wide":
        return lambda now: not -(2**31) <= now < 2**31
    if how == "entry":
        return lambda now: now is value
    if how == "items":
        given = value_key(items_of(value))
        return lambda now: value_key(items_of(now)) == given
    return same_as(value)


def same_as(value: Any) -> Test:
    """Return the test for a value of equal type and bits, or for identity, by the kind of value."""
    kind = type(value)
    if isinstance(value, CONTAINERS):
        return same_container(value)
    if kind in NUMBERS or is_number_of_numpy(value):
        given = value_key(value)
        return lambda now: now is value or (type(now) is kind and value_key(now) == given)
    if isinstance(value, Matrix):
        return same_matrix(value)
    if is_view(value) and hasattr(type(value.base), "__vkchi_argument__"):
        return same_axes(value)
    if isinstance(value, partial) or is_own_number(value) or is_view(value):
        given = value_key(value)
        return lambda now: type(now) is kind and value_key(now) == given
    if is_array_of_numpy(value):
        return same_array(value)
    if isinstance(value, Type | DefaultTensor):
        return lambda now: now is value or (type(now) is kind and bool(now == value))
    if is_bound(value) or isinstance(value, BuiltinFunctionType):
        is_owner, function = same_object(value.__self__), getattr(value, "__func__", value)
        return lambda now: (
            type(now) is kind
            and is_owner(now.__self__)
            and (getattr(now, "__func__", now) is function or now == function)
        )
    if is_kept(value):
        return lambda now: now is value
    return same_object(value)


def contents_key(value: Any, within: tuple[int, ...] = ()) -> Any:
    """Return a hashable key of a dataclass's class and attributes, nested ones included; of other
    values, their `value_key`."""
    kind = type(value)
    if not hasattr(kind, "__dataclass_fields__") or id(value) in within:
        return value_key(value)
    inner, held = (*within, id(value)), getattr(value, "__dict__", {})
    names = dict.fromkeys([*kind.__dataclass_fields__, *held])
    parts = [(name, contents_key(getattr(value, name, None), inner)) for name in names]
    return (kind, *parts)


def same_axes(value: Any) -> Test:
    """Return the test for a view of an ndarray: by its axes. The base is read at each call."""
    kind, axes = type(value), value.__vkchi_view__[1]
    return lambda now: (
        type(now) is kind
        and now.__vkchi_view__[1] == axes
        and hasattr(type(now.base), "__vkchi_argument__")
    )


def same_matrix(value: Matrix) -> Test:
    kind, dt, entries = type(value), value.dt, value.entries
    given, dtype, shape = entries.tobytes(), entries.dtype, entries.shape
    return lambda now: (
        type(now) is kind
        and now.entries.tobytes() == given
        and now.dt == dt
        and now.entries.dtype == dtype
        and now.entries.shape == shape
    )


def is_kept(value: Any) -> bool:
    """True for values that a compiled kernel may keep alive, and that are compared by identity.

    These are fields, arrays of structs, functions, classes, modules and enum members.
    """
    return (
        isinstance(value, FunctionType | type | Enum | ModuleType)
        or hasattr(type(value), "__vkchi_kind__")
        or is_memory(value)
    )


def same_object(value: Any) -> Test:
    """Return the test for identity, by a weak reference.

    Objects without weak references are compared by class, and by contents or address (`value_key`).
    """
    try:
        ref = weakref.ref(value)
    except TypeError:
        given, kind = value_key(value), type(value)
        for part in identity_keys(given):
            part.weaken()
        return lambda now: type(now) is kind and value_key(now) == given
    return lambda now: now is not None and ref() is now


def same_container(value: Any, within: tuple[int, ...] = ()) -> Test:
    """Return the test for a list, tuple, dict, set or Struct with equal items.

    Items are compared by identity first, except those of a Struct. With more than MOST_ITEMS items,
    only class and length count, except for a Struct. `within`: ids of the enclosing containers.
    """
    kind = type(value)
    if not isinstance(value, Struct) and len(value) > MOST_ITEMS:
        size = len(value)
        return lambda now: type(now) is kind and len(now) == size
    given = value_key(value)
    for part in identity_keys(given):
        part.weaken()
    if isinstance(value, Struct):
        return lambda now: type(now) is kind and value_key(now) == given
    items, inner, is_plain = parts_of(value), (*within, id(value)), kind in (list, tuple)
    addresses, gone = list(map(id, items)), list[object]()
    tests, kept = [], list[object]()
    for k, item in enumerate(items):
        if has_parts(item):
            if id(item) not in inner:
                is_container = isinstance(item, CONTAINERS)
                test = same_container(item, inner) if is_container else same_as(item)
                tests.append((k, test))
        else:
            kept.append(item if type(item) in NUMBERS else reference(item, gone))

    def is_same(now: Any, _kept: object = kept) -> bool:
        if type(now) is not kind:
            return False
        parts = now if is_plain else parts_of(now)
        if list(map(id, parts)) != addresses or gone:
            return value_key(now) == given  # type: ignore[no-any-return]
        return not tests or all([test(parts[k]) for k, test in tests])

    return is_same


def parts_of(value: Any) -> list[Any]:
    """Return the items of a container; for a dict, its keys and values."""
    return [*value, *value.values()] if isinstance(value, dict) else [*value]


def items_of(value: Any) -> list[Any]:
    """Return the items of an iteration; for a mapping of Python's library, its pairs."""
    has_pairs = isinstance(value, Mapping) and is_library_container(value)
    return list(value.items() if has_pairs else value)


def is_library_container(value: Any) -> bool:
    """True for an object whose items Python's library stores, such as a deque, a view of a dict, or
    a numpy array of objects; not for CONTAINERS.

    False with more than MOST_ITEMS items.
    """
    kind = type(value)
    if kind in NUMBERS or isinstance(value, (*CONTAINERS, str, bytes, type, Enum)):
        return False
    if is_array_of_numpy(value):
        return bool(value.dtype.hasobject) and value.size <= MOST_NUMBERS
    if not hasattr(kind, "__len__") or hasattr(kind, "__next__"):
        return False
    holder = next((c for c in kind.__mro__ if "__iter__" in vars(c)), kind)
    if holder.__module__.partition(".")[0] not in sys.stdlib_module_names - {"__main__"}:
        return False
    try:
        return len(value) <= MOST_ITEMS
    except local(Exception):  # of a user's subclass
        return False


def is_own_number(value: Any) -> bool:
    """True for a number or string of a class outside of the builtin ones, which is immutable: a
    Fraction, or an object of a subclass of `int`. It may have attributes too."""
    kind = type(value)
    return kind not in NUMBERS and (isinstance(value, VALUES) or kind.__module__ in SHOWN)


def has_parts(value: Any) -> bool:
    """True if a value is compared by contents that may change."""
    if type(value) in NUMBERS:
        return False
    return isinstance(value, (*CONTAINERS, Matrix, partial)) or is_array_of_numpy(value)


def reference(value: Any, gone: list[object]) -> object:
    """Return a weak reference that is appended to `gone` when the object dies.

    Of objects without weak references, return one that has only numbers and strings itself: another
    one must not get its address. Return the address of others.
    """
    try:
        return weakref.ref(value, gone.append)
    except TypeError:
        return id(value) if any(identity_keys(value_key(value))) else value


def same_array(value: Any) -> Test:
    """Return the test for a numpy array: by contents up to MOST_NUMBERS elements, else by identity.

    Beyond that, an array that is another object is compared by digest, once, except arrays of
    objects.
    """
    kind, dtype, shape = type(value), value.dtype, value.shape
    if dtype.hasobject:
        if value.size > MOST_NUMBERS:
            return same_object(value)
        has_same_items = same_container(value.ravel().tolist())
        return lambda now: (
            type(now) is kind
            and now.dtype == dtype
            and now.shape == shape
            and has_same_items(now.ravel().tolist())
        )
    if value.size <= MOST_NUMBERS:
        data = value.tobytes()
        return lambda now: (
            type(now) is kind
            and now.dtype == dtype
            and now.shape == shape
            and now.tobytes() == data
        )
    from hashlib import blake2b  # imported late: its C library takes milliseconds

    digest = blake2b(value.tobytes()).digest()
    known = weakref.ref(value)

    def is_same(now: Any) -> bool:
        nonlocal known
        if known() is now:
            return True
        if type(now) is not kind or now.dtype != dtype or now.shape != shape:
            return False
        if blake2b(now.tobytes()).digest() != digest:
            return False
        known = weakref.ref(now)
        return True

    return is_same


def is_memory(value: Any) -> bool:
    """True if a value is a field or an array of structs, which kernels take by reference."""
    kind = type(value)
    return hasattr(kind, "__vkchi_array__") or hasattr(kind, "__vkchi_struct__")


def is_view(value: Any) -> bool:
    """True for a view of a field or ndarray, which is compared by its base and axes."""
    return hasattr(type(value), "__vkchi_view__")


def is_leaf(value: Any) -> bool:
    """True if a value is compared as a whole: its parts have no paths of their own."""
    return (
        type(value) in NUMBERS
        or isinstance(value, Matrix | DefaultTensor | Enum | partial)
        or (isinstance(value, Type) and not isinstance(value, StructType))
        or is_memory(value)
        or is_number_of_numpy(value)
        or is_array_of_numpy(value)
    )


def is_object(value: Any) -> bool:
    """True for an object whose attributes a kernel reads one by one.

    Its class is outside of vkchi, builtins, math and numpy. Containers, functions, classes,
    modules, and values that `is_leaf` compares as a whole are excluded.
    """
    kind = type(value)
    if kind in NUMBERS or isinstance(value, _OTHERS) or hasattr(kind, "__vkchi_kind__"):
        return False
    if kind.__module__.partition(".")[0] in NOT_USERS:
        return False
    return not (is_leaf(value) or is_bound(value))


def holds_object(value: Any) -> bool:
    """True for an object (`is_object`), and for a container with one inside."""
    return any(map(is_object, values_in(value)))


def values_in(value: Any) -> Iterator[Any]:
    """Yield the values in a container, nested ones included; another value itself."""
    seen, left = set[int](), [value]
    while left:
        one = left.pop()
        if isinstance(one, list | tuple | dict | set | frozenset):
            left += parts_of(one) if id(one) not in seen else ()
            seen.add(id(one))
        else:
            yield one


def is_read_by_parts(value: Any) -> bool:
    """True for an object (`is_object`) that is no number or string itself."""
    return is_object(value) and not is_own_number(value)


_OTHERS = (*CONTAINERS, FunctionType, type, ModuleType, BuiltinFunctionType)
