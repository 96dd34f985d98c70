#!/usr/bin/env python3
"""CPU time of the passes for six programs, in milliseconds, beside another checkout.

    benchmarks/compile.py [--against TREE] [--rounds 3]

Programs: jacobi and nbody of `programs.py`; mpm 100, straight 200, nested_ifs 200 and fields 400 of
`large.py`. Figures are the minimum of nine repetitions per program and pass, with the garbage
collector off, in alternating processes. The frontend, the emitter and the driver are excluded.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import time
from collections import Counter
from types import SimpleNamespace

HERE = pathlib.Path(__file__).resolve().parent
LARGE = (("mpm", 100), ("straight", 200), ("nested_ifs", 200), ("fields", 400))
SMALL = ("jacobi", "nbody")
TIMES = 9


def runs():
    """Yield the name of each program after its run."""
    large = runpy.run_path(str(HERE / "large.py"))
    for name, count in LARGE:
        import vkchi as ti

        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(large["PROGRAMS"][name](count))
            file.flush()
            ti.init()
            runpy.run_path(file.name)["run"]()
            ti.sync()
            yield name
    for name in SMALL:
        sys.argv = ["programs.py", "vkchi", "vulkan", name]
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(HERE / "programs.py"), run_name="__main__")
        yield name


def measure():
    """Print milliseconds by program and by pass, as JSON."""
    from vkchi.opt import pipeline

    optimise, lower, given = pipeline.optimize_kernel, pipeline.lower_dispatch, []
    new_memo = None
    with contextlib.suppress(ImportError):
        from vkchi.opt.memo import Memo as new_memo

    def note(fn, caps, options, *memo):
        given.append((fn, caps, options))
        return optimise(fn, caps, options, *memo)

    passes = Counter()
    pipeline.optimize_kernel = note
    pipeline.time = SimpleNamespace(perf_counter=time.process_time)
    pipeline.PassTimer.show = lambda self: passes.update(self.seconds)
    programs, best = {}, Counter()
    for name in runs():
        times, parts = [], []
        gc.collect()
        gc.disable()
        for _ in range(TIMES):
            passes.clear()
            start = time.process_time()
            for fn, caps, options in given:
                memo = [new_memo()] if new_memo else []
                for func in optimise(fn, caps, options, *memo)[0].funcs:
                    lower(func, caps, *memo)
            times.append(time.process_time() - start)
            parts.append(dict(passes))
        gc.enable()
        programs[name] = 1e3 * min(times)
        best.update({key: 1e3 * min(p[key] for p in parts) for key in parts[0]})
        given.clear()
    print(json.dumps([programs, best]))


def run(tree):
    """The figures of a checkout."""
    path = {"PYTHONPATH": str(tree), "VKCHI_CACHE": "0"}
    command = [sys.executable, __file__, "--measure"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **path}, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def least(found):
    """The minimum of each figure over several runs."""
    return {key: min(row[key] for row in found) for key in found[0]}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=pathlib.Path, help="another checkout of vkchi")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    trees = [HERE.parent, *([args.against] if args.against else [])]
    found = [[run(tree) for tree in trees] for _ in range(args.rounds)]
    for kind in (0, 1):
        rows = [least([row[k][kind] for row in found]) for k in range(len(trees))]
        for key in sorted(set().union(*rows), key=lambda key: -rows[0].get(key, 0)):
            print(f"{key:14s}" + "".join(f"{row.get(key, 0):9.2f}" for row in rows))
        print(f"{'all':14s}" + "".join(f"{sum(row.values()):9.2f}" for row in rows) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        measure()
    else:
        main()
