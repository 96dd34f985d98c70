"""`ti.profiler`: kernel times on the device."""

import json
import re

import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = pytest.mark.device


@pytest.fixture
def measured():
    ti.init(kernel_profiler=True)
    if current_runtime().profiler is None:
        pytest.skip("the device cannot measure time")
    yield current_runtime().profiler
    ti.init()


@ti.kernel
def rise(x: ti.template()):
    for i in x:
        x[i] += 1


@ti.kernel
def two_loops(x: ti.template(), y: ti.template()):
    for i in x:
        x[i] += 1
    for i in y:
        y[i] = x[i] * 2 + y[i]


def test_every_launch_counts(measured):
    x, y = ti.field(ti.f32, 100), ti.field(ti.f32, 100)
    for _ in range(300):  # more than fit between two looks at the device
        rise(x)
    two_loops(x, y)
    found = ti.profiler.query_kernel_profiler_info("rise")
    assert found.counter == 300
    assert 0 <= found.min <= found.avg <= found.max
    total = ti.profiler.get_kernel_profiler_total_time()
    assert total == pytest.approx(1e-3 * (found.avg * 300 + sum_of("two_loops")), rel=1e-6)
    assert ti.profiler.query_kernel_profiler_info("nothing").counter == 0
    assert x[5] == 301


def sum_of(name):
    found = ti.profiler.query_kernel_profiler_info(name)
    return found.avg * found.counter


def test_profiler_tables(measured, capsys):
    x = ti.field(ti.f32, 10)
    rise(x)
    rise(x)
    ti.profiler.print_kernel_profiler_info()
    counted = capsys.readouterr().out
    assert re.search(r"^\[100\.00% +\d+\.\d{3} s +2x \|.* ms \|.*\] rise\.0$", counted, re.M)
    assert "Total execution time:" in counted
    ti.profiler.print_kernel_profiler_info("trace")
    traced = capsys.readouterr().out
    assert len(re.findall(r"^\[ +[\d.]+ ms \| +[\d.]+ ms \] rise\.0$", traced, re.M)) == 2
    ti.profiler.clear_kernel_profiler_info()
    assert ti.profiler.get_kernel_profiler_total_time() == 0
    with pytest.raises(ti.TaichiRuntimeTypeError, match="trace"):
        ti.profiler.print_kernel_profiler_info("other")


@ti.kernel
def recurrence(x: ti.template()):
    s = 0.0
    ti.loop_config(serialize=True)
    for i in x:
        s = s * 0.5 + x[i]
        x[i] = s


@ti.kernel
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] + y[i]


def test_the_table_shows_sizes_rates_and_serial_loops(measured, capsys):
    """saxpy reads 8 and writes 4 bytes per element; recurrence reads and writes 4."""
    x, y = ti.ndarray(ti.f32, 5000), ti.ndarray(ti.f32, 5000)
    z = ti.field(ti.f32, 700)
    for _ in range(3):
        saxpy(2.0, x, y)
        recurrence(z)
    measured.update()
    (one,) = [runs for name, runs in measured.runs.items() if name.startswith("saxpy")]
    work = one.work
    assert (work.iterations, work.moved, work.is_serial) == (5000, 60_000, False)
    assert one.moved == 2 * 60_000 and one.rate == one.moved / one.later.seconds
    assert (one.total.count, one.later.count) == (3, 2)
    assert one.total.seconds == pytest.approx(one.first + one.later.seconds)
    (serial,) = [runs for name, runs in measured.runs.items() if name.startswith("recurrence")]
    assert (serial.work.iterations, serial.work.moved, serial.work.is_serial) == (700, 5600, True)
    ti.profiler.print_kernel_profiler_info()
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == (
        "[      %     total   count |    first |      min       avg       max    "
        "|    iterations    workgroups     GB/s ] Kernel name"
    )
    times = r"\[ *\d+\.\d\d% +\d+\.\d{3} s +3x \| +\d+\.\d{3} \|( +\d+\.\d{3}){3} ms \|"
    (row,) = [line for line in lines if "saxpy" in line]
    groups = f"{work.groups:,} x {'x'.join(map(str, work.block))}"
    assert re.fullmatch(times + rf" +5,000 +{groups} +\d+\.\d\d \] saxpy(\.0)?", row)
    (row,) = [line for line in lines if "recurrence" in line]
    assert re.fullmatch(times + r" +700 +1 x 1 +\d+\.\d\d \] recurrence(\.0)?  serial", row)


def test_unknown_sizes_are_blank_and_one_run_has_no_mean(measured, capsys):
    x = ti.field(ti.f32, 64)

    @ti.kernel
    def some():
        for i in x:
            if x[i] > 0:
                x[i] = 0

    some()
    ti.profiler.print_kernel_profiler_info()
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "some" in line]
    times = r"\[100\.00% +\d+\.\d{3} s +1x \| +\d+\.\d{3} \| {29} ms \|"
    assert re.fullmatch(times + r" +64 +\d+ x \d+ {9} \] some(\.0)?", row)


def test_the_first_run_stays_apart_after_clear(measured):
    """The pipeline has been compiled by then: all later runs count alike."""
    x = ti.field(ti.f32, 100)
    rise(x)
    ti.profiler.clear_kernel_profiler_info()
    rise(x)
    measured.update()
    (runs,) = measured.runs.values()
    assert runs.first is None and runs.later.count == runs.total.count == 1


def test_several_shapes_of_one_kernel_add_up(measured):
    for n in (100, 300):
        x, y = ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, n)
        saxpy(1.0, x, y)
        saxpy(1.0, x, y)
    measured.update()
    (runs,) = measured.runs.values()
    assert runs.moved == 12 * (100 + 300 + 300) and runs.work.iterations == 300


def test_a_trace_for_perfetto(measured, tmp_path):
    x = ti.field(ti.f32, 10)
    rise(x)
    rise(x)
    ti.profiler.export_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["rise.0", "rise.0"]
    assert events[0]["ts"] == 0 and events[1]["ts"] >= events[0]["dur"]


def test_compile_times(measured, capsys):
    rise(ti.field(ti.f32, 10))
    ti.profiler.print_scoped_profiler_info()
    assert re.search(r" ms +1 x  rise$", capsys.readouterr().out, re.M)
    ti.profiler.clear_scoped_profiler_info()
    ti.profiler.print_scoped_profiler_info()
    assert "rise" not in capsys.readouterr().out
    ti.profiler.print_memory_profiler_info()
    assert "bytes in use" in capsys.readouterr().out


def test_results_are_the_same_under_it(measured):
    x = ti.field(ti.f32, 1000)
    loss = ti.field(ti.f32, (), needs_grad=True)
    w = ti.field(ti.f32, 1000, needs_grad=True)

    @ti.kernel
    def add_up():
        for i in w:
            loss[None] += w[i] ** 2

    w.fill(3)
    with ti.ad.Tape(loss):
        add_up()
    assert w.grad[7] == 6 and x[0] == 0
    assert ti.profiler.query_kernel_profiler_info("add_up").counter >= 1


def test_without_it_a_line_says_how(caplog):
    ti.init()
    x = ti.field(ti.f32, 10)
    rise(x)
    assert ti.profiler.query_kernel_profiler_info("rise") is None
    assert ti.profiler.get_kernel_profiler_total_time() == 0
    assert not ti.profiler.set_kernel_profiler_toolkit("cupti")


def test_counters_of_nvidia_raise():
    with pytest.raises(ti.Unsupported, match="times only"):
        ti.profiler.CuptiMetric  # noqa: B018
