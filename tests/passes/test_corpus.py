"""Code of the corpus (`tests/corpus.py`), without clocks: counts beside blessed ones, forms at
stage borders, and passes that find nothing in their own output.

`tests/golden/corpus/counts.txt` has a line for each kernel and device: dispatches, ops of the
lowered dispatches, instructions of their SPIR-V modules. A line that grows needs a reason in the
commit that blesses it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.corpus import DEVICES, FOLDER, lower_kernel, read_corpus
from tests.modules import words_of
from vkchi.ir.core import Func, walk
from vkchi.opt import pipeline
from vkchi.opt.forms import violations
from vkchi.opt.mapping.map_grid import plan_grid
from vkchi.spirv import emit
from vkchi.spirv.module_builder import iterate_instructions
from vkchi.target.caps import Caps

COUNTS = FOLDER / "counts.txt"
HEADER = "; kernel device dispatches ops instructions"
# Passes that return the Func itself in a second run. Cleanup consists of them.
CLOSURES = ("simplify", "dce", "licm", "forward", "demote", "demote_all", "bounds", "indices")


class Compiled(NamedTuple):
    """Lines of counts; passes that changed their own output, with the kernel; violated rules of
    forms, with stage, kernel and op."""

    counts: list[str]
    unstable: list[tuple[str, str]]
    violated: list[tuple[str, str, str, str]]


def compile_corpus(device: str) -> Compiled:
    found, own, caps = Compiled([], [], []), pipeline.run_pass, DEVICES[device]

    def run_twice(name: str, fn: Func, given: pipeline.Given) -> Any:
        new = own(name, fn, given)
        if name in CLOSURES and own(name, new, given) is not new:
            found.unstable.append((name, fn.name))
        return new

    def check_form(checks: pipeline.Checks, fn: Func, stage: str) -> None:
        broken = violations(fn, pipeline.STAGES[stage].form, caps)
        found.violated.extend((stage, fn.name, rule.words, op.kind) for rule, op in broken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VKCHI_VERIFY", "")  # the verifier behind each pass takes most of the time
        patch.setenv("VKCHI_DUMP_SPV", "")
        patch.setattr(pipeline, "run_pass", run_twice)
        patch.setattr(pipeline.Checks, "after_stage", check_form)
        for name, fn in read_corpus():
            found.counts.append(f"{name} {device} {' '.join(map(str, count(fn, caps)))}")
    return found


def count(fn: Func, caps: Caps) -> tuple[int, int, int]:
    """Dispatches, ops and SPIR-V instructions of a kernel."""
    dispatches = ops = instructions = 0
    for func, lowered in lower_kernel(fn, caps):
        dispatches += 1
        ops += sum(1 for _ in walk(lowered.body))
        module = emit(lowered, plan_grid(func, caps), caps, fn.name).words
        instructions += sum(1 for _ in iterate_instructions(words_of(module)))
    return dispatches, ops, instructions


@pytest.mark.parametrize("device", DEVICES)
def test_corpus(device: str, bless: bool) -> None:
    lines, unstable, violated = compile_corpus(device)
    assert not unstable
    assert not violated
    known = COUNTS.read_text().splitlines()[1:] if COUNTS.exists() else []
    if bless:
        others = [line for line in known if line.split()[1] != device]
        COUNTS.write_text("\n".join([HEADER, *sorted([*others, *lines])]) + "\n")
    else:
        assert sorted(lines) == [line for line in known if line.split()[1] == device]
