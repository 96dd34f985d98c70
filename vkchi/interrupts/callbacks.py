"""Callbacks for destructors and drivers, made only of C functions.

Python discards exceptions in destructors, in callbacks of weak references, and in callbacks from C.
An interrupt at their first bytecode is lost before any `try`. Therefore none of these callbacks
executes bytecode. They are composed from C functions of the standard library:

    filter(None, map(f, things))    # f of each in order, where f returns None
    partial(next, steps)            # the next step; the caller's argument becomes the default
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

# For cffi's `onerror`, called with (class, exception, traceback): interrupt the program as Ctrl-C
# does, at the next bytecode outside of the failed callback. The C function ignores the arguments.
interrupt_again = ctypes.PYFUNCTYPE(None, *(ctypes.py_object,) * 3)(
    ("PyErr_SetInterrupt", ctypes.pythonapi)
)


def run_each_once(*deeds: partial[None]) -> Iterator[None]:
    """Iterator that runs one of these calls per step, each at most once.

    The calls are C functions that return None.
    """
    return map(partial.__call__, deeds)


def finalize_after_all(things: Iterable[T], deeds: Iterator[None]) -> list[weakref.ref[T]]:
    """Weak references that run the iterator `deeds` when the last of the things dies.

    `run_each_once` creates `deeds`. The references must be kept alive. References to the same thing
    run in the opposite order of their creation.
    """
    held = list(things)
    steps: Iterator[Any] = chain(repeat(True, len(held) - 1), filter(None, deeds))
    return [weakref.ref(thing, partial(next, steps)) for thing in held]


def resurrecting_del(to: deque[Any]) -> property:
    """`__del__` of a class: appends the object to a deque, which resurrects it.

    Python reads the attribute `__del__` and calls the result: a `partial` that this property
    creates.
    """
    give: Callable[[Any], Any] = partial(partial, to.append)
    return property(give)
