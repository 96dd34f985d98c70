"""An artifact on a device, ready to be launched: from bound numbers to recorded dispatches.

Owns: the packing of argument blocks, grid counts, temporaries. Must not know: IR, Vulkan, kernels.

Everything a launch needs is found once, when the executable is made: a launch binds its arguments
into one flat list of numbers, and each dispatch picks its argument block out of that list:

    trash, seed, addresses of `fixed` arrays and temporaries, what parameters bind, `given` arrays

    >>> move = Executable(runtime, build(fn, options, caps))
    >>> move.launch(move.bind((), {"target": a, "source": b}))
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.errors import InternalError
from vkchi.fields.storage import Storage
from vkchi.launch.fitting import Fitted
from vkchi.runtime import Runtime
from vkchi.signature.bound import Bound
from vkchi.target.artifact import Artifact, Dispatch
from vkchi.target.magic import MAGIC
from vkchi.target.shader import (
    SEED,
    SERIAL,
    Check,
    Count,
    Slot,
    compile_counts,
    dispatches_of,
    mentions,
)
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, cell_of
from vkchi.vk.pipelines import Filling

if TYPE_CHECKING:
    from vkchi.launch.shapes import Shapes
    from vkchi.reports.delivery import Reports
    from vkchi.signature import Parameter

Place = tuple[str, str, int]  # kind of slot, parameter, axis
# A pipeline, the bytes of its arguments, its workgroups, keys of buffers read and written.
Recorded = tuple[Any, bytes, tuple[int, int, int], frozenset[int], frozenset[int]]
# A pipeline, and of each dispatch the counts and first iterations along the axes, and workgroups.
Parts = tuple[Any, list[tuple[tuple[int, ...], tuple[int, int, int]]]]
Fixed = Mapping[str, "Storage | Reports"]
Arrays = Mapping[str, Storage]


class Home(NamedTuple):
    """Where an array stands: the key of its buffer, the VkBuffer, and the offset in that."""

    key: int
    block: Any
    offset: int


Homes = Mapping[str, Home]
NOTHING: Mapping[str, Any] = MappingProxyType({})
MOST_FOUND = 64  # numbers of iterations, and divisors, for which a dispatch's parts are kept
SEED_AT = 1  # in the flat list; the address of the trash stands before it

FORMATS = {
    "ptr": "Q", "trash": "Q", "dim": "i", "size": "i", "count": "i", "base": "i",
    **dict.fromkeys(MAGIC, "I"),
}  # fmt: skip
VALUE_FORMATS = {
    "f64": "d", "f32": "f", "f16": "e", "i64": "q", "u64": "Q", "u32": "I", "u16": "I", "u8": "I",
    "u1": "I", "i32": "i", "i16": "i", "i8": "i",
}  # fmt: skip


def slot_format(slot: Slot) -> str:
    """The `struct` letter a slot is packed with."""
    if slot.kind == "value":
        return VALUE_FORMATS[slot.dtype]
    return "q" if slot.dtype in ("i64", "u64") else FORMATS[slot.kind]


def block_format(slots: tuple[Slot, ...], size_bytes: int) -> str:
    """A `struct` format that puts each slot at its offset and pads to the block's size."""
    text, at = "<", 0
    for slot in slots:
        letter = slot_format(slot)
        text += f"{slot.offset - at}x{letter}" if slot.offset > at else letter
        at = slot.offset + struct.calcsize("<" + letter)
    return text + (f"{size_bytes - at}x" if size_bytes > at else "")


def count_reader(places: dict[Place, int]) -> Callable[[str, str, int], str]:
    """How a grid count's leaves are read from the flat list: for `shader.compile_counts`."""

    def read(kind: str, name: str, axis: int) -> str:
        return f"f[{places['dim' if kind == 'dim' else 'value', name, axis]}]"

    return read


class Form(NamedTuple):
    """Code of an executable: what was built, its dispatches, and the arrays that these hand on to
    each other."""

    artifact: Artifact
    steps: Sequence[Step]
    temps: Arrays


def make_form(
    runtime: Runtime, places: dict[Place, int], fixed: Homes, artifact: Artifact
) -> Form:  # fmt: skip
    """Another artifact of the Func, ready to be recorded, for numbers that stand in these places.
    Raises DeviceError where there is no memory for what its dispatches hand on."""
    temps = {name: make_storage(runtime, t) for name, t in artifact.temps.items()}
    own = {name: array.buffer.address for name, array in temps.items()}
    fixed = {**fixed, **homes_of(temps)}
    steps = [Step(runtime, d, places, fixed, own) for d in artifact.dispatches]
    return Form(artifact, steps, temps)


