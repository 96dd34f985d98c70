"""Blocks of `with` that know whether they were left, even where an exception came in between.

Owns: `Block`. Must not know: what happens inside.

An exception can come at any bytecode (docs/design.md, part 6, Interrupts), on the very threshold of
a block as well: in `__enter__` or `__exit__`. So whether Python is still inside is not what these
wrote down: it is whether the `with` statement still holds what it will call to leave.

    class Measuring(Block):
        def __enter__(self): self.enter(); ...
        def leave(self, kind, error, traceback): ...
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, overload


class Exit:
    """`__exit__` of a block: gives a call of `leave` that nobody holds but who asked for it."""

    @overload
    def __get__(self, block: None, owner: Any = None) -> Callable[..., None]: ...

    @overload
    def __get__(self, block: Block, owner: Any = None) -> partial[None]: ...

    def __get__(self, block: Block | None, owner: Any = None) -> Any:
        if block is None:
            return owner.leave
        leaving = partial(type(block).leave, block)
        if not block.is_entered:  # a `with` statement is about to enter
            block.leaving = weakref.ref(leaving)
        return leaving


class Block:
    """Is entered once. Subclasses have an `__enter__`, which calls `enter`."""

    is_entered = False
    leaving: weakref.ref[Any] | None = None  # what the `with` statement will call
    __exit__ = Exit()

    def enter(self) -> None:
        """From now on the block is entered."""
        if self.leaving is not None and self.leaving() is None:
            self.leaving = None  # entered without `with`: left when that is said
        self.is_entered = True

    @property
    def is_left(self) -> bool:
        """Whether Python is outside again, even if an exception kept `leave` from being called."""
        return self.leaving is not None and self.leaving() is None

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """The end of the block: what `__exit__` calls."""
        raise NotImplementedError
