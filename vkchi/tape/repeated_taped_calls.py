"""Recorded calls of the same arrays, fields and objects as one before, with other numbers.

Owns: what a plan's calls have in common then, found out once: which arrays they work on, their
gradient, how they are launched. Must not know: tapes, how gradients are built.

Nothing is kept alive but the plan's own fields: arguments are known by weak references, and taken
from the call itself. What follows from their contents, or from what a tape knows of them, is no
part of it: that is asked at each call.

    repeated = find_repeated(plan, args)    # None where nothing like it was called
    repeated.arrays(args)                   # {"x": ..., "y": ...}
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from vkchi.buffer import IMPORTED
from vkchi.fields.storage import Storage
from vkchi.interop.in_place import HostNdarray
from vkchi.interrupts.bounded import remember
from vkchi.launch.prepared import Prepared
from vkchi.launch.repeated_calls import RepeatedCall, note_repeated_call

if TYPE_CHECKING:
    from vkchi.launch import Plan
    from vkchi.launch.executable import Arrays, Executable
    from vkchi.tape.derived import Case
    from vkchi.tape.plan import GradientPlan

MOST_REPEATED = 16  # kinds of calls that are kept of a plan
MOST_CASES = 4096  # calls with different integers of one kind
Buffers = tuple[tuple[str, int, int, tuple[int, ...]], ...]
Adjoints = list[tuple[str, "weakref.ref[Storage]"]]
NO_GRADIENT: tuple[Adjoints, None] = [], None
SERIAL = count()


class RepeatedTapedCall:
    """What calls with these objects have in common. `shapes` are those of their arrays, in the
    order of `arrays`; `constants` are the names of arrays that the kernel takes for constants;
    `serial` stands for them and the gradient kept, and for no others, ever."""

    def __init__(
        self, plan: Plan, call: RepeatedCall, arrays: Mapping[str, Storage],
        constants: frozenset[str],
    ) -> None:  # fmt: skip
        self.call, self.plan, self.serial = call, plan, next(SERIAL)
        self.constants = constants
        self.shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        names = [(p.name, k) for k, p in enumerate(plan.parameters)]
        self.passed = [(name, k) for name, k in names if plan.parameters[k].kind == "array"]
        self.scalars = [(number.name, number.argument) for number in call.numbers]
        self.cases: dict[tuple[tuple[str, int], ...], Case] = {}
        self._gradient: tuple[Adjoints, GradientPlan] | None = None
        self._prepared: tuple[Executable, Buffers, Prepared] | None = None

    def arrays(self, args: tuple[Any, ...]) -> dict[str, Storage]:
        """The arrays of a call, by parameter name."""
        found = self.plan.fields(args)
        for name, k in self.passed:
            found[name] = args[k]
        return found

    def numbers(self, args: tuple[Any, ...]) -> dict[str, int]:
        """Its integers by name."""
        return {name: args[k] for name, k in self.scalars if isinstance(args[k], int)}

    def case(self, numbers: Mapping[str, int]) -> Case:
        """What answers about it depend on: one object for equal calls, which is found sooner."""
        key = tuple(numbers.items())
        found = self.cases.get(key)
        if found is None:
            found = key, self.shapes
            remember(self.cases, key, found, MOST_CASES)
        return found

    def gradient(self, adjoints: Mapping[str, Storage]) -> GradientPlan | None:
        """The gradient by these arrays, if that is the one of a call before."""
        known, made = self._gradient or NO_GRADIENT
        if len(adjoints) != len(known):
            return None
        for (name, found), (given, adjoint) in zip(known, adjoints.items()):
            if name != given or found() is not adjoint:
                return None
        return made

    def note_gradient(self, adjoints: Mapping[str, Storage], made: GradientPlan) -> None:
        """Keep the gradient by these arrays."""
        known = [(name, weakref.ref(adjoint)) for name, adjoint in adjoints.items()]
        self.serial = next(SERIAL)  # first: what is known of the gradient before is not of this one
        self._gradient = known, made  # at once: an exception in between would mix two of them

    def launch(self, executable: Executable, args: tuple[Any, ...], arrays: Arrays) -> None:
        """Launch dispatches that take the arguments of the kernel, with all arrays given, under the
        runtime's lock: with those of the launch before they are bound already."""
        buffers = buffers_of(arrays)
        kept = self._prepared
        if kept is not None and kept[0] is executable and kept[1] == buffers is not None:
            prepared = kept[2]
        else:
            numbers = [(number.argument, number.name) for number in self.call.numbers]
            prepared = Prepared(executable, executable.bind(args, arrays), numbers)
            self._prepared = None if buffers is None else (executable, buffers, prepared)
        if prepared.met is not None:
            prepared.count(prepared.met, lambda: executable.bind(args, arrays).arrays)
        prepared.fill(args)
        prepared.record()


def buffers_of(arrays: Arrays) -> Buffers | None:
    """What tells arrays of the same names and types apart, now and later, parts of one buffer too;
    None where some share their memory with others."""
    found = [(name, a.buffer.key, a.buffer.address, a.shape) for name, a in arrays.items()]
    return None if any(key == IMPORTED for _, key, _, _ in found) else tuple(found)


def find_repeated(plan: Plan, args: tuple[Any, ...]) -> RepeatedTapedCall | None:
    """What is known of a call like this one."""
    known = plan.derived.repeated
    found = known.get(objects_among(plan, args)) if known else None
    return found if found is not None and found.call.takes(args) else None


def note_repeated(
    plan: Plan, args: tuple[Any, ...], arrays: Mapping[str, Storage], constants: frozenset[str]
) -> RepeatedTapedCall | None:
    """Keep what calls like this one have in common; None where one is not like another. Not for
    ever: some programs repeat none."""
    derived = plan.derived
    if not derived.notes_left or any(isinstance(a, HostNdarray) for a in arrays.values()):
        return None
    call = note_repeated_call(plan, plan.parameters, args)
    if call is None:
        return None
    derived.notes_left -= 1
    if not call.takes(args):  # numbers that are bound otherwise than they are: 2.0 ** 200 as f32
        return None
    made = RepeatedTapedCall(plan, call, arrays, constants)
    remember(derived.repeated, objects_among(plan, args), made, MOST_REPEATED)
    return made


def objects_among(plan: Plan, args: tuple[Any, ...]) -> tuple[int, ...]:
    """The `id` of the arguments that are no numbers."""
    return tuple([id(arg) for p, arg in zip(plan.parameters, args) if p.kind != "scalar"])
