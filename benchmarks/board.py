#!/usr/bin/env python3
"""Table of vkchi's times beside Taichi on Vulkan and CPU, numba, torch, and the device's limits.

    benchmarks/board.py [--against PYTHON_WITH_TAICHI] [--rounds 3] [--clock cpu] [--history FILE] [--plot FILE] [NAME...]

Columns per program:
- vkchi's milliseconds;
- times of the others divided by vkchi's (above 1: vkchi is faster);
- the fraction of the device's limit, the rate of a copy or of multiply-adds in the same rounds.

Rounds run each program once in turn; figures are medians. Libraries that are not installed are left
out. The ratios are appended to the history, a line of JSON per run. With matplotlib they are
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


def columns(against):
    """Column -> command that prints its JSON, without program names."""
    programs, peers = str(HERE / "programs.py"), str(HERE / "peers.py")
    found = {
        "vkchi": [sys.executable, programs, "vkchi", "vulkan"],
        "limits": [sys.executable, peers, "limits"],
        "numba": [sys.executable, peers, "numba"],
        "torch": [sys.executable, peers, "torch"],
    }
    if against:
        found["taichi vulkan"] = [against, programs, "taichi", "vulkan"]
        found["taichi cpu"] = [against, programs, "taichi", "cpu"]
    return found


def run(command, names, clock):
    """The figures that a command prints. If it fails, an error is printed and the result is {}."""
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
        return {}


def measure(commands, names, rounds, clock):
    """Column -> program -> median. If a column crashes, its programs run one by one."""
    runs = {column: [] for column in commands}
    for _ in range(rounds):
        for column, command in commands.items():
            found = run(command, [] if column == "limits" else names, clock)
            if not found and column != "limits":
                known = names or [name for name in runs["vkchi"][0] if is_program(name)]
                for name in known:
                    found |= run(command, [name], clock)
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
    ours, most = figures["vkchi"], figures["limits"]
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
    others = [c for c in ("taichi vulkan", "taichi cpu", "numba", "torch", "limit")
              if any(c in row for row in table.values())]  # fmt: skip
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
            ]  # fmt: skip
            cells += f"{math.exp(statistics.mean(logs)):15.2f}" if logs else f"{'':15s}"
        print(f"{title:36s}{cells}")
    if figures["limits"]:
        rates = (f"{figures['limits'][k] / 1e9:.1f}" for k in ("bytes", "operations"))
        print("copy {} GB/s, multiply and add {} billion operations a second".format(*rates))


def remember(path, figures, table, clock):
    """Append a line to the history, and return the whole history."""
    line = {
        "date": datetime.datetime.now().isoformat(timespec="seconds"), "clock": clock,
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip(),
        "seconds": figures["vkchi"], "limits": figures["limits"], "ratios": table,
    }  # fmt: skip
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return [json.loads(text) for text in pathlib.Path(path).read_text("utf-8").splitlines()]


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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--history", default=str(HERE / "results" / "history.jsonl"))
    parser.add_argument("--plot", default="benchmarks.png")
    options = parser.parse_args()
    figures = measure(columns(options.against), options.names, options.rounds, options.clock)
    if not figures["vkchi"]:
        sys.exit("no figures of vkchi")
    table = ratios_of(figures)
    show(figures, table)
    draw(options.plot, remember(options.history, figures, table, options.clock))


if __name__ == "__main__":
    main()
