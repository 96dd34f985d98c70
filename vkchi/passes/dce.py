"""Removes what nothing needs. The data-flow rules, each applied until nothing new is needed:

- An op is needed if its effect is WRITE, ATOMIC, SYNC or REPORT, unless it only writes a private
  place (`local`, `shared`) that is not needed.
- A private place is needed if a needed op that is not a write of rule 1 uses it (so: reads it);
  then all that writes it is needed.
- The arguments of a needed op are needed; of a needed `if` the condition, of a needed `for` and
  `parallel` begin and end, of a needed `while` what its condition region yields.
- A control op is needed if an op in its regions is.
- If a result of an `if` is needed, so are the `if` and what both regions yield for it.
- If a result, or a region parameter, of a loop is needed, so are the loop, the first value of that
  carried slot, and what the body yields for it. (So a value that only feeds itself is not needed.)
- If the index of a loop is needed, so is the loop.

All else goes: ops, results of `if`, carried slots, whole loops (a loop without effects is taken to
end). `yield`s follow their regions.

Owns: these rules. Must not know: ops but by their effects and regions.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.dataflow import closure
from vkchi.ir.builder import Builder
from vkchi.ir.control import bodies_of, control_of, deciding_values, first_values, is_loop
from vkchi.ir.core import Func, Op, Region, Result, Value, base_of, used_in
from vkchi.ir.names import HIDDEN
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.passes.carried import pruned_op

_EFFECTS = (Effect.WRITE, Effect.ATOMIC, Effect.SYNC, Effect.REPORT)
ROOTS = frozenset(kind for kind, row in TABLE.items() if row.effect in _EFFECTS)
PRIVATE = frozenset(kind for kind, row in TABLE.items() if row.effect is Effect.ALLOC)


def remove_dead(fn: Func) -> Func:
    """The Func without what nothing needs; `fn` itself if all is needed."""
    return sweep(fn, Needs(fn))


def remove_unread(fn: Func) -> Func:
    """The same for a gradient's Func, whose arrays of its own are private places too: copies and
    saved values that gradients make (HIDDEN) and do not read. A random number that is not used need
    not be drawn there: one that is used is refused (`autodiff.refusals`)."""
    hidden = frozenset(p for p in fn.params if p.name.startswith(HIDDEN))
    made = sweep(fn, Needs(fn, hidden, ROOTS - {"random"}))
    used = used_in(made.body)
    params = tuple(p for p in made.params if p not in hidden or p in used)
    return made if params == made.params else Func(fn.name, params, made.body, fn.span)


def sweep(fn: Func, needs: Needs) -> Func:
    """The Func with what is needed only."""
    if needs.all_needed():
        return fn
    return Sweeper(needs).run(fn)


class Needs:
    """What is needed in a Func: `values`, ops among them."""

    def __init__(
        self, fn: Func, hidden: frozenset[Value] = frozenset(), roots: frozenset[str] = ROOTS
    ) -> None:
        self.hidden, self.roots = hidden, roots
        self.parents: dict[Op, Op | None] = {}
        self.owners: dict[Value, tuple[Op, int]] = {}  # region parameter -> loop, slot (-1: index)
        self.writers: dict[Value, list[Value]] = {}  # private place -> what only writes it
        self.needed: list[Value] = []
        self.met: set[Op] = set()  # control ops that something in them has called for
        self.scan(fn.body, None)
        self.values = closure(self.needed, self.follow)

    def scan(self, region: Region, parent: Op | None) -> None:
        """Note where ops and parameters stand, and what is needed for itself."""
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
        """Note the parameters of one region of a control op."""
        index = control_of(op).index_params
        for k, p in enumerate(region.params):
            self.owners[p] = (op, k - index)

    def scan_effect(self, op: Op) -> None:
        """An op with an effect: needed, unless it only writes a private place."""
        base = base_of(op.args[0]) if op.args else None
        if base in self.hidden or (isinstance(base, Op) and base.kind in PRIVATE):
            assert base is not None
            self.writers.setdefault(base, []).append(op)
        else:
            self.needed.append(op)

    def follow(self, v: Value) -> Sequence[Value]:
        """What an op or value that is needed makes needed."""
        if type(v) is Op:
            return self.follow_op(v)
        if isinstance(v, Result):
            found: list[Value] = [v.op, *[r.yielded[v.index] for r in bodies_of(v.op)]]
            return [*found, first_values(v.op)[v.index]] if is_loop(v.op) else found
        if v in self.hidden:
            return self.writers.get(v, ())
        op, slot = self.owners.get(v, (None, -1))
        return [] if op is None else [op, op.results[slot]] if slot >= 0 else [op]

    def follow_op(self, op: Op) -> Sequence[Value]:
        """What a needed op makes needed."""
        parent, found = self.parents[op], deciding_values(op) if op.regions else op.args
        if parent is not None and parent not in self.met:
            self.met.add(parent)
            found = (*found, parent)
        return (*found, *self.writers.get(op, ())) if op.kind in PRIVATE else found

    def all_needed(self) -> bool:
        """Whether nothing can go."""
        needed = self.values
        return all(op in needed and needed.issuperset(op.results) for op in self.parents)


class Sweeper(Rebuilder):
    """Copies what is needed."""

    def __init__(self, needs: Needs) -> None:
        super().__init__(self.visit_control)
        self.needs = needs

    def ops(self, ops: Sequence[Op]) -> None:
        """Only the needed ones."""
        needed = self.needs.values
        super().ops([op for op in ops if op in needed or op.kind == "yield"])

    def visit_control(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Drop results that nothing needs."""
        if not op.results or op.type is not None:
            return None
        keep = [k for k, r in enumerate(op.results) if r in self.needs.values]
        return None if len(keep) == len(op.results) else pruned_op(self, op, args, keep)
