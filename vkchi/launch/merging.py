"""Launches that follow each other as one dispatch, where they can be one.

Each is a dispatch of its own. Their kernels' IR, one behind the other, with the arrays that they
share, is one Func; where its loops become one (`passes.fusion`), that is built, and its dispatch
takes the numbers of all the launches. Launches stay what they are: a number is changed there, and
taken over here.

Owns: which launches are tried, that Func, the numbers of its dispatch. Must not know: what makes
loops one, who runs launches.

    merged = merge_launches([Launch("scale", ...), Launch("shift", ...)])     # the same, or fewer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import CompilationError, DeviceError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.launch.executable import Place, Recorded, Step, homes_of
from vkchi.ndarray import Ndarray
from vkchi.signature.aliasing import lie_apart
from vkchi.vk.sequence import Command

if TYPE_CHECKING:
    from vkchi.ir.core import Func, Param, Value
    from vkchi.launch.replay import Launch
    from vkchi.target.artifact import Artifact
    from vkchi.types.attributes import Attributes
    from vkchi.vk.pipelines import Runnable

MOST_LAUNCHES = 16  # in one dispatch


class Unit(Protocol):
    """What records commands: a launch, or several as one dispatch."""

    commands: list[Command]

    def dispatches(self) -> list[Command]:
        """What does the same as `commands` by dispatches alone."""

    def in_memory(self, command: int) -> Runnable:
        """The pipeline of a command, with arguments that stand in memory. Raises DeviceError."""


def merge_launches(launches: Sequence[Launch]) -> list[tuple[Unit, list[Launch]]]:
    """What records these launches, each with those that it stands for."""
    found: list[tuple[Unit, list[Launch]]] = []
    group: list[Launch] = []
    joined: Joined | None = None
    for one in launches:
        longer = join([*group, one]) if group and may_follow(group, one) else None
        if longer is None:
            found += finish(group, joined)
            group, joined = [one], None
        else:
            group, joined = [*group, one], longer
    return found + finish(group, joined)


def finish(group: list[Launch], joined: Joined | None) -> list[tuple[Unit, list[Launch]]]:
    """What records a group of launches."""
    if joined is not None:
        merged = joined.build()
        if merged is not None:
            return [(merged, group)]
    return [(one, [one]) for one in group]


def may_follow(group: Sequence[Launch], one: Launch) -> bool:
    """Whether a launch may be one dispatch with those before it, as far as that is seen without
    their IR: as many iterations, and an array in common."""
    last = group[-1]
    if len(group) >= MOST_LAUNCHES or not (is_single(last) and is_single(one)):
        return False
    counts = [x.form.steps[0].counts(x.numbers) for x in (last, one)]
    touched = frozenset().union(*(c.reads | c.writes for x in group for c in x.commands))
    (command,) = one.commands
    return counts[0] == counts[1] != () and not touched.isdisjoint(command.reads | command.writes)


def is_single(one: Launch) -> bool:
    """Whether a launch is one dispatch, of a kernel whose IR there is, and draws nothing."""
    plan = one.plan
    return (
        plan.has_func
        and not plan.draws
        and not plan.returns
        and len(one.form.steps) == len(one.commands) == 1
    )


class Joined:
    """The Func of several launches, with the names that their parameters have in it."""

    def __init__(self, launches: Sequence[Launch], fn: Func, names: list[dict[str, str]]) -> None:
        self.launches, self.fn, self.names = launches, fn, names

    def build(self) -> Merged | None:
        """The dispatch; None where it is not one, or is refused: each launch has its own."""
        from vkchi.compiler import build

        runtime = self.launches[0].plan.runtime
        try:
            artifact = build(self.fn, runtime.options, runtime.device.caps)
        except (CompilationError, DeviceError, Unsupported):
            return None
        if len(artifact.dispatches) != 1 or artifact.temps:
            return None
        return Merged(self.launches, artifact, self.names)


def join(launches: Sequence[Launch]) -> Joined | None:
    """The launches as one Func, if that is one loop."""
    from vkchi.ir.shaped import with_shapes
    from vkchi.passes.fusion import is_one_loop
    from vkchi.passes.pipeline import left_out

    if "fusion" in left_out():
        return None
    writer = Writer(launches)
    fn = writer.write()
    if fn is None or not is_one_loop(fn):
        return None
    if any(one.form is not one.plan.executable.form for one in launches):
        fn = with_shapes(fn, writer.shapes)
    return Joined(launches, fn, writer.names)


class Writer:
    """Writes the Func of several launches. An array is one parameter, whatever kernels call it."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = launches
        self.names: list[dict[str, str]] = []
        self.params: dict[Any, Param] = {}
        self.first: dict[tuple[int, ...], str] = {}  # of arrays of arguments, by shape
        self.types: dict[int, Any] = {}  # of each array, by identity
        self.shapes: dict[str, tuple[int, ...]] = {}  # of arrays of arguments with elements
        arrays = [list(one.arrays.values()) for one in launches]
        given = {id(a): a for found in arrays for a in found if isinstance(a, Ndarray)}
        self.are_apart = lie_apart(list(given.values()))

    def write(self) -> Func | None:
        """The Func; None where memory is several arrays, or an array of several types."""
        from vkchi.ir.builder import Builder
        from vkchi.ir.clone import Cloner
        from vkchi.ir.core import Func

        if not self.are_apart:
            return None
        b = Builder()
        with b.region() as body:
            for k, one in enumerate(self.launches):
                known: dict[Value, Value] = {}
                for p in one.plan.func.params:
                    array = one.arrays.get(p.name)
                    new = self.number(k, p) if array is None else self.array(p, array)
                    if new is None:
                        return None
                    known[p] = new
                self.names.append({p.name: new.name for p, new in known.items()})
                Cloner(b, known).run(one.plan.func.body.ops)
            b.emit("yield")
        name = "_".join(dict.fromkeys(one.plan.func.name for one in self.launches))
        return Func(name, tuple(self.params.values()), body, self.launches[0].plan.func.span)

    def number(self, k: int, p: Param) -> Param | None:
        """The parameter for a number of the k-th launch."""
        from vkchi.ir.core import Param
        from vkchi.types import Array

        if isinstance(p.type, Array):
            return None
        return self.params.setdefault((k, p.name), Param(p.type, f"{p.name}.{k}"))

    def array(self, p: Param, array: Storage) -> Param | None:
        """The parameter for an array."""
        from vkchi.ir.core import Param

        if self.types.setdefault(id(array), p.type) is not p.type:
            return None
        found = self.params.get(id(array))
        if found is None:
            found = Param(p.type, f"array.{len(self.params)}", p.attributes)
            if p.type.layout is None:
                found = Param(p.type, found.name, self.attributes(p, array, found.name))
                if 0 not in array.shape:
                    self.shapes[found.name] = array.shape
            self.params[id(array)] = found
        return found

    def attributes(self, p: Param, array: Storage, name: str) -> Attributes:
        """What is known of an array of an argument beside the others."""
        like = self.first.setdefault(array.shape, name) if array.shape else name
        return p.attributes._replace(like="" if like == name else like, apart=True)


