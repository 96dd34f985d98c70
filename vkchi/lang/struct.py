"""`ti.Struct`: values with named members in Python scope; struct types' calls; `@ti.dataclass`.

>>> s = Struct(a=1, v=[1.0, 2.0]); s.v.y = 3; s
{'a': 1, 'v': [1.0, 3.0]}
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from vkchi.errors import ArgumentError, KernelSyntaxError, KernelTypeError, nearest_name
from vkchi.hooks import open_names
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.type_calls import flatten, make_scalar, make_tensor
from vkchi.types import SCALARS, Scalar, Tensor, integer_range, losses
from vkchi.types.lazy_numpy import is_array_of_numpy, is_number_of_numpy, np
from vkchi.types.struct_types import METHODS_KEY, StructType

RANGES = {
    t: range(integer_range(t)[0], integer_range(t)[1] + 1)
    for t in SCALARS.values()
    if t.kind in "iu"
}


class _Listing:
    """A computed attribute that a member of the same name shadows."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else self.compute(obj)


class Struct:
    """A struct value, made from a dict or keywords, or by a call of a struct type.

    Lists and numpy arrays among the members become vectors and matrices, dicts become structs.
    Raises KernelSyntaxError for other arguments.
    """

    __slots__ = ("__dict__", "__vkchi_type__", "__weakref__", "_methods")
    __vkchi_type__: StructType | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1 or (args and (kwargs or not isinstance(args[0], dict | Struct))):
            raise KernelSyntaxError(
                "ti.Struct is made of a dict or of keyword arguments", help="ti.Struct(x=1, y=2.0)"
            )
        given = {**(members_of(args[0]) if args else kwargs)}
        object.__setattr__(self, "_methods", given.pop(METHODS_KEY, {}))
        object.__setattr__(self, "__vkchi_type__", None)
        given.pop("__matrix_ndim", None)
        vars(self).update({name: as_member(x) for name, x in given.items()})

    # --- members -----------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return list(vars(self))

    def __getattr__(self, name: str) -> Any:
        method = self._methods.get(name) if not name.startswith("__") else None
        if method is not None:
            return bind_method(method, self)
        raise self._missing(name)

    def _missing(self, name: str) -> AttributeError:
        close = nearest_name(name, self._names())
        hint = f": did you mean `{close}`?" if close else ""
        return AttributeError(f"a struct with {', '.join(self._names())} has no `{name}`{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in vars(self):
            raise self._missing(name)
        t = None if self.__vkchi_type__ is None else self.__vkchi_type__.members[name]
        vars(self)[name] = as_member(value) if t is None else convert_to_type(t, value, name)

    def __getitem__(self, name: str) -> Any:
        return members_of(self)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[Any]:
        return iter([self[name] for name in self._names()])

    @_Listing
    def keys(self) -> list[str]:
        """The names of the members."""
        return Struct._names(self)

    @_Listing
    def entries(self) -> dict[str, Any]:
        """Members by name."""
        return members_of(self)

    @_Listing
    def items(self) -> Any:
        """Pairs of name and member."""
        return members_of(self).items()

    @_Listing
    def members(self) -> list[Any]:
        """The members, in order."""
        return list(members_of(self).values())

    @_Listing
    def methods(self) -> dict[str, Any]:
        """The struct's methods by name."""
        return self._methods  # type: ignore[no-any-return]

    # --- conversions -------------------------------------------------------------------------

    def to_dict(self, include_methods: bool = False, include_ndim: bool = False) -> dict[str, Any]:
        """Return members as Python numbers, lists and dicts.

        `include_methods` and `include_ndim` add entries for methods and axes, which `ti.Struct`
        accepts.
        """
        members = members_of(self)
        found = {name: _plain(x, include_methods, include_ndim) for name, x in members.items()}
        if include_methods:
            found[METHODS_KEY] = self._methods
        if include_ndim:
            ndims = {name: x.ndim for name, x in members.items() if isinstance(x, Matrix)}
            found["__matrix_ndim"] = ndims
        return found

    def __repr__(self) -> str:
        return str(Struct.to_dict(self))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("a struct is no array of numbers: take its members, or to_dict()")

    def __copy__(self) -> Struct:
        return make_value(members_of(self), self._methods, self.__vkchi_type__)

    def __deepcopy__(self, memo: Any) -> Struct:
        copied = {name: _copied(x) for name, x in members_of(self).items()}
        return make_value(copied, self._methods, self.__vkchi_type__)

    def __reduce__(self) -> Any:
        t = self.__vkchi_type__
        methods = self._methods if t is None else None
        return (_restore, (members_of(Struct.__deepcopy__(self, None)), methods, t))

    @staticmethod
    def field(
        members: Mapping[str, Any], methods: Mapping[str, Any] | None = None,
        shape: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        """A field of structs with these `members` (types by name) and `methods`, of shape `shape`.

        `options` are those of `ti.field`. Raises ArgumentError if methods is no mapping.
        """
        if methods is not None and not isinstance(methods, Mapping):
            raise ArgumentError(
                f"the methods of a struct are functions by name, not {methods!r}: "
                f"write shape={methods!r} if it is the shape"
            )
        return StructType(members, methods).field(shape, **options)


def members_of(s: Any) -> dict[str, Any]:
    """Return the members of a struct value by name; a dict is returned as is."""
    if isinstance(s, StructElement):
        return {name: s[name] for name in s._names()}
    return dict(vars(s)) if isinstance(s, Struct) else s


def make_value(members: dict[str, Any], methods: Any, t: StructType | None) -> Struct:
    """Return a Struct with these members, methods and type, without checks or conversions."""
    made = object.__new__(Struct)
    object.__setattr__(made, "_methods", methods)
    object.__setattr__(made, "__vkchi_type__", t)
    vars(made).update(members)
    return made


def _restore(members: dict[str, Any], methods: Any, t: StructType | None) -> Struct:
    return make_value(members, methods if t is None else t.methods, t)


def as_member(x: Any) -> Any:
    """Return x as a member of an untyped struct: sequences become vectors or matrices, dicts
    structs."""
    if isinstance(x, list | tuple) or is_array_of_numpy(x):
        return Matrix(x) if np.ndim(x) > 1 else Vector(x)
    return Struct(x) if isinstance(x, dict) else x


def _plain(x: Any, include_methods: bool, include_ndim: bool) -> Any:
    if isinstance(x, Struct):
        return Struct.to_dict(x, include_methods, include_ndim)
    return x.to_list() if isinstance(x, Matrix) else x


def _copied(x: Any) -> Any:
    return Struct.__deepcopy__(x, None) if isinstance(x, Struct) else copy.deepcopy(x)


def bind_method(method: Any, obj: Struct) -> Any:
    """Return the method bound to the struct, or to its type for a class method."""
    if isinstance(method, classmethod):
        return functools.partial(method.__func__, obj.__vkchi_type__)  # type: ignore[arg-type]
    return method.__get__(obj, type(obj))


# --- calls of struct types -----------------------------------------------------------------------


def bind_members(t: StructType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of struct type `t` by member; members without argument are
    absent.

    Raises KernelTypeError for surplus, unknown or duplicate arguments.
    """
    names = list(t.members)
    if len(args) > len(names):
        raise KernelTypeError(
            f"{t} has {len(names)} members, and {len(args)} values are given",
            help=f"its members are {', '.join(names)}",
        )
    given = dict(zip(names, args))
    for name, x in kwargs.items():
        if name not in t.members:
            close = nearest_name(name, names)
            raise KernelTypeError(
                f"{t} has no member `{name}`",
                help=f"did you mean `{close}`?" if close else f"it has {', '.join(names)}",
            )
        if name in given:
            raise KernelTypeError(f"{t} gets its member `{name}` twice")
        given[name] = x
    return given


def is_struct_copy(t: StructType, args: tuple[Any, ...], kwargs: Any, names: Any) -> bool:
    """True if a call of struct type `t` has one argument, whose members `names` are those of `t`.

    Such a call copies the argument. Otherwise a single argument is the first member.
    """
    return len(args) == 1 and not kwargs and names is not None and set(names) == set(t.members)


def make_struct(t: StructType, /, *args: Any, **kwargs: Any) -> Struct:
    """Return a struct of type `t` from positional or keyword members, or from a dict or another
    struct.

    Members are converted to their types; missing ones are zero. Raises KernelTypeError, and
    ArgumentError for integer members that would lose a fraction or are out of range.
    """
    first = args[0] if args else None
    names = members_of(first).keys() if isinstance(first, dict | Struct) else None
    if is_struct_copy(t, args, kwargs, names):
        args, kwargs = (), dict(members_of(first))
    given = bind_members(t, args, kwargs)
    is_cast = t.target is not None
    members = {
        name: _fit_member(as_cast(m) if is_cast else m, given.get(name, 0), name, is_cast)
        for name, m in t.members.items()
    }
    return make_value(members, t.methods, t.target or t)


def as_cast(t: Any) -> Any:
    """Return `t.cast` for a struct type t, else t."""
    return t.cast if isinstance(t, StructType) else t


def _fit_member(t: Any, x: Any, name: str, is_cast: bool) -> Any:
    """Convert x to a member's type. For a nested struct, a number initializes its first member."""
    if isinstance(t, StructType) and _is_number(x):
        return make_struct(t, x)
    return convert_to_type(t, x, name, is_cast=is_cast)


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | int | float) or is_number_of_numpy(x)


def convert_to_type(t: Any, x: Any, name: str = "", *, is_cast: bool = False) -> Any:
    """Convert x to type t.

    Raises KernelTypeError for another kind or size. Unless `is_cast`, raises ArgumentError for
    numbers that an integer type does not hold.
    """
    where = f" for the member `{name}`" if name else ""
    if isinstance(t, StructType):
        if isinstance(x, dict | Struct):
            return make_struct(t, **members_of(x))
        raise KernelTypeError(f"{t} is needed{where}, not {x!r}")
    is_number = _is_number(x)
    is_several = isinstance(x, list | tuple | Matrix) or is_array_of_numpy(x)
    if isinstance(t, Tensor) and (is_number or is_several):
        if not is_cast:
            check_integer_range(t.elem, flatten((x,)))
        return make_tensor(t, x)
    if isinstance(t, Scalar) and is_number:
        if not is_cast:
            check_integer_range(t, [x])
        return make_scalar(t, x)
    raise KernelTypeError(f"{t} is needed{where}, not {x!r}")


def check_integer_range(t: Scalar, numbers: list[Any]) -> None:
    """Raise ArgumentError for numbers that the integer type t does not hold. Other types are not
    checked."""
    if t.kind in "iu" and not all(type(x) is int and x in RANGES[t] for x in numbers):
        losses.raise_on_loss(np.asarray(numbers), losses.bounds_of(t))


def build_value(t: Any, leaves: Iterator[Any]) -> Any:
    """Return a value of type t whose scalars, vectors and matrices are taken from `leaves` in
    order."""
    if not isinstance(t, StructType):
        return next(leaves)
    members = {name: build_value(m, leaves) for name, m in t.members.items()}
    return make_value(members, t.methods, t)


# --- elements of fields --------------------------------------------------------------------------


class StructStore(Protocol):
    """Interface of a group of arrays, one per member of a struct type."""

    __vkchi_type__: StructType
    __vkchi_arrays__: dict[str, Any]


class StructElement(Struct):
    """An element of a struct field; its members read and write the field's arrays."""

    __slots__ = ("_index", "_store")
    _store: StructStore
    _index: Any

    def __init__(self, store: StructStore, index: Any) -> None:
        object.__setattr__(self, "_store", store)
        object.__setattr__(self, "_index", index)
        object.__setattr__(self, "_methods", store.__vkchi_type__.methods)
        object.__setattr__(self, "__vkchi_type__", store.__vkchi_type__)

    def __getattribute__(self, name: str) -> Any:
        get = object.__getattribute__
        store = get(self, "_store")
        if name in store.__vkchi_arrays__:
            return store.__vkchi_arrays__[name][get(self, "_index")]
        return get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._store.__vkchi_arrays__:
            raise self._missing(name)
        self._store.__vkchi_arrays__[name][self._index] = value

    def __getitem__(self, name: str) -> Any:
        return self._store.__vkchi_arrays__[name][self._index]

    def _names(self) -> list[str]:
        return list(self._store.__vkchi_arrays__)


# --- dataclass -----------------------------------------------------------------------------------


def dataclass(cls: type) -> StructType:
    """Make a struct type of the class `cls`: annotated names are members, functions are methods.

    Base classes, also struct types, contribute theirs.

    Args:
        cls: the class.

    Returns:
        The struct type, which replaces the class.

    Raises:
        KernelSyntaxError: for a default value.
    """
    members: dict[str, Any] = {}
    methods: dict[str, Any] = {}
    for base in getattr(cls, "__orig_bases__", ()):
        if isinstance(base, StructType):
            members |= base.declared
            methods |= base.methods
    frame = sys._getframe(1)
    for part in reversed(cls.__mro__[:-1]):
        for name, note in own_annotations(part).items():
            if hasattr(cls, name):
                raise KernelSyntaxError(
                    f"member `{name}` of {cls.__name__} has a default value, and members of a "
                    "ti.dataclass have none",
                    help=f"leave it out: a member that is not given is 0; or write a function that "
                    f"makes a {cls.__name__}",
                )
            members[name] = _evaluated(note, frame.f_globals, frame.f_locals)
        methods |= {name: x for name, x in vars(part).items() if is_method(name, x)}
    return StructType(members, methods, (cls.__module__, cls.__qualname__))


def own_annotations(cls: type) -> dict[str, Any]:
    """Return the annotations in a class's body, without those of its bases."""
    own = vars(cls)
    if "__annotations__" in own or "__annotate_func__" not in own:
        return dict(own.get("__annotations__", {}))
    return dict(cls.__annotations__)


def is_method(name: str, x: Any) -> bool:
    """True if a class attribute is a method of the struct type: callable or a descriptor, but no
    class.

    A name that begins with two underscores is none, except METHODS_KEY.
    """
    kinds = (staticmethod, classmethod, property)
    return (callable(x) or isinstance(x, kinds)) and not isinstance(x, type) and (
        not name.startswith("__") or name == METHODS_KEY
    )  # fmt: skip


def _evaluated(note: Any, names: dict[str, Any], local: Mapping[str, Any]) -> Any:
    return eval(note, names, dict(local)) if isinstance(note, str) else note


open_names(globals())
