"""A kernel compiled for one signature on one runtime, and its launches.

A launch binds fields, return values and gradients, copies host arrays, and delivers reports.
`executable` binds the other arguments and records the dispatches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from vkchi import env
from vkchi.errors import ArgumentError, KernelRuntimeError, ModuleError, Unsupported
from vkchi.fields.elements import ElementHook
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import release_wholly
from vkchi.lang.struct import build_value
from vkchi.launch.executable import Executable, count_reader, make_cell
from vkchi.launch.value_guards import Guard
from vkchi.runtime import Runtime
from vkchi.signature import Parameter
from vkchi.signature.bound import (
    BoundArguments,
    ImportedArray,
    has_mixed_scalar_types,
    notify_torch,
    written_imports,
)
from vkchi.signature.signer import key_function
from vkchi.signature.wording import other_device_message
from vkchi.target.shader import REPORTS

if TYPE_CHECKING:
    from vkchi.cache.compiled import Compiled
    from vkchi.calls.facts import KernelCaches
    from vkchi.ir.core import Func
    from vkchi.launch.member_arrays import CallGuard, MemberReader
    from vkchi.launch.pool_launches import PoolLaunches
    from vkchi.launch.rebinding import Rebinding
    from vkchi.launch.specialization import Build
    from vkchi.races.watch import RaceWatch
    from vkchi.reports.delivery import ReportBuffer
    from vkchi.signature.signer import Signer
    from vkchi.span import Span
    from vkchi.target.artifact import Interface

NOTHING_SHARED: tuple[ImportedArray, ...] = ()
# A kernel, and its arguments, with the arrays at its members' paths.
Accepted = tuple["CompiledKernel", tuple[Any, ...]]
Observer = Callable[["CompiledKernel", tuple[Any, ...]], Any]


def member_arrays(arg: Any) -> list[Any]:
    """Return the members of a field of structs, or any other argument as a list of one."""
    return arg.__vkchi_members__() if hasattr(type(arg), "__vkchi_members__") else [arg]


def bind_gradient(kernel: CompiledKernel, bound: BoundArguments, name: str, argument: str) -> None:
    """Bind parameter `name` to the gradient of the array argument `argument`.

    Raises ArgumentError if the array has none.
    """
    gradient = getattr(bound.arrays[argument], "grad", None)
    if gradient is None:
        gradient = bound.import_gradient(name, argument)
    if gradient is None:
        found = next((p for p in kernel.parameters if p.name == argument), None)
        why = "the kernel uses its grad, and it has none: make the array with needs_grad=True"
        raise (found or Parameter(argument, None)).refuse(why)
    bound.bind_array(name, gradient)


def lifetime_tokens(arrays: dict[str, Storage | ReportBuffer]) -> list[Any]:
    """Return the `life` objects of these arrays without duplicates; arrays without are skipped."""
    lives = [getattr(array, "life", None) for array in arrays.values()]
    return list(dict.fromkeys(life for life in lives if life is not None))


def used_pools(arrays: Mapping[str, Storage | ReportBuffer]) -> dict[Any, str]:
    """Return the pools (`fields.trees.pools`) that arrays are parts of, with the parameter of the
    counters that kernels which may change activity write; "" without these."""
    found: dict[Any, str] = {}
    for name, array in arrays.items():
        pool = getattr(array, "pool", None)
        if pool is not None:
            found[pool] = name if array is pool.header else found.get(pool, "")
    return found


def counts_launches(runtime: Runtime) -> bool:
    """True if launches are counted for specialization: not in debug mode or with VKCHI_SHAPES=0."""
    return env.flag("VKCHI_SHAPES") != "0" and not runtime.options.debug


def changed_members(fn: FunctionType) -> NoReturn:
    error = KernelRuntimeError(
        f"{fn.__name__}(): the ndarrays that it reads from objects changed while it was compiled"
    )
    error.is_transient = True
    raise error


def path_of(fn: FunctionType) -> str:
    """Module and qualified name of a function."""
    return f"{fn.__module__}.{fn.__qualname__}".replace(".<locals>", "")


def show_element(storage: Storage) -> Any:
    """Read a kernel's result from `storage`: a scalar, or a vector or matrix value."""
    if storage.is_scalar:
        return storage.read(())
    return ElementHook.value(storage.read(()))


