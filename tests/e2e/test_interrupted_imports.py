"""Ctrl-C while numpy is imported because vkchi needs it: it arrives, and numpy works after it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.e2e.torture import ask_for_opcodes, start_opcodes
from vkchi.interrupts import imports

# Children of a process that has loaded vkchi alone are interrupted at several moments of it.
PROGRAM = """
import os, signal, sys, time
from vkchi.types.lazy_numpy import np

def interrupted(after_s):
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        np.zeros(3)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
    from numpy.linalg import inv
    assert inv(np.eye(2)).sum() == np.random.default_rng(1).random(2).size == 2

assert "numpy" not in sys.modules
child = os.fork()
if not child:
    began = time.perf_counter()
    np.zeros(3)
    os._exit(min(250, int(1000 * (time.perf_counter() - began))))
most_s = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) / 1000
for k in range(12):
    child = os.fork()
    if not child:
        interrupted((k + 0.5) / 12 * most_s)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, (k, most_s, status)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs processes that fork")
def test_an_interrupt_while_numpy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


MISSING = """
from vkchi.interrupts.imports import import_uninterrupted, import_attribute
calls = (import_uninterrupted, "no_such_module"), (import_attribute, "numpy", "no_such_name")
for function, *args in calls:
    try:
        function(*args)
    except (ModuleNotFoundError, AttributeError) as error:
        print(type(error).__name__)
"""


def test_import_errors_are_raised_at_the_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["ModuleNotFoundError", "AttributeError"], done.stderr


class Interrupts:
    """Raises KeyboardInterrupt before the n-th instruction of the functions named, once."""

    def __init__(self, at: int, names: set[str]) -> None:
        self.left = at
        self.names = names

    def trace(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        if frame.f_code.co_name not in self.names:
            return None
        ask_for_opcodes(frame, self.trace)
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.trace


def test_an_interrupt_before_any_instruction_of_the_wait_arrives_when_the_import_is_over() -> None:
    for at in range(1, 1000):
        begun, ended = list[int](), list[int]()

        def act(begun: list[int] = begun, ended: list[int] = ended) -> int:
            begun.append(1)
            time.sleep(0.002)
            ended.append(1)
            return 7

        interrupts = Interrupts(at, {"run_in_thread", "_wait", "_take"})
        start_opcodes()
        sys.settrace(interrupts.trace)
        try:
            assert imports.run_in_thread(act) == 7
        except KeyboardInterrupt:
            assert interrupts.left <= 0
            now = len(begun), len(ended)
            time.sleep(0.005)  # a withdrawn import never begins
            assert now == (len(begun), len(ended)) and now in [(0, 0), (1, 1)]
        else:
            if interrupts.left > 0:
                assert at > 20
                return
        finally:
            sys.settrace(None)
    raise AssertionError("a thousand instructions")
