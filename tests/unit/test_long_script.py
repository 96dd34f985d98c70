"""`scripts/long` runs every file of random programs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_of_random_programs_is_listed() -> None:
    words = (ROOT / "scripts" / "long").read_text(encoding="utf-8").split()
    files = {f"fuzz/{path.name}" for path in (ROOT / "tests" / "fuzz").glob("test_*.py")}
    assert files <= set(words)
    assert all((ROOT / "tests" / word).exists() for word in words if word.startswith("fuzz/"))
