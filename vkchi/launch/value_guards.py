"""Guards: tests, before each launch, that Python values read at compile time are unchanged.

A guard is a conjunction of tests, one per `PathRead` of the kernel, on the value at its path (or on
the parent, for absent attributes). It is one generated function from its third call on; until then
the tests run one by one.

    guard = Guard(fn, compiled.reads)
    guard.holds(args), guard.changed(args)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from keyword import iskeyword
from types import CodeType, FunctionType
from typing import Any

from vkchi.frontend.state.captured_values import (
    NUMBERS,
    OF_PARENTS,
    Path,
    PathRead,
    Step,
    Test,
    is_current,
    is_kept,
    is_memory,
    parent_of,
)
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import is_number_of_numpy

CALLS_BEFORE = 2  # calls before a guard is compiled
PREFIX = "_vk"  # of names in generated code


class PathTest(NamedTuple):
    """The test of the value at a path. It does not keep the value alive, unless it needs it."""

    read: PathRead  # with value None
    test: Test
    fast: tuple[str, tuple[Any, ...]]  # template: `{x}` is the path, `{0}` a constant
    is_memory: bool = False

    def is_current(self, args: tuple[Any, ...]) -> bool:
        return is_current(self.read, self.test, args)


class Guard:
    """The tests of a kernel; `holds(args)` is True if the compiled code is valid for a call."""

    def __init__(self, fn: FunctionType | None, reads: Sequence[PathRead]) -> None:
        self.fn, self.tests = fn, [make_test(read) for read in reads]
        self.left = CALLS_BEFORE
        if not reads:
            vars(self)["holds"] = always_valid

    def holds(self, args: tuple[Any, ...]) -> bool:
        """True if all values are unchanged. At the third call, generated code replaces it."""
        self.left -= 1
        if self.left < 0:
            assert self.fn is not None
            found = vars(self)["holds"] = generate_guard(self.fn, self.tests)
            return found(args)
        return next(self.changed(args), None) is None

    @property
    def is_constant(self) -> bool:
        return not self.tests

    def changed(self, args: tuple[Any, ...]) -> Iterator[PathRead]:
        """Yield the reads whose values changed."""
        for one in self.tests:
            if not one.is_current(args):
                yield one.read


def always_valid(args: tuple[Any, ...]) -> bool:
    return True


def make_test(read: PathRead) -> PathTest:
    test = read.test()
    return PathTest(read._replace(value=None), test, fast_test(read, test), is_memory(read.value))


def fast_test(read: PathRead, test: Test) -> tuple[str, tuple[Any, ...]]:
    """Return a test as a template of a Python expression, and the constants that fill it."""
    value = read.value
    if read.how == "kind":
        return "{type}({x}) is {0}", (value,)
    if read.how == "entry":
        return "{x} is {0}", (value,)
    if read.how == "unshadowed":
        return "{0} not in {x}.__dict__", (value,)
    is_held = type(value) in NUMBERS or is_number_of_numpy(value) or is_kept(value)
    if read.how == "value" and is_held:
        is_cheap = all(kind == "item" for kind, _ in read.path.steps)  # calls no property
        twice = "({x} is {0} or {1}({x}))"
        return (twice if is_cheap else "(({v} := {x}) is {0} or {1}({v}))"), (value, test)
    return "{0}({x})", (test,)


class GuardSource:
    """Writer of a guard's source. Collects the constants that the source refers to."""

    def __init__(self, fn: FunctionType) -> None:
        self.globals = fn.__globals__
        self.constants: list[Any] = []
        self.arguments: dict[int, None] = {}  # indices of arguments that are read

    def constant(self, value: Any) -> str:
        """Add a constant; return its name in the generated code."""
        self.constants.append(value)
        return f"{PREFIX}{len(self.constants) - 1}"

    def path(self, path: Path) -> str:
        found = self.root(path)
        for step in path.steps:
            found = self.step(found, step)
        return found

    def step(self, base: str, step: Step) -> str:
        kind, key = step
        if kind == "item":
            return f"{base}[{self.key(key)}]"
        if is_name(key):
            return f"{base}.{key}"
        return f"{self.constant(getattr)}({base}, {key!r})"

    def root(self, path: Path) -> str:
        kind, fn, name = path.root
        if kind == "global":
            if fn.__globals__ is self.globals and is_name(name) and not name.startswith(PREFIX):
                return name
            return f"{self.constant(fn.__globals__)}[{name!r}]"
        if kind == "cell":
            assert fn.__closure__ is not None
            cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
            return f"{self.constant(cell)}.cell_contents"
        if kind == "argument":
            k = fn.__code__.co_varnames.index(name)
            self.arguments[k] = None
            return f"{PREFIX}arg{k}"
        if kind == "object":
            return f"{self.constant(fn)}().{name}"
        if kind == "class":
            if name == "__mro__":
                return f"{self.constant(fn)}.__mro__"
            return f"{self.constant(vars(fn))}.get({name!r})"
        return f"{self.constant(fn)}.{name}"

    def function(self, lines: Sequence[str]) -> Callable[[tuple[Any, ...]], Any]:
        """Return the function of a call's arguments with these statements. An exception gives
        False."""
        given = [*self.constants, type, local, Exception]
        names = [f"{PREFIX}{k}" for k in range(len(self.constants))]
        names += [f"{PREFIX}type", f"{PREFIX}local", f"{PREFIX}error"]
        arguments = [f"{PREFIX}arg{k} = {PREFIX}args[{k}]" for k in self.arguments]
        code = compile_guard(tuple(names), (*arguments, *lines))
        cells = dict(zip(names, given, strict=True))
        closure = tuple([cell_of(cells[name]) for name in code.co_freevars])
        return FunctionType(code, self.globals, "guard", None, closure)

    def key(self, key: Any) -> str:
        return repr(key) if type(key) in (int, str) else self.constant(key)

    def test(self, one: PathTest) -> str:
        path = one.read.path
        if path.root.kind == "object":
            return f"{self.constant(one.is_current)}({PREFIX}args)"
        text, given = one.fast
        path = parent_of(path) if one.read.how in OF_PARENTS else path
        x, names = self.path(path), [self.constant(value) for value in given]
        return text.format(*names, x=x, v=f"{PREFIX}x", type=f"{PREFIX}type")


def is_name(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier() and not iskeyword(key)


def generate_guard(
    fn: FunctionType, tests: Sequence[PathTest]
) -> Callable[[tuple[Any, ...]], bool]:
    """Return a function that runs the tests, with the globals of `fn`. An exception in a test is
    False."""
    text = GuardSource(fn)
    parts = [text.test(one) for one in tests]
    return text.function([f"return {' and '.join(parts)}"])


def cell_of(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


@lru_cache(256)
def compile_guard(names: tuple[str, ...], lines: tuple[str, ...]) -> CodeType:
    """Compile a guard whose free variables are among these names."""
    body = "".join([f"   {line}\n" for line in lines])
    text = (
        f"def make({', '.join(names)}):\n"
        f" def guard({PREFIX}args):\n"
        "  try:\n"
        f"{body}"
        f"  except {PREFIX}local({PREFIX}error): return False\n"
        " return guard\n"
    )
    made: dict[str, Any] = {}
    exec(compile(text, "<vkchi guard>", "exec"), made)
    code: CodeType = made["make"](*names).__code__
    return code
