"""An artifact loaded on a device: binds arguments and records dispatches.

A launch binds its arguments into one flat list of scalars and addresses, from which each dispatch
packs its argument block:

    trash, seed, addresses of `fixed` arrays and temporaries, parameters, gradients, `given` arrays

`trash` is the sink buffer that out-of-range accesses are redirected to.

    >>> move = Executable(runtime, build_artifact(fn, options, caps))
    >>> move.record(move.bind((), {"target": a, "source": b}))
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.errors import InternalError
from vkchi.fields.storage import Storage
from vkchi.hooks import Hook
from vkchi.launch.commands import CommandList
from vkchi.launch.fitting import Fitted
from vkchi.runtime import Runtime
from vkchi.signature.bound import BoundArguments
from vkchi.target.artifact import Artifact, Dispatch
from vkchi.target.cell_lists import groups_at, listed_activity
from vkchi.target.magic import MAGIC
from vkchi.target.shader import (
    REPORTS,
    SEED,
    SERIAL,
    ArgumentSlot,
    Check,
    Count,
    Grid,
    Part,
    compile_counts,
    depends_on_argument,
    is_listed,
    split_grid,
)
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, cell_of, scalar_named
from vkchi.vk.pipelines import BufferFills, Pipeline, Runnable, with_counts, with_work
from vkchi.vk.timing import DispatchWork

if TYPE_CHECKING:
    from vkchi.launch.specialization import ShapeSpecializer
    from vkchi.reports.delivery import ReportBuffer
    from vkchi.signature import Parameter

Place = tuple[str, str, int]  # (kind of slot, parameter, axis)
# (pipeline, [(counts and first iterations along the axes, workgroups) of each dispatch])
Parts = tuple[Any, list[tuple[tuple[int, ...], tuple[int, int, int]]]]
Fixed = Mapping[str, "Storage | ReportBuffer"]
Arrays = Mapping[str, Storage]


class BufferRef(NamedTuple):
    """Location of an array: its buffer's key, the VkBuffer, and the offset in it."""

    key: int
    block: Any
    offset: int


Homes = Mapping[str, BufferRef]
NOTHING: Mapping[str, Any] = MappingProxyType({})
MOST_FOUND = 64  # memoized grid parts per dispatch


def slot_format(slot: ArgumentSlot) -> str:
    return "Q" if slot.kind in ("ptr", "trash") else scalar_named(slot.dtype).code


def block_format(slots: tuple[ArgumentSlot, ...], size_bytes: int) -> str:
    """Return a `struct` format that places each slot at its offset and pads to the block's size."""
    text, at = "<", 0
    for slot in slots:
        letter = slot_format(slot)
        text += f"{slot.offset - at}x{letter}" if slot.offset > at else letter
        at = slot.offset + struct.calcsize("<" + letter)
    return text + (f"{size_bytes - at}x" if size_bytes > at else "")


def count_reader(places: dict[Place, int]) -> Callable[[str, str, int], str]:
    """Return a function that maps (kind, name, axis) of a count's leaf to source code.

    The code, such as `f[3]`, reads the value from the flat list. It is for `shader.compile_counts`.
    """

    def read(kind: str, name: str, axis: int) -> str:
        return f"f[{places['dim' if kind == 'dim' else 'value', name, axis]}]"

    return read


class ListHook:
    """Hook for active lists of sparse blocks."""

    of = Hook("active list")


class CodeVariant(NamedTuple):
    """One variant of an executable's code: the artifact, its dispatches, its temporary arrays."""

    artifact: Artifact
    steps: Sequence[DispatchStep]
    temps: Arrays


def make_form(
    runtime: Runtime, places: dict[Place, int], fixed: Homes, artifact: Artifact
) -> CodeVariant:  # fmt: skip
    """Load another artifact of the same Func as a CodeVariant; it reads the same flat list
    (`places`).

    Allocates its temporaries. Raises DeviceError if that fails.
    """
    temps = {name: make_storage(runtime, t) for name, t in artifact.temps.items()}
    own = {name: array.buffer.address for name, array in temps.items()}
    fixed = {**fixed, **buffer_refs(temps)}
    steps = [DispatchStep(runtime, d, places, fixed, own) for d in artifact.dispatches]
    return CodeVariant(artifact, steps, temps)


