"""`import vkchi.quadrants as qd`, `python -m vkchi.quadrants SCRIPT`, and the table of its page."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vkchi as ti
import vkchi.quadrants as qd

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| (`.*?) \| (.*) \|$", (ROOT / "docs/quadrants.md").read_text("utf-8"), re.M)


def lookup(path: str) -> object:
    found: object = qd
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(("names", "state"), ROWS)
def test_names_of_the_table(names: str, state: str) -> None:
    for path in re.findall(r"`([\w.]+)`", names):
        if state.startswith("not supported"):
            with pytest.raises(ti.Unsupported, match=rf"qd\.{path} is not supported: "):
                lookup(path)
        else:
            assert lookup(path) is not None
            assert hasattr(ti, path.partition(".")[0]) or "`qd`" in state or "in `qd`" in state


def test_names_of_vkchi() -> None:
    import vkchi.quadrants.math as math

    assert math is ti.math and qd.func is ti.func and qd.types is ti.types
    assert qd.QuadrantsSyntaxError is ti.TaichiSyntaxError
    assert qd.simt.subgroup.ballot is ti.simt.subgroup.ballot64
    assert qd.simt.subgroup.elect is ti.simt.subgroup.elect
    assert {"kernel", "VectorTensor", "QuadrantsTypeError"} <= set(dir(qd))
    with pytest.raises(AttributeError, match="no_such_name"):
        qd.no_such_name
    with pytest.raises(ModuleNotFoundError):
        import vkchi.quadrants.no_such_module  # noqa: F401


def test_classes_of_tensors() -> None:
    for backend in qd.Backend:
        x, v, m = (qd.tensor(t, 3, backend=backend) for t in (qd.f32, qd.math.vec3, qd.math.mat2))
        found = [[isinstance(a, c) for a in (x, v, m)] for c in (qd.VectorTensor, qd.MatrixTensor)]
        assert found == [[False, True, False], [False, False, True]]
        assert qd.wrap(x) is x
    with pytest.raises(ti.TaichiRuntimeTypeError, match=r"qd\.wrap takes a field or an ndarray"):
        qd.wrap(3)


@pytest.mark.usefixtures("own_runtime")
def test_inner_names_that_programs_replace() -> None:
    from vkchi.quadrants.lang import impl
    from vkchi.quadrants.lang.impl import PyQuadrants

    assert qd.lang.impl is impl and impl.get_runtime().default_fp is ti.f32
    assert impl.get_max_shared_memory_bytes(is_lowerbound_ok=True) >= 1 << 14
    qd.lang._template_mapper.__builtins__["__debug__"] = False
    assert impl.ndarray is ti.ndarray and qd.lang.Vector is ti.Vector
    for name in ("trace", "debug", "info", "warn", "error", "critical"):
        setattr(qd._logging, name, qd._logging._get_logging(getattr(qd._logging, name.upper())))
    qd._logging.trace("nobody sees this")
    with pytest.raises(AttributeError, match="no_such_name"):
        impl.no_such_name

    calls: list[str] = []
    materialize, clear = PyQuadrants.materialize, PyQuadrants.clear
    delayed: list[tuple[qd.Tensor, int]] = []

    def fill_delayed(self: PyQuadrants) -> None:
        materialize(self)
        for x, value in delayed:
            x.fill(value)
        delayed.clear()
        self.prog.synchronize()

    @qd.kernel
    def read(x: qd.Tensor) -> qd.i32:
        return x[None]

    PyQuadrants.materialize = fill_delayed
    PyQuadrants.clear = lambda self: calls.append("clear")
    try:
        for value in (3, 4):
            x = qd.tensor(qd.i32, (), backend=qd.Backend.FIELD)
            delayed.append((x, value))
            assert read(x) == value
        qd.reset()
        assert calls == ["clear"]
        qd.reset()
        assert calls == ["clear"]  # there was no runtime
    finally:
        PyQuadrants.materialize, PyQuadrants.clear = materialize, clear


@pytest.mark.parametrize("arch", [qd.vulkan, qd.python])
@pytest.mark.usefixtures("own_runtime")
def test_contexts_run_in_order(arch: object) -> None:
    ti.init(arch=arch)
    x, y, left = qd.field(qd.i32, 4), qd.field(qd.i32, 4), qd.field(qd.i32, ())

    @qd.kernel
    def in_streams():
        with qd.stream_parallel():
            for i in x:
                x[i] += 1
            n = 3
        with qd.stream_parallel():
            for i in y:
                y[i] += n * x[i]

    @qd.kernel(graph=True)
    def in_graph():
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x:
                    x[i] += 10
            with qd.graph_parallel():
                while qd.graph.do_while(left):
                    for i in y:
                        y[i] += x[i]
                    for _ in range(1):
                        left[None] -= 1

    in_streams()
    left[None] = 2
    in_graph()
    assert x.to_numpy().tolist() == [11] * 4 and y.to_numpy().tolist() == [25] * 4


@contextlib.contextmanager
def parallel() -> Iterator[None]:
    yield


def test_other_contexts_are_errors() -> None:
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def of_python():
        with parallel():
            x[0] = 1

    @qd.kernel
    def named():
        with qd.graph.parallel() as p:
            x[0] = p

    @qd.kernel
    def mixed():
        with qd.graph.parallel(), parallel():
            x[0] = 1

    for kernel in (of_python, named, mixed):
        with pytest.raises(ti.TaichiSyntaxError, match="kernels have no `with`"):
            kernel()


SCRIPT = """
import sys

import quadrants as qd
import quadrants.math as qm
from quadrants import Tensor, simt
from quadrants.lang import impl

import parts

qd.init(arch=qd.vulkan, src_ll_cache=False, offline_cache=False, default_fp=qd.f32)

@qd.kernel(fastcache=True)
def fill(x: Tensor, n: qd.Template):
    for i in range(x.shape[0]):
        x[i] = parts.twice(i) + n + qm.ffs(i)

x = qd.tensor(qd.i32, 4, backend=qd.Backend.FIELD)
fill(x, 10)
print(x.to_numpy().tolist(), sys.argv[1:], __name__, impl.get_runtime().default_fp == qd.f32)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vkchi.quadrants", *words], cwd=folder, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip


def test_scripts_run_unmodified(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "parts.py").write_text(
        "import quadrants as qd\n\n\n@qd.func\ndef twice(x):\n    return 2 * x\n"
    )
    found = run(ROOT, str(tmp_path / "script.py"), "a", "b")
    assert found.stdout == "[10, 13, 16, 17] ['a', 'b'] __main__ True\n", found.stderr
    (tmp_path / "quadrants.py").write_text("raise ImportError('another quadrants')\n")
    assert run(tmp_path, "script.py").stdout.startswith("[10, 13, 16, 17]")
    wrong = run(tmp_path, "nothing.py")
    assert wrong.returncode == 2 and "no file 'nothing.py'; usage: " in wrong.stderr
