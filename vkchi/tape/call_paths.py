"""Tapes that make the same calls as earlier tapes: their bookkeeping is deferred, their gradients
are prepared.

The records of a call depend only on the calls before it, as long as nothing else happens in the
tape. These sequences of calls form a trie. Its nodes are numbers, 0 for a new tape. An edge is a
`TrieEdge`, of one call with certain arrays, objects and integers. It names the steps before the
call, above all the copies of contents that it overwrites.

A tape that follows the edges (`CallPath`) runs these calls, and keeps their arguments. All else is
recorded when something reads the tape's records (`CallPath.catch_up`): another kind of call, an
access of Python, another thread. If nothing does, and a tape ended at the same node before, the
gradients run from commands that were made then (`PreparedGradients`).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from itertools import chain, count
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.calls.repeated import MOST_CASES, RepeatedTapedCall, find_repeated
from vkchi.errors import DeviceError, VkchiError
from vkchi.fields.array_versions import copy_boxes
from vkchi.fields.storage import Storage
from vkchi.interrupts.local import local
from vkchi.interrupts.weak import insert_bounded
from vkchi.launch.commands import CommandList, RepeatedCommands
from vkchi.tape import queries
from vkchi.tape.arguments import seed
from vkchi.tape.log import Launch
from vkchi.tape.snapshots import TapeReport
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.runtime import Runtime
    from vkchi.tape.call_facts import CallFacts
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.tape import Tape
    from vkchi.vk.sequence import CommandSequence

    Ref = weakref.ref[Storage]

NODES = count(1)  # 0 is the root
MOST_CALLS = 4096  # of a path
MOST_PREPARED, MOST_STEPS = 32, 8192  # tapes with prepared gradients, per runtime; their calls
MOST_AT_ONCE = 256  # dispatches per command
LARGEST_SPARE = 1 << 14  # bytes of a copy that is kept for the next tape


class TrieEdge(NamedTuple):
    """A call at a node of the trie.

    - `node`: the node after it.
    - `opened`: its arrays that no call before it uses.
    - `saves`: arrays to be copied before it runs, with the parts (None: whole arrays).
    - `written`: the arrays that it writes.
    - `smooth`: its arrays that have a gradient, with it, by parameter name; `rough`: other arrays
      of floats.
    """

    node: int
    facts: CallFacts
    opened: tuple[Ref, ...]
    saves: tuple[tuple[Ref, list[Box] | None], ...]
    written: tuple[Ref, ...]
    smooth: dict[str, tuple[Ref, Ref]]
    rough: tuple[Ref, ...]


class FollowedCall(NamedTuple):
    """A call that ran and is not recorded yet."""

    repeated: RepeatedTapedCall
    step: TrieEdge
    gradients: list[Storage]
    args: tuple[Any, ...]

    @property
    def numbers(self) -> tuple[Any, ...]:
        scalars = self.repeated.call.scalars
        return tuple([self.args[k] for k, _ in scalars]) if scalars else ()

    @property
    def named_gradients(self) -> dict[str, Storage]:
        return dict(zip(self.step.smooth, self.gradients, strict=True))


class CallPath:
    """The calls of a tape, as long as they are known.

    - `node`: where they lead to; `length`: their number.
    - `calls`: those that are not recorded yet; `copies` are made for them, `arrays` watched.
    - `is_whole`: these are all calls of the tape.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape, self.node, self.length, self.is_whole = tape, 0, 0, True
        self.calls: list[FollowedCall] = []
        self.copies: list[Storage] = []
        self.arrays: list[Storage] = []
        self.seen: set[int] = set()  # ids of watched arrays, once calls are recorded

    @property
    def title(self) -> str:
        """Name of the first call that is not recorded yet."""
        return self.calls[0].repeated.kernel.artifact.name if self.calls else self.tape.title

    def find(self, kernel: CompiledKernel, args: tuple[Any, ...]) -> FollowedCall | None:
        """Return the call, if it is known at this node and nothing else happens; else None."""
        tape = self.tape
        if tape.inside or tape.runtime.exported or get_ident() != tape.thread:
            return None
        repeated = find_repeated(kernel, args)
        if repeated is None:
            return None
        step: TrieEdge | None = repeated.steps.get((self.node, repeated.key_of(args)))
        if step is None:
            return None
        gradients: list[Storage] = []
        for array, known in step.smooth.values():
            gradient = known()
            if gradient is None:
                return None
            gradients.append(gradient)
            if getattr(array(), "grad", None) is not gradient:
                return None
        for array in step.rough:
            found = array()
            if found is None or found.companion("grad") is not None:
                return None
        return FollowedCall(repeated, step, gradients, args)

    def follow(self, name: str, call: FollowedCall) -> Any:
        """Run a call and return its result.

        An exception that leaves it may end the path, as a call that was refused is not recorded.
        """
        tape, (repeated, step, _, args) = self.tape, call
        begun, before = tape.begin(name)
        try:
            if step.facts.made is not None and step.facts.made.rooms:
                step.facts.made.reserve(args, repeated.arrays(args))
            copies = [copy_parts(array(), boxes) for array, boxes in step.saves]
        except DeviceError:
            del begun[before:]
            tape.settle()  # the error of a recorded call says more
            return tape.launch(name, repeated.kernel, args)
        for one in step.opened:
            array = one()
            assert array is not None
            array.watch = tape.on_access
            self.arrays.append(array)
        self.calls.append(call)
        self.copies += copies
        self.node, self.length = step.node, self.length + 1
        try:
            result = repeated.call.launch(args)
        except local(VkchiError):
            self.calls.pop()
            tape.settle()
            del begun[before:]
            raise
        del begun[before:]
        return result

    def catch_up(self) -> None:
        """Record the calls that ran."""
        tape, calls, snapshots = self.tape, self.calls, self.tape.snapshots
        if not calls:
            return
        snapshots.ready = deque(self.copies)
        for call in calls:
            repeated, step, _, args = call
            name, gradients = repeated.kernel.artifact.name, call.named_gradients
            begun, before = tape.begin(name)
            bound = tape.known.bound.get(id(repeated))
            if bound is None or bound.gradients != gradients:
                bound = tape.known.bind(name, repeated.arrays(args), gradients, repeated)
            launch = Launch(bound, args, step.facts)
            tape.begin_launch(launch)
            tape.note_known(launch)
            tape.entries.append(launch)
            del begun[before:]
        snapshots.ready.clear()
        self.seen.update(id(array) for array in self.arrays)
        self.calls, self.copies, self.arrays, self.is_whole = [], [], [], False

    def extend(self, launch: Launch, saved: int) -> None:
        """Add a call that was just recorded to the trie. Copies from the index `saved` on were made
        for it."""
        bound, snapshots = launch.bound, self.tape.snapshots
        repeated = bound.repeated
        assert repeated is not None
        smooth = {name: (weakref.ref(bound.arrays[name]), weakref.ref(gradient))
                  for name, gradient in bound.gradients.items()}  # fmt: skip
        rough = [bound.arrays[name] for name in repeated.smooth if name not in smooth]
        opened = [one.array for one in bound.accounts.values() if id(one.array) not in self.seen]
        self.seen.update(map(id, opened))
        saves = []
        for reads, copy in snapshots.copied[saved:]:
            array, boxes = reads[0].array, [read.box for read in reads]
            is_part = copy.size_bytes < array.size_bytes
            saves.append((weakref.ref(array), boxes if is_part else None))
        written = [bound.accounts[name].array for name, _ in launch.facts.writes]
        step = TrieEdge(
            next(NODES), launch.facts, tuple(map(weakref.ref, opened)), tuple(saves),
            tuple(map(weakref.ref, written)), smooth, tuple(map(weakref.ref, rough)),
        )  # fmt: skip
        key = self.node, repeated.key_of(launch.args)
        insert_bounded(repeated.steps, key, step, MOST_CASES)
        self.node, self.length, self.is_whole = step.node, self.length + 1, False

    def run_gradients(self) -> TapeReport | None:
        """Run the prepared gradients of these calls, and return the tape's report.

        None without effect if there are none, or if they would not do the same as others.
        """
        tape, runtime = self.tape, self.tape.runtime
        prepared: PreparedGradients | None = runtime.prepared.get(self.node)
        if prepared is None or not (self.is_whole and tape.may_prepare()):
            return None
        if any(tape.unfinished.values()) or not prepared.bind(tape.loss, self.calls, self.copies):
            return None
        tape.state, tape.path = "evaluated", None
        self.forget()
        seed(tape.loss, 1.0)
        prepared.run(runtime.device)
        spare_copies(runtime, self.copies)
        return TapeReport(len(self.calls), 0, 0, 0, sum(copy.size_bytes for copy in self.copies))

    def forget(self) -> None:
        """End the path without records."""
        for one in chain(*[call.step.written for call in self.calls]):
            array = one()
            if array is not None:
                array.overwritten += 1
        for array in self.arrays:
            if array.watch == self.tape.on_access:
                array.watch = None


