"""Background work during a wait: its thread, exceptions there, forks and exits meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from _thread import allocate_lock
from pathlib import Path
from threading import Timer

import pytest

from vkchi import platform
from vkchi.interrupts import imports
from vkchi.interrupts.imports import BackgroundTask, run_in_background, wait_before_fork

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "count_processors", lambda: 2)


def wait_for_the_end() -> None:
    end = time.monotonic() + 10
    while BackgroundTask.begun() is not None and time.monotonic() < end:
        time.sleep(0.001)
    assert BackgroundTask.begun() is None


def test_work_runs_in_another_thread_and_is_released() -> None:
    go, done = allocate_lock(), []
    go.acquire()
    run_in_background(lambda: done.append(go.acquire()))
    assert not done and BackgroundTask.begun() is not None
    go.release()
    wait_for_the_end()
    assert done == [True]


def test_exceptions_in_background_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    for error in (ValueError, SystemExit, KeyboardInterrupt):
        run_in_background(lambda error=error: exec("raise error", {"error": error}))
        wait_for_the_end()
    assert capfd.readouterr().err == ""


def test_single_cpu_runs_nothing_in_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "count_processors", lambda: 1)
    done: list[None] = []
    run_in_background(lambda: done.append(None))
    wait_for_the_end()
    assert not done


def test_forks_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[float] = []
    run_in_background(lambda: (time.sleep(0.05), done.append(0.0)))
    wait_before_fork()
    assert done
    monkeypatch.setattr(imports, "LONGEST_S", 0.01)
    go = allocate_lock()
    go.acquire()
    run_in_background(go.acquire)
    began = time.monotonic()
    wait_before_fork()
    assert 0.01 <= time.monotonic() - began < 5
    go.release()
    wait_for_the_end()


@pytest.mark.usefixtures("ctrl_c", "own_collections")
def test_an_interrupt_of_a_fork_is_given_on() -> None:
    go = allocate_lock()
    go.acquire()
    run_in_background(go.acquire)
    Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        wait_before_fork()
        time.sleep(1)
    go.release()
    wait_for_the_end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_can_load_a_module_its_parent_was_loading() -> None:
    program = """
import os, sys
from vkchi import platform
from vkchi.interrupts import imports
imports.LONGEST_S = 60.0  # a busy machine imports slowly
platform.count_processors = lambda: 2
def load():
    import vkchi.frontend.lowering
imports.run_in_background(load)
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1])
else:
    import vkchi.frontend.lowering
    os._exit(0)
"""
    run = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(3):
        assert subprocess.check_output(run, env=env, text=True, timeout=60).split() == ["0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_exit_of_a_child_does_not_wait_for_its_parents_task() -> None:
    program = """
import os, sys, time
from vkchi import platform
from vkchi.interrupts import imports
platform.count_processors, imports.LONGEST_S = lambda: 2, 0.01
imports.run_in_background(lambda: time.sleep(60))
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1], flush=True)
    os._exit(0)
"""
    run = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output(run, env=env, text=True, timeout=30).split() == ["0"]


@pytest.mark.parametrize("begins", ["before the exit", "in an exit handler"])
def test_the_exit_waits(begins: str) -> None:
    """Python 3.11 crashes if it ends between a thread's request and its start."""
    program = f"""
import atexit, time
late = lambda: None
atexit.register(lambda: late())  # called last
from vkchi import platform
from vkchi.interrupts import imports
platform.count_processors = lambda: 2
def work():
    time.sleep(0.2)
    print("done", flush=True)
if {begins == "before the exit"}:
    imports.run_in_background(work)
else:
    late = lambda: (imports.run_in_background(work), time.sleep(0.4))
"""
    run = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.check_output(run, env=env, text=True, timeout=60)
    assert said == ("done\n" if begins == "before the exit" else "")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_ends_the_wait_of_an_exit() -> None:
    program = """
import os, signal, time
from _thread import start_new_thread
from vkchi import platform
from vkchi.interrupts import imports
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests of a shell's job ignore it
platform.count_processors = lambda: 2
imports.run_in_background(lambda: time.sleep(60))
start_new_thread(lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGINT)), ())
"""
    run = [sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
