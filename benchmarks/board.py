#!/usr/bin/env python3
"""Table of vkchi's times beside Taichi, Taichi Forge, numba, Warp, torch, and the device's limits.

    benchmarks/board.py [--against PYTHON_WITH_TAICHI] [--forge PYTHON_WITH_TAICHI_FORGE]
                        [--peers PYTHON] [--list given|seen|fresh]
                        [--rounds 3] [--clock cpu] [--history FILE] [--plot FILE] [NAME...]

Lists of programs: the passes were developed with the given ones; the seen ones were timed
repeatedly while passes were written; the fresh ones were written before they were timed. numba,
Warp, torch and the limits have figures of given programs only.

Columns per program:
- vkchi's milliseconds;
- times of the others divided by vkchi's (above 1: vkchi is faster);
- the fraction of the device's limit, the rate of a copy or of multiply-adds in the same rounds.

Rounds run each program once in turn; figures are medians. Libraries that are not installed are left
out. Means leave out `field_access`, which alone is hundreds of times faster than with Taichi. The
ratios are appended to the history, a line of JSON per run. With matplotlib they are
plotted over time, one line per program and column.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent
N = 1 << 22
# program -> (minimum bytes read and written, minimum f32 operations)
WORK = {
    "saxpy": (12 * N, 2 * N), "saxpy_ndarray": (12 * N, 2 * N), "reduce_sum": (4 * N, N), "histogram": (4 * N, 0),
    "jacobi": (8 << 20, 4 << 20), "transpose": (8 * 1536 * 1000, 0), "nbody": (16 * 8192, 13 * 8192**2),
    "matmul_shared": (12 * 512**2, 2 * 512**3), "matmul_atomic": (12 * 512**2, 2 * 512**3),
    "seed_depthwise_v0": (4 * 96 * 256 * 12, 2 * 4 * 96 * 256 * 256),
    "row_sum_atomic": (4 * 2048**2, 2048**2), "column_sum_atomic": (4 * 2048**2, 2048**2), "blur5": (8 << 20, 25 << 20),
}  # fmt: skip


# list -> scripts of programs
LISTS = {
    "given": ("programs.py",),
    "seen": ("everyday.py", "assorted.py", "fluids.py", "solids.py", "learning.py", "data.py"),
    "fresh": ("fresh.py", "fresh_more.py", "fresh_third.py"),
}
PEERS = ("numba", "warp", "torch")
LEFT_OUT = {"field_access"}  # of means
Command = list[str]


def columns(options) -> dict[str, list[Command]]:
    """Column -> commands that print its JSON, without program names."""
    rivals = {"vkchi": (sys.executable, "vkchi", "vulkan")}
    for title, python, target in (
        ("taichi", options.against, "taichi"),
        ("forge", options.forge, "taichi_forge"),
    ):
        if python:
            rivals |= {f"{title} {arch}": (python, target, arch) for arch in ("vulkan", "cpu")}
    scripts = [str(HERE / name) for name in LISTS[options.list]]
    found = {
        column: [[python, script, target, arch] for script in scripts]
        for column, (python, target, arch) in rivals.items()
    }
    if options.list == "given":
        peers = str(HERE / "peers.py")
        found |= {name: [[options.peers, peers, name]] for name in PEERS}
        found["limits"] = [[sys.executable, peers, "limits"]]
    return found


def run(command, names, clock):
    """The figures that a command prints. If it fails, an error is printed and the result is None."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "BENCH_CLOCK": clock}
    done = subprocess.run(
        [*command, *names], capture_output=True, text=True, env=environment, check=False
    )
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        status = f"ends with status {done.returncode}"
        print(*command, *names, status, done.stderr[-500:], file=sys.stderr)
        return None


def measure(columns, names, rounds, clock):
    """Column -> program -> median. If a script crashes, its programs run one by one."""
    runs = {column: [] for column in columns}
    programs = {}  # index of a script -> its programs
    for _ in range(rounds):
        for column, commands in columns.items():
            found = {}
            for k, command in enumerate(commands):
                part = run(command, [] if column == "limits" else names, clock)
                if part is None:
                    for name in names or programs.get(k, []):
                        found |= run(command, [name], clock) or {}
                    continue
                if column == "vkchi":
                    programs.setdefault(k, [name for name in part if is_program(name)])
                found |= part
            runs[column].append(found)
    return {column: medians(found) for column, found in runs.items()}


