"""Kernels and arrays used from several Python threads at once; forked and spawned processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.devices import errors_of

THREADS, ROUNDS = 4, 25


def run_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run `work(k)` in threads that begin together; raises any exception of theirs."""
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def body(k: int) -> None:
        gate.wait()
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@ti.kernel
def add_to(x: ti.types.ndarray(), a: ti.i32):
    for i in x:
        x[i] += a


@ti.kernel
def total(x: ti.types.ndarray()) -> ti.i32:
    s = 0
    for i in x:
        s += x[i]
    return s


@ti.kernel
def fill_with(f: ti.template(), a: ti.i32):
    for i in f:
        f[i] = a


@pytest.fixture
def quick_switches():
    """Threads that take turns often."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(old)


@pytest.mark.usefixtures("quick_switches")
class TestStress:
    def test_own_arrays(self) -> None:
        def work(k: int) -> None:
            x = ti.ndarray(ti.i32, 64 + k)
            for n in range(ROUNDS):
                add_to(x, k)
                assert x[k] == (n + 1) * k
            assert total(x) == (64 + k) * ROUNDS * k

        run_threads(work)

    def test_results_are_those_of_the_own_call(self) -> None:
        def work(k: int) -> None:
            x = ti.ndarray(ti.i32, 32)
            x.fill(k)
            for _ in range(ROUNDS):
                assert total(x) == 32 * k

        run_threads(work)

    def test_threads_share_an_array(self) -> None:
        x = ti.field(ti.i32, 100)

        @ti.kernel
        def count():
            for i in x:
                x[i] += 1

        run_threads(lambda k: [count() for _ in range(ROUNDS)] and None)
        assert x.to_numpy().tolist() == [THREADS * ROUNDS] * 100

    def test_the_first_call_compiles_once(self) -> None:
        @ti.kernel
        def triple(v: ti.i32) -> ti.i32:
            return 3 * v

        def work(k: int) -> None:
            assert triple(k) == 3 * k

        run_threads(work, 8)
        assert len(triple._cache.compiled) == 1

    def test_many_kernels_compile_at_once(self) -> None:
        def make(k: int) -> Any:
            @ti.kernel
            def scaled(v: ti.f32) -> ti.math.vec3:
                w = ti.math.vec3(v, v + 1, v + 2)
                for _ in ti.static(range(3)):
                    w = w * k
                return w

            return scaled

        def work(k: int) -> None:
            for _ in range(3):
                assert make(k)(1.0).to_list() == [k**3, 2 * k**3, 3 * k**3]

        run_threads(work)

    def test_fields_are_made_and_die(self) -> None:
        def work(k: int) -> None:
            for n in range(ROUNDS // 5):
                f = ti.field(ti.i32, 1000)
                fill_with(f, n)
                assert f[999] == n
                assert f.to_numpy().sum() == 1000 * n

        run_threads(work)

    def test_numpy_arguments(self) -> None:
        def work(k: int) -> None:
            x = np.zeros(50 + k, np.int32)
            for _ in range(ROUNDS):
                add_to(x, 1)
            assert x.tolist() == [ROUNDS] * (50 + k)

        run_threads(work)

    def test_elements_from_python(self) -> None:
        x, v = ti.field(ti.i32, 8), ti.Vector.field(2, ti.f32, 8)

        def work(k: int) -> None:
            for n in range(ROUNDS):
                x[k], v[k] = n, [n, -n]
                assert x[k] == n and v[k].to_list() == [n, -n]

        run_threads(work)

    def test_errors_stay_in_their_thread(self) -> None:
        def work(k: int) -> None:
            x = ti.ndarray(ti.i32, 8)
            for _ in range(ROUNDS):
                if k % 2:
                    with pytest.raises(ti.TaichiRuntimeTypeError):
                        add_to(x, "no number")
                else:
                    add_to(x, 1)
            assert x[0] == (0 if k % 2 else ROUNDS)

        run_threads(work)

    def test_waiting_in_every_thread(self) -> None:
        x = ti.ndarray(ti.i32, 1000)
        run_threads(lambda k: [(add_to(x, 1), ti.sync()) for _ in range(ROUNDS)] and None)
        assert x[0] == THREADS * ROUNDS

    @pytest.mark.usefixtures("own_runtime")
    def test_reset_while_others_launch(self) -> None:
        """They are reported; nothing crashes or hangs."""
        stop = threading.Event()

        def work(k: int) -> None:
            if k == 0:
                for _ in range(3):
                    ti.init()
                    x = ti.ndarray(ti.i32, 10)
                    x.fill(1)
                stop.set()
                return
            while not stop.is_set():
                try:
                    x = ti.ndarray(ti.i32, 10)
                    for _ in range(10):
                        add_to(x, 1)
                    x.to_numpy()
                except ti.TaichiRuntimeError:
                    pass

        run_threads(work)


# --- processes ------------------------------------------------------------------------------------

PROGRAM = """
import multiprocessing, os, sys, threading
import numpy as np
import vkchi as ti

