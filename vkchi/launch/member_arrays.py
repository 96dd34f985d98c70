"""Member arrays: ndarrays that a kernel reads by paths, such as `self.links.mass`.

They are hidden parameters: each call reads them once, and passes them behind its own arguments.

    reader = MemberReader(fn, compiled.members, parameters)
    reader.complete((solver, 0.1))      # (solver, 0.1, solver.links.mass), or None
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.frontend.state.captured_values import Members, Path
from vkchi.interop.in_place import are_disjoint_arguments
from vkchi.launch.value_guards import PREFIX, Guard, GuardSource
from vkchi.signature import ArrayParameter, Parameter
from vkchi.types import ndarray

Take = Callable[[tuple[Any, ...]], Any]


class MemberParameter(ArrayParameter):
    """The hidden parameter of a member array. `path` names it in messages."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, ndarray())
        self.path = path

    def refuse(self, why: str, help: str = "", annotation: str = "") -> ArgumentError:
        return ArgumentError(f"`{self.path}`: {why}" + (f"\nhelp: {help}" if help else ""))


class MemberReader:
    """The member arrays of a compiled kernel.

    - parameters: the hidden parameters.
    - passed: positions of the arrays among the arguments.
    """

    def __init__(self, fn: FunctionType, members: Members, passed: Sequence[Parameter]) -> None:
        self.fn, self.members = fn, members
        self.parameters = [MemberParameter(m.name, str(m.paths[0])) for m in members.arrays]
        self.passed = [k for k, p in enumerate(passed) if p.kind == "array"]
        names = [p.name for p in (*passed, *self.parameters)]
        self.places = {name: k for k, name in enumerate(names)}
        self._read = read_paths(GuardSource(fn), [m.paths for m in members.arrays])

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the arguments, and the arrays that are at the members' paths now.

        None if the compiled code is not valid for these arrays.
        """
        arrays = self._read(args)
        if arrays is False:
            return None
        members = self.members
        full: tuple[Any, ...] = (*args, *arrays)
        for m, array in zip(members.arrays, arrays, strict=True):
            if getattr(array, "argument", None) is not m.argument:
                return None
            if m.like:
                other = full[self.places[m.like]]
                if tuple(other.shape)[: len(array.shape)] != array.shape:
                    return None
        if len(set(map(id, arrays))) < len(arrays):  # one array is one parameter
            return None
        passed = [args[k] for k in self.passed]
        if members.are_disjoint and not are_disjoint_arguments([*passed, *arrays]):
            return None
        return full

    def guard(self, values: Guard, full: tuple[Any, ...]) -> CallGuard:
        """Return the guard of calls with the members of a call; `values` is that of the kernel."""
        text = GuardSource(self.fn)
        arrays = full[len(full) - len(self.parameters) :]
        tokens = [text.constant(array.token) for array in arrays]
        return CallGuard(values, read_paths(text, [m.paths for m in self.members.arrays], tokens))


class CallGuard:
    """The guard of an entry with member arrays."""

    __slots__ = ("take", "values")

    def __init__(self, values: Guard, take: Take) -> None:
        self.values, self.take = values, take

    def holds(self, args: tuple[Any, ...]) -> Any:
        """Return the arguments with the members, if these and all values are unchanged, else
        False."""
        return self.values.holds(args) and self.take(args)


def read_paths(
    text: GuardSource, members: Sequence[tuple[Path, ...]], tokens: Sequence[str] = ()
) -> Take:
    """Generate the function that reads the members at the first of their paths.

    It returns False if an attribute is missing, or if another path of a member leads to another
    array. With `tokens`, constants of `text`, it returns the arguments and the members if these
    have the tokens, else False.
    """
    steps = PathReader(text, [path for paths in members for path in paths])
    names, tests = [f"{PREFIX}x{k}" for k in range(len(members))], []
    lines = steps.lines
    for k, (name, (first, *others)) in enumerate(zip(names, members, strict=True)):
        lines.append(f"{name} = {steps.read(first)}")
        tests += [f"{steps.read(path)} is {name}" for path in others]
        tests += [f"{name}.token is {tokens[k]}"] if tokens else []
    found = ", ".join(names)
    result = f"(*{PREFIX}args, {found})" if tokens else f"({found},)"
    lines.append(f"return {result} if {' and '.join(tests) or True} else False")
    return text.function(lines)


class PathReader:
    """Source of reads of paths; an object on several paths is read once, in `lines`."""

    def __init__(self, text: GuardSource, paths: Sequence[Path]) -> None:
        self.text, self.lines = text, list[str]()
        self.names: dict[Path, str] = {}
        self.uses = Counter(
            path._replace(steps=path.steps[:n]) for path in paths for n in range(len(path.steps))
        )

    def read(self, path: Path) -> str:
        if path in self.names:
            return self.names[path]
        if not path.steps:
            source = self.text.root(path)
        else:
            outer = self.read(path._replace(steps=path.steps[:-1]))
            source = self.text.step(outer, path.steps[-1])
        if self.uses[path] < 2 or not path.steps:
            return source
        name = self.names[path] = f"{PREFIX}p{len(self.names)}"
        self.lines.append(f"{name} = {source}")
        return name
