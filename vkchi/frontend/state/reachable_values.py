"""Over-approximation of the values that a Python function reads at compile time.

The walk goes from the function to globals and closure variables, and to methods, properties and
functions among them. Of every visited object it reads each attribute whose name occurs in a visited
function. Computed names (`getattr`, `vars`) are missed, and values beyond MOST visited ones.
`methods_seen` has the methods of classes that a kernel was compiled with, compared at launch.

    record_reachable(deps, scale, [self])      # records self.dt, if `dt` occurs in scale()
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from vkchi.frontend.state.captured_values import (
    CONTAINERS,
    NUMBERS,
    Path,
    PathRead,
    PathRoot,
    is_library_container,
    is_object,
)
from vkchi.frontend.state.dependencies import Dependencies, is_of_program, is_users, referred_names

MOST = 1000  # visited objects and functions
_NOTHING = object()
# Methods that Python's operators and functions call on objects.
_SPECIAL = """
    __bool__ __len__ __iter__ __contains__ __getitem__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
    __int__ __float__ __index__ __abs__ __neg__ __round__ __add__ __radd__ __sub__ __rsub__ __mul__
    __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__
    __matmul__ __rmatmul__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__ __rlshift__
    __rshift__ __rrshift__ __pos__ __invert__ __call__ __reversed__ __next__ __hash__ __str__
    __repr__ __format__
"""
SPECIAL = frozenset(_SPECIAL.split())
# Names of functions that read attributes by computed names, or depend on identities.
_REFLECTIVE = """
    id hash getattr hasattr vars dir __dict__ setattr attrgetter methodcaller asdict astuple fields
    replace copy deepcopy pickle eval exec globals locals getmembers
"""
REFLECTIVE = frozenset(_REFLECTIVE.split())


def record_reachable(deps: Dependencies, callee: Any, args: Iterable[Any]) -> None:
    """Record the values that a call at compile time may read: by its function, receiver and
    arguments."""
    walk = ReachabilityWalk(deps)
    fn = callee.__func__ if isinstance(callee, MethodType) else callee
    with deps.in_python():
        if isinstance(callee, MethodType | BuiltinMethodType):
            walk.look(callee.__self__)
        if isinstance(fn, FunctionType):
            walk.enter(fn)
        for arg in args:
            walk.look(arg)
        walk.go()
    objects = [value for value in walk.objects.values() if is_object(value)]
    deps.is_read_by_python |= bool(objects)
    is_known = callee in (None, bool, len) or fn in walk.functions
    if not is_known or walk.names & REFLECTIVE:
        for value in objects:
            deps.met_by_reflection(value)


class ReachabilityWalk:
    """The visited functions and objects, and the names that occur in the functions."""

    def __init__(self, deps: Dependencies) -> None:
        self.deps = deps
        self.names = set(SPECIAL)
        self.functions: dict[FunctionType, None] = {}
        self.objects: dict[int, Any] = {}
        self.done: set[tuple[int, str]] = set()

    def enter(self, fn: FunctionType) -> None:
        """Visit a function of the user's program: record its globals and closure variables, and
        visit them."""
        if fn in self.functions or len(self.functions) >= MOST or not is_users(fn):
            return
        self.functions[fn] = None
        self.names.update(names_in(fn.__code__))
        for name, value in referred_names(fn).items():
            self.deps.read(fn, name, value)
            self.look(value)

    def look(self, value: Any) -> None:
        """Visit a value: a function, container, user's object, or user's class or module."""
        if isinstance(value, MethodType):
            self.look(value.__self__)
            value = value.__func__
        self.deps.used_as_a_whole((value,))
        if is_library_container(value):
            self.deps.iterated(value)
        if isinstance(value, FunctionType):
            self.enter(value)
        elif id(value) in self.objects or len(self.objects) >= MOST:
            return
        elif isinstance(value, CONTAINERS):
            self.objects[id(value)] = value
            for item in value.values() if isinstance(value, dict) else value:
                if type(item) not in NUMBERS:
                    self.look(item)
        elif is_own(value) if isinstance(value, type | ModuleType) else is_object(value):
            self.objects[id(value)] = value

    def go(self) -> None:
        """Record and visit attributes of the visited objects, until there are no new ones.

        Their names are those that occur in visited functions.
        """
        before = -1 if self.objects else 0
        while before != len(self.done):
            before = len(self.done)
            for obj in list(self.objects.values()):
                if not isinstance(obj, CONTAINERS):
                    for name in list(self.names):
                        self._attribute(obj, name)

    def _attribute(self, obj: Any, name: str) -> None:
        if (id(obj), name) in self.done:
            return
        self.done.add((id(obj), name))
        held = find_held(obj, name)
        if held is _NOTHING:
            return
        if isinstance(held, property):
            held = held.fget
        elif isinstance(held, functools.cached_property):  # not computed yet
            held = held.func
        elif isinstance(held, classmethod | staticmethod):
            held = held.__func__
        elif not isinstance(held, FunctionType) or name in getattr(obj, "__dict__", ()):
            value = getattr(obj, name, _NOTHING)
            if value is not _NOTHING:
                self.deps.read_part(obj, ("attr", name), value)
                held = value
        self.look(held)


def is_own(value: type | ModuleType) -> bool:
    """True if a class or module belongs to the user's program."""
    name = value.__module__ if isinstance(value, type) else value.__name__
    return is_of_program(name, getattr(sys.modules.get(name), "__file__", None) or "")


