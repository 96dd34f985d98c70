"""Kernels as plain Python: debuggers, tracers, and the same results as on the device."""

from __future__ import annotations

import gc
import io
import json
import os
import pdb
import re
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language import conftest
from vkchi.compile_state import compiling
from vkchi.lang import simt
from vkchi.python_mode.python_kernel import DIFFERENT, EXCLUDED, NOT_RUN
from vkchi.runtime import current_runtime

pytestmark = pytest.mark.usefixtures("own_runtime")


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment leaves the mode to the tests."""
    monkeypatch.delenv("VKCHI_PYTHON", raising=False)


@pytest.fixture
def python() -> Iterator[None]:
    """Kernels run as plain Python, for one test."""
    ti.init(arch=ti.python, random_seed=7)
    yield
    ti.init()


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, dict[str, Any]]]:
    """Places at which `breakpoint()` stopped: file, line, variables."""
    found: list[tuple[str, int, dict[str, Any]]] = []

    def stop() -> None:
        frame = sys._getframe(1)
        found.append((frame.f_code.co_filename, frame.f_lineno, dict(frame.f_locals)))

    monkeypatch.setattr(sys, "breakpointhook", stop)
    return found


def line_of(marker: str) -> int:
    """The line of this file that ends with a comment."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return 1 + next(k for k, line in enumerate(lines) if line.endswith(f"# {marker}"))


@ti.func
def root(a):
    b = ti.sqrt(a)  # in root
    return b + 1


# --- debuggers -----------------------------------------------------------------------------------


def test_breakpoint_stops_at_the_users_line(python: None, stops: list[Any]) -> None:
    x = ti.field(ti.f32, 4)

    @ti.kernel
    def run(n: ti.i32):
        for i in range(n):
            v = ti.Vector([i, 2.5])
            x[i] = v.sum()
            if i == 2:
                breakpoint()  # the stop

    run(4)
    (stop,) = stops
    assert stop[:2] == (__file__, line_of("the stop"))
    seen = stop[2]
    assert (seen["i"], seen["n"], seen["v"].to_list()) == (2, 4, [2.0, 2.5])
    assert type(seen["i"]) is np.int32
    assert x.to_numpy().tolist() == [2.5, 3.5, 4.5, 5.5]


def test_breakpoint_in_a_function_of_a_kernel(python: None, stops: list[Any]) -> None:
    @ti.func
    def twice(a):
        b = a * 2
        breakpoint()
        return b

    @ti.kernel
    def run(a: ti.f32) -> ti.f32:
        return twice(a) + 1

    assert run(1.5) == 4.0
    assert [(seen["a"], seen["b"]) for _, _, seen in stops] == [(1.5, 3.0)]


def test_breakpoint_in_operands_that_may_be_skipped(python: None, stops: list[Any]) -> None:
    @ti.func
    def positive(a):
        breakpoint()
        return a > 0

    @ti.func
    def root_of(a):
        breakpoint()
        return ti.sqrt(a)

    @ti.kernel
    def run(a: ti.i32) -> ti.f32:
        b = root_of(a) if a > 0 else 7
        if a > 2 and positive(a):
            b += 1
        return b

    assert run(-4) == 7.0
    assert not stops
    assert run(1) == 1.0
    assert len(stops) == 1
    assert run(4) == 3.0
    assert [seen["a"] for _, _, seen in stops] == [1, 4, 4]


def test_breakpoint_sees_arrays_that_the_kernel_changed(
    python: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ti.field(ti.i32, 3)
    given = np.zeros(3, np.int32)
    found = []

    @ti.kernel
    def run(a: ti.types.ndarray()):
        x[1] = 5
        a[2] = 7
        breakpoint()

    def look() -> None:
        seen = sys._getframe(1).f_locals
        found.append((x[1], seen["a"], given.tolist()))

    monkeypatch.setattr(sys, "breakpointhook", look)
    run(given)
    ((number, array, values),) = found
    assert number == 5
    assert array is given
    assert values == [0, 0, 7]
    assert given.tolist() == [0, 0, 7]


STOPS_AT_BREAKPOINT = sys.version_info >= (3, 13)  # earlier versions stop at the next line


def test_pdb_steps_through_the_users_lines_only(python: None) -> None:
    typed = STOPS_AT_BREAKPOINT * "n\n" + "s\ns\np a\nn\np b\ns\ns\np y\nc\n"
    shown = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO(typed), stdout=shown, nosigint=True, readrc=False)

    @ti.kernel
    def run(n: ti.i32) -> ti.f32:
        y = 0.0
        for i in range(n, n + 1):
            breakpoint()
            y += root(i)
            y *= 2.0
        return y

    hook, sys.breakpointhook = sys.breakpointhook, lambda: debugger.set_trace(sys._getframe(1))
    try:
        assert run(9) == 8.0
    finally:
        sys.breakpointhook = hook
        sys.settrace(None)
    text = shown.getvalue()
    places = re.findall(r"> (\S+)\(\d+\)(\w+)\(\)", text)
    assert {file for file, _ in places} == {__file__}
    names = [name for _, name in places][STOPS_AT_BREAKPOINT:]
    assert names == ["run", "root", "root", "root", "root", "run"]
    assert "--Call--" in text
    assert "9" in text
    assert "3.0" in text
    assert "4.0" in text


