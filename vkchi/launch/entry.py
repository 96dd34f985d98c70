"""Entry of the call cache: a compiled kernel with the arrays, fields and objects of one call.

A call whose arguments have the tokens of an earlier call (`Elements.token`) runs the commands of
that call with its own scalars. Entries keep tokens alive, not arrays.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from vkchi.frontend.state.captured_values import is_read_by_parts
from vkchi.interop.in_place import HostNdarray
from vkchi.interrupts.contexts import release_wholly
from vkchi.launch.commands import RepeatedCommands
from vkchi.launch.compiled_kernel import NOTHING_SHARED, CompiledKernel
from vkchi.ndarray import Ndarray
from vkchi.signature import Parameter
from vkchi.signature.bound import ImportedArray, notify_torch, written_imports


class Entry(RepeatedCommands):
    """The bound launch of calls with one key."""

    def __init__(self, kernel: CompiledKernel, args: tuple[Any, ...]) -> None:
        self.kernel, self.guard = kernel, kernel.guard_for(args)
        pairs = [*zip(kernel.parameters, args, strict=True)]
        # Kept alive, and made before the key, which has their ids.
        self.tokens = [weakref.ref(arg) for p, arg in pairs if is_object_of(p, arg)]
        self.key = kernel.signer.key(args)
        scalars = [(k, p.name) for k, p in enumerate(kernel.parameters) if p.kind == "scalar"]
        packed = [one for k, (p, _) in enumerate(pairs) for one in scalars_in(p, (k,))]
        bound = kernel.bind_arguments(args)
        if kernel.is_mixed:
            bound.check_types(kernel)
        super().__init__(kernel, bound, scalars, packed)
        self._begin_to_hold()
        self.next: Entry | None = None  # for the same key, with other values or members
        self.changed: list[int] | None = None  # indices of foreign arrays that are written

    def _begin_to_hold(self) -> None:
        """Start a new list `held`: owners of foreign memory, alive while `launch` blocks.

        The device keeps the owners of an earlier list until it has finished the recorded commands.
        """
        self.held: list[Any] = []
        self.holding = self.kernel.runtime.device.heap.hold(self.held)

    def _share(self, shared: Sequence[ImportedArray]) -> object:
        """Notify the owners of foreign arrays of writes, and keep them alive.

        With deferred execution the returned object keeps them alive, else `held` does.
        """
        kernel = self.kernel
        if self.changed is None:
            self.changed = written_imports(shared, kernel)
        notify_torch(shared, self.changed, kernel, is_taped=kernel.runtime.is_taped)
        owners = [one.owner for one in shared]
        held = kernel.runtime.device.heap.hold(owners) if kernel.runtime.deferred else None
        self.held.extend(owners if held is None else ())
        return held

    def launch(
        self, args: tuple[Any, ...], shared: Sequence[ImportedArray] = NOTHING_SHARED
    ) -> Any:
        """Launch like `CompiledKernel.launch_in_place`, without its checks of foreign arrays.

        With `shared` arrays it waits for the device, unless execution is deferred.
        """
        kernel = self.kernel
        lock = kernel.runtime.lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # inlined `locks.restoring`, for speed
            with lock:
                if kernel.runtime.recording is not None and not (was_held or shared):
                    tape = kernel.runtime.tape  # opened while this thread waited for the lock
                    if tape is not None:
                        return tape.launch(kernel.artifact.name, kernel, args)
                for life in kernel.lives:
                    life.check_alive()
                if self.met is not None:
                    self.count(self.met, lambda: kernel.bind_arguments(args).arrays)
                self.fill(args)
                if shared:
                    _held = self._share(shared)  # kept until the commands are recorded
                self.record(kernel.runtime.device)
                if shared and not kernel.runtime.deferred:
                    kernel.runtime.device.wait()
                    self.held.clear()
                return kernel.result() if kernel.returns else None
        except BaseException:
            if not was_held:
                release_wholly(lock)
            if self.held:
                self._begin_to_hold()
            raise


def make_entry(kernel: CompiledKernel, args: tuple[Any, ...]) -> Entry | None:
    """Return an entry for calls with the key of these arguments.

    None if they have none, or if launches have effects besides recording, may need race detection,
    or take an array that stands for another one during this call only.
    """
    is_plain = type(kernel) is CompiledKernel and kernel.is_plain and kernel.watch is None
    if not is_plain or kernel.given or kernel.key(args) is None:
        return None
    pairs = zip(kernel.parameters, args, strict=True)
    leaves = [leaf for p, arg in pairs for leaf in p.leaves(arg)]
    return Entry(kernel, args) if all(is_identified(p.kind, arg) for p, arg in leaves) else None


def is_identified(kind: str, arg: Any) -> bool:
    """True if an argument's part of the key determines all that a launch needs of it."""
    if kind == "array":
        return isinstance(arg, HostNdarray) or (isinstance(arg, Ndarray) and not arg.is_copy)
    return kind != "template" or not isinstance(arg, Ndarray)


def is_object_of(p: Parameter, arg: Any) -> bool:
    """True if the key has the id of a reference to an argument."""
    return p.kind == "self" or (p.kind == "template" and is_read_by_parts(arg))


def scalars_in(p: Parameter, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the scalars of a pack: path from the arguments, name of the parameter."""
    members: dict[str, Parameter] = getattr(p, "members", {}) if p.kind == "pack" else {}
    for key, member in members.items():
        if member.kind == "scalar":
            yield (*path, key), member.name
        yield from scalars_in(member, (*path, key))
