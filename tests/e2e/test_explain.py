"""`kernel.explain` and `vkchi explain`: loops, atomics, accesses and copies, with exact texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.__main__ import main
from vkchi.errors import SerialLoopWarning
from vkchi.opt.pipeline import REMARKS
from vkchi.runtime import current_runtime

OWN = (
    "  help: assign `s` first in the loop's body, so that each iteration has its own; if the order "
    "is meant, write ti.loop_config(serialize=True) before the loop"
)
REFUSAL = r"  (line \d+, `.*`: )?no [-\w ]+( of line \d+)?: "
CONDITION = "  help: put the condition inside the loop, or decide in Python which kernel to call"


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    ti.init(log_level=ti.ERROR, offline_cache=False)
    yield
    ti.init(random_seed=7)


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Lines of an explanation, without sentences about changed loops, and reasons why loops were
    not changed; lines are counted from `def`. `#`: a device's number or size."""

    def run(kernel: Any, *args: Any) -> list[str]:
        code = kernel.__wrapped__.__code__
        first = code.co_firstlineno + 1
        kernel.explain(*args)
        head, *lines = capsys.readouterr().out.splitlines()
        assert head == f"{code.co_name}(), {code.co_filename}:{first}"
        number = lambda found: f"line {int(found[1]) - first}"  # noqa: E731
        lines = [re.sub(r"line (\d+)", number, line) for line in lines]
        lines = [line for line in lines if line.strip() not in REMARKS.values()]  # by device
        lines = [line for line in lines if not re.match(REFUSAL, line)]
        grid = re.compile(r"^  [\d,]+ workgroups? of [\d x]+ inv")
        return [grid.sub("  # of # inv", line) for line in lines]

    return run


def test_parallel_and_serial_loops(explain: Callable[..., list[str]]) -> None:
    x, y = ti.field(ti.f32, 1 << 20), ti.field(ti.f32, 1 << 20)

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            x[i] = 0.5 * x[i] + 1
        s = 0.0
        for i in range(n):
            s = 0.9 * s + x[i]
            y[i] = s

    assert explain(run, 9000) == [
        "line 1, `for i in x`: parallel over 1,048,576 iterations",
        "  # of # invocations",
        "  an iteration reads 4 bytes and writes 4",
        "line 4, `for i in range(n)`: serial, 9,000 iterations: "
        "line 5 reads `s` of the previous iteration",
        "  one invocation",
        OWN,
        "line 5, `s = 0.9 * s + x[i]`: an index of `x` is not proved in range, so that it is "
        "tested",
        "line 6, `y[i] = s`: an index of `y` is not proved in range, so that it is tested",
    ]
    assert explain(run, 1)[3].startswith("line 4, `for i in range(n)`: serial, 1 iteration: ")
    assert x[0] == 0  # nothing was run


def test_transformations_of_loops(capsys: pytest.CaptureFixture[str]) -> None:
    x, total = ti.field(ti.f32, 1 << 20), ti.field(ti.f32, ())

    @ti.kernel
    def add():
        for i in x:
            total[None] += x[i]

    if not current_runtime().device.caps.is_cpu:
        pytest.skip("GPUs do not jam sums")
    add.explain()
    assert f"  {REMARKS['jam_sums']}\n" in capsys.readouterr().out


def test_reasons_for_serial_loops(explain: Callable[..., list[str]]) -> None:
    x = ti.field(ti.i32, 1000)

    @ti.kernel
    def run(n: ti.i32):
        if n > 3:
            for i in range(10):
                x[i] += i * n
        ti.loop_config(serialize=True)
        for i in range(20):
            x[i] = x[i + 1]
        for _ in range(1):
            for i in range(30):
                x[i] = x[i + 2]
        while x[0] > n:
            x[0] -= 1
        if ti.static(len(x.shape) == 1):
            for i in x:
                x[i] = 3

    lines = [line for line in explain(run, 5) if re.match("line.*(serial|parallel)", line)]
    assert lines == [
        "line 2, `for i in range(10)`: serial, 10 iterations: it runs under a condition, and only "
        "loops that always run are parallel",
        "line 5, `for i in range(20)`: serial, 20 iterations: ti.loop_config(serialize=True) is "
        "written before it",
        "line 7, `for _ in range(1)`: serial, 1 iteration: its range has at most one item",
        "line 10, `while x[0] > n`: serial, an unknown number of iterations: each iteration of a "
        "`while` loop depends on the one before",
        "line 13, `for i in x`: parallel over 1,000 iterations",
    ]
    assert CONDITION in explain(run, 5)


