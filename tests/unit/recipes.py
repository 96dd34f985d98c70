"""The recipes of CONTRIBUTING.md: their files, as fenced blocks, and their commands.

The first line of a block is a comment that names its file and its position:

    # vkchi/ir/ops.py, after the line that starts with ("tanh",
    # vkchi/opt/math/f64_math.py, before the line that starts with FUNCTIONS
    # vkchi/opt/shifts.py, a new file

Blocks of `bash` are commands, one per line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD = re.compile(
    r"[#;] (?P<file>\S+), "
    r"(?:a new file|(?P<side>after|before) the line that starts with (?P<at>.+))"
)


@dataclass
class Edit:
    """Text to insert before or after a line of a file, or the text of a new file."""

    file: str
    side: str | None
    at: str
    text: str

    def apply(self, root: Path) -> None:
        """Write the file under `root`. Asserts that the line is unique, or that a new file is
        missing."""
        path = root / self.file
        if self.side is None:
            assert not path.exists(), path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text, encoding="utf-8")
            return
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        places = [k for k, line in enumerate(lines) if line.lstrip().startswith(self.at)]
        assert len(places) == 1, f"{self.file}: {len(places)} lines start with {self.at}"
        is_definition = self.text.startswith(("def ", "class "))
        text = self.text + "\n\n" * is_definition  # two empty lines follow a definition
        lines.insert(places[0] + (self.side == "after"), text)
        path.write_text("".join(lines), encoding="utf-8")


@dataclass
class Recipe:
    """The edits and the commands of one section."""

    edits: list[Edit]
    commands: list[str]


def read_recipe(title: str) -> Recipe:
    """Return the recipe of the section of CONTRIBUTING.md with this title."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, title
    found = Recipe([], [])
    for language, text in FENCE.findall(section[1]):
        if language == "bash":
            found.commands += text.splitlines()
            continue
        first, _, rest = text.partition("\n")
        head = HEAD.fullmatch(first)
        assert head, f"the first line names no file and position: {first}"
        found.edits.append(Edit(head["file"], head["side"], head["at"] or "", rest))
    return found
