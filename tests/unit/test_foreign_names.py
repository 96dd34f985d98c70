"""The table of numpy's, torch's and Warp's names: its replacements exist."""

from __future__ import annotations

import re

import pytest

import vkchi as ti
from vkchi.compat.foreign_names import MEMBERS, NAMES, help_for_name
from vkchi.errors import MissingNameError
from vkchi.public_names import MEMBERS as PUBLIC

VERBS = ("write", "use", "call", "pass", "loop", "make", "compute")
WRITTEN = re.compile(r"\bti\.([A-Za-z_][\w.]*)")


def resolve(path: str) -> object:
    found: object = ti
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", [*NAMES, *MEMBERS])
def test_suggested_names_exist(name: str) -> None:
    for path in WRITTEN.findall(NAMES.get(name, "") + " " + MEMBERS.get(name, "")):
        resolve(path.rstrip("."))


def test_the_tables_hold_missing_names_only() -> None:
    assert [name for name in NAMES if name in ti.__all__] == []
    known = f"{PUBLIC['Elements']} {PUBLIC['Field']} {PUBLIC['MatrixField']} {PUBLIC['Ndarray']}"
    assert [name for name in MEMBERS if name in known.split()] == []


@pytest.mark.parametrize("name", [*NAMES, *MEMBERS])
def test_help_lines_are_imperative_sentences(name: str) -> None:
    for line in filter(None, (NAMES.get(name), MEMBERS.get(name))):
        first, second = line.split(" ")[:2]
        assert first in VERBS and second not in VERBS, line


def test_a_call_of_launch() -> None:
    """`launch` is a function of Warp's and a package of vkchi's."""
    with pytest.raises(MissingNameError, match="no attribute 'launch'\\nhelp: call the kernel"):
        ti.launch(print, dim=3)  # type: ignore[attr-defined]


def test_help() -> None:
    assert help_for_name("zeros", ["zero"]) == NAMES["zeros"]
    assert help_for_name("feild", ["field", "func"]) == "did you mean `field`?"
    assert help_for_name("xyzzy", ["field"]) == ""
    assert help_for_name("T", [], MEMBERS) == MEMBERS["T"]
    assert help_for_name("to_nunpy", ["to_numpy"], MEMBERS) == "did you mean `to_numpy`?"
