"""Versioned memory in gradients: a copy of each root per segment that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vkchi.analysis.memory.alias import kinds_of_writes
from vkchi.autodiff.primal import PrimalAnalysis
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.param_names import SCRATCH
from vkchi.types import Array, i32


class SegmentMemory:
    """Memory in place of each root: `early` from before a segment, `late` as it changes it."""

    def __init__(self, early: dict[Value, Value], late: dict[Value, Value]) -> None:
        self.early, self.late = early, late


class MemoryVersions:
    """The current version of each root that the kernel writes.

    Every segment that writes a root gets a copy, except of invariant arrays. Unread copies are
    removed later.
    """

    def __init__(self, b: Builder, primal: PrimalAnalysis) -> None:
        self.b, self.primal = b, primal
        self.now: dict[Value, Value] = {}
        self.copies: dict[str, str] = {}
        self.params: list[Param] = []

    def advance(self, ops: Iterable[Op]) -> SegmentMemory:
        """Make new versions of the roots that these ops write; return the segment's memory."""
        found, late = dict(self.now), self.copy_written(ops, self.now)
        self.now.update(late)
        return SegmentMemory(found, late)

    def copy_written(self, ops: Iterable[Op], found: dict[Value, Value]) -> dict[Value, Value]:
        """Copies of the roots that these ops write, except of invariant arrays and the ops' own
        `local`s."""
        late = {}
        for root in kinds_of_writes(ops):
            is_outer = isinstance(root, Param) or root in found
            if is_outer and root not in self.primal.invariant:
                late[root] = self.copy(root, found.get(root, root))
        return late

    def copy(self, root: Value, source: Value) -> Value:
        if isinstance(root, Op):
            return self.b.emit("local", self.b.emit("load", source), name=root.name)
        assert isinstance(root, Param)
        param = root.companion(f"{SCRATCH}{len(self.copies)}")
        self.copies[param.name] = root.name
        self.params.append(param)
        copy_array(self.b, source, param)
        return param


def copy_array(b: Builder, source: Value, target: Value, *, adds: bool = False) -> None:
    """Emit code that copies all elements, or adds them to those of the target."""

    def put(*keys: Value) -> None:
        place, value = b.emit("elem", target, *keys), b.emit("load", b.emit("elem", source, *keys))
        b.emit("store", place, b.emit("add", b.emit("load", place), value) if adds else value)

    for_each_element(b, source, put)


def for_each_element(b: Builder, array: Value, put: Callable[..., None]) -> None:
    """Emit a parallel loop over all elements of an array; `put`, called with its indices, emits the
    body.

    For an array without axes, emit the body without a loop.
    """
    t = array.type
    assert isinstance(t, Array)
    if t.ndim == 0:
        put()
        return
    origin = (t.layout.origin if t.layout is not None else ()) or (0,) * t.ndim
    bounds: list[Value] = []
    for k, first in enumerate(origin):
        begin, extent = b.const(first, i32), b.emit("shape", array, attr=k)
        bounds += [begin, b.emit("add", begin, extent) if first else extent]
    keys = [Param(i32, name) for name in index_names(t.ndim)]
    with b.region(*keys) as body:
        put(*keys)
        b.emit("yield")
    b.parallel(bounds, body)


def index_names(count: int) -> list[str]:
    return [chr(ord("i") + k) for k in range(count)]
