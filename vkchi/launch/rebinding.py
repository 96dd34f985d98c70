"""Rebinding: code that was compiled for the fields of an object, bound to those of another object.

The other fields have the same types, shapes and layouts, and the same attributes as far as the code
depends on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.cache.compiled import Compiled
from vkchi.fields.field import Field
from vkchi.fields.struct_arrays import StructField
from vkchi.frontend.state.captured_values import (
    OF_PARENTS,
    PathRead,
    Test,
    is_current,
    is_memory,
    value_of,
)
from vkchi.interrupts.local import local

if TYPE_CHECKING:
    from vkchi.launch.member_arrays import MemberReader


class Rebinding:
    """The code of a kernel, without the fields and objects that it was compiled for."""

    def __init__(self, compiled: Compiled, hidden: MemberReader | None) -> None:
        sources, self._hidden = compiled.sources, hidden
        assert sources is not None
        self._compiled = compiled._replace(fields={}, dependencies=None, reads=(), sources=None)
        self._reads = [without_value(read) for read in compiled.reads]
        self._facts = [without_value(read) for read in sources.facts]
        self._fields = [
            (name, paths, type_of_memory(compiled.fields[name]))
            for name, paths in sources.paths.items()
        ]

    def bind(self, args: tuple[Any, ...]) -> Compiled | None:
        """Return the code with the fields at their paths now; None if it is not valid for them, or
        for the other Python values."""
        try:
            return self._bind(args)
        except local(Exception):  # of objects of the user: a missing attribute, a dead field
            return None

    def _bind(self, args: tuple[Any, ...]) -> Compiled | None:
        fields: dict[str, Any] = {}
        for name, (first, *others), wanted in self._fields:
            field = fields[name] = value_of(first, args)
            if not is_dense(field) or type_of_memory(field) != wanted:
                return None
            if any(value_of(path, args) is not field for path in others):
                return None
        if len(set(map(id, fields.values()))) < len(fields):
            return None
        if not all(holds(*fact, args) for fact in (*self._facts, *self._reads)):
            return None
        if self._hidden is not None and self._hidden.complete(args) is None:
            return None
        reads = tuple([with_value(read, args) for read, _ in self._reads])
        return self._compiled._replace(fields=fields, reads=reads)


def make_rebinding(compiled: Compiled, hidden: MemberReader | None) -> Rebinding | None:
    """Return the code for other fields; None if it depends on more than their types."""
    if compiled.sources is None or not all(map(is_dense, compiled.fields.values())):
        return None
    reads = (*compiled.reads, *compiled.sources.facts)
    others = [x.value for x in reads if x.how == "value" and is_memory(x.value)]
    return Rebinding(compiled, hidden) if all(map(has_type, others)) else None


def is_dense(value: Any) -> bool:
    """True for a field in dense blocks whose elements share no words with those of others."""
    if not isinstance(value, Field) or value.node is None or value.node.sparse_path:
        return False
    layout = value.__vkchi_array__().layout
    return layout is None or layout.number is None


def has_type(value: Any) -> bool:
    return isinstance(value, Field | StructField)


def without_value(read: PathRead) -> tuple[PathRead, Test]:
    """Return a read and its test; that of a field compares types. Values of class entries and types
    of objects, which the test needs, are kept."""
    value = read.value
    if read.how == "value" and is_memory(value):
        wanted = type_of_memory(value)
        return read._replace(value=None), lambda now: type_of_memory(now) == wanted
    is_kept = read.how in ("kind", "entry", *OF_PARENTS)
    return read if is_kept else read._replace(value=None), read.test()


def holds(read: PathRead, test: Test, args: tuple[Any, ...]) -> bool:
    return is_current(read, test, args)


def with_value(read: PathRead, args: tuple[Any, ...]) -> PathRead:
    return read if read.value is not None else read._replace(value=value_of(read.path, args))


def type_of_memory(value: Any) -> Any:
    """Return the properties of a field that code depends on: class, type with layout, attributes.
    None for other values."""
    if isinstance(value, Field):
        t = value.__vkchi_array__() if value.pool is None else value.array_type
        return (type(value), t, value.__vkchi_attributes__())
    if isinstance(value, StructField):
        return (type(value), value.__vkchi_type__, tuple(value.members))
    return None
