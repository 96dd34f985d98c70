"""Messages in IPython and notebooks: they name cells, and show no frame of vkchi."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

CELLS = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
if sys.argv[1] == "ipykernel":
    from ipykernel.compiler import XCachingCompiler
    shell.compile = XCachingCompiler()
for cell in sys.stdin.read().split("#---\\n"):
    shell.run_cell(cell, store_history=True)
"""


@pytest.fixture(params=["IPython", "ipykernel"])
def run_cells(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Run cells after one that imports vkchi; return their output. Files of cells have the names
    of the terminal's shell, or of notebooks."""
    pytest.importorskip(request.param)

    def run(*cells: str) -> str:
        first = "import vkchi as ti\nti.init()\nx = ti.field(ti.i32, 8)\n"
        ran = subprocess.run(
            [sys.executable, "-c", CELLS, request.param], input="#---\n".join([first, *cells]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )  # fmt: skip
        assert "ipykernel_" not in ran.stdout and "<ipython-input" not in ran.stdout, ran.stdout
        return ran.stdout

    return run


def test_errors_in_cells_name_the_cell(run_cells: Callable[..., str]) -> None:
    said = run_cells(
        "@ti.func\ndef g(a):\n    return a + x\n",
        "@ti.kernel\ndef f():\n    for i in x:\n        x[i] = g(1)\nf()\n",
    )
    assert "KernelTypeError: Cell In[2], line 3: a whole array is not a number" in said
    assert "in g(), called from f() at Cell In[3], line 4" in said


def test_warnings_in_cells_name_the_cell(run_cells: Callable[..., str]) -> None:
    said = run_cells("@ti.kernel\ndef f():\n    for i in x:\n        x[i] = 2.5\nf()\n")
    assert "Cell In[2], line 4: ConversionWarning: 2.5 becomes 2" in said


def test_kernels_of_cells_show_the_cell(run_cells: Callable[..., str]) -> None:
    said = run_cells("@ti.kernel\ndef f():\n    x[0] = 1\n", "f")
    assert "<ti.kernel f() at Cell In[2], line 1>" in said


def test_syntax_errors_of_kernels_in_cells_show_no_inner_frame(
    run_cells: Callable[..., str],
) -> None:
    said = run_cells(
        '@ti.kernel\ndef f():\n    with open("a"):\n        pass\n',
        "f()\n", "a b\n", "%tb\n",
    )  # fmt: skip
    assert "KernelSyntaxError: Cell In[2], line 3: kernels have no `with`" in said
    assert "----> 1 f()" in said
    assert "File <string>" not in said and ".py" not in said
    assert "SyntaxError: invalid syntax" in said  # Python's own


def test_kernels_under_cell_magics(run_cells: Callable[..., str]) -> None:
    kernel = "@ti.kernel\ndef f():\n    x[0] = 7\nf()\n"
    said = run_cells(f"%%timeit -n 1 -r 1\n{kernel}", f"%%prun -q\n{kernel}", "print(x[0] * 3)")
    assert (
        "help: cells under %%timeit have no source: define the kernel in a cell of its own" in said
    )
    assert "21" in said.split()