class Executable:
    """An artifact on a device, for arguments of one signature.

    - parameters, args: how arguments are bound, and the arguments of one call.
    - fixed: arrays that are the same for every launch. They are not kept alive here.
    - gradients: (parameter, argument) pairs: the parameter is bound to a gradient of the argument's
      shape.
    - limits: checks that `bind` makes.
    - places: index of each slot in the flat list.

    All other arrays are passed by name at every launch.
    """

    def __init__(
        self,
        runtime: Runtime,
        artifact: Artifact,
        parameters: Sequence[Parameter] = (),
        args: tuple[Any, ...] = (),
        *,
        fixed: Fixed = NOTHING,
        gradients: Sequence[tuple[str, str]] = (),
        limits: Sequence[Check] = (),
    ) -> None:
        self.runtime, self.artifact = runtime, artifact
        self.parameters, self.limits = parameters, limits
        self.reads, self.writes = artifact.reads, artifact.writes
        self.used = self.reads | self.writes
        self.temps = {name: make_storage(runtime, t) for name, t in artifact.temps.items()}
        lists = [name for name in artifact.arrays if listed_activity(name)]
        self.lists = {name: ListHook.of(fixed[listed_activity(name)]) for name in lists}
        arrays = {**fixed, **self.temps, **{name: x.memory for name, x in self.lists.items()}}
        self.constants = [runtime.device.trash.address, 0]
        self.constants += [array.buffer.address for array in arrays.values()]
        self.given: dict[str, int] = {}
        self.places = self._lay_out(arrays, args, dict(gradients))
        keys = buffer_refs(arrays)
        self.steps = [DispatchStep(runtime, d, self.places, keys) for d in artifact.dispatches]
        self.form = CodeVariant(artifact, self.steps, self.temps)
        self.make_form = partial(make_form, runtime, self.places, buffer_refs(fixed))
        self.shapes: ShapeSpecializer | None = None  # set by `CompiledKernel.give_shapes`
        self.checks = [check.compiled(count_reader(self.places)) for check in limits]

    def _lay_out(
        self, arrays: Iterable[str], args: tuple[Any, ...], gradients: dict[str, str]
    ) -> dict[Place, int]:
        keys: list[Place] = [("trash", "", 0), ("value", SEED, 0)]
        keys += [("ptr", name, 0) for name in arrays]
        for parameter, arg in zip(self.parameters, args, strict=True):
            keys += parameter.places(arg)
        for name, argument in gradients.items():
            keys += [(kind, name, axis) for kind, of, axis in keys if of == argument]
        bound = {name for kind, name, _ in keys if kind == "ptr"}
        self.passed = frozenset(bound.difference(arrays, gradients))
        for name, t in self.artifact.arrays.items():
            if name not in bound:
                self.given[name] = t.ndim
                keys += [("ptr", name, 0), ("size", name, 0)]
                keys += [("dim", name, k) for k in range(t.ndim)]
        return {key: k for k, key in enumerate(keys)}

    @property
    def dynamic_arrays(self) -> dict[str, list[int]]:
        """Flat list indices of the extents of each array, by name.

        Left out are arrays of static shape, and those whose extents are not bound.
        """
        return {
            name: [self.places["dim", name, k] for k in range(t.ndim)]
            for name, t in self.artifact.arrays.items()
            if t.shape is None and ("dim", name, t.ndim - 1) in self.places
        }

    @property
    def asks_extents(self) -> bool:
        """True if a shader or a grid size depends on dynamic extents."""
        arrays, shaders = self.dynamic_arrays, [d.shader for d in self.artifact.dispatches]
        kinds = {"dim", "size", *MAGIC}
        asked = {s.param for shader in shaders for s in shader.slots if s.kind in kinds}
        lengths = [axis.length for shader in shaders for axis in shader.grid.axes]
        return any(
            name in asked or any(depends_on_extent(n, name) for n in lengths) for name in arrays
        )

    def form_for(self, bound: BoundArguments, launches: int = 1) -> CodeVariant:
        """Return the code variant for a launch, and count `launches` launches of its shapes."""
        return self.form if self.shapes is None else self.shapes.form(bound.flat, launches)

    def bind(self, args: tuple[Any, ...], arrays: Arrays = NOTHING) -> BoundArguments:
        """Bind the arguments and arrays of a launch, and run the checks. Raises ArgumentError.

        An array in `arrays` replaces an argument of that name; it must have the same shape.
        """
        bound = self.bind_arguments(args)
        for name in self.passed:
            if name in arrays:
                bound.arrays[name] = array = arrays[name]
                bound.flat[self.places["ptr", name, 0]] = array.buffer.address
        for name, ndim in self.given.items():
            if name in arrays:
                bound.bind_array(name, arrays[name])
            else:
                bound.flat += [0] * (2 + ndim)  # unused: not accessed
        for check in self.checks:
            check(bound.flat)
        return bound

    def bind_arguments(self, args: tuple[Any, ...]) -> BoundArguments:
        """Bind the parameters, without checks or `given` arrays. Raises ArgumentError."""
        bound = BoundArguments(self.runtime, self.constants)
        for parameter, arg in zip(self.parameters, args, strict=True):
            parameter.bind(arg, bound)
        return bound

    def derive(
        self, artifact: Artifact, args: tuple[Any, ...], fixed: Fixed = NOTHING
    ) -> Executable:
        """Return an Executable of another artifact for the same parameters and limits.

        Its own report sites use the runtime's report buffer; the caller delivers them.
        """
        if artifact.own_sites and artifact.sites:
            fixed = {REPORTS: self.runtime.reports, **fixed}
        return Executable(
            self.runtime, artifact, self.parameters, args, fixed=fixed, limits=self.limits
        )

    def record(self, bound: BoundArguments, seeds: Callable[[], int] | None = None) -> None:
        """Record the dispatches, of the variant for these shapes; does not wait.

        `seeds` is called for the random seed of each step.
        """
        commands = CommandList(self.form_for(bound).steps, bound.flat, bound.arrays)
        if seeds is not None:
            commands.reseed(seeds)
        commands.record(self.runtime.device)


