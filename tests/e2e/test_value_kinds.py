"""Every operation on every kind of compile-time value: the golden table tests/golden/kinds.txt, and
the answers that Python defines. `pytest --bless` rewrites the table.
"""

from __future__ import annotations

import collections
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import vkchi as ti
from tests.e2e.value_kinds import KINDS, OPERATIONS, answer, surroundings, table

GOLDEN = Path(__file__).parents[1] / "golden" / "kinds.txt"
# The kinds that Python has as well, as it writes them where n is 2.
IN_PYTHON: dict[str, Any] = {
    "a kernel scalar": lambda: 2,
    "a kernel vector": lambda: ti.Vector([2, 2, 3]),
    "a captured vector": lambda: ti.Vector([1, 2, 3]),
    "a number": lambda: 3,
    "a string": lambda: "abc",
    "a list of kernel values": lambda: [2, 2, 3],
    "a dict of kernel values": lambda: {"p": 2, "q": 2},
    "a named tuple": lambda: collections.namedtuple("Named", "p q r")(1, 2, 3),
    "a range of Python ints": lambda: range(1, 4),
    "a range of kernel values": lambda: range(1, 2),
    "None": lambda: None,
}
# Lists and tuples are vectors in arithmetic, which Python does not have.
OF_TAICHI = ("x + 1", "2.5 * x", "-x", "x < 2", "x == x", "y = x; y += 1", "float(x)", "not x")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return surroundings()


def test_the_table_of_all_answers(bless: bool, names: dict[str, Any]) -> None:
    found = table(names)
    if bless:
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_each_error_has_a_help() -> None:
    errors = [line for line in GOLDEN.read_text().splitlines() if re.match("E[0-9a-f]+: ", line)]
    assert [line for line in errors if "; help: " not in line] == []
    assert not any("at compile time: 'in" in line or "<lambda>" in line for line in errors)


def numbers_in(x: Any) -> list[Any]:
    """The numbers and words of a text, bools as numbers."""
    text = str(x).replace("True", "1").replace("False", "0")
    found = re.findall(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?|[a-z]+", text)
    return [float(part) if part[-1].isdigit() or part[-1] == "." else part for part in found]


@pytest.mark.parametrize("kind", IN_PYTHON)
def test_values_are_those_of_python(
    kind: str, names: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    row = KINDS[kind]
    lines, expected = [row.before] if row.before else [], []
    for name, operation in OPERATIONS.items():
        is_list = kind.startswith(("a list", "a named", "a dict")) and name in OF_TAICHI
        if is_list or answer(row, operation, names)[1] or name in ("print(x)", "x == x"):
            continue
        if kind == "a range of kernel values" and name != "for":  # it is not printed
            continue
        python, noted = IN_PYTHON[kind](), []

        def note(*xs: Any, noted: list[Any] = noted) -> None:
            noted.append(xs)

        text = operation.format(x="x_").replace("ti.static(x_)", "x_")
        scope = {**names, "x_": python, "n": 2, "c": 1, "probe": note}
        try:
            exec(text, scope)
        except TypeError:
            assert name in (*OF_TAICHI, "x + [n, 2, 3]"), f"{name} of {kind} has none in Python"
            continue
        expected.append((name, [numbers_in(xs) for xs in noted]))
        lines.append(f"print({name!r}, '=')")
        lines += operation.format(x=row.x).replace("probe(", "print(").split("\n")
    source = "@ti.kernel\ndef program(n: ti.i32, c: ti.i32):\n"
    blocks = "".join(f"    if True:\n        {line}\n" for line in lines[bool(row.before) :])
    source += (f"    {row.before}\n" if row.before else "") + blocks
    file = f"<values of {kind}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = dict(names)
    exec(compile(source, file, "exec"), scope)
    capfd.readouterr()
    scope["program"](2, 1)
    ti.sync()
    said = capfd.readouterr().out
    for k, (name, notes) in enumerate(expected):
        begin = said.index(f"{name} =\n") + len(f"{name} =\n")
        end = said.index(f"{expected[k + 1][0]} =\n", begin) if k + 1 < len(expected) else len(said)
        found = [numbers_in(line) for line in said[begin:end].splitlines()]
        assert found == notes, name
