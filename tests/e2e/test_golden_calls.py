"""Golden calls: messages for tests/golden/calls/NAME.py, which misuses arrays, arguments or `ti`
from Python, are in NAME.txt. `pytest --bless` rewrites it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vkchi.errors import VkchiError

GOLDEN = Path(__file__).parents[1] / "golden" / "calls"
PROGRAMS = sorted(GOLDEN.glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_call_matches_golden_message(path: Path, bless: bool, own_runtime: None) -> None:
    code = compile(path.read_text(), f"tests/golden/calls/{path.name}", "exec")
    with pytest.raises(VkchiError) as e:
        exec(code, {"__name__": "golden"})
    # Devices differ from machine to machine.
    said = re.sub(r"(?s)(no such device').*", r"\1...", str(e.value))
    text = f"{type(e.value).__name__}\n{said}\n"
    expected = path.with_suffix(".txt")
    if bless:
        expected.write_text(text)
    assert text == expected.read_text()


def test_every_expected_file_has_its_program() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {p.stem for p in PROGRAMS}
