"""Fast `NamedTuple`: a replacement for `typing.NamedTuple` that usually compiles no source.

Python's own compiles a source string per class. Here `__new__` of a class with at most ten fields
is one of MAKERS with renamed parameters. Fields, methods, defaults and pickling are the same;
generic classes are not supported. Type checkers see `typing.NamedTuple`.

    class Slot(NamedTuple):
        kind: str
        axis: int = 0

    Slot("dim")._replace(axis=1)     # Slot(kind='dim', axis=1)
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NamedTuple as NamedTuple

try:
    from _collections import _tuplegetter as getter  # type: ignore[import-not-found]
except ImportError:  # not CPython
    from operator import itemgetter

    def getter(k: int, doc: str) -> property:
        """Property that returns item k of a tuple."""
        return property(itemgetter(k), doc=doc)


new = tuple.__new__
# Templates of `__new__`, by the number of fields.
MAKERS = (
    lambda _cls: new(_cls, ()),
    lambda _cls, a: new(_cls, (a,)),
    lambda _cls, a, b: new(_cls, (a, b)),
    lambda _cls, a, b, c: new(_cls, (a, b, c)),
    lambda _cls, a, b, c, d: new(_cls, (a, b, c, d)),
    lambda _cls, a, b, c, d, e: new(_cls, (a, b, c, d, e)),
    lambda _cls, a, b, c, d, e, f: new(_cls, (a, b, c, d, e, f)),
    lambda _cls, a, b, c, d, e, f, g: new(_cls, (a, b, c, d, e, f, g)),
    lambda _cls, a, b, c, d, e, f, g, h: new(_cls, (a, b, c, d, e, f, g, h)),
    lambda _cls, a, b, c, d, e, f, g, h, i: new(_cls, (a, b, c, d, e, f, g, h, i)),
    lambda _cls, a, b, c, d, e, f, g, h, i, j: new(_cls, (a, b, c, d, e, f, g, h, i, j)),
)
# Names that a class must not define. Source: `typing`.
RESERVED = frozenset(
    ["__new__", "__init__", "__slots__", "__getnewargs__", "_fields", "_field_defaults"]
    + ["_make", "_replace", "_asdict"]
)


class Fields(tuple[Any, ...]):
    """Methods of all named tuples. Source: `collections.namedtuple`."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _field_defaults: Mapping[str, Any] = {}

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Fields:
        made = new(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Fields:
        made = new(type(self), map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def __repr__(self) -> str:
        parts = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self)])
        return f"{type(self).__name__}({parts})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


def make_constructor(
    fields: tuple[str, ...], defaults: tuple[Any, ...], qualname: str
) -> FunctionType:
    """`__new__` of a class with these fields, of which the last ones have defaults."""
    if len(fields) < len(MAKERS):
        template = MAKERS[len(fields)]
    else:
        names = ", ".join(f"f{k}" for k in range(len(fields)))
        template = eval(f"lambda _cls, {names}: new(_cls, ({names}))", {"new": new})
    code: CodeType = template.__code__
    named = code.replace(co_name="__new__", co_varnames=("_cls", *fields))
    made = FunctionType(named, template.__globals__, "__new__", defaults)
    made.__qualname__ = qualname
    return made


class Meta(type):
    """Metaclass of `NamedTuple`, whose subclasses become plain subclasses of `Fields`."""

    def __new__(cls, name: str, bases: tuple[type, ...], held: dict[str, Any]) -> Any:
        """Return a subclass of `Fields` with the annotated fields of the class body.

        Raises TypeError or AttributeError as `typing.NamedTuple` does.
        """
        if not bases:
            return super().__new__(cls, name, bases, held)
        if len(bases) > 1:
            raise TypeError("can only inherit from a NamedTuple type")
        wrong = RESERVED & held.keys()
        if wrong:
            raise AttributeError("Cannot overwrite NamedTuple attribute " + min(wrong))
        fields = tuple(held.get("__annotations__", ()))
        given = {field: held[field] for field in fields if field in held}
        if tuple(given) != fields[len(fields) - len(given) :]:
            raise TypeError(f"{name}: a field without a default follows one that has one")
        for k, field in enumerate(fields):
            held[field] = getter(k, f"Alias for field number {k}")
        made = make_constructor(fields, tuple(given.values()), f"{name}.__new__")
        held |= {"__slots__": (), "_fields": fields, "_field_defaults": given, "__new__": made,
                 "__match_args__": fields}  # fmt: skip
        return type(name, (Fields,), held)


if not TYPE_CHECKING:

    class NamedTuple(metaclass=Meta):
        """Base class to name: `class Slot(NamedTuple)`."""
