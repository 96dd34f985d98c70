"""Random programs: printed text parses to the same program; passes and the pipeline keep results.

Results are compared bit for bit. `VKCHI_FUZZ=n` in the environment runs n programs in place of
PROGRAMS; a failure names the seed:

    python -c "from tests.fuzz.programs import *; from vkchi.ir.text import *;
               print(print_func(generate(SEED).fn))"
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from tests.fuzz.programs import ALL, EXACT, Case, generate
from vkchi.cli.ir import apply_pass
from vkchi.errors import DeviceError, Unsupported
from vkchi.ir.core import Func, Program
from vkchi.ir.interp import run_reference
from vkchi.ir.text import parse_func, print_func, print_program
from vkchi.ir.verify import verify, verify_program
from vkchi.opt import pipeline
from vkchi.opt.math import f32_math, f64_math
from vkchi.target import tuning
from vkchi.target.caps import FULL, SMALLEST, Caps
from vkchi.target.options import Options

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "30"))
KERNEL_PASSES = (
    "simplify", "cse", "dce", "forward", "licm", "strength", "fusion", "peel", "split",
)  # fmt: skip
WHOLE = ("peel", "split", "simplify_fast")  # not after the split; like another


SMALL: dict[str, Any] = {
    "GROUPS": (1, 1), "LAUNCHES": 1 << 40, "RUN_ALONE": 0, "SHARE_ITERATIONS": 0, "SHARE_LIGHT": 0,
    "CACHE_BYTES": 1, "CACHE_LINE": 8, "LEAST_RIVAL_STRIP": 1, "SHARE_ROW": 1, "SHARE_STRIP": 1,
    "REDUCTION_ITERATIONS": 2, "REDUCTION_WORK": (2, 2),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set thresholds of passes so low that loops of few iterations exceed them."""
    for name, value in SMALL.items():
        monkeypatch.setattr(tuning, name, value)


@pytest.fixture(autouse=True)
def plain_functions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep ops like `sinh` instead of expanding them, because expansions round otherwise.

    Tests on devices, which lack the ops, keep the expansions. `test_legalize` checks their errors.
    """
    if "device" in request.fixturenames:
        return
    for functions in (f32_math.FUNCTIONS, f64_math.FUNCTIONS):
        for kind in functions:
            monkeypatch.setitem(functions, kind, lambda x, *more, op=kind: x.op(op, *more))


def make_case(seed: int) -> Case:
    """A random program; for seeds divisible by 3 one that all devices compute alike."""
    return generate(seed, ALL if seed % 3 else EXACT)


def results_of(code: Func | Program, case: Case) -> dict[str, Any]:
    arrays = run_reference(code, case.args())
    return {name: v for name, v in arrays.items() if name in case.values}


def same(a: Any, b: Any) -> bool:
    """True if both arrays have the same bits, or NaN at the same places."""
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        if not np.array_equal(nan, np.isnan(b)):
            return False
        a, b = a[~nan], b[~nan]
    return bool(a.tobytes() == b.tobytes())


def check(what: str, before: Program, after: Program, case: Case, want: dict[str, Any]) -> None:
    """Verify `after`, and fail the test if it leaves an array that differs from `want`."""
    verify_program(after)
    got = results_of(after, case)
    wrong = [name for name in want if name in got and not same(got[name], want[name])]
    if wrong:
        name = wrong[0]
        pytest.fail(
            f"seed {case.seed}: {what} changes {', '.join(wrong)}\n"
            f"{name}: {want[name].tolist()}\nbecomes {got[name].tolist()}\n"
            f"; before\n{print_program(before)}\n; after\n{print_program(after)}"
        )


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_programs_are_valid_and_read_back(seed: int) -> None:
    case = make_case(seed)
    verify(case.fn)
    text = print_func(case.fn)
    again = parse_func(text)
    assert print_func(again) == text
    verify(again)
    want, got = results_of(case.fn, case), results_of(again, case)
    assert all(same(got[name], want[name]) for name in want)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_passes_keep_results(seed: int) -> None:
    case = make_case(seed)
    want = results_of(case.fn, case)
    kernel = Program(case.fn.name, (case.fn,))
    for name in KERNEL_PASSES:
        after = apply_pass(kernel, pipeline.PASSES[name])
        check(f"pass `{name}`", kernel, after, case, want)
    split = apply_pass(kernel, pipeline.PASSES["split"])
    for name in pipeline.PASSES:
        if name in WHOLE:
            continue
        try:
            after = apply_pass(split, pipeline.PASSES[name])
        except DeviceError:
            continue  # a type that the least device does not have
        check(f"pass `{name}` after split", split, after, case, want)


# The least device, but for bytes in memory, where the programs keep bools.
LEAST = SMALLEST._replace(int8=True, storage8=True)
NARROW = FULL._replace(kind="cpu", subgroup_size=2)  # a processor


@pytest.mark.parametrize("caps", [FULL, LEAST, NARROW], ids=["full", "least", "processor"])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_pipeline_keeps_results(seed: int, caps: Caps) -> None:
    case = generate(seed, EXACT) if caps is LEAST else make_case(seed)
    want = results_of(case.fn, case)
    kernel = Program(case.fn.name, (case.fn,))
    try:
        program, _ = pipeline.optimize_kernel(case.fn, caps, Options())
    except Unsupported as e:
        pytest.skip(f"no device has it: {e}")
    check("the pipeline", kernel, program, case, want)


# Powers of two, or pairs whose order matters.
FIXED = {
    "BLOCK", "LEAST_EXACT_BLOCK", "MOST_EXACT_BLOCK", "TILE_ROW", "TILE_SIDE", "JAM_FACTORS",
    "JAM_WORDS", "UNROLL_FACTOR", "VECTOR_WORDS", "LANE_WORD",
}  # fmt: skip


def changed(x: Any, rng: random.Random) -> Any:
    """A tuning constant, changed at random."""
    if isinstance(x, tuple):
        return tuple(changed(each, rng) for each in x)
    if isinstance(x, float):
        return x * rng.choice([0.0, 0.01, 100.0])
    return max(1, rng.choice([x // 2, 2 * x, 1, 2, x]))


@pytest.mark.parametrize("caps", [FULL, LEAST, NARROW], ids=["full", "least", "processor"])
@pytest.mark.parametrize("seed", range(PROGRAMS // 3))
def test_tuning_keeps_results(seed: int, caps: Caps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning constants decide how fast code is, never what it computes."""
    rng = random.Random(seed)
    for name in sorted(vars(tuning).keys() - FIXED):
        if name.isupper():
            monkeypatch.setattr(tuning, name, changed(getattr(tuning, name), rng))
    test_pipeline_keeps_results(seed, caps)