@ti.kernel
def add(x: ti.types.ndarray(), a: ti.f32):
    for i in x:
        x[i] += a

def work(n):
    ti.init()
    x = ti.ndarray(ti.f32, n)
    add(x, 2)
    return float(x.to_numpy().sum())

def more(x):
    add(x, 1)
    return x

def tell(queue, what):
    try:
        queue.put(str(what()))
    except ti.VkchiError as error:
        queue.put(f"{type(error).__name__}: {error}")

if __name__ == "__main__":
"""


def run_program(body: str, tmp_path: Path) -> list[str]:
    """Lines that a program prints. It must end with status 0 and without messages.

    The notice of kernels that still run is allowed: on a busy machine they take that long.
    """
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + "".join(f"    {line}\n" for line in body.strip().splitlines()))
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert errors_of(done.stderr) == ""
    return done.stdout.splitlines()


def test_spawned_processes(tmp_path: Path) -> None:
    body = """
ti.init()
with multiprocessing.get_context("spawn").Pool(2, initializer=ti.init) as pool:
    print(pool.map(work, [2, 3]))
    x = ti.ndarray(ti.f32, 3)
    x.fill(5)
    print(pool.map(more, [x])[0].to_numpy().tolist())
"""
    assert run_program(body, tmp_path) == ["[4.0, 6.0]", "[6.0, 6.0, 6.0]"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("use", ["lambda: work(3)", "lambda: x[0]", "lambda: add(x, 1)", "ti.sync"])
def test_a_forked_child_raises(use: str, tmp_path: Path) -> None:
    body = f"""
ti.init()
x = ti.ndarray(ti.f32, 3)
add(x, 1)
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=tell, args=(queue, {use}))
child.start()
print(queue.get(timeout=60))
child.join()
add(x, 1)
print(x.to_numpy().tolist())
"""
    told, after = run_program(body, tmp_path)
    assert told.startswith("DeviceError: this process was forked from one that had a device open")
    assert "spawn" in told and after == "[2.0, 2.0, 2.0]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_parent_without_a_device_works(tmp_path: Path) -> None:
    body = """
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=tell, args=(queue, lambda: work(3)))
child.start()
print(queue.get(timeout=60))
child.join()
"""
    assert run_program(body, tmp_path) == ["6.0"]


@pytest.mark.parametrize(
    "end",
    [
        "for _ in range(50): add(x, 1)",
        "sys.exit()",
        "import atexit; atexit.register(add, x, 1)",
        "kept = ti.Vector.field(3, ti.f32, 8); sys.modules['kept'] = kept; kept[0] = [1, 2, 3]",
        "view = x.to_numpy(); x.cycle = x",
        "threading.Thread(target=lambda: [add(x, 1) for _ in range(20)], daemon=True).start()",
        "ti.reset()",
    ],
)
def test_the_interpreter_ends_well(end: str, tmp_path: Path) -> None:
    run_program(f"ti.init()\nx = ti.ndarray(ti.f32, 100000)\nadd(x, 1)\n{end}", tmp_path)


def test_daemon_threads_end_silently(tmp_path: Path) -> None:
    """They still launch, read and write while the interpreter ends."""
    body = """
ti.init()
x, f = ti.ndarray(ti.f32, 1000), ti.field(ti.f32, 100)
add(x, 1)
def launch():
    while True:
        add(x, 1)
def access():
    while True:
        f[3] = f[4] + 1
        f.fill(2)
for run in (launch, launch, access):
    threading.Thread(target=run, daemon=True).start()
threading.Event().wait(0.2)
"""
    assert run_program(body, tmp_path) == []
