"""Intervals and bounds that `analysis.values.ranges` claims hold for the values of random programs.

The values are those that the interpreter computes.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the seed.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

from tests.analyses import Observed, show
from tests.fuzz.indices import Generator, arguments
from tests.fuzz.programs import generate
from vkchi.analysis.values.ranges import Extent, SymbolProduct, ValueFact
from vkchi.ir import interp
from vkchi.ir.core import Func, Op, Region, Value
from vkchi.ir.text import print_func

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "40"))


class Watch:
    """Checks values against claims while the interpreter computes them, and counts the checks."""

    def __init__(self, fn: Func, args: dict[str, Any]) -> None:
        self.fn, self.args, self.found = fn, args, Observed(fn)
        self.count = 0

    def value_of(self, s: Any, env: dict[Value, Any]) -> int:
        """The value of a symbol: an extent, a product, a value or a component of one."""
        if isinstance(s, Extent):
            return int(self.args[s.shape].shape[s.axis])
        if isinstance(s, SymbolProduct):
            return s.coefficient * math.prod(self.value_of(x, env) for x in s.factors)
        return int(env[s[0]].reshape(-1)[s[1]] if isinstance(s, tuple) else env[s])

    def check(self, claims: list[tuple[Value, ValueFact]], env: dict[Value, Any]) -> None:
        for v, f in claims:
            n = int(env[v])
            self.count += 1
            is_true = f.lo <= n <= f.hi
            is_true &= f.exact is None or n == self.value_of(f.exact[0], env) + f.exact[1]
            is_true &= all(n <= self.value_of(s, env) + c for s, c in f.ups.items())
            assert is_true, f"{n} is not {show(v, f)}"


def watched_run(monkeypatch: pytest.MonkeyPatch, fn: Func, args: dict[str, Any], title: str) -> int:
    """Run the program and check its values; the number of claims checked."""
    watch = Watch(fn, args)
    compute, enter = interp.Invocation.value, interp.Invocation.region

    def value(self: Any, op: Op) -> Any:
        found = self.env[op] = compute(self, op)
        watch.check(watch.found.seen[op], self.env)
        return found

    def region(self: Any, region: Region, values: Any) -> Any:
        self.env.update(zip(region.params, values, strict=True))
        watch.check(watch.found.params[region], self.env)
        return enter(self, region, values)

    with monkeypatch.context() as patch:
        patch.setattr(interp.Invocation, "value", value)
        patch.setattr(interp.Invocation, "region", region)
        try:
            interp.run_reference(fn, args)
        except AssertionError as e:
            raise AssertionError(f"{title}: {e}\n{print_func(fn)}") from None
    return watch.count


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_claimed_ranges_of_index_programs_hold(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    fn, rng = Generator(seed).program(), np.random.default_rng(seed)
    for _ in range(2):
        assert watched_run(monkeypatch, fn, arguments(rng), f"seed {seed}")


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 2))
def test_claimed_ranges_of_programs_hold(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    case = generate(seed)
    watched_run(monkeypatch, case.fn, case.args(), f"seed {seed}")
