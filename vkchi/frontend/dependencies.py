"""Dependencies of a compiled kernel besides its own source: functions reached, values read.

A value is noted by the path on which it was found (`self.grid.dx`), which also names captured
arrays. Containers that are only indexed, and objects of which only attributes are read, are steps
of paths; `reads` has the values at their ends.

    deps.read(fn, "n_grid", 128); deps.reads(fn)      # Read(Path(... "n_grid"), "value", 128)
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from vkchi.frontend.reads import (
    CONTAINERS,
    NOT_USERS,
    NUMBERS,
    How,
    Path,
    Read,
    Root,
    Step,
    is_leaf,
    is_object,
    stable,
)
from vkchi.interrupts.local import local
from vkchi.lang.contents import is_bound
from vkchi.span import Span

_PURE = ("builtins", "math", "numpy")


class Note:
    """A value at a path: how often it was used otherwise than as a step to a part of it."""

    __slots__ = ("is_compared", "span", "uses", "value")

    def __init__(self, value: Any, span: Span | None) -> None:
        self.value, self.span, self.uses, self.is_compared = value, span, 0, False


class Dependencies:
    """`functions`: every Python function whose source was lowered, the kernel first. `opaque`:
    Python callables that were run at compile time and may have read what is not known. `classes`:
    those that were read, and those of objects."""

    def __init__(self) -> None:
        self.functions: dict[FunctionType, None] = {}
        self.opaque: dict[str, None] = {}
        self.classes: dict[type, None] = {}
        self.notes: dict[Path, Note] = {}
        self.last: Path | None = None  # that was noted
        self.count = 0  # of what was noted, a path that is noted again too
        self._arguments: dict[str, Any] = {}
        self._iterated: dict[Path, Any] = {}
        # The object too, so that its id stays its own; no path for what is known to have none.
        self._origins: dict[int, tuple[Any, Path | None]] = {}

    # --- reading -----------------------------------------------------------------------------

    def read(self, fn: FunctionType, name: str, value: Any, span: Span | None = None) -> None:
        """Note a global or closure variable of `fn`. A module is only a way to its names."""
        root = Root("cell" if name in fn.__code__.co_freevars else "global", fn, name)
        is_found = root.kind == "cell" or name in fn.__globals__
        self._note(Path(root) if is_found else None, value, span)

    def root(self, fn: FunctionType, name: str, value: Any) -> None:
        """Note an argument of the kernel: part of its signature, but not its attributes."""
        self._arguments[name] = value
        path = Path(Root("argument", fn, name))
        self._origins[id(value)] = (value, path)
        self._note_items(path, value)
        self.met(value)

    def met(self, value: Any) -> None:
        """Note the class of an object, or a class."""
        self.classes[value if isinstance(value, type) else type(value)] = None

    def outside(self, value: Any) -> None:
        """Note a value to which no path leads, such as what an iterator gives."""
        self._origins.setdefault(id(value), (value, None))
        self.met(value)

    def default(self, fn: FunctionType, name: str, value: Any) -> None:
        """Note the default of a parameter."""
        key: Any
        defaults, places = fn.__defaults__ or (), fn.__code__.co_varnames
        first = fn.__code__.co_argcount - len(defaults)
        keyed = fn.__kwdefaults__ or {}
        if name in keyed:
            root, key = Root("function", fn, "__kwdefaults__"), name
        elif name in places and 0 <= places.index(name) - first < len(defaults):
            root, key = Root("function", fn, "__defaults__"), places.index(name) - first
        else:
            self.outside(value)
            return
        self._note(Path(root, (("item", key),)), value, None)

    def read_part(self, base: Any, step: Step | None, value: Any, span: Span | None = None) -> None:
        """Note the attribute or item of an object that was read, or what that gave by a step that
        no path has (None)."""
        found = self._origins.get(id(base))
        self.met(base)
        if found is None:
            return
        path = found[1]
        if path is None or step is None or not isinstance(step[1], Hashable):
            self.outside(value)
        elif is_leaf(base):
            self._origins[id(value)] = (value, path._replace(steps=(*path.steps, step)))
            self.met(value)
        else:
            self._note(path._replace(steps=(*path.steps, step)), value, span)

    def _note(self, path: Path | None, value: Any, span: Span | None) -> None:
        self.met(value)
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in NOT_USERS:
            path = None
        self._origins[id(value)] = (value, path)
        self.last = path
        self.count += 1
        if path is None:
            return
        note = self.notes.get(path)
        if note is None:
            note = self.notes[path] = Note(value, span)
            self._note_items(path, value)
        note.uses += 1

    def _note_items(self, path: Path, value: Any) -> None:
        """Let objects in containers be found by their items' paths."""
        if not isinstance(value, list | tuple | dict):
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if type(item) not in NUMBERS and id(item) not in self._origins:
                inner = path._replace(steps=(*path.steps, ("item", key)))
                self._origins[id(item)] = (item, inner)
                self._note_items(inner, item)

    def was_a_way(self, base: Any, before: int) -> None:
        """Take back the use of `base`, read since `count` was `before`: only a part matters."""
        found = self._origins.get(id(base))
        if self.count != before and found is not None and found[1] == self.last is not None:
            self.notes[self.last].uses -= 1

    def iterated(self, base: Any) -> None:
        """Note that iteration over an object gives other objects."""
        found = self._origins.get(id(base))
        if found is not None and found[1] is not None and not isinstance(base, CONTAINERS):
            self._iterated[found[1]] = base

    def compared(self, value: Any) -> None:
        """Note that the identity of an object matters."""
        found = self._origins.get(id(value))
        if found is not None and found[1] in self.notes:
            self.notes[found[1]].is_compared = True

    def stands_for(self, copy: Any, value: Any) -> None:
        """Let a copy, which kernels have of an object, be found where that was."""
        found = self._origins.get(id(value))
        if found is not None:
            self._origins[id(copy)] = (copy, found[1])

    def is_read(self, value: Any) -> bool:
        """True if an object was found somewhere, and not made at compile time."""
        return id(value) in self._origins

    def ran(self, callee: Any) -> None:
        """Note that a Python callable was run at compile time. Of a function, all names that it
        refers to count as read; what C code of Python, math and numpy gives depends on its
        arguments alone."""
        if isinstance(callee, FunctionType):
            if callee in self.functions:
                return
            self.functions[callee] = None
            for name, value in referred_names(callee).items():
                self.read(callee, name, value)
                if isinstance(value, FunctionType):
                    self.ran(value)
        elif (getattr(callee, "__module__", None) or "").partition(".")[0] not in _PURE:
            self.opaque[getattr(callee, "__qualname__", type(callee).__qualname__)] = None

    # --- results -----------------------------------------------------------------------------

    def reads(self, fn: FunctionType) -> tuple[Read, ...]:
        """The values that the kernel `fn` depends on; not those that two reads in a row give
        differently."""
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        args = tuple([self._arguments.get(name) for name in names])
        found = []
        for name, value in self._arguments.items():
            if is_object(value):
                found.append(Read(Path(Root("argument", fn, name)), "kind", type(value)))
        for path, note in self.notes.items():
            if is_users(path.root.fn):
                found += [Read(path, *given, note.span) for given in self._tests(path, note)]
        for path, value in self._iterated.items():
            found.append(Read(path, "items", value))
        return stable(found, args)

    def _tests(self, path: Path, note: Note) -> Iterator[tuple[How, Any]]:
        """How a value at a path is compared, and what with."""
        value = note.value
        if isinstance(value, ModuleType) or (isinstance(value, CONTAINERS) and note.uses <= 0):
            return
        if is_bound(value) and path.steps and path.steps[-1][0] == "attr":
            if hasattr(getattr(value, "__self__", None), "__dict__"):
                yield "unshadowed", path.steps[-1][1]
        elif is_object(value):
            yield "kind", type(value)
            if note.is_compared:
                yield "value", value
        else:
            yield "value", value

    def path_of(self, obj: Any) -> tuple[int, str]:
        """The number, in `functions`, of the function that an object was read in, and its path
        there; (-1, "") where it is not known."""
        path = self._path_in_functions(obj)
        if path is None or path.root.fn not in self.functions:
            return -1, ""
        return list(self.functions).index(path.root.fn), str(path)

    def name_of(self, obj: Any, default: str) -> str:
        """A short name for an object: the last words of its path."""
        path = self._path_in_functions(obj)
        if path is None:
            return default
        words = str(path).replace("[", ".").replace("]", "").split(".")
        keep = 2 if words[-1] in ("grad", "dual") or words[-1].isdigit() else 1
        return ".".join(words[-keep:]).strip(".") or default

    def _path_in_functions(self, obj: Any) -> Path | None:
        found = self._origins.get(id(obj))
        path = None if found is None else found[1]
        return None if path is None or path.root.kind == "function" else path


def is_users(fn: FunctionType) -> bool:
    """True for a function of the program: not one of Python, of this or of an installed package."""
    return is_of_program(fn.__module__ or "", fn.__code__.co_filename)


def is_of_program(module: str, file: str) -> bool:
    """True for a module of the program, which is in this file."""
    first = module.partition(".")[0]
    is_python = module != "__main__" and first in sys.stdlib_module_names
    return not (first == "vkchi" or is_python or "-packages" in file)


def referred_names(fn: FunctionType) -> dict[str, Any]:
    """The globals and closure variables that a function names, with their values now."""
    code = fn.__code__
    found = {name: fn.__globals__[name] for name in code.co_names if name in fn.__globals__}
    for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except local(ValueError):  # not assigned yet
            continue
    return found
