"""A compiled kernel, ready to be launched, from the compiler or from the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.frontend.state.captured_values import FieldSources, Members, PathRead
from vkchi.target.artifact import Artifact, Interface
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.cache.store import CacheStore
    from vkchi.frontend.state.dependencies import Dependencies
    from vkchi.ir.core import Func


# (file, first line, indices of the lines that are not comments) of each function.
Places = list[tuple[str, int, tuple[int, ...]]]


class CacheLocation(NamedTuple):
    """A kernel's location in the disk cache, used to store results derived from the kernel.

    - shelf: the store.
    - key, header: those of the kernel's entry.
    - places: current source locations of the kernel's functions.
    """

    shelf: CacheStore
    key: str
    header: dict[str, Any]
    places: Places


class Compiled(NamedTuple):
    """A kernel compiled for one signature.

    - artifact, interface: the shaders, and the values that launches bind.
    - read_func: returns the IR that was compiled; None for a kernel of a saved module.
    - fields: bound fields by parameter name.
    - dependencies: objects that lowering read; None for a kernel from the disk cache.
    - home: location in the disk cache, or None.
    - reads: the Python values, class methods among them, that the code depends on.
    - members: the ndarrays that launches read by their paths.
    - is_own: True if the code is valid only for the objects among the arguments, not for others
      with the same values at the paths of `reads`.
    - sources: where other fields of the same types are, to which the code can be bound; None if it
      can not.
    - may_race: True if calls need race detection (`races.watch`).
    """

    artifact: Artifact
    interface: Interface
    read_func: Callable[[], Func] | None
    fields: dict[str, Any]
    dependencies: Dependencies | None = None
    home: CacheLocation | None = None
    reads: tuple[PathRead, ...] = ()
    may_race: bool = False
    members: Members = Members()
    is_own: bool = True
    sources: FieldSources | None = None

    @property
    def func(self) -> Func:
        assert self.read_func is not None
        return self.read_func()