# --- copies --------------------------------------------------------------------------------------


def copy_parts(array: Storage | None, boxes: list[Box] | None) -> Storage:
    """Copy an array on the device: at least these parts, or (None) all of it, to an unused copy if
    there is one. Raises DeviceError."""
    assert array is not None
    if boxes is not None:
        return copy_boxes(array, boxes)
    key, spare = copy_key(array), array.runtime.spare_copies
    for k in reversed(range(len(spare))):
        if copy_key(spare[k]) == key:
            made: Storage = spare[k]
            del spare[k]
            array.device.copy(array.buffer, made.buffer, array.size_bytes)
            return made
    return array.copied()


def copy_key(array: Storage) -> tuple[Any, ...]:
    return array.elem, array.shape, array.layout, array.stored, array.size_bytes


def spare_copies(runtime: Runtime, copies: Sequence[Storage]) -> None:
    """Keep small copies that nothing refers to any more. The next tape takes them in the order of
    these. The oldest ones beyond `spare_copies.maxlen` are dropped."""
    runtime.spare_copies += [one for one in reversed(copies) if one.size_bytes <= LARGEST_SPARE]


# --- gradients -----------------------------------------------------------------------------------


class PreparedStep:
    """The gradient of one call.

    - `reads`: arrays that the gradient reads in a copy, by name, with the copy's number.
    - `commands`: None until `bind`; `numbers`: those that they have.
    - `used`: the copies and the arrays of the plan that they use.
    """

    def __init__(self, plan: GradientPlan, reads: dict[str, int]) -> None:
        self.plan, self.reads = weakref.ref(plan), reads
        self.commands: RepeatedCommands | None = None
        self.numbers: tuple[Any, ...] = ()
        self.used: list[Ref] = []

    def is_bound(self, call: FollowedCall, copies: Sequence[Storage]) -> bool:
        """True if the commands are those for this call, but for its numbers."""
        plan = self.plan()
        if plan is None or self.commands is None:
            return False
        if not (self.reads or plan.buffers):
            return not self.used
        if plan.rooms and not is_same(self.numbers, call.numbers):
            return False  # they decide about the size of the plan's arrays
        used = [*[copies[k] for k in self.reads.values()], *plan.buffers.values()]
        return [id(one) for one in used] == [id(one()) for one in self.used]

    def bind(self, call: FollowedCall, copies: Sequence[Storage]) -> bool:
        """Make the commands; False if there are none that may be repeated."""
        plan, (repeated, _, _, args) = self.plan(), call
        self.commands = None  # until all is known about them
        if plan is None:
            return False
        own = {name: copies[k] for name, k in self.reads.items()}
        arrays = {**repeated.arrays(args), **own}
        scalars = repeated.call.scalars
        made = plan.commands(args, arrays, call.named_gradients, scalars)
        used = [*own.values(), *plan.buffers.values()]
        self.numbers, self.used = call.numbers, [weakref.ref(one) for one in used]
        self.commands = made
        return made is not None

    def fill(self, call: FollowedCall) -> None:
        """Take the numbers of a call."""
        assert self.commands is not None
        self.numbers = ()  # until all are filled in
        self.commands.fill(call.args)
        self.numbers = call.numbers


