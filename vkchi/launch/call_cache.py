"""Call cache of a kernel: its plans by signature, and bound launches by the tokens of arguments.

A call whose arrays, fields and objects have the tokens of an earlier call (`Elements.token`) runs
the launch of that call with its own scalars. Entries keep tokens alive, not arrays.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import RecompilationWarning, warn_at
from vkchi.fields.storage import Storage
from vkchi.frontend.state.captured_values import Path
from vkchi.interop.in_place import HostNdarray
from vkchi.interrupts.locks import release_wholly
from vkchi.launch import NOTHING_SHARED, Plan
from vkchi.launch.commands import RepeatedCommands
from vkchi.launch.value_guards import Guard
from vkchi.ndarray import Ndarray
from vkchi.signature.bound import ImportedArray, notify_torch, written_imports

if TYPE_CHECKING:
    from vkchi.runtime import Runtime
    from vkchi.signature.signer import Key, Signer
    from vkchi.span import Span

MOST_NOTES, MOST_KEPT = 256, 16  # entries made and kept per kernel
MOST_EDITIONS = 64  # plans kept; the least recently used is dropped
MOST_ARRAYS = 4  # plans kept of those whose arrays were replaced
MOST_VALUES = 8  # values of one path before a warning


class CallCache:
    """Plans of a kernel on one runtime, by signature, and entries for calls, by `Signer.key`."""

    __slots__ = ("__weakref__", "by_key", "entries", "notes_left", "runtime", "signer")

    def __init__(self, runtime: Runtime, signer: Signer) -> None:
        self.runtime, self.signer = runtime, signer
        self.by_key: dict[tuple[Any, ...], Editions] = {}
        self.entries: dict[Key | None, RepeatedCall] = {}  # None is no key of an entry
        self.notes_left = MOST_NOTES

    def find(self, args: tuple[Any, ...]) -> RepeatedCall | None:
        """Entry of an earlier call with the same tokens, whose guard holds; else None."""
        entry = self.entries.get(self.signer.key(args))
        return entry if entry is not None and entry.plan.guard.holds(args) else None

    def note(self, plan: Plan, args: tuple[Any, ...]) -> RepeatedCall | None:
        """Add and return an entry for a call, if `cache_call` supports it. None after MOST_NOTES
        entries.

        At MOST_KEPT entries the cache is emptied first.
        """
        entry = cache_call(plan, args) if self.notes_left else None
        if entry is not None:
            self.notes_left -= 1
            if len(self.entries) >= MOST_KEPT:
                self.entries.clear()
            self.entries[entry.key] = entry
        return entry


class RepeatedCall(RepeatedCommands):
    """The bound launch of calls with one key."""

    def __init__(self, plan: Plan, args: tuple[Any, ...]) -> None:
        self.plan = plan
        pairs = zip(plan.parameters, args, strict=True)
        # Kept alive, and made before the key, which has their ids.
        self.tokens = [weakref.ref(arg) for p, arg in pairs if p.kind == "self"]
        self.key = plan.signer.key(args)
        scalars = [(k, p.name) for k, p in enumerate(plan.parameters) if p.kind == "scalar"]
        bound = plan.bind_arguments(args)
        if plan.is_mixed:
            bound.check_types(plan)
        super().__init__(plan, bound, scalars)
        self._begin_to_hold()
        self.changed: list[int] | None = None  # indices of foreign arrays that are written

    def _begin_to_hold(self) -> None:
        """Start a new list `held`: owners of foreign memory, alive while `launch` blocks.

        The device keeps the owners of an earlier list until it has finished the recorded commands.
        """
        self.held: list[Any] = []
        self.holding = self.plan.runtime.device.heap.hold(self.held)

    def _share(self, shared: Sequence[ImportedArray]) -> object:
        """Notify the owners of foreign arrays of writes, and keep them alive.

        With deferred execution the returned object keeps them alive, else `held` does.
        """
        plan = self.plan
        if self.changed is None:
            self.changed = written_imports(shared, plan)
        notify_torch(shared, self.changed, plan, is_taped=plan.runtime.is_taped)
        owners = [one.owner for one in shared]
        held = plan.runtime.device.heap.hold(owners) if plan.runtime.deferred else None
        self.held.extend(owners if held is None else ())
        return held

    def launch(
        self, args: tuple[Any, ...], shared: Sequence[ImportedArray] = NOTHING_SHARED
    ) -> Any:
        """Launch like `Plan.launch_in_place`, without repeating its checks of foreign arrays.

        With `shared` arrays it waits for the device, unless execution is deferred.
        """
        plan = self.plan
        lock = plan.runtime.lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # inlined `locks.restoring`, for speed
            with lock:
                if plan.runtime.recording is not None and not (was_held or shared):
                    tape = plan.runtime.tape  # opened while this thread waited for the lock
                    if tape is not None:
                        return tape.launch(plan.artifact.name, plan, args)
                for life in plan.lives:
                    life.check_alive()
                if self.met is not None:
                    self.count(self.met, lambda: plan.bind_arguments(args).arrays)
                self.fill(args)
                if shared:
                    _held = self._share(shared)  # kept until the commands are recorded
                self.record(plan.runtime.device)
                if shared and not plan.runtime.deferred:
                    plan.runtime.device.wait()
                    self.held.clear()
                return plan.result() if plan.returns else None
        except BaseException:
            if not was_held:
                release_wholly(lock)
            if self.held:
                self._begin_to_hold()
            raise


def cache_call(plan: Plan, args: tuple[Any, ...]) -> RepeatedCall | None:
    """Return an entry for calls with the key of these arguments.

    None if they have none, or if launches have effects besides recording, may need race detection,
    or take an array that stands for another one during this call only.
    """
    is_plain = type(plan) is Plan and plan.is_plain and plan.watch is None
    if not is_plain or plan.given or plan.signer.key(args) is None:
        return None
    if not all(is_identified(p.kind, arg) for p, arg in zip(plan.parameters, args, strict=True)):
        return None
    return RepeatedCall(plan, args)


def is_identified(kind: str, arg: Any) -> bool:
    """True if an argument's part of the key determines all that a launch needs of it."""
    if kind == "array":
        return isinstance(arg, HostNdarray) or (isinstance(arg, Ndarray) and not arg.is_copy)
    return kind != "template" or (isinstance(arg, Storage) and not isinstance(arg, Ndarray))


