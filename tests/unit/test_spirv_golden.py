"""Golden files of emitted SPIR-V: tests/golden/spirv/NAME.chi is IR, NAME.spvasm the output.

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
from vkchi.opt.pipeline import lower_dispatch
from vkchi.spirv import emit
from vkchi.spirv.disasm import disassemble
from vkchi.target.caps import FULL, SMALLEST
from vkchi.target.shader import SERIAL, Shader, row_grid

FILES = sorted((Path(__file__).parents[1] / "golden" / "spirv").glob("*.chi"))
CAPS = {"full": FULL, "smallest": SMALLEST}


def emit_file(path: Path) -> Shader:
    """The shader of the Func in the file."""
    text = path.read_text(encoding="utf-8")
    head = dict(line[2:].split(": ") for line in text.splitlines() if line[:2] == "; ")
    mode, *rest = head["grid"].split()
    fn = parse_func(text, str(path))
    loop = find_parallel(fn)
    bound = loop.args[1] if loop is not None else None
    count = ("const", bound.attr) if getattr(bound, "kind", "") == "const" else ("arg", "n")
    block = int(rest[0]) if rest else 1
    grid = SERIAL if mode == "serial" else row_grid(count, block, guard="guard" in rest)
    caps = CAPS[head["caps"]]
    return emit(lower_dispatch(fn, caps), grid, caps, fn.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_spirv_matches_golden(path: Path, request: pytest.FixtureRequest) -> None:
    text = disassemble(emit_file(path).words)
    expected = path.with_suffix(".spvasm")
    if request.config.getoption("--bless"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.skipif(find_tool("spirv-as") is None, reason="no spirv-as")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_disassembly_can_be_assembled(path: Path) -> None:
    words = emit_file(path).words
    assert validate(words) == ""
    text = disassemble(words)
    command = [str(find_tool("spirv-as")), "--target-env", "spv1.5", "-", "-o", "-"]
    again = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
    assert disassemble(again) == text