def is_same(numbers: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """True if these numbers certainly have equal bits."""
    if len(numbers) != len(others):
        return False
    for a, b in zip(numbers, others):
        if a is not b and (a != b or type(a) is not type(b) or a == 0):
            return False
    return True


class PreparedGradients:
    """The gradients of the calls that lead to a node, last call first.

    - `is_new`: the last `bind` changed something.
    - `sequences`: the commands, recorded once after a `bind` that changed nothing.
    """

    sequences: list[CommandSequence] | None

    def __init__(self, loss: Storage, gradient: Storage, steps: list[PreparedStep]) -> None:
        self.steps, self.loss, self.gradient = steps, weakref.ref(loss), weakref.ref(gradient)
        self.is_new, self.sequences = True, None

    def bind(self, loss: Any, calls: Sequence[FollowedCall], copies: Sequence[Storage]) -> bool:
        """Make the commands for the gradients of a loss through these calls, as far as those that
        there are do not fit. False if there are none that may be repeated."""
        known = self.loss()
        if known is None or known is not loss or self.gradient() is not known.companion("grad"):
            return False
        try:
            for call in calls:
                for life in call.repeated.kernel.lives:
                    life.check_alive()
        except local(VkchiError):
            return False  # the error is that of the gradient
        pairs = [*zip(self.steps, reversed(calls), strict=True)]
        unbound = [pair for pair in pairs if not pair[0].is_bound(pair[1], copies)]
        changed = [pair for pair in pairs if not is_same(pair[0].numbers, pair[1].numbers)]
        self.is_new = bool(unbound or changed)
        if self.is_new:
            self.sequences = None
        if not all([step.bind(call, copies) for step, call in unbound]):
            return False
        for step, call in changed:
            step.fill(call)
        # Steps of one kernel may replace the arrays of each other.
        return not unbound or all([step.is_bound(call, copies) for step, call in pairs])

    def run(self, device: Device) -> None:
        """Add to the gradients."""
        units = [step.commands for step in self.steps if step.commands is not None]
        if device.is_timing or (self.sequences is None and self.is_new):
            for unit in units:
                unit.record(device)
            return
        if self.sequences is None:
            for unit in units:
                CommandList.refresh(unit)
            commands = [command for unit in units for command in unit.commands]
            parts = range(0, len(commands), MOST_AT_ONCE)
            self.sequences = [device.sequence(commands[k : k + MOST_AT_ONCE]) for k in parts]
        for sequence in self.sequences:
            device.execute(sequence)


def prepare(tape: Tape, path: CallPath) -> None:
    """Prepare the gradients of a tape that has run them, if this path ends at its node a second
    time and only its launches matter."""
    known: dict[int, PreparedGradients | None] = tape.runtime.prepared
    made = prepared_gradients(tape, path.length) if path.node in known else None
    insert_bounded(known, path.node, made, MOST_PREPARED)
    while sum(len(one.steps) for one in known.values() if one is not None) > MOST_STEPS:
        known.pop(next(iter(known)))
    if made is not None:
        spare_copies(tape.runtime, [copy for _, copy in tape.snapshots.copied])


def prepared_gradients(tape: Tape, length: int) -> PreparedGradients | None:
    ledger, loss = tape.ledger, tape.loss
    if len(tape.entries) != length:
        return None  # another thread called a kernel after the last call of the path
    gradient = loss.companion("grad") if isinstance(loss, Storage) else None
    if gradient is None or not tape.may_prepare() or ledger.fills or ledger.hosts:
        return None
    if queries.leftover_gradients(ledger, loss, is_cleared=True):
        return None
    numbers = {id(copy): k for k, (_, copy) in enumerate(tape.snapshots.copied)}
    steps = []
    for launch in reversed(tape.entries):
        if type(launch) is not Launch or launch.special is not None:
            return None
        copies = {name: read.copy for name, read in launch.reads.items() if read.copy is not None}
        if launch.bound.repeated is None or any(id(one) not in numbers for one in copies.values()):
            return None
        reads = {name: numbers[id(copy)] for name, copy in copies.items()}
        steps.append(PreparedStep(launch.plan, reads))
    return PreparedGradients(loss, gradient, steps)
