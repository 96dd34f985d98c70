"""Timing harness of `everyday.py`, `fluids.py`, `solids.py`, `learning.py` and `data.py`.

    SCRIPT TARGET ARCH [NAME...]

TARGET is a package with Taichi's API (taichi, vkchi). A script registers functions with `program`;
each returns the function to time, and a function of its results. `main` prints a JSON with seconds
per call, and of first calls as `first/*`. `check/*` are checksums of results, which `compare.py`
compares between two targets. With BENCH_CLOCK=cpu times are CPU time.

An untimed kernel runs before all programs, because the first kernel of a process also loads the
compiler.
"""

import importlib
import json
import os
import sys
import time

import numpy as np

target, arch, *only = sys.argv[1:]
clock = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter
ti = importlib.import_module(target)
opts = dict(arch=getattr(ti, arch), offline_cache=False, random_seed=1)
PROGRAMS = {}
KINDS = {"float32": ti.f32, "float64": ti.f64, "int32": ti.i32, "uint8": ti.u8}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def checks(array):
    """Checksums of an array: sum, sum of magnitudes, a weighted sum."""
    a = np.asarray(array, np.float64).ravel()
    weights = np.cos(np.arange(a.size) * 0.37)
    return [float(a.sum()), float(abs(a).sum()), float((a * weights).sum())]


def random(seed, *shape):
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def field(array):
    """A field with the contents of an array."""
    f = ti.field(KINDS[array.dtype.name], array.shape)
    f.from_numpy(array)
    return f


def vectors(array, **options):
    """A field of vectors with the contents of an array, whose last axis is the vector's."""
    made = ti.Vector.field(array.shape[-1], KINDS[array.dtype.name], array.shape[:-1], **options)
    made.from_numpy(array)
    return made


def nd(array):
    """An ndarray with the contents of an array."""
    made = ti.ndarray(KINDS[array.dtype.name], array.shape)
    made.from_numpy(array)
    return made


def timed(step):
    """Seconds of one call."""
    begin = clock()
    step()
    ti.sync()
    return clock() - begin


def fastest(step, least=0.2, most=50):
    """Seconds of the fastest of several calls."""
    found = [timed(step)]
    while len(found) < 5 or (sum(found) < least and len(found) < most):
        found.append(timed(step))
    return min(found)


def run(name):
    """The figures of a program, or its error."""
    ti.reset()
    ti.init(**opts)
    try:
        step, result = PROGRAMS[name]()
        first = timed(step)
        found = checks(result())
        best = fastest(step)
    except Exception as e:
        lines = str(e).strip().splitlines() or [""]
        return {name: f"{type(e).__name__}: {lines[-1][:150]}"}
    return {name: best, f"first/{name}": first, f"check/{name}": found}


def warm_up():
    """Load the compiler and the driver."""
    ti.init(**opts)
    x = ti.field(ti.f32, 64)

    @ti.kernel
    def double():
        for i in x:
            x[i] *= 2.0

    double()
    ti.sync()


def main():
    """Run the named programs, or all."""
    warm_up()
    out = {}
    for name in only or PROGRAMS:
        out.update(run(name))
    print(json.dumps(out))
