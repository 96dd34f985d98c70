"""Dead code elimination (DCE): a data-flow analysis marks needed values; the rest is removed.

The rules are applied to a fixpoint:

- An op is needed if its effect is WRITE, ATOMIC, SYNC or REPORT, unless its target is private
  memory (`local`, `shared`).
- Private memory is needed if it is an operand of a needed op. Then all ops that write it are
  needed.
- The arguments of a needed op are needed. Of a needed `if` it is the condition, of `for` and
  `parallel` begin and end, of `while` the yield of its condition region.
- A control op is needed if an op in its regions is.
- If a result of an `if` is needed, so are the `if` and the values that both regions yield for it.
- If a result or a carried parameter of a loop is needed, so are the loop, the slot's initial value
  and its yielded value. So a value that only feeds itself is not needed.
- If the index of a loop is needed, so is the loop.

Everything else is removed: ops, results of `if`, carried slots, whole loops. A loop without effects
is assumed to terminate.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.dataflow import closure
from vkchi.analysis.memory.alias import accesses_by_base
from vkchi.analysis.uniformity import BARRIERS
from vkchi.ir.builder import Builder
from vkchi.ir.core import HIDDEN, Func, Op, Region, Result, Value, base_memory, used_in, walk_ops
from vkchi.ir.ops import (
    TABLE,
    Effect,
    bodies_of,
    control_of,
    control_operands,
    initial_values,
    is_loop,
)
from vkchi.ir.rebuild import Rebuilder

_EFFECTS = (Effect.WRITE, Effect.ATOMIC, Effect.SYNC, Effect.REPORT)
ROOTS = frozenset(kind for kind, row in TABLE.items() if row.effect in _EFFECTS)
PRIVATE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.ALLOC)


def remove_dead(fn: Func) -> Func:
    """Remove dead code; returns `fn` itself if there is none."""
    return sweep(fn, Liveness(fn))


def remove_unread(fn: Func) -> Func:
    """Remove dead code from a gradient's Func, including its private arrays.

    Arrays of copies and saved values (parameters named with a prefix in HIDDEN) count as private
    memory. Stores to them, and the parameters, are removed if they are not read. Unused random
    numbers are removed; used ones are rejected before (`autodiff.gradient_checks`). Barriers are
    removed unless they order accesses to memory that is needed.
    """
    hidden = frozenset(p for p in fn.params if p.name.startswith(HIDDEN))
    made = sweep(fn, Liveness(fn, hidden, ROOTS - {"random"} - BARRIERS))
    used = used_in(made.body)
    params = tuple(p for p in made.params if p not in hidden or p in used)
    return made if params == made.params else Func(fn.name, params, made.body, fn.span)


def sweep(fn: Func, needs: Liveness) -> Func:
    if needs.all_needed():
        return fn
    return Sweeper(needs).run(fn)


class Liveness:
    """Liveness of a Func: `values` are the needed values, including ops."""

    def __init__(
        self, fn: Func, hidden: frozenset[Value] = frozenset(), roots: frozenset[str] = ROOTS
    ) -> None:
        self.hidden, self.roots = hidden, roots
        self.parents: dict[Op, Op | None] = {}
        self.owners: dict[Value, tuple[Op, int]] = {}  # region parameter -> loop, slot (-1: index)
        self.writers: dict[Value, list[Value]] = {}  # private memory -> ops that only write it
        self.needed: list[Value] = []
        self.met: set[Op] = set()  # control ops needed because of an op inside
        self.scan(fn.body, None)
        if BARRIERS.isdisjoint(roots):
            for loop in fn.body.ops:
                self.scan_barriers(loop)
        self.values = closure(self.needed, self.follow)

    def scan(self, region: Region, parent: Op | None) -> None:
        """Record the parents of ops, the owners of parameters, and the roots of liveness."""
        for op in region.ops:
            kind = op.kind
            if kind == "yield":
                continue
            self.parents[op] = parent
            if kind in self.roots:
                self.scan_effect(op)
            elif op.regions:
                for inner in op.regions:
                    self.own(op, inner)
                    self.scan(inner, op)

    def own(self, op: Op, region: Region) -> None:
        index = control_of(op).index_params
        for k, p in enumerate(region.params):
            self.owners[p] = (op, k - index)

    def scan_effect(self, op: Op) -> None:
        base = base_memory(op.args[0]) if op.args else None
        if base in self.hidden or (isinstance(base, Op) and base.kind in PRIVATE):
            assert base is not None
            self.writers.setdefault(base, []).append(op)
        else:
            self.needed.append(op)

    def scan_barriers(self, loop: Op) -> None:
        """Record the barriers of a loop as writers of the memory that they order.

        Accesses need no order if all are loads, if all are additions, or if it is a single one that
        is in no inner loop.
        """
        inside = list(walk_ops([loop]))
        barriers = [op for op in inside if op.kind in BARRIERS]
        repeated = (
            {x for op in inside[1:] if is_loop(op) for x in walk_ops([op])} if barriers else ()
        )
        for base, ops in accesses_by_base(inside).items() if barriers else ():
            is_own = isinstance(base, Op) and base.kind == "local"
            is_single = len(ops) == 1 and ops[0] not in repeated
            if is_own or is_single or {op.kind for op in ops} in ({"load"}, {"atomic_add"}):
                continue
            if base in self.hidden or isinstance(base, Op):
                self.writers.setdefault(base, []).extend(barriers)
            else:
                self.needed += barriers

    def follow(self, v: Value) -> Sequence[Value]:
        """Return the values that a needed value makes needed."""
        if type(v) is Op:
            return self.follow_op(v)
        if isinstance(v, Result):
            found: list[Value] = [v.op, *[r.yielded[v.index] for r in bodies_of(v.op)]]
            return [*found, initial_values(v.op)[v.index]] if is_loop(v.op) else found
        if v in self.hidden:
            return self.writers.get(v, ())
        op, slot = self.owners.get(v, (None, -1))
        return [] if op is None else [op, op.results[slot]] if slot >= 0 else [op]

    def follow_op(self, op: Op) -> Sequence[Value]:
        parent, found = self.parents[op], control_operands(op) if op.regions else op.args
        if parent is not None and parent not in self.met:
            self.met.add(parent)
            found = (*found, parent)
        return (*found, *self.writers.get(op, ())) if op.kind in PRIVATE else found

    def all_needed(self) -> bool:
        needed = self.values
        return all(op in needed and needed.issuperset(op.results) for op in self.parents)


class Sweeper(Rebuilder):
    """Copies the needed ops."""

    def __init__(self, needs: Liveness) -> None:
        super().__init__(self.visit_control)
        self.needs = needs

    def ops(self, ops: Sequence[Op]) -> None:
        needed = self.needs.values
        super().ops([op for op in ops if op in needed or op.kind == "yield"])

    def visit_control(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if not op.results or op.type is not None:
            return None
        keep = [k for k, r in enumerate(op.results) if r in self.needs.values]
        return None if len(keep) == len(op.results) else pruned_op(self, op, args, keep)


# --- removal of results --------------------------------------------------------------------------


def pruned_op(walk: Rebuilder, op: Op, args: Sequence[Value], keep: Sequence[int]) -> list[Value]:
    """Append the control op with only the results of these indices; return a value for each old
    result.

    A dropped result maps to itself (`if`), or to its new initial value (loop).
    """
    fixed, index = control_of(op).fixed, control_of(op).index_params
    bodies = bodies_of(op)
    regions = [pruned_region(walk, r, index, keep, r not in bodies) for r in op.regions]
    kept_args = (*args[:fixed], *(args[fixed + k] for k in keep if is_loop(op)))
    types = tuple(op.results[k].type for k in keep)
    new = Op(op.kind, kept_args, op.attr, None, op.span, op.name, tuple(regions), types)
    walk.b.insert(new)
    values = list(args[fixed:] if is_loop(op) else op.results)
    for result, k in zip(new.results, keep, strict=True):
        result.name = op.results[k].name
        values[k] = result
    return values


def pruned_region(
    walk: Rebuilder, region: Region, index: int, keep: Sequence[int], whole_yield: bool
) -> Region:
    """Rewrite a region. Its first `index` parameters are kept, of the others those numbered in
    `keep`, of the yields likewise, or all if `whole_yield`."""
    kept = [region.params[index + k] for k in keep] if region.params[index:] else []
    yielded = region.yielded if whole_yield else [region.yielded[k] for k in keep]
    with walk.inside(*region.params[:index], *kept) as new:
        walk.ops(region.ops[:-1])
        walk.b.span = region.ops[-1].span
        walk.b.emit("yield", *(walk.map.get(v, v) for v in yielded))
    return new
