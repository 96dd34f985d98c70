"""A kernel as it is launched, be it from the compiler or from the cache.

Owns: the record. Must not know: either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.target.artifact import Artifact, Interface
from vkchi.target.options import Shelf
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.frontend.dependencies import Dependencies
    from vkchi.frontend.methods_seen import Seen
    from vkchi.frontend.reads import Read
    from vkchi.ir.core import Func


# Of each function: its file, its first line, and those of its lines, from 0, that are no comments.
Places = list[tuple[str, int, tuple[int, ...]]]


class Home(NamedTuple):
    """Where what is found out about a kernel is kept: a shelf, the key and the header of the
    kernel's entry, where the kernel's functions stand now."""

    shelf: Shelf
    key: str
    header: dict[str, Any]
    places: Places


class Compiled(NamedTuple):
    """A kernel for one signature: what was built, what launches bind to it, what reads the Func it
    was built of, the fields among what is bound, by parameter name, what lowering read, its home in
    the cache, if it has one, methods of classes and values of Python that it depends on, and
    whether calls are watched for races (`races.watch`)."""

    artifact: Artifact
    interface: Interface
    read_func: Callable[[], Func]
    fields: dict[str, Any]
    dependencies: Dependencies | None = None
    home: Home | None = None
    methods: tuple[Seen, ...] = ()
    reads: tuple[Read, ...] = ()
    may_race: bool = False

    @property
    def func(self) -> Func:
        """The kernel as IR."""
        return self.read_func()
