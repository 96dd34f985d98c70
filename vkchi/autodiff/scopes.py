"""Scopes of reverse mode: available primal values and adjoints, per region being reversed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from vkchi.autodiff.emit import add_derivatives, place_in, zero
from vkchi.autodiff.primal import PrimalAnalysis
from vkchi.autodiff.sweep import ForwardSweep, SavedValues
from vkchi.errors import InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.core import ADJOINT, Op, Param, Region, Result, Value, base_memory, walk
from vkchi.ir.rebuild import Cloner
from vkchi.types import Array, Ptr, i32


class ReverseScope:
    """A region being reversed.

    `region` is the primal region, `out` the one being built. `values` are the primal values
    available in it. `sums` are adjoints in SSA, `places` adjoints in private memory. The scope of
    an invocation has a forward `sweep`; that of a loop has the `position` of its saved values.
    """

    def __init__(
        self, region: Region, out: Region, sweep: ForwardSweep | None, loop: Op | None
    ) -> None:
        self.region, self.out, self.sweep, self.loop = region, out, sweep, loop
        self.values: dict[Value, Value] = {}
        self.sums: dict[Value, Value | None] = {}
        self.places: dict[Value, Value] = {}
        self.position: Value | None = None


class ReverseScopes:
    """Stack of the regions that are being reversed; the first is the Func's body.

    Finds primal values in the current scope, recomputed or loaded if needed, and accumulates
    adjoints.
    """

    def __init__(self, b: Builder, primal: PrimalAnalysis, kept: SavedValues) -> None:
        self.b, self.primal, self.kept = b, primal, kept
        self.stack: list[ReverseScope] = []

    @property
    def current(self) -> ReverseScope:
        return self.stack[-1]

    @contextmanager
    def open(
        self, region: Region, *, sweep: ForwardSweep | None = None, loop: Op | None = None
    ) -> Iterator[ReverseScope]:
        scope = ReverseScope(region, self.b.current, sweep, loop)
        self.stack.append(scope)
        yield scope
        self.stack.pop()

    def depth_of(self, v: Value) -> int:
        """Index in the stack of the scope that defines a primal value.

        Raises InternalError if that is not open.
        """
        home = self.primal.home[v]
        for k in range(len(self.stack) - 1, -1, -1):
            if self.stack[k].region is home:
                return k
        raise InternalError(f"a value of type {v.type} is asked for where it is not known")

    def invocation_of(self, depth: int) -> int:
        while self.stack[depth].sweep is None:
            depth -= 1
        return depth

    def is_outside_invocation(self, root: Value) -> bool:
        """True if other invocations may access the memory."""
        if self.invocation_of(len(self.stack) - 1) == 0:
            return False
        return root not in self.primal.home or self.depth_of(root) == 0

    # --- primal values

    def get(self, v: Value) -> Value:
        """The new value of a primal value in the current scope, recomputed or loaded if needed."""
        if v not in self.primal.home:
            return v  # a parameter of the Func
        return self.find(v, self.depth_of(v))

    def find(self, v: Value, depth: int) -> Value:
        scope = self.stack[depth]
        if v in scope.values:
            return scope.values[v]
        if isinstance(v.type, Ptr):
            root = base_memory(v)
            with self.b.within(scope.out):
                scope.values[v] = place_in(
                    self.b, v, root if isinstance(root, Param) else self.get(root), self.get
                )
            return scope.values[v]
        if scope.sweep is not None:
            return scope.sweep.map[v]
        if self.primal.is_repeatable(v):
            self.repeat_chain(v)
        else:
            scope.values[v] = self.find_kept(v, depth)
        return scope.values[v]

    def find_kept(self, v: Value, depth: int) -> Value:
        """A value of the forward sweep that it must save: loaded from a buffer, or a result of an
        `if`.

        Records the value in `kept`. In the first build, a result of an `if` may be a placeholder.
        """
        self.kept.keep(v)
        while self.stack[depth].sweep is None:
            scope = self.stack[depth]
            if scope.loop is not None:
                return self.load_saved(v, depth)
            depth -= 1
        sweep = self.stack[depth].sweep
        assert sweep is not None
        return sweep.map.get(v) or Param(v.type, "unknown")  # in the first build only

    def load_saved(self, v: Value, depth: int) -> Value:
        scope = self.stack[depth]
        sweep = self.stack[self.invocation_of(depth)].sweep
        assert scope.position is not None and sweep is not None
        with self.b.within(scope.out):
            place = self.b.emit("elem", self.kept.buffer(v), scope.position, sweep.invocation)
            return self.b.emit("load", place)

    def repeat_chain(self, v: Value) -> None:
        """Recompute a value after all values it is computed from (iterative depth-first search)."""
        todo = [v]
        while todo:
            scope = self.scope_to_repeat(todo[-1])
            before = (
                [u for u in recomputation_operands(todo[-1]) if self.scope_to_repeat(u)]
                if scope
                else []
            )
            todo += before
            if not before and scope is not None:
                with self.b.within(scope.out):
                    self.repeat(todo[-1], scope)
            if not before:
                todo.pop()

    def scope_to_repeat(self, v: Value) -> ReverseScope | None:
        """The scope in which a value must be recomputed; None if that is not necessary."""
        if v not in self.primal.home or not self.primal.is_repeatable(v):
            return None
        scope = self.stack[self.depth_of(v)]
        return None if scope.sweep is not None or v in scope.values else scope

    def repeat(self, v: Value, scope: ReverseScope) -> None:
        op = v.op if isinstance(v, Result) else v
        assert isinstance(op, Op)
        recomputation, span = Recomputation(self, scope.values), self.b.span
        recomputation.visit(op)
        self.b.span = span
        scope.values.update((r, recomputation.map[r]) for r in op.results)

    # --- adjoints

    def accumulate(self, v: Value, g: Value) -> None:
        """Add to the adjoint of a value; ignored for inactive values and parameters of the Func."""
        if v not in self.primal.active or v not in self.primal.home:
            return
        scope = self.stack[self.depth_of(v)]
        if scope is self.current:
            scope.sums[v] = add_derivatives(self.b, scope.sums.get(v), g)
            return
        self.add_to(self.place(v), g, is_shared=self.is_outside_invocation(v))

    def add_to(self, place: Value, g: Value, *, is_shared: bool) -> None:
        if is_shared:
            self.b.emit("atomic_add", place, g)
            return
        self.b.emit("store", place, self.b.emit("add", self.b.emit("load", place), g))

    def place(self, v: Value) -> Value:
        """The private location of a value's adjoint, created at first use.

        For a `local`, it is that of the adjoint of its contents.
        """
        scope = self.stack[self.depth_of(v)]
        if v not in scope.places and isinstance(v, Op) and v.kind == "shared":
            with self.b.within(scope.out):
                scope.places[v] = shared_zeros(self.b, v)
        if v not in scope.places:
            t = v.type.elem if isinstance(v.type, Ptr) else v.type
            name = getattr(v, "name", None) or "value"
            with self.b.within(scope.out):
                scope.places[v] = self.b.emit("local", zero(self.b, t), name=name + ADJOINT)
        return scope.places[v]

    def find_place(self, v: Value) -> Value | None:
        return self.stack[self.depth_of(v)].places.get(v)

    def has_adjoint(self, v: Value) -> bool:
        return v in self.current.sums or v in self.current.places

    def adjoint_of(self, v: Value) -> Value | None:
        """The adjoint accumulated so far for a value of the current scope; None for 0."""
        place = self.current.places.get(v)
        stored = self.b.emit("load", place) if place is not None else None
        return add_derivatives(self.b, self.current.sums.get(v), stored)


def shared_zeros(b: Builder, array: Op) -> Op:
    """A workgroup array for the adjoints of another one. Each invocation stores all zeros, because
    not all of a workgroup's invocations have an iteration."""
    t = array.type
    assert isinstance(t, Array) and t.shape is not None
    made = b.insert(Op("shared", (), array.attr, t, array.span, f"{array.name}{ADJOINT}"))
    clear_elements(b, made, t.shape, ())
    b.emit("barrier")
    return made