def test_pdb_returns_to_the_caller_of_the_kernel(python: None) -> None:
    shown = io.StringIO()
    typed = STOPS_AT_BREAKPOINT * "n\n" + "n\nn\nn\nc\n"
    debugger = pdb.Pdb(stdin=io.StringIO(typed), stdout=shown, nosigint=True, readrc=False)

    @ti.kernel
    def run():
        breakpoint()
        y = 1  # noqa: F841

    hook, sys.breakpointhook = sys.breakpointhook, lambda: debugger.set_trace(sys._getframe(1))
    try:
        run()
        after = 1
    finally:
        sys.breakpointhook = hook
        sys.settrace(None)
    names = re.findall(r"> \S+\(\d+\)(\w+)\(\)", shown.getvalue())
    own = "test_pdb_returns_to_the_caller_of_the_kernel"
    assert names[STOPS_AT_BREAKPOINT:] == ["run", "run", own, own]
    assert after == 1


def test_tracers_see_the_lines_that_ran(python: None) -> None:
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and frame.f_code.co_filename == __file__:
            seen.add((frame.f_code.co_name, frame.f_lineno))
        return trace

    @ti.kernel
    def run(n: ti.i32) -> ti.f32:
        total = 0.0
        for i in range(n):
            if i > 100:
                total -= 1.0  # never
            else:
                total += root(i)  # always
        k = 0
        while k < 3:
            k += 1  # counted
        return total  # last

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run(2)
    finally:
        sys.settrace(before)
    for marker in ("always", "counted", "last"):
        assert ("run", line_of(marker)) in seen, marker
    assert ("root", line_of("in root")) in seen
    assert ("run", line_of("never")) not in seen


def test_prints_appear_at_once(
    python: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "breakpointhook", lambda: print("stopped"))

    @ti.kernel
    def run():
        for i in range(2):
            print("i is", i, f"{0.5 * i:.2f}")
            breakpoint()

    run()
    assert capsys.readouterr().out == "i is 0 0.00\nstopped\ni is 1 0.50\nstopped\n"


def test_a_failed_assertion_raises_at_its_line() -> None:
    ti.init(arch=ti.python, debug=True)
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        for i in range(4):
            assert i < 2, f"i is {i}"  # the check
            x[i] = 1

    with pytest.raises(ti.TaichiAssertionError, match="assertion failed: i is 2") as error:
        run()
    assert line_of("the check") in [entry.lineno + 1 for entry in error.traceback]
    assert x.to_numpy().tolist() == [1, 1, 0, 0]
    ti.init()


def test_breakpoints_need_python_mode() -> None:
    @ti.kernel
    def run():
        breakpoint()

    with pytest.raises(ti.TaichiSyntaxError, match="VKCHI_PYTHON=1") as error:
        run()
    assert "breakpoint() stops only kernels that run as Python" in str(error.value)


# --- choosing it ---------------------------------------------------------------------------------


def test_arch_of_python_mode(python: None) -> None:
    assert ti.cfg.arch == ti.python
    assert current_runtime().options.python
    ti.init(arch="python")
    assert current_runtime().options.python
    ti.init(arch=ti.cpu)
    assert not current_runtime().options.python


def test_environment_variable() -> None:
    program = (
        "import sys, vkchi as ti\nti.init(arch=ti.cpu)\n"
        "from vkchi.runtime import current_runtime\n"
        "print(current_runtime().options.python, 'vkchi.python_mode' in sys.modules)"
    )
    env = {**os.environ, "VKCHI_PYTHON": "1"}
    found = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] == "True False"


COVERED = """
import vkchi as ti

ti.init(arch=ti.python)
x = ti.field(ti.i32, 4)

@ti.func
def half(a):
    if a > 100:
        a = 0  # missed
    return a // 2

@ti.kernel
def run(n: ti.i32):
    for i in range(n):
        if i > 7:
            x[0] = 9  # missed
        x[i] = half(i)

run(4)
assert x[3] == 1
"""