class Merged:
    """Several launches as one dispatch. `commands` is what it records."""

    def __init__(
        self, launches: Sequence[Launch], artifact: Artifact, names: Sequence[dict[str, str]]
    ) -> None:
        arrays: dict[str, Storage] = {}
        sources: dict[Place, tuple[Launch, int]] = {}  # where each number stands
        for one, new in zip(launches, names, strict=True):
            arrays.update({new[name]: a for name, a in one.arrays.items() if name in new})
            for (kind, name, axis), k in one.plan.executable.places.items():
                sources.setdefault((kind, new.get(name, name), axis), (one, k))
        self._sources = list(sources.values())
        places = {place: k for k, place in enumerate(sources)}
        (dispatch,) = artifact.dispatches
        self._step = Step(launches[0].plan.runtime, dispatch, places, homes_of(arrays))
        self.commands: list[Command] = []
        self.refresh()

    def refresh(self) -> None:
        """Take over the numbers of the launches: into the argument blocks, if what else is
        recorded stays the same."""
        new = self._commands_of(self._step)
        if [c.groups for c in self.commands] != [groups for _, _, groups, _, _ in new]:
            self.commands = [Command(c[0], bytearray(c[1]), *c[2:]) for c in new]
            return
        for command, (_, args, *_) in zip(self.commands, new, strict=True):
            assert isinstance(command.args, bytearray)
            command.args[:] = args

    def _commands_of(self, step: Step) -> list[Recorded]:
        """What a step is for the numbers of the launches."""
        flat = [one.numbers[k] for one, k in self._sources]
        return step.commands(flat, *step.keys({}))

    def dispatches(self) -> list[Command]:
        """What does the same as `commands` by dispatches alone."""
        return [Command(*found) for found in self._commands_of(self._step.as_dispatch())]

    def in_memory(self, command: int) -> Runnable:
        """The pipeline of a command, with arguments that stand in memory. Raises DeviceError."""
        return self._step.fitted.in_memory(self.commands[command].pipeline)
