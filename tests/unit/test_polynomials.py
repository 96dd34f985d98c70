"""Integers as polynomials: the polynomial of a value equals its result, modulo the range of its
type."""

from __future__ import annotations

import random

import pytest

from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.polynomials import (
    ONE,
    AffinePolynomials,
    ExactPolynomials,
    constant_of,
    factor_of,
    split_offset,
    terms_of,
)
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Param, Value, value_of
from vkchi.ir.interp import evaluate
from vkchi.types import Scalar, i32, i64, u8, u32

KINDS = ("add", "sub", "mul", "neg", "add", "sub", "shl", "min", "floordiv")


def make(rng: random.Random, t: Scalar) -> tuple[list[Param], list[Op]]:
    """Parameters, and integers that are computed from them and constants."""
    params = [Param(t, name) for name in "abc"]
    b = Builder()
    values: list[Value] = list(params)
    made: list[Op] = []
    with b.region():
        for _ in range(14):
            x, y = (rng.choice(values) for _ in range(2))
            if rng.random() < 0.5:
                y = b.const(rng.choice((-3, -1, 0, 1, 2, 7, 1 << 30)), t)
            kind = rng.choice(KINDS)
            if kind in ("shl", "floordiv"):
                y = b.const(rng.randrange(1, 4), t)
            if rng.random() < 0.3:
                x, y = (y, x) if kind not in ("shl", "floordiv") else (x, y)
            made.append(b.emit(kind, *((x,) if kind == "neg" else (x, y))))
            values.append(made[-1])
    return params, made


def run(v: Value, given: dict[Value, int], t: Scalar) -> int:
    """Result of a value, as a number that may have wrapped."""
    if isinstance(v, Param):
        return given[v]
    assert isinstance(v, Op)
    if v.kind == "const":
        return int(value_of(v.attr, t))
    return int(evaluate(v.kind, tuple(t.dtype.type(run(x, given, t)) for x in v.args), None, t))


@pytest.mark.parametrize("t", [i32, u32, i64, u8], ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_sums_agree_with_values(seed: int, t: Scalar) -> None:
    rng = random.Random(f"{seed} {t}")
    params, made = make(rng, t)
    limit = 1 << t.bits
    given = {p: int(t.dtype.type(rng.randrange(limit // 2))) for p in params}
    sums = AffinePolynomials()
    for v in made:
        want = run(v, given, t)
        p = sums.of(v)
        total = sum(n * run(s, given, t) for s, n in terms_of(p).items()) + constant_of(p)
        assert (total - want) % limit == 0
        root, offset = split_offset(v)
        assert ((run(root, given, t) if root is not None else 0) + offset - want) % limit == 0


@pytest.mark.parametrize("t", [i32, u32], ids=str)
def test_a_value_plus_a_constant_is_the_sum_without_its_constant(t: Scalar) -> None:
    for seed in range(20):
        _, made = make(random.Random(seed), t)
        sums = AffinePolynomials()
        for v in made:
            root, offset = split_offset(v)
            rest = dict(sums.of(root)) if root is not None else {}
            rest[ONE] = (rest.get(ONE, 0) + offset + (1 << 31)) % (1 << 32) - (1 << 31)
            found = {m: n for m, n in rest.items() if n}
            assert found == sums.of(v) or len(sums.of(v)) == 1


def test_forms_go_on_where_nothing_wraps() -> None:
    b = Builder()
    i, n = Param(i32, "i"), Param(i32, "n")
    with b.region():
        small = b.emit("mod", i, b.const(8, i32))
        twice = b.emit("mul", small, b.const(2, i32))
        far = b.emit("mul", n, b.const(2, i32))
        of_both = b.emit("mul", i, n)
    forms = ExactPolynomials(Intervals({}))
    assert forms.exact(far) is None
    assert forms.exact(twice) == forms.of(twice)
    assert factor_of(n, forms.of(far)) == factor_of(n, AffinePolynomials().of(far)) == 2
    assert terms_of(AffinePolynomials().of(of_both)) == {of_both: 1}
    assert forms.of(of_both) == {frozenset(((i, 1), (n, 1))): 1}
