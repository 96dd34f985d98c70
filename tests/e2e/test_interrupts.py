"""Interrupts leave nothing behind: at every line of a launch, at random bytecodes, by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.torture import Alarm, Torture, Trace, add
from vkchi.device import open_device
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("own_collections")
QUICK = ("wait", "print", "arguments", "copy", "time", "numpy", "graph", "loop", "late")


@pytest.fixture(params=["mapped", "staged"])
def torture(request: Any, own_runtime: None) -> Iterator[Torture]:
    """On a device whose memory Python sees, and on one whose memory is staged."""
    if request.param == "staged":
        install_runtime(Runtime(open_device(staged=True), Options()))
    yield Torture(seed=7)


@pytest.mark.parametrize("name", QUICK)
def test_an_interrupt_at_every_line(torture: Torture, name: str) -> None:
    torture.run_every_line(name)
    assert torture.done[name] > 100
    assert not torture.wrong, "\n".join(torture.wrong)


def test_interrupts_at_random_bytecodes_and_moments(torture: Torture) -> None:
    torture.run(15)
    assert not torture.wrong, "\n".join(torture.wrong)


def test_interrupts_while_another_thread_launches(torture: Torture) -> None:
    torture.programs = {"threads": torture.programs["threads"]}
    torture.run(15)
    assert not torture.wrong, "\n".join(torture.wrong)


def test_an_interrupted_init_can_be_repeated(own_runtime: None) -> None:
    def start_again() -> None:
        ti.reset()
        ti.init()

    trace = Trace(0, opcodes=False)
    trace.run(start_again)
    for at in range(1, trace.count, trace.count // 12):
        Trace(at, opcodes=False).run(start_again)
        ti.init()
        x = ti.field(ti.i32, 300)
        add(x)
        assert x[5] == 1


def test_an_interrupted_loop_of_launches(own_runtime: None) -> None:
    """As from the keyboard: where the signal comes while commands are submitted, later waits are
    as long as they must be."""
    x = ti.field(ti.i32, 300)
    add(x)
    wrong = 0
    for k in range(100):
        Alarm(0.0005 + 0.00001 * k).run(lambda: add(x))
        x.fill(0)
        add(x)
        add(x)
        wrong += x[5] != 2
    assert wrong == 0


def test_the_script_that_interrupts_thousands_of_times_starts() -> None:
    script = ROOT / "scripts" / "interrupt-torture"
    run = [sys.executable, str(script), "--help"]
    assert "--every PROGRAM" in subprocess.run(run, stdout=PIPE, text=True, check=True).stdout


def test_an_interrupted_kernel_makes_the_gradients_of_its_tape_unknown() -> None:
    """One that is caught inside a tape leaves gradients unknown, and they are refused."""
    x, loss = (ti.field(ti.f32, shape, needs_grad=True) for shape in (4, ()))

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    total()
    runtime = current_runtime()
    with pytest.raises(ti.TaichiRuntimeError, match=r"total\(\) ended with an exception"):
        with ti.ad.Tape(loss):
            runtime.device.record, record = interrupted, runtime.device.record
            try:
                total()
            except KeyboardInterrupt:
                runtime.device.record = record
    with ti.ad.Tape(loss):
        total()
    assert x.grad.to_numpy().tolist() == [1] * 4


WRITES = {
    "_write": lambda x: x.__setitem__(1, 3.0),
    "_fill_memory": lambda x: x.fill(3.0),
    "put_unnoticed": lambda x: x.from_numpy(np.full(4, 3.0, np.float32)),
}


@pytest.mark.parametrize("place", WRITES)
@pytest.mark.parametrize("mode", ["Tape", "FwdMode", "hvp"])
def test_an_interrupted_write_makes_gradients_unknown(mode: str, place: str) -> None:
    """How much of the array holds the new values is unknown, so derivatives are refused."""
    x, loss = (ti.field(ti.f32, shape, needs_grad=True, needs_dual=True) for shape in (4, ()))

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 2

    def run() -> None:
        total()
        with pytest.MonkeyPatch.context() as m:
            m.setattr(type(x), place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                WRITES[place](x)
        total()

    recorders = {
        "Tape": lambda: ti.ad.Tape(loss),
        "FwdMode": lambda: ti.ad.FwdMode(loss, x, [1.0, 0.0, 0.0, 0.0]),
    }
    with pytest.raises(ti.TaichiRuntimeError, match="the write to .* ended with an exception"):
        if mode == "hvp":
            ti.ad.hvp(run, loss, x, np.ones(4))
        else:
            with recorders[mode]():
                run()


def interrupted(*args: Any) -> None:
    raise KeyboardInterrupt


ENDLESS = """
import vkchi as ti
ti.init()
x = ti.field(ti.i32, 4)
is_over = ti.field(ti.i32, ())
@ti.kernel
def endless():
    for i in x:
        while is_over[None] == 0:
            x[i] += 1
endless()
print("launched", flush=True)
ti.sync()
"""


@pytest.mark.usefixtures("ctrl_c")
def test_an_endless_kernel_ends_at_the_second_ctrl_c(tmp_path: Path) -> None:
    """The first interrupts Python; the process waits for the device, says so once, and ends at the
    next."""
    program = tmp_path / "endless.py"
    program.write_text(ENDLESS)
    with subprocess.Popen(
        [sys.executable, str(program)], cwd=ROOT, text=True, stdout=PIPE, stderr=PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        try:
            assert process.stdout.readline() == "launched\n"
            process.send_signal(signal.SIGINT)
            lines = []
            while not lines or not lines[-1].startswith("vkchi: "):
                lines.append(process.stderr.readline())
                assert lines[-1], lines
            assert lines[-2].startswith("KeyboardInterrupt")
            assert lines[-1].endswith("the program ends when they are done, or at Ctrl-C\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
            assert process.stderr.read() == ""
        finally:
            process.kill()
