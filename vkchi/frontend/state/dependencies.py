"""Dependencies of a compiled kernel besides its own source: functions reached, values read.

A value is recorded by the path at which it was found (`self.grid.dx`); the path also names captured
arrays. A container that is only indexed, or an object of which only attributes are read, is a step
of a path. `reads` returns the values at the ends of paths.

    deps.read(fn, "n_grid", 128); deps.reads(fn)    # (PathRead(Path(... "n_grid"), "value", 128),)
"""

from __future__ import annotations

import builtins
import sys
import weakref
from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from vkchi.frontend.state.captured_values import (
    CONTAINERS,
    MOST_ITEMS,
    NOT_USERS,
    NUMBERS,
    FieldSources,
    How,
    Member,
    Path,
    PathRead,
    PathRoot,
    Step,
    is_leaf,
    is_library_container,
    is_memory,
    is_object,
    is_own_number,
    parent_of,
    parts_of,
    repeatable_reads,
    value_of,
    values_in,
)
from vkchi.interrupts.local import local
from vkchi.lang.value_keys import is_bound
from vkchi.span import Span
from vkchi.types import Scalar
from vkchi.types.lazy_numpy import is_array_of_numpy

CONSTANTS = (bool, int, float, str)
_PURE = ("builtins", "math", "numpy")
_DICT_VALUES: type = type({}.values())
FACTS = ("shape", "ndim", "dtype", "size")  # of numpy arrays: independent of the elements


MOST_PATHS = 8  # of one object


class ValueUse:
    """A value at a path. `uses` counts its uses other than as a step to one of its parts.

    `is_compared`: its identity matters. `by_python`: Python code may have read it at compile time.
    """

    __slots__ = ("by_python", "is_compared", "span", "uses", "value")

    def __init__(self, value: Any, span: Span | None) -> None:
        self.value, self.span, self.uses = value, span, 0
        self.is_compared = self.by_python = False


