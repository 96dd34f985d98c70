"""Forward mode of random kernels, in the interpreter, matches finite differences.

Forward mode gives the derivative along a direction; forward mode over reverse mode gives the change
of the gradient along it. Without f64 on the device the tests are skipped.

`VKCHI_FUZZ=n` runs n batches in place of BATCHES.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tests.fuzz.test_fuzz_gradients import FLOATS, STEP, TRIPS, Arrays, Point, define, fields, lower
from tests.unit.differentiate import backward, count_cells, make_buffer
from vkchi.autodiff.forward import differentiate_forward
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.reverse import GradientFunc
from vkchi.calls.gradients import differentiate
from vkchi.ir.core import Func
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import PASSES

__all__ = ["fields"]  # the fixture
BATCHES = int(os.environ.get("VKCHI_FUZZ", "10"))
PROGRAMS = 10  # in a batch
FIRST = 10_000  # other programs than those of test_fuzz_gradients


def is_exact(fields: dict[str, Any]) -> bool:
    return bool(fields["x"].to_numpy().dtype == np.float64)


def float_names(names: dict[str, str]) -> frozenset[str]:
    """The parameters of which derivatives exist."""
    return frozenset(p for p, k in names.items() if k in FLOATS)


def arguments(point: Point, names: dict[str, str], moved: float = 0.0) -> Arrays:
    return {**point.args(names, moved), "c": np.int32(TRIPS)}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_forward_mode(batch: int, fields: dict[str, Any]) -> None:
    if not is_exact(fields):
        pytest.skip("differences need f64")
    for seed in range(FIRST + batch * PROGRAMS, FIRST + (batch + 1) * PROGRAMS):
        point = Point(seed, fields)
        fn, names = lower(define(seed, fields), fields)
        slope = point.slope(fn, names)
        dual = differentiate_forward(fn, float_names(names))
        verify(dual)
        duals = {f"{p}..dual": np.array(point.along[names[p]]) for p in float_names(names)}
        run_reference(dual, {**arguments(point, names), **duals})
        product = sum(float(np.sum(point.seeds[k] * duals[f"{p}..dual"]))
                      for p, k in names.items() if k in FLOATS)  # fmt: skip
        if slope is not None:
            assert product == pytest.approx(slope, rel=1e-4, abs=1e-5), f"seed {seed}"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_forward_over_reverse(batch: int, fields: dict[str, Any]) -> None:
    if not is_exact(fields):
        pytest.skip("differences need f64")
    for seed in range(FIRST + batch * PROGRAMS, FIRST + (batch + 1) * PROGRAMS, 2):
        point = Point(seed, fields)
        fn, names = lower(define(seed, fields), fields)
        made = differentiate(fn, GradientRequest(float_names(names)))
        found = second(made, point, names)
        coarse, fine = (change_of_gradient(made, point, names, h) for h in (STEP, STEP / 3))
        for p in made.adjoints:
            if np.allclose(coarse[p], fine[p], 1e-4, 1e-5):  # not near a kink
                message = f"seed {seed}: {names[p]}"
                np.testing.assert_allclose(found[p], fine[p], 1e-3, 1e-4, err_msg=message)


def change_of_gradient(
    made: GradientFunc, point: Point, names: dict[str, str], step: float
) -> Arrays:
    """Change of the gradients along the point's direction, by central differences."""
    seeds = {p: point.seeds[k] for p, k in names.items() if k in FLOATS}
    more, less = (backward(made, arguments(point, names, h), seeds) for h in (step, -step))
    return {p: (more[p] - less[p]) / (2 * step) for p in made.adjoints}


def second(made: GradientFunc, point: Point, names: dict[str, str]) -> Arrays:
    """Change of the gradients along the point's direction, by forward mode over the gradient."""
    own = (*made.copies, *made.adjoints.values(), *(s.param.name for s in made.saves))
    func = differentiate_forward(made.func, float_names(names) | frozenset(own))
    verify(func)
    func = PASSES["unread"](func)  # type: ignore[assignment]
    bound = bind(made, arguments(point, names), {p: point.seeds[k] for p, k in names.items()
                                                 if k in FLOATS})  # fmt: skip
    for name in duals_of(func):
        given = names.get(name)
        start = point.along[given] if given is not None else np.zeros_like(bound[name])
        bound[f"{name}..dual"] = np.array(start)
    run_reference(func, bound)
    zeros = {p: np.zeros_like(bound[p]) for p in made.adjoints}
    return {p: bound.get(f"{adjoint}..dual", zeros[p]) for p, adjoint in made.adjoints.items()}


def duals_of(func: Func) -> list[str]:
    ends = (p.name for p in func.params if p.name.endswith("..dual"))
    return [name.removesuffix("..dual") for name in ends]


def bind(made: GradientFunc, args: Arrays, seeds: Arrays) -> Arrays:
    """Arguments for all parameters of the gradient function: copies, adjoints and buffers too."""
    bound = {k: np.array(v) for k, v in args.items()}
    cells = count_cells(made, bound)
    bound |= {made.adjoints[p]: np.array(seeds[p]) for p in made.adjoints}
    bound |= {copy: np.array(args[name]) for copy, name in made.copies.items()}
    buffers = {s.param.name: make_buffer(s, cells[s.cell], 64) for s in made.saves_used()}
    return bound | buffers
