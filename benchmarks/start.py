"""Time of a process to its first result: import, init, first kernel, cold and warm.

    python benchmarks/start.py [--against PYTHON] [--rounds 7] [NAME ...]

Figures are of whole processes, run in turn, in ms: minimum and median of the CPU time (user and
system, all threads) and of the wall time. On a busy machine the CPU time is more reliable.

- `cold` compiles everything; `warm` uses a disk cache that a first, uncounted run has filled.
- `against` is a Python that has `taichi`. `driver` is a bare Vulkan instance and device, without
  vkchi.
- `ours` is ms of the calling thread from the first call of a kernel until it is recorded. Time in
  the driver's functions (all but vkCmd...) is excluded.
- For gradients, `ours` covers all that a tape contains: the first calls of its kernels and of their
  gradients. For mpm88 these are two and two, 13 shaders; `its gradient alone` is the gradient of
  mpm88's kernel, 8 of them.
- `gradient and ti.ad` adds the import of the tape, which happens on first use of `ti.ad`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENTRIES = 1000

DRIVER = """
from vkchi.vk.raw import load_vulkan
from vkchi.vk.instance import open_instance
from vkchi.vk.logical import open_logical
from vkchi.vk.physical import read_physical
instance = open_instance(load_vulkan())
open_logical(instance.vk, read_physical(instance.vk, instance.list_handles()[0]))
import os
os._exit(0)
"""
HEAD = """
import sys, time
import {target} as ti
OURS, drivers = "ours:", [0.0]
def noting_its_time(function):
    def timed(*args):
        began = time.thread_time()
        try:
            return function(*args)
        finally:
            drivers[0] += time.thread_time() - began
    return timed
if "vkchi" in sys.modules:
    from vkchi.vk.raw import DeviceCalls
    find = DeviceCalls.__getattr__
    def find_timed(calls, name):
        function = find(calls, name)
        if not name.startswith("vkCmd"):  # what only notes something, in far less than is measured
            function = noting_its_time(function)
            setattr(calls, name, function)
        return function
    DeviceCalls.__getattr__ = find_timed
ti.init(arch=ti.{arch}, offline_cache={cached})
"""
TAIL = """
before, began = drivers[0], time.thread_time()
run()
print(OURS, 1e3 * (time.thread_time() - began - drivers[0] + before))
show()
"""
SAXPY = """
x, y = ti.field(ti.f32, 1024), ti.field(ti.f32, 1024)
@ti.kernel
def saxpy(a: ti.f32):
    for i in x:
        y[i] = a * x[i] + y[i]
run, show = lambda: saxpy(2.0), lambda: y[5]
"""
GRADIENT = """
n = 256
x = ti.Vector.field(2, ti.f32, n, needs_grad=True)
U = ti.field(ti.f32, (), needs_grad=True)
@ti.kernel
def start():
    for i in x:
        x[i] = [ti.random(), ti.random()]
@ti.kernel
def potential():
    for i, j in ti.ndrange(n, n):
        d = x[i] - x[j]
        U[None] += -1.0 / ti.sqrt(d.norm_sqr() + 1e-3)
start()
tape = ti.ad.Tape(U)
def run():
    with tape:
        potential()
show = lambda: x.grad[3][0]
"""
MPM = """
n_particles, n_grid = 8192, 128
dx, dt = 1 / n_grid, 2e-4
p_rho, p_vol, gravity, bound, E = 1, (dx * 0.5) ** 2, 9.8, 3, 400
p_mass = p_vol * p_rho
x, v = ti.Vector.field(2, float, n_particles), ti.Vector.field(2, float, n_particles)
C, J = ti.Matrix.field(2, 2, float, n_particles), ti.field(float, n_particles)
gv, gm = ti.Vector.field(2, float, (n_grid, n_grid)), ti.field(float, (n_grid, n_grid))
@ti.kernel
def substep():
    for i, j in gm:
        gv[i, j] = [0, 0]
        gm[i, j] = 0
    for p in x:
        Xp = x[p] / dx
        base = int(Xp - 0.5)
        fx = Xp - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        stress = -dt * 4 * E * p_vol * (J[p] - 1) / dx**2
        affine = ti.Matrix([[stress, 0], [0, stress]]) + p_mass * C[p]
        for i, j in ti.static(ti.ndrange(3, 3)):
            offset = ti.Vector([i, j])
            dpos = (offset - fx) * dx
            weight = w[i].x * w[j].y
            gv[base + offset] += weight * (p_mass * v[p] + affine @ dpos)
            gm[base + offset] += weight * p_mass
    for i, j in gm:
        if gm[i, j] > 0:
            gv[i, j] /= gm[i, j]
        gv[i, j].y -= dt * gravity
    for p in x:
        Xp = x[p] / dx
        base = int(Xp - 0.5)
        fx = Xp - base
        w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
        new_v = ti.Vector.zero(float, 2)
        new_C = ti.Matrix.zero(float, 2, 2)
        for i, j in ti.static(ti.ndrange(3, 3)):
            offset = ti.Vector([i, j])
            dpos = (offset - fx) * dx
            weight = w[i].x * w[j].y
            g_v = gv[base + offset]
            new_v += weight * g_v
            new_C += 4 * weight * g_v.outer_product(dpos) / dx**2
        v[p] = new_v
        x[p] += dt * v[p]
        J[p] *= 1 + dt * new_C.trace()
        C[p] = new_C
x.fill(0.5)
J.fill(1)
run, show = substep, lambda: x[3][0]
"""
OF_MPM = """
loss = ti.field(float, (), needs_grad=True)
@ti.kernel
def aim():
    for p in x:
        loss[None] += x[p].y
