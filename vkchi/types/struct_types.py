"""Struct types (`ti.types.struct`, `ti.types.argpack`): members by name, and methods.

The IR has no structs: the frontend splits them into members.

    >>> S = StructType({"a": i32, "v": vector(3, f32)}); S.members["a"]
    i32
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelValueError
from vkchi.hooks import Hook
from vkchi.types.core import Defaults, DefaultTensor, Scalar, Tensor, Type, cook

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from vkchi.protocols import StructField, StructNdarray
    from vkchi.types.hints import FieldOptions, Shape

METHODS_KEY = "__struct_methods"


class StructType(Type):
    """The type of structs with these members, in order: scalar, vector, matrix or struct types.

    - `methods`: functions, `ti.func`s, static and class methods, and properties, by name;
    - `origin`: module and name of the class that the type was made from;
    - `target`: for `S.cast`, the type S; else None. A call of `S.cast` makes a value of type S and
      converts its members explicitly: without a warning, and without an error for a fraction.

    Types are not interned: compare with `is_like`. Raises KernelValueError for a member of another
    type.
    """

    __slots__ = ("__dict__", "_members", "_resolved", "declared", "methods", "origin", "target")
    _make, _field, _ndarray = Hook("struct"), Hook("struct field"), Hook("struct ndarray")

    def __init__(
        self,
        declared: Mapping[str, Any],
        methods: Mapping[str, Any] | None = None,
        origin: tuple[str, str] | None = None,
        target: StructType | None = None,
    ) -> None:
        given = dict(declared)
        self.methods = {**given.pop(METHODS_KEY, {}), **(methods or {})}
        self.declared = {key: _checked(key, t) for key, t in given.items()}
        self._resolved: tuple[Any, ...] = ()
        self._members: dict[str, Any] = {}
        members = ", ".join(f"{key}={_word(t)}" for key, t in self.declared.items())
        self.origin, self.target = origin, target
        self._text = origin[1] if origin else f"struct({members})"

    @property
    def members(self) -> dict[str, Any]:
        """Member types by name. `float`, `int` and `ti.math.vec3` count as types under the current
        defaults."""
        defaults = (Defaults.fp, Defaults.ip)
        if self._resolved != defaults:
            self._members = {name: cook(t) for name, t in self.declared.items()}
            self._resolved = defaults
        return self._members

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Scalar | Tensor]]:
        """Paths and types of scalar, vector and matrix members, including those of nested
        structs."""
        for name, t in self.members.items():
            if isinstance(t, StructType):
                yield from (((name, *path), leaf) for path, leaf in t.leaves())
            else:
                yield (name,), t

    def is_like(self, other: Any) -> bool:
        """True if `other` is a struct type with the same `leaves` in the same order."""
        return isinstance(other, StructType) and list(self.leaves()) == list(other.leaves())

    def find_method(self, name: str) -> Any:
        """The method called `name`. Raises KeyError.

        A class method is bound to this type, a static method is the plain function. Other methods
        take a struct first.
        """
        method = self.methods[name]
        if isinstance(method, classmethod):
            return functools.partial(method.__func__, self)  # type: ignore[arg-type]
        return method.__func__ if isinstance(method, staticmethod) else method

    def __getattr__(self, name: str) -> Any:
        if name == "cast" and name not in self.methods:
            return StructType(self.declared, self.methods, self.origin, target=self)
        if name not in self.methods:
            raise AttributeError(f"{self} has no method `{name}`")
        return self.find_method(name)

    def field(self, shape: Shape | None = None, **options: Unpack[FieldOptions]) -> StructField:
        """A field of such structs; `shape` and options are those of `ti.field`, and `layout`."""
        made: StructField = self._field(self, shape, **options)
        return made

    def ndarray(self, shape: Shape, needs_grad: bool = False) -> StructNdarray:
        """An array of such structs, for use as a kernel argument.

        shape: its axes. needs_grad: True to allocate a gradient.
        """
        made: StructNdarray = self._ndarray(self, shape, needs_grad)
        return made

    def __instancecheck__(self, obj: Any) -> bool:
        """True if obj is a struct value with these members: `isinstance(s, S)`."""
        return self.is_like(getattr(obj, "__vkchi_type__", None))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Allow `class B(A)` of a dataclass A: `ti.dataclass` finds A among the original bases."""
        return ()

    def to_string(self) -> str:
        """The type's members and their types."""
        return repr(self)

    def __reduce__(self) -> Any:
        """By name, if another process can import it."""
        if self.origin is not None and self.origin[0] != "__main__":
            module, name = self.origin
            if _find_in(sys.modules.get(module), name) is self:
                return (_find_type, self.origin)
        return (StructType, (self.declared, None, self.origin, self.target), self.methods)

    def __setstate__(self, methods: Mapping[str, Any]) -> None:
        self.methods.update(methods)  # behind `__init__`: they may name the type


def _find_type(module: str, name: str) -> Any:
    return _find_in(importlib.import_module(module), name)


def _find_in(module: Any, name: str) -> Any:
    return functools.reduce(lambda x, word: getattr(x, word, None), name.split("."), module)


def _checked(name: str, t: Any) -> Any:
    found = StructType(t) if isinstance(t, dict) else t
    if not isinstance(cook(found), Scalar | Tensor | StructType):
        raise KernelValueError(
            f"member `{name}` of a struct needs a type such as ti.f32, not {t!r}",
            help="a number, vector, matrix or struct type",
        )
    return found


def _word(t: Any) -> str:
    if isinstance(t, DefaultTensor):
        return t.name
    return t.__name__ if isinstance(t, type) else str(t)


class ArgPackType:
    """The type of packs of kernel arguments: names and their annotations, in order.

    A call makes a pack. Source: Taichi's `ti.types.argpack`.
    """

    _make = Hook("argpack")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = dict(members)

    def __repr__(self) -> str:
        return f"argpack({', '.join(self.members)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._make(self, *args, **kwargs)
