"""What tapes, forward mode and products with the Hessian have in common: they see every kernel call
and every access of Python to the arrays that they watch.

Owns: `Recording`. Must not know: how derivatives are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import get_ident
from types import MappingProxyType
from typing import Any

from vkchi.autodiff.calls import Call, whole
from vkchi.autodiff.copies import copy_floats
from vkchi.autodiff.keeper import Keeper
from vkchi.autodiff.overwrites import Index, Overwrites
from vkchi.autodiff.races import FoundRaces
from vkchi.autodiff.regions import Box
from vkchi.autodiff.taints import Taints
from vkchi.blocks import Block
from vkchi.fields.storage import Access, Storage
from vkchi.runtime import Runtime


class Recording(Block):
    """Knows where derivatives are: in the arrays' `kind`, grad or dual, and where they got lost.
    Entered by `with`, it sees what happens in the block."""

    title: str  # what users call it
    kind = "grad"
    is_paused = False  # whether calls and copies are done as they are

    def __init__(self, runtime: Runtime, budget_bytes: int | None = None) -> None:
        self.runtime, self.thread = runtime, get_ident()
        self.taints, self.overwrites = Taints(), Overwrites()
        self.keeper = Keeper(budget_bytes, self.accessed)
        self.races = FoundRaces(self.keeper.watch)

    def enter(self) -> None:
        """See everything from now on."""
        super().enter()
        self.runtime.recording = self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """The end of the block."""
        self.close()

    def close(self) -> None:
        """See nothing any more. Idempotent."""
        if self.runtime.recording is self:
            self.runtime.recording = None
        self.keeper.close()

    def check(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative is lost on its way to `names`, the call's arrays
        that have one."""
        for array in self.taints.check(call, names, self.kind):
            self.keeper.watch(array)
        self.overwrites.check_call(call, names)

    def note(
        self,
        call: Call,
        escapes: Mapping[str, Any],
        stores: Mapping[str, Any],
        boxes: Mapping[str, Box],
        bits: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Note where a call put values with a derivative: the ops that did so by array, without and
        with a place for it, and the parts; and where it put bits of such values."""
        noted = self.taints.note(call, escapes) + self.taints.note(call, bits, is_bits=True)
        for array in noted + self.overwrites.note_call(call, stores, boxes):
            self.keeper.watch(array)

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        if access.kind != "read":
            self.races.note_written((whole(array),))
        self.taints.note_access(array, access)
        if self.overwrites.note_access(array, access):
            self.cut(array, access.at)

    def met(self, array: Storage, access: Access) -> None:
        """Python is about to access an array that is not watched."""

    def cut(self, array: Storage, at: Index | None) -> None:
        """The derivative of what stands in an element, or (None) anywhere, is 0 from now on."""
        raise NotImplementedError

    def copy(self, target: Storage, source: Storage) -> bool:
        """Record a copy of floats as a kernel; whether it was."""
        return not self.is_paused and copy_floats(target, source)
