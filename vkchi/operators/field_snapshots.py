"""Snapshots of the fields that an operator's gradient reads, taken in the forward pass.

Fields, and members of objects, are no arguments, so torch does not save them. Their contents are
copied on write (`fields.array_versions`), so the gradient sees the state of its call.

`FieldSnapshots` is the snapshot of one call. Autograd saves it with its tensors. Under
`torch.compile` the gradient gets the call's results, and `SnapshotTable` finds the snapshot by
them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vkchi.errors import TensorGradientError
from vkchi.fields.array_versions import Read, keep
from vkchi.fields.storage import Storage
from vkchi.launch.value_guards import Guard
from vkchi.span import Span
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    import torch

    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.launch.member_arrays import CallGuard


class KernelValues(NamedTuple):
    """Python values that a kernel was compiled with for a call, and its compile-time constant
    arguments."""

    guard: Guard | CallGuard
    known: tuple[Any, ...]

    def members(self) -> tuple[Any, ...] | None:
        """Return the ndarrays and numbers of objects that a call reads now; None if the Python
        values, or these arrays, have changed."""
        found = self.guard.holds(self.known)
        return (found[len(self.known) :] if isinstance(found, tuple) else ()) if found else None


def are_values_current(made: Iterable[KernelValues]) -> bool:
    return all([one.guard.holds(one.known) for one in made])


def has_members(made: Iterable[KernelValues]) -> bool:
    return any([one.members() for one in made])


class FieldSnapshots:
    """Snapshot of fields after a call of the operator `who`. `made`: the Python values of its
    kernel. `is_needed`: the gradient may read fields.

    It keeps the members of objects that the kernel read, for `with_members`.
    """

    def __init__(
        self,
        who: str,
        fields: Iterable[Storage] = (),
        *,
        is_needed: bool = True,
        made: tuple[KernelValues, ...] = (),
    ) -> None:
        self.who, self.is_needed, self.made = who, is_needed, made
        self.members = made[-1].members() if made else None
        self.kept: dict[int, Read] = {id(field): keep(field) for field in fields}

    def find(self, array: Storage) -> Storage:
        """The saved contents of a field; the field itself if there are none."""
        kept = self.kept.get(id(array))
        return array if kept is None else kept.source

    def knows(self, array: Storage) -> bool:
        return id(array) in self.kept

    def check_values(self) -> None:
        """Raise TensorGradientError if the kernel's Python values have changed since the call."""
        if not are_values_current(self.made):
            raise TensorGradientError(
                f"what {self.who}() is compiled of was changed since the forward pass: its "
                "gradient would be that of another kernel",
                help="change classes, and objects that kernels read, before the forward pass",
            )

    def with_members(self, kernel: CompiledKernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a call's arguments with the members that the forward pass read. Raises
        TensorGradientError if these are unknown."""
        if kernel.hidden is None:
            return args
        if not self.members:
            raise TensorGradientError(
                f"the gradient of {self.who}() reads `{kernel.hidden.parameters[0].path}`, and its "
                "value in the forward pass is not known",
                help="pass it to the operator as an argument",
            )
        return (*args[: len(args) - len(self.members)], *self.members)

    def check(self, name: str, array: Storage, span_of: Callable[[str], Span | None]) -> None:
        """Raise TensorGradientError for a field without saved contents; `span_of` locates its
        read."""
        if not self.knows(array):
            raise self.unknown(name, span_of(name))

    def unknown(self, name: str, span: Span | None) -> TensorGradientError:
        return TensorGradientError(
            f"the gradient of {self.who}() reads the field `{name}`, and what that held in the "
            "forward pass is not known", span,
            help=f"pass what `{name}` holds as a tensor",
        )  # fmt: skip


CURRENT: ContextVar[Any] = ContextVar("memory", default=None)


@contextmanager
def current_snapshots(memory: Any) -> Iterator[None]:
    """Context manager that makes `memory` the current snapshot while torch calls the gradient."""
    token = CURRENT.set(memory)
    try:
        yield
    finally:
        CURRENT.reset(token)


class ResultReference(weakref.ref[Any]):
    """Weak reference to the storage of a result, with the result's address and the snapshot of its
    call."""

    __slots__ = ("address", "memory")
    address: int
    memory: Any


S = TypeVar("S")


class SnapshotTable(Generic[S]):
    """Memories of calls, keyed by their first result, while its storage is alive."""

    def __init__(self) -> None:
        self._owners: dict[int, ResultReference] = {}
        self._gone: deque[ResultReference] = deque()

    def add(self, result: torch.Tensor, memory: S) -> None:
        """Save a snapshot for the lifetime of a result's storage."""
        self._forget()
        owner = ResultReference(result.untyped_storage(), self._gone.append)
        owner.address, owner.memory = result.data_ptr(), memory
        self._owners[owner.address] = owner

    def find(self, result: torch.Tensor | None) -> S | None:
        """The memory of the call with this result; if unknown, that of `current_snapshots`."""
        self._forget()
        owner = None if result is None else self._owners.get(result.data_ptr())
        if owner is not None and result is not None and owner() is result.untyped_storage():
            found: S = owner.memory
            return found
        current: S | None = CURRENT.get()
        return current

    def _forget(self) -> None:
        while self._gone:
            owner = self._gone.popleft()
            if self._owners.get(owner.address) is owner:
                self._owners.pop(owner.address)