def test_coverage_counts_lines_of_kernels_and_functions(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    program, report = tmp_path / "covered.py", tmp_path / "report.json"
    program.write_text(COVERED)
    env = {**os.environ, "COVERAGE_FILE": str(tmp_path / "data"), "PYTHONPATH": os.getcwd()}
    for command in (
        ["run", f"--include={program}", str(program)],
        ["json", "-o", str(report)],
    ):
        subprocess.run([sys.executable, "-m", "coverage", *command], env=env, check=True)
    (found,) = json.loads(report.read_text())["files"].values()
    lines = COVERED.splitlines()
    assert [lines[k - 1].strip() for k in found["missing_lines"]] == [
        "a = 0  # missed", "x[0] = 9  # missed",
    ]  # fmt: skip


# --- results -------------------------------------------------------------------------------------


def test_integers_wrap_and_keep_their_widths(python: None, need: Any) -> None:
    need("i64", "u8")

    @ti.kernel
    def run(a: ti.i32, b: ti.u8, c: ti.i32) -> ti.types.vector(5, ti.i64):
        d = b
        d += ti.cast(250, ti.u8)
        e = a
        e = 2.9
        return ti.Vector([a + 1, d, c // 2, c % 3, e], ti.i64)

    assert run(2**31 - 1, 10, -7).to_list() == [-(2**31), 4, -4, 2, 2]


def test_loops_in_loops_bind_their_own_names(python: None, stops: list[Any]) -> None:
    x = ti.field(ti.i32, (2, 3))

    @ti.kernel
    def run() -> ti.i32:
        for i, j in x:
            for k in range(2):
                if k == 1:
                    break
                x[i, j] += 10 * i + j + k
            for k in range(0):
                x[i, j] = -1
        count = 0
        for i in range(3):
            count += i
        breakpoint()
        return count

    assert run() == 3
    assert x.to_numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    assert stops[0][2]["i"] == 2


def test_overflow_warns_once_per_line() -> None:
    ti.init(arch=ti.python, debug=True)

    @ti.kernel
    def run(a: ti.i32):
        for i in range(3):
            b = a + i
            c = b * 1  # noqa: F841

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run(2**31 - 1)
    ti.init()
    lines = [str(one.message).partition(":")[0] for one in found]
    assert lines == ["Addition overflow detected in i32"]


def test_floats_round_to_single_precision(python: None) -> None:
    @ti.kernel
    def run(n: ti.i32) -> ti.f32:
        total = 0.0
        ti.loop_config(serialize=True)
        for i in range(n):
            total += 0.1
        return total

    want = np.float32(0)
    for _ in range(100):
        want += np.float32(0.1)
    assert run(100) == float(want)


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_layouts_and_members(python: None, order: str) -> None:
    x = ti.field(ti.f32, shape=(2, 3), order=order)
    p = ti.Struct.field({"a": ti.i32, "v": ti.types.vector(2, ti.f32)}, shape=3)

    @ti.kernel
    def run():
        for i, j in x:
            x[i, j] = 10 * i + j
        for i in p:
            p[i].a = i
            p[i].v.y = p[i].a * 0.5

    run()
    assert x.to_numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    assert p.a.to_numpy().tolist() == [0, 1, 2]
    assert p.v.to_numpy()[:, 1].tolist() == [0, 0.5, 1]


def test_functions_with_several_returns_have_one_type(python: None, need: Any) -> None:
    need("f64")

    @ti.func
    def pick(a):
        if a > 0:
            return 2**24 + a
        return 0.5

    @ti.kernel
    def run(a: ti.i32) -> ti.f64:
        return ti.cast(pick(a), ti.f64)

    assert run(1) == 2**24  # an f32, as the other result is
    assert run(-1) == 0.5


def test_recursive_real_functions(python: None) -> None:
    @ti.real_func
    def fib(n: ti.i32) -> ti.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        return fib(n)

    assert run(10) == 55


def test_random_numbers_are_those_of_the_device() -> None:
    @ti.kernel
    def draw(x: ti.types.ndarray()):
        for i in x:
            x[i] = ti.random()

    found = []
    for arch in (ti.python, ti.cpu):
        ti.init(arch=arch, random_seed=3)
        x = ti.ndarray(ti.f32, 16)
        draw(x)
        found.append(x.to_numpy())
    ti.init()
    assert len(set(found[0].tolist())) == 16
    assert ((found[0] >= 0) & (found[0] < 1)).all()


def test_names_of_the_users_may_be_any(python: None, stops: list[Any]) -> None:
    """Also those that the stepped code uses itself."""
    steps = 3

    @ti.kernel
    def run(_vkchi: ti.i32) -> ti.i32:
        _vkchi_ = 0
        for outer in range(_vkchi):
            _vkchi_ += outer + steps
        breakpoint()
        return _vkchi_

    assert run(4) == 18
    assert stops[0][2]["_vkchi"] == 4


def test_the_recursion_limit_is_the_users_after_a_launch(python: None) -> None:
    @ti.kernel
    def run(a: ti.i32) -> ti.i32:
        return a + 1

    before = sys.getrecursionlimit()
    with compiling("another kernel"):
        assert run(1) == 2
    assert sys.getrecursionlimit() == before
    assert run(1) == 2
    assert sys.getrecursionlimit() == before


def test_values_from_outside_are_read_anew(python: None) -> None:
    scale = [2]

    @ti.kernel
    def run(a: ti.i32) -> ti.i32:
        return a * ti.static(scale[0])

    assert run(3) == 6
    scale[0] = 5
    assert run(3) == 15


def test_methods_of_data_oriented_classes(python: None) -> None:
    @ti.data_oriented
    class Counter:
        def __init__(self, n: int) -> None:
            self.n, self.x = n, ti.field(ti.i32, n)

        @ti.func
        def put(self, i, v):
            self.x[i] = v

        @ti.kernel
        def run(self):
            for i in range(self.n):
                self.put(i, i * self.n)

    counter = Counter(4)
    counter.run()
    assert counter.x.to_numpy().tolist() == [0, 4, 8, 12]


# --- on the device, or not at all ----------------------------------------------------------------


def test_gradients_run_on_the_device(python: None, stops: list[Any]) -> None:
    x = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            breakpoint()
            loss[None] += x[i] ** 2

    x.from_numpy(np.array([1, 2, 3], np.float32))
    with ti.ad.Tape(loss):
        run()
    assert loss[None] == 14.0
    assert x.grad.to_numpy().tolist() == [2, 4, 6]
    assert not stops
    run()
    assert len(stops) == 3


def test_workgroup_operations_raise_one_error(python: None) -> None:
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=8)
        for i in range(8):
            simt.block.sync()
            x[i] = 1

    with pytest.raises(NotImplementedError, match=r"ti\.simt.*do not run as Python") as error:
        run()
    assert __file__ in str(error.value)
    assert x.to_numpy().sum() == 0


def test_the_profiler_lists_no_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    ti.init(arch=ti.python, kernel_profiler=True)

    @ti.kernel
    def run() -> ti.i32:
        return 1

    assert run() == 1
    ti.profiler.print_kernel_profiler_info()
    assert "number of results: 0" in capsys.readouterr().out
    ti.init()


def test_the_documented_list_is_complete() -> None:
    path = Path(__file__).parents[2] / "docs" / "language" / "debugging.md"
    text = path.read_text(encoding="utf-8")
    rows = [f"| {row.subject} | `NotImplementedError` with the line |" for row in EXCLUDED]
    rows += [f"| {row.subject} | {row.behaviour} |" for row in DIFFERENT]
    assert "\n".join(rows) + "\n\n" in text


def test_programs_that_differ_have_a_documented_reason() -> None:
    """Every program of tests/e2e/language that is left out, by the tables of its conftest."""
    subjects = {row.subject for row in DIFFERENT}
    assert set(conftest.DIFFERENT_AS_PYTHON.values()) <= subjects
    assert conftest.NOT_RUN == NOT_RUN
    folder = Path(conftest.__file__).parent
    for name in (*conftest.DIFFERENT_AS_PYTHON, *conftest.SLOW_AS_PYTHON):
        file, _, function = name.partition("::")
        text = (folder / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in text, name


# --- as on the device ----------------------------------------------------------------------------


def test_a_long_range_is_not_copied(python: None) -> None:
    """With a `break` after a few of 2^30 iterations."""
    x = ti.field(ti.i32, ())

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(1 << 30):
            x[None] += i
            if i == 3:
                break

    run()
    assert x[None] == 6


def test_a_plan_does_not_keep_arguments_alive(python: None) -> None:
    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in x:
            x[i] += 1

    given = ti.ndarray(ti.i32, 4)
    run(given)
    seen = weakref.ref(given)
    del given
    gc.collect()
    assert seen() is None


def test_errors_after_another_form_name_the_line(python: None) -> None:
    """Forms of one function share its syntax, whose lines stay as they are."""

    @ti.kernel
    def run(s: ti.template()):
        ti.loop_config(serialize=s)
        for i in range(4):
            if i > 2:
                break  # leaves

    run(True)
    with pytest.raises(ti.TaichiSyntaxError, match=rf":{line_of('leaves')}:"):
        run(False)
