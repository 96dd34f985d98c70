"""The golden files of passes in the reference interpreter: before and after do the same to memory,
bit for bit, but for the fast rules; and tell the host the same."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.cases import same_bits
from vkchi.ir.core import Param, Program
from vkchi.ir.interp import InterpreterReport, run_reference
from vkchi.ir.text import parse
from vkchi.types import Array, Scalar, Tensor, scalar_of, shape_of
from vkchi.types.layout import shares_words

GOLDEN = Path(__file__).parents[1] / "golden" / "passes"
# Passes whose programs run too long, or depend on the grid; a new pass is tested unless it is here.
LEFT_OUT = frozenset({
    "arithmetic", "bases", "bins", "bounds", "broadcast", "coarsen", "commoning", "distribute",
    "expand", "fusion", "gather", "indices", "jam", "jam_sums", "lanes", "legalize", "map_grid",
    "peel", "promote", "records", "reduce", "remainders", "split", "unroll_words", "workgroup",
})  # fmt: skip
SHORT = ("expand/norm.chi",)  # of passes whose other files run for too long
FILES = sorted([
    *(path for path in GOLDEN.glob("*/*.chi") if path.parent.name not in LEFT_OUT),
    *(GOLDEN / name for name in SHORT),
])  # fmt: skip
EXTENT = 16  # of dynamic axes; indices stay inside, for only there accesses mean something
MOST_NUMBERS = 1 << 20  # of one array: a golden of wide arrays is text only
SLOT = 1 << 28  # slots have numbers of 4 bits and more in their highest bits
INDICES = {"i": 2, "j": 5, "k": 1, "n": 6, "m": 7}


def make_array(t: Array, seed: int) -> Any:
    shape = (t.shape if t.shape is not None else (EXTENT,) * t.ndim) + shape_of(t.elem)
    if math.prod(shape) > MOST_NUMBERS:
        pytest.skip("an array that is too large to be made")
    values = np.random.default_rng(seed).integers(-4, 9, shape)
    if shares_words(t.layout):
        values *= SLOT
    return values.astype(scalar_of(t.elem).dtype)


def make_value(p: Param, seed: int, *, is_slot: bool) -> Any:
    t = p.type
    assert isinstance(t, Scalar | Tensor)
    scalar = scalar_of(t)
    if scalar.kind in "iu":
        other = 3 * SLOT if is_slot else 3
        return np.full(shape_of(t), INDICES.get(p.name, other), scalar.dtype)
    values = np.random.default_rng(seed).integers(1, 9, shape_of(t))
    return (values % 2 if scalar.kind == "b" else values / 4).astype(scalar.dtype)


def make_arguments(program: Program, seed: int) -> dict[str, Any]:
    params = {p.name: p for fn in program.funcs for p in fn.params}
    arrays = [p.type for p in params.values() if isinstance(p.type, Array)]
    is_slot = any(shares_words(t.layout) for t in arrays)
    return {
        name: make_array(p.type, seed + k) if isinstance(p.type, Array)
        else make_value(p, seed + k, is_slot=is_slot)
        for k, (name, p) in enumerate(params.items())
    }  # fmt: skip


@pytest.mark.parametrize("seed", [20])
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_before_is_after(path: Path, seed: int) -> None:
    text = path.read_text()
    before, after = (parse(part) for part in text.split("; expect:\n"))
    told: list[list[InterpreterReport]] = [[], []]
    results = [
        run_reference(p, make_arguments(before, seed), t) for p, t in zip((before, after), told)
    ]
    assert repr(told[0]) == repr(told[1])
    for name, want in results[0].items():
        if re.search(r"^; run:.*fast", text, re.MULTILINE):
            assert np.allclose(want, results[1][name], equal_nan=True)
        else:
            assert same_bits(want, results[1][name]).all(), name
