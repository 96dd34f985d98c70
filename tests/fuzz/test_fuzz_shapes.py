"""Random programs specialised to the extents of their arrays give the results of the general ones.

The interpreter runs them after the whole pipeline. The device runs kernels over ndarrays that are
specialised at their first launch.

`VKCHI_FUZZ=n` in the environment runs n programs in place of PROGRAMS; a failure names the seed.
"""

from __future__ import annotations

import linecache
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz import test_fuzz_gathers as shifted
from tests.fuzz.test_fuzz import (
    LEAST,
    NARROW,
    check,
    make_case,
    plain_functions,
    results_of,
    small_machine,
)
from vkchi.errors import Unsupported
from vkchi.ir.core import Func, Program
from vkchi.ir.interp import run_reference
from vkchi.ir.rebuild import with_shapes
from vkchi.ir.text import parse
from vkchi.ir.verify import verify
from vkchi.opt import pipeline
from vkchi.opt.loops.scatter import distribute, gather
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.target.caps import FULL, Caps
from vkchi.target.options import Options
from vkchi.types import Array

__all__ = ["plain_functions", "small_machine"]  # fixtures of all tests here
PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "40"))


def shapes_in(fn: Func, values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The extents, in `values`, of arrays whose types have no static shape."""
    arrays = [(p.name, p.type) for p in fn.params if isinstance(p.type, Array)]
    return {name: values[name].shape[: t.ndim] for name, t in arrays if t.shape is None}


@pytest.mark.parametrize("caps", [FULL, LEAST, NARROW], ids=["full", "least", "processor"])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_pipeline_keeps_results(seed: int, caps: Caps) -> None:
    case = make_case(3 * seed if caps is LEAST else seed)
    want = results_of(case.fn, case)
    fn = with_shapes(case.fn, shapes_in(case.fn, case.values))
    verify(fn)
    assert not shapes_in(fn, case.values)
    before = Program(fn.name, (fn,))
    try:
        program, _ = pipeline.optimize_kernel(fn, caps, Options())
    except Unsupported as e:
        pytest.skip(f"no device has it: {e}")
    check("the pipeline", before, program, case, want)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_arrays_that_may_share_memory(seed: int) -> None:
    """Gathering after specialisation respects that arrays may share memory."""
    program = shifted.Program(seed)
    (fn,) = parse(program.text).funcs
    fixed = with_shapes(fn, shapes_in(fn, shifted.arguments(program, 0)))
    new = remove_dead(gather.scatter_to_gather(distribute.distribute(fixed, FULL), FULL))
    verify(new)
    for k in range(3):
        want, found = (shifted.arguments(program, 3 * seed + k) for _ in range(2))
        run_reference(fn, want)
        run_reference(new, found)
        for name in shifted.NAMES:
            np.testing.assert_array_equal(found[name], want[name], f"{name}, {program.text}")


# --- kernels -------------------------------------------------------------------------------------

INDICES = (
    "{i}", "ti.max({i} - 1, 0)", "ti.min({i} + 1, {n} - 1)", "({i} + 1) % {n}",
    "({i} + {n} - 2) % {n}", "{n} - 1 - {i}", "{i} // 2",
)  # fmt: skip
CONDITIONS = ("{i} > 0", "{i} < {n} - 1", "0 < {i} < {n} - 2", "{i} % 2 == 0", "{i} + 1 < {n}")
LAUNCHES = 3  # of a kernel, each of other extents
SHAPES = ((1, 1), (1, 7), (5, 1), (8, 8), (16, 32), (17, 33), (40, 24))


class Source:
    """The text of a kernel that reads `x`, writes its own element of `y` and adds to `z` and `c`.

    `x`, `y` and `z` have the same shape; `c` is small.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"shapes {seed}")
        self.lines = ["@ti.kernel", "def run(x: A, y: A, z: A, c: A1, k: ti.i32):"]
        self.lines.append("    h, w = x.shape[0], x.shape[1]")
        for _ in range(self.rng.randint(1, 2)):
            self.loop()
        self.text = "\n".join(self.lines) + "\n"

    def loop(self) -> None:
        """Append a loop over all elements, those not on the border, or the first `k` rows."""
        spaces = ("x", "ti.ndrange(h, w)", "ti.ndrange((1, h - 1), (1, w - 1))", "ti.ndrange(k, w)")
        self.lines += [f"    for i, j in {self.rng.choice(spaces)}:", "        s = x[i, j]"]
        for _ in range(self.rng.randint(2, 5)):
            self.statement()
        ends = ["y[i, j] = s", "y[i, j] += s", "c[s % c.shape[0]] += 1", "z[i, 0] += s"]
        for end in self.rng.sample(ends, 2):
            self.lines.append(f"        {end}")

    def statement(self) -> None:
        """Append an addition of elements of `x` to `s`, perhaps on a condition."""
        i, n = self.rng.choice([("i", "h"), ("j", "w")])
        kind = self.rng.random()
        first = self.rng.choice(INDICES).format(i="i", n="h")
        second = self.rng.choice(INDICES).format(i="j", n="w")
        term = f"x[{first}, {second}]"
        if kind < 0.4:
            self.lines.append(f"        s += {self.rng.randint(1, 3)} * {term}")
        elif kind < 0.7:
            condition = self.rng.choice(CONDITIONS).format(i=i, n=n)
            self.lines.append(f"        if {condition}: s -= {term}")
        elif kind < 0.85:
            self.lines.append(f"        for q in range({n}): s += x[{first}, q % w]")
        else:
            shift = self.rng.choice(["i - 1, j", "i + 1, j", "i, j - 1", "i, j + 1"])
            a, b = shift.split(", ")
            inside = f"0 <= {a} < h and 0 <= {b} < w"
            self.lines.append(f"        if {inside}: s += x[{shift}]")