tape = ti.ad.Tape(loss)
def run():
    with tape:
        substep()
        aim()
show = lambda: x.grad[3][1]
"""
# First calls, except the gradient of mpm88's kernel.
BEFORE = """
substep()
aim()
with ti.ad.Tape(loss):
    aim()
"""
MPM_GRADIENT = MPM
for of in ("float, n_particles)", "(n_grid, n_grid))"):
    MPM_GRADIENT = MPM_GRADIENT.replace(of, f"{of[:-1]}, needs_grad=True)")
LAST = "run, show = substep, lambda: x[3][0]\n"
KERNELS = {
    "saxpy": SAXPY,
    "gradient": GRADIENT,
    "gradient and ti.ad": GRADIENT.replace("tape = ti.ad.Tape(U)\n", "").replace(
        "with tape", "with ti.ad.Tape(U)"
    ),
    "mpm88": MPM,
    "grad of mpm88": MPM_GRADIENT.replace(LAST, OF_MPM),
    "its gradient alone": MPM_GRADIENT.replace(LAST, OF_MPM + BEFORE),
}


def programs(target: str, arch: str) -> dict[str, tuple[str, bool]]:
    """Program sources by name; True for those that use a filled cache."""
    head = {k: HEAD.format(target=target, arch=arch, cached=k) for k in (False, True)}
    found = {"import": (f"import {target}", False), "import, init": (head[False], False)}
    for name, text in KERNELS.items():
        found[f"{name}, cold"] = (head[False] + text + TAIL, False)
        found[f"{name}, warm"] = (head[True] + text + TAIL, True)
    return found


class Runner:
    """Runs programs of one Python and records their times."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.taken: dict[str, list[tuple[float, float, float]]] = {}
        folder.mkdir()

    def run(self, name: str, arguments: list[str], counted: bool = True) -> None:
        """Run one process and record its CPU time, its wall time, and the number that it prints,
        in ms."""
        paths = {
            "VKCHI_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONPATH": str(ROOT),
            "TI_OFFLINE_CACHE_FILE_PATH": str(self.folder / "cache"),
        }
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [self.python, *arguments],
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        ours = float(done.stdout.partition("ours: ")[2].split("\n")[0] or "nan")
        if counted:
            self.taken.setdefault(name, []).append((1e3 * used, 1e3 * wall, ours))

    def run_text(self, name: str, text: str, counted: bool = True) -> None:
        """`run` for a program's source, from a file like users' programs."""
        path = self.folder / f"run_{'_'.join(name.replace(',', '').split())}.py"
        path.write_text(text)
        self.run(name, [str(path)], counted)

    def fill(self) -> None:
        """Fill the cache with many entries for `ls` to show."""
        text = f"""
import os
os.fsync = lambda fd: None
from vkchi.cache.store import find_folder
from vkchi.cache.store import Limits, CacheStore, digest
store = CacheStore(find_folder(), Limits("never"))
for k in range({ENTRIES}):
    header = dict(kind="kernel", name=f"step{{k % 37}}", place=f"program.py:{{k}}", signature="a: f32",
                  seconds=0.1, version="0" * 64, parts={{f"option {{n}}": "x" * 40 for n in range(30)}})
    store.put(digest([str(k).encode()]), header, bytes(3000))
"""
        self.run_text("fill", text, counted=False)


def measure(
    python: str, target: str, arch: str, rounds: int, only: list[str], folder: Path
) -> Runner:
    """Run all programs in turn, `rounds` times."""
    runner = Runner(python, folder / target)
    texts = {"python": ("", False), "numpy": ("import numpy", False), **programs(target, arch)}
    if target == "vkchi":
        texts["driver"] = (DRIVER, False)
        runner.fill()
    texts = {
        name: found for name, found in texts.items() if not only or any(o in name for o in only)
    }
    for name, (text, is_warm) in texts.items():
        for _ in range(2 if is_warm else 0):
            runner.run_text(name, text, counted=False)
    for _ in range(rounds):
        for name, (text, _) in texts.items():
            runner.run_text(name, text)
        if target == "vkchi" and (not only or "ls" in only):
            runner.run(f"cache ls, {ENTRIES} entries", ["-m", "vkchi", "cache", "ls", "--json"])
    return runner


def in_columns(taken: list[tuple[float, float, float]]) -> str:
    """Minimum and median of each figure, in columns."""
    cpu, wall, ours = zip(*taken)
    return "".join(f"{min(t):6.0f}{statistics.median(t):6.0f}" for t in (cpu, wall)) + (
        f"{min(ours):6.1f}{statistics.median(ours):6.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only programs whose names hold one of these")
    parser.add_argument("--against", default="", help="a Python that has taichi")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "vkchi")], check=False)
    with tempfile.TemporaryDirectory() as name:
        folder, targets = Path(name), [(sys.executable, "vkchi", "vulkan")]
        if options.against:
            targets.append((options.against, "taichi", "cpu"))
        runners = [measure(*one, options.rounds, options.names, folder) for one in targets]
    heads = [f"{target + ' cpu':>12}{'wall':>12}{'ours':>12}" for _, target, _ in targets]
    print(f"{'least, median':28}" + "".join(heads))
    for name in runners[0].taken:
        rows = [runner.taken.get(name, [(float("nan"),) * 3]) for runner in runners]
        print(f"{name:28}" + "".join(map(in_columns, rows)))


if __name__ == "__main__":
    main()
