"""Fusion of successive launches into one dispatch.

The Funcs of the launches are concatenated; arrays that they share become one parameter. If
`opt.loops.fusion` turns the result into one loop, it is built. Its dispatch takes the scalars of
all launches, which `Merged.refresh` copies from them.

    merge_launches([scale, shift])      # [(merged, [scale, shift])] if they fuse
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import CompilationError, DeviceError, Unsupported
from vkchi.fields.storage import Storage
from vkchi.interop.in_place import are_disjoint_arguments
from vkchi.launch.commands import CommandList
from vkchi.launch.executable import DispatchStep, Place, buffer_refs
from vkchi.ndarray import Ndarray
from vkchi.target import tuning

if TYPE_CHECKING:
    from vkchi.ir.core import Func, Param, Value
    from vkchi.launch.replay import RecordedLaunch
    from vkchi.target.artifact import Artifact
    from vkchi.types.core import Attributes


Unit = tuple[CommandList, list["RecordedLaunch"]]  # commands, and the launches that they replace


def merge_launches(launches: Sequence[RecordedLaunch]) -> list[Unit]:
    """Fuse successive launches where possible; return units, each with the launches that it
    replaces."""
    found: list[Unit] = []
    group: list[RecordedLaunch] = []
    joined: MergedFunc | None = None
    for one in launches:
        longer = concatenate_launches([*group, one]) if group and may_merge(group, one) else None
        if longer is None:
            found += units_of(group, joined)
            group, joined = [one], None
        else:
            group, joined = [*group, one], longer
    return found + units_of(group, joined)


def units_of(group: list[RecordedLaunch], joined: MergedFunc | None) -> list[Unit]:
    """Return the units of one group of launches, each with the launches that it replaces."""
    if joined is not None:
        merged = joined.build()
        if merged is not None:
            return [(merged, group)]
    return [(one, [one]) for one in group]


def may_merge(group: Sequence[RecordedLaunch], one: RecordedLaunch) -> bool:
    """Necessary condition for fusing `one` with `group`, checked without IR.

    - The last launch of the group and `one` are single dispatches (`is_single`).
    - Both have at least one axis, and the same iteration counts.
    - `one` shares a buffer with the group, which has fewer than MERGED_LAUNCHES.
    """
    last = group[-1]
    if len(group) >= tuning.MERGED_LAUNCHES or not (is_single(last) and is_single(one)):
        return False
    counts = [x.form.steps[0].counts(x.flat) for x in (last, one)]
    touched = frozenset().union(*(c.reads | c.writes for x in group for c in x.commands))
    (command,) = one.commands
    return counts[0] == counts[1] != () and not touched.isdisjoint(command.reads | command.writes)


def is_single(one: RecordedLaunch) -> bool:
    """True if the launch is one dispatch of a kernel with IR, without random draws, return
    values and active lists."""
    kernel = one.kernel
    return (
        kernel.has_func
        and not kernel.draws
        and not kernel.returns
        and not kernel.lists
        and len(one.form.steps) == len(one.commands) == 1
    )


class MergedFunc:
    """The Func of several launches, and for each launch the new names of its kernel's
    parameters."""

    def __init__(
        self, launches: Sequence[RecordedLaunch], fn: Func, names: list[dict[str, str]]
    ) -> None:
        self.launches, self.fn, self.names = launches, fn, names

    def build(self) -> Merged | None:
        """Compile the Func and load it as one dispatch.

        None if the code has several dispatches or temporaries, or cannot be compiled.
        """
        from vkchi.compiler import build_artifact

        runtime = self.launches[0].kernel.runtime
        try:
            artifact = build_artifact(self.fn, runtime.options, runtime.device.caps)
        except (CompilationError, DeviceError, Unsupported):
            return None
        if len(artifact.dispatches) != 1 or artifact.temps:
            return None
        return Merged(self.launches, artifact, self.names)


def concatenate_launches(launches: Sequence[RecordedLaunch]) -> MergedFunc | None:
    """Return the concatenation of the launches as one Func, which fuses to one loop.

    None if it does not, if `VKCHI_PASSES` disables fusion, or if `FuncConcatenator` cannot build
    it.
    """
    from vkchi.ir.rebuild import with_shapes
    from vkchi.opt.loops.fusion import fuses_to_one_loop
    from vkchi.opt.pipeline import disabled_passes

    if "fusion" in disabled_passes():
        return None
    writer = FuncConcatenator(launches)
    fn = writer.write()
    if fn is None or not fuses_to_one_loop(fn):
        return None
    if any(one.form is not one.kernel.form for one in launches):
        fn = with_shapes(fn, writer.shapes)
    return MergedFunc(launches, fn, writer.names)


class FuncConcatenator:
    """Builds the Func of several launches, with one parameter per array."""

    def __init__(self, launches: Sequence[RecordedLaunch]) -> None:
        self.launches = launches
        self.names: list[dict[str, str]] = []
        self.params: dict[Any, Param] = {}
        self.first: dict[tuple[int, ...], str] = {}  # shape -> first array argument of it
        self.types: dict[int, Any] = {}  # by array id
        self.shapes: dict[str, tuple[int, ...]] = {}  # of nonempty array arguments
        arrays = [list(one.arrays.values()) for one in launches]
        given = {id(a): a for found in arrays for a in found if isinstance(a, Ndarray)}
        self.are_apart = are_disjoint_arguments(list(given.values()))

    def write(self) -> Func | None:
        """Build the Func.

        None if arrays may overlap, if one is used with several types, or if an array is unknown.
        """
        from vkchi.ir.builder import Builder
        from vkchi.ir.core import Func
        from vkchi.ir.rebuild import Cloner

        if not self.are_apart:
            return None
        b = Builder()
        with b.region() as body:
            for k, one in enumerate(self.launches):
                known: dict[Value, Value] = {}
                for p in one.kernel.func.params:
                    array = one.arrays.get(p.name)
                    new = self.number(k, p) if array is None else self.array(p, array)
                    if new is None:
                        return None
                    known[p] = new
                self.names.append({p.name: new.name for p, new in known.items()})
                Cloner(b, known).run(one.kernel.func.body.ops)
            b.emit("yield")
        name = "_".join(dict.fromkeys(one.kernel.func.name for one in self.launches))
        return Func(name, tuple(self.params.values()), body, self.launches[0].kernel.func.span)

    def number(self, k: int, p: Param) -> Param | None:
        """Return the parameter for a scalar argument of the k-th launch; None for an array."""
        from vkchi.ir.core import Param
        from vkchi.types import Array

        if isinstance(p.type, Array):
            return None
        return self.params.setdefault((k, p.name), Param(p.type, f"{p.name}.{k}"))

    def array(self, p: Param, array: Storage) -> Param | None:
        """Return the parameter for an array, the same for each use; None if its type differs
        between launches."""
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
        """Return the attributes of an array argument: `noalias`, and `like` for the shape of an
        earlier array."""
        like = self.first.setdefault(array.shape, name) if array.shape else name
        return p.attributes._replace(like="" if like == name else like, noalias=True)


class Merged(CommandList):
    """Several launches as one dispatch."""

    def __init__(
        self,
        launches: Sequence[RecordedLaunch],
        artifact: Artifact,
        names: Sequence[dict[str, str]],
    ) -> None:
        arrays: dict[str, Storage] = {}
        sources: dict[Place, tuple[RecordedLaunch, int]] = {}  # owner and index of each scalar
        for one, new in zip(launches, names, strict=True):
            arrays.update({new[name]: a for name, a in one.arrays.items() if name in new})
            for (kind, name, axis), k in one.kernel.places.items():
                sources.setdefault((kind, new.get(name, name), axis), (one, k))
        self._sources = list(sources.values())
        places = {place: k for k, place in enumerate(sources)}
        (dispatch,) = artifact.dispatches
        step = DispatchStep(launches[0].kernel.runtime, dispatch, places, buffer_refs(arrays))
        super().__init__([step], self._numbers(), {})
        self.refresh()

    def _numbers(self) -> list[Any]:
        return [one.flat[k] for one, k in self._sources]

    def refresh(self) -> None:
        """Take the scalars of the launches, and make `commands` agree with them."""
        self.flat = self._numbers()
        super().refresh()
