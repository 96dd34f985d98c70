"""Launching a compiled kernel: the hot path from Python arguments to recorded dispatches.

Owns: the packing of argument blocks, grid counts, temporaries and return values.
Must not know: IR, Vulkan.

Everything a call needs is found once, when the plan is made: a call binds its arguments into one
flat list of numbers, and each dispatch picks its argument block out of that list.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vkchi.compiling import compiling
from vkchi.errors import ArgumentError, InternalError
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import release_wholly
from vkchi.lang.struct import build
from vkchi.runtime import Runtime
from vkchi.signature import Parameter
from vkchi.signature.bound import Bound, tell_owners
from vkchi.target.shader import (
    REPORTS,
    SEED,
    Slot,
    compile_count,
    split_groups,
)
from vkchi.types import Scalar, Tensor, cell_of

if TYPE_CHECKING:
    from vkchi.compiler import Compiled, Dispatch
    from vkchi.reports.delivery import Reports

Place = tuple[str, str, int]
FORMATS = {
    "ptr": "Q", "trash": "Q", "dim": "i", "size": "i", "count": "i",
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
    """How a grid count's leaves are read from the flat list: for `shader.compile_count`."""

    def read(kind: str, name: str, axis: int) -> str:
        return f"f[{places['dim' if kind == 'dim' else 'value', name, axis]}]"

    return read


Made = TypeVar("Made")


class Owner(Protocol):
    """What steps belong to: `arrays` are those that are the same for every launch."""

    runtime: Runtime
    arrays: dict[str, Storage | Reports]


