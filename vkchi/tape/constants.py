"""Arrays with gradients that hold constants: what is computed from them has no derivative, though
their kind may have one. So a solver may begin with `x = 0`, and keep its residual in arrays without
gradient.

Owns: `Constants`, of one tape: arrays that were overwritten with constants, all of each, since it
began, and that nobody has put a derivative into since. Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from vkchi.autodiff.memory import kinds_of_writes
from vkchi.autodiff.primal import Activity, is_smooth_array
from vkchi.autodiff.reaching import Reach
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func
from vkchi.tape.calls import Call, whole
from vkchi.tape.escapes import covering


class Constants:
    """Which arrays do so now."""

    def __init__(self) -> None:
        self.arrays: dict[int, Storage] = {}

    def note_cut(self, array: Storage) -> None:
        """Python has overwritten all of an array that held something with a derivative. (What it
        puts into others is an input: a derivative by that may be wanted.)"""
        if whole(array) is array:
            self.arrays[id(array)] = array

    def drop(self, arrays: Iterable[Storage]) -> None:
        """Something unknown may be put into these."""
        for array in arrays:
            self.arrays.pop(id(whole(array)), None)

    def names_in(self, call: Call, names: frozenset[str]) -> frozenset[str]:
        """The arrays of a call, of those with gradients, that do."""
        if not self.arrays:
            return frozenset()
        return frozenset(n for n in names & call.arrays.keys() if id(call.arrays[n]) in self.arrays)

    def note_call(self, call: Call, stores: Container[str], constant: frozenset[str]) -> None:
        """A call has put derivatives into the arrays `stores`, and found the arrays `constant` as
        constants. What else it writes stays so, or becomes so if that is all of an array."""
        for name in call.plan.written & call.arrays.keys() - call.hosts.keys():
            array = call.arrays[name]
            is_new = name in constant or covering(call, name) is not None
            if name not in stores and is_new and whole(array) is array:
                self.arrays[id(array)] = array


class Escapes:
    """What a kernel does with derivatives if some arrays hold constants: `stores` are those with a
    gradient that it puts some into, `lasting` those without, and the ops that do so."""

    def __init__(self, fn: Func, names: frozenset[str], constant: frozenset[str]) -> None:
        reach = Reach(fn)
        active = Activity(fn, names, constant=constant | reach.begun())
        self.stores = active.stores
        self.lasting: dict[str, Any] = reach.lasting(active) if active.escapes else {}


def stores_constants(fn: Func) -> bool:
    """Whether a kernel does nothing to memory but store what depends on no floats in it."""
    active = Activity(fn, frozenset(p.name for p in fn.params if is_smooth_array(p)))
    is_store = all(kinds == {"store"} for kinds in kinds_of_writes(fn.body.ops).values())
    return is_store and not (active.stores or active.escapes)