class Executable:
    """An artifact on a device, for arguments of one signature.

    parameters, args: how arguments are bound, and those of one call. fixed: arrays that are the
    same for every launch, which are not kept alive here; all others are given at every launch, by
    name, but those that `gradients` binds: names of parameters, and the arguments whose shapes
    they have. limits: what is checked at every launch. `places` says where in the flat list a
    number stands.
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
        arrays = {**fixed, **self.temps}
        self.constants = [runtime.device.trash.address, 0]
        self.constants += [array.buffer.address for array in arrays.values()]
        self.given: dict[str, int] = {}
        self.places = self._lay_out(arrays, args, dict(gradients))
        keys = homes_of(arrays)
        self.steps = [Step(runtime, d, self.places, keys) for d in artifact.dispatches]
        self.form = Form(artifact, self.steps, self.temps)
        self.make_form = partial(make_form, runtime, self.places, homes_of(fixed))
        self.shapes: Shapes | None = None  # code for the extents of launches
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
        """The arrays whose extents launches tell, and where in the flat list these stand."""
        return {
            name: [self.places["dim", name, k] for k in range(t.ndim)]
            for name, t in self.artifact.arrays.items()
            if t.shape is None and ("dim", name, t.ndim - 1) in self.places
        }

    @property
    def asks_extents(self) -> bool:
        """Whether dispatches ask for those extents, or are as long."""
        arrays, shaders = self.dynamic_arrays, [d.shader for d in self.artifact.dispatches]
        kinds = {"dim", "size", *MAGIC}
        asked = {s.param for shader in shaders for s in shader.slots if s.kind in kinds}
        lengths = [axis.length for shader in shaders for axis in shader.grid.axes]
        return any(name in asked or any(asks(n, name) for n in lengths) for name in arrays)

    def form_for(self, bound: Bound, launches: int = 1) -> Form:
        """What runs in a launch of these numbers, which counts for so many of its extents."""
        return self.form if self.shapes is None else self.shapes.form(bound.flat, launches)

    def bind(self, args: tuple[Any, ...], arrays: Arrays = NOTHING) -> Bound:
        """The numbers and arrays of a launch. An array that is also passed as an argument takes its
        place: it is of the same shape, perhaps a copy. Raises ArgumentError."""
        bound = self.bind_arguments(args)
        for name in self.passed:
            if name in arrays:
                bound.arrays[name] = array = arrays[name]
                bound.flat[self.places["ptr", name, 0]] = array.buffer.address
        for name, ndim in self.given.items():
            if name in arrays:
                bound.bind_array(name, arrays[name])
            else:
                bound.flat += [0] * (2 + ndim)  # nothing reads or writes it
        for check in self.checks:
            check(bound.flat)
        return bound

    def bind_arguments(self, args: tuple[Any, ...]) -> Bound:
        """What parameters bind. Raises ArgumentError."""
        bound = Bound(self.runtime, self.constants)
        for parameter, arg in zip(self.parameters, args, strict=True):
            parameter.bind(arg, bound)
        return bound

    def derive(
        self, artifact: Artifact, args: tuple[Any, ...], fixed: Fixed = NOTHING
    ) -> Executable:
        """Another artifact, for the same parameters, with the same limits."""
        return Executable(
            self.runtime, artifact, self.parameters, args, fixed=fixed, limits=self.limits
        )

    def prepare(self, bound: Bound) -> list[Recorded]:
        """What `launch` would record, of the code for any extents."""
        return [command for step in self.steps for command in step.prepare(bound)]

    def launch(self, bound: Bound, seeds: Callable[[], int] | None = None) -> None:
        """Record the dispatches. `seeds` gives a seed to each: it has random streams of its own."""
        for step in self.form_for(bound).steps:
            if seeds is not None:
                bound.flat[SEED_AT] = seeds()
            step.record(bound)


class Step:
    """One dispatch, ready to be recorded, or what does the same. `fixed`: where those arrays stand
    that are the same for every launch; `own`: addresses of those that have no place in the flat
    list.
    """

    def __init__(
        self, runtime: Runtime, dispatch: Dispatch, places: dict[Place, int], fixed: Homes,
        own: Mapping[str, int] = NOTHING,
    ) -> None:  # fmt: skip
        filling = filling_of(dispatch, fixed)
        shader, self._dispatch = dispatch.shader, None
        if filling is not None:
            shader = shader._replace(slots=(), size_bytes=0)
            alone = dispatch._replace(fills=())
            self._dispatch = partial(Step, runtime, alone, places, fixed, own)
        self.runtime, self.grid, self.slots = runtime, shader.grid, shader.slots
        self.pipeline = filling or runtime.device.load(shader)
        self.fitted = Fitted(runtime.device, shader, self.pipeline)
        read = count_reader(places)
        magic = [slot for slot in shader.slots if slot.kind in MAGIC]
        self.magic = [MAGIC[slot.kind] for slot in magic]
        divisors: list[Count] = [("dim", slot.param, slot.axis) for slot in magic]
        lengths = [axis.length for axis in shader.grid.axes]
        self.numbers = compile_counts([*lengths, *divisors], read)
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
        self.pick = pick_all([places[self._known(key, places)] for key in keys])
        self.reads = fixed_keys(dispatch.reads, fixed)
        self.writes = fixed_keys(dispatch.writes, fixed)
        self.arg_reads = tuple(sorted(dispatch.reads - fixed.keys()))
        self.arg_writes = tuple(sorted(dispatch.writes - fixed.keys()))

    @staticmethod
    def _known(key: Place, places: dict[Place, int]) -> Place:
        if key not in places:
            raise InternalError(f"no argument is bound to the slot {key}")
        return key

    def as_dispatch(self) -> Step:
        """The dispatch itself, where something does the same in its place."""
        return self if self._dispatch is None else self._dispatch()

    def record(self, bound: Bound) -> None:
        """Record the dispatch for these arguments; nothing if it has no iterations."""
        for command in self.prepare(bound):
            self.runtime.device.record(*command)

    def prepare(self, bound: Bound) -> list[Recorded]:
        """What `Device.record` takes for these arguments, nothing if there are no iterations: one
        dispatch, or several where an axis has more workgroups than the device counts along it."""
        return self.commands(bound.flat, *self.keys(bound.arrays))

    def commands(
        self, flat: list[Any], reads: frozenset[int], writes: frozenset[int]
    ) -> list[Recorded]:
        """The same for the numbers of a launch, and keys of the buffers that it works on."""
        pack, pick = self.pack, self.pick
        pipeline, parts = self.parts(flat)
        return [
            (pipeline, pack(*pick([*flat, *numbers])), groups, reads, writes)
            for numbers, groups in parts
        ]

    def parts(self, flat: list[Any]) -> Parts:
        """What runs for the numbers of a launch."""
        numbers = self.numbers(flat)
        return self.found.get(numbers) or self._find_parts(numbers)

    def counts(self, flat: list[Any]) -> tuple[int, ...]:
        """The iterations along each axis, for the numbers of a launch."""
        return self.numbers(flat)[: len(self.grid.axes)]

    def depends_on(self, name: str) -> bool:
        """Whether numbers of iterations do, on an argument."""
        return any(mentions(axis.length, name) for axis in self.grid.axes)

    def _find_parts(self, numbers: tuple[int, ...]) -> Parts:
        """What runs for iterations, and divisors behind them; kept for the next launch."""
        pipeline, grid = self.pipeline, self.grid
        counts, divisors = numbers[: len(grid.axes)], numbers[len(grid.axes) :]
        magic = [number(n) for number, n in zip(self.magic, divisors, strict=True)]
        if isinstance(pipeline, Filling):
            parts = dispatches_of(SERIAL, (), ())
        else:
            if len(counts) > 1 and min(counts) > 0:
                pipeline, grid = self.fitted.choose(counts)
            parts = dispatches_of(grid, counts, self.runtime.device.caps.workgroup_count)
        if len(self.found) >= MOST_FOUND:
            self.found.clear()
        found = (
            pipeline,
            [((*counts, *bases, *magic, *self.own), groups) for bases, groups in parts],
        )
        self.found[numbers] = found
        return found

    def keys(self, arrays: Arrays) -> tuple[frozenset[int], frozenset[int]]:
        """Keys of the buffers that are read and written, given those that are no fixed ones."""
        reads, writes = self.reads, self.writes
        if self.arg_reads:
            reads = reads.union([arrays[name].buffer.key for name in self.arg_reads])
        if self.arg_writes:
            writes = writes.union([arrays[name].buffer.key for name in self.arg_writes])
        return reads, writes


def make_cell(runtime: Runtime, t: Scalar | Tensor) -> Storage:
    """Memory for one value: what a kernel returns, or keeps between dispatches."""
    return Storage(runtime, t, (), stored=cell_of(t).stored)


def make_storage(runtime: Runtime, t: Array) -> Storage:
    """Memory for an array that one dispatch hands on to another."""
    return Storage(runtime, t.elem, t.shape or (), stored=t.stored)


def pick_all(indices: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A function that picks these places out of a list, as a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return (lambda flat: (flat[indices[0]],)) if indices else (lambda flat: ())


def homes_of(arrays: Fixed) -> Homes:
    """Where arrays stand."""
    return {
        name: Home(array.buffer.key, *array.buffer.locate(0, 0)) for name, array in arrays.items()
    }


def filling_of(dispatch: Dispatch, homes: Homes) -> Filling | None:
    """What does the same as a dispatch, by commands of the device's own; None where there is no
    such thing, or it is not known where the arrays stand."""
    found = [(homes[f.name], f) for f in dispatch.fills if f.name in homes]
    if not found or len(found) < len(dispatch.fills) or any(home.offset % 4 for home, _ in found):
        return None
    fills = tuple([(home.block, home.offset, f.size_bytes, f.word) for home, f in found])
    return Filling(dispatch.shader.name, fills)


def fixed_keys(names: frozenset[str], fixed: Homes) -> frozenset[int]:
    """Buffer keys of the arrays that are the same for every launch."""
    return frozenset(fixed[name].key for name in names if name in fixed)


def asks(count: Count, array: str) -> bool:
    """Whether a count depends on an extent of an array."""
    if count[0] == "dim":
        return bool(count[1] == array)
    return any(asks(part, array) for part in count[1:] if isinstance(part, tuple))