class Editions:
    """Plans of one signature, one per set of Python values read at compile time, in LRU order."""

    __slots__ = ("often", "plans", "values")

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.values: dict[Path, int] = {}  # number of values seen, by path
        self.often: set[Path] = set()  # paths with too many values

    @property
    def is_volatile(self) -> bool:
        """True if a path has had more than MOST_VALUES values."""
        return bool(self.often)

    def find(self, args: tuple[Any, ...]) -> Plan | None:
        """Return the plan whose guard holds, moved to the front; None if there is none."""
        for k, plan in enumerate(self.plans):
            if plan.guard.holds(args):
                if k:
                    self.plans.insert(0, self.plans.pop(k))
                return plan
        return None

    def add(self, plan: Plan, args: tuple[Any, ...]) -> None:
        """Add the plan for new values in front; drop the least recently used ones beyond
        MOST_EDITIONS.

        Of older plans that use replaced arrays, at most MOST_ARRAYS - 1 stay.
        """
        plans = self.plans
        if plans and any(uses_replaced_arrays(one.guard, args) for one in plans[MOST_ARRAYS - 1 :]):
            others = [one for one in plans if uses_replaced_arrays(one.guard, args)]
            for one in others[MOST_ARRAYS - 1 :]:
                plans.remove(one)
        self.plans = [plan, *plans[: MOST_EDITIONS - 1]]

    def count(self, name: str, args: tuple[Any, ...]) -> None:
        """Count a new value for each path that changed since the latest plan.

        If paths exceed MOST_VALUES for the first time, warns about the first of them.
        """
        if not self.plans:
            return
        found = []
        for path, span in self.plans[0].guard.changed(args):
            self.values[path] = self.values.get(path, 1) + 1
            if self.values[path] > MOST_VALUES and path not in self.often:
                found.append((path, span))
        if found:  # report the first: derived properties change with it
            self.often.update(path for path, _ in found)
            warn_recompilation(name, *found[0])


def uses_replaced_arrays(guard: Guard, args: tuple[Any, ...]) -> bool:
    """True if a guard tests an array that its path does not lead to any more."""
    return any(not one.is_current(args) for one in guard.watches if one.is_memory)


def warn_recompilation(name: str, path: Path, span: Span | None) -> None:
    """Warn that a value changes often, at the line that reads it."""
    text = (
        f"{name}(): `{path}` has had more than {MOST_VALUES} values, and the kernel is compiled "
        "for each\nhelp: pass it as an argument of the kernel"
    )
    registry: dict[Any, Any] = {}
    if span is None:
        code = path.root.fn.__code__
        file, line = code.co_filename, code.co_firstlineno
    else:
        file, line = span.file, span.line
    warn_at(text, RecompilationWarning, file, line, registry)
