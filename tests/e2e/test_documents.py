"""What the documents show: README's code prints what it says; the examples check themselves."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_readme_has_code() -> None:
    assert BLOCKS


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_code(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = BLOCKS[number]
    path = tmp_path / f"readme_{number}.py"
    path.write_text(code)
    runpy.run_path(str(path))
    said = [line.split("#")[-1].strip() for line in code.splitlines() if "print(" in line]
    assert capsys.readouterr().out.split("\n")[: len(said)] == said


# Arguments, and what the example prints when its own check has passed.
EXAMPLES = {
    "padding": (["--out", "{tmp}"], "equal to numpy"),
    "depthwise_conv": (["--shape", "2,4,32"], "v3 both"),
    "diffmpm": (["--memory"], "calls again"),
    "every_device": (["--bodies", "200", "--steps", "3"], "devices agree"),
    "poisson": ([], "from the solution"),
    "torch_padding": (["--size", "24"], "walls and gradients agree"),
    "torch_depthwise": (["--steps", "40"], "loss after 40 steps: 0.0"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    if name == "padding":
        pytest.importorskip("PIL")
    if name.startswith("torch"):
        pytest.importorskip("torch", "2.4")
    words, said = EXAMPLES[name]
    arguments = [word.format(tmp=tmp_path) for word in words]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert said in printed
