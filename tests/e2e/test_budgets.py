"""Time budgets, with a margin of five for slow machines: import, compile, launch, element access.

Each figure is the best of several short runs. `scripts/test` runs them alone, on the main device,
without the validation layer, which checks every call of a launch. Source: docs/design.md, parts 3
and 6.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.compiler import compile_kernel
from vkchi.ir.core import walk
from vkchi.runtime import current_runtime

ROOT = Path(__file__).parents[2]
MARGIN = 5

pytestmark = pytest.mark.budget


def best_of(runs, function):
    """Seconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def output_of(program):
    """Output of a fresh interpreter."""
    return subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)


def test_import_time():
    program = """
import time
start = time.process_time()
import vkchi
print(time.process_time() - start)
"""
    assert min(float(output_of(program)) for _ in range(4)) < 0.025 * MARGIN


def test_import_and_init():
    """Beyond numpy; the driver's share is some 50 ms."""
    program = """
import numpy, time
start = time.process_time()
import vkchi as ti
ti.init(offline_cache=False)
print(time.process_time() - start)
"""
    assert min(float(output_of(program)) for _ in range(4)) < 0.110 * MARGIN


def test_import_leaves_other_packages_alone():
    program = "import sys, vkchi; print(*sys.modules)"
    loaded = set(output_of(program).split())
    assert not loaded & {"torch", "jax", "pygame", "PIL", "tqdm"}


def make_kernel(dt=1e-3):
    """About 500 IR operations: a scatter and a gather of 3 by 3 neighbours."""
    n, grid = 64, 16
    x, v = ti.Vector.field(2, ti.f32, n), ti.Vector.field(2, ti.f32, n)
    gv, gm = ti.Vector.field(2, ti.f32, (grid, grid)), ti.field(ti.f32, (grid, grid))

    @ti.kernel
    def substep():
        for p in x:
            base = int(x[p] * grid - 0.5)
            fx = x[p] * grid - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                weight = w[i].x * w[j].y
                gv[base + offset] += weight * (v[p] + dt * (offset - fx))
                gm[base + offset] += weight
        for p in x:
            base = int(x[p] * grid - 0.5)
            fx = x[p] * grid - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = ti.Vector.zero(float, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                new_v += w[i].x * w[j].y * gv[base + offset]
            v[p] = new_v
            x[p] += dt * v[p]

    return substep


def test_compile_time():
    substep = make_kernel()
    fn, runtime = substep.__vkchi_func__, current_runtime()

    def compile_it():
        return compile_kernel(fn, (), runtime.options, runtime.device.caps)

    ops = sum(1 for _ in walk(compile_it().func.body))
    assert ops > 300
    assert best_of(7, compile_it) < 0.025 * MARGIN * max(1, ops / 500)


def test_launch_time():
    a, b = ti.ndarray(ti.f32, 16), ti.ndarray(ti.f32, 16)

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), c: ti.f32, d: ti.i32):
        for i in range(16):
            x[i] = y[i] * c + d

    run(a, b, 1.5, 3)
    ti.sync()

    def batch():
        for _ in range(50):
            run(a, b, 1.5, 3)

    seconds = []
    for _ in range(20):
        seconds.append(best_of(1, batch) / 50)
        ti.sync()
    assert min(seconds) < 7e-6 * MARGIN
    np.testing.assert_array_equal(a.to_numpy(), np.full(16, 3))


