"""A signal handler's TimeoutError arrives, wherever it interrupts the compiler or the cache."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vkchi as ti
from tests.e2e.torture import Trace

COUNT = 60


def maker(x: Any) -> Callable[[int], Any]:
    """Makes kernels that no other process or call has compiled."""

    def make(k: int) -> Any:
        def helper(value: int) -> int:
            if value > 3:
                raise ValueError("too large")
            return value * k

        @ti.kernel
        def step():
            for i in x:
                x[i] = x[i] * 0.5 + ti.static(helper(2)) + k

        return step

    return make


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_runtime: None) -> None:
    monkeypatch.setenv("VKCHI_CACHE", "1")
    monkeypatch.setenv("VKCHI_CACHE_DIR", str(tmp_path))
    ti.init()


def test_timeouts_by_a_signal(own_cache: None) -> None:
    make, rng = maker(ti.field(ti.f32, 64)), random.Random(3)
    raised = arrived = 0
    stacks, lost = [""], list[str]()

    def late(number: int, frame: Any) -> None:
        nonlocal raised
        raised += 1
        stacks[0] = "".join(traceback.format_stack(frame)[-8:])
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    began = time.perf_counter()
    make(0)()
    longest_s = time.perf_counter() - began  # of a first call
    try:
        for k in range(1, COUNT):
            if raised > arrived + len(lost):
                lost.append(stacks[0])
            try:
                step = make(k)
                began = time.perf_counter()
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.7 * longest_s))
                step()
                signal.setitimer(signal.ITIMER_REAL, 0)
                longest_s = time.perf_counter() - began
            except TimeoutError:
                arrived += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised > COUNT // 4
    assert arrived == raised, "\n\n".join(lost)


@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError])
def test_exceptions_of_a_trace_function(own_cache: None, kind: type[Exception]) -> None:
    x = ti.field(ti.f32, 64)
    make = maker(x)
    make(-1)()
    trace = Trace(0, opcodes=False)
    trace.run(lambda: make(0)())
    lost = []
    for k, at in enumerate(range(1, trace.count, trace.count // 30), start=1):
        trace = Trace(at, opcodes=False, kind=kind)
        arrived = trace.run(lambda k=k: make(k)())
        if trace.is_done and not arrived:
            lost.append(trace.where)
    assert lost == []
    x.fill(0)
    make(1000)()
    assert x[5] == 3000