def is_program(key):
    """True if a key is the time of a program."""
    return "/" not in key and key not in ("import", "init")


def medians(found):
    keys = dict.fromkeys(key for one in found for key in one)
    numbers = {key: [one[key] for one in found if isinstance(one.get(key), float)] for key in keys}
    return {key: statistics.median(values) for key, values in numbers.items() if values}


def ratios_of(figures):
    """Program -> column -> time divided by vkchi's; for `limit`, the fraction of the limit."""
    ours, most = figures["vkchi"], figures.get("limits")
    table = {}
    for name, own in ours.items():
        row = {
            column: found[name] / own
            for column, found in figures.items()
            if column not in ("vkchi", "limits") and name in found
        }
        if name in WORK and most:
            bytes_, operations = WORK[name]
            row["limit"] = max(bytes_ / most["bytes"], operations / most["operations"]) / own
        table[name] = row
    return table


def show(figures, table):
    """Print the table, and geometric means of run times and first-call times."""
    others = list(dict.fromkeys(column for row in table.values() for column in row))
    print(f"{'program':26s}{'ms':>10s}" + "".join(f"{c:>15s}" for c in others))
    for name, row in table.items():
        cells = "".join(f"{row[c]:15.2f}" if c in row else f"{'':15s}" for c in others)
        print(f"{name:26s}{1e3 * figures['vkchi'][name]:10.4f}{cells}")
    for title, is_first in (("geometric mean", False), ("of first calls", True)):
        cells = ""
        for c in others:
            logs = [
                math.log(row[c])
                for name, row in table.items()
                if c in row and (name.startswith("first/") if is_first else is_program(name))
                and name.removeprefix("first/") not in LEFT_OUT
            ]  # fmt: skip
            cells += f"{math.exp(statistics.mean(logs)):15.2f}" if logs else f"{'':15s}"
        print(f"{title:36s}{cells}")
    if "limits" in figures:
        rates = (f"{figures['limits'][k] / 1e9:.1f}" for k in ("bytes", "operations"))
        print("copy {} GB/s, multiply and add {} billion operations a second".format(*rates))


def remember(path, figures, table, clock, programs="given"):
    """Append a line to the history, and return all lines of this list of programs."""
    line = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"), "clock": clock, "list": programs,
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip(),
        "seconds": figures["vkchi"], "limits": figures.get("limits", {}), "ratios": table,
    }  # fmt: skip
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    lines = map(json.loads, pathlib.Path(path).read_text("utf-8").splitlines())
    return [one for one in lines if one.get("list", "given") == programs]


def draw(path, history):
    """Plot the ratios over time: a panel per column, a line per program. No plot without
    matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [n for n in dict.fromkeys(k for h in history for k in h["ratios"]) if is_program(n)]
    panels = list(dict.fromkeys(c for h in history for n in names for c in h["ratios"].get(n, {})))
    figure, axes = pyplot.subplots(
        1, max(1, len(panels)), figsize=(6 * len(panels) + 1, 6), squeeze=False
    )
    for axis, column in zip(axes[0], panels, strict=False):
        for name in names:
            points = [
                (k, h["ratios"][name][column])
                for k, h in enumerate(history)
                if column in h["ratios"].get(name, {})
            ]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.axhline(1, color="black", linewidth=0.5)
        axis.set(
            title=f"{column} / vkchi" if column != "limit" else "part of the limit", yscale="log"
        )
        axis.set_xticks(
            range(len(history)), [f"{h['date'][:10]} {h['commit']}" for h in history], rotation=90
        )
        axis.legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(path)
    print(f"drawn: {path}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--against", help="a Python that has taichi")
    parser.add_argument("--forge", help="a Python that has taichi-forge")
    parser.add_argument(
        "--peers", default=sys.executable, help="a Python that has numba, warp or torch (this one)"
    )
    parser.add_argument("--list", choices=LISTS, default="given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--history", default=str(HERE / "results" / "history.jsonl"))
    parser.add_argument("--plot", default="benchmarks.png")
    options = parser.parse_args()
    figures = measure(columns(options), options.names, options.rounds, options.clock)
    if not figures["vkchi"]:
        sys.exit("no figures of vkchi")
    table = ratios_of(figures)
    show(figures, table)
    draw(options.plot, remember(options.history, figures, table, options.clock, options.list))


if __name__ == "__main__":
    main()
