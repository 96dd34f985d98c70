"""Measurements of other libraries for the README: run it with a Python that has the library.

    PYTHON benchmarks/beside.py vkchi|taichi|taichi-vulkan|warp|slangpy|torch

Three measurements in CPU time, the minimum of several:
- import of the library and initialization of a device, in a process of its own, including Python;
- attraction of 8,192 bodies in the plane, f32, written in the style of each library's users;
- the gradient of sum(x^4), computed as x = x * x twice in place: 4 x^3 is right.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

BODIES = 8192
PLACES = np.random.default_rng(3).random((BODIES, 2), dtype=np.float32)
X = np.array([1, 1.5, 2, 2.5], np.float32)
Pull = tuple[Callable[[], object], Callable[[], Any]]  # function to time, function of its result
STARTS = {
    "vkchi": "import vkchi as ti; ti.init()",
    "taichi": "import taichi as ti; ti.init(arch=ti.cpu)",
    "taichi-vulkan": "import taichi as ti; ti.init(arch=ti.vulkan)",
    "warp": "import warp; warp.init()",
    "slangpy": "import slangpy; slangpy.create_device(slangpy.DeviceType.vulkan)",
    "torch": "import torch; torch.zeros(1)",
}


def start_of(name: str, rounds: int = 7) -> float:
    """CPU time of a process that initializes the library, in milliseconds."""
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", STARTS[name]], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1e3 * min(times)


def best(run: Callable[[], object], rounds: int = 7) -> float:
    """CPU time of a call after one warm-up call, in milliseconds."""
    run()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return 1e3 * min(times)


# --- vkchi and Taichi ----------------------------------------------------------------------------


def taichi_for(name: str) -> Any:
    """The initialized module."""
    if name == "vkchi":
        import vkchi as ti

        ti.init()
    else:
        import taichi as ti

        ti.init(arch=ti.vulkan if name == "taichi-vulkan" else ti.cpu, log_level=ti.ERROR)
    return ti


def pull_in_taichi(ti: Any) -> Pull:
    x, y = (ti.Vector.field(2, ti.f32, BODIES) for _ in range(2))
    x.from_numpy(PLACES)

    @ti.kernel
    def pull():
        for i in x:
            p, f = x[i], ti.Vector([0.0, 0.0])
            for j in range(BODIES):
                d = x[j] - p
                r = ti.rsqrt(d.dot(d) + 1e-3)
                f += d * r * r * r
            y[i] = f

    def run() -> None:
        pull()
        ti.sync()

    return run, y.to_numpy


def gradient_in_taichi(ti: Any) -> np.ndarray:
    x, loss = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def step():
        for i in x:
            x[i] = x[i] * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    x.from_numpy(X)
    with ti.ad.Tape(loss):
        step()
        step()
        total()
    return x.grad.to_numpy()


# --- Warp ----------------------------------------------------------------------------------------


def pull_in_warp(wp: Any) -> Pull:
    @wp.kernel
    def pull(x: wp.array(dtype=wp.vec2), y: wp.array(dtype=wp.vec2), n: int):
        i = wp.tid()
        p = x[i]
        f = wp.vec2(0.0, 0.0)
        for j in range(n):
            d = x[j] - p
            r = 1.0 / wp.sqrt(wp.dot(d, d) + 1e-3)
            f += d * (r * r * r)
        y[i] = f

    x, y = wp.array(PLACES, dtype=wp.vec2), wp.zeros(BODIES, dtype=wp.vec2)
    return lambda: (wp.launch(pull, BODIES, inputs=[x, y, BODIES]), wp.synchronize()), y.numpy


def gradient_in_warp(wp: Any) -> np.ndarray:
    @wp.kernel
    def step(x: wp.array(dtype=float)):
        i = wp.tid()
        x[i] = x[i] * x[i]

    @wp.kernel
    def total(x: wp.array(dtype=float), loss: wp.array(dtype=float)):
        wp.atomic_add(loss, 0, x[wp.tid()])

    x = wp.array(X, dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(step, 4, inputs=[x])
        wp.launch(step, 4, inputs=[x])
        wp.launch(total, 4, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return x.grad.numpy()


# --- SlangPy -------------------------------------------------------------------------------------

SLANG = """
StructuredBuffer<float2> x; RWStructuredBuffer<float2> y; uniform uint n;
[shader("compute")] [numthreads(64, 1, 1)]
void pull(uint3 t : SV_DispatchThreadID) {
    float2 p = x[t.x], f = float2(0);
    for (uint j = 0; j < n; j++) {
        float2 d = x[j] - p;
        float r = rsqrt(dot(d, d) + 1e-3f);
        f += d * (r * r * r);
    }
    y[t.x] = f;
}
"""


def pull_in_slangpy(spy: Any) -> Pull:
    device = spy.create_device(spy.DeviceType.vulkan)
    module = device.load_module_from_source("bodies", SLANG)
    program = device.link_program([module], [module.entry_point("pull")])
    kernel = device.create_compute_kernel(program)
    usage = spy.BufferUsage.shader_resource | spy.BufferUsage.unordered_access
    shape = {"element_count": BODIES, "struct_size": 8, "usage": usage}
    x, y = device.create_buffer(**shape, data=PLACES), device.create_buffer(**shape)

    def run() -> None:
        kernel.dispatch(thread_count=[BODIES, 1, 1], vars={"x": x, "y": y, "n": BODIES})
        device.wait_for_idle()

    return run, lambda: y.to_numpy().view(np.float32).reshape(BODIES, 2)


# --- torch ---------------------------------------------------------------------------------------


def pull_in_torch(torch: Any) -> Pull:
    x, y = torch.from_numpy(PLACES), torch.empty(BODIES, 2)

    def run() -> None:
        for k in range(0, BODIES, 512):  # one batch would take a gigabyte
            d = x[None] - x[k : k + 512, None]
            r = torch.rsqrt((d * d).sum(-1) + 1e-3)
            y[k : k + 512] = (d * (r * r * r)[..., None]).sum(1)

    return run, y.numpy


def gradient_in_torch(torch: Any) -> object:
    x = torch.from_numpy(X).requires_grad_()
    y = x * 1
    try:
        for _ in range(2):
            y.mul_(y)
        y.sum().backward()
    except RuntimeError as error:
        return "an error: " + str(error).splitlines()[0]
    return x.grad


def measure(name: str) -> tuple[str, Pull, object]:
    """The library's version, the n-body program, the gradient."""
    if name.startswith(("vkchi", "taichi")):
        ti = taichi_for(name)
        return str(ti.__version__), pull_in_taichi(ti), gradient_in_taichi(ti)
    if name == "warp":
        import warp as wp

        wp.config.quiet = True
        return wp.__version__, pull_in_warp(wp), gradient_in_warp(wp)
    if name == "slangpy":
        import slangpy as spy

        return spy.__version__, pull_in_slangpy(spy), "no tape: a call's `.bwds` is called by hand"
    import torch

    return torch.__version__, pull_in_torch(torch), gradient_in_torch(torch)


def check(found: np.ndarray) -> None:
    """Raises AssertionError if the forces on the first bodies are wrong."""
    d = PLACES[None].astype(np.float64) - PLACES[:16, None]
    wanted = (d / ((d * d).sum(-1, keepdims=True) + 1e-3) ** 1.5).sum(1)
    np.testing.assert_allclose(found[:16], wanted, rtol=2e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=STARTS)
    name = parser.parse_args().name
    start = start_of(name)
    version, (run, result), gradient = measure(name)
    took = best(run)
    check(result())
    print(f"{name} {version}: start {start:.0f} ms, n-body {took:.1f} ms of processors")
    print(f"    gradient {gradient}, wanted {4 * X**3}", flush=True)
    os._exit(0)  # some libraries print in destructors


if __name__ == "__main__":
    main()
