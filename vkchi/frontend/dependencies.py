"""What a compiled kernel depends on besides its own source: functions reached, objects captured.

Owns: the record, and by which path each object was reached (`self.grid.dx`), which also names
captured arrays. Must not know: AST classes, caches.

    deps.read(fn, "n_grid", 128); deps.captured[fn, "n_grid"]
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

_PURE = ("builtins", "math", "numpy")

Path = tuple[FunctionType, str]


class Dependencies:
    """`functions`: every Python function whose source was lowered, the kernel first. `captured`:
    the value of each global, closure variable or attribute that was read, by the function it was
    read in and its path there. `opaque`: Python callables that were run while compiling and may
    have read what is not known. `classes`: those that were read, and those of objects.
    """

    def __init__(self) -> None:
        self.functions: dict[FunctionType, None] = {}
        self.captured: dict[Path, Any] = {}
        self.opaque: dict[str, None] = {}
        self.classes: dict[type, None] = {}
        # The object too, so that its id stays its own; no path of what is only known to be outside.
        self._origins: dict[int, tuple[Any, Path | None]] = {}

    def read(self, fn: FunctionType, path: str, value: Any) -> None:
        """`value` was found at `path` in `fn`; a module is only a way to what is read."""
        self._origins[id(value)] = (value, (fn, path))
        self.met(value)
        if not isinstance(value, ModuleType):
            self.captured[fn, path] = value

    def root(self, fn: FunctionType, name: str, value: Any) -> None:
        """`value` is an argument of the kernel: part of its signature, but not its attributes."""
        self._origins[id(value)] = (value, (fn, name))
        self.met(value)

    def met(self, value: Any) -> None:
        """A class, or an object of one, was met."""
        self.classes[value if isinstance(value, type) else type(value)] = None

    def outside(self, value: Any) -> None:
        """`value` was found outside, where no path leads to it: a default, what iterators give."""
        self._origins.setdefault(id(value), (value, None))
        self.met(value)

    def read_part(self, base: Any, step: str | None, value: Any) -> None:
        """`value` is the attribute (`.name`) or item (`[key]`) of an object read before, or what
        that gave by a step that no path has (None)."""
        found = self._origins.get(id(base))
        self.met(base)
        if found is None:
            return
        if found[1] is None or step is None:
            self.outside(value)
        else:
            fn, path = found[1]
            self.read(fn, path + step, value)

    def stands_for(self, copy: Any, value: Any) -> None:
        """A copy is what kernels have of an object: it was found where that was."""
        found = self._origins.get(id(value))
        if found is not None:
            self._origins[id(copy)] = (copy, found[1])

    def is_read(self, value: Any) -> bool:
        """Whether an object was found somewhere, and not made while compiling."""
        return id(value) in self._origins

    def ran(self, callee: Any) -> None:
        """A Python callable was run while compiling. Of a function, all names that it refers to
        count as read; what C code of Python, math and numpy gives depends on its arguments alone.
        """
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

    def is_only_a_way(self, base: Any) -> None:
        """Take back the note of an object of which only attributes matter."""
        found = self._origins.get(id(base))
        if found is not None and found[1] is not None:
            self.captured.pop(found[1], None)

    def path_of(self, obj: Any) -> tuple[int, str]:
        """The number, in `functions`, of the function that an object was read in, and its path
        there; (-1, "") where it is not known."""
        found = self._origins.get(id(obj))
        if found is None or found[1] is None or found[1][0] not in self.functions:
            return -1, ""
        fn, path = found[1]
        return list(self.functions).index(fn), path

    def name_of(self, obj: Any, default: str) -> str:
        """A short name for an object: the last words of its path."""
        found = self._origins.get(id(obj))
        if found is None or found[1] is None:
            return default
        words = found[1][1].replace("[", ".").replace("]", "").split(".")
        keep = 2 if words[-1] in ("grad", "dual") or words[-1].isdigit() else 1
        return ".".join(words[-keep:]).strip(".") or default


def referred_names(fn: FunctionType) -> dict[str, Any]:
    """The globals and closure variables that a function names, with their values now."""
    code = fn.__code__
    found = {name: fn.__globals__[name] for name in code.co_names if name in fn.__globals__}
    for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found
