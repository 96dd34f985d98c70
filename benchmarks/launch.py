"""Cost of a launch beside the driver's: Python per launch, a wait after each, elements, graphs.

    python benchmarks/launch.py [--rounds 7]

`python` is microseconds of the calling thread, submission included. `wall` is microseconds until
the device is done. Both are medians of alternating rounds. `driver` rows are the same dispatches,
recorded, submitted and waited for by the raw functions: a lower bound for the rows above. `x` is
the wall time of the row above divided by the driver's, the median over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import vkchi as ti
from vkchi.launch.replay import RecordedLaunch

ti.init(arch=ti.vulkan, offline_cache=False, host_arrays="deferred")


@ti.kernel
def update(x: ti.types.ndarray(), y: ti.types.ndarray(), c: ti.f32, d: ti.i32):
    for i in range(16):
        x[i] = y[i] * c + d


@ti.kernel
def increment(s: ti.template()):
    s[None] += 1


@ti.kernel
def scale(x: ti.types.ndarray(), c: ti.f32):
    for i in x:
        x[i] = x[i] * c


@ti.kernel
def four(
    a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray(), d: ti.types.ndarray()
):
    for i in range(16):
        a[i] = b[i] + c[i] + d[i]


@ti.kernel
def advance(x: ti.types.ndarray(), y: ti.types.ndarray(), c: ti.f32):
    for i in range(16):
        y[i] = ti.sin(x[i]) * c


@ti.kernel
def turn(x: ti.types.ndarray(), c: ti.f32):
    for i in range(16):
        x[i] = ti.sin(x[i]) * c


@ti.kernel
def add_up(x: ti.types.ndarray(), loss: ti.template()):
    for i in range(16):
        loss[None] += x[i]


class Row(NamedTuple):
    """A measurement: `act` repeats the call `count` times; `wait` completes it."""

    name: str
    count: int
    act: Callable[[], Any]
    wait: Callable[[], Any]


class Driver:
    """A kernel's dispatch by the raw functions."""

    def __init__(self, kernel: Any, *args: Any) -> None:
        self.device = kernel.inspect(lambda plan, given: plan.runtime.device, *args)
        launch = kernel.inspect(partial(RecordedLaunch, "launch"), *args)
        (command,) = launch.commands
        self.pipeline, self.block, self.groups = (
            command.pipeline,
            bytes(command.args),
            command.groups,
        )

    def record(self, commands: Any, count: int) -> None:
        """Record `count` dispatches, each after a barrier."""
        d, p = self.device, self.pipeline
        barrier, push, dispatch, order = d._barrier, d._push, d._dispatch, d._order_info
        d._bind(commands, 1, p.handle)
        for _ in range(count):
            barrier(commands, order)
            push(commands, p.layout, 0x20, 0, p.push_bytes, self.block)
            dispatch(commands, *self.groups)

    def submit(self, count: int) -> int:
        """Record and submit; returns the number of the submission."""
        from vkchi.vk.queue import Outgoing

        queue = self.device._queue
        commands = queue.begin()
        self.record(commands, count)
        self.device._barrier(commands, self.device._to_host_info)
        queue.outgoing = Outgoing(queue.submitted + 1, commands)
        return queue.send()

    def batches(self, count: int, size: int = 64) -> None:
        """`count` dispatches, in submissions of `size`."""
        for _ in range(count // size):
            self.submit(size)

    def turns(self, count: int) -> None:
        """`count` dispatches, each submitted and waited for."""
        queue = self.device._queue
        for _ in range(count):
            queue.wait(self.submit(1))

    def wait(self) -> None:
        """Wait until all submissions are complete."""
        self.device._queue.wait(self.device._queue.submitted)


def launches() -> list[Row]:
    """Rows of single kernels."""
    x, y = ti.ndarray(ti.f32, 16), ti.ndarray(ti.f32, 16)
    s = ti.field(ti.f32, ())
    update(x, y, 1.5, 3)
    increment(s)
    many, single = Driver(update, x, y, 1.5, 3), Driver(increment, s)

    def calls() -> None:
        for _ in range(1920):
            update(x, y, 1.5, 3)

    def reads() -> None:
        for _ in range(300):
            increment(s)
            s[None]

    return [
        Row("launch, 2 arrays, 2 numbers", 1920, calls, ti.sync),
        Row("  driver", 1920, lambda: many.batches(1920), many.wait),
        Row("launch then read", 300, reads, ti.sync),
        Row("  driver", 300, lambda: single.turns(300), single.wait),
    ]


def host_arrays() -> list[Row]:
    """Rows of kernels with host arrays of 1 MB each, beside vkchi's arrays. With
    `host_arrays="deferred"` calls neither wait nor copy."""
    own = [ti.ndarray(ti.f32, 1 << 18) for _ in range(4)]
    arrays = [np.zeros(1 << 18, np.float32) for _ in range(4)]
    sets = {"4 arrays of ours": own, "4 arrays of numpy's": arrays}
    try:
        import torch

        sets["4 tensors"] = [torch.zeros(1 << 18) for _ in range(4)]
    except ImportError:
        pass

    def caller(given: list[Any]) -> Callable[[], None]:
        def call() -> None:
            for _ in range(60):
                four(*given)

        return call

    return [Row(name, 60, caller(given), ti.sync) for name, given in sets.items()]


def elements() -> list[Row]:
    """Rows of element accesses in Python."""
    x, loss, g = ti.field(ti.f32, 1024), ti.field(ti.f32, ()), ti.field(ti.f32, (8, 8))

    def read() -> None:
        for _ in range(1000):
            x[5]

    def read_none() -> None:
        for _ in range(1000):
            loss[None]

    def read_two() -> None:
        for _ in range(1000):
            g[3, 4]

    def write() -> None:
        for _ in range(1000):
            x[5] = 1.0

    return [
        Row("x[5]", 1000, read, ti.sync),
        Row("loss[None]", 1000, read_none, ti.sync),
        Row("g[3, 4]", 1000, read_two, ti.sync),
        Row("x[5] = 1.0", 1000, write, ti.sync),
    ]


def graphs() -> list[Row]:
    """Rows of 100 small dispatches."""
    arrays = [ti.ndarray(ti.f32, 16) for _ in range(2)]
    c = ti.graph.Arg(ti.graph.ArgKind.SCALAR, "c", ti.f32)
    plain, numbered = ti.graph.GraphBuilder(), ti.graph.GraphBuilder()
    for k in range(100):
        plain.dispatch(scale, arrays[k % 2], 0.5)
        numbered.dispatch(scale, arrays[k % 2], c)
    same, other = plain.compile(), numbered.compile()
    numbers = iter(range(1 << 30))

    def change() -> None:
        for _ in range(3):
            other.run({"c": 1.0 / (1 + next(numbers))})

    def repeat() -> None:
        for _ in range(3):
            same.run({})

    for _ in range(20):  # afterwards arguments are in memory
        change()

    def calls() -> None:
        for k in range(100):
            scale(arrays[k % 2], 0.5)

    return [
        Row("100 dispatches, called", 1, calls, ti.sync),
        Row("  as a graph", 1, lambda: same.run({}), ti.sync),
        Row(
            "  with another number", 1, lambda: other.run({"c": 1.0 / (1 + next(numbers))}), ti.sync
        ),
    ]


def tapes() -> list[Row]:
    """Rows of steps of ten small kernels under tapes, per kernel, gradients included."""
    xs = [ti.ndarray(ti.f32, 16, needs_grad=True) for _ in range(10)]
    loss = ti.field(ti.f32, (), needs_grad=True)
    numbers = iter(range(1 << 30))

    def step(c: float) -> None:
        for x, y in zip(xs, xs[1:]):
            advance(x, y, c)
        add_up(xs[-1], loss)

    def taped(number: Callable[[], float], **options: Any) -> Callable[[], None]:
        def run() -> None:
            for _ in range(20):
                with ti.ad.Tape(loss, **options):
                    step(number())

        return run

    def in_place() -> None:
        for _ in range(20):
            with ti.ad.Tape(loss):
                for _ in range(9):
                    turn(xs[0], 0.9)
                add_up(xs[0], loss)

    kinds = {
        "taped, of ten": taped(lambda: 0.9),
        "  another number": taped(lambda: 1.0 / (1 + next(numbers))),
        "  in place": in_place,
        "  with memory=": taped(lambda: 0.9, memory="64MiB"),
    }
    for run in kinds.values():
        for _ in range(30):  # afterwards code for these shapes is complete
            run()
    return [Row(name, 200, run, ti.sync) for name, run in kinds.items()]


def measure(rows: list[Row], rounds: int) -> None:
    """Print the medians of each row, measured in turn."""
    found: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        row.act()
        row.wait()
    for _ in range(rounds):
        for k, row in enumerate(rows):
            wall, own = time.perf_counter(), time.thread_time()
            row.act()
            own = time.thread_time() - own
            row.wait()
            wall = time.perf_counter() - wall
            found.setdefault(k, []).append((1e6 * own / row.count, 1e6 * wall / row.count))
    for k, row in enumerate(rows):
        own, wall = (statistics.median(column) for column in zip(*found[k]))
        ratio = ""
        if row.name.strip() == "driver":
            ratios = [above[1] / here[1] for above, here in zip(found[k - 1], found[k])]
            ratio = f"   x {statistics.median(ratios):.2f}"
        print(f"{row.name:32}{own:10.2f}{wall:10.2f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{'us':32}{'python':>10}{'wall':>10}")
    for rows in (launches, host_arrays, elements, graphs, tapes):
        measure(rows(), options.rounds)


if __name__ == "__main__":
    main()