def test_loops_behind_a_conditional_return_and_in_real_functions(
    explain: Callable[..., list[str]],
) -> None:
    x = ti.field(ti.i32, 1000)

    @ti.real_func
    def fill(n: ti.i32):
        for i in range(n):
            x[i] = i

    @ti.kernel
    def run():
        fill(7)

    assert "serial, 7 iterations: loops of real functions are serial" in explain(run)[0]


def test_fused_loops_share_a_dispatch(explain: Callable[..., list[str]]) -> None:
    x = ti.field(ti.f32, 5000)

    @ti.kernel
    def run():
        for i in x:
            x[i] = i
        for i in x:
            x[i] *= 2

    assert explain(run) == [
        "line 1, `for i in x`: parallel over 5,000 iterations",
        "  # of # invocations",
        "  an iteration reads 4 bytes and writes 4",
        "line 3, `for i in x`: parallel over 5,000 iterations",
        "  it runs in one dispatch with the loop of line 1",
    ]


def reasons_of(kernel: Any, capsys: pytest.CaptureFixture[str], *args: Any) -> list[str]:
    """Lines of an explanation that say why a loop or an update was left, lines counted from
    `def`."""
    first = kernel.__wrapped__.__code__.co_firstlineno + 1
    kernel.explain(*args)
    number = lambda found: f"line {int(found[1]) - first}"  # noqa: E731
    lines = [re.sub(r"line (\d+)", number, x) for x in capsys.readouterr().out.splitlines()]
    return [line.strip() for line in lines if re.match(REFUSAL, line)]


def test_reasons_why_loops_are_not_fused(capsys: pytest.CaptureFixture[str]) -> None:
    x, y, z = ti.field(ti.f32, 5000), ti.field(ti.f32, 5000), ti.field(ti.f32, (70, 70))

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            y[i] = 2 * x[i]
        for i in x:
            x[i] = y[i + 1]
        for i in range(n):
            y[i] += 1
        for i, j in z:
            z[i, j] = 0

    fusion = "no loop fusion with the loop of line"
    found = [line for line in reasons_of(run, capsys, 4000) if fusion in line]
    assert found == [
        f"{fusion} 1: line 4 may read elements that other iterations write",
        f"{fusion} 3: their bounds differ",
        f"{fusion} 5: their bounds differ",
    ]


def test_reasons_why_sums_stay_atomic(capsys: pytest.CaptureFixture[str]) -> None:
    x, y, at = ti.field(ti.f32, 5000), ti.field(ti.f32, 1 << 22), ti.field(ti.i32, 5000)

    @ti.kernel
    def run():
        for i in x:
            y[at[i]] += x[i]

    large = "the array is too large for workgroup memory, or for the loop's iterations"
    found = reasons_of(run, capsys)
    assert "no scatter to gather: its subscripts are no indices of the loop plus offsets" in found
    assert f"no histogram privatization: {large}" in found


