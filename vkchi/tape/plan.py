"""Launching gradients: `GradientPlan` allocates and binds the arrays of a derived kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.autodiff.results import CompiledGradient, GradientRequest, GradientSpec, SaveBufferSize
from vkchi.cache.query_cache import text_of
from vkchi.calls.call import types_apart
from vkchi.calls.facts import does_warn, facts
from vkchi.calls.repeated import buffers_of
from vkchi.errors import DeviceError, GradientError
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import ADJOINT, COUNT, DUAL, WIDTH
from vkchi.launch.commands import RepeatedCommands
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.launch.executable import Arrays, Executable, count_reader
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.span import Span
from vkchi.target.shader import compile_count
from vkchi.types import WIDE_FROM, Array, i32, scalar_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.autodiff.replay_log import ReplayedOp
    from vkchi.calls.call import KernelCall
    from vkchi.calls.gradients import GradientIR
    from vkchi.calls.repeated import RepeatedTapedCall
    from vkchi.ir.core import Func
    from vkchi.tape.adjoints import CallAdjoints
    from vkchi.tape.variants import ReplayLog
    from vkchi.target.artifact import Artifact
    from vkchi.target.caps import Caps
    from vkchi.target.options import Options

Shape = tuple[int, int]  # positions, invocations


def does_fit(old: Storage | None, shape: Shape, is_exact: bool) -> bool:
    if old is None or old.shape[0] < shape[0]:
        return False
    return old.shape[1] == shape[1] if is_exact else old.shape[1] >= shape[1]


def check_memory(
    runtime: Runtime, shapes: Sequence[tuple[Array, Shape]], held_bytes: int, title: str
) -> None:
    """Raise DeviceError if new buffers need more than `held_bytes` plus half of the free memory.

    `held_bytes` is the size of the buffers they replace. The limit exists because drivers may
    report memory as free that cannot be allocated.
    """
    counts = [rows * columns * t.scalars_per_element for t, (rows, columns) in shapes]
    sizes = [(t.stored or scalar_of(t.elem)).size_bytes for t, _ in shapes]
    size_bytes = sum(n * size for n, size in zip(counts, sizes))
    if size_bytes > held_bytes + runtime.device.free_bytes() // 2:
        raise no_room(title, sum(counts))


def new_buffer(runtime: Runtime, t: Array, shape: Shape, title: str) -> Storage:
    """Allocate a buffer for saved values. Raises DeviceError if that fails, or from WIDE_FROM
    scalars on."""
    count = shape[0] * shape[1] * t.scalars_per_element
    if count >= WIDE_FROM:
        raise no_room(title, count, "more than one array holds")
    try:
        return Storage(runtime, t.elem, shape, stored=t.stored)
    except DeviceError as e:
        raise no_room(title, count, f"for which there is no memory ({e})") from None


def no_room(title: str, count: int, why: str = "for which there is no memory") -> DeviceError:
    return DeviceError(
        f"the gradient of {title}() must save {count} numbers, {why}: let loops go round less "
        "often in one launch"
    )


def has_nan(array: Storage) -> bool:
    return bool(np.isnan(array.to_numpy()).any())


def undefined_gradient_error(made: CompiledGradient) -> GradientError:
    first, *more = made.undefined.values()
    return GradientError(
        f"the gradient of {made.title}() is NaN: singular vectors or eigenvectors of a matrix with "
        "equal singular values or eigenvalues have no derivative by themselves, nor when stored",
        first,
        notes=tuple(("or those of this call", span) for span in more),
        help="put them together where they are computed, as in U @ f(S) @ V.transpose(), or use "
        "ti.polar_decompose",
    )  # fmt: skip


class BufferShape:
    def __init__(self, size: SaveBufferSize, places: dict[tuple[str, str, int], int]) -> None:
        self.size, read = size, count_reader(places)
        self.counts = [compile_count(n, read) if n is not None else None for n in size.counts]
        self.is_known = None not in size.counts

    def shape(self, flat: list[Any], cells: Mapping[str, int] = MappingProxyType({})) -> Shape:
        """[positions, invocations], each at least 1, from the bound arguments `flat` of a launch.

        `cells` are the trip counts that were counted on the device.
        """
        found = [cells[name] if count is None else count(flat)
                 for name, count in zip(self.size.cells, self.counts, strict=True)]  # fmt: skip
        return max(1, found[0]), max(1, found[1])


class GradientPlan:
    """The gradient of a kernel for one `GradientSpec`: compiled kernels and the arrays they need.

    Creating one raises GradientError if the kernel has no correct gradient.
    """

    def __init__(self, kernel: CompiledKernel, args: tuple[Any, ...], spec: GradientSpec) -> None:
        self.runtime, self.kernel, self.spec = kernel.runtime, kernel, spec
        made = self.made = facts.differentiated(kernel, spec)
        self.main = kernel.derive(made.main, args)
        self.counting = None
        if made.counting is not None:
            self.counting = kernel.derive(made.counting, args)
        self._give_shapes()
        # Mutable copies, each with the array it copies.
        self.own = [(name, of) for k, of in made.copies.items()
                    for name in (k, k + DUAL) if name in self.main.used]  # fmt: skip
        self.rooms = [BufferShape(size, self.main.places) for size in made.sizes]
        self.buffers: dict[str, Storage] = {}
        # Built on demand: when memory is short, and if there are draws.
        self.strip_mined: tuple[Executable | None] | None = None
        self.replay_log: ReplayLog | None = None

    def _give_shapes(self) -> None:
        def build(fn: Func, options: Options, caps: Caps) -> Artifact:
            from vkchi.calls.gradients import build_exact  # import takes 0.1 s

            return build_exact(fn, options, caps)

        what = None if does_warn(self.spec) else text_of("Artifact", ("gradient", self.spec))
        self.kernel.give_shapes(self.main, lambda: self.live.func, build, what)

    @property
    def live(self) -> GradientIR:
        from vkchi.calls.questions import live  # imports the IR; rarely needed

        return live(self.kernel, self.spec)

    @property
    def draws(self) -> tuple[ReplayedOp, ...]:
        return self.live.draws if self.made.has_draws else ()

    def span_of(self, name: str) -> Span | None:
        return self.live.needs.span_of(name)

    def needs(self, call: KernelCall) -> dict[str, Box]:
        """Parts of arrays whose contents from before the call the gradient reads."""
        return facts.touched(self.kernel, "loads", call.case, self.spec)

    def writes(self, call: KernelCall) -> dict[str, Box]:
        """Parts of arrays that the kernel may overwrite in a call."""
        return facts.touched(self.kernel, "writes", call.case, self.spec)

    def launch(
        self, args: tuple[Any, ...], arrays: Arrays, adjoints: Arrays,
        repeated: RepeatedTapedCall | None = None,
    ) -> None:  # fmt: skip
        """Add to the adjoints of the kernel's inputs.

        `arrays` are the kernel's arrays with the contents before the call. `adjoints` have the same
        names. `repeated` is the data shared with earlier calls. Raises DeviceError, before the
        gradient runs, if the saved values do not fit into memory. In debug mode, raises
        GradientError afterwards if a decomposition without derivative made an adjoint NaN.
        """
        with restoring(self.runtime.lock), self.runtime.lock:
            watched = adjoints if self.made.undefined and self.runtime.options.debug else {}
            is_bad = any(has_nan(array) for array in watched.values())
            self._launch(args, arrays, adjoints, repeated)
            if not is_bad and any(has_nan(array) for array in watched.values()):
                raise undefined_gradient_error(self.made)

    def _launch(
        self, args: tuple[Any, ...], arrays: Arrays, adjoints: Arrays,
        repeated: RepeatedTapedCall | None,
    ) -> None:  # fmt: skip
        executable, everything = self._complete(args, arrays, adjoints)
        sites = executable.artifact.sites_among(())
        if sites:
            self.runtime.reports.expect()
            executable.record(executable.bind(args, everything))
            self.runtime.reports.deliver(sites)
        elif repeated is not None:
            repeated.launch(executable, args, everything)
        else:
            executable.record(executable.bind(args, everything))

    def _complete(
        self, args: tuple[Any, ...], arrays: Arrays, adjoints: Arrays
    ) -> tuple[Executable, dict[str, Storage]]:
        """Return the executable of a launch, and all arrays that it takes."""
        given = {**arrays, **{self.made.adjoints[k]: v for k, v in adjoints.items()
                              if k in self.made.adjoints}}  # fmt: skip
        own = {name: self._like(name, arrays[of]) for name, of in self.own}
        executable, buffers = self._make_room(args, given)
        return executable, {**given, **own, **buffers}

    def commands(
        self, args: tuple[Any, ...], arrays: Arrays, adjoints: Arrays,
        scalars: Sequence[tuple[int, str]],
    ) -> RepeatedCommands | None:  # fmt: skip
        """Return commands of a launch that can be repeated with other `scalars`.

        None if a launch does more than run these: reports, counts on the device, checks of debug
        mode, counting for specialization; and if an array shares its memory with other code.
        """
        if not all(room.is_known for room in self.rooms):
            return None
        if self.made.undefined and self.runtime.options.debug:
            return None
        executable, everything = self._complete(args, arrays, adjoints)
        is_plain = executable is self.main and not executable.artifact.sites_among(())
        if not is_plain or buffers_of(everything) is None:
            return None
        bound = executable.bind(args, everything)
        made = RepeatedCommands(executable, bound, scalars)
        return made if made.met is None else None

    def reserve(self, args: tuple[Any, ...], arrays: Arrays) -> None:
        """Allocate a launch's buffers if the host can compute their size. Raises DeviceError."""
        if self.rooms and all(room.is_known for room in self.rooms):
            with restoring(self.runtime.lock), self.runtime.lock:
                self._make_room(args, arrays)

    def _make_room(
        self, args: tuple[Any, ...], given: Arrays
    ) -> tuple[Executable, dict[str, Storage]]:
        """Return the executable of a launch and its buffers for saved values.

        Buffers have one column per iteration, or fewer (strip-mined) if memory is short. Raises
        DeviceError if they do not fit either way.
        """
        if not self.rooms:
            return self.main, {}
        shapes = self._shapes(args, given, self.main.bind(args, given).flat)
        try:
            return self.main, self._allocate(shapes)
        except DeviceError as e:
            strip_mined, error = self._strip_mined(args), e
        columns = max(columns for _, columns in shapes.values())
        while strip_mined is not None and columns > 1:
            columns = -(-columns // 2)
            shapes = {k: (rows, min(n, columns)) for k, (rows, n) in shapes.items()}
            with suppress(DeviceError):
                return strip_mined, self._allocate(shapes, is_exact=True)
        raise error

    def _strip_mined(self, args: tuple[Any, ...]) -> Executable | None:
        if self.strip_mined is None:
            built = facts.strip_mined(self.kernel, self.spec)
            self.strip_mined = (self.main.derive(built, args) if built else None,)
        return self.strip_mined[0]

    def _allocate(
        self, shapes: Mapping[str, Shape], *, is_exact: bool = False
    ) -> dict[str, Storage]:
        """Return buffers of at least these shapes; with `is_exact`, with exactly as many columns.

        Raises DeviceError.
        """
        types, title = self.main.artifact.arrays, self.made.title
        wanted = {name: shape for k, shape in shapes.items()
                  for name in (k, k + DUAL) if name in types}  # fmt: skip
        missing = {name: shape for name, shape in wanted.items()
                   if not does_fit(self.buffers.get(name), shape, is_exact)}  # fmt: skip
        held_bytes = sum(self.buffers[k].size_bytes for k in missing if k in self.buffers)
        if missing:
            new = [(types[k], shape) for k, shape in missing.items()]
            check_memory(self.runtime, new, held_bytes, title)
        for name, shape in missing.items():
            self.buffers.pop(name, None)
            self.buffers[name] = new_buffer(self.runtime, types[name], shape, title)
        return {name: self.buffers[name] for name in wanted}

    def _like(self, name: str, array: Storage) -> Storage:
        """Buffer of an array's shape, reused under its name while the shape is unchanged."""
        old = self.buffers.get(name)
        if old is None or old.shape != array.shape:
            old = Storage(self.runtime, array.elem, array.shape, array.layout, array.stored)
            self.buffers[name] = old
        return old

    def _shapes(self, args: tuple[Any, ...], given: Arrays, flat: list[Any]) -> dict[str, Shape]:
        cells: dict[str, int] = {}
        if not all(room.is_known for room in self.rooms):
            cells = self._count(args, given)
        return {room.size.name: room.shape(flat, cells) for room in self.rooms}

    def _count(self, args: tuple[Any, ...], given: Arrays) -> dict[str, int]:
        counting = self.counting
        assert counting is not None
        like = self.made.counting_copies
        copies = {k: self._like(f"{COUNT}{k}", given[v]) for k, v in like.items()
                  if k in counting.used}  # fmt: skip
        names = [n for n in counting.artifact.arrays if n.startswith((COUNT, WIDTH))]
        cells = {name: Storage(self.runtime, i32, ()) for name in names}
        counting.record(counting.bind(args, {**given, **copies, **cells}))
        return {name: int(cell.read(())) for name, cell in cells.items()}


def plan_gradient(
    call: KernelCall,
    gradients: CallAdjoints,
    invariant: frozenset[str] = frozenset(),
    constant: frozenset[str] = frozenset(),
    *,
    is_second: bool = False,
) -> GradientPlan:
    """Return the gradient of a call, memoized per plan. Raises GradientError.

    Arrays in `invariant` hold the contents that the kernel left, not those it found. Arrays in
    `constant` hold no derivative before the call. With `is_second`, the result is the directional
    derivative of the gradient.
    """
    is_plain = not (invariant or constant or is_second)
    repeated = call.repeated if is_plain else None
    found = repeated.gradient(gradients.arrays) if repeated is not None else None
    if found is not None:
        return found
    check_aliases(call)
    request = GradientRequest(gradients.names, invariant, constant, call.missing)
    types = tuple(types_apart(call, gradients.arrays, ADJOINT).items())
    spec = GradientSpec(request, types, is_second)
    made = call.kernel.derived.find(
        "gradient", spec, lambda: GradientPlan(call.kernel, call.args, spec)
    )
    if repeated is not None:
        repeated.note_gradient(gradients.arrays, made)
    return made


def check_aliases(call: KernelCall) -> None:
    """Raise GradientError if two parameters are one array, except for ndarrays it only reads."""
    seen: dict[int, str] = {}
    for name, array in call.arrays.items():
        key = id(array.whole)
        if key in seen and (
            {name, seen[key]} & call.kernel.written or not isinstance(array, Ndarray)
        ):
            raise GradientError(
                f"{call.name}(): `{seen[key]}` and `{name}` are the same memory, whose gradient "
                "would be counted for one of them only", call.kernel.func.span,
                help="pass it once, or copy one of them",
            )  # fmt: skip
        seen[key] = name
