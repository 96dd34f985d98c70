"""Algebraic simplification: folding, rule-based rewriting, known branches, local CSE.

Each op is visited once, after its operands. Candidate rules depend on its kind, the type of its
last operand and the kinds of its operands; the candidates of such a key are memoized. They are
tried in order: folding, the function in `structure.RULES`, the rows in `algebraic_rules.ROWS`. Ops
built by a rule are simplified in the same way, and equal ops are merged (`cse`). Control ops are in
`branches`. Ops that become unused are left to `dce`.

    simplify(fn)          # EXACT rules only
    simplify_fast(fn)     # all rules, for `fast_math`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from vkchi.ir.builder import Builder, infer_type
from vkchi.ir.core import Func, Op, Region, Value, as_constant
from vkchi.ir.ops import Trait, kinds_with
from vkchi.opt.memo import Memo
from vkchi.opt.rewrite import branches, structure
from vkchi.opt.rewrite.algebraic_rules import ROWS, Exactness, RuleRow
from vkchi.opt.rewrite.cse import PURE, ScopedRebuilder
from vkchi.opt.rewrite.fold import FOLDABLE, fold
from vkchi.opt.rewrite.match import CompiledRule, compile_row, scalar_kind_of
from vkchi.types import Type

Apply = Callable[["Simplifier", Sequence[Value], Any, Type], "Value | None"]
TRUTH_KINDS = kinds_with(Trait.LOGIC)


class Ruleset:
    """A set of rewrite rules with a memoized table of candidates.

    The rows of an op kind are compiled when the kind first occurs.
    """

    def __init__(self, rows: Sequence[RuleRow]) -> None:
        self.rows: dict[str, list[RuleRow]] = {}
        for row in rows:
            self.rows.setdefault(row.pattern.partition(" ")[0], []).append(row)
        self.rules: dict[str, list[CompiledRule]] = {}
        self.kinds = FOLDABLE | self.rows.keys() | structure.RULES.keys()
        self.plans: dict[tuple[Any, ...], tuple[Apply, ...]] = {}

    def plan(self, key: tuple[Any, ...]) -> tuple[Apply, ...]:
        """Candidate rules for a key (kind, type of the last operand, *operand kinds)."""
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = tuple(self._candidates(*key))
        return found

    def _candidates(self, kind: str, t: Type, *operand_kinds: str) -> Iterator[Apply]:
        if kind in FOLDABLE and all(k == "const" for k in operand_kinds):
            yield _folder(kind)
        if kind in structure.RULES:
            yield structure.RULES[kind]
        for rule in self._rules_of(kind):
            if scalar_kind_of(t) not in rule.kinds or len(rule.needs) != len(operand_kinds):
                continue
            if all(need in ("", have) for need, have in zip(rule.needs, operand_kinds)):
                yield rule.apply

    def prepare(self) -> None:
        for kind in self.rows:
            self._rules_of(kind)

    def _rules_of(self, kind: str) -> list[CompiledRule]:
        if kind not in self.rules:
            rows = self.rows.get(kind, ())
            self.rules[kind] = [r for row in rows for r in compile_row(*row[:3])]
        return self.rules[kind]


def _folder(kind: str) -> Apply:
    def apply(s: Simplifier, args: Sequence[Value], attr: Any, t: Type) -> Value | None:
        bits = fold(kind, tuple(map(as_constant, args)), attr, t)
        return None if bits is None else s.const(bits, t)

    return apply


@cache
def exact_rules() -> Ruleset:
    return Ruleset([row for row in ROWS if row.exactness is Exactness.EXACT])


@cache
def fast_rules() -> Ruleset:
    return Ruleset(ROWS)


def simplify(fn: Func, memo: Memo | None = None) -> Func:
    """Apply all EXACT rules."""
    return Simplifier(exact_rules(), memo or Memo()).run(fn)


def simplify_fast(fn: Func, memo: Memo | None = None) -> Func:
    """Apply all rules, including those that may change float results."""
    return Simplifier(fast_rules(), memo or Memo()).run(fn)


class Simplifier:
    """Simplifies one Func. `known` maps conditions to their value at the current position."""

    def __init__(self, rules: Ruleset, memo: Memo) -> None:
        self.rules, self.irreducible = rules, memo.irreducible
        self.walk = ScopedRebuilder(self.visit)
        self.b = self.walk.b
        self.known: dict[Value, bool] = {}
        self.name = ""

    def run(self, fn: Func) -> Func:
        return self.walk.run(fn)

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        kind, irreducible = op.kind, self.irreducible
        if kind in self.rules.kinds:
            if self.known and kind in TRUTH_KINDS:
                args = tuple(map(self.as_known, args))
                args = op.args if args == op.args else args
            if args is not op.args or op not in irreducible:
                self.name = op.name
                v = self.find(kind, args, op.attr, op.type)
                if v is not None:
                    return (v,)
                new = self.walk.merge(op, args)
                irreducible.update(new)
                return new
        if kind in PURE:
            return self.walk.merge(op, args)
        control = branches.RULES.get(kind)
        return None if control is None else control(self, op, args)

    def find(self, kind: str, args: Sequence[Value], attr: Any, t: Type) -> Value | None:
        """Return a value that replaces an op of this kind, args and attr, from the first rule that
        applies; None if no rule does."""
        kinds = [v.kind if type(v) is Op else "" for v in args]
        for apply in self.rules.plan((kind, args[-1].type, *kinds)):
            v = apply(self, args, attr, t)
            if v is not None:
                return v
        return None

    # --- interface for rules

    def emit(self, kind: str, *args: Value, attr: Any = None, type: Type | None = None) -> Value:
        """Return the value of an op: one found by the rules, an equal op's, or a new op's."""
        name, self.name = self.name, ""
        v = self.result(kind, *args, attr=attr, type=type)
        self.name = name
        return v

    def result(self, kind: str, *args: Value, attr: Any = None, type: Type | None = None) -> Value:
        """Like `emit`, for the replacement of the matched op: it keeps the op's name."""
        t = infer_type(kind, args, attr, type)
        assert t is not None
        v = self.find(kind, args, attr, t) if kind in self.rules.kinds else None
        if v is None:
            (v,) = self.walk.merge(Op(kind, args, attr, t, self.b.span, self.name), args)
            self.irreducible.add(v)
        return v

    def const(self, attr: Any, t: Type) -> Value:
        return self.walk.merge(Op("const", (), attr, t, self.b.span), ())[0]

    def truth(self, v: Value) -> bool | None:
        """Return the bool of a constant, or of a condition that is known at this position; else
        None."""
        if type(v) is Op and v.kind == "const":
            return bool(v.attr)
        return self.known.get(v)

    def as_known(self, v: Value) -> Value:
        truth = self.known.get(v)
        return v if truth is None else self.const(int(truth), v.type)

    # --- interface for control rules

    def new(self, v: Value) -> Value:
        return self.walk.map.get(v, v)

    def inline(self, region: Region, values: Sequence[Value]) -> list[Value]:
        self.walk.map.update(zip(region.params, values, strict=True))
        self.walk.ops(region.ops[:-1])
        return [self.new(v) for v in region.yielded]

    def region_if(self, region: Region, cond: Value, truth: bool) -> Region:
        """Rewrite a region in which a condition, and those it implies, have a known value."""
        before = self.known
        self.known = {**before, **implied(cond, truth)}
        new = self.walk.region(region)
        self.known = before
        return new

    def finish(self, op: Op, args: tuple[Value, ...], regions: tuple[Region, ...]) -> Op:
        self.b.span = op.span
        if args == op.args and regions == op.regions:
            return self.b.insert(op)
        return self.b.insert(self.walk.copy(op, args, regions))


def implied(cond: Value, truth: bool) -> dict[Value, bool]:
    """Return the conditions whose value follows from `cond` being `truth`, with their values:
    `cond`, and operands of `not`, `and` and `or`."""
    facts = {cond: truth}
    if type(cond) is Op:
        if cond.kind == "not":
            facts |= implied(cond.args[0], not truth)
        if cond.kind == ("and" if truth else "or"):
            for v in cond.args:
                facts |= implied(v, truth)
    return facts
