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
    assert re.search(r"^\[100\.00% +\d+\.\d{3} s +2x \|.* ms\] rise\.0$", counted, re.M)
    assert "Total execution time:" in counted
    ti.profiler.print_kernel_profiler_info("trace")
    traced = capsys.readouterr().out
    assert len(re.findall(r"^\[ +[\d.]+ ms \| +[\d.]+ ms \] rise\.0$", traced, re.M)) == 2
    ti.profiler.clear_kernel_profiler_info()
    assert ti.profiler.get_kernel_profiler_total_time() == 0
    with pytest.raises(ti.TaichiRuntimeTypeError, match="trace"):
        ti.profiler.print_kernel_profiler_info("other")


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


def test_counters_of_nvidia_are_refused():
    with pytest.raises(ti.Unsupported, match="times only"):
        ti.profiler.CuptiMetric  # noqa: B018
