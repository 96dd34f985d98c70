"""`//`, `%` and C's remainder of floats on devices that divide inexactly: never off by one."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.ops.cases import build_func, cases, columns, same_bits, zeros_for
from tests.ops.inexact import MODES, Inexact
from vkchi.ir.core import Func
from vkchi.ir.interp import evaluate, run_reference
from vkchi.ir.verify import verify
from vkchi.opt.lowering.legalize import legalize
from vkchi.target.caps import FULL
from vkchi.types import Scalar, Tensor, f16, f32, f64

KINDS = ("floordiv", "mod", "rem")
DEVICES = [*[(f32, mode) for mode in MODES], (f16, "scattered"), (f64, "down"), (f64, "up")]
WIDTH = 250  # numbers that the interpreter divides at once


@cache
def expanded(kind: str, t: Scalar, shape: tuple[int, ...]) -> Func:
    """`out[i] = kind(a[i], b[i])` as devices get it."""
    fn = legalize(build_func(kind, (t, t), shape), FULL)
    verify(fn)
    return fn


def compute(kind: str, a: Any, b: Any, t: Scalar, mode: str) -> Any:
    """The results of a device that is inexact in this way."""
    count = -(-len(a) // WIDTH) * WIDTH
    rows = [np.resize(x, count).reshape(-1, WIDTH) for x in (a, b)]
    fn = expanded(kind, t, (WIDTH,))
    out = zeros_for(fn, len(rows[0]))
    device = Inexact(mode)
    run_reference(fn, {"a": rows[0], "b": rows[1], "out": out}, compute=device)
    assert device.used == {"div"}
    return out.reshape(-1)[: len(a)]


def check(kind: str, a: Any, b: Any, t: Scalar, mode: str) -> None:
    """Bits as the row means; where sums are rounded toward zero, those of `mod` are."""
    got = compute(kind, a, b, t, mode)
    with np.errstate(all="ignore"):
        want = evaluate(kind, (a, b), None, Tensor.of(t, (len(a),)))
        is_next = (np.nextafter(want, np.zeros_like(want)) == got) & (np.abs(a) < np.abs(b))
    good = same_bits(got, want) | (is_next & (kind == "mod") & (mode == "truncated"))
    wrong = np.flatnonzero(~good)
    if wrong.size:
        k = wrong[0]
        pytest.fail(f"{wrong.size}: {kind} {a[k]!r}, {b[k]!r} gives {got[k]!r}, not {want[k]!r}")


def hard_pairs(t: Scalar, most: int, beyond: float = 0.0) -> tuple[Any, Any]:
    """a and b with a / b so near to a whole number of up to `most` bits as they can be, on both
    sides and upon it; all signs and many exponents. `beyond`: to that much above one."""
    rng, span = np.random.default_rng(5), (-4, 5) if t is f16 else (-20, 21)
    count = 2000
    b = rng.uniform(1, 2, count).astype(t.dtype) * np.exp2(rng.integers(*span, count))
    whole = np.floor(np.exp2(rng.uniform(0 - (beyond > 0), most, count))) + beyond
    a = (b * whole).astype(t.dtype)
    step = rng.integers(-2, 3, count)
    for _ in range(2):
        a = np.where(step > 0, np.nextafter(a, t.dtype.type(np.inf)), a)
        a = np.where(step < 0, np.nextafter(a, t.dtype.type(-np.inf)), a)
        step -= np.sign(step)
    signs = [rng.choice([-1, 1], count).astype(t.dtype) for _ in range(2)]
    return (a * signs[0]).astype(t.dtype), (b * signs[1]).astype(t.dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_by_whole_numbers(kind: str, mode: str) -> None:
    """Among them 41 // 41, which is 0 where x / 41 is x times a rounded 1 / 41."""
    divisors = np.arange(1, 2001)
    quotients = np.array([1, 100])
    b, q = (x.reshape(-1).astype(np.float32) for x in np.meshgrid(divisors, quotients))
    for offset in (-1, 0, 1):
        check(kind, b * q + np.float32(offset), b, f32, mode)


@pytest.mark.parametrize(("t", "mode"), DEVICES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_quotients_near_whole_numbers(kind: str, t: Scalar, mode: str) -> None:
    a, b = hard_pairs(t, {f16: 4, f32: 23, f64: 50}[t])
    check(kind, a, b, t, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_quotients_halfway_between_whole_numbers(kind: str, mode: str) -> None:
    """Guesses may be either; among divisors are those whose half is next below a power of two."""
    for divisor in (None, np.float32(2 - 2.0**-23), np.float32(1 + 2.0**-23), np.float32(2**-99)):
        a, b = hard_pairs(f32, 22, beyond=0.5)
        if divisor is not None:
            a, b = (a * (divisor / b)).astype(np.float32), np.full_like(b, divisor)
        check(kind, a, b, f32, mode)


@pytest.mark.parametrize(("t", "mode"), DEVICES, ids=str)
@pytest.mark.parametrize("kind", ["mod", "rem"])
def test_remainders_of_any_numbers(kind: str, t: Scalar, mode: str) -> None:
    """Of numbers of all sizes, subnormal ones among them: up to 2**2000 divisors fit."""
    rng = np.random.default_rng(6)
    width = t.bits // 8
    a, b = (np.frombuffer(rng.bytes(1000 * width), t.dtype) for _ in range(2))
    check(kind, a, b, t, mode)


@pytest.mark.parametrize(("t", "mode"), DEVICES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_quotients_of_edge_values(kind: str, t: Scalar, mode: str) -> None:
    """Zeros, infinities, NaN, subnormal, least and greatest numbers; quotients that the type does
    not hold exactly may be as imprecise as `/`."""
    a, b = columns(cases(kind, (t, t)), (t, t))
    with np.errstate(all="ignore"):
        held = np.abs(a.astype(np.float64) / b.astype(np.float64)) < 2.0 ** np.finfo(t.dtype).nmant
        is_kept = held | ~np.isfinite(a) | ~np.isfinite(b) | (b == 0) | (kind != "floordiv")
    check(kind, a[is_kept], b[is_kept], t, mode)


@pytest.mark.parametrize("mode", ["down", "up", "scattered"])
def test_the_plain_formula_would_be_wrong(mode: str) -> None:
    """So the emulated device is one that shows it: by 41, and of hard cases."""
    device = Inexact(mode)
    divisors = np.arange(1, 2001, dtype=np.float32)
    for a, b in ((divisors, divisors), hard_pairs(f32, 23)):
        t = Tensor.of(f32, (len(a),))
        found = np.floor(device("div", (a, b), None, t))
        is_wrong = found != evaluate("floordiv", (a, b), None, t)
        assert is_wrong.any() or (mode == "up" and a is b)


def test_contracted_products_are_not_rounded() -> None:
    device, x = Inexact("contracted"), np.float32(1 + 2**-12)
    product = device("mul", (x, x), None, f32)
    assert device("sub", (product, np.float32(1 + 2**-11)), None, f32) == np.float32(2**-24)


@pytest.mark.parametrize("kind", ["floordiv", "mod"])
def test_meaning_is_the_exact_one(kind: str) -> None:
    """Against fractions, which do not round."""
    a, b = hard_pairs(f32, 23)
    with np.errstate(all="ignore"):
        got = evaluate(kind, (a, b), None, Tensor.of(f32, (len(a),)))
    for x, y, z in zip(a[:1000], b[:1000], got):
        whole = Fraction(float(x)) / Fraction(float(y)) // 1
        exact = whole if kind == "floordiv" else Fraction(float(x)) - Fraction(float(y)) * whole
        assert z == np.float32(float(exact)), (x, y)