class DispatchStep:
    """One dispatch, or an equivalent fill command, ready to be recorded.

    - places: index of each slot in the flat list.
    - fixed: locations of arrays that are the same for every launch.
    - own: addresses of arrays that are not in the flat list.
    """

    def __init__(
        self, runtime: Runtime, dispatch: Dispatch, places: dict[Place, int], fixed: Homes,
        own: Mapping[str, int] = NOTHING,
    ) -> None:  # fmt: skip
        filling = equivalent_filling(dispatch, fixed)
        shader, self._dispatch = dispatch.shader, None
        if filling is not None:
            shader = shader._replace(slots=(), size_bytes=0)
            alone = dispatch._replace(fills=())
            self._dispatch = partial(DispatchStep, runtime, alone, places, fixed, own)
        self.runtime, self.grid, self.slots = runtime, shader.grid, shader.slots
        self.size = dispatch.size
        self.pipeline = filling or runtime.device.load(shader)
        self.listed = counts_of(shader.grid, fixed)
        self.fitted = Fitted(runtime.device, shader, self.pipeline)
        read = count_reader(places)
        magic = [slot for slot in shader.slots if slot.kind in MAGIC]
        self.magic = [MAGIC[slot.kind] for slot in magic]
        divisors: list[Count] = [("dim", slot.param, slot.axis) for slot in magic]
        lengths = [axis.length for axis in shader.grid.axes]
        self.sized = [n for n in self.size[:2] if n is not None and runtime.profiler is not None]
        self.numbers = compile_counts([*lengths, *divisors, *self.sized], read)
        self.found: dict[tuple[int, ...], Parts] = {}
        places = dict(places)
        for kind in ("count", "base"):
            places |= {(kind, "", k): len(places) + k for k in range(len(shader.grid.axes))}
        for slot in magic:
            places[slot.kind, slot.param, slot.axis] = len(places)
        self.own = tuple(own.values())
        places |= {("ptr", name, 0): k for k, name in enumerate(own, len(places))}
        keys = [(s.kind, s.param, s.axis) for s in shader.slots]
        self.pack = struct.Struct(block_format(shader.slots, shader.size_bytes)).pack
        self.pick = gather_getter([places[self._known(key, places)] for key in keys])
        self.reads = fixed_keys(dispatch.reads, fixed)
        self.writes = fixed_keys(dispatch.writes, fixed)
        self.arg_reads = tuple(sorted(dispatch.reads - fixed.keys()))
        self.arg_writes = tuple(sorted(dispatch.writes - fixed.keys()))

    @staticmethod
    def _known(key: Place, places: dict[Place, int]) -> Place:
        if key not in places:
            raise InternalError(f"no argument is bound to the slot {key}")
        return key

    def as_dispatch(self) -> DispatchStep:
        """Return this step, or an equivalent dispatch if it is a fill command."""
        return self if self._dispatch is None else self._dispatch()

    def parts(self, flat: list[Any]) -> Parts:
        """Return the pipeline and the grid parts of a launch. Memoized by iteration counts and
        divisors."""
        numbers = self.numbers(flat)
        return self.found.get(numbers) or self._find_parts(numbers)

    def counts(self, flat: list[Any]) -> tuple[int, ...]:
        return self.numbers(flat)[: len(self.grid.axes)]

    def depends_on(self, name: str) -> bool:
        """True if an iteration count depends on the scalar argument `name`."""
        return any(depends_on_argument(axis.length, name) for axis in self.grid.axes)

    def _find_parts(self, numbers: tuple[int, ...]) -> Parts:
        """Compute and memoize the pipeline and the grid parts.

        `numbers`: the iteration counts, the divisors, and with a profiler the counts of its sizes.
        """
        pipeline, grid = self.pipeline, self.grid
        sized = numbers[len(numbers) - len(self.sized) :]
        counts, divisors = numbers[: len(grid.axes)], numbers[len(grid.axes) :][: len(self.magic)]
        magic = [number(n) for number, n in zip(self.magic, divisors, strict=True)]
        if isinstance(pipeline, BufferFills):
            parts = split_grid(SERIAL, (), ())
        else:
            if len(counts) > 1 and min(counts) > 0:
                pipeline, grid = self.fitted.choose(counts)
            parts = split_grid(grid, counts, self.runtime.device.caps.workgroup_count)
        if self.listed is not None and isinstance(pipeline, Pipeline):
            pipeline = with_counts(pipeline, self.listed)
        if self.runtime.profiler is not None:
            pipeline = with_work(pipeline, self._work(sized, pipeline, grid, parts))
        if len(self.found) >= MOST_FOUND:
            self.found.clear()
        found = (
            pipeline,
            [((*counts, *bases, *magic, *self.own), groups) for bases, groups in parts],
        )
        self.found[numbers] = found
        return found

    def _work(
        self, sized: tuple[int, ...], pipeline: Runnable, grid: Grid, parts: Sequence[Part]
    ) -> DispatchWork:
        """Return the work of each of the dispatches in `parts`, which share it equally, for the
        profiler.

        `sized`: the counts of the size that are known.
        """
        left = iter(sized)
        iterations, moved = [
            None if n is None else max(0, next(left)) // max(1, len(parts)) for n in self.size[:2]
        ]
        block = tuple([axis.block for axis in grid.axes]) or (1,)
        groups: int | None = math.prod(parts[0][1]) if parts else 0
        groups = None if isinstance(pipeline, BufferFills) or self.listed else groups
        return DispatchWork(iterations, moved, groups, block, self.size.is_serial)

    def keys(self, arrays: Arrays) -> tuple[frozenset[int], frozenset[int]]:
        """Return the keys of the buffers read and written; `arrays` are the arrays that are not
        fixed."""
        reads, writes = self.reads, self.writes
        if self.arg_reads:
            reads = reads.union([arrays[name].buffer.key for name in self.arg_reads])
        if self.arg_writes:
            writes = writes.union([arrays[name].buffer.key for name in self.arg_writes])
        return reads, writes


