#!/usr/bin/env python3
"""Depthwise convolution of `examples/depthwise_conv.py`: formula (v0) beside optimized version (v3).

v3 has rows in shared memory and four steps per vector. Times are measured on this device, and
estimated by a GPU vendor's compiler.

    benchmarks/depthwise.py [--shape 8,96,256] [--rounds 7] [--family navi31]

Times are the minimum over the rounds, all versions in turn. Estimates are cycles per term by
inverse throughput, from Mesa's RADV for a simulated device, counted as in `isa/hand.py`. Fails if
v0 takes longer than v3.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "examples"), str(HERE / "isa")]

import depthwise_conv as example  # noqa: E402

import vkchi as ti  # noqa: E402

VERSIONS = ("v0", "v1", "v2", "v3")
# Shaders have a path for whole groups of rows and one for the rest; a launch takes one of them.
WAYS = {"v0 forward": 2, "v0 backward of k": 2}


def make(version, shape):
    """Functions that call a version forward and backward."""
    B, C, T = shape
    rng = np.random.default_rng(1)
    arrays = {n: ti.ndarray(ti.f32, s) for n, s in (
        ("w", (C, T)), ("k", shape), ("g", shape), ("out", shape), ("gw", (C, T)), ("gk", shape),
    )}  # fmt: skip
    for name in "wkg":
        arrays[name].from_numpy(rng.random(arrays[name].shape, np.float32))
    w, k, g, out, gw, gk = arrays.values()
    forward, backward = {
        "v0": lambda: (example.forward_v0, example.backward_v0),
        "v1": lambda: example.make_shared(T),
        "v2": lambda: (example.forward_v2, example.backward_v2),
        "v3": lambda: example.make_shared_vector(T),
    }[version]()
    return {
        "forward": lambda: forward(out, w, k, 0.1), "backward": lambda: backward(gw, gk, g, w, k),
    }  # fmt: skip


def times(shape, rounds):
    """(version, direction) -> milliseconds."""
    calls = {(v, way): call for v in VERSIONS for way, call in make(v, shape).items()}
    found = {key: float("inf") for key in calls}
    for k in range(rounds + 1):
        for key, call in calls.items():
            start = time.perf_counter()
            call()
            ti.sync()
            if k:
                found[key] = min(found[key], 1e3 * (time.perf_counter() - start))
    return found


def estimates(shape, family):
    """(version, direction) -> cycles per term; empty if the compiler is not installed."""
    import hand

    from vkchi.cache.inspection import driver_report

    found, names = {}, ("forward", "backward of k", "backward of w")
    for version in VERSIONS if driver_report.find_driver() else ():
        done = subprocess.run(
            [sys.executable, "-m", "vkchi", "compile", __file__, "--device", f"radv:{family}", "--json", "--isa",
             "--", "--only", version, ",".join(map(str, shape))],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "VKCHI_CACHE": "0"},
        )  # fmt: skip
        for name, row in zip(names, json.loads(done.stdout)["shaders"], strict=True):
            cycles = row["statistics"]["Inverse Throughput"]
            ways = WAYS.get(f"{version} {name}", 1)
            found[version, name] = hand.per_unit(row["isa"], cycles, hand.FUSED, ways)[0]["cycles"]
    return found


def show(title, found):
    """Print a line per direction. Return True if v0 takes no longer than v3."""
    print(f"{title:34s}" + "".join(f"{v:>9s}" for v in VERSIONS) + "   v0 / v3")
    good = True
    for way in dict.fromkeys(way for _, way in found):
        row = [found[v, way] for v in VERSIONS]
        good &= row[0] <= row[-1]
        print(f"  {way:32s}" + "".join(f"{x:9.2f}" for x in row) + f"{row[0] / row[-1]:10.2f}")
    return good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="8,96,256", help="B,C,T; T a multiple of 4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--family", default="navi31")
    options = parser.parse_args()
    shape = tuple(map(int, options.shape.split(",")))
    ti.init(arch=ti.vulkan)
    good = show("ms", times(shape, options.rounds))
    found = estimates(shape, options.family)
    if not found:
        print("no estimates: Mesa's RADV is not here (mesa-vulkan-drivers)")
    sys.exit(not (good and show(f"cycles per term ({options.family})", found)))


if "--only" in sys.argv:  # run by `vkchi compile`
    ti.init(arch=ti.vulkan)
    for call in make(sys.argv[-2], tuple(map(int, sys.argv[-1].split(",")))).values():
        call()
elif __name__ == "__main__":
    main()