def test_reasons_about_serial_loops(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = ti.field(ti.f32, 5000), ti.field(ti.f32, 1 << 20)

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(300):
            x[i] = x[i + 1]
        for i in y:
            for k in range(50):
                if x[k] > y[i]:
                    y[i] += x[k]

    found = reasons_of(run, capsys)
    ordered = "line 3 may write elements that other iterations read"
    assert f"no inner-loop parallelization: {ordered}" in found
    unrolled = [line for line in found if "no partial unrolling" in line]
    assert [line.partition(": no")[0] for line in unrolled] == ["line 5, `for k in range(50)`"]


def test_no_reason_is_given_for_a_transformed_loop(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = ti.field(ti.f32, 1 << 20), ti.field(ti.f32, 1 << 20)

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[(i + 1) % (1 << 20)]

    run.explain()
    text = capsys.readouterr().out
    for line in text.splitlines():
        technique = re.search(r"\(([-\w ]+)\)$", line)
        assert technique is None or f"no {technique[1]}:" not in text


def test_atomics_that_remain(explain: Callable[..., list[str]]) -> None:
    """A loop's own elements are updated plainly; no atomic is reported for them."""
    count, at = ti.field(ti.i32, 1 << 14), ti.field(ti.i32, 4000)
    total = ti.field(ti.i32, ())
    order = ti.field(ti.i32, 4000)

    @ti.kernel
    def run():
        for i in at:
            order[i] += 1
            count[at[i]] += 1
        for i in at:
            old = ti.atomic_add(total[None], 1)
            order[i] = old

    lines = [line for line in explain(run) if "atomic:" in line]
    assert lines == [
        "line 3, `count[at[i]] += 1`: atomic: several iterations may update one element",
        "line 5, `old = ti.atomic_add(total[None], 1)`: atomic: the program uses the value that it "
        "returns",
    ]
    at_help = "  help: loop over the elements that are updated, with a serial loop over the "
    assert len([line for line in explain(run) if line.startswith(at_help)]) == 1


def test_a_sum_is_combined_before_its_atomic(explain: Callable[..., list[str]]) -> None:
    x = ti.field(ti.i32, 1 << 18)

    @ti.kernel
    def run() -> ti.i32:
        s = 0
        for i in x:
            s += x[i]
        return s

    assert "  an iteration reads 4 bytes and writes 0" in explain(run)
    (line,) = [line for line in explain(run) if "atomic:" in line]
    assert line == (
        "line 3, `s += x[i]`: atomic: each invocation adds up its iterations first; few atomics "
        "combine their results"
    )


def test_a_missing_atomic_of_the_device_is_named(
    explain: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = current_runtime().device
    monkeypatch.setattr(device, "caps", device.caps._replace(f32_atomic_add=False))
    x, at = ti.field(ti.f32, 1 << 14), ti.field(ti.i32, 4000)

    @ti.kernel
    def run():
        for i in at:
            x[at[i]] += 1.0

    (line,) = [line for line in explain(run) if "atomic:" in line]
    assert line.endswith(
        "several iterations may update one element; the device lacks the operation, so that it is "
        "a loop of compare-and-swap"
    )


def test_copied_arguments(explain: Callable[..., list[str]]) -> None:
    @ti.kernel
    def run(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i in a:
            a[i] = b[i]

    x, y = np.zeros((50, 2), np.float32)[:, 0], np.zeros((50, 2), np.float32)[:, 1]
    keep = "keep the data in a ti.ndarray or a ti.field between calls"
    found = explain(run, x, y)[-4:]
    if can_share():
        why = "its elements are 8 bytes apart, not 4"
        keep_a, keep_b = (f"np.ascontiguousarray({k}) is used in place; or {keep}" for k in "ab")
    else:
        why, keep_a, keep_b = found[0].partition("each call: ")[2], keep, keep
        assert why
    assert found == [
        f"argument `a`: copied to the device and back at each call: {why}",
        f"  help: {keep_a}",
        f"argument `b`: copied to the device at each call: {why}",
        f"  help: {keep_b}",
    ]
    made = ti.ndarray(ti.f32, 50), ti.ndarray(ti.f32, 50)
    assert not [line for line in explain(run, *made) if "copied" in line]


def can_share() -> bool:
    return bool(current_runtime().device.host_pointer_alignment)


def reasons(explain: Callable[..., list[str]], *given: Any) -> list[str]:
    """Reasons why arrays of rank 1 or 2 are copied."""

    @ti.kernel
    def first(a: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in ti.grouped(a):
            s += ti.f32(a[i])
        return s

    copied = "argument `a`: copied to the device at each call: "
    lines = [line for a in given for line in explain(first, a)]
    return [line.removeprefix(copied) for line in lines if "copied" in line]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: np.zeros(8, np.float32)[::-1], "its elements are -4 bytes apart, not 4"),
        (lambda: np.zeros((8, 4), np.float32)[:, :3],
         "its elements along axis 0 are 16 bytes apart, not 12"),
        (lambda: np.zeros((4, 3), np.float32, "F"),
         "its elements along axis 1 are 16 bytes apart, not 4"),
        (lambda: np.zeros(33, np.uint8)[1:].view(np.float32), "its address is not a multiple of 4"),
        (lambda: np.frombuffer(bytes(64), np.float32), "it is read-only"),
        (lambda: np.zeros(8, np.dtype(np.float32).newbyteorder()),
         "its byte order is not that of the host"),
        (lambda: np.zeros(0, np.float32), "it is empty"),
        (lambda: np.zeros(8, np.float32), None),
    ],
)  # fmt: skip
def test_reasons_for_copies(
    explain: Callable[..., list[str]], made: Callable[[], Any], reason: str | None
) -> None:
    if not can_share():
        pytest.skip("the device copies all arrays")
    assert reasons(explain, made()) == ([] if reason is None else [reason])


def test_debug_mode_copies(explain: Callable[..., list[str]]) -> None:
    ti.init(log_level=ti.ERROR, offline_cache=False, debug=True)
    assert reasons(explain, np.zeros(8, np.float32)) == ["in debug mode, all arrays are copied"]


def test_loops_of_functions_with_a_return_have_a_help_line(
    explain: Callable[..., list[str]],
) -> None:
    x = ti.field(ti.i32, 1000)

    @ti.func
    def find(v):
        at = -1
        for i in x:
            if x[i] == v:
                at = i
                break
        return at

    @ti.kernel
    def run() -> ti.i32:
        return find(3)

    lines = explain(run)
    assert "a `break` or `return` of the function ends it" in lines[0]
    assert "  help: move the loop to the kernel" in lines


def test_bytes_under_a_condition_on_data(explain: Callable[..., list[str]]) -> None:
    x, y = ti.field(ti.f32, 5000), ti.field(ti.f32, 5000)

    @ti.kernel
    def run():
        for i in x:
            if x[i] > 0:
                y[i] = 1

    assert "  the bytes of an iteration depend on conditions or on values in memory" in explain(run)


def test_a_kernel_without_loops(explain: Callable[..., list[str]]) -> None:
    x = ti.field(ti.i32, ())

    @ti.kernel
    def run():
        x[None] = 1

    assert explain(run) == ["no loops: one invocation runs the kernel"]


def test_methods_and_keywords(capsys: pytest.CaptureFixture[str]) -> None:
    @ti.data_oriented
    class Thing:
        def __init__(self) -> None:
            self.x = ti.field(ti.i32, 33)

        @ti.kernel
        def step(self, n: ti.i32):
            for i in self.x:
                self.x[i] = n

    Thing().step.explain(n=3)
    assert "parallel over 33 iterations" in capsys.readouterr().out


def test_explaining_from_the_cache_says_the_same(
    explain: Callable[..., list[str]], tmp_path: Path
) -> None:
    ti.init(log_level=ti.ERROR, cache_dir=str(tmp_path))
    x = ti.field(ti.f32, 5000)

    @ti.kernel
    def run():
        for i in x:
            x[i] += 1

    before = explain(run)
    run()
    assert explain(run) == before and x[4] == 1


PROGRAM = """
import vkchi as ti

x = ti.field(ti.f32, 300)

@ti.kernel
def step(a: ti.types.ndarray(), n: ti.i32):
    for i in a:
        a[i] += n

@ti.kernel
def other():
    for i in x:
        x[i] = 1

other()
assert x[0] == 0
print("x is", x[0])
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    try:
        assert main(["explain", f"{path}:step", "--arg", "a=f32[700]", "--arg", "n=2"]) == 0
        said = capsys.readouterr()
        out, errors = said.out.splitlines(), said.err.splitlines()
        head = f"vkchi: kernels of {path} do not run here; results that it prints are not valid:"
        assert errors == [head, "x is 0.0"]
        assert out[0] == f"step(), {path}:7"
        assert out[1] == "line 8, `for i in a`: parallel over 700 iterations"
        assert main(["explain", f"{path}:other"]) == 0
        assert "parallel over 300 iterations" in capsys.readouterr().out
        assert main(["explain", f"{path}:step"]) == 1
        assert "--arg" in capsys.readouterr().err
        assert main(["explain", str(path)]) == 2
        assert "vkchi explain FILE.py:KERNEL" in capsys.readouterr().err
        assert main(["explain", f"{path}:step", "--arg", "a"]) == 2
        capsys.readouterr()
        assert main(["explain", f"{tmp_path}/nowhere.py:step"]) == 1
        said = capsys.readouterr().err
        assert "there is no file" in said and "Traceback" not in said
        assert main(["explain", f"{path}:stp"]) == 1
        assert "its kernels are step, other" in capsys.readouterr().err
    finally:
        ti.init(log_level=ti.ERROR)


def test_copies_of_an_unrolled_loop_are_described_once(explain: Callable[..., list[str]]) -> None:
    x = ti.field(ti.f32, 1000)

    @ti.kernel
    def run():
        for k in ti.static(range(3)):
            for i in range(10 * k + 10):
                x[i] += k
        for k in ti.static(range(2)):
            for i in x:
                x[i] = x[i] * k

    assert explain(run) == [
        *(f"line 2, `for i in range(10 * k + 10)`: parallel over {n} iterations"
          for n in (10, 20, 30)),
        "  # of # invocations",
        "  an iteration reads 4 bytes and writes 4",
        "  # of # invocations",
        "  an iteration reads 4 bytes and writes 4",
        "line 5, `for i in x`: parallel over 1,000 iterations (2 such loops)",
        "  it runs in one dispatch with the loop of line 5",
        "  # of # invocations",
        "  an iteration reads 4 bytes and writes 4",
    ]  # fmt: skip


def test_loops_over_a_sparse_field_count_cells(explain: Callable[..., list[str]]) -> None:
    x = ti.field(ti.f32)
    ti.root.pointer(ti.i, 100).dense(ti.i, 300).place(x)
    x[5] = 1

    @ti.kernel
    def run() -> ti.f32:
        for i in x:
            x[i] += 1
        s = 0.0
        for i in x:
            s = 0.5 * s + x[i]
        return s

    with pytest.warns(SerialLoopWarning, match="this loop visits its 30,000 cells serially: "):
        lines = explain(run)
    assert lines[0] == (
        "line 1, `for i in x`: parallel over 30,000 cells of a sparse field, inactive ones skipped"
    )
    (serial,) = [line for line in lines if ": serial, " in line]
    assert "serial, 30,000 cells of a sparse field, inactive ones skipped: line 5 reads" in serial
