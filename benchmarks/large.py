#!/usr/bin/env python3
"""Compile time of large kernels: vkchi's part and the driver's.

    benchmarks/large.py [--limit SECONDS] [--sizes 100,1000,5000] [NAME...]

Figures are CPU seconds of all threads, robust on a busy machine. Each program runs in its own
process, which is killed at the limit; the driver's cache is off. `vkchi` is lowering, passes and
SPIR-V. `pipeline` is vkCreateComputePipelines. `first run` is the first launch, including deferred
compilation by the driver. The size is an approximate number of statements (see each program).
"""

import argparse
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
SIZES = (100, 1000, 5000)
N = 1024
HEAD = f"""
import vkchi as ti
N = {N}
x = ti.field(ti.f32, N, needs_grad=True)
y = ti.field(ti.f32, N, needs_grad=True)
"""


def straight(count: int) -> str:
    """Assignments with one load each; each fourth statement stores."""
    body = "".join(
        f"        v = v * {1 - k / 9000:.4f} + x[(i + {k % 97}) % N]\n"
        + (f"        y[(i + {k}) % N] = v\n" if k % 4 == 3 else "")
        for k in range(count * 4 // 5)
    )
    return f"{HEAD}@ti.kernel\ndef run():\n    for i in range(N):\n        v = x[i]\n{body}        y[i] = v\n"


def floor(count: int) -> str:
    """`straight` with as many loads, stores and additions, at constant, non-adjacent offsets: a
    lower bound, whatever the address arithmetic costs."""
    body = "".join(
        f"        v = v * {1 - k / 9000:.4f} + x[i + {2 * (k % 97)}]\n"
        + (f"        y[i + {2 * k}] = v\n" if k % 4 == 3 else "")
        for k in range(count * 4 // 5)
    )
    return f"""
import vkchi as ti
N = {N}
x, y = ti.field(ti.f32, N + 200), ti.field(ti.f32, N + {2 * count})
@ti.kernel
def run():
    for i in range(N):
        v = x[i]
{body}        y[i] = v
"""


def neighbours(count: int) -> str:
    """Loads of neighbours in a `ti.static` loop, each invocation its own."""
    return f"""
import vkchi as ti
N = {N}
x, y = ti.field(ti.f32, N * {count}), ti.field(ti.f32, N)
@ti.kernel
def run():
    for i in range(N):
        s = 0.0
        for k in ti.static(range({count})):
            s += x[{count} * i + k] * (k + 1)
        y[i] = s
"""


def rows(count: int) -> str:
    """Groups of four adjacent loads and stores, in nested `if`s."""
    lines = []
    for k in range(count // 9):
        level = k % 4
        lines.append("    " * (2 + level) + f"if v > {k}.0:\n")
        at = f"{4 * (k % 16)} + 64 * i"
        lines += ["    " * (3 + level) + f"y[{at} + {q}] = x[{at} + {q}] * v\n" for q in range(4)]
        lines.append("    " * (3 + level) + f"v = v * 0.5 + {k}.0\n")
    return f"""
import vkchi as ti
N = {N}
x, y = ti.field(ti.f32, N * 64), ti.field(ti.f32, N * 64)
@ti.kernel
def run():
    for i in range(N):
        v = float(i)
{"".join(lines)}        y[64 * i] = v
"""


def arithmetic(count: int) -> str:
    """Assignments without memory accesses."""
    body = "".join(
        f"        v = v * {1 - k / 9000:.4f} + w\n        w += v\n" for k in range(count // 2)
    )
    return f"{HEAD}@ti.kernel\ndef run():\n    for i in range(N):\n        v = x[i]\n        w = y[i]\n{body}        y[i] = v\n"


def nested_ifs(count: int) -> str:
    """Blocks of `if`s, four deep, with a statement at each level."""
    lines, level = [], 0
    for k in range(count // 2):
        level = k % 4
        lines.append("    " * (2 + level) + f"if v > x[{k % N}]:\n")
        lines.append("    " * (3 + level) + f"v = v * 0.5 + {k}.0\n")
    return f"{HEAD}@ti.kernel\ndef run():\n    for i in range(N):\n        v = x[i]\n{''.join(lines)}        y[i] = v\n"


def branches(count: int) -> str:
    """A chain of `elif`s of two statements each; at most 990 (1,000 are not supported)."""
    body = "".join(
        f"        elif c == {k}:\n            y[i] = x[i] * {k}.0\n"
        for k in range(1, min(count // 2, 990))
    )
    return f"{HEAD}@ti.kernel\ndef run():\n    for i in range(N):\n        c = int(x[i])\n        if c == 0:\n            y[i] = 0.0\n{body}"


def unrolled(count: int) -> str:
    """Loads of neighbours in a `ti.static` loop."""
    return f"""{HEAD}@ti.kernel
def run():
    for i in range(N):
        s = 0.0
        for k in ti.static(range({count})):
            s += x[(i + k) % N] * (k + 1)
        y[i] = s
"""


def fields(count: int) -> str:
    """A tenth as many fields as statements, each loaded and stored."""
    return f"""import vkchi as ti
N = {N}
F = [ti.field(ti.f32, N) for _ in range({count // 10})]


@ti.kernel
def run():
    for i in range(N):
        for k in ti.static(range({count // 10})):
            F[k][i] = F[k][i] * 2.0 + k
"""


def mpm(count: int) -> str:
    """Particles to grid in 3D with an SVD, 27 neighbours unrolled: some 500 statements per copy;
    one copy for 100."""
    steps = max(1, min(count // 500, 4))
    return f"""import vkchi as ti
N, M = {N}, 32
x, v = (ti.Vector.field(3, ti.f32, N) for _ in range(2))
C, F = (ti.Matrix.field(3, 3, ti.f32, N) for _ in range(2))
grid_v = ti.Vector.field(3, ti.f32, (M, M, M))
grid_m = ti.field(ti.f32, (M, M, M))


@ti.kernel
def run():
    for p in x:
        for step in ti.static(range({steps})):
            base = int(x[p] * M - 0.5)
            fx = x[p] * M - float(base)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            E = (ti.Matrix.identity(ti.f32, 3) + 1e-4 * C[p]) @ F[p]
            U, S, V = ti.svd(E)
            J = S[0, 0] * S[1, 1] * S[2, 2]
            F[p] = E
            stress = 2.0 * (E - U @ V.transpose()) @ E.transpose() + ti.Matrix.identity(ti.f32, 3) * J * (J - 1)
            affine = stress * (step + 1.0) + C[p]
            for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                o = ti.Vector([i, j, k])
                weight = w[i][0] * w[j][1] * w[k][2]
                grid_v[base + o] += weight * (v[p] + affine @ (float(o) - fx))
                grid_m[base + o] += weight
"""


PROGRAMS = {
    f.__name__: f
    for f in (
        straight, floor, arithmetic, nested_ifs, branches, unrolled, neighbours, rows, fields, mpm,
    )
}  # fmt: skip


def measure(name: str, count: int) -> None:
    """Print CPU seconds of each part as JSON; each line replaces the previous one."""
    import vkchi as ti
    from vkchi import compiler
    from vkchi.vk.pipelines import Pipelines

    seconds: dict[str, float] = {}

    def timed(key, function):
        def run(*args, **kwargs):
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[key] = seconds.get(key, 0.0) + time.process_time() - start
                print(json.dumps(seconds), flush=True)

        return run

    def first_run():
        kernel()
        ti.sync()

    ti.init()
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PROGRAMS[name](count))
        file.flush()
        kernel = runpy.run_path(file.name)["run"]
        compiler.compile_kernel = timed("vkchi", compiler.compile_kernel)
        Pipelines.make = timed("pipeline", Pipelines.make)
        timed("all", first_run)()
    seconds["first run"] = seconds.pop("all") - seconds["vkchi"] - seconds["pipeline"]
    print(json.dumps(seconds), flush=True)


def run_one(name: str, count: int, limit: float) -> str:
    """A line of the table."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
        "MESA_SHADER_CACHE_DISABLE": "1",
        "VKCHI_CACHE": "0",
    }
    command = [sys.executable, __file__, "--measure", name, str(count)]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=limit, check=False
        )
        output, note = (
            done.stdout,
            "" if done.returncode == 0 else f"failed: {done.stderr[-200:]!r}",
        )
    except subprocess.TimeoutExpired as e:
        output, note = (
            (e.stdout or b"").decode(),
            f"ended after {time.perf_counter() - start:.0f} s",
        )
    lines = output.strip().splitlines()
    found = json.loads(lines[-1]) if lines else {}
    found.pop("all", None)
    columns = [
        f"{found[key]:10.2f}" if key in found else " " * 9 + "-"
        for key in ("vkchi", "pipeline", "first run")
    ]
    return f"{name:12s} {count:6d} {' '.join(columns)}  {note}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--limit", type=float, default=120, help="seconds per program")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], int(options.measure[1]))
        return
    print(f"{'seconds':12s} {'size':>6s} {'vkchi':>10s} {'pipeline':>10s} {'first run':>10s}")
    for name in options.names or PROGRAMS:
        for size in map(int, options.sizes.split(",")):
            print(run_one(name, size, options.limit), flush=True)


if __name__ == "__main__":
    main()
