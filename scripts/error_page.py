"""The page of error messages, generated from the error goldens of the tests.

Each golden is a wrong program and its message: `tests/golden/errors` for kernels, and
`tests/golden/calls` for calls from Python. `tests/golden/fixes.txt` has fixes for messages that
propose none.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from vkchi import errors
from vkchi.compat import unsupported
from vkchi.tuples import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("errors", "calls")
PLACE = re.compile(r"^tests/golden/\w+/\w+\.py:\d+:\d+: ")
KINDS = {
    name: kind
    for module in (errors, unsupported)
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and issubclass(kind, errors.VkchiError)
}
ENTRY = """\
# Errors

Messages of vkchi, the line of a program that has each, and a fix for that program. The page is
generated from the programs that test these messages. Errors of gradients are on the page
[Gradients](autodiff.md#errors).

- All errors are subclasses of `ti.VkchiError`. Most are also the class of Python that fits:
  `except TypeError` catches a KernelTypeError.
- Errors in kernels name your line. `VKCHI_TRACEBACK=full` shows frames of vkchi too.
- Look for a part of your message with the search of your browser: names and types differ.
"""


class Golden(NamedTuple):
    """A message: its error class, the program's line, notes, and the proposed fix."""

    kind: str
    sentence: str
    line: str
    notes: tuple[str, ...]
    fix: str


def read_golden(path: Path) -> Golden:
    """Read the message of a golden and the line of its program."""
    kind, first, *rest = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    program = path.with_suffix(".py").read_text(encoding="utf-8").rstrip("\n").split("\n")
    place = re.search(r"\.py:(\d+):", first)
    line = program[int(place[1]) - 1] if place else last_statement(program)
    notes, fix = [], []
    for text in rest:
        if text.startswith("note: "):
            notes.append(PLACE.sub("", text.removeprefix("note: ")))
        elif text.startswith("help: "):
            fix.append(text.removeprefix("help: "))
        elif re.match(r" +\| +\^+  \S", text):  # the label beside the carets
            notes.append(re.sub(r"^ +\| +\^+  ", "", text))
        elif not re.match(r" +(\d+ +)?\|| +in ", text):
            first += f" {text.strip()}"
    return Golden(kind, PLACE.sub("", first), line.strip(), tuple(notes), " ".join(fix))


def last_statement(program: list[str]) -> str:
    """The first line of a program's last top-level statement."""
    return next(line for line in reversed(program) if line[:1] not in (" ", ")", "]", "}", ""))


def read_goldens() -> list[Golden]:
    """Read all goldens; of those with the same sentence, the last one."""
    paths = [p for name in FOLDERS for p in sorted((ROOT / "tests/golden" / name).glob("*.txt"))]
    found = {golden.sentence: golden for golden in map(read_golden, paths)}
    fixes = read_fixes()
    return [golden._replace(fix=golden.fix or fix_of(golden, fixes)) for golden in found.values()]


def read_fixes() -> list[tuple[re.Pattern[str], str]]:
    """Read patterns of sentences, in order, and the fix of each."""
    text = (ROOT / "tests/golden/fixes.txt").read_text(encoding="utf-8")
    rows = [line.split(" => ") for line in text.splitlines() if line and not line.startswith("#")]
    return [(re.compile(".*".join(map(re.escape, part.split("*")))), fix) for part, fix in rows]


def fix_of(golden: Golden, fixes: list[tuple[re.Pattern[str], str]]) -> str:
    """The first fix that fits a message; empty if there is none."""
    sentence = golden.sentence.replace("`", "")
    return next((fix for pattern, fix in fixes if pattern.search(sentence)), "")


def error_page() -> str:
    """Markdown of the page: a table per error class."""
    goldens = read_goldens()
    parts = [ENTRY]
    for kind in KINDS:
        rows = sorted(g for g in goldens if g.kind == kind)
        if rows:
            head = ["| message | line | fix |", "| --- | --- | --- |"]
            parts += [f"## {kind}", "", about(kind), "", *head, *map(row_of, rows), ""]
    assert {g.kind for g in goldens} <= KINDS.keys()
    return "\n".join(parts)


def about(kind: str) -> str:
    """First paragraph of a class's docstring, and the classes of Python that it is."""
    found = KINDS[kind]
    text = " ".join((found.__doc__ or "").split("\n\n")[0].split()).removeprefix("Error: ")
    plain = [c.__name__ for c in found.__mro__ if c.__module__ == "builtins"]
    own = [name for name in plain if name not in ("Exception", "BaseException", "object")]
    caught = f" Python's class: {', '.join(f'`{name}`' for name in own)}." if own else ""
    return f"{text[:1].upper()}{text[1:]}{caught}"


def row_of(golden: Golden) -> str:
    notes = "".join(f"<br>{escape(note)}" for note in golden.notes)
    line = f"`{golden.line}`" if "`" not in golden.line else f"`` {golden.line} ``"
    return f"| {escape(golden.sentence)}{notes} | {line} | {escape(golden.fix)} |"


def escape(text: str) -> str:
    """A message as Markdown: characters outside backticks are shown as they are."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else escape_plain(part) for part in parts)


def escape_plain(text: str) -> str:
    marked = re.sub(r"([\\*_\[\]])", r"\\\1", text)
    return marked.replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")
