"""After an edit exactly the kernels that it affects are compiled anew, and results are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vkchi.__main__ import main

PROGRAM = """
import numpy as np
import vkchi as ti
from settings import SCALE, table
import settings

# a comment at the top
ti.init(arch=ti.vulkan, log_level="error", fast_math=False)
x = ti.field(ti.f32, 8)
y = ti.field(ti.f32, shape=8)
FACTOR = 3.0
bias = 4
real = ti.f32

@ti.func
def inner(v):
    return v * 2.0

@ti.func
def helper(v):
    return inner(v) + settings.OFFSET

@ti.kernel
def by_body():
    # says nothing
    for i in x:
        x[i] = i + 1.0

@ti.kernel
def by_function():
    for i in x:
        x[i] = helper(x[i])

@ti.kernel
def by_global():
    for i in x:
        x[i] = x[i] * FACTOR + table[1] + SCALE

@ti.kernel
def by_annotation() -> ti.f32:
    v: real = 2.7
    return v

@ti.kernel
def by_layout():
    for i in y:
        y[i] = x[i % 8]

@ti.kernel
def by_template(k: ti.template()):
    for i in x:
        x[i] += k

@ti.kernel
def by_argument(a: ti.types.ndarray()):
    for i in a:
        a[i] = i * 2

def make(power):
    @ti.kernel
    def by_closure():
        for i in x:
            x[i] += power
    return by_closure

@ti.data_oriented
class Model:
    weight = 0.5

    def __init__(self):
        self.bias = 1.5
        self.other = 4

    @ti.func
    def inside(self, v):
        return v * self.weight

    @ti.kernel
    def by_class(self):
        for i in x:
            x[i] = self.inside(x[i]) + self.bias

by_body()
by_function()
by_global()
value = by_annotation()
by_layout()
by_template(2)
a = np.zeros(4, np.int32)
by_argument(a)
make(2)()
model = Model()
model.by_class()
result = str([x.to_numpy().tolist(), y.to_numpy().tolist(), a.tolist(), value])
"""
# Runs the program of each folder that stdin lists, with the cache and, if listed, without: prints
# results, and names of the lowered kernels.
DRIVER = """
import json, os, runpy, sys
import vkchi
import vkchi.kernel
kernels = sys.modules["vkchi.kernel"]
compile_anew = kernels.compile_anew

def run(folder):
    anew = []
    def note(fn, *rest):
        anew.append(fn.__name__)
        return compile_anew(fn, *rest)
    kernels.compile_anew = note
    sys.modules.pop("settings", None)
    sys.path.insert(0, folder)
    found = runpy.run_path(os.path.join(folder, "program.py"), run_name="__main__")
    sys.path.remove(folder)
    return found["result"], anew

results = []
for folder in json.load(sys.stdin):
    os.environ["VKCHI_CACHE"] = "1"
    cached = run(folder)
    again = run(folder) if len(results) < 6 else (cached[0], [])
    os.environ["VKCHI_CACHE"] = "0"
    results.append((cached, again, run(folder)))
