"""Launching a compiled kernel: the hot path from Python arguments to recorded dispatches.

Owns: what a call of a kernel does besides its dispatches: fields, return values, copies of host
arrays, reports. How dispatches are bound and recorded is `executable`'s. Must not know: IR, Vulkan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vkchi import env
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import release_wholly
from vkchi.lang.struct import build
from vkchi.launch.executable import Executable, make_cell
from vkchi.launch.value_guards import Guard
from vkchi.runtime import Runtime
from vkchi.signature import Parameter
from vkchi.signature.bound import Bound, Import, find_changed, is_mixed, tell_owners
from vkchi.signature.wording import why_elsewhere
from vkchi.target.shader import REPORTS

if TYPE_CHECKING:
    from vkchi.cache.compiled import Compiled
    from vkchi.ir.core import Func
    from vkchi.launch.shapes import Build
    from vkchi.races.watch import Watch
    from vkchi.reports.delivery import Reports
    from vkchi.span import Span
    from vkchi.tape.derived import Derived
    from vkchi.target.artifact import Interface


NOTHING_SHARED: tuple[Import, ...] = ()


def arrays_in(arg: Any) -> list[Any]:
    """The argument itself; of a field of structs, its members."""
    return arg.__vkchi_members__() if hasattr(type(arg), "__vkchi_members__") else [arg]


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


def lives_of(arrays: dict[str, Storage | Reports]) -> list[Any]:
    """What the arrays live as long as, each once."""
    lives = [getattr(array, "life", None) for array in arrays.values()]
    return list(dict.fromkeys(life for life in lives if life is not None))


def counts_launches(runtime: Runtime) -> bool:
    """Whether launches of kernels are counted, to give those that repeat other code."""
    return env.flag("VKCHI_SHAPES") != "0" and not runtime.options.debug


class Plan:
    """A kernel compiled for one signature on one device. `path`: its module, its class if it is a
    method, its name. `guard`: the values of Python that it was compiled with. `renew` gives the
    plan for arguments, with the values as they are. `watch` examines its calls for races before
    they run; None if nothing is left to examine."""

    path = ""
    guard = Guard(None)
    renew: Callable[[tuple[Any, ...]], Plan] | None = None
    watch: Watch | None = None

    def __init__(
        self,
        runtime: Runtime,
        compiled: Compiled,
        parameters: list[Parameter],
        args: tuple[Any, ...],
        show: Callable[[Storage], Any],
    ) -> None:
        artifact, interface = compiled.artifact, compiled.interface
        self.runtime, self.parameters, self.show = runtime, parameters, show
        self._read_func, self.home = compiled.read_func, compiled.home
        self.draws, self.results = interface.draws, interface.results
        self.returns_tuple = interface.returns_tuple
        self.known_sites = interface.sites
        self.sites = artifact.sites_among(interface.sites)
        self.gradients = [(k, b[1]) for k, b in interface.bindings.items() if b[0] == "grad"]
        self.returns: list[Storage] = []
        arrays = self._find_arrays(interface, compiled.fields)
        self.lives = lives_of(arrays)
        self.executable = Executable(
            runtime, artifact, parameters, args, fixed=arrays, gradients=self.gradients,
            limits=interface.checks,
        )  # fmt: skip
        self.give_shapes(self.executable, compiled.read_func)
        self.checks = self.executable.checks
        self.is_mixed = is_mixed(args)
        self.written = {name for name in artifact.writes if name in artifact.arrays}
        self.read = {name for name in artifact.reads if name in artifact.arrays}
        # Kept alive for what launches write into; fields passed as arguments live for their owner.
        passed = {
            id(array): (k, m)
            for k, arg in enumerate(args)
            for m, array in enumerate(arrays_in(arg))
        }
        self.passed = {name: passed[id(a)] for name, a in arrays.items() if id(a) in passed}
        self.arrays = {name: a for name, a in arrays.items() if name not in self.passed}

    @property
    def may_have_shapes(self) -> bool:
        """Whether other code of the same Func may run in its place: where nobody is told what code
        does, and nothing is drawn, in each dispatch from a stream of its own."""
        if not (counts_launches(self.runtime) and self.has_func):
            return False
        return not (self.sites or self.draws)

    def give_shapes(
        self, executable: Executable, read: Callable[[], Func], build: Build | None = None,
        what: str | None = "",
    ) -> None:  # fmt: skip
        """Let the kernel's executable, or another one that is made of it, have code for the extents
        that launches meet, and of the next tier. `read` gives the Func, `build` makes an artifact
        of such a one; `what` tells executables apart, or is None for one whose code is not kept."""
        artifact = executable.artifact
        if not self.may_have_shapes or artifact.sites:
            return
        if artifact.has_next or executable.asks_extents:
            from vkchi.launch.shapes import Origin, Shapes  # many programs have fields alone

            home = None if what is None else self.home
            executable.shapes = Shapes(executable, Origin(home, what or "", read, build))

    @cached_property
    def func(self) -> Func:
        """The kernel as IR, of which what is derived of it is made."""
        return self._read_func()

    @property
    def has_func(self) -> bool:
        """Whether the IR is there: not of a kernel from a saved module."""
        return True

    @property
    def is_ours(self) -> bool:
        """Whether the kernel is one of this package; its IR need not be read for that."""
        return self.path.startswith("vkchi.")

    def known(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments that are known at compile time; None for the others."""
        pairs = zip(self.parameters, args, strict=True)
        return tuple([arg if p.kind in ("template", "self") else None for p, arg in pairs])

    def renewed(self, args: tuple[Any, ...]) -> Plan:
        """The plan for values of Python as they are now, which may be this one."""
        if self.renew is None or self.guard.holds(args):
            return self
        return self.renew(args)

    @property
    def origin(self) -> tuple[str, Span | None]:
        """What the kernel is called, and where it stands in the user's files."""
        return f"{self.func.name}()", self.func.span

    def first_write(self, name: str) -> Span | None:
        """Where the kernel first writes to an array, if that is known."""
        from vkchi.compiler import first_write  # slow to load, and seldom needed

        return first_write(self.func, name)

    @cached_property
    def derived(self) -> Derived:
        """What tapes and debug mode have made of the kernel."""
        from vkchi.tape.derived import Derived  # most programs have no gradients

        return Derived(self.executable.artifact.name, self.home)

    @property
    def is_plain(self) -> bool:
        """Whether launches with the same arguments, which lie on the device, record the same
        commands, and do nothing besides."""
        return self.is_recordable and not self.draws

    @property
    def is_recordable(self) -> bool:
        """The same, but for the seeds that they draw random numbers with."""
        return not (self.sites or self.gradients)

    def fields(self, args: tuple[Any, ...]) -> dict[str, Storage]:
        """The fields that a launch with these arguments works on, by parameter name."""
        found = {name: a for name, a in self.arrays.items() if isinstance(a, Storage)}
        return found | {name: arrays_in(args[k])[m] for name, (k, m) in self.passed.items()}

    def _find_arrays(
        self, interface: Interface, fields: Mapping[str, Storage]
    ) -> dict[str, Storage | Reports]:
        arrays: dict[str, Storage | Reports] = {}
        for name, binding in interface.bindings.items():
            if binding[0] == "field":
                arrays[name] = fields[name]
                if fields[name].device is not self.runtime.device:
                    fields[name].check_alive()
                    what = f"field `{name}`"
                    raise ArgumentError(why_elsewhere(what, fields[name], self.runtime))
            elif binding[0] == "return":
                cell = arrays[name] = make_cell(self.runtime, interface.returns[binding[1]])
                self.returns.append(cell)
        if self.sites:
            arrays[REPORTS] = self.runtime.reports
        return arrays

    def launch(self, args: tuple[Any, ...], again: int | None = None) -> Any:
        """Bind, record, and read what the kernel returns (which waits). `again`: the launch was
        done before, when so many seeds had been drawn; it draws the same and prints nothing."""
        return self.launch_in_place(args, NOTHING_SHARED, again)

    def launch_in_place(
        self, args: tuple[Any, ...], shared: Sequence[Import], again: int | None = None
    ) -> Any:
        """The same with `shared` arguments, which are arrays of other libraries, in place."""
        lock = self.runtime.lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # as `restoring` does, without its cost
            with lock:
                for life in self.lives:
                    life.check_alive()
                bound = self.executable.bind_arguments(args)
                if shared:
                    bound.share(shared)
                for name, argument in self.gradients:
                    bind_gradient(bound, name, argument)
                imports = bound.imports
                if imports:
                    bound.check_written(self)
                    bound.check_apart(self, self.fields(args))
                if self.is_mixed:
                    bound.check_types(self)
                for check in self.checks:
                    check(bound.flat)
                if imports:
                    changed = find_changed(imports, self)
                    tell_owners(imports, changed, self, is_taped=self.runtime.is_taped)
                if self.sites:
                    self.runtime.reports.expect()
                seeds = self.runtime.seeds(again) if self.draws else None
                self.executable.launch(bound, seeds)
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
