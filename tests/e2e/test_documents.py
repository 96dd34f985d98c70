"""Code in the documents: README's code prints its documented output; examples check themselves."""

from __future__ import annotations

import contextlib
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.e2e.gui.test_learning_examples import PROBLEMS
from vkchi.cli.example import list_examples

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


# Options added to commands of `make demo`, to save time.
SMALL = {"padding": [], "depthwise_conv": ["--shape", "2,4,32"], "mpm99": ["--frames", "2"]}


def without_numbers(text: str) -> list[str]:
    """Lines with # for every number; torch's times differ between outputs."""
    return [
        re.sub(r"\s+", " ", re.sub(r"\b\d[\d.]*(e-\d+)?", "#", line))
        for line in text.splitlines()
        if "torch" not in line
    ]


def test_make_demo_prints_readme_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL")
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(
        r"^\t\$\(PY\) examples/(\w+)\.py(.*)$", makefile.split("\ndemo:")[1], re.M
    )
    assert [name for name, _ in commands] == [*SMALL]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr("vkchi.tools.image.has_screen", lambda: False)
    for name, options in commands:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *options.split(), *SMALL[name]])
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    said = README.split("`make demo` prints")[1].split("```")[1].strip()
    recipe = makefile.split("\ndemo:")[1].split("\n\n")[0]
    closing = re.findall(r'^\t@.*echo "(.*)"$', recipe, re.M)
    assert (tmp_path / closing[0].split()[-1]).stat().st_size > 1000
    assert (ROOT / re.findall(r"docs/\w+\.md", closing[1])[0]).is_file()
    printed = capsys.readouterr().out + "\n".join(closing)
    assert without_numbers(printed) == without_numbers(said)


# Arguments, and a pattern of the output of the example when its own check has passed.
EXAMPLES = {
    "padding": (["--out", "{tmp}"], "equal to numpy"),
    "cart_poles": (
        ["--carts", "256", "--steps", "200"],
        r"(9\d|100) % stand for all 200 steps",
    ),
    "depthwise_conv": (["--shape", "2,4,32"], "v3 both"),
    "diffmpm": (["--memory"], "calls again"),
    "every_device": (["--bodies", "200", "--steps", "3"], r"(?m)^([1-9]\d*) of \1 devices agree$"),
    "granular": (
        ["--grains", "300", "--steps", "30"],
        r"differ by (0e\+00|\de-0[6-9]) from all pairs",
    ),
    "poisson": ([], r"off by \S+e-0[4-9] from the solution"),
    "torch_padding": (["--size", "24"], "walls and gradients agree"),
    "torch_depthwise": (["--steps", "40"], r"loss after 40 steps: 0\.0"),
    "torch_plate": (["--size", "12", "--rounds", "60"], r"after 60 rounds: 0\.[01]\d+ off"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_documented_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
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
    assert re.search(said, printed), printed


# --- every example has a check of its results -----------------------------------------------------

# Tests of examples that are no rows of EXAMPLES, and do not reach a loss there.
CHECKS = {
    "ad_gravity": "gui/test_examples.py::test_forces_from_an_energy",
    "cloth": "gui/test_examples.py::test_cloth",
    "cloth3d": "gui/test_scene_examples.py::test_cloth3d_falls_on_the_ball",
    "conjugate_gradient": "gui/test_examples.py::test_conjugate_gradients",
    "fem": "gui/test_examples.py::test_finite_elements_keep_their_energy",
    "game_of_life": "gui/test_examples.py::test_game_of_life",
    "gravity": "gui/test_examples.py::test_gravity",
    "julia": "gui/test_examples.py::test_julia",
    "mpm3d": "gui/test_scene_examples.py::test_mpm3d_falls_freely_and_keeps_its_mass",
    "mpm88": "gui/test_examples.py::test_mpm88_falls_freely_and_keeps_its_mass",
    "mpm99": "gui/test_examples.py::test_mpm99",
    "nbody": "gui/test_examples.py::test_nbody_keeps_momentum_and_energy",
    "path_tracer": "gui/test_examples.py::test_a_white_room_path_traced",
    "reductions": "gui/test_examples.py::test_reductions",
    "sdf_renderer": "gui/test_examples.py::test_sdf_renderer",
    "sparse_snow": "gui/test_examples.py::test_snow_keeps_its_momentum_in_a_sparse_grid",
    "sorting": "gui/test_examples.py::test_sorting",
    "stable_fluid": "gui/test_examples.py::test_stable_fluid_loses_its_divergence",
}


def test_every_example_is_checked() -> None:
    for where in CHECKS.values():
        file, name = where.split("::")
        text = (Path(__file__).parent / file).read_text()
        assert f"def {name}(" in text and "assert" in text.split(f"def {name}(")[1], where
    assert {*EXAMPLES, *CHECKS, *PROBLEMS} == set(list_examples())


def ring_by_numpy(bodies: int, steps: int) -> np.ndarray:
    """Result of `examples/every_device.py`, in f64."""
    angles = np.linspace(0, 2 * np.pi, bodies, endpoint=False)
    x = np.stack([np.cos(angles), 0.5 * np.sin(angles)], 1)
    v = np.zeros_like(x)
    for _ in range(steps):
        d = x[None] - x[:, None]
        v += 1e-3 * (d / ((d**2).sum(-1, keepdims=True) + 0.05)).sum(1)
        x = x + 1e-3 * v
    return x


def test_every_device_agrees_with_numpy(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "every_device.py"))
    places, seconds = example["run"](100, 5)
    np.testing.assert_allclose(places, ring_by_numpy(100, 6), atol=1e-5)
    assert seconds > 0
    # One that gives something else is noticed.
    two = [SimpleNamespace(index=k, name=f"device {k}") for k in range(2)]
    given = iter([(places, 1e-3), (places + 0.1, 1e-3)])
    globals_ = example["main"].__globals__
    monkeypatch.setitem(globals_, "list_devices", lambda: two)
    monkeypatch.setitem(globals_, "ti", SimpleNamespace(device=lambda k: contextlib.nullcontext()))
    monkeypatch.setitem(globals_, "run", lambda bodies, steps: next(given))
    monkeypatch.setattr(sys, "argv", ["every_device.py"])
    with pytest.raises(SystemExit, match="the devices disagree"):
        example["main"]()
    assert "1 of 2 devices agree" in capsys.readouterr().out