@pytest.mark.parametrize("mode", ["immediate", "deferred"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_launch_in_place(library, mode, own_runtime):
    """Arrays of another library, in place, cost no more than 15 us of Python for four of them:
    processor time, beside arrays of ours, after which Python waits where it does for the others."""
    other = pytest.importorskip(library)
    ti.init(host_arrays=mode)
    if not current_runtime().device.host_pointer_alignment:
        pytest.skip("this device does not use memory of the host in place")

    @ti.kernel
    def run(a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray(),
            d: ti.types.ndarray()):  # fmt: skip
        for i in range(1):
            d[i] = a[i] + b[i] + c[i]

    own = [ti.ndarray(ti.f32, 1 << 18) for _ in range(4)]
    theirs = [other.ones(1 << 18, dtype=other.float32) for _ in range(4)]
    seconds = [1e9, 1e9]
    for _ in range(200):
        for k, arrays in enumerate((own, theirs)):
            run(*arrays)
            ti.sync()
            began = time.thread_time()
            for _ in range(16):
                run(*arrays)
                if k == 0 and mode == "immediate":
                    ti.sync()
            seconds[k] = min(seconds[k], (time.thread_time() - began) / 16)
            ti.sync()
    assert seconds[1] - seconds[0] < 15e-6 * MARGIN


def test_arrays_of_numpy_cost_as_much_as_fields(own_runtime):
    """Memory of numpy's, in place, takes at most 1.3 times as long as fields."""
    ti.init()
    if not current_runtime().device.host_pointer_alignment:
        pytest.skip("this device does not use memory of the host in place")
    n = 1 << 22
    x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)
    a, b = np.ones(n, np.float32), np.ones(n, np.float32)

    @ti.kernel
    def on_fields():
        for i in x:
            y[i] = 2.0 * x[i] + y[i]

    @ti.kernel
    def on_arrays(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i] + y[i]

    seconds = [1e9, 1e9]
    for _ in range(40):
        for k, run in enumerate((on_fields, lambda: on_arrays(a, b))):
            seconds[k] = min(seconds[k], best_of(1, lambda run=run: (run(), ti.sync())))
    assert seconds[1] < 1.3 * seconds[0] * 1.5  # a ratio of runs in turn


def test_an_operator_of_torch(own_runtime):
    """`torch_op`, forward and backward, costs no more than by hand, as a Function of torch's."""
    torch = pytest.importorskip("torch", "2.5")
    ti.init()

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2

    op = ti.torch_op(square, outputs={"y": "x"})

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.zeros_like(x)
            square(x.detach(), y)
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, slope):
            x = ctx.saved_tensors[0].detach()
            y, x.grad = torch.zeros_like(x), torch.zeros_like(x)
            y.grad = slope.contiguous()
            square.grad(x, y)
            return x.grad

    x = torch.rand(64, requires_grad=True)
    seconds = [1e9, 1e9]
    for _ in range(40):
        for k, run in enumerate((op, ByHand.apply)):
            taken = best_of(1, lambda run=run: [run(x).sum().backward() for _ in range(5)])
            seconds[k] = min(seconds[k], taken)
    assert seconds[0] < 1.1 * seconds[1]  # 0.7 of it


def least_of(runs, count, launch):
    """Seconds of a launch, in the fastest of several batches."""
    found = []
    for _ in range(runs):
        found.append(best_of(1, lambda: [launch() for _ in range(count)]) / count)
        ti.sync()
    return min(found)


@pytest.mark.parametrize("make", [ti.field, ti.ndarray], ids=["field", "ndarray"])
def test_element_access(make):
    x = make(ti.f32, 1024)
    x.fill(1)
    if getattr(x, "host", None) is None:
        pytest.skip("this device's memory is not the host's")

    def read():
        for i in range(100):
            x[i]

    def write():
        for i in range(100):
            x[i] = 2.0

    assert best_of(10, read) / 100 < 0.2e-6 * MARGIN
    assert best_of(10, write) / 100 < 0.6e-6 * MARGIN


def test_read_after_launch():
    """A launch, a wait and a read: no copy and no second kernel."""
    x = ti.field(ti.i32, ())

    @ti.kernel
    def increment():
        x[None] += 1

    increment()
    if getattr(x, "host", None) is None:
        pytest.skip("this device's memory is not the host's")

    def turn():
        increment()
        return x[None]

    assert best_of(50, turn) < 1e-3
    assert x[None] == 51


def test_a_graph_replays():
    """100 small dispatches, called one by one and as a graph: submission time of Python and the
    driver, 10 times less on a quiet machine, and 3 times less with other numbers."""
    x, c = ti.ndarray(ti.f32, 16), ti.graph.Arg(ti.graph.ArgKind.SCALAR, "c", ti.f32)

    @ti.kernel
    def scale(x: ti.types.ndarray(ti.f32, 1), c: ti.f32):
        for i in x:
            x[i] = x[i] * c

    builder = ti.graph.GraphBuilder()
    for _ in range(100):
        builder.dispatch(scale, x, c)
    graph, numbers = builder.compile(), iter(range(1 << 20))

    def calls():
        for _ in range(100):
            scale(x, 0.5)

    def own(act):
        found = []
        for _ in range(60):
            began = time.thread_time()
            act()
            found.append(time.thread_time() - began)
            ti.sync()
        return min(found)

    called = own(calls)
    changed = own(lambda: graph.run({"c": 1.0 / (1 + next(numbers))}))
    assert own(lambda: graph.run({"c": 0.5})) < called / 5
    assert changed < called / 1.5
