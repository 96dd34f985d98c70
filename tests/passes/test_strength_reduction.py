"""Strength-reduced divisions by natural numbers match Python's `//` and `%`: for all numbers near
the ends of i32 and i64, near zero, and near multiples of the divisor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import PASSES
from vkchi.types import SCALARS, Array, Scalar, i32


def program(kind: str, t: Scalar) -> Func:
    """y[i] = kind(a[i], n[i] without its sign)."""
    a, n, y = (Param(Array.of(t, 1), name) for name in "any")
    i, b = Param(i32, "i"), Builder()
    with b.region() as body:
        with b.region(i) as loop:
            dividend = b.emit("load", b.emit("elem", a, i))
            divisor = b.emit("load", b.emit("elem", n, i))
            divisor = b.emit("and", divisor, b.const((1 << (t.bits - 1)) - 1, t))
            b.emit("store", b.emit("elem", y, i), b.emit(kind, dividend, divisor))
            b.emit("yield")
        b.parallel((b.const(0, i32), b.emit("shape", a, attr=0)), loop)
        b.emit("yield")
    return Func("f", (a, n, y), body)


def numbers(t: Scalar) -> list[int]:
    """Numbers of a type near which something may go wrong."""
    least, most = -(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1
    near = [0, least, most, most // 2, least // 2, 1 << 16, -(1 << 16), 1000, -1000]
    found = {n + k for n in near for k in range(-3, 4)}
    found |= {int(n) for n in np.random.default_rng(3).integers(least, most, 60)}
    return sorted(n for n in found if least <= n <= most)


@pytest.mark.parametrize("name", ["i32", "i64"])
@pytest.mark.parametrize("kind", ["floordiv", "mod", "truncdiv", "rem"])
def test_any_dividend(kind: str, name: str) -> None:
    t = SCALARS[name]
    fn = program(kind, t)
    new = PASSES["strength"](fn)
    verify(new)
    is_changed = kind in ("floordiv", "mod")
    assert any(str(op.type) == f"u{t.bits}" for op in walk(new.body)) == is_changed
    divisors = [n for n in numbers(t) if n > 0]
    pairs = list(itertools.product(numbers(t), divisors))
    pairs += [(m * n + k, n) for n in divisors for m in (-3, -2, -1, 1, 2) for k in (-1, 0, 1)]
    pairs = [(a, n) for a, n in pairs if abs(a) < 1 << (t.bits - 1)]
    a, n = (np.array(column, t.dtype) for column in zip(*pairs, strict=True))
    got = {"a": a, "n": n, "y": np.zeros_like(a)}
    run_reference(new, got)
    want = {
        "floordiv": lambda: a // n, "mod": lambda: a % n,
        "truncdiv": lambda: (a - np.fmod(a, n)) // n,
        "rem": lambda: np.fmod(a, n),
    }[kind]()  # fmt: skip
    np.testing.assert_array_equal(got["y"], want)
