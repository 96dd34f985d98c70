"""Replaces ops by equal, simpler values: folding, algebra, known components, known branches.

An op is looked at once, after its operands. What can apply to it is found by its kind, its operand
type and the kinds of its operands, and remembered for ever; then the candidates are tried in order:
folding, the function of `structure.RULES`, the rows of `rules.ROWS`. What a rule builds goes
through the same door, so nothing simple is left behind, and equal ops are one on the way (`cse`).
Control ops are in `branches`. Nothing is removed here but control ops whose path is known: `dce`
comes after.

Owns: the driver and its memory of candidates. Must not know: single rules.

    simplify(fn)          # EXACT rules only
    simplify_fast(fn)     # all rules, for `fast_math`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from vkchi.ir.builder import Builder, infer_type
from vkchi.ir.constants import constant
from vkchi.ir.core import Func, Op, Region, Value
from vkchi.ir.ops import Trait, kinds_with
from vkchi.passes import branches, structure
from vkchi.passes.cse import PURE, ScopedRebuilder
from vkchi.passes.fold import FOLDABLE, fold
from vkchi.passes.match import Rule, compile_row, kind_of
from vkchi.passes.memo import Memo
from vkchi.passes.rules import ROWS, Float, Row
from vkchi.types import Type

Apply = Callable[["Simplifier", Sequence[Value], Any, Type], "Value | None"]
TRUTH_KINDS = kinds_with(Trait.LOGIC)


class Ruleset:
    """Rows, and which of them (and of the rules that are functions) can fit what. The rows of an
    op kind are compiled when it first appears."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: dict[str, list[Row]] = {}
        for row in rows:
            self.rows.setdefault(row.pattern.partition(" ")[0], []).append(row)
        self.rules: dict[str, list[Rule]] = {}
        self.kinds = FOLDABLE | self.rows.keys() | structure.RULES.keys()
        self.plans: dict[tuple[Any, ...], tuple[Apply, ...]] = {}

    def plan(self, key: tuple[Any, ...]) -> tuple[Apply, ...]:
        """What to try on an op, given (kind, type of the last operand, *operand kinds)."""
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
            if kind_of(t) not in rule.kinds or len(rule.needs) != len(operand_kinds):
                continue
            if all(need in ("", have) for need, have in zip(rule.needs, operand_kinds)):
                yield rule.apply

    def prepare(self) -> None:
        """Compile all rows."""
        for kind in self.rows:
            self._rules_of(kind)

    def _rules_of(self, kind: str) -> list[Rule]:
        if kind not in self.rules:
            rows = self.rows.get(kind, ())
            self.rules[kind] = [r for row in rows for r in compile_row(*row[:3])]
        return self.rules[kind]


def _folder(kind: str) -> Apply:
    def apply(s: Simplifier, args: Sequence[Value], attr: Any, t: Type) -> Value | None:
        bits = fold(kind, tuple(map(constant, args)), attr, t)
        return None if bits is None else s.const(bits, t)

    return apply


@cache
def exact_rules() -> Ruleset:
    """The rows that change no result."""
    return Ruleset([row for row in ROWS if row.exactness is Float.EXACT])


@cache
def fast_rules() -> Ruleset:
    """All rows."""
    return Ruleset(ROWS)


def simplify(fn: Func, memo: Memo | None = None) -> Func:
    """The Func with every EXACT rule applied."""
    return Simplifier(exact_rules(), memo or Memo()).run(fn)


def simplify_fast(fn: Func, memo: Memo | None = None) -> Func:
    """The Func with every rule applied, those that may change float results too."""
    return Simplifier(fast_rules(), memo or Memo()).run(fn)


class Simplifier:
    """One run over one Func. `known` holds truth values that are certain where we stand."""

    def __init__(self, rules: Ruleset, memo: Memo) -> None:
        self.rules, self.irreducible = rules, memo.irreducible
        self.walk = ScopedRebuilder(self.visit)
        self.b = self.walk.b
        self.known: dict[Value, bool] = {}
        self.name = ""

    def run(self, fn: Func) -> Func:
        """The simplified Func; `fn` itself if nothing applied."""
        return self.walk.run(fn)

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """What stands for the op's results, or None to keep it."""
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
        """The simpler value that an op would be equal to, or None."""
        kinds = [v.kind if type(v) is Op else "" for v in args]
        for apply in self.rules.plan((kind, args[-1].type, *kinds)):
            v = apply(self, args, attr, t)
            if v is not None:
                return v
        return None

    # --- what rules ask for

    def emit(self, kind: str, *args: Value, attr: Any = None, type: Type | None = None) -> Value:
        """A new op's value, or the simpler one that it is equal to."""
        name, self.name = self.name, ""
        v = self.result(kind, *args, attr=attr, type=type)
        self.name = name
        return v

    def result(self, kind: str, *args: Value, attr: Any = None, type: Type | None = None) -> Value:
        """As `emit`, for what stands for the op that is being replaced: it gets that one's name."""
        t = infer_type(kind, args, attr, type)
        assert t is not None
        v = self.find(kind, args, attr, t) if kind in self.rules.kinds else None
        if v is None:
            (v,) = self.walk.merge(Op(kind, args, attr, t, self.b.span, self.name), args)
            self.irreducible.add(v)
        return v

    def const(self, attr: Any, t: Type) -> Value:
        """A constant with these bits."""
        return self.walk.merge(Op("const", (), attr, t, self.b.span), ())[0]

    def truth(self, v: Value) -> bool | None:
        """Whether a scalar condition is certainly true or false here."""
        if type(v) is Op and v.kind == "const":
            return bool(v.attr)
        return self.known.get(v)

    def as_known(self, v: Value) -> Value:
        """The constant for a condition that is certain here, else v."""
        truth = self.known.get(v)
        return v if truth is None else self.const(int(truth), v.type)

    # --- what control rules ask for

    def new(self, v: Value) -> Value:
        """What stands for a value of the old Func."""
        return self.walk.map.get(v, v)

    def inline(self, region: Region, values: Sequence[Value]) -> list[Value]:
        """Put the region's ops here, with these values for its parameters; what it yields."""
        self.walk.map.update(zip(region.params, values, strict=True))
        self.walk.ops(region.ops[:-1])
        return [self.new(v) for v in region.yielded]

    def region_if(self, region: Region, cond: Value, truth: bool) -> Region:
        """A region in which a condition has this value, and so have those that this implies."""
        before = self.known
        self.known = {**before, **implied(cond, truth)}
        new = self.walk.region(region)
        self.known = before
        return new

    def finish(self, op: Op, args: tuple[Value, ...], regions: tuple[Region, ...]) -> Op:
        """Append the control op with rewritten regions; itself if nothing changed."""
        self.b.span = op.span
        if args == op.args and regions == op.regions:
            return self.b.insert(op)
        return self.b.insert(self.walk.copy(op, args, regions))


def implied(cond: Value, truth: bool) -> dict[Value, bool]:
    """Conditions that are certain if `cond` is `truth`: of `and` if true, of `or` if false."""
    facts = {cond: truth}
    if type(cond) is Op:
        if cond.kind == "not":
            facts |= implied(cond.args[0], not truth)
        if cond.kind == ("and" if truth else "or"):
            for v in cond.args:
                facts |= implied(v, truth)
    return facts
