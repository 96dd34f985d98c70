"""What destructors and drivers call: C code alone, in which Python raises nothing.

Owns: `interrupt_again`, `once`, `when_all_gone`, `handing_over`. Must not know: what goes, who
calls.

Python swallows what is raised in destructors, in callbacks of weak references and in functions that
C calls: an interrupt that comes there, at the first bytecode, is lost before any `try`. So none of
these has a bytecode. They are put together from functions of the standard library in C:

    filter(None, map(f, things))    # f of each, one after the other, where f gives None
    partial(next, steps)            # the next step; what it is called with is the default
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeVar

T = TypeVar("T")

# For cffi's `onerror`, with (class, exception, traceback): interrupt the program as Ctrl-C does, at
# its next bytecode outside of the function whose exception it is. C functions ignore arguments that
# they do not know.
interrupt_again = ctypes.PYFUNCTYPE(None, *(ctypes.py_object,) * 3)(
    ("PyErr_SetInterrupt", ctypes.pythonapi)
)


def once(*deeds: partial[None]) -> Iterator[None]:
    """These, C code that gives None, each done by one step of the iterator: never twice."""
    return map(partial.__call__, deeds)


def when_all_gone(things: Iterable[T], deeds: Iterator[None]) -> list[weakref.ref[T]]:
    """References that do what `once` gave when the last of the things goes, as long as the
    references are held. Those of one thing act in the opposite order of their making."""
    held = list(things)
    steps: Iterator[Any] = chain(repeat(True, len(held) - 1), filter(None, deeds))
    return [weakref.ref(thing, partial(next, steps)) for thing in held]


def handing_over(to: deque[Any]) -> property:
    """`__del__` of a class: appends the object, which lives on there, instead of ending it.

    Python looks `__del__` up, and calls what it gets: here a `partial` that the property makes.
    """
    give: Callable[[Any], Any] = partial(partial, to.append)
    return property(give)
