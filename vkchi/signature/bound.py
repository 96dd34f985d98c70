"""The arguments of one call, bound: numbers, arrays, and what of them lies in the host's memory.

Owns: `Bound`, to which parameters append themselves; the copies of host arrays, which of them a
kernel may write, and who is told. Must not know: annotations, shaders.

A bound array contributes its address, its number of scalars and its extents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.span import Span


class Import(NamedTuple):
    """An argument in host memory and its copy on the device; arguments that are the same memory
    share one copy. `owner` is what was passed."""

    name: str
    view: np.ndarray[Any, Any]
    array: Ndarray
    owner: Any


class Writer(Protocol):
    """A kernel that writes to arrays of these names."""

    written: set[str]

    @property
    def origin(self) -> tuple[str, Span | None]:
        """What it is called, and where it stands in the user's files, if that is known."""

    def first_write(self, name: str) -> Span | None:
        """Where it first writes to an argument, if that is known; it may take long to find."""


class Bound:
    """What binding the arguments of one call yields: numbers, arrays, and which of those are copies
    of host memory."""

    __slots__ = ("arrays", "flat", "imports", "runtime")

    def __init__(self, runtime: Runtime, constants: list[Any]) -> None:
        self.runtime = runtime
        self.flat = list(constants)
        self.arrays: dict[str, Storage] = {}
        self.imports: list[Import] = []

    def bind_array(self, name: str, array: Storage) -> None:
        """Append an array's address, number of scalars and extents."""
        self.arrays[name] = array
        self.flat.append(array.buffer.address)
        self.flat.append(array.layout.size)
        self.flat.extend(array.shape)

    def check_written(self, plan: Writer) -> None:
        """Raises ArgumentError where copying back what the kernel writes would go wrong."""
        written = plan.written
        for one in self.imports:
            if one.name not in written:
                continue
            if not one.view.flags.writeable:
                raise ArgumentError(
                    f"argument `{one.name}`: the kernel writes to it{written_at(plan, one.name)},"
                    " and this numpy array is read-only: pass a copy"
                )
            if host.overlaps_itself(one.view):
                raise ArgumentError(
                    f"argument `{one.name}`: the kernel writes to it{written_at(plan, one.name)},"
                    " and several of its elements are the same memory: pass a copy"
                )
            for other in self.imports:
                if other.array is not one.array and host.may_overlap(one.view, other.view):
                    raise ArgumentError(
                        f"arguments `{one.name}` and `{other.name}` overlap in memory, and the "
                        f"kernel writes to `{one.name}`{written_at(plan, one.name)}: pass a copy "
                        "of one of them"
                    )

    def copy_back(self, written: set[str]) -> None:
        """Bring host memory up to date with what the kernel wrote; waits if there is any."""
        for one in self.imports:
            if one.name in written:
                one.array.copy_to(one.view)

    def import_gradient(self, name: str, argument: str) -> Ndarray | None:
        """A copy of the gradient of an argument that is a torch tensor, under a name of its own;
        None if the argument has none."""
        one = next((one for one in self.imports if one.name == argument), None)
        grad = host.make_grad(one.owner) if one is not None else None
        if one is None or grad is None:
            return None
        view = host.array_of_torch(grad)
        array = Ndarray(self.runtime, one.array.elem, one.array.shape)
        array.put_unnoticed(view)
        self.imports.append(Import(name, view, array, grad))
        return array


def written_at(plan: Writer, name: str) -> str:
    """Where in the user's files a kernel first writes to an argument, for messages."""
    span = plan.first_write(name)
    return f" at {span.place}" if span is not None else ""


def tell_owners(imports: Sequence[Import], plan: Writer, *, is_taped: bool) -> None:
    """Tell torch which tensors a kernel is about to write; a tape knows of leaves itself. Raises
    ArgumentError where torch does not allow that."""
    changed = {id(one.array) for one in imports if one.name in plan.written}
    tensors = [one for one in imports if id(one.array) in changed and host.is_torch(one.owner)]
    if not tensors:
        return
    from vkchi.interop.written import check_leaf, tell_torch

    for one in tensors if not is_taped else ():
        check_leaf(one.name, one.owner)
    for one in tensors:
        tell_torch(one.name, one.owner, *plan.origin)
