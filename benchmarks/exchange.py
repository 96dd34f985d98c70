"""Cost of arrays of numpy and torch: calls in place, loops over them, operators of torch.

    python benchmarks/exchange.py [--rounds 15] [operators] [calls] [saxpy]

- `operators`: `ti.torch_op` beside handwritten `torch.autograd.Function`s around the same kernel.
  One makes its results by `zeros_like` like the operator, the other by `empty_like`.
- `calls`: a call with four arrays of 1 MB beside the same with vkchi's arrays; the kernel touches
  16 elements.
- `saxpy`: 4 million elements, on fields and on arrays of vkchi, numpy and torch.

All rows of a part alternate in one process. Figures are medians of rounds in microseconds per call:
CPU time of all threads, the driver's included (`cpu`), of the calling thread (`python`), and time
until the device is done (`wall`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import vkchi as ti


class Row(NamedTuple):
    """A measurement: `act` repeats the call `count` times; `beside` is the row to compare with."""

    name: str
    count: int
    act: Callable[[], Any]
    beside: str = ""


class Taken(NamedTuple):
    """Microseconds per call."""

    cpu: float
    python: float
    wall: float


def take(row: Row) -> Taken:
    """One round of a row."""
    cpu, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
    row.act()
    own = time.thread_time() - own
    ti.sync()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Taken(*(1e6 * seconds / row.count for seconds in (cpu, own, wall)))


def measure(title: str, rows: list[Row], rounds: int) -> None:
    """Print the medians of each row, measured in turn, and comparisons with others."""
    found: dict[str, list[Taken]] = {row.name: [] for row in rows}
    for row in rows:
        take(row)
    for k in range(rounds):
        for row in rows if k % 2 else reversed(rows):
            found[row.name].append(take(row))
    print(f"{title:42}{'cpu':>10}{'python':>10}{'wall':>10}")
    for row in rows:
        middle = [statistics.median(column) for column in zip(*found[row.name])]
        print(f"{row.name:42}" + "".join(f"{us:10.1f}" for us in middle), end="")
        print(f"   {compare(found[row.name], found[row.beside])}" if row.beside else "")


def compare(own: list[Taken], other: list[Taken]) -> str:
    """Median ratio and difference of paired rounds."""
    ratio = statistics.median(a.cpu / b.cpu for a, b in zip(own, other))
    more = statistics.median(a.python - b.python for a, b in zip(own, other))
    return f"cpu {ratio:.2f} times, python {more:+.1f}"


# --- operators -----------------------------------------------------------------------------------


@ti.kernel
def product(x: ti.types.ndarray(), w: ti.types.ndarray(), a: ti.f32, y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] * w[i] * w[i]


def by_hand(torch: Any, make: Callable[[Any], Any]) -> Any:
    """The kernel as an autograd Function; `make` allocates its result."""

    class Product(torch.autograd.Function):
        """As in docs/autodiff.md."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, a: float) -> Any:
            y = make(x)
            product(x, w, a, y)
            ctx.save_for_backward(x, w)
            ctx.a = a
            return y

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            y = make(x.detach())
            y.grad = slope
            product.grad(x, w, ctx.a, y)
            return x.grad, w.grad, None

    return Product.apply


def operators(rounds: int) -> None:
    """Forward, and forward plus backward, of small tensors and of tensors of 1 MB."""
    import torch

    ti.init(arch=ti.vulkan, offline_cache=False)
    torch.set_num_threads(1)  # waits between torch's threads are noise
    ways = {
        "by hand, zeros_like": by_hand(torch, torch.zeros_like),
        "by hand, empty_like": by_hand(torch, torch.empty_like),
        "ti.torch_op": ti.torch_op(product, outputs={"y": "x"}),
    }
    for n, count in ((64, 40), (1 << 18, 10)):
        slope = torch.rand(n)
        for needs in (False, True):
            x, w = (torch.rand(n, requires_grad=needs) for _ in range(2))
            rows = []
            for name, op in ways.items():

                def run(op: Any = op) -> None:
                    for _ in range(count):
                        y = op(x, w, 2.0)
                        if needs:
                            torch.autograd.grad(y, (x, w), slope)

                rows.append(Row(name, count, run, rows[0].name if rows else ""))
            what = "forward, backward" if needs else "forward"
            measure(f"{what}, {n} numbers", rows, rounds)


# --- calls ---------------------------------------------------------------------------------------


@ti.kernel
def four(
    a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray(), d: ti.types.ndarray()
):
    for i in range(16):
        a[i] = b[i] + c[i] + d[i]


def calls(rounds: int) -> None:
    """Calls with four arrays of 1 MB, with and without a wait."""
    for mode in ("immediate", "deferred"):
        ti.init(arch=ti.vulkan, offline_cache=False, host_arrays=mode)
        sets: dict[str, list[Any]] = {
            "arrays of ours": [ti.ndarray(ti.f32, 1 << 18) for _ in range(4)],
            "numpy": [np.zeros(1 << 18, np.float32) for _ in range(4)],
        }
        try:
            import torch

            sets["torch"] = [torch.zeros(1 << 18) for _ in range(4)]
        except ImportError:
            pass
        rows = []
        for name, given in sets.items():

            def run(given: list[Any] = given, name: str = name) -> None:
                for _ in range(60):
                    four(*given)
                    if mode == "immediate" and name == "arrays of ours":
                        ti.sync()

            rows.append(Row(name, 60, run, "" if name == "arrays of ours" else "arrays of ours"))
        measure(f"four arrays of 1 MB, {mode}", rows, rounds)


# --- loops ---------------------------------------------------------------------------------------


@ti.kernel
def saxpy_arrays(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] + y[i]


def saxpy(rounds: int) -> None:
    """The same loop on fields and on arrays of other libraries."""
    ti.init(arch=ti.vulkan, offline_cache=False)
    n = 1 << 22
    x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)
    x.fill(1)

    @ti.kernel
    def saxpy_fields(a: ti.f32):
        for i in x:
            y[i] = a * x[i] + y[i]

    given: dict[str, tuple[Any, Any]] = {
        "arrays of ours": (ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, n)),
        "numpy": (np.ones(n, np.float32), np.zeros(n, np.float32)),
    }
    try:
        import torch

        given["torch"] = torch.ones(n), torch.zeros(n)
    except ImportError:
        pass

    def on_fields() -> None:
        for _ in range(5):
            saxpy_fields(0.5)

    rows = [Row("fields", 5, on_fields)]
    for name, (u, v) in given.items():

        def run(u: Any = u, v: Any = v) -> None:
            for _ in range(5):
                saxpy_arrays(0.5, u, v)

        rows.append(Row(name, 5, run, "fields"))
    measure("saxpy of 4 million numbers", rows, rounds)


PARTS = {"operators": operators, "calls": calls, "saxpy": saxpy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[*PARTS], help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options.rounds)


if __name__ == "__main__":
    main()
