"""Call cache for recorded calls of one kernel.

Calls with the same arrays, fields and objects share data; scalars may differ. The data are names
and shapes of the arrays, the gradient, and prepared launches. Arguments are referred to weakly, or
taken from each call. Contents of arrays and the state of a tape are not cached.

    repeated = find_repeated(kernel, args)    # None for the first such call
    repeated.arrays(args)                   # {"x": ..., "y": ...}
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from vkchi.calls.facts import facts
from vkchi.device import IMPORTED
from vkchi.fields.storage import Storage
from vkchi.interop.in_place import HostNdarray
from vkchi.interrupts.weak import insert_bounded
from vkchi.launch.commands import RepeatedCommands
from vkchi.launch.entry import Entry, make_entry
from vkchi.ndarray import Ndarray

if TYPE_CHECKING:
    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.launch.executable import Arrays, Executable
    from vkchi.tape.plan import GradientPlan

MOST_REPEATED = 16  # cached kinds of calls per kernel
MOST_CASES = 4096  # cached cases (integer values) per kind of call
Buffers = tuple[Hashable, ...]
Adjoints = list["weakref.ref[Storage]"]
NO_GRADIENT: tuple[Adjoints, None] = [], None


class RepeatedTapedCall:
    """Data shared by recorded calls with the same objects.

    - `shapes`: shapes of the arrays, in the order of `arrays`.
    - `constants`: arrays that the kernel treats as constants.
    - `smooth`: names of other arrays of floats; True for ndarrays, which may get other gradients.
    - `known`: facts about calls with the saved gradient (`tape.CallFacts`), by `key_of` their
      arguments and the names of constant arrays.
    - `steps`: calls that follow known ones (`tape.TrieEdge`), by node and `key_of` their arguments.
    - `deciding`: positions of the integers on which facts may depend; None before the first facts.
    """

    def __init__(
        self, kernel: CompiledKernel, call: Entry, arrays: Mapping[str, Storage],
        constants: frozenset[str],
    ) -> None:  # fmt: skip
        self.call, self.kernel = call, kernel
        self.constants = constants
        self.shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        self.smooth = {name: isinstance(array, Ndarray) for name, array in arrays.items()
                       if array.compute.kind == "f" and name not in constants}  # fmt: skip
        names = [(p.name, k) for k, p in enumerate(kernel.parameters)]
        self.passed = [(name, k) for name, k in names if kernel.parameters[k].kind == "array"]
        self.scalars = [(name, k) for k, name in call.scalars]
        self.known: dict[Hashable, Any] = {}
        self.deciding: list[int] | None = None
        self.steps: dict[tuple[int, Hashable], Any] = {}
        self._gradient: tuple[Adjoints, GradientPlan] | None = None
        self._commands: tuple[Executable, Buffers, RepeatedCommands] | None = None

    def arrays(self, args: tuple[Any, ...]) -> dict[str, Storage]:
        found = self.kernel.fields(args)
        for name, k in self.passed:
            found[name] = args[k]
        return found

    def numbers(self, args: tuple[Any, ...]) -> dict[str, int]:
        return {name: args[k] for name, k in self.scalars if isinstance(args[k], int)}

    def key_of(self, args: tuple[Any, ...]) -> Hashable:
        """The integers on which facts may depend; None for those that facts do not know."""
        if self.deciding is None:
            names = facts.deciding_integers(self.kernel)
            self.deciding = [k for name, k in self.scalars if name in names]
        return tuple([args[k] if isinstance(args[k], int) else None for k in self.deciding])

    def gradient(self, adjoints: Mapping[str, Storage]) -> GradientPlan | None:
        """The saved gradient if it is the one for these adjoints, else None."""
        known, made = self._gradient or NO_GRADIENT
        if len(adjoints) != len(known):
            return None
        for found, adjoint in zip(known, adjoints.values()):  # in the order of the arrays
            if found() is not adjoint:
                return None
        return made

    def note_gradient(self, adjoints: Mapping[str, Storage], made: GradientPlan) -> None:
        known = [weakref.ref(adjoint) for adjoint in adjoints.values()]
        self.known = {}
        self._gradient = known, made  # one assignment: an interrupt must not mix two gradients

    def launch(self, executable: Executable, args: tuple[Any, ...], arrays: Arrays) -> None:
        """Launch an executable that takes the kernel's arguments.

        The caller holds the runtime's lock.

        If the buffers are those of the previous launch, the bound arguments are reused.
        """
        buffers = buffers_of(arrays)
        kept = self._commands
        if kept is not None and kept[0] is executable and kept[1] == buffers is not None:
            commands = kept[2]
        else:
            bound = executable.bind(args, arrays)
            commands = RepeatedCommands(executable, bound, self.call.scalars)
            self._commands = None if buffers is None else (executable, buffers, commands)
        if commands.met is not None:
            commands.count(commands.met, lambda: executable.bind(args, arrays).arrays)
        commands.fill(args)
        commands.record(executable.runtime.device)


def buffers_of(arrays: Arrays) -> Buffers | None:
    """Key of the buffers of these arrays, in order; None if one shares its memory with other code.

    Equal keys mean equal buffers, even after a buffer was freed, and distinguish parts of one
    buffer.
    """
    found: list[Hashable] = []
    for array in arrays.values():
        buffer = array.buffer
        found += (buffer.key, buffer.address, array.shape)
    return None if IMPORTED in found else tuple(found)


def find_repeated(kernel: CompiledKernel, args: tuple[Any, ...]) -> RepeatedTapedCall | None:
    return kernel.derived.repeated.get(kernel.key(args))


def note_repeated(
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    arrays: Mapping[str, Storage],
    constants: frozenset[str],
) -> RepeatedTapedCall | None:
    """Cache the data shared with later calls; None if the call cannot be repeated that way.

    At most MOST_NOTES calls per kernel are cached.
    """
    derived = kernel.derived
    if not derived.notes_left or any(isinstance(a, HostNdarray) for a in arrays.values()):
        return None
    if any(p.kind == "pack" for p in kernel.parameters):
        return None
    call = make_entry(kernel, args)
    if call is None:
        return None
    derived.notes_left -= 1
    made = RepeatedTapedCall(kernel, call, arrays, constants)
    insert_bounded(derived.repeated, kernel.key(args), made, MOST_REPEATED)
    return made
