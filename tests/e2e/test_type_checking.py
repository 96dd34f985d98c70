"""docs/type-checking.md: mypy's messages about valid programs, and the settings against them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "type-checking.md").read_text(encoding="utf-8")
# A valid program. The messages of mypy about it are those of the page's table.
PROGRAM = """\
import numpy as np

import vkchi as ti
import vkchi.math as tm

ti.init(random_seed=3)
vec6 = ti.types.vector(6, ti.f32)
Row = ti.types.ndarray(dtype=ti.f32, ndim=1)
needs = {"needs_grad": True}
x = ti.field(ti.f32, 8)
loss = ti.field(ti.f32, (), **needs)
v = ti.Vector.field(2, ti.f32, (), **needs)


@ti.kernel
def scale(f: ti.template(), factor: ti.f32):
    for i in f:
        f[i] = factor


@ti.kernel
def sum_of(s: vec6) -> ti.f32:
    return s.sum()


@ti.kernel
def first(row: Row) -> ti.f32:
    return row[0]


@ti.kernel
def pair() -> (ti.f32, ti.i32):
    return 1.0, 2


@ti.func
def double(a):
    return 2 * a


@ti.kernel
def along(d: tm.vec3) -> ti.i32:
    k = 0
    k = ti.floor(d.y)
    cell = int(d)
    return k + cell[0]


@ti.kernel
def product(a: ti.f32, b: ti.f32, c: ti.f32) -> ti.f32:
    return a * b * c


@ti.dataclass
class Ball:
    center: tm.vec3
    radius: ti.f32


@ti.data_oriented
class Sim:
    def __init__(self, n):
        self.x = ti.field(ti.f32, n)


sim = Sim(4)
balls = Ball.field(shape=8)
scale(x, np.float32(2))
factors = [2.0, 3.0]
with ti.ad.Tape(loss) as tape:
    pass
found = [
    sum_of(vec6(1, 2, 3, 4, 5, 6)),
    first(np.ones(3, np.float32)),
    pair(),
    along([2.5, 1.5, 0.0]),
    product(*factors, 4.0),
    Ball().radius,
    tape.report.calls,
    x[3],
]
"""
FOUND = [21.0, 1.0, (1.0, 2), 3, 24.0, 0.0, 0, 2.0]


def check(program: Path, settings: str) -> list[str]:
    """Messages of mypy in strict mode, with settings for the program's module.

    Options for the other modules are those of `make check`, whose cache it uses.
    """
    config = program.with_name("mypy.toml")
    config.write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + "\n" + settings)
    options = [f"--config-file={config}", f"--cache-dir={ROOT / '.mypy_cache'}"]
    said, _, _ = api.run([*options, str(program)])
    return [line for line in said.splitlines() if f"{program.name}:" in line and "error:" in line]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to write, of the module that the page's settings name."""
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    return tmp_path / "sim.py"


def settings() -> str:
    return re.findall(r"```toml\n(\[\[tool\.mypy.*?)```", PAGE, re.S)[0]


def messages() -> list[tuple[list[str], str]]:
    """(messages, setting or annotation) of the rows of the table."""
    rows = re.findall(r"^\| (`.*?) \| .* \| (.*) \|$", PAGE, re.M)
    return [(re.findall(r"`(.*?)`", first.replace("\\|", "|")), last) for first, last in rows]


def without_names(message: str) -> str:
    return re.sub(r'"[^"]*"|\w+\?', "_", message)


@pytest.mark.usefixtures("own_runtime")
def test_the_program_with_messages_is_valid(program: Path) -> None:
    program.write_text(PROGRAM)
    assert runpy.run_path(str(program))["found"] == FOUND


def test_messages_are_those_of_the_table(program: Path) -> None:
    program.write_text(PROGRAM)
    lines = check(program, "")
    known = [message for row, _ in messages() for message in row]
    assert len(known) > 12
    for message in known:
        assert any(message in line for line in lines), (message, lines)
    shapes = [without_names(message) for message in known]
    others = [line for line in lines if not any(one in without_names(line) for one in shapes)]
    assert others == []


def test_settings_leave_the_messages_that_an_annotation_removes(program: Path) -> None:
    program.write_text(PROGRAM)
    left = check(program, settings())
    for row, advice in messages():
        is_set = advice.startswith(("`dis", "`warn"))
        for message in row:
            if "is not valid as a type" not in message:
                assert any(message in line for line in left) != is_set, (message, left)


def test_the_documented_program_type_checks(program: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    program.write_text(code)
    assert check(program, settings()) == []
