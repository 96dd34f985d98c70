#!/usr/bin/env python3
"""Run programs.py for two targets in turn, and compare their times.

    compare.py "PY_A TARGET_A ARCH_A" "PY_B TARGET_B ARCH_B" [--rounds 3] [NAME...]

Prints two medians per program and A/B (above 1: B is faster). Geometric means of the ratios follow,
for run times and for first-call (compile + run) times. Each round runs both in turn, so that a
drift affects both.

First calls compile anew: Mesa's shader cache is off. Python's bytecode is cached in a temporary
folder, and an untimed run fills it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from vkchi.progress import track

ap = argparse.ArgumentParser()
ap.add_argument("a")
ap.add_argument("b")
ap.add_argument("names", nargs="*")
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--out")
ap.add_argument("--script", default="programs.py")
args = ap.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
runs = {"a": [], "b": []}
around = {**os.environ, "MESA_SHADER_CACHE_DISABLE": "true"}
around.pop("PYTHONDONTWRITEBYTECODE", None)


def execute(key):
    """The figures of a run of the script for a target; None, with its output shown, if it fails."""
    py, target, arch = getattr(args, key).split()
    p = subprocess.run(
        [py, f"{here}/{args.script}", target, arch, *args.names],
        capture_output=True, text=True, env=around,
    )  # fmt: skip
    try:
        return json.loads(p.stdout.strip().splitlines()[-1])
    except Exception:
        print(p.stdout[-500:], p.stderr[-1500:], file=sys.stderr)


with tempfile.TemporaryDirectory() as folder:
    around["PYTHONPYCACHEPREFIX"] = folder
    for n in track(range(args.rounds + 1), "rounds"):
        for key in "ab":
            found = execute(key)
            if n > 0 and found is not None:
                runs[key].append(found)
names = [k for k in dict.fromkeys(k for r in runs["a"] + runs["b"] for k in r)]


def med(key, name):
    v = [r.get(name) for r in runs[key]]
    nums = [x for x in v if isinstance(x, (int, float))]
    return (statistics.median(nums) if len(nums) == len(v) and v else None), next(
        (x for x in v if isinstance(x, str)), None
    )


ratios = {"run": [], "first": []}
print(
    f"{'program':28s} {'A: ' + args.a.split()[1] + ' ' + args.a.split()[2]:>20s} {'B: ' + args.b.split()[1] + ' ' + args.b.split()[2]:>20s}    A/B"
)
for n in names:
    if n.startswith("check/"):
        found = [r[n] for r in runs["a"] + runs["b"] if n in r]
        if any(
            abs(x - y) > 1e-3 * max(abs(x), abs(y), 1) for f in found for x, y in zip(f, found[0])
        ):
            print(f"{n:28s} differs: {runs['a'][0].get(n)} {runs['b'][0].get(n)}")
        continue
    (a, ea), (b, eb) = med("a", n), med("b", n)
    if a and b:
        r = a / b
        print(f"{n:28s} {a * 1e3:17.4f} ms {b * 1e3:17.4f} ms {r:6.2f}")
        ratios["first" if n.startswith("first/") or n in ("import", "init") else "run"].append(r)
    else:
        print(f"{n:28s} {ea or a!s:>20.60s} {eb or b!s:>20.60s}")
for k, v in ratios.items():
    if v:
        print(f"geomean {k}: {math.exp(sum(map(math.log, v)) / len(v)):.2f} over {len(v)}")
if args.out:
    json.dump(runs, open(args.out, "w"))