def make_cell(runtime: Runtime, t: Scalar | Tensor) -> Storage:
    return Storage(runtime, t, (), stored=cell_of(t).stored)


def make_storage(runtime: Runtime, t: Array) -> Storage:
    return Storage(runtime, t.elem, t.shape or (), stored=t.stored)


def gather_getter(indices: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    if len(indices) > 1:
        return itemgetter(*indices)
    return (lambda flat: (flat[indices[0]],)) if indices else (lambda flat: ())


def buffer_refs(arrays: Fixed) -> Homes:
    return {
        name: BufferRef(array.buffer.key, *array.buffer.locate(0, 0))
        for name, array in arrays.items()
    }


def equivalent_filling(dispatch: Dispatch, homes: Homes) -> BufferFills | None:
    """Return fill commands equivalent to a dispatch.

    None if the dispatch has no `fills`, or if the location of an array is unknown or unaligned.
    """
    found = [(homes[f.name], f) for f in dispatch.fills if f.name in homes]
    if not found or len(found) < len(dispatch.fills) or any(home.offset % 4 for home, _ in found):
        return None
    fills = tuple([(home.block, home.offset, f.size_bytes, f.word) for home, f in found])
    return BufferFills(dispatch.shader.name, fills)


def counts_of(grid: Grid, fixed: Homes) -> tuple[Any, int] | None:
    """Return the VkBuffer and offset of a grid's workgroup counts in an active list; None for other
    grids."""
    if len(grid.axes) != 1 or not is_listed(grid.axes[0].length):
        return None
    (_, (_, name, _), (_, each)), block = grid.axes[0].length, grid.axes[0].block
    scale = (each // block).bit_length() - 1 if each >= block else 1 - (block // each).bit_length()
    if each != block * 2**scale or name not in fixed:
        raise InternalError(f"no workgroup counts for {each} iterations per cell in {grid}")
    home = fixed[name]
    return home.block, home.offset + 4 * groups_at(scale)


def fixed_keys(names: frozenset[str], fixed: Homes) -> frozenset[int]:
    return frozenset(fixed[name].key for name in names if name in fixed)


def depends_on_extent(count: Count, array: str) -> bool:
    """True if a count depends on an extent of the array called `array`."""
    if count[0] == "dim":
        return bool(count[1] == array)
    return any(depends_on_extent(part, array) for part in count[1:] if isinstance(part, tuple))
