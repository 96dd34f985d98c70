"""Call cache of a kernel: compiled kernels by signature, and entries by the tokens of arguments."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.errors import RecompilationWarning, VkchiError, warn_at
from vkchi.frontend.state.captured_values import Path, PathRead
from vkchi.interrupts.weak import insert_bounded
from vkchi.lang.value_keys import has_dead_key, identity_keys
from vkchi.launch.compiled_kernel import Accepted, CompiledKernel, changed_members
from vkchi.launch.entry import Entry, is_object_of, make_entry
from vkchi.launch.value_guards import Guard

if TYPE_CHECKING:
    from vkchi.cache.compiled import Compiled
    from vkchi.launch.rebinding import Rebinding
    from vkchi.runtime import Runtime
    from vkchi.signature.signer import Key, Signer
    from vkchi.signature.view_params import ViewSigner

MOST_NOTES = 256  # entries kept per kernel; of calls that do not repeat, made
MOST_SIGNATURES = 1024  # per kernel; they may contain numbers
MOST_CHAINED, MOST_OBJECTS = 4, 16  # entries kept per key; of a key with objects by their class
MOST_GUARDED = 64  # compiled kernels kept; the least recently used is dropped
MOST_ARRAYS = 4  # compiled kernels kept of those whose arrays were replaced
MOST_FORMS = 64  # kinds of views as arguments, per kernel
MOST_TRIES = 8  # compilations of a kernel whose members another thread replaces
MOST_VALUES = 8  # values of one path before a warning


class CallCache:
    """Compiled kernels of a kernel on one runtime, by signature, and entries of calls, by
    `Signer.key`."""

    __slots__ = (
        "__weakref__", "compiled", "entries", "has_packs", "is_by_class", "notes_left",
        "previous", "runtime", "signer", "views",
    )  # fmt: skip

    def __init__(self, runtime: Runtime, signer: Signer) -> None:
        self.runtime, self.signer = runtime, signer
        self.compiled: dict[tuple[Any, ...], GuardedKernels] = {}
        self.entries: dict[Key | None, Entry] = {}  # None is no key of an entry
        self.notes_left = MOST_NOTES
        # Key and objects of the latest call without entry, after MOST_NOTES entries.
        self.previous: tuple[Key | None, list[Any]] | None = None
        self.is_by_class = any(p.kind == "object" for p in signer.parameters)
        self.has_packs = any(p.kind == "pack" for p in signer.parameters)
        # Of calls with views as arguments, by their forms.
        self.views: dict[Any, tuple[ViewSigner, CallCache]] = {}

    def expand(self, args: tuple[Any, ...]) -> tuple[CallCache, tuple[Any, ...]]:
        """Return the cache of calls with views of ndarrays like these, and the arguments with bases
        in their place; without such views this cache and the arguments."""
        if not (self.has_packs or any([hasattr(type(arg), "__vkchi_view__") for arg in args])):
            return self, args
        from vkchi.signature.view_params import ViewSigner, form_of, has_views, key_of  # rare

        if not has_views(args):
            return self, args
        key = key_of(args)
        found = self.views.get(key)
        if found is None:
            parameters = self.signer.resolved(args).parameters
            form = form_of(parameters, args)
            if not form:
                return self, args
            signer = ViewSigner(parameters, args, form)
            found = signer, CallCache(self.runtime, signer)
            insert_bounded(self.views, key, found, MOST_FORMS)
        signer, cache = found
        return cache, signer.expand(args)

    def forget_stale(self) -> None:
        """Drop the compiled kernels whose signatures name dead objects, and all entries."""
        self.entries.clear()
        forget_dead(self.compiled)
        for guarded in list(self.compiled.values()):
            forget_dead(guarded.own)
        for _, cache in list(self.views.values()):
            cache.forget_stale()

    def find(self, args: tuple[Any, ...]) -> tuple[Entry, tuple[Any, ...]] | None:
        """Entry of an earlier call with the same tokens, whose guard holds, and the arguments with
        member arrays; else None."""
        entry = self.entries.get(self.signer.key(args))
        while entry is not None:
            if held := entry.guard.holds(args):
                return entry, args if held is True else held
            entry = entry.next
        return None

    def latest(self, args: tuple[Any, ...], key: tuple[Any, ...]) -> CompiledKernel | None:
        """Return the latest kernel of a signature, one of the objects in `args` if there is."""
        guarded = self.compiled.get(key)
        if guarded is not None and guarded.own:
            guarded = guarded.own.get(self.signer.resolved(args).identify(args), guarded)
        return None if guarded is None else next(iter(guarded.kernels), None)

    def tables(
        self, args: tuple[Any, ...], key: tuple[Any, ...]
    ) -> tuple[GuardedKernels, GuardedKernels]:
        """Return the kernels of a signature: those for the objects in `args` alone, and those for
        all. Both are the same without objects."""
        shared = self.compiled.get(key) or GuardedKernels()
        objects = self.signer.resolved(args).identify(args)
        if not any(part is not None for part in objects):
            return shared, shared
        return shared.own.get(objects) or GuardedKernels(), shared

    def keep(
        self, own: GuardedKernels, shared: GuardedKernels, args: tuple[Any, ...],
        key: tuple[Any, ...], forget: Callable[[], None],
    ) -> None:  # fmt: skip
        """Insert tables of `tables` that are new and not empty, and the `Rebinding` of their latest
        kernel. `forget` is called when an object or a class in their keys is gone."""
        for guarded in (own, shared):
            made = guarded.kernels[0].rebinding if guarded.kernels else None
            if made is not None and made not in shared.rebindings:
                shared.rebindings = [made, *shared.rebindings[: MOST_GUARDED - 1]]
        places = [(self.compiled, key, shared)]
        if own is not shared and own.kernels:
            places.append((shared.own, self.signer.resolved(args).identify(args), own))
        for table, found, value in places:
            if found not in table:
                for part in identity_keys(found):
                    part.watch(self.runtime.device.finalizers, forget)
                # A key of a dataclass's fields lives as long as the kernel, which keeps them alive.
                is_of_fields = self.is_by_class and table is shared.own
                insert_bounded(
                    table, found, value, MOST_OBJECTS if is_of_fields else MOST_SIGNATURES
                )

    def note(self, kernel: CompiledKernel, args: tuple[Any, ...]) -> Entry | None:
        """Add and return an entry for a call, if `make_entry` supports it. None after MOST_NOTES
        entries, except for the second of two successive calls with one key that has no entry.

        Of each key, the latest MOST_CHAINED stay. At MOST_NOTES keys the cache is emptied first.
        None if kernels may run as Python: then a call has another kernel in a recording.
        """
        if self.runtime.options.python:
            return None
        if not self.notes_left:
            pairs = zip(kernel.parameters, args)
            # Kept alive, and made before the key, which has their ids.
            refs = [weakref.ref(arg) for p, arg in pairs if is_object_of(p, arg)]
            key = self.signer.key(args)
            previous, self.previous = self.previous, (key, refs)
            if key is None or key in self.entries or previous is None or previous[0] != key:
                return None
        entry = make_entry(kernel, args)
        if entry is not None:
            self.notes_left = max(0, self.notes_left - 1)
            if len(self.entries) >= MOST_NOTES:
                self.entries.clear()
            entry.next = last = self.entries.get(entry.key)
            most = MOST_OBJECTS if self.is_by_class else MOST_CHAINED
            for _ in range(most - 2):
                last = None if last is None else last.next
            if last is not None:
                last.next = None
            self.entries[entry.key] = entry
        return entry


class GuardedKernels:
    """Compiled kernels of one signature, one per set of Python values read at compile time and of
    facts about member arrays, in LRU order.

    Variants that serialize loops, and kernels on the device of one that runs as Python, are kept in
    tables of their own. `own`: kernels whose code is valid only for some objects, by the keys of
    these (`Signer.identify`). `rebindings`: the code of such kernels, for other fields.
    """

    __slots__ = ("kernels", "often", "own", "rebindings", "values")

    def __init__(self) -> None:
        self.kernels: list[CompiledKernel] = []
        self.rebindings: list[Rebinding] = []
        self.own: dict[tuple[Any, ...], GuardedKernels] = {}
        self.values: dict[Path, int] = {}  # number of values seen, by path
        self.often: set[Path] = set()  # paths with too many values

    @property
    def is_volatile(self) -> bool:
        """True if a path has had more than MOST_VALUES values."""
        return bool(self.often)

    def find(self, args: tuple[Any, ...]) -> Accepted | None:
        """Return the first kernel that accepts the arguments, moved to the front, and these with
        member arrays; None if there is none."""
        for k, kernel in enumerate(self.kernels):
            found = kernel.accept(args)
            if found is not None:
                if k:
                    self.kernels.insert(0, self.kernels.pop(k))
                return kernel, found
        return None

    def rebound(self, args: tuple[Any, ...]) -> Compiled | None:
        """Return the code of an earlier kernel, bound to the fields that the arguments have now;
        None if there is none."""
        found = (one.bind(args) for one in self.rebindings)
        return next((made for made in found if made is not None), None)

    def find_or_add(self, args: tuple[Any, ...], make: Callable[[], CompiledKernel]) -> Accepted:
        """As `find`; if there is none, add the kernel that `make` compiles."""
        found = self.find(args)
        if found is None:
            found = compile_stable(make, args)
            self.add(found[0], args)
        return found

    def add(self, kernel: CompiledKernel, args: tuple[Any, ...]) -> None:
        """Add the kernel for new values in front; drop the least recently used ones beyond
        MOST_GUARDED.

        Of older kernels that use replaced arrays, at most MOST_ARRAYS - 1 stay.
        """
        kernels = self.kernels
        if any(uses_replaced_arrays(one.guard, args) for one in kernels[MOST_ARRAYS - 1 :]):
            others = [one for one in kernels if uses_replaced_arrays(one.guard, args)]
            for one in others[MOST_ARRAYS - 1 :]:
                kernels.remove(one)
        self.kernels = [kernel, *kernels[: MOST_GUARDED - 1]]

    def count(self, name: str, args: tuple[Any, ...]) -> None:
        """Count a new value for each path that changed since the latest kernel, except methods.

        If paths exceed MOST_VALUES for the first time, warns about the first of them.
        """
        if not self.kernels:
            return
        found = []
        for read in self.kernels[0].guard.changed(args):
            path = read.path
            if path.root.kind == "class":
                continue
            self.values[path] = self.values.get(path, 1) + 1
            if self.values[path] > MOST_VALUES and path not in self.often:
                found.append(read)
        if found:  # report the first: derived properties change with it
            self.often.update(read.path for read in found)
            warn_recompilation(name, found[0])


def compile_stable(make: Callable[[], CompiledKernel], args: tuple[Any, ...]) -> Accepted:
    """Return the kernel that `make` compiles, and the arguments with members.

    Compiles at most MOST_TRIES times, if another thread replaces the members meanwhile. Then it
    raises KernelRuntimeError, or the error of `make`.
    """
    for left in reversed(range(MOST_TRIES)):
        try:
            kernel = make()
            full = kernel.accept(args)
            if full is None and kernel.hidden is not None:
                changed_members(kernel.hidden.fn)
            return kernel, full or args
        except VkchiError as e:
            if not (e.is_transient and left):
                raise
    raise AssertionError


def forget_dead(table: dict[tuple[Any, ...], GuardedKernels]) -> None:
    """Drop the entries whose keys name dead objects."""
    for key in [k for k in list(table) if has_dead_key(k)]:
        table.pop(key, None)


def uses_replaced_arrays(guard: Guard, args: tuple[Any, ...]) -> bool:
    """True if a guard tests an array that its path does not lead to any more."""
    return any(not one.is_current(args) for one in guard.tests if one.is_memory)


def warn_recompilation(name: str, read: PathRead) -> None:
    """Warn that a value changes often, at the line that reads it."""
    path, span = read.path, read.span
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