class Dependencies:
    """The recorded dependencies of a kernel.

    - `functions`: Python functions that were lowered, or run at compile time; the kernel first
    - `opaque`: names of other callables run at compile time, whose reads are unknown
    - `classes`: classes that were read, and classes of objects that were read
    """

    def __init__(self) -> None:
        self.functions: dict[FunctionType, None] = {}
        self.opaque: dict[str, None] = {}
        self.is_read_by_python = False  # Python code received an object at compile time
        self.classes: dict[type, None] = {}
        self.notes: dict[Path, ValueUse] = {}
        self.last: tuple[Path, ...] = ()  # paths recorded together
        self.count = 0  # number of records, repeated paths included
        self._way: Any = None  # the array whose part is read next
        self._arguments: dict[str, Any] = {}
        self.by_class = set[str]()  # arguments of which the signature has the class alone
        self._pinned: dict[Path, tuple[How, Any]] = {}  # objects of these arguments
        self._iterated: dict[Path, Any] = {}
        self._absent: dict[Path, str] = {}
        self._roots: dict[int, IdentityReference] = {}  # objects without a name
        # Holds the object too, so that its id is not reused. No path: known to have none. The
        # latest path is the last.
        self._origins: dict[int, tuple[Any, tuple[Path, ...]]] = {}
        self._made: set[int] = set()  # ids of objects made at compile time
        self._unnamed: set[int] = set()  # ids of objects that code also reached without a path
        # Captured ndarrays by id, with the names of their parameters.
        self._members: dict[int, tuple[Any, str]] = {}
        self._scalars: dict[Path, Member] = {}  # numbers that are parameters
        self._wide: set[Path] = set()  # of these, those that need 64 bits
        self._gradients: dict[Path, type] = {}  # their classes; NoneType for an absent one
        self._is_argument_compared = False  # the identity of an argument matters
        self._has_dropped_reads = False
        self._facts: dict[Path, Any] = {}  # attributes of fields
        self._is_field_used = False  # as a whole, by Python code
        self._in_python = False  # recording what Python code may read
        self._globals: dict[int, FunctionType] = {}  # the first function of each module
        self._cells: dict[int, PathRoot] = {}

    # --- reading -----------------------------------------------------------------------------

    def read(self, fn: FunctionType, name: str, value: Any, span: Span | None = None) -> None:
        """Record the read of a global or closure variable of `fn`, or of a Python builtin.

        A module counts only as a step to its names.
        """
        if name in fn.__code__.co_freevars and fn.__closure__ is not None:
            cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
            path = Path(self._cells.setdefault(id(cell), PathRoot("cell", fn, name)))
        elif name in fn.__globals__:
            path = Path(PathRoot("global", self._globals.setdefault(id(fn.__globals__), fn), name))
        else:  # a Python builtin
            self._note((), value, span)
            return
        self._note((path,), value, span)

    def root(self, fn: FunctionType, name: str, value: Any) -> None:
        """Record a template argument of the kernel, or its `self`, as the start of paths to its
        parts.

        Its own value is part of the signature.
        """
        self._arguments[name] = value
        path = Path(PathRoot("argument", fn, name))
        self._found(value, path)
        self._note_items(path, value)
        self.met(value)

    def _found(self, value: Any, path: Path) -> None:
        """Add a path to the latest MOST_PATHS paths of a value; a leaf keeps only the last one.

        What is at a dropped path is compared by identity.
        """
        others = () if is_leaf(value) else self._paths(value)
        others = tuple([one for one in others if one != path])
        for dropped in others[: 1 - MOST_PATHS]:
            if dropped in self.notes:
                self.notes[dropped].is_compared = True
        self._origins[id(value)] = (value, (*others[1 - MOST_PATHS :], path))

    def _paths(self, value: Any) -> tuple[Path, ...]:
        found = self._origins.get(id(value))
        return () if found is None else found[1]

    def met(self, value: Any) -> None:
        """Record the class of an object, or a class."""
        self.classes[value if isinstance(value, type) else type(value)] = None

    def outside(self, value: Any) -> None:
        """Record a value without a path, such as an item of an iterator, and its class.

        An object may have paths already, which later lead to another object than the code reads.
        """
        self._origins.setdefault(id(value), (value, ()))
        if is_object(value):
            self._unnamed.add(id(value))
        self.met(value)

    def default(self, fn: FunctionType, name: str, value: Any) -> None:
        key: Any
        defaults, places = fn.__defaults__ or (), fn.__code__.co_varnames
        first = fn.__code__.co_argcount - len(defaults)
        keyed = fn.__kwdefaults__ or {}
        if name in keyed:
            root, key = PathRoot("function", fn, "__kwdefaults__"), name
        elif name in places and 0 <= places.index(name) - first < len(defaults):
            root, key = PathRoot("function", fn, "__defaults__"), places.index(name) - first
        else:
            self.outside(value)
            return
        self._note((Path(root, (("item", key),)),), value, None)

    def read_part(self, base: Any, step: Step | None, value: Any, span: Span | None = None) -> None:
        """Record the read of an attribute or item of a recorded object.

        `step` is None for a part without a path. Attributes of users' objects without a path begin
        a path of their own.
        """
        if type(base) is super and step is not None:
            base = holder_of(base, step[1])
        paths, is_known = self._paths(base), id(base) in self._origins
        self.met(base)
        if not paths and step is not None and step[0] == "attr" and may_change(base):
            if not is_known:
                self._made.add(id(base))  # kept alive in _origins
            self._origins.setdefault(id(base), (base, ()))
            self._note((self._path_in(base, step[1]),), value, span)
        elif not is_known:
            return
        elif isinstance(base, _DICT_VALUES):  # items of a dict have paths
            self._origins.setdefault(id(value), (value, ()))
            self.met(value)
        elif not paths or step is None:
            self._is_field_used |= is_memory(base)
            self.outside(value)
        elif not isinstance(step[1], Hashable):  # a slice: the whole base is used
            for path in paths:
                if path in self.notes:
                    self.notes[path].uses += 1
            self.outside(value)
        elif is_array_of_numpy(base) and step[1] in FACTS:
            if self._way is base:
                for path in self.last:
                    self.notes[path].uses -= 1
            self._note(
                tuple([one._replace(steps=(*one.steps, step)) for one in paths]), value, span
            )
        else:
            made = tuple([path._replace(steps=(*path.steps, step)) for path in paths])
            if id(base) in self._unnamed and step[0] == "attr":
                made = (self._path_in(base, step[1]), *made)
            if is_leaf(base):
                self._found(value, made[-1])
                self._facts.update(dict.fromkeys(made, value))
                self.met(value)
            else:
                self._note(made, value, span)

    def _path_in(self, base: Any, name: Any) -> Path:
        """Return the path of an attribute that begins at an object, whichever paths lead to it."""
        root = self._roots.setdefault(id(base), IdentityReference(base))
        return Path(PathRoot("object", root, name))

    def _note(self, paths: tuple[Path, ...], value: Any, span: Span | None) -> None:
        self.met(value)
        self.count += 1
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in NOT_USERS:
            paths = ()
        self.last = paths
        if not paths:
            self._origins[id(value)] = (value, ())
        for path in paths:
            self._found(value, path)
            note = self.notes.get(path)
            if note is None:
                note = self.notes[path] = ValueUse(value, span)
                self._note_items(path, value)
            note.uses += 1
            note.by_python |= self._in_python

    def _note_items(self, path: Path, value: Any) -> None:
        """Record the paths of a container's items, nested ones included.

        Numbers get none, nor other items that already have one, except objects.
        """
        if not isinstance(value, list | tuple | dict):
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            is_new = type(item) not in NUMBERS and not self._paths(item)
            if is_new or is_object(item):
                inner = path._replace(steps=(*path.steps, ("item", key)))
                self._found(item, inner)
                if is_new:
                    self._note_items(inner, item)

    def absent(self, base: Any, name: str) -> None:
        for path in self._paths(base):
            self._absent[path._replace(steps=(*path.steps, ("attr", name)))] = name

    def was_a_way(self, base: Any, before: int) -> None:
        """Undo the use of `base`, read since `count` was `before`: only a part of it is used."""
        self._way = None
        if self.count == before or not self.last or self.last[-1:] != self._paths(base)[-1:]:
            return
        if is_array_of_numpy(base):
            self._way = base  # its elements may still be used
        else:
            for path in self.last:
                self.notes[path].uses -= 1

    def iterated(self, base: Any) -> None:
        """Record that the kernel depends on the items of an iteration over an object.

        Containers are left out: their contents are compared.
        """
        for path in self._paths(base):
            if not isinstance(base, CONTAINERS):
                self._iterated[path] = base

    def compared(self, value: Any) -> None:
        """Record that the identity of an object at a path matters."""
        for path in self._paths(value):
            if path in self.notes:
                self.notes[path].is_compared = True
            elif self._is_by_class(path):
                self._pinned[path] = "value", value
            elif not path.steps:
                self._is_argument_compared = True

    def used_as_a_whole(self, values: Iterable[Any]) -> None:
        """Record that Python code receives these values, of which fields may be compared."""
        self._is_field_used |= any(is_memory(x) for value in values for x in values_in(value))

    def met_by_reflection(self, value: Any) -> None:
        """Record that Python code received an object, and may depend on all of its contents."""
        for path in self._paths(value):
            if self._is_by_class(path):
                self._pinned.setdefault(path, ("contents", value))

    def _is_by_class(self, path: Path) -> bool:
        return path.root.kind == "argument" and path.root.name in self.by_class

    def stands_for(self, copy: Any, value: Any) -> None:
        """Give a copy, which kernels use in place of an object, the object's paths."""
        if id(value) in self._origins:
            self._origins[id(copy)] = (copy, self._paths(value))

    def is_read(self, value: Any) -> bool:
        """True if an object was recorded, and not as one made at compile time."""
        return id(value) in self._origins and id(value) not in self._made

    @contextmanager
    def in_python(self) -> Iterator[None]:
        """Context in which recorded values are read by Python code at compile time."""
        outer, self._in_python = self._in_python, True
        yield
        self._in_python = outer

    def ran(self, callee: Any) -> None:
        """Record that a Python callable was run at compile time.

        The names in a function, and in functions that it names, count as read. Results of Python's
        builtins, math and numpy depend on the arguments alone. Names of other callables go to
        `opaque`.
        """
        if isinstance(callee, FunctionType):
            if callee in self.functions:
                return
            self.functions[callee] = None
            for name, value in referred_names(callee).items():
                with self.in_python():
                    self.read(callee, name, value)
                if isinstance(value, FunctionType):
                    self.ran(value)
        elif (getattr(callee, "__module__", None) or "").partition(".")[0] not in _PURE:
            self.opaque[getattr(callee, "__qualname__", type(callee).__qualname__)] = None

    def latest_path(self, value: Any, of: Container[str] | None = None) -> Path | None:
        """Return the latest path of an object; None if there is none. With `of`, the path begins
        at one of these arguments."""
        paths = [
            path
            for path in self._paths(value)
            if of is None or (path.root.kind == "argument" and path.root.name in of)
        ]
        return paths[-1] if paths else None

    # --- members -----------------------------------------------------------------------------

    def array_path(self, array: Any) -> Path | None:
        """Return the latest path of an ndarray that can be read at each call; None if there is
        none."""
        paths = [path for path in self._paths(array) if path.root.kind != "object"]
        return paths[-1] if paths else None

    def add_member(self, array: Any, name: str) -> None:
        """Record that a captured ndarray is the hidden parameter `name`."""
        self._members[id(array)] = array, name

    def add_scalar(self, paths: Sequence[Path], name: str, t: Scalar, *, is_wide: bool) -> None:
        """Record that the number at these paths is the hidden parameter `name` of type `t`.

        The code depends on the number's class, and if `is_wide` on its need for 64 bits.
        """
        known = [path for path, m in self._scalars.items() if m.name == name]
        every = tuple(dict.fromkeys([*known, *paths]))
        self._scalars |= dict.fromkeys(every, Member("scalar", name, t, every))
        self._wide |= set(paths) if is_wide else set()

    def path_of_scalar(self, name: str) -> str:
        """Return the path of the number that is the hidden parameter `name`."""
        return next(str(m.paths[0]) for m in self._scalars.values() if m.name == name)

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    def compared_by_python(self, array: Any) -> None:
        """Record that Python code received a captured ndarray, which it may compare."""
        for path in self._paths(array):
            if path in self.notes:
                self.notes[path].by_python = True

    def gradient(self, array: Any) -> Any:
        """Return the gradient of a captured ndarray, or None; record that there is one, or none."""
        path = self.array_path(array)
        assert path is not None
        self._gradients[path._replace(steps=(*path.steps, ("attr", "grad")))] = type(array.grad)
        return array.grad

    def member(self, name: str) -> Any:
        """Return the ndarray of a hidden parameter."""
        return next(array for array, known in self._members.values() if known == name)

    def is_other(self, path: Path, array: Any) -> bool:
        """True if another value was read at a path before."""
        return path in self.notes and self.notes[path].value is not array

    def members(self) -> tuple[Member, ...]:
        """Return the hidden parameters: arrays, then scalars."""
        found = []
        for array, name in self._members.values():
            first = self.array_path(array)
            assert first is not None
            others = [p for p, n in self.notes.items() if n.value is array and p != first]
            found.append(Member("array", name, array.__vkchi_argument__, (first, *others)))
        return (*found, *dict.fromkeys(self._scalars.values()))

    # --- results -----------------------------------------------------------------------------

    def reads(self, fn: FunctionType) -> tuple[PathRead, ...]:
        """Return the values that the kernel `fn` depends on.

        Values that differ when read again are left out. So are those read by functions outside the
        user's program, except iterations and absent attributes.
        """
        code = fn.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        args = tuple([self._arguments.get(name) for name in names])
        found = []
        for name, value in self._arguments.items():
            if is_object(value):
                found.append(PathRead(Path(PathRoot("argument", fn, name)), "kind", type(value)))
        pinned = self._pinned_arrays()
        for path, note in self.notes.items():
            if path.root.kind == "object" or is_users(path.root.fn):
                is_free = id(note.value) in self._members and id(note.value) not in pinned
                if not is_free or note.by_python:
                    found += [
                        PathRead(path, *test, note.span) for test in self._tests(path, note, args)
                    ]
        for array in pinned.values():
            first = self.array_path(array)
            if first is not None and first not in self.notes:  # an item of a container
                found.append(PathRead(first, "value", array))
        found += [PathRead(path, *test) for path, test in self._pinned.items()]
        found += [PathRead(path, "items", value) for path, value in self._iterated.items()]
        found += [PathRead(path, "absent", name) for path, name in self._absent.items()]
        found += [PathRead(path, "kind", cls) for path, cls in self._gradients.items()]
        kept = repeatable_reads(found, args)
        self._has_dropped_reads = len(kept) < len(found)
        if self._is_led_off():
            whole = [(name, x) for name, x in self._arguments.items() if name in self.by_class]
            paths = [(Path(PathRoot("argument", fn, name)), x) for name, x in whole]
            kept += repeatable_reads([PathRead(path, "contents", x) for path, x in paths], args)
        return kept

    def _is_led_off(self) -> bool:
        """True if the reads do not have all values at paths of arguments that the code depends
        on."""
        if self._unnamed or self.opaque or self._has_dropped_reads:
            return True
        roots = [path.root for path in (*self.notes, *self._absent)]
        if any(root.kind == "object" and not isinstance(root.fn(), type) for root in roots):
            return True
        values = [note.value for note in self.notes.values() if note.uses > 0]
        # These are compared by length.
        return any(isinstance(x, CONTAINERS) and len(x) > MOST_ITEMS for x in values)

    def is_pinned(self) -> bool:
        """True if the code is that of the objects among the arguments: the recorded paths do not
        have all that it reads of them. Precondition: `reads` was called."""
        is_used = self._iterated or self.is_read_by_python or self._is_argument_compared
        return bool(is_used) or self._is_led_off()

    def sources(self, fn: FunctionType, fields: Mapping[str, Any]) -> FieldSources | None:
        """Return the paths to the fields that the kernel `fn` accesses, by parameter, and its reads
        of fields' attributes. None if the code depends on more of the fields than their types."""
        if self._is_field_used or self.is_pinned():
            return None
        known = {Path(PathRoot("argument", fn, name)): x for name, x in self._arguments.items()}
        known |= {path: note.value for path, note in self.notes.items()} | self._facts
        if any(map(is_part, known.values())):
            return None
        found = {
            name: tuple([path for path, value in known.items() if value is field])
            for name, field in fields.items()
        }
        if not all(found.values()):
            return None
        facts = tuple([PathRead(path, "value", value) for path, value in self._facts.items()])
        return FieldSources(found, facts)

    def _pinned_arrays(self) -> dict[int, Any]:
        """Return the captured ndarrays that must stay those that the code was compiled for, by id:
        all, if code may reach one without a path, such as an item of a list in a variable."""
        notes = [pair for pair in self.notes.items() if not self._is_read_by_names(*pair)]
        values = [*self._arguments.values(), *(note.value for _, note in notes)]
        is_led = self._iterated or self.opaque or self.is_read_by_python
        if not (is_led or any(map(self._may_lead_on, values))):
            return {}
        return {key: array for key, (array, _) in self._members.items()}

    def _is_read_by_names(self, path: Path, note: ValueUse) -> bool:
        """True for a named tuple of which only fields are read, by their names."""
        names = getattr(type(note.value), "_fields", None)
        if names is None or not isinstance(note.value, tuple) or note.uses > 0:
            return False
        n = len(path.steps)
        parts = [p.steps[n] for p in self.notes if p.root == path.root and len(p.steps) > n
                 and p.steps[:n] == path.steps]  # fmt: skip
        return all(kind == "attr" and name in names for kind, name in parts)

    def _may_lead_on(self, value: Any) -> bool:
        """True for a container of other values than constants, and for an object that Python may
        iterate over or index."""
        if isinstance(value, CONTAINERS):
            return not all(part is None or isinstance(part, CONSTANTS) for part in parts_of(value))
        kind = type(value)
        is_open = is_object(value) and (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__"))
        return is_open or is_library_container(value)

    def _tests(
        self, path: Path, note: ValueUse, args: tuple[Any, ...]
    ) -> Iterator[tuple[How, Any]]:
        """Yield the comparisons of a value at a path, as pairs (how, value) for `test_of`."""
        value = note.value
        if path in self._scalars and not note.by_python:
            yield "kind", type(value)
            if path in self._wide:
                yield "wide", value
            return
        has_parts = isinstance(value, CONTAINERS) or is_array_of_numpy(value)
        if isinstance(value, ModuleType) or (has_parts and note.uses <= 0):
            return
        if is_bound(value) and path.steps and path.steps[-1][0] == "attr":
            if is_held(path, args):
                yield "value", value
            elif hasattr(getattr(value, "__self__", None), "__dict__"):
                yield "unshadowed", path.steps[-1][1]
        elif hasattr(type(value), "__vkchi_ndarrays__") and not (
            note.is_compared or note.by_python
        ):
            yield "kind", type(value)
        elif is_object(value):
            yield "kind", type(value)
            if note.is_compared or is_own_number(value):
                yield "value", value
        else:
            yield "value", value

    def path_of(self, obj: Any) -> tuple[int, str]:
        """Return the index of the function in `functions` that read an object, and its path there.

        Objects without such a path give (-1, "").
        """
        path = self._path_in_functions(obj)
        if path is None or path.root.fn not in self.functions:
            return -1, ""
        return list(self.functions).index(path.root.fn), str(path)

    def name_of(self, obj: Any, default: str) -> str:
        """Return a short name for an object: the last words of its path, or `default`."""
        path = self._path_in_functions(obj)
        if path is None:
            return default
        words = str(path).replace("[", ".").replace("]", "").split(".")
        keep = 2 if words[-1] in ("grad", "dual") or words[-1].isdigit() else 1
        return ".".join(words[-keep:]).strip(".") or default

    def _path_in_functions(self, obj: Any) -> Path | None:
        path = next(reversed(self._paths(obj)), None)
        return None if path is None or path.root.kind in ("function", "object") else path


def is_part(value: Any) -> bool:
    """True for an array in the memory of another one, such as a component of a field."""
    return is_memory(value) and getattr(value, "whole", value) is not value


def is_held(path: Path, args: tuple[Any, ...]) -> bool:
    """True if the object before the last step of a path, an attribute, has it in its dict or in a
    slot, and if it cannot be read."""
    try:
        holder, name = value_of(parent_of(path), args), path.steps[-1][1]
    except local(Exception):  # of user code
        return True
    is_slot = isinstance(getattr(type(holder), name, None), MemberDescriptorType)
    return is_slot or name in getattr(holder, "__dict__", ())


def holder_of(base: Any, name: str) -> Any:
    """Return the class in which the `super()` object `base` finds an attribute, else `base`."""
    cls = base.__self_class__
    behind = cls.__mro__[cls.__mro__.index(base.__thisclass__) + 1 :]
    return next((c for c in behind if name in vars(c)), base)


def may_change(value: Any) -> bool:
    """True for a class of the user's program, and for an object whose attributes are read
    (`is_object`)."""
    return is_of_program(value.__module__, "") if isinstance(value, type) else is_object(value)


class IdentityReference:
    """A reference to an object, weak if its class permits it; calling it gives the object.

    References have the identity of Python objects: two of them are never equal.
    """

    __slots__ = ("_of",)

    def __init__(self, value: Any) -> None:
        try:
            self._of: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._of = lambda: value

    def __call__(self) -> Any:
        return self._of()


def is_users(fn: FunctionType) -> bool:
    """True if a function belongs to the user's program: not to Python, vkchi or a package."""
    return is_of_program(fn.__module__ or "", fn.__code__.co_filename)


def is_of_program(module: str, file: str) -> bool:
    """True if a module belongs to the user's program, by its name and file.

    False for vkchi, the standard library, and files in `site-packages` or `dist-packages`.
    """
    first = module.partition(".")[0]
    is_python = module != "__main__" and first in sys.stdlib_module_names
    return not (first == "vkchi" or is_python or "-packages" in file)


def unbound(callee: Any) -> tuple[Any, list[Any]]:
    """Return the function of a bound method, and its object in a list; other callables, and []."""
    is_bound = isinstance(callee, MethodType)
    return (callee.__func__, [callee.__self__]) if is_bound else (callee, [])


def outer_value(fn: FunctionType, name: str, default: Any = None) -> Any:
    """Return the value of a function's closure variable, global or builtin, or a default.

    A closure variable that is not assigned yet gives the default.
    """
    if name in fn.__code__.co_freevars and fn.__closure__ is not None:
        cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except local(ValueError):
            return default
    if name in fn.__globals__:
        return fn.__globals__[name]
    return getattr(builtins, name, default)


def referred_names(fn: FunctionType) -> dict[str, Any]:
    """Return the globals and closure variables that a function names, with their current values.

    A global counts if only an attribute has its name. Globals that only nested functions name, and
    unset closure variables, are left out.
    """
    code = fn.__code__
    found = {name: fn.__globals__[name] for name in code.co_names if name in fn.__globals__}
    for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except local(ValueError):  # not assigned yet
            continue
    return found