def find_held(obj: Any, name: str) -> Any:
    """Return an attribute from the dicts of an object and its classes, without running any code.

    `_NOTHING` if there is none.
    """
    own = getattr(obj, "__dict__", {}) if not isinstance(obj, type) else {}
    if name in own:
        return own[name]
    classes = obj.__mro__ if isinstance(obj, type) else type(obj).__mro__
    return next((vars(c)[name] for c in classes[:-1] if name in vars(c)), _NOTHING)


# --- methods of classes ---------------------------------------------------------------------------


_NOT_USERS = ("vkchi", "numpy", "builtins")
_IN_CLASSES = (FunctionType, staticmethod, classmethod, property)


def methods_seen(
    classes: Iterable[type], functions: Iterable[FunctionType]
) -> tuple[PathRead, ...]:
    """Return the entries of users' classes that decide which methods `functions` call.

    Names: those in the functions' code, and special methods. For each, they cover the base classes
    up to the one that has the method, so that a later override is noticed. The `__mro__` of classes
    outside the standard library is an entry, too.
    """
    users = [c for c in classes if c.__module__.partition(".")[0] not in _NOT_USERS]
    if not users:
        return ()
    said = {name for fn in functions for name in names_in(fn.__code__)}
    found: dict[PathRoot, Any] = {}
    for cls in users:
        if cls.__module__.partition(".")[0] not in sys.stdlib_module_names - {"__main__"}:
            found[PathRoot("class", cls, "__mro__")] = cls.__mro__
        special = {name for base in cls.__mro__[:-1] for name in vars(base) if name[:2] == "__"}
        for name in said | special:
            places = list(looked_up(cls, name))
            if places and is_method(places[-1][1]):
                found |= {PathRoot("class", base, name): item for base, item in places}
    return tuple([PathRead(Path(root), "entry", item) for root, item in found.items()])


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function's code, inner functions included."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from names_in(part)


def looked_up(cls: type, name: str) -> Iterator[tuple[type, Any]]:
    """Yield the classes that Python searches for an attribute, each with its entry or None.

    The last one is the first that has the attribute.
    """
    for base in cls.__mro__[:-1]:
        item = vars(base).get(name)
        yield base, item
        if item is not None:
            return


def is_method(item: Any) -> bool:
    """True if a class attribute is code that kernels can call."""
    return isinstance(item, _IN_CLASSES) or hasattr(type(item), "__vkchi_kind__")
