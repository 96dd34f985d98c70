"""Members: ndarrays and numbers that a kernel reads by paths, such as `self.links.mass`.

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
from vkchi.frontend.state.captured_values import Member, Members, Path
from vkchi.interop.in_place import are_disjoint_arguments
from vkchi.lang.value_keys import value_key
from vkchi.launch.value_guards import PREFIX, Guard, GuardSource
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter
from vkchi.signature.signer import scalar_test
from vkchi.types import Scalar, integer_range, ndarray
from vkchi.types.lazy_numpy import is_integer_scalar, is_real_scalar

Take = Callable[[tuple[Any, ...]], Any]


class MemberParameter(Parameter):
    """The hidden parameter of a member. `path` names it in messages."""

    path: str

    def refuse(self, why: str, help: str = "", annotation: str = "") -> ArgumentError:
        return ArgumentError(f"`{self.path}`: {why}" + (f"\nhelp: {help}" if help else ""))


class MemberArrayParameter(MemberParameter, ArrayParameter):
    """The hidden parameter of an ndarray."""


class MemberScalarParameter(MemberParameter, ScalarParameter):
    """The hidden parameter of a number."""


def parameter_of_member(member: Member) -> MemberParameter:
    made: MemberParameter
    if member.role == "array":
        made = MemberArrayParameter(member.name, ndarray())
    else:
        made = MemberScalarParameter(member.name, member.type)
    made.path = str(member.paths[0])
    return made


def fits(t: Scalar, value: Any) -> bool:
    """True if a number can be passed as `t`: a float or an integer as a float, an integer in range
    as an integer."""
    if t.kind == "f":
        return is_real_scalar(value)
    if t.kind == "b":
        return is_integer_scalar(value)
    low, high = integer_range(t)
    return is_integer_scalar(value) and low <= value <= high


class MemberReader:
    """The members of a compiled kernel.

    - parameters: the hidden parameters.
    - passed: positions of the arrays among the arguments.
    """

    def __init__(self, fn: FunctionType, members: Members, passed: Sequence[Parameter]) -> None:
        self.fn, self.members = fn, members
        self.parameters = list(map(parameter_of_member, members.all))
        self.passed = [k for k, p in enumerate(passed) if p.kind == "array"]
        names = [p.name for p in (*passed, *self.parameters)]
        self.places = {name: k for k, name in enumerate(names)}
        self._read = read_paths(GuardSource(fn), members.all)

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the arguments, and the values that are at the members' paths now.

        None if the compiled code is not valid for these values.
        """
        values = self._read(args)
        if values is False:
            return None
        members, arrays = self.members, []
        full: tuple[Any, ...] = (*args, *values)
        for m, array in zip(members.all, values, strict=True):
            if m.role == "scalar":
                if not fits(m.type, array):  # type: ignore[arg-type]
                    return None
                continue
            arrays.append(array)
            if getattr(array, "argument", None) is not m.type:
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
        text, members = GuardSource(self.fn), self.members.all
        pairs = zip(members, full[len(full) - len(members) :], strict=True)
        tests = [
            f"{{x}}.token is {text.constant(value.token)}" if m.role == "array"
            else scalar_test(m.type, "{x}")  # type: ignore[arg-type]
            for m, value in pairs
        ]  # fmt: skip
        return CallGuard(values, read_paths(text, members, tests))


class CallGuard:
    """The guard of an entry with members."""

    __slots__ = ("take", "values")

    def __init__(self, values: Guard, take: Take) -> None:
        self.values, self.take = values, take

    def holds(self, args: tuple[Any, ...]) -> Any:
        """Return the arguments with the members, if these and all values are unchanged, else
        False."""
        return self.values.holds(args) and self.take(args)


def read_paths(text: GuardSource, members: Sequence[Member], values: Sequence[str] = ()) -> Take:
    """Generate the function that reads the members at the first of their paths.

    It returns False if an attribute is missing, or if another path of a member leads to another
    array. With `values`, a test `{x}` of each member, it returns the arguments and the members if
    all tests hold, else False.
    """
    steps = PathReader(text, [path for m in members for path in m.paths])
    names, tests = [f"{PREFIX}x{k}" for k in range(len(members))], []
    lines = steps.lines
    for k, (name, m) in enumerate(zip(names, members, strict=True)):
        first, *others = m.paths
        lines.append(f"{name} = {steps.read(first)}")
        same = "{} is {}" if m.role == "array" else text.constant(is_same_number) + "({}, {})"
        tests += [same.format(steps.read(path), name) for path in others]
        tests += [values[k].format(x=name)] if values else []
    found = ", ".join(names)
    result = f"(*{PREFIX}args, {found})" if values else f"({found},)"
    lines.append(f"return {result} if {' and '.join(tests) or True} else False")
    return text.function(lines)


def is_same_number(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and value_key(a) == value_key(b))


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
