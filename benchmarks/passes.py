#!/usr/bin/env python3
"""Benefit of single passes: the programs with each pass left out, beside all passes.

    benchmarks/passes.py [--rounds 3] [--only PASS,PASS] [NAME...]

Prints a Markdown table with a row per pass: the time without it divided by the time with all (above
1: the pass makes the program faster). There is a geometric mean, and a value for each program that
differs by more than noise. Times are the minimum CPU time of the rounds, which is robust against
other load. Runs alternate.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

from vkchi.opt.pipeline import OPTIONAL

HERE = pathlib.Path(__file__).parent
NOISE = 1.15
SCRIPTS = {
    "programs.py": (
        "saxpy reduce_sum histogram jacobi nbody mpm88 matmul_shared matmul_atomic row_sum_atomic column_sum_atomic pair_forces "
        "kmeans_assign grid_update ad_gravity ad_wave ad_conv ad_layer seed_padding seed_depthwise_v0 chain conjugate_step "
        "periodic mandelbrot"
    ).split(),
    "assorted.py": ["path_tracer", "hashed_neighbours"],
}
NAMES = [name for names in SCRIPTS.values() for name in names]


def run(left_out, names):
    """Seconds per program."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
        "VKCHI_PASSES": f"-{left_out}" if left_out else "",
        "VKCHI_CACHE": "0",
        "BENCH_CLOCK": "cpu",
    }
    found = {}
    for script, known in SCRIPTS.items():
        chosen = [name for name in names if name in known]
        if chosen:
            command = [sys.executable, str(HERE / script), "vkchi", "vulkan", *chosen]
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False
            )
            if done.returncode:
                sys.exit(done.stderr)
            found.update(json.loads(done.stdout.strip().splitlines()[-1]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(sorted(OPTIONAL)))
    options = parser.parse_args()
    passes = options.only.split(",")
    runs = {name: [] for name in ("", *passes)}
    for _ in range(options.rounds):
        for left_out, found in runs.items():
            found.append(run(left_out, options.names))
    show(passes, options.names, runs)


def show(passes, names, runs):
    """Print the table: a row per pass, with the programs whose time differs without it."""
    print("| pass | all | programs that take other times without it |")
    print("|---|---|---|")
    for p in passes:
        ratios = {name: fastest(runs[p], name) / fastest(runs[""], name) for name in names}
        mean = math.exp(statistics.mean(map(math.log, ratios.values())))
        told = [n for n in sorted(names, key=ratios.get, reverse=True) if is_told(ratios[n])]
        print(f"| {p} | {mean:.2f} | {', '.join(f'{n} {ratios[n]:.2f}' for n in told) or 'none'} |")


def fastest(found, name):
    """The minimum of a program's times."""
    return min(one[name] for one in found)


def is_told(ratio):
    """True if a ratio differs from 1 by more than noise."""
    return not 1 / NOISE < ratio < NOISE


if __name__ == "__main__":
    main()
