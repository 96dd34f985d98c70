"""Reassociation of subscripts to a canonical sum: loop-invariant terms first, constants last.

    elem x, 7 - (t - (t - 7 + q))    becomes    elem x, q
    elem x, (q + 3) + i * 8          becomes    elem x, (i * 8 + q) + 3

So equal subscripts become one op by `cse`, invariant parts are hoisted by `licm`, and `access`
folds the constants into addresses. A subscript is rewritten only if the sum needs no more ops.

    >>> order_indices(fn)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.values.polynomials import AffinePolynomials, constant_of, terms_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, constant_int, walk
from vkchi.ir.ops import LINEAR
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import Scalar, scalar_of


def order_indices(fn: Func) -> Func:
    """Reassociate the subscripts of all `elem` ops, where that needs no more ops."""
    wanted = {op for op in walk(fn.body) if op.kind == "elem" and any(map(is_computed, op.args))}
    if not wanted:
        return fn
    depths: dict[Value, int] = {}
    record_depths(fn.body, 0, depths)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in wanted:
            return None
        pairs = zip(op.args[1:], args[1:])
        indices = tuple(ordered(walker, sums, old, new, depths) for old, new in pairs)
        if indices == args[1:]:
            return None
        return [b.emit("elem", args[0], *indices, attr=op.attr, name=op.name)]

    walker, sums = Rebuilder(visit, ("elem",)), AffinePolynomials()
    return walker.run(fn)


def record_depths(region: Region, depth: int, depths: dict[Value, int]) -> None:
    depths.update((p, depth) for p in region.params)
    for op in region.ops:
        depths.update((v, depth) for v in op.results)
        for inner in op.regions:
            record_depths(inner, depth + 1, depths)


def is_computed(v: Value) -> bool:
    """True for a `LINEAR` op on scalars (sum, difference, negation or product) with an operand that
    is one."""
    return (
        isinstance(v, Op)
        and v.kind in LINEAR
        and isinstance(v.type, Scalar)
        and any(isinstance(x, Op) and x.kind in LINEAR for x in v.args)
    )


def ordered(
    walker: Rebuilder, sums: AffinePolynomials, old: Value, new: Value, depths: dict[Value, int]
) -> Value:
    """Return the subscript as a canonical sum, or `new` if the sum needs more ops."""
    if not is_computed(old):
        return new
    form = sums.of(old)
    terms, constant = terms_of(form), constant_of(form)
    if cost(terms, constant) > count_ops(old):
        return new
    order = sorted(terms, key=lambda v: (depths.get(v, 0), terms[v] < 0))
    wanted = [*[(v, terms[v]) for v in order], *([(None, constant)] if constant else [])]
    if summands(old) == wanted:
        return new
    b, t = walker.b, scalar_of(old.type)
    total: Value | None = None
    for v in order:
        n = terms[v]
        term = walker.map.get(v, v)
        if abs(n) != 1:
            term = b.emit("mul", term, b.const(abs(n), t))
        if total is None:
            total = term if n > 0 else b.emit("neg", term)
        else:
            total = b.emit("add" if n > 0 else "sub", total, term)
    if total is None:
        return b.const(constant, t)
    return b.emit("add", total, b.const(constant, t)) if constant else total


def summands(v: Value) -> list[tuple[Value | None, int]]:
    """Return the summands of a canonical sum: values with their factors; None for the constant."""
    if isinstance(v, Op) and v.kind in ("add", "sub"):
        return [*summands(v.args[0]), summand(v.args[1], 1 if v.kind == "add" else -1)]
    if isinstance(v, Op) and v.kind == "neg":
        return [summand(v.args[0], -1)]
    return [summand(v, 1)]


def summand(v: Value, sign: int) -> tuple[Value | None, int]:
    n = constant_int(v)
    if n is not None and sign > 0:
        return None, n
    if isinstance(v, Op) and v.kind == "mul" and (n := constant_int(v.args[1])) is not None:
        return v.args[0], sign * n
    return v, sign


def cost(terms: dict[Value, int], constant: int) -> int:
    count = sum(1 + (abs(n) != 1) for n in terms.values())
    return max(0, count - 1) + (constant != 0) + all(n < 0 for n in terms.values())


def count_ops(v: Value, depth: int = 24) -> int:
    """Return the number of `LINEAR` ops in an expression tree, up to `depth`; shared ops count
    several times."""
    if not isinstance(v, Op) or v.kind not in LINEAR or not depth:
        return 0
    return 1 + sum(count_ops(x, depth - 1) for x in v.args)
