"""Fields that an operator's gradient reads, as the forward pass left them.

Owns: `Memory`, of one call; how a gradient comes to that of its call (`Memories`): torch keeps it
beside what it saves, or, where torch compiles, gives the gradient the results of the call, by
which it is found again. Must not know: how gradients run.

Fields are no arguments, so torch knows nothing of them. What they held is copied when something is
about to overwrite it (`fields.keeping`): a gradient is that of the call, whatever became of fields.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from vkchi.errors import TensorGradientError
from vkchi.fields.keeping import Kept, keep
from vkchi.fields.storage import Storage
from vkchi.launch.value_guards import Guard
from vkchi.span import Span
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    import torch


class Made(NamedTuple):
    """The values of Python that a kernel was compiled with for a call, and its arguments that are
    known at compile time."""

    guard: Guard
    known: tuple[Any, ...]


def are_current(made: Iterable[Made]) -> bool:
    """True if the values are the same now."""
    return all([one.guard.holds(one.known) for one in made])


class Memory:
    """Saved contents of fields after a call of the operator `who`, of a kernel that was `made` of
    some values. `is_needed`: there may be fields that the gradient reads."""

    def __init__(
        self,
        who: str,
        fields: Iterable[Storage] = (),
        *,
        is_needed: bool = True,
        made: tuple[Made, ...] = (),
    ) -> None:
        self.who, self.is_needed, self.made = who, is_needed, made
        self.kept: dict[int, Kept] = {id(field): keep(field) for field in fields}

    def find(self, array: Storage) -> Storage:
        """What holds that of a field; the field itself where that is not known."""
        kept = self.kept.get(id(array))
        return array if kept is None else kept.contents

    def knows(self, array: Storage) -> bool:
        """Whether it is known what a field held."""
        return id(array) in self.kept

    def check_values(self) -> None:
        """Raises TensorGradientError where the kernel would be made of other values now."""
        if not are_current(self.made):
            raise TensorGradientError(
                f"what {self.who}() is compiled of was changed since the forward pass: its "
                "gradient would be that of another kernel",
                help="change classes, and objects that kernels read, before the forward pass",
            )

    def check(self, name: str, array: Storage, span_of: Callable[[str], Span | None]) -> None:
        """Raises TensorGradientError for a field, read at that span, of which it is not known."""
        if not self.knows(array):
            raise self.unknown(name, span_of(name))

    def unknown(self, name: str, span: Span | None) -> TensorGradientError:
        """The error for such a field."""
        return TensorGradientError(
            f"the gradient of {self.who}() reads the field `{name}`, and what that held in the "
            "forward pass is not known", span,
            help=f"pass what `{name}` holds as a tensor",
        )  # fmt: skip


CURRENT: ContextVar[Memory | None] = ContextVar("memory", default=None)


@contextmanager
def remembered(memory: Memory | None) -> Iterator[None]:
    """While torch calls the gradient that belongs to a memory."""
    token = CURRENT.set(memory)
    try:
        yield
    finally:
        CURRENT.reset(token)


class Owner(weakref.ref[Any]):
    """A reference to torch's storage of a result, which knows where that begins."""

    __slots__ = ("address", "memory")
    address: int
    memory: Memory


class Memories:
    """The memories of calls whose first result is there, by that."""

    def __init__(self, who: str) -> None:
        self.who = who
        self._owners: dict[int, Owner] = {}
        self._gone: deque[Owner] = deque()

    def add(self, result: torch.Tensor, memory: Memory) -> None:
        """Remember one as long as a result is there."""
        self._forget()
        owner = Owner(result.untyped_storage(), self._gone.append)
        owner.address, owner.memory = result.data_ptr(), memory
        self._owners[owner.address] = owner

    def find(self, result: torch.Tensor | None) -> Memory:
        """The memory of the call with this result; where that is not known, none of any field."""
        self._forget()
        owner = None if result is None else self._owners.get(result.data_ptr())
        if owner is not None and result is not None and owner() is result.untyped_storage():
            return owner.memory
        return CURRENT.get() or Memory(self.who)  # of no field

    def _forget(self) -> None:
        while self._gone:
            owner = self._gone.popleft()
            if self._owners.get(owner.address) is owner:
                self._owners.pop(owner.address)