print(json.dumps(results))
"""
SETTINGS = """
SCALE = 0.25
OFFSET = 0.125
table = [1.0, 2.0, 3.0]
UNUSED = 7
"""
ALL = [
    "by_body", "by_function", "by_global", "by_annotation", "by_layout", "by_template",
    "by_argument", "by_closure", "by_class",
]  # fmt: skip

EDITS = {
    "nothing": ("", "", []),
    "unused": ("UNUSED = 7", "UNUSED = 8", []),
    "moved": ("# a comment at the top", "# a comment\n# of several\n\n# lines", []),
    "body": ("x[i] = i + 1.0", "x[i] = i + 2.0", ["by_body"]),
    "comment": ("# says nothing", "# says eval(something)", []),
    "comment of several lines": ("# says nothing", "# says\n    # something\n  # else", []),
    "comment behind": ("x[i] = i + 1.0", "x[i] = i + 1.0  # and no more", []),
    "no comment": ("    # says nothing\n", "", []),
    "comment, or no comment": ("x[i] = i + 1.0", "x[i] = i  # + 1.0", ["by_body"]),
    "called function": ("return v * 2.0", "return v * 4.0", ["by_function"]),
    "a name of a module": ("OFFSET = 0.125", "OFFSET = 0.5", ["by_function"]),
    "global": ("FACTOR = 3.0", "FACTOR = 5.0", ["by_global"]),
    "imported": ("SCALE = 0.25", "SCALE = 0.75", ["by_global"]),
    "type of a global": ("FACTOR = 3.0", "FACTOR = 3", ["by_global"]),
    "item": ("table = [1.0, 2.0", "table = [1.0, 4.0", ["by_global"]),
    "annotation of a variable": ("real = ti.f32", "real = ti.i32", ["by_annotation"]),
    "layout": ("shape=8)", "shape=16)", ["by_layout"]),
    "element": ("y = ti.field(ti.f32", "y = ti.field(ti.i32", ["by_layout"]),
    "gradient": ("shape=8)", "shape=8, needs_grad=True)", ["by_layout"]),
    "template value": ("by_template(2)", "by_template(3)", ["by_template"]),
    "type of a template value": ("by_template(2)", "by_template(2.0)", ["by_template"]),
    "argument's dtype": ("np.zeros(4, np.int32)", "np.zeros(4, np.float32)", ["by_argument"]),
    "argument's axes": ("np.zeros(4, np.int32)", "np.zeros((2, 2), np.int32)[0]", []),
    "closure": ("make(2)()", "make(3)()", ["by_closure"]),
    "class attribute": ("weight = 0.5", "weight = 0.75", ["by_class"]),
    "attribute": ("self.bias = 1.5", "self.bias = 2.5", ["by_class"]),
    "global of an attribute's name": ("bias = 4", "bias = 5", []),
    "attribute not read": ("self.other = 4", "self.other = 5", []),
    "method": ("v * self.weight", "v * self.weight * 2", ["by_class"]),
    "option": ("fast_math=False", "fast_math=True", ALL),
    "debug": ("fast_math=False", "debug=True", ALL),
    "default type": ("fast_math=False", "default_ip=ti.u32", ALL),
}


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """The program in a folder, edited."""
    folder.mkdir(exist_ok=True)
    assert not old or (PROGRAM + SETTINGS).count(old) == 1, old
    for name, text in (("program.py", PROGRAM), ("settings.py", SETTINGS)):
        (folder / name).write_text(text.replace(old, new) if old else text)
    return folder


Result = list[Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs and their cache."""
    return tmp_path_factory.mktemp("edits")


@pytest.fixture(scope="module")
def runs(root: Path, cache_environment: Callable[[Path], dict[str, str]]) -> dict[str, Result]:
    """Of each edit, in a folder of its own: with a cache that has the program unedited, once more,
    and without."""
    folders = [str(write(root / f"{k}", *edit[:2])) for k, edit in enumerate(EDITS.values())]
    first = str(write(root / "first"))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-B", "-c", DRIVER],
        input=json.dumps([first, *folders]), env=cache_environment(root / "cache"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    begin, *results = json.loads(done.stdout)
    assert begin[0][1] == ALL
    return dict(zip(EDITS, results))


@pytest.mark.parametrize("edit", EDITS)
def test_edit_recompiles_affected_kernels(edit: str, runs: dict[str, Result]) -> None:
    (result, anew), (second, none), (right, _) = runs[edit]
    assert anew == EDITS[edit][2]
    assert result == right
    assert (second, none) == (right, [])


# Output of `vkchi cache why` for a kernel, for the entries that edits made.
REASONS = {
    "by_body": [
        "source of by_body:\n",
        "\n    -        x[i] = i + 2.0\n    +        x[i] = i + 1.0\n",
        "option fast_math: ",
        "option debug: ",
    ],
    "by_function": [
        "source of inner:\n",
        "\n    -    return v * 4.0\n    +    return v * 2.0\n",
        "OFFSET of settings in __main__: float 0.5 -> float 0.125",
        "option default_ip: ",
    ],
    "by_global": ["FACTOR in __main__: float 5.0 -> float 3.0", "SCALE in __main__: float 0.75"],
    "by_layout": ["y in __main__: field"],
    "by_template": ["value of argument k: int 3 -> int 2"],
    "by_argument": ["argument a: array type array<f32[?]> -> array type array<i32[?]>"],
    "by_closure": ["power of make.<locals>.by_closure: int 3 -> int 2"],
    "by_class": [
        "bias of argument self: float 2.5 -> float 1.5",
        "weight of argument self: float 0.75",
    ],
}


@pytest.mark.parametrize("kernel", REASONS)
@pytest.mark.usefixtures("runs")
def test_why_it_was_compiled_anew(
    kernel: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "--folder", str(root / "cache"), "why", f"program.py:{kernel}"]) == 0
    said = capsys.readouterr().out
    as_passed = r"( noguard)?( aligned \d+)?(?= ->|$)"  # attributes that depend on the device
    said = re.sub(as_passed, "", said, flags=re.M)
    assert [reason for reason in REASONS[kernel] if reason not in said] == [], said
