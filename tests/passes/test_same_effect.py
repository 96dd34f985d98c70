"""The golden files of passes in the reference interpreter: before and after do the same to memory,
bit for bit, but for the fast rules; and tell the host the same.

The files of loop passes have extents for which the passes are profitable, too long to interpret.
Their extents are shrunk here, and the tuning constants with them. The passes run again.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ops.cases import same_bits
from vkchi.cli.ir import apply_pass
from vkchi.ir.core import Param, Program
from vkchi.ir.interp import InterpreterReport, run_reference
from vkchi.ir.text import parse, print_program
from vkchi.ir.verify import verify_program
from vkchi.opt.pipeline import PASSES
from vkchi.target import tuning
from vkchi.target.cell_lists import ENTRIES_AT, list_name
from vkchi.types import Array, Scalar, Tensor, scalar_of, shape_of
from vkchi.types.layout import shares_words

GOLDEN = Path(__file__).parents[1] / "golden" / "passes"
# Passes whose programs run too long, or depend on the grid; a new pass is tested unless it is here.
LEFT_OUT = frozenset({
    "arithmetic", "bases", "broadcast", "legalize", "map_grid", "records", "split", "padding",
})  # fmt: skip
SHRUNK = (
    "bins", "bounds", "coarsen", "commoning", "distribute", "expand", "fusion", "gather", "indices",
    "interchange", "jam", "jam_sums", "lanes", "narrow", "peel", "promote", "reduce", "remainders",
    "strips", "unroll_words",
)  # fmt: skip
LONG = frozenset({"own_loads"})  # files that run long even so
# Files with lists of other entries, or of other moments, than `list_of` makes.
OTHER_LISTS = frozenset({"active_list", "chunks", "own_block", "written_after_copy"})
TINY = {
    "BLOCK": 2, "GROUPS": (2, 2), "SPARE": 1, "SHARE_ITERATIONS": 1, "SHARE_LIGHT": 1,
    "COARSEN_STRIP": 2, "LANES_ITERATIONS": 1, "REDUCTION_ITERATIONS": 4,
    "CACHE_BYTES": 128, "RIVAL_STRIP": 6, "LEAST_RIVAL_STRIP": 2,
    "REDUCTION_WORK": (1, 1), "BIN_ATOMICS": (1, 1), "LAUNCHES": 1 << 40, "RUN_ALONE": 0.0,
}  # fmt: skip
LARGEST = 24  # extents beyond it are shrunk
FILES = sorted(
    path
    for path in GOLDEN.glob("*/*.chi")
    if path.parent.name not in LEFT_OUT.union(SHRUNK) and path.stem not in OTHER_LISTS
)
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
    made = {
        name: make_array(p.type, seed + k) if isinstance(p.type, Array)
        else make_value(p, seed + k, is_slot=is_slot)
        for k, (name, p) in enumerate(params.items())
    }  # fmt: skip
    for name in [name for name, p in params.items() if isinstance(p.type, Array)]:
        made[list_name(name)] = list_of(made[name])
    return made


def list_of(activity: Any) -> np.ndarray:
    """Return the active list of an activity array, without workgroup counts."""
    cells = np.flatnonzero(activity).astype(np.int32)
    made = np.zeros(ENTRIES_AT + np.size(activity), np.int32)
    made[0], made[ENTRIES_AT : ENTRIES_AT + len(cells)] = len(cells), cells
    return made


def shrink(text: str) -> str:
    """Replace long extents of arrays by 16, 20, ..., and i32 constants near them likewise."""
    shapes = re.findall(r"array<[^@]*?\[([\d,?]+)\]", text)
    long = sorted({int(n) for n in re.findall(r"\d+", ",".join(shapes)) if int(n) > LARGEST})
    short = {n: EXTENT + 4 * k for k, n in enumerate(long)}

    def number(found: re.Match[str]) -> str:
        n = int(found[0])
        near = min(long, key=lambda other: abs(other - n), default=0)
        return str(short[near] + n - near) if n > LARGEST and abs(near - n) <= 8 else found[0]

    def numbers(found: re.Match[str]) -> str:
        return re.sub(r"\d+", number, found[0])

    return re.sub(r"\[[\d,?]+\](?= @|>)|(?<=const )\d+(?= : i32)", numbers, text)


@pytest.mark.parametrize("name", SHRUNK)
def test_loop_passes_at_tiny_extents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, value in TINY.items():
        monkeypatch.setattr(tuning, constant, value)
    changed = 0
    for path in sorted((GOLDEN / name).glob("*.chi")):
        if path.stem in LONG | OTHER_LISTS:
            continue
        source = shrink(path.read_text().split("; expect:\n")[0])
        header = re.search(r"^; run: (.*)$", source, re.MULTILINE)
        assert header
        before = after = parse(source)
        for one in header[1].replace(" ", "").split(","):
            after = apply_pass(after, PASSES[one])
        verify_program(after)
        changed += print_program(after) != print_program(before)
        results = [run_reference(p, make_arguments(before, 20), []) for p in (before, after)]
        for array, want in results[0].items():
            assert same_bits(want, results[1][array]).all(), (path.stem, array)
    assert changed, "a file that the pass changes, so that the test means something"


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
