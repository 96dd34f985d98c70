"""What tapes did at the same calls before: a tree of traces, as tracing compilers keep.

What a tape notes of a call follows from the calls before it and from this one: from the kernels,
the arrays and the integers. So a tape whose calls are those of one before, in the same order, need
not find it out again: it launches, and makes the same copies of what is overwritten. Anything else
(a call that is another one, Python that reads or writes, an array that others see) is a side exit:
the calls until then are noted after all, with the copies that were made, and all goes on as usual.

Owns: the tree, which calls may stand in it, `Followed`, the step of a call that was not noted.
Must not know: what is noted.

    step = trace.find(name, plan, args)     # None where no tape has done that here
    trace.launch(step, tape.on_access)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.fields.storage import Storage
from vkchi.tape.calls import Call, adjoints_of, repeat_call
from vkchi.tape.log import Step
from vkchi.tape.repeated_taped_calls import find_repeated

if TYPE_CHECKING:
    from vkchi.fields.elements import Access
    from vkchi.launch import Plan
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.repeated_taped_calls import RepeatedTapedCall
    from vkchi.tape.snapshots import Save
    from vkchi.tape.steps import Entry

MOST_NODES = 1 << 14  # of a tree; a tape that begins then begins another one
Key = tuple[int, tuple[tuple[str, int], ...]]  # which `RepeatedTapedCall`, the integers
Watcher = Callable[[Storage, "Access"], None]


class Node:
    """A call of a trace: the copies made before it, and the calls that came after it. `loss` is
    that of the last tape that ended here without being refused; `count`, of a root, are the nodes
    of its tree."""

    __slots__ = ("after", "count", "loss", "saves")

    def __init__(self, saves: Sequence[Save] = ()) -> None:
        self.saves, self.count = saves, 0
        self.after: dict[Key, Node] = {}
        self.loss: weakref.ref[Any] | None = None


class Followed(Step):
    """A call that is like one of a tape before, which nobody has noted. `memory` are its arrays, or
    copies of what they held; `adjoints` are theirs, by the same names."""

    def __init__(
        self, node: Node, name: str, repeated: RepeatedTapedCall, args: tuple[Any, ...],
        memory: dict[str, Storage], adjoints: Mapping[str, Storage], made: GradientPlan,
        position: int,
    ) -> None:  # fmt: skip
        self.node, self.name, self.repeated, self.args = node, name, repeated, args
        self.memory, self.adjoints, self.made = memory, adjoints, made
        self.position = position

    @property
    def call(self) -> Call:
        """What it called."""
        return repeat_call(self.name, self.repeated, self.args)

    def repeat(self) -> None:
        """Call the kernel again."""
        self.repeated.plan.launch(self.args)

    def run(self) -> None:
        """Add to the adjoints."""
        self.made.launch(self.args, self.memory, self.adjoints, self.repeated)


class Trace:
    """Where a tape stands in the tree of its first kernel, after `length` calls: `done` are those
    that were not noted. It `is_over` where anything was done but calls that may stand there."""

    def __init__(self, *, is_followed: bool) -> None:
        self.is_over = not is_followed
        self.root: Node | None = None
        self.node: Node | None = None
        self.length = self.saved_bytes = 0
        self.done: list[Followed] = []
        self._watched: dict[int, Storage] = {}
        self._known: set[int] = set()  # kinds of calls whose arrays are watched

    # --- a tape that is noted --------------------------------------------------------------------

    def leave(self) -> None:
        """What comes now follows from more than calls."""
        self.is_over, self.node = True, None

    def begin(self, plan: Plan) -> Node:
        """The node before the first call, which is one of a kernel."""
        derived = plan.derived
        if derived.traces is None or derived.traces.count >= MOST_NODES:
            derived.traces = Node()
        self.root = self.node = derived.traces
        return derived.traces

    def grow(self, call: Call, saves: Sequence[Save]) -> None:
        """A call came next, before which these copies were made."""
        assert call.repeated is not None
        node = self.node or self.begin(call.plan)
        assert self.root is not None
        key = key_of(call.repeated, call.numbers)
        found = node.after.get(key)
        if found is None and self.root.count < MOST_NODES:
            self.root.count += 1
            found = node.after[key] = Node(tuple(saves))
        if found is None:
            self.leave()
        self.node, self.length = found, self.length + 1

    def end(self, loss: Any) -> None:
        """The tape ends here with this loss, and is not refused."""
        if self.node is not None:
            self.node.loss = weakref.ref(loss)

    # --- one that need not be --------------------------------------------------------------------

    def find(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Followed | None:
        """A call, if a tape has done that after the same calls."""
        repeated = None if self.is_over else find_repeated(plan, args)
        if repeated is None:
            return None
        node = self.node or self.begin(plan)
        found = node.after.get(key_of(repeated, repeated.numbers(args)))
        if found is None:
            return None
        memory = repeated.arrays(args)
        adjoints = adjoints_of(memory, repeated.constants)
        made = repeated.gradient(adjoints)
        if made is None:
            return None
        return Followed(found, name, repeated, args, memory, adjoints, made, self.length)

    def launch(self, step: Followed, watcher: Watcher) -> Any:
        """Do a call that was found; what it returns. Raises DeviceError where there is no memory
        for what must be kept."""
        step.made.reserve(step.args, step.memory)
        if step.repeated.serial not in self._known:
            for array in step.memory.values():
                self._watched[id(array.whole)] = array.whole
                array.whole.watch = watcher
            self._known.add(step.repeated.serial)
        for name in step.repeated.plan.written:
            if name in step.memory:
                step.memory[name].whole.overwritten += 1
        self.done.append(step)
        try:
            for save in step.node.saves:  # for calls before it, and for itself
                self.saved_bytes += save.make(self.done, self.saved_bytes).size_bytes
            result = step.repeated.call.launch(step.args)
        except BaseException:
            del self.done[self.length :]
            raise
        self.node, self.length = step.node, self.length + 1
        return result

    def ended_with(self, loss: Any) -> bool:
        """Whether a tape ended here with this loss."""
        node = self.node
        return node is not None and node.loss is not None and node.loss() is loss

    def stop_watching(self, watcher: Watcher) -> None:
        """Nobody asks any more what Python does to arrays of calls that were not noted."""
        for array in self._watched.values():
            if array.watch == watcher:
                array.watch = None
        self._watched.clear()


def key_of(repeated: RepeatedTapedCall, numbers: Mapping[str, int]) -> Key:
    """What tells calls apart that come after the same calls."""
    return repeated.serial, tuple(numbers.items())


def may_be_traced(entry: Entry) -> bool:
    """Whether what a tape notes of a call follows from its kernel, its arrays and its integers, and
    from the calls before: it warns of nothing, names no line of the program around, as of kernels
    of ours, and its gradient, which is known by its arrays, needs nothing beside."""
    call, adjoints = entry.call, entry.gradients.arrays
    return (
        call.repeated is not None
        and call.missing == "error"
        and not call.plan.is_ours
        and not (call.hosts or entry.drawn or entry.form)
        and call.repeated.gradient(adjoints) is entry.plan
        and not any(array.is_gradient for array in call.arrays.values())
    )
