"""Modules with the same file name: few, and each with a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

VKCHI = Path(__file__).parents[2] / "vkchi"

# Names of several modules, and the reason.
PAIRS = {
    "core": "what a package is made of",
    "forward": "forward mode: the transformation of IR, and its recordings",
    "loops": "loops in the frontend, and loops in gradients",
    "math": "the module, and the name that programs import it by",
}


def names_of_several() -> set[str]:
    count = Counter(path.stem for path in VKCHI.rglob("*.py") if path.stem[0] != "_")
    return {name for name, many in count.items() if many > 1}


def test_modules_of_one_name_are_pairs() -> None:
    assert names_of_several() <= PAIRS.keys()


def test_listed_modules_exist() -> None:
    assert PAIRS.keys() <= names_of_several()
