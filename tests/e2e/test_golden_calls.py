"""Golden calls: messages for tests/golden/calls/NAME.py, which misuses arrays, arguments or `ti`
from Python, are in NAME.txt. `pytest --bless` rewrites it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vkchi.errors import VkchiError
from vkchi.span import PACKAGE
from vkchi.tracebacks import tidy

GOLDEN = Path(__file__).parents[1] / "golden" / "calls"
PROGRAMS = sorted(GOLDEN.glob("*.py"))


def frames_of_vkchi(error: BaseException) -> list[str]:
    """Names of the package's functions in the traceback."""
    found, tb = [], error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename.startswith(PACKAGE):
            found.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    return found


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_call_matches_golden_message(path: Path, bless: bool, own_runtime: None) -> None:
    source = path.read_text()
    if source.startswith("import torch\n"):
        pytest.importorskip("torch")
    code = compile(source, f"tests/golden/calls/{path.name}", "exec")
    with pytest.raises(VkchiError) as e:
        exec(code, {"__name__": "golden"})
    tidy(e.value)
    assert frames_of_vkchi(e.value) == []
    # Devices differ from machine to machine.
    said = re.sub(r"(?s)(no such device').*", r"\1...", str(e.value))
    text = f"{type(e.value).__name__}\n{said}\n"
    expected = path.with_suffix(".txt")
    if bless:
        expected.write_text(text)
    assert text == expected.read_text()


def test_every_expected_file_has_its_program() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {p.stem for p in PROGRAMS}
