"""What is known while reversing: primal values by region, and adjoints summed up so far.

Owns: `Scopes`, a stack of one `Scope` per region being reversed. Must not know: rules, memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from vkchi.autodiff.emit import added, place_in, zero
from vkchi.autodiff.primal import Primal
from vkchi.autodiff.sweep import Kept, Sweep
from vkchi.errors import InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.clone import Cloner
from vkchi.ir.core import Op, Param, Region, Result, Value, base_of, walk
from vkchi.ir.names import ADJOINT
from vkchi.types import Ptr


class Scope:
    """A region being reversed. `region` is the primal one, `out` the one being built; `values` are
    primal values available in it, `sums` adjoints in SSA, `places` adjoints in private places.
    An invocation's scope has its forward `sweep`; a loop's the `position` of its saved values."""

    def __init__(self, region: Region, out: Region, sweep: Sweep | None, loop: Op | None) -> None:
        self.region, self.out, self.sweep, self.loop = region, out, sweep, loop
        self.values: dict[Value, Value] = {}
        self.sums: dict[Value, Value | None] = {}
        self.places: dict[Value, Value] = {}
        self.position: Value | None = None


class Scopes:
    """The stack; the first is the Func's body."""

    def __init__(self, b: Builder, primal: Primal, kept: Kept) -> None:
        self.b, self.primal, self.kept = b, primal, kept
        self.stack: list[Scope] = []

    @property
    def current(self) -> Scope:
        """The innermost one."""
        return self.stack[-1]

    @contextmanager
    def open(
        self, region: Region, *, sweep: Sweep | None = None, loop: Op | None = None
    ) -> Iterator[Scope]:
        """A scope for the region that `b` is appending to."""
        scope = Scope(region, self.b.current, sweep, loop)
        self.stack.append(scope)
        yield scope
        self.stack.pop()

    def depth_of(self, v: Value) -> int:
        """Which scope of the stack a primal value stands in."""
        home = self.primal.home[v]
        for k in range(len(self.stack) - 1, -1, -1):
            if self.stack[k].region is home:
                return k
        raise InternalError(f"a value of type {v.type} is asked for where it is not known")

    def invocation_of(self, depth: int) -> int:
        """The scope of the invocation that the scope belongs to."""
        while self.stack[depth].sweep is None:
            depth -= 1
        return depth

    def is_outside_invocation(self, root: Value) -> bool:
        """Whether memory may be reached by other invocations than the current one."""
        if self.invocation_of(len(self.stack) - 1) == 0:
            return False
        return root not in self.primal.home or self.depth_of(root) == 0

    # --- primal values

    def get(self, v: Value) -> Value:
        """What stands for a primal value in the current scope."""
        if v not in self.primal.home:
            return v  # a parameter of the Func
        return self.find(v, self.depth_of(v))

    def find(self, v: Value, depth: int) -> Value:
        """The same, for a value of the scope at `depth`."""
        scope = self.stack[depth]
        if v in scope.values:
            return scope.values[v]
        if isinstance(v.type, Ptr):
            with self.b.within(scope.out):
                scope.values[v] = place_in(self.b, v, base_of(v), self.get)
            return scope.values[v]
        if scope.sweep is not None:
            return scope.sweep.map[v]
        if self.primal.is_repeatable(v):
            self.repeat_chain(v)
        else:
            scope.values[v] = self.find_kept(v, depth)
        return scope.values[v]

    def find_kept(self, v: Value, depth: int) -> Value:
        """A value from the forward sweep: out of a buffer, or a result of an `if`."""
        self.kept.keep(v)
        while self.stack[depth].sweep is None:
            scope = self.stack[depth]
            if scope.loop is not None:
                return self.load_saved(v, depth)
            depth -= 1
        sweep = self.stack[depth].sweep
        assert sweep is not None
        return sweep.map.get(v) or Param(v.type, "unknown")  # in the first of the two builds

    def load_saved(self, v: Value, depth: int) -> Value:
        """What the buffer holds for the current iteration."""
        scope = self.stack[depth]
        sweep = self.stack[self.invocation_of(depth)].sweep
        assert scope.position is not None and sweep is not None
        with self.b.within(scope.out):
            place = self.b.emit("elem", self.kept.buffer(v), scope.position, sweep.invocation)
            return self.b.emit("load", place)

    def repeat_chain(self, v: Value) -> None:
        """Compute a value again, and before it what it is computed from, however much that is."""
        todo = [v]
        while todo:
            scope = self.scope_to_repeat(todo[-1])
            before = [u for u in operands(todo[-1]) if self.scope_to_repeat(u)] if scope else []
            todo += before
            if not before and scope is not None:
                with self.b.within(scope.out):
                    self.repeat(todo[-1], scope)
            if not before:
                todo.pop()

    def scope_to_repeat(self, v: Value) -> Scope | None:
        """Where a value must be computed again, if it must."""
        if v not in self.primal.home or not self.primal.is_repeatable(v):
            return None
        scope = self.stack[self.depth_of(v)]
        return None if scope.sweep is not None or v in scope.values else scope

    def repeat(self, v: Value, scope: Scope) -> None:
        """Compute a value again, from the operands of its op."""
        op = v.op if isinstance(v, Result) else v
        assert isinstance(op, Op)
        recomputation, span = Recomputation(self, scope.values), self.b.span
        recomputation.visit(op)
        self.b.span = span
        scope.values.update((r, recomputation.map[r]) for r in op.results)

    # --- adjoints

    def accumulate(self, v: Value, g: Value) -> None:
        """Add to the adjoint of a value."""
        if v not in self.primal.active or v not in self.primal.home:
            return
        scope = self.stack[self.depth_of(v)]
        if scope is self.current:
            scope.sums[v] = added(self.b, scope.sums.get(v), g)
            return
        self.add_to(self.place(v), g, is_shared=self.is_outside_invocation(v))

    def add_to(self, place: Value, g: Value, *, is_shared: bool) -> None:
        """Add to what stands at a place."""
        if is_shared:
            self.b.emit("atomic_add", place, g)
            return
        self.b.emit("store", place, self.b.emit("add", self.b.emit("load", place), g))

    def place(self, v: Value) -> Value:
        """The private place of a value's adjoint (of what stands in it, for a `local`)."""
        scope = self.stack[self.depth_of(v)]
        if v not in scope.places:
            t = v.type.elem if isinstance(v.type, Ptr) else v.type
            name = getattr(v, "name", None) or "value"
            with self.b.within(scope.out):
                scope.places[v] = self.b.emit("local", zero(self.b, t), name=name + ADJOINT)
        return scope.places[v]

    def find_place(self, v: Value) -> Value | None:
        """The place of an adjoint if there is one."""
        return self.stack[self.depth_of(v)].places.get(v)

    def has_adjoint(self, v: Value) -> bool:
        """Whether something was added to the adjoint of a value of the current scope."""
        return v in self.current.sums or v in self.current.places

    def adjoint_of(self, v: Value) -> Value | None:
        """The adjoint of a value of the current scope so far; None for 0."""
        place = self.current.places.get(v)
        stored = self.b.emit("load", place) if place is not None else None
        return added(self.b, self.current.sums.get(v), stored)


class Recomputation(Cloner):
    """Ops computed again, where some values are known."""

    def __init__(self, scopes: Scopes, known: Mapping[Value, Value]) -> None:
        super().__init__(scopes.b, dict(known))
        self.scopes = scopes

    def get(self, v: Value) -> Value:
        """What stands for a value there."""
        return self.map[v] if v in self.map else self.scopes.get(v)


def operands(v: Value) -> list[Value]:
    """What a value is computed from: the operands of its op and of what stands in it, and what
    their places are made of."""
    op = v.op if isinstance(v, Result) else v
    assert isinstance(op, Op)
    inside = [x for region in op.regions for x in walk(region)]
    made = {r for x in inside for r in x.results}
    found: list[Value] = []
    todo = [*op.args, *(a for x in inside for a in x.args)]
    for a in todo:  # grows
        if isinstance(a, Op) and isinstance(a.type, Ptr):
            todo += a.args
        elif a not in made:
            found.append(a)
    return found