class CompiledKernel(Executable):
    """A kernel compiled for one signature on one runtime.

    - path: module and qualified name of the kernel's function; "" for kernels of saved modules.
    - guard: tests that the Python values that the code depends on are unchanged.
    - rebinding: the code, for other fields; None if it is bound to these.
    - is_own: the code is valid only for the objects among the arguments that it was compiled for.
    - renew: returns the kernel compiled for arguments and the current Python values.
    - in_order: numbers of the racing loops that it serializes.
    - watch: race detection before each call; None if nothing is left to check.
    - hidden: reads the hidden parameters of the kernel, which are the last ones; None without.
    - key: function from arguments, members included, to the tokens of all but scalars.
    - pools: the pools of sparse blocks whose activity it may change; `has_pools`: it uses pools.
    - observer: runs launches in place of `launch_in_place`, which it may call.
    """

    in_order: tuple[int, ...] = ()
    renew: Callable[[tuple[Any, ...]], Accepted] | None = None
    hidden: MemberReader | None
    watch: RaceWatch | None = None
    pool_launches: PoolLaunches | None = None
    observer: Observer | None = None

    def __init__(
        self,
        runtime: Runtime,
        compiled: Compiled,
        signer: Signer,
        args: tuple[Any, ...],
        fn: FunctionType | None = None,
    ) -> None:
        artifact, interface = compiled.artifact, compiled.interface
        self.runtime, self.signer = runtime, signer
        self.path = "" if fn is None else path_of(fn)
        self.guard, self.is_own = Guard(fn, compiled.reads), compiled.is_own
        self.hidden, self.key = None, signer.key
        parameters = signer.parameters
        if compiled.members.all:
            from vkchi.launch.member_arrays import MemberReader  # few kernels need it

            assert fn is not None
            self.hidden = MemberReader(fn, compiled.members, parameters)
            parameters = [*parameters, *self.hidden.parameters]
            self.key = key_function(parameters)
            args = self.hidden.complete(args) or changed_members(fn)
        self.rebinding: Rebinding | None = None
        if compiled.sources is not None:
            from vkchi.launch.rebinding import make_rebinding  # not needed at start-up

            self.rebinding = make_rebinding(compiled, self.hidden)
        self._read_func, self.home = compiled.read_func, compiled.home
        self.draws, self.results = interface.draws, interface.results
        self.returns_tuple = interface.returns_tuple
        self.known_sites = interface.sites
        self.sites = artifact.sites_among(interface.sites)
        self.gradients = [(k, b[1]) for k, b in interface.bindings.items() if b[0] == "grad"]
        self.returns: list[Storage] = []
        arrays = self._find_arrays(interface, compiled.fields)
        self.lives = lifetime_tokens(arrays)
        super().__init__(
            runtime, artifact, parameters, args, fixed=arrays, gradients=self.gradients,
            limits=interface.checks,
        )  # fmt: skip
        used = used_pools(arrays)
        self.has_pools = bool(used)
        self.pools = [pool for pool, header in used.items() if header in artifact.writes]
        if compiled.read_func is not None:
            self.give_shapes(self, compiled.read_func)
        read = count_reader(self.places)
        self.checks += [caution.compiled(read) for caution in interface.loops]
        self.is_mixed = has_mixed_scalar_types(args)
        self.written = {name for name in artifact.writes if name in artifact.arrays}
        arrays_of_user = artifact.arrays.keys() - self.lists.keys()
        self.read = {name for name in artifact.reads if name in arrays_of_user}
        # Keep the arrays alive that launches write to. Owners of passed fields keep those alive.
        members = {
            id(array): (k, m)
            for k, arg in enumerate(args)
            for m, array in enumerate(member_arrays(arg))
        }
        self._members = {name: members[id(a)] for name, a in arrays.items() if id(a) in members}
        self.arrays = {name: a for name, a in arrays.items() if name not in self._members}

    @property
    def may_have_shapes(self) -> bool:
        """True if specialized code may replace the compiled one.

        False if launches are not counted, and for kernels of saved modules, with report sites,
        that draw random numbers, or that iterate over active lists.
        """
        if not (counts_launches(self.runtime) and self.has_func):
            return False
        return not (self.sites or self.draws or self.lists)

    def give_shapes(
        self, executable: Executable, read: Callable[[], Func], build: Build | None = None,
        what: str | None = "",
    ) -> None:  # fmt: skip
        """Enable shape specialization for an executable of this kernel.

        - read: returns the Func.
        - build: makes an artifact of a Func; None for `compiler.build_artifact`.
        - what: cache key suffix among the executables of this kernel; None disables the disk cache.

        No effect without `may_have_shapes`, with report sites, or if there is no dynamic extent.
        """
        if not self.may_have_shapes or executable.artifact.sites:
            return
        if executable.asks_extents:
            from vkchi.launch.specialization import (  # lazy: many programs have only fields
                CodeSource,
                ShapeSpecializer,
            )

            home = None if what is None else self.home
            executable.shapes = ShapeSpecializer(
                executable, CodeSource(home, what or "", read, build)
            )

    @property
    def has_func(self) -> bool:
        """True if the IR is available; False for kernels of saved modules."""
        return self._read_func is not None

    @cached_property
    def func(self) -> Func:
        """The kernel's IR before any pass. Raises ModuleError for kernels of saved modules."""
        if self._read_func is None:
            raise ModuleError("there is no IR of a kernel in a saved module")
        return self._read_func()

    def refuse_pools(self, what: str) -> None:
        """Raise Unsupported if the kernel uses fields in pools of sparse blocks, which `what` does
        not support."""
        for pool in used_pools(self.arrays):
            raise Unsupported(f"{self.artifact.name}(): {pool.refusal(what)}")

    @property
    def is_ours(self) -> bool:
        """True if the kernel is part of vkchi. Does not load the IR."""
        return self.path.startswith("vkchi.")

    def known(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with None in place of all but templates and objects; without
        members."""
        pairs = zip(self.signer.parameters, args)
        return tuple(
            [arg if p.kind in ("template", "object", "self") else None for p, arg in pairs]
        )

    def accept(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the arguments of a call, and the arrays of `hidden` as they are now.

        None if the code is not valid for these and the current Python values.
        """
        if not self.guard.holds(args):
            return None
        return args if self.hidden is None else self.hidden.complete(args)

    def renewed(self, args: tuple[Any, ...]) -> Accepted:
        """Return the kernel compiled for the current Python values and member arrays, and its
        arguments, for those of an earlier call.

        The kernel is this one if it accepts the arguments or has no `renew`.
        """
        given = args[: len(self.signer.parameters)]
        found = self.accept(given)
        if found is not None or self.renew is None:
            return self, args if found is None else found
        return self.renew(given)

    def guard_for(self, args: tuple[Any, ...]) -> Guard | CallGuard:
        """Return the guard of calls with the member arrays of `args`."""
        return self.guard if self.hidden is None else self.hidden.guard(self.guard, args)

    @property
    def is_constant(self) -> bool:
        """True if the kernel depends on no Python value that may change."""
        return self.guard.is_constant and self.hidden is None

    @property
    def origin(self) -> tuple[str, Span | None]:
        """The kernel's name with `()`, and its source span, if known."""
        return f"{self.artifact.name}()", self.func.span if self.has_func else None

    def first_write(self, name: str) -> Span | None:
        """Return the span of the kernel's first write to an array, or None if it is not known."""
        if not self.has_func:
            return None
        from vkchi.compiler import first_write  # lazy: slow to load, rarely needed

        return first_write(self.func, name)

    @cached_property
    def derived(self) -> KernelCaches:
        """Caches of variants of the kernel that tapes and debug mode make."""
        from vkchi.calls.facts import KernelCaches  # lazy: most programs have no gradients

        return KernelCaches(self.artifact.name, self.home)

    @property
    def is_plain(self) -> bool:
        """True if the kernel is recordable and draws no random numbers."""
        return self.is_recordable and not self.draws

    @property
    def is_recordable(self) -> bool:
        """True if the kernel has no report sites, gradient bindings or observer, and changes the
        activity of no pool. It may draw random numbers."""
        return not (self.sites or self.gradients or self.observer or self.pools)

    def fields(self, args: tuple[Any, ...]) -> dict[str, Storage]:
        """Return the fields and return values that a launch with these arguments uses, by parameter
        name."""
        found = {name: a for name, a in self.arrays.items() if isinstance(a, Storage)}
        return found | {name: member_arrays(args[k])[m] for name, (k, m) in self._members.items()}

    def state(self, args: tuple[Any, ...]) -> dict[str, Storage]:
        """Return `fields`, and the member arrays among the arguments, by parameter name."""
        hidden = [] if self.hidden is None else self.hidden.parameters
        members = zip(hidden, args[len(args) - len(hidden) :], strict=True)
        return self.fields(args) | {p.name: array for p, array in members if p.kind == "array"}

    def _find_arrays(
        self, interface: Interface, fields: Mapping[str, Storage]
    ) -> dict[str, Storage | ReportBuffer]:
        arrays: dict[str, Storage | ReportBuffer] = {}
        for name, binding in interface.bindings.items():
            if binding[0] == "field":
                arrays[name] = fields[name]
                if fields[name].device is not self.runtime.device:
                    fields[name].check_alive()
                    what = f"field `{name}`"
                    raise ArgumentError(other_device_message(what, fields[name], self.runtime))
            elif binding[0] == "return":
                cell = arrays[name] = make_cell(self.runtime, interface.returns[binding[1]])
                self.returns.append(cell)
        if self.sites:
            arrays[REPORTS] = self.runtime.reports
        return arrays

    def launch(self, args: tuple[Any, ...], again: int | None = None) -> Any:
        """Run the kernel: bind the arguments, record the dispatches, copy written host arrays back.

        Also delivers reports. Return the kernel's result, for which it waits, or None without a
        result.

        `again` replays an earlier launch: the number of seeds drawn before it. The replay draws the
        same seeds, prints nothing, and is not observed.
        """
        if self.observer is not None and again is None:
            return self.observer(self, args)
        return self.launch_in_place(args, NOTHING_SHARED, again)

    def launch_in_place(
        self, args: tuple[Any, ...], shared: Sequence[ImportedArray], again: int | None = None
    ) -> Any:
        """Like `launch`, without the observer; `shared` are arguments of other libraries whose
        memory the device uses in place."""
        lock = self.runtime.lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # inlined `locks.restoring`, for speed
            with lock:
                for life in self.lives:
                    life.check_alive()
                bound = self.bind_arguments(args)
                if shared:
                    bound.share(shared)
                for name, argument in self.gradients:
                    bind_gradient(self, bound, name, argument)
                imports = bound.imports
                if imports:
                    bound.check_written(self)
                    bound.check_apart(self, self.fields(args))
                if self.is_mixed:
                    bound.check_types(self)
                for check in self.checks:
                    check(bound.flat)
                if imports:
                    changed = written_imports(imports, self)
                    notify_torch(imports, changed, self, is_taped=self.runtime.is_taped)
                if self.sites:
                    self.runtime.reports.expect()
                seeds = self.runtime.seeds(again) if self.draws else None
                self.execute(args, bound, seeds)
                if imports:
                    bound.copy_back(self.written)
                if self.sites:
                    self.runtime.reports.deliver(self.sites, is_muted=again is not None)
                return self.result() if self.returns else None
        except BaseException:
            if not was_held:
                release_wholly(lock)
            raise

    def on_device(self, args: tuple[Any, ...]) -> Accepted:
        """Return the kernel that tapes, graphs and gradients use, and its arguments, for those that
        this kernel accepted: both are the same, unless a subclass overrides it."""
        return self, args

    def execute(
        self, args: tuple[Any, ...], bound: BoundArguments, seeds: Callable[[], int] | None
    ) -> None:
        """Record the dispatches of a launch whose arguments are bound.

        If the kernel may activate or deactivate cells of pools, waits for it, and runs it again
        with more room if a pool was short. Raises KernelRuntimeError if it may not grow.
        """
        if not self.pools:
            self.record(bound, seeds)
            return
        if self.pool_launches is None:
            from vkchi.launch.pool_launches import PoolLaunches  # few kernels need it

            forget = self.runtime.reports.expect if self.sites else None
            self.pool_launches = PoolLaunches(self.artifact.name, self.pools, self.record, forget)
        arrays = {**self.fields(args), **bound.arrays}
        written = {name: array for name, array in arrays.items() if name in self.written}
        self.pool_launches.run(bound, written, seeds)

    def result(self) -> Any:
        """Wait for the last launch and return its result.

        Returns None, without waiting, if the kernel returns none.
        """
        if not self.returns:
            return None
        leaves = map(show_element, self.returns)
        values = [build_value(t, leaves) for t in self.results]
        return tuple(values) if self.returns_tuple else values[0]
