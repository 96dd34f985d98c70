#!/usr/bin/env python3
"""Programs over ndarrays, with shapes as launch arguments, and over fields, with constant shapes.

    benchmarks/shapes.py [--rounds 3] [--json FILE] [NAME...]
    benchmarks/shapes.py --family navi31 [NAME...]

There are three columns: ndarrays with code for any shape (`VKCHI_SHAPES=0`), ndarrays with
shape-specialized code (`VKCHI_SHAPES=first`), and fields. They run in alternating processes.
Figures are milliseconds of CPU time per step, the minimum of all rounds. The times until the first
steps are done follow.

With `--family`, figures are estimates of Mesa's compiler for that AMD GPU family (`isa/counts.py`):
instructions, and cycles by inverse throughput. They are summed over dispatches, for general and
shape-specialized code.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def random(seed, *shape):
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


class Kind:
    """Kind of arrays in a run: `field` or `ndarray`."""

    def __init__(self, ti, name):
        self.ti, self.name = ti, name

    def array(self, values, needs_grad=False):
        """An array with the given contents."""
        ti = self.ti
        dtype = {"float32": ti.f32, "int32": ti.i32, "uint8": ti.u8}[str(values.dtype)]
        make = ti.field if self.name == "field" else ti.ndarray
        made = make(dtype, values.shape, needs_grad=needs_grad)
        made.from_numpy(values)
        return made

    def zeros(self, *shape, dtype=np.float32, needs_grad=False):
        return self.array(np.zeros(shape, dtype), needs_grad)

    @property
    def any(self):
        """The annotation of an argument."""
        return self.ti.template() if self.name == "field" else self.ti.types.ndarray()


# --- stencils ------------------------------------------------------------------------------------


@program
def guarded(ti, kind):
    a, b = kind.array(random(1, 600, 800)), kind.zeros(600, 800)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i, j in a:
            s = 0.0
            if i > 0:
                s += a[i - 1, j]
            if i < a.shape[0] - 1:
                s += a[i + 1, j]
            if j > 0:
                s += a[i, j - 1]
            if j < a.shape[1] - 1:
                s += a[i, j + 1]
            b[i, j] = s - 4 * a[i, j]

    return step, (a, b), b


@program
def sobel(ti, kind):
    a, b = kind.array(random(1, 600, 800)), kind.zeros(600, 800)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        h, w = a.shape[0], a.shape[1]
        for i, j in a:
            if 0 < i < h - 1 and 0 < j < w - 1:
                x = (a[i - 1, j + 1] + 2 * a[i, j + 1] + a[i + 1, j + 1]) - (
                    a[i - 1, j - 1] + 2 * a[i, j - 1] + a[i + 1, j - 1]
                )
                y = (a[i + 1, j - 1] + 2 * a[i + 1, j] + a[i + 1, j + 1]) - (
                    a[i - 1, j - 1] + 2 * a[i - 1, j] + a[i - 1, j + 1]
                )
                b[i, j] = ti.sqrt(x * x + y * y)

    return step, (a, b), b


@program
def life(ti, kind):
    a = kind.array((random(10, 600, 600) < 0.3).astype(np.int32))
    b = kind.zeros(600, 600, dtype=np.int32)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        h, w = a.shape[0], a.shape[1]
        for i, j in a:
            count = 0
            for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                if di != 0 or dj != 0:
                    count += a[(i + di + h) % h, (j + dj + w) % w]
            b[i, j] = 1 if count == 3 or (count == 2 and a[i, j] == 1) else 0

    return step, (a, b), b


@program
def wave(ti, kind):
    n = 512
    p, u, v = kind.array(random(1, n, n)), kind.array(random(2, n, n)), kind.zeros(n, n)

    @ti.kernel
    def step(p: kind.any, u: kind.any, v: kind.any):
        h, w = u.shape[0], u.shape[1]
        for i, j in u:
            around = u[ti.max(i - 1, 0), j] + u[ti.min(i + 1, h - 1), j]
            around += u[i, ti.max(j - 1, 0)] + u[i, ti.min(j + 1, w - 1)]
            v[i, j] = 2 * u[i, j] - p[i, j] + 0.1 * (around - 4 * u[i, j])

    return step, (p, u, v), v


@program
def jacobi_3d(ti, kind):
    n = 96
    a, b = kind.array(random(8, n, n, n)), kind.zeros(n, n, n)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i, j, k in ti.ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1), (1, a.shape[2] - 1)):
            around = a[i - 1, j, k] + a[i + 1, j, k] + a[i, j - 1, k]
            around += a[i, j + 1, k] + a[i, j, k - 1] + a[i, j, k + 1]
            b[i, j, k] = around / 6

    return step, (a, b), b


# --- images --------------------------------------------------------------------------------------


@program
def box_u8(ti, kind):
    h, w = 720, 960
    a = kind.array((random(3, h, w) * 255).astype(np.uint8))
    b = kind.zeros(h, w, dtype=np.uint8)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i, j in ti.ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1)):
            s = 0
            for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                s += ti.cast(a[i + di, j + dj], ti.i32)
            b[i, j] = ti.cast(s // 9, ti.u8)

    return step, (a, b), b


@program
def blend_u8(ti, kind):
    h, w = 720, 960
    a = kind.array((random(3, h, w) * 255).astype(np.uint8))
    b = kind.array((random(4, h, w) * 255).astype(np.uint8))
    c = kind.zeros(h, w, dtype=np.uint8)

    @ti.kernel
    def step(a: kind.any, b: kind.any, c: kind.any):
        for i, j in a:
            s = 77 * ti.cast(a[i, j], ti.i32) + 179 * ti.cast(b[i, j], ti.i32)
            c[i, j] = ti.cast(s >> 8, ti.u8)

    return step, (a, b, c), c


@program
def image_histogram(ti, kind):
    a = kind.array((random(4, 1000, 1000) ** 2 * 255).astype(np.uint8))
    counts = kind.zeros(256, dtype=np.int32)

    @ti.kernel
    def step(a: kind.any, counts: kind.any):
        for k in counts:
            counts[k] = 0
        for i, j in a:
            counts[ti.cast(a[i, j], ti.i32)] += 1

    return step, (a, counts), counts


@program
def transpose(ti, kind):
    a, b = kind.array(random(1, 1024, 1024)), kind.zeros(1024, 1024)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i, j in a:
            b[j, i] = a[i, j]

    return step, (a, b), b


# --- rows ----------------------------------------------------------------------------------------


@program
def saxpy(ti, kind):
    a, b = kind.array(random(1, 1 << 21)), kind.array(random(2, 1 << 21))

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i in a:
            b[i] = 2.0 * a[i] + 0.5 * b[i]

    return step, (a, b), b


@program
def row_sums(ti, kind):
    a, b = kind.array(random(1, 1000, 1000)), kind.zeros(1000)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i in b:
            s = 0.0
            for j in range(a.shape[1]):
                s += a[i, j]
            b[i] = s

    return step, (a, b), b


@program
def column_sums(ti, kind):
    a, b = kind.array(random(1, 1000, 1000)), kind.zeros(1000)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for j in b:
            b[j] = 0.0
        for i, j in a:
            b[j] += a[i, j]

    return step, (a, b), b


@program
def matvec(ti, kind):
    a, x, y = kind.array(random(1, 1024, 1024)), kind.array(random(2, 1024)), kind.zeros(1024)

    @ti.kernel
    def step(a: kind.any, x: kind.any, y: kind.any):
        for i in y:
            s = 0.0
            for j in range(x.shape[0]):
                s += a[i, j] * x[j]
            y[i] = s

    return step, (a, x, y), y


@program
def softmax(ti, kind):
    a, b = kind.array(random(1, 512, 512)), kind.zeros(512, 512)

    @ti.kernel
    def step(a: kind.any, b: kind.any):
        for i in range(a.shape[0]):
            top = a[i, 0]
            for j in range(a.shape[1]):
                top = ti.max(top, a[i, j])
            s = 0.0
            for j in range(a.shape[1]):
                e = ti.exp(a[i, j] - top)
                b[i, j] = e
                s += e
            for j in range(a.shape[1]):
                b[i, j] /= s

    return step, (a, b), b


# --- products ------------------------------------------------------------------------------------


@program
def matmul(ti, kind):
    n = 256
    a, b, c = kind.array(random(1, n, n)), kind.array(random(2, n, n)), kind.zeros(n, n)

    @ti.kernel
    def step(a: kind.any, b: kind.any, c: kind.any):
        for i, j in c:
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    return step, (a, b, c), c


@program
def conv2d(ti, kind):
    a, w, b = kind.array(random(1, 400, 400)), kind.array(random(2, 5, 5)), kind.zeros(400, 400)

    @ti.kernel
    def step(a: kind.any, w: kind.any, b: kind.any):
        for i, j in b:
            s = 0.0
            for p, q in ti.ndrange(w.shape[0], w.shape[1]):
                x, y = i + p - w.shape[0] // 2, j + q - w.shape[1] // 2
                if 0 <= x < a.shape[0] and 0 <= y < a.shape[1]:
                    s += a[x, y] * w[p, q]
            b[i, j] = s

    return step, (a, w, b), b


@program
def depthwise(ti, kind):
    batch, channels, t, k = 4, 64, 512, 15
    u, w = kind.array(random(1, batch, channels, t)), kind.array(random(2, channels, k))
    out = kind.zeros(batch, channels, t)

    @ti.kernel
    def step(u: kind.any, w: kind.any, out: kind.any):
        for b, c, i in out:
            s = 0.0
            for j in range(w.shape[1]):
                if i - j >= 0:
                    s += u[b, c, i - j] * w[c, j]
            out[b, c, i] = s

    return step, (u, w, out), out


# --- gradients -----------------------------------------------------------------------------------


@program
def wave_gradient(ti, kind):
    n = 400
    u = kind.array(random(2, n, n), needs_grad=True)
    v = kind.zeros(n, n, needs_grad=True)
    v.grad.fill(1.0)

    @ti.kernel
    def step(u: kind.any, v: kind.any):
        for i, j in u:
            h, w = u.shape[0], u.shape[1]
            around = u[ti.max(i - 1, 0), j] + u[ti.min(i + 1, h - 1), j]
            around += u[i, ti.max(j - 1, 0)] + u[i, ti.min(j + 1, w - 1)]
            v[i, j] = around * around

    return step.grad, (u, v), u.grad


@program
def matvec_gradient(ti, kind):
    a = kind.array(random(1, 512, 512), needs_grad=True)
    x, y = kind.array(random(2, 512), needs_grad=True), kind.zeros(512, needs_grad=True)
    y.grad.fill(1.0)

    @ti.kernel
    def step(a: kind.any, x: kind.any, y: kind.any):
        for i in y:
            s = 0.0
            for j in range(x.shape[0]):
                s += a[i, j] * x[j]
            y[i] = s

    return step.grad, (a, x, y), x.grad


@program
def conv_gradient(ti, kind):
    a = kind.array(random(1, 200, 200), needs_grad=True)
    w = kind.array(random(2, 3, 3), needs_grad=True)
    b = kind.zeros(200, 200, needs_grad=True)
    b.grad.fill(1.0)

    @ti.kernel
    def step(a: kind.any, w: kind.any, b: kind.any):
        for i, j in ti.ndrange((1, b.shape[0] - 1), (1, b.shape[1] - 1)):
            s = 0.0
            for p, q in ti.static(ti.ndrange(3, 3)):
                s += a[i + p - 1, j + q - 1] * w[p, q]
            b[i, j] = s

    return step.grad, (a, w, b), a.grad


# --- measuring -----------------------------------------------------------------------------------


def measure(names, kind_name):
    """{name: [seconds per step, of the first step, a checksum of the results]}."""
    import vkchi as ti

    ti.init(arch=ti.vulkan, offline_cache=False)
    kind, found = Kind(ti, kind_name), {}
    for name in names:
        step, args, out = PROGRAMS[name](ti, kind)
        began = time.process_time()
        step(*args)
        ti.sync()
        first = time.process_time() - began
        check = float(np.asarray(out.to_numpy(), np.float64).sum())
        best, count = 1e9, 1
        for _ in range(6):
            began = time.process_time()
            for _ in range(count):
                step(*args)
            ti.sync()
            took = (time.process_time() - began) / count
            best, count = min(best, took), max(1, min(50, int(0.05 / max(took, 1e-6))))
        found[name] = [best, first, check]
    return found


def estimate(names, family):
    """Print rows of instructions and cycles, for general and shape-specialized code."""
    import vkchi as ti
    from vkchi.cache.inspection import driver_report
    from vkchi.compiler import build_artifact
    from vkchi.ir.rebuild import with_shapes
    from vkchi.runtime import current_runtime

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "isa"))
    from counts import figures

    ti.init(arch=ti.vulkan, offline_cache=False)
    caps, kind, logs = driver_report.read_caps(family), Kind(ti, "ndarray"), []
    print(
        f"{'program':18}{'any':>6}{'met':>6}{'any':>10}{'met':>8}{'any/met':>9}   instructions, cycles"
    )
    for name in names:
        step, args, _ = PROGRAMS[name](ti, kind)
        if not hasattr(step, "inspect"):
            continue  # a gradient
        fn = step.inspect(lambda plan, _: plan.func, *args)
        shapes = {p.name: a.shape for p, a in zip(fn.params, args)}
        row = []
        for func in (fn, with_shapes(fn, shapes)):
            shaders = [
                d.shader for d in build_artifact(func, current_runtime().options, caps).dispatches
            ]
            found = [
                figures(one.executables[0].statistics, one.executables[0].machine_code())
                for one in driver_report.compile_all(family, shaders, caps)
            ]
            row.append((sum(f["all"] for f in found), sum(f["inverse"] for f in found)))
        (a, b), (c, d) = row
        logs.append(np.log(b / d))
        print(f"{name:18}{a:6}{c:6}{b:10}{d:8}{b / d:9.2f}")
    print(f"{'geometric mean':48}{np.exp(np.mean(logs)):9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--family")
    parser.add_argument("--as", dest="kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.names or list(PROGRAMS)
    if options.family:
        estimate(names, options.family)
        return
    if options.kind:
        print(json.dumps(measure(names, options.kind)))
        return
    columns = [("any", "ndarray", "0"), ("met", "ndarray", "first"), ("field", "field", "0")]
    found = {}
    for _ in range(options.rounds):
        for column, kind, mode in columns:
            environment = {**os.environ, "VKCHI_SHAPES": mode}
            command = [sys.executable, __file__, "--as", kind, *names]
            run = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if run.returncode:
                sys.exit(run.stderr)
            for name, (best, first, check) in json.loads(run.stdout.splitlines()[-1]).items():
                old = found.setdefault(name, {}).get(column, (1e9, 1e9, check))
                found[name][column] = min(old[0], best), min(old[1], first), check
    report(found)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(found, out, indent=1)


def report(found):
    print(
        f"{'program':18}{'any':>9}{'met':>9}{'field':>9}{'any/met':>9}{'any/field':>10}   first: any, met, field (ms)"
    )
    logs = []
    for name, by in found.items():
        a, m, f = (1e3 * by[c][0] for c in ("any", "met", "field"))
        firsts = "".join(f"{1e3 * by[c][1]:8.1f}" for c in ("any", "met", "field"))
        wrong = (
            ""
            if np.allclose(by["any"][2], [by["met"][2], by["field"][2]], rtol=1e-3)
            else "  RESULTS DIFFER"
        )
        print(f"{name:18}{a:9.3f}{m:9.3f}{f:9.3f}{a / m:9.2f}{a / f:10.2f}   {firsts}{wrong}")
        logs.append(np.log(a / m))
    print(f"{'geometric mean':45}{np.exp(np.mean(logs)):9.2f}")


if __name__ == "__main__":
    main()
