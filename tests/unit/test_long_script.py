"""`scripts/long` runs every file of random programs; `scripts/genesis` compares states."""

from __future__ import annotations

import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_every_file_of_random_programs_is_listed() -> None:
    words = (ROOT / "scripts" / "long").read_text(encoding="utf-8").split()
    files = {f"fuzz/{path.name}" for path in (ROOT / "tests" / "fuzz").glob("test_*.py")}
    assert files <= set(words)
    assert all((ROOT / "tests" / word).exists() for word in words if word.startswith("fuzz/"))


def load_script() -> ModuleType:
    loader = SourceFileLoader("genesis_scenes", str(ROOT / "scripts" / "genesis"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    return script


def test_scenes_of_genesis(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script()
    assert all(callable(getattr(script.Scenes, name)) for name in script.NAMES)
    monkeypatch.setattr(sys, "argv", ["genesis", "no_such_scene"])
    with pytest.raises(SystemExit, match="2"):
        script.main()


def test_states_are_compared(tmp_path: Path) -> None:
    script = load_script()
    for backend, off in (("quadrants", 0.0), ("vkchi", 2e-5)):
        path = tmp_path / f"box-{backend}.npz"
        np.savez(path, positions=np.full(3, 1 + off), velocities=np.full(3, off))
        path.with_suffix(".json").write_text(json.dumps({"steps": 1.0, "process": 2.0}))
    row, agrees = script.compare(Path(sys.executable), tmp_path, "box")
    assert not agrees and row.startswith("box ") and "2e-05 of 1" in row and "DIFFERS" in row
    np.savez(tmp_path / "box-vkchi.npz", positions=np.ones(3), velocities=np.full(3, 5e-5))
    row, agrees = script.compare(Path(sys.executable), tmp_path, "box")
    assert agrees and "5e-05 of 0" in row
    np.savez(tmp_path / "box-vkchi.npz", positions=np.ones(3), velocities=np.full(3, np.nan))
    assert not script.compare(Path(sys.executable), tmp_path, "box")[1]
