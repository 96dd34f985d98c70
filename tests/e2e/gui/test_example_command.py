"""`vkchi example`: the list of examples, and running one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import vkchi as ti
from tests.e2e.gui.test_scene_examples import need_what_draws
from vkchi.__main__ import main as run_command
from vkchi.cli.example import arguments_for, is_drawn, list_examples, title_of
from vkchi.runtime import current_runtime
from vkchi.ui.packages import require_ggui


def main(words: list[str]) -> int:
    return run_command(["example", *words])


def forget_examples() -> None:
    for name in ("viewer", "learning", "stage"):
        sys.modules.pop(name, None)


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for name, path in list_examples().items():
        assert f"  {name:18} {title_of(path)}\n" in said and len(title_of(path)) > 20
    assert "viewer" not in said and "stage" not in said


def test_a_name_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "there is no example 'nothing'; there are ad_gravity, " in capsys.readouterr().err


def test_an_installed_package_has_its_own(tmp_path: Path, capsys, monkeypatch) -> None:
    """A folder `examples` beside it is of another package."""
    for folder, title in (("examples", "Not ours."), ("vkchi_examples", "Rain on a roof.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rain.py").write_text(f'"""{title}"""\nprint("it rains")\n')
    monkeypatch.setattr("vkchi.cli.example.PARENT", tmp_path)
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "  rain               Rain on a roof.\n" in said and "Not ours" not in said
    assert re.search(r"pictures of them: (docs/examples.md|https://\S+examples.html)\n", said)
    assert main(["rain"]) == 0 and capsys.readouterr().out == "it rains\n"
    monkeypatch.setattr("vkchi.cli.example.PARENT", tmp_path / "examples")
    assert main([]) == 1 and "install vkchi anew" in capsys.readouterr().err


def test_packages_that_are_missing(capsys, monkeypatch, own_runtime: None) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["torch_padding"]) == 1
    assert capsys.readouterr().err == "torch_padding needs torch: pip install torch\n"
    monkeypatch.setattr("vkchi.ui.packages.is_installed", lambda package: False)
    require_ggui.cache_clear()
    try:
        assert main(["cloth3d", "--headless", "--frames", "1"]) == 1
        assert re.fullmatch(
            r".*needs pygfx, .*pip install pygfx~=0.17.0 wgpu.*\n", capsys.readouterr().err
        )
    finally:
        require_ggui.cache_clear()
        forget_examples()


def test_running_one(tmp_path: Path, capsys, own_runtime: None) -> None:
    pytest.importorskip("PIL")
    before, argv = list(sys.path), sys.argv
    arguments = ["--headless", "--frames", "2", "--save", str(tmp_path / "life")]
    assert main(["game_of_life", *arguments]) == 0
    assert "game of life: 2 frames" in capsys.readouterr().out
    assert len(list((tmp_path / "life" / "frames").glob("*.png"))) == 2
    assert sys.path == before and sys.argv is argv
    forget_examples()


def test_running_one_that_learns(tmp_path: Path, capsys, own_runtime: None) -> None:
    pytest.importorskip("PIL")
    arguments = ["--rounds", "2", "--headless", "--frames", "2", "--save", str(tmp_path / "film")]
    assert main(["volume", *arguments]) == 0
    said = capsys.readouterr().out
    assert re.search(r"volume rendering: loss [\d.]+ -> [\d.]+ in 2 rounds", said)
    assert len(list((tmp_path / "film" / "frames").glob("*.png"))) == 2
    forget_examples()


@pytest.mark.parametrize("name", [name for name, path in list_examples().items() if is_drawn(path)])
def test_every_example_draws_moving_pictures(
    name: str, tmp_path: Path, capsys, own_runtime: None
) -> None:
    """As a user runs it, taught for few rounds where it learns: frames that show something, and
    differ."""
    pytest.importorskip("PIL")
    path = list_examples()[name]
    if "stage.run" in path.read_text():
        need_what_draws()
    if "SwiftShader" in current_runtime().device.info.name:
        pytest.skip("in full size, on a second driver that takes minutes")
    learns = ["--rounds", "4"] if "learning.run" in path.read_text() else []
    arguments = ["--headless", "--frames", "3", "--save", str(tmp_path / name), *learns]
    assert main([name, *arguments]) == 0
    assert ": 3 frames, " in capsys.readouterr().out
    frames = [ti.tools.imread(file) for file in sorted((tmp_path / name / "frames").glob("*.png"))]
    assert len(frames) == 3 and frames[0].std() > 1 and (frames[0] != frames[2]).any()
    assert (tmp_path / name / f"{name}.gif").stat().st_size > 1000
    forget_examples()


def test_example_that_misses_its_loss_fails(capsys, own_runtime, load, monkeypatch) -> None:
    learning, volume = load("learning"), load("volume")
    monkeypatch.setattr(sys, "argv", ["volume.py", "--headless", "--frames", "1"])
    with pytest.raises(SystemExit, match="the loss stays above 1e-09"):
        learning.run(lambda: volume.Volume(12), "clouds", 96, rounds=2, goal=1e-9)


def test_options_of_a_printing_example(tmp_path: Path, capsys) -> None:
    poisson, life = (list_examples()[name] for name in ("poisson", "game_of_life"))
    given = ["--headless", "--frames", "2", "--other", "3"]
    assert arguments_for(poisson, given) == ["--other", "3"]
    assert arguments_for(life, given) == given
    assert capsys.readouterr().err == ""
    assert arguments_for(poisson, ["--save", "out"]) == []
    assert "poisson prints" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "-2", "many"])
def test_no_number_of_frames(capsys: pytest.CaptureFixture[str], count: str) -> None:
    """With less than one it would draw, and fill the disk, without an end."""
    assert main(["game_of_life", "--headless", "--frames", count]) == 2
    assert f"--frames: {count!r} is not a whole number, 1 or more" in capsys.readouterr().err
    forget_examples()
