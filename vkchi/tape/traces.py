"""Trace trees for tapes: a tape that repeats the calls of an earlier tape skips their analysis.

The analysis of a call is a function of the kernels, arrays and integers of this call and all calls
before it. A tape that follows a path of the tree therefore only launches kernels and makes the
recorded copies. Other events are *side exits*, such as an unknown call or an access by Python to an
array of the calls. The calls up to the exit are then analyzed after the fact, with the copies that
were made. Recording continues as usual. Tapes with `memory`, `validation` or `grad_check` follow no
trace. Source: trace trees of tracing compilers.

    step = trace.find(name, plan, args)     # None if no earlier tape did this call here
    trace.launch(step, tape.on_access)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.calls.call import KernelCall, repeat_call
from vkchi.calls.repeated import find_repeated
from vkchi.fields.storage import Storage
from vkchi.tape.adjoints import adjoints_of
from vkchi.tape.log import TapeStep

if TYPE_CHECKING:
    from vkchi.calls.repeated import RepeatedTapedCall
    from vkchi.fields.elements import ArrayAccess
    from vkchi.launch import Plan
    from vkchi.tape.plan import GradientPlan
    from vkchi.tape.snapshots import SnapshotCopy
    from vkchi.tape.steps import RecordedCall

MOST_NODES = 1 << 14  # limit per tree; the next tape starts a new tree
Key = tuple[int, tuple[tuple[str, int], ...]]  # serial of the `RepeatedTapedCall`, integers
Watcher = Callable[[Storage, "ArrayAccess"], None]


class TraceNode:
    """A call in a trace tree: the copies made before it (`saves`), and the calls that followed it.

    `loss` is the loss of the last tape that ended here and passed its checks. `count` is the number
    of calls in the tree, kept at the root, which is no call.
    """

    __slots__ = ("after", "count", "loss", "saves")

    def __init__(self, saves: Sequence[SnapshotCopy] = ()) -> None:
        self.saves, self.count = saves, 0
        self.after: dict[Key, TraceNode] = {}
        self.loss: weakref.ref[Any] | None = None


class TracedCall(TapeStep):
    """A call that follows a trace and has not been analyzed.

    `memory` holds its arrays, or copies of their contents before the call; `adjoints` their
    gradients.
    """

    def __init__(
        self, node: TraceNode, name: str, repeated: RepeatedTapedCall, args: tuple[Any, ...],
        memory: dict[str, Storage], adjoints: Mapping[str, Storage], made: GradientPlan,
    ) -> None:  # fmt: skip
        self.node, self.name, self.repeated, self.args = node, name, repeated, args
        self.memory, self.adjoints, self.made = memory, adjoints, made

    @property
    def call(self) -> KernelCall:
        return repeat_call(self.name, self.repeated, self.args)

    def repeat(self) -> None:
        self.repeated.plan.launch(self.args)

    def run(self) -> None:
        self.made.launch(self.args, self.memory, self.adjoints, self.repeated)


class Trace:
    """Position of a tape in the trace tree of its first kernel.

    - `length`: number of calls so far.
    - `done`: calls that ran from the trace and were not analyzed.
    - `is_over`: the tape has left the tree, or follows none.
    """

    def __init__(self, *, is_followed: bool) -> None:
        self.is_over = not is_followed
        self.root: TraceNode | None = None
        self.node: TraceNode | None = None
        self.length = self.saved_bytes = 0
        self.done: list[TracedCall] = []
        self._watched: dict[int, Storage] = {}
        self._known: set[int] = set()  # serials of calls whose arrays are watched

    # --- growing the tree ------------------------------------------------------------------------

    def leave(self) -> None:
        self.is_over, self.node = True, None

    def begin(self, plan: Plan) -> TraceNode:
        derived = plan.derived
        if derived.traces is None or derived.traces.count >= MOST_NODES:
            derived.traces = TraceNode()
        self.root = self.node = derived.traces
        return derived.traces

    def grow(self, call: KernelCall, saves: Sequence[SnapshotCopy]) -> None:
        """Move to the node of a call, created with the copies made before it if the call is new
        here.

        Leave the tree if it is full.
        """
        assert call.repeated is not None
        node = self.node or self.begin(call.plan)
        assert self.root is not None
        key = key_of(call.repeated, call.numbers)
        found = node.after.get(key)
        if found is None and self.root.count < MOST_NODES:
            self.root.count += 1
            found = node.after[key] = TraceNode(tuple(saves))
        if found is None:
            self.leave()
        self.node, self.length = found, self.length + 1

    def end(self, loss: Any) -> None:
        if self.node is not None:
            self.node.loss = weakref.ref(loss)

    # --- following the tree ----------------------------------------------------------------------

    def find(self, name: str, plan: Plan, args: tuple[Any, ...]) -> TracedCall | None:
        """Return the next call if an earlier tape did it after the same calls, and its gradient is
        still the saved one; else None."""
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
        return TracedCall(found, name, repeated, args, memory, adjoints, made)

    def launch(self, step: TracedCall, watcher: Watcher) -> Any:
        """Make the recorded copies, run a call of the trace, append it to `done` and return its
        result.

        From then on, its arrays call `watcher` before Python accesses them. Raises DeviceError if
        memory is short.
        """
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
            for save in step.node.saves:  # for earlier calls and this one
                memories = [done.memory for done in self.done]
                self.saved_bytes += save.make(memories, self.saved_bytes).size_bytes
            result = step.repeated.call.launch(step.args)
        except BaseException:
            del self.done[self.length :]
            raise
        self.node, self.length = step.node, self.length + 1
        return result

    def ended_with(self, loss: Any) -> bool:
        node = self.node
        return node is not None and node.loss is not None and node.loss() is loss

    def stop_watching(self, watcher: Watcher) -> None:
        for array in self._watched.values():
            if array.watch == watcher:
                array.watch = None
        self._watched.clear()


def key_of(repeated: RepeatedTapedCall, numbers: Mapping[str, int]) -> Key:
    return repeated.serial, tuple(numbers.items())


def may_be_traced(entry: RecordedCall) -> bool:
    """True if later tapes may skip the analysis of a call.

    Its kernel is not one of vkchi's own, and its data is cached (`repeated`) with the gradient of
    this call. It has no host arrays, logged draws, variant, or gradients as arguments. Lost
    derivatives raise rather than warn.
    """
    call, adjoints = entry.call, entry.gradients.arrays
    return (
        call.repeated is not None
        and call.missing == "error"
        and not call.plan.is_ours
        and not (call.hosts or entry.drawn or entry.form)
        and call.repeated.gradient(adjoints) is entry.plan
        and not any(array.is_gradient for array in call.arrays.values())
    )