class Step:
    """One dispatch, ready to be recorded."""

    def __init__(self, plan: Owner, dispatch: Dispatch, places: dict[Place, int]) -> None:
        shader = dispatch.shader
        self.runtime, self.grid = plan.runtime, shader.grid
        self.pipeline = plan.runtime.device.load(shader)
        self.count: Callable[[list[Any]], int] | None = None
        places = dict(places)
        places["count", "", 0] = len(places)
        if shader.grid.mode == "exact":
            assert shader.grid.count is not None
            read, count = count_reader(places), shader.grid.count
            self.count = compile_count(count, read)
        keys = [(s.kind, s.param if s.kind != "count" else "", s.axis) for s in shader.slots]
        self.pack = struct.Struct(block_format(shader.slots, shader.size_bytes)).pack
        self.pick = pick_all([places[self._known(key, places)] for key in keys])
        self.reads = fixed_keys(dispatch.reads, plan.arrays)
        self.writes = fixed_keys(dispatch.writes, plan.arrays)
        self.arg_reads = tuple(sorted(dispatch.reads - plan.arrays.keys()))
        self.arg_writes = tuple(sorted(dispatch.writes - plan.arrays.keys()))

    @staticmethod
    def _known(key: Place, places: dict[Place, int]) -> Place:
        if key not in places:
            raise InternalError(f"no argument is bound to the slot {key}")
        return key

    def record(self, bound: Bound) -> None:
        """Record the dispatch for these arguments; nothing if it has no iterations."""
        gx, gy = 1, 1
        flat = bound.flat
        if self.count is not None:
            count = self.count(flat)
            if count <= 0:
                return
            flat = [*flat, count]
            gx, gy = split_groups(-(-count // self.grid.block))
        arrays = bound.arrays
        reads, writes = self.reads, self.writes
        if self.arg_reads:
            reads = reads.union([arrays[name].buffer.key for name in self.arg_reads])
        if self.arg_writes:
            writes = writes.union([arrays[name].buffer.key for name in self.arg_writes])
        block = self.pack(*self.pick(flat))
        self.runtime.device.record(self.pipeline, block, gx, gy, reads, writes)


def pick_all(indices: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A function that picks these places out of a list, as a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return (lambda flat: (flat[indices[0]],)) if indices else (lambda flat: ())


def fixed_keys(names: frozenset[str], arrays: dict[str, Storage | Reports]) -> frozenset[int]:
    """Buffer keys of the arrays that are the same for every launch."""
    return frozenset(arrays[name].buffer.key for name in names if name in arrays)


def arrays_in(arg: Any) -> list[Any]:
    """The argument itself; of a field of structs, its members."""
    return arg.__vkchi_members__() if hasattr(arg, "__vkchi_members__") else [arg]


def bind_gradient(bound: Bound, name: str, argument: str) -> None:
    """Bind the gradient of an array argument. Raises ArgumentError if it has none."""
    gradient = getattr(bound.arrays[argument], "grad", None)
    if gradient is None:
        gradient = bound.import_gradient(name, argument)
    if gradient is None:
        raise ArgumentError(
            f"argument `{argument}`: the kernel uses its grad, and it has none: make the array "
            "with needs_grad=True"
        )
    bound.bind_array(name, gradient)


class Plan:
    """A kernel compiled for one signature on one device."""

    def __init__(
        self,
        runtime: Runtime,
        compiled: Compiled,
        parameters: list[Parameter],
        args: tuple[Any, ...],
        show: Callable[[Storage], Any],
    ) -> None:
        self.runtime, self.parameters, self.show = runtime, parameters, show
        self.arrays: dict[str, Storage | Reports] = {}
        self.returns: list[Storage] = []
        self.draws = any(b[0] == "seed" for b in compiled.lowered.bindings.values())
        self.returns_tuple = compiled.lowered.returns_tuple
        self.results = compiled.lowered.results
        self.sites, self.known_sites = compiled.sites, compiled.lowered.sites
        self.gradients = [
            (name, b[1]) for name, b in compiled.lowered.bindings.items() if b[0] == "grad"
        ]
        self.func = compiled.lowered.func
        self.derived: dict[Any, Any] = {}  # gradients and forward mode, by what they are for
        self._find_arrays(compiled)
        lives = [getattr(array, "life", None) for array in self.arrays.values()]
        self.lives = list(dict.fromkeys(life for life in lives if life is not None))
        places = self._lay_out(args)
        self.limits = compiled.checks
        self.checks = [check.compiled(count_reader(places)) for check in compiled.checks]
        self.steps = [Step(self, d, places) for d in compiled.dispatches]
        self.written = {name for d in compiled.dispatches for name in d.writes}
        # Kept alive for what launches write into; fields passed as arguments live for their owner.
        passed = {
            id(array): (k, m)
            for k, arg in enumerate(args)
            for m, array in enumerate(arrays_in(arg))
        }
        self.passed = {name: passed[id(a)] for name, a in self.arrays.items() if id(a) in passed}
        self.arrays = {name: a for name, a in self.arrays.items() if name not in self.passed}

    def fields(self, args: tuple[Any, ...]) -> dict[str, Storage]:
        """The fields that a launch with these arguments works on, by parameter name."""
        found = {name: a for name, a in self.arrays.items() if isinstance(a, Storage)}
        return found | {name: arrays_in(args[k])[m] for name, (k, m) in self.passed.items()}

    def _find_arrays(self, compiled: Compiled) -> None:
        for name, binding in compiled.lowered.bindings.items():
            if binding[0] == "field":
                self.arrays[name] = binding[1]
            elif binding[0] == "return":
                cell = self.arrays[name] = self._make_cell(compiled.lowered.returns[binding[1]])
                self.returns.append(cell)
        if self.sites:
            self.arrays[REPORTS] = self.runtime.reports
        for name, array_type in compiled.temps.items():
            self.arrays[name] = self._make_cell(array_type.elem)

    def _make_cell(self, t: Scalar | Tensor) -> Storage:
        return Storage(self.runtime, t, (), stored=cell_of(t).stored)

    def _lay_out(self, args: tuple[Any, ...]) -> dict[Place, int]:
        """Where each number stands in the flat list: constants, the seed, then the arguments."""
        places: dict[Place, int] = {("trash", "", 0): 0}
        self.constants: list[Any] = [self.runtime.device.trash.address]
        for name, array in self.arrays.items():
            places["ptr", name, 0] = len(self.constants)
            self.constants.append(array.buffer.address)
        self.seed_place = len(self.constants)
        places["value", SEED, 0] = self.seed_place
        self.constants.append(0)
        at = len(self.constants)
        for parameter, arg in zip(self.parameters, args, strict=True):
            for place in parameter.places(arg):
                places[place] = at
                at += 1
        for name, argument in self.gradients:
            for kind, _, axis in [p for p in places if p[1] == argument]:
                places[kind, name, axis] = at
                at += 1
        return places

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What is made of the kernel, under this key: at the first call."""
        if key not in self.derived:
            with compiling(self.func.name):
                self.derived[key] = make()
        made: Made = self.derived[key]
        return made

    def launch(self, args: tuple[Any, ...], again: int | None = None) -> Any:
        """Bind, record, and read what the kernel returns (which waits). `again`: the launch was
        done before, when so many seeds had been drawn; it draws the same and prints nothing."""
        lock = self.runtime.lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # as `restoring` does, without its cost
            with lock:
                for life in self.lives:
                    life.check_alive()
                bound = Bound(self.runtime, self.constants)
                for parameter, arg in zip(self.parameters, args, strict=True):
                    parameter.bind(arg, bound)
                for name, argument in self.gradients:
                    bind_gradient(bound, name, argument)
                imports = bound.imports
                if imports:
                    bound.check_written(self.written, self.func)
                for check in self.checks:
                    check(bound.flat)
                if imports:
                    tell_owners(imports, self.written, self.func, is_taped=self.runtime.is_taped)
                if self.sites:
                    self.runtime.reports.expect()
                seeds = self.runtime.seeds(again) if self.draws else None
                for step in self.steps:
                    if seeds is not None:  # each dispatch has streams of its own
                        bound.flat[self.seed_place] = seeds()
                    step.record(bound)
                if imports:
                    bound.copy_back(self.written)
                if self.sites:
                    self.runtime.reports.deliver(self.sites, is_muted=again is not None)
                return self.result() if self.returns else None
        except BaseException:
            if not was_held:
                release_wholly(lock)
            raise

    def result(self) -> Any:
        """What the last launch returned; waits. None if the kernel returns nothing."""
        if not self.returns:
            return None
        leaves = map(self.show, self.returns)
        values = [build(t, leaves) for t in self.results]
        return tuple(values) if self.returns_tuple else values[0]
