"""Modules of other libraries that an interrupt must not catch half imported.

Owns: `import_whole`, `take_from`. Must not know: what is imported, and for what.

A module in C that was left while it began cannot be imported again in that process: numpy says
"cannot load module more than once per process", torch refuses as well, and what they raise where
an interrupt comes is not always the interrupt. Python runs signals' handlers in its main thread
alone, so the import is another thread's: an interrupt comes where this one waits for it, and goes
on when the import is done, for a process that ends amid one may crash.

    numpy = import_whole("numpy")
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from queue import SimpleQueue

T = TypeVar("T")


def import_whole(name: str) -> ModuleType:
    """A module, imported if it was not. Raises ImportError, and what else its import raises."""
    if name in sys.modules:
        return import_module(name)  # waits where another thread is at it
    return _do_apart(partial(import_module, name))


def take_from(name: str, attribute: str) -> Any:
    """What a module has under a name: a part of it that is imported when asked for, as well.
    Raises AttributeError, and as `import_whole`."""
    found = vars(import_whole(name))
    if attribute in found:
        return found[attribute]
    return _do_apart(partial(getattr, import_module(name), attribute))


def _do_apart(act: Callable[[], T]) -> T:
    """What this gives or raises, done in a thread of its own."""
    from queue import SimpleQueue  # not before it is needed

    said: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
    try:
        _thread.start_new_thread(_do, (act, said))
    except RuntimeError:  # there are no more threads, or the interpreter ends
        return act()
    try:
        found, error = said.get()
    except BaseException:
        said.get()
        raise
    if error is not None:
        raise error
    return found  # type: ignore[return-value]


def _do(act: Callable[[], T], said: SimpleQueue[tuple[T | None, BaseException | None]]) -> None:
    try:
        said.put((act(), None))
    except BaseException as e:
        said.put((None, e))