def compiled(source: Source, seed: int) -> Any:
    file = f"<shapes {seed}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    arrays = {"A": ti.types.ndarray(ti.i32, 2), "A1": ti.types.ndarray(ti.i32, 1)}
    names: dict[str, Any] = {"ti": ti, **arrays}
    exec(compile(source.text, file, "exec"), names)
    return names["run"]


def numbers(seed: int, shape: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {k: rng.integers(-9, 10, shape).astype(np.int32) for k in "xyz"}
    return {**found, "c": rng.integers(-9, 10, 7).astype(np.int32)}


def launched(run: Any, values: dict[str, Any], k: int) -> tuple[dict[str, Any], Any]:
    """Contents of new arrays after one launch on `values`, and the kernel's IR for them."""
    arrays = {}
    for name, value in values.items():
        arrays[name] = ti.ndarray(ti.i32, value.shape)
        arrays[name].from_numpy(value)
    run(*arrays.values(), k)
    fn = run.inspect(lambda plan, _: plan.func, *arrays.values(), k)
    return {name: array.to_numpy() for name, array in arrays.items()}, fn


@pytest.fixture(scope="module")
def at_first() -> Iterator[None]:
    """Initialise vkchi so that kernels are specialised to the extents of their first launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VKCHI_SHAPES", "first")
        ti.init(arch=ti.vulkan)
        yield


@pytest.mark.device
@pytest.mark.usefixtures("at_first")
@pytest.mark.parametrize("seed", range(max(1, PROGRAMS // 4)))
def test_specialized_kernels_match_general_code(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(seed)
    kernel = compiled(source, seed)
    for k, shape in enumerate(random.Random(seed).sample(SHAPES, LAUNCHES)):
        values, inside = numbers(seed + k, shape), min(k, shape[0])
        found, fn = launched(kernel, values, inside)
        want = {name: value.copy() for name, value in values.items()}
        run_reference(fn, {**want, "k": np.int32(inside)})
        for name in want:
            note = f"{name} of {shape}, launch {k}: {source.text}"
            np.testing.assert_array_equal(found[name], want[name], note)
    assert [one for one in caplog.records if one.levelname == "WARNING"] == []  # none has failed
