"""Golden files of emitted SPIR-V: tests/golden/spirv/NAME.chi is IR, NAME.spvasm what it becomes,
linked.spvasm what some of them become together.

Two comments stand above the IR: `; grid: MODE BLOCK [guard]` and `; caps: full` or `smallest`.
`pytest --bless` rewrites the .spvasm files; review is the diff.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.spirv_tools import find_tool, validate
from vkchi.ir.core import find_parallel
from vkchi.ir.text import parse_func
from vkchi.passes.pipeline import lower
from vkchi.spirv import emit
from vkchi.spirv.disasm import disassemble
from vkchi.spirv.linking import link
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.shader import REPORTS, SERIAL, Shader, Slot, row_grid

FILES = sorted((Path(__file__).parents[1] / "golden" / "spirv").glob("*.chi"))
LINKED = ("far", "indirect", "loops", "tiles", "workgroup")  # of up to 64 invocations
CAPS = {"full": FULL, "smallest": SMALLEST}


def emit_file(path: Path) -> Shader:
    """The shader of the Func in the file."""
    text = path.read_text()
    head = dict(line[2:].split(": ") for line in text.splitlines() if line[:2] == "; ")
    mode, *rest = head["grid"].split()
    fn = parse_func(text, str(path))
    loop = find_parallel(fn)
    bound = loop.args[1] if loop is not None else None
    count = ("const", bound.attr) if getattr(bound, "kind", "") == "const" else ("arg", "n")
    block = int(rest[0]) if rest else 1
    grid = SERIAL if mode == "serial" else row_grid(count, block, guard="guard" in rest)
    caps = CAPS[head["caps"]]
    return emit(lower(fn, caps), grid, caps, fn.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    text = disassemble(emit_file(path).words)
    expected = path.with_suffix(".spvasm")
    if request.config.getoption("--bless"):
        expected.write_text(text)
    assert text == expected.read_text()


@pytest.mark.skipif(find_tool("spirv-as") is None, reason="no spirv-as")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_disassembly_can_be_assembled(path: Path) -> None:
    words = emit_file(path).words
    assert validate(words) == ""
    text = disassemble(words)
    command = [str(find_tool("spirv-as")), "--target-env", "spv1.5", "-", "-o", "-"]
    again = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
    assert disassemble(again) == text


def test_linked(request: pytest.FixtureRequest) -> None:
    files = [path for path in FILES if path.stem in LINKED]
    made = link([emit_file(path) for path in files])
    assert made is not None
    words, expected = made.shader.words, FILES[0].with_name("linked.spvasm")
    assert find_tool("spirv-val") is None or validate(words) == ""
    text = disassemble(words)
    if request.config.getoption("--bless"):
        expected.write_text(text)
    assert text == expected.read_text()
    assert len(made.members) == len(made.shares) == len(LINKED)
    assert made.shares[-1] and not made.shares[0]


def test_what_is_not_linked() -> None:
    """Those whose invocations wait for each other, in workgroups smaller than another's; those
    that tell the host something."""
    shaders = {path.stem: emit_file(path) for path in FILES}
    made = link([shaders["saxpy"], shaders["workgroup"], shaders["loops"]])
    assert made is not None and made.members == (0, 2)
    tells = shaders["saxpy"]._replace(slots=(Slot("ptr", REPORTS, 0, "u32", 0),))
    assert link([tells]) is None
