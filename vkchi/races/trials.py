"""Kernels in a form that notes who meets, and their launches.

Owns: `Observed`, the kernel's own run in that form; `Trial`, a run on copies of what it writes,
before. Must not know: gradients, tapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from vkchi.autodiff.refusals import depends_on_order
from vkchi.compiler import build
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.ir.core import used_in, walk
from vkchi.races.cells import CellMemory
from vkchi.races.noted import MET, Group, Noted
from vkchi.tape.calls import Call, copy_of, leaves_of
from vkchi.tape.variants import Variant
from vkchi.types import Scalar, Tensor, i32


class Observed:
    """A kernel that runs in the form `made`, and notes which of these groups meet."""

    def __init__(self, call: Call, groups: Sequence[Group], made: Noted) -> None:
        self.plan, self.runtime = call.plan, call.plan.runtime
        self.args, self.groups, self.func = call.args, groups, made.func
        self.cells = CellMemory(self.runtime, made)

    @cached_property
    def variant(self) -> Variant:
        """The form as a kernel."""
        artifact = build(self.func, self.runtime.options, self.runtime.device.caps)
        return Variant(self.plan, artifact, self.args)

    def bind(self, call: Call) -> dict[str, Storage]:
        """The arrays that it notes in. Raises DeviceError where there is no memory for them."""
        own = self.cells.bind(call.arrays)
        own[MET] = Storage(self.runtime, i32, (len(self.groups),))
        return own

    def met(self, own: Mapping[str, Storage]) -> list[int]:
        """The numbers of the groups that met, after a run; waits."""
        numbers = np.flatnonzero(own[MET].to_numpy())
        self.cells.give_back(own)
        return [int(n) for n in numbers]


class Trial(Observed):
    """A kernel that is tried before it runs. `needs` are the arrays that decide what it finds,
    `numbers` the arguments; what it finds is not `is_certain` to hold for the run if random numbers
    or the order of iterations do."""

    def __init__(self, call: Call, groups: Sequence[Group], made: Noted) -> None:
        super().__init__(call, groups, made)
        ops = list(walk(made.func.body))
        used = used_in(made.func.body)
        draws = any(op.kind == "random" and op in used for op in ops)
        self.is_certain = not (draws or depends_on_order(made.func))
        given = [p for p in made.func.params if isinstance(p.type, Scalar | Tensor)]
        self.numbers = sorted(p.name for p in given if p in used)
        artifact = build(made.func, self.runtime.options, self.runtime.device.caps)
        self.executable = call.plan.executable.derive(artifact, call.args)
        self.writes = artifact.writes & call.plan.written
        self.needs = sorted(artifact.reads & call.arrays.keys())

    def key(self, call: Call) -> tuple[Any, ...] | None:
        """What decides what it finds, besides arrays; None if that is not known."""
        numbers = numbers_of(call)
        if not numbers.keys() >= set(self.numbers):
            return None
        shapes = tuple([a.shape for a in call.arrays.values()])
        return (shapes, *(numbers[name] for name in self.numbers))

    def run(self, call: Call) -> frozenset[int]:
        """The numbers of the groups that met. Raises DeviceError if there is no memory for it."""
        with restoring(self.runtime.lock), self.runtime.lock:
            own = self.bind(call)
            copies = {name: copy_of(call.arrays[name]) for name in sorted(self.writes)}
            self.executable.launch(
                self.executable.bind(call.args, {**call.arrays, **copies, **own})
            )
            return frozenset(self.met(own))


def numbers_of(call: Call) -> dict[str, Any]:
    """The numbers among the arguments, by name: Python's and numpy's."""
    leaves = leaves_of(call.plan, call.args)
    return {p.name: arg for p, arg in leaves if isinstance(arg, int | float | np.number)}