def clear_elements(
    b: Builder, array: Op, shape: tuple[int, ...], indices: tuple[Value, ...]
) -> None:
    if not shape:
        place = b.emit("elem", array, *indices)
        assert isinstance(place.type, Ptr)
        b.emit("store", place, zero(b, place.type.elem))
        return
    index = Param(i32, "k")
    with b.region(index) as body:
        clear_elements(b, array, shape[1:], (*indices, index))
        b.emit("yield")
    b.for_(b.const(0, i32), b.const(shape[0], i32), (), body)


class Recomputation(Cloner):
    """Copies ops to recompute them; `known` maps the values that are available already."""

    def __init__(self, scopes: ReverseScopes, known: Mapping[Value, Value]) -> None:
        super().__init__(scopes.b, dict(known))
        self.scopes = scopes

    def get(self, v: Value) -> Value:
        return self.map[v] if v in self.map else self.scopes.get(v)


def recomputation_operands(v: Value) -> list[Value]:
    """Values from outside its op that are needed to recompute v.

    They are operands of the op and of the ops inside, and of the pointers among these.
    """
    op = v.op if isinstance(v, Result) else v
    assert isinstance(op, Op)
    inside = [x for region in op.regions for x in walk(region)]
    made = {r for x in inside for r in x.results}
    found: list[Value] = []
    todo = [*op.args, *(a for x in inside for a in x.args)]
    for a in todo:  # `todo` grows
        if isinstance(a, Op) and isinstance(a.type, Ptr):
            todo += a.args
        elif a not in made:
            found.append(a)
    return found
