"""Global state during a compilation: garbage collector, recursion limit, interrupts, threads."""

import gc
import io
import os
import re
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from tests.e2e.torture import Trace
from vkchi import compile_state as module
from vkchi import platform
from vkchi.compile_state import (
    RECURSION_LIMIT,
    CompileState,
    DeepRecursion,
    SharedState,
    compiling,
)
from vkchi.compiler import build_artifact
from vkchi.errors import KernelSyntaxError
from vkchi.interrupts.weak import WeakTable
from vkchi.ir.parse import parse
from vkchi.target.caps import FULL
from vkchi.target.options import Options

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def as_before():
    """Every test leaves the collector and the limit as they were."""
    before = gc.isenabled(), sys.getrecursionlimit()
    yield
    assert (gc.isenabled(), sys.getrecursionlimit()) == before


def test_the_collector_is_off_until_the_outermost_block_ends():
    with compiling("f"):
        assert not gc.isenabled()
        with compiling("g"):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with compiling("f"):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_recursion_limit_is_raised_and_comes_back():
    before = sys.getrecursionlimit()
    with compiling("f"):
        assert sys.getrecursionlimit() == max(before, RECURSION_LIMIT)
    assert sys.getrecursionlimit() == before


def test_a_raised_limit_outlives_a_compilation():
    """A launch of Python mode that begins during a compilation in another thread, or before it."""
    before = sys.getrecursionlimit()
    block = compiling("f")
    block.__enter__()
    launch = DeepRecursion.hold()
    del block
    assert sys.getrecursionlimit() == max(before, RECURSION_LIMIT)
    with compiling("g"):
        del launch
        assert sys.getrecursionlimit() == max(before, RECURSION_LIMIT)
    assert sys.getrecursionlimit() == before


def test_exceptions_end_it():
    with pytest.raises(ZeroDivisionError), compiling("f"), compiling("g"):
        raise ZeroDivisionError
    assert gc.isenabled()


def test_unentered_scope_ends_when_collected():
    block = compiling("f")
    block.__enter__()
    assert not gc.isenabled()
    del block
    assert gc.isenabled()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_an_interrupt_at_any_bytecode_leaves_nothing_behind(stream, monkeypatch):
    def compile_twice():
        with compiling("f"), compiling("g"):
            pass

    monkeypatch.setattr(sys, "stderr", stream)
    as_it_was = gc.isenabled(), sys.getrecursionlimit()
    trace = Trace(0, opcodes=True)
    trace.run(compile_twice)
    for at in range(1, trace.count + 1):
        how = Trace(at, opcodes=True)
        is_interrupted = how.run(compile_twice)
        assert is_interrupted, how.where
        assert (gc.isenabled(), sys.getrecursionlimit()) == as_it_was, how.where
    assert CompileState._held() is None
    assert DeepRecursion._held() is None


def test_too_deep_a_recursion_is_the_users_error():
    def fall(n):
        return fall(n + 1) + 1

    with pytest.raises(KernelSyntaxError, match=r"f\(\) nests too deeply"), compiling("f"):
        fall(0)


def test_threads_end_it_together():
    inside, leave = threading.Event(), threading.Event()

    def compile_long():
        with compiling("f"):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=compile_long)
    thread.start()
    inside.wait(10)
    with compiling("g"):
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.parametrize(("stream", "is_told"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_terminal_shows_progress_of_slow_compilations(stream, is_told, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    with compiling("advect"):
        end = time.monotonic() + 5
        while is_told and "compiling advect" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert bool(re.search(r"vkchi: compiling advect, \d+ s", stream.getvalue())) == is_told
    assert stream.getvalue().endswith(platform.clearing(stream)) == is_told


def test_quick_compile_is_not_reported(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(module, "PATIENCE_S", 60.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with compiling("quick"):
        pass
    assert stream.getvalue() == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_child_is_independent_of_other_threads():
    """Neither their blocks nor the locks that they held are there, which nobody would end."""
    inside, leave = threading.Event(), threading.Event()

    def compile_long():
        with compiling("f"), SharedState._lock, WeakTable._lock:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=compile_long)
    thread.start()
    inside.wait(10)
    child = os.fork()
    if not child:
        signal.alarm(10)  # ends the child where it waits
        is_free = gc.isenabled() and sys.getrecursionlimit() < RECURSION_LIMIT
        with compiling("g"):
            WeakTable().put("key", weakref.ref(compiling("h")))
            is_free = is_free and not gc.isenabled()
        os._exit(0 if is_free and gc.isenabled() else 1)
    status = os.waitpid(child, 0)[1]
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_compile_leaves_little_for_the_collector():
    """Ops are gone when no pass has them any more, and passes when they are through."""
    fn = parse((ROOT / "tests/golden/passes/peel/odd.chi").read_text(encoding="utf-8")).funcs[0]
    caps = FULL._replace(kind="cpu", subgroup_size=8)
    build_artifact(fn, Options(), caps)  # fills caches
    gc.collect()
    gc.disable()
    try:
        assert len(build_artifact(fn, Options(), caps).dispatches) > 2
        assert gc.collect() < 500  # several thousand, if walkers kept visited ops
    finally:
        gc.enable()
