"""Programs timed on one target: what the scripts beside it (`everyday.py`, `fluids.py`,
`solids.py`, `learning.py`, `data.py`) measure, and what they print.

    SCRIPT TARGET ARCH [NAME...]

TARGET is a package with Taichi's API (taichi, vkchi). A script registers functions with `program`;
each gives what is timed, and what tells numbers that follow from it. `main` prints a JSON of
seconds per call, and of first calls, as `first/*`; `check/*` are numbers that follow from what a
program computed, for `compare.py` to hold two targets against each other. With BENCH_CLOCK=cpu
times are processor time.
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
    """A few numbers that tell contents apart: sum, sum of magnitudes, a weighted sum."""
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


def nd(array):
    """An ndarray with the contents of an array."""
    made = ti.ndarray(KINDS[array.dtype.name], array.shape)
    made.from_numpy(array)
    return made


def timed(step):
    """Seconds that a call takes."""
    begin = clock()
    step()
    ti.sync()
    return clock() - begin


def fastest(step, least=0.2, most=50):
    """Seconds of the fastest of some calls."""
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


def main():
    """Run the programs that are named, or all."""
    out = {}
    for name in only or PROGRAMS:
        out.update(run(name))
    print(json.dumps(out))
