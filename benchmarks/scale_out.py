#!/usr/bin/env python3
"""Weak scaling of a 2-D stencil from one to two processes, and a model of more.

    benchmarks/scale_out.py [--size 4096] [--steps 10] [--rounds 9]
    benchmarks/scale_out.py --model-only --rate 2e10 --latency 5e-6 --bandwidth 2e10 --jitter 2e-4

Each process has a block of `size` squared f32 cells, and one thread of a software driver. The
exchange of halos overlaps with the interior. Rounds alternate: one process; two ranks; two
independent processes, which shows how much of a loss is contention for cores and memory. Efficiency
is the time of one process over that of the slower of two.

Then: messages and bytes of a step, beside the least possible; host time of an exchange along each
axis, beside send and receive of the same bytes by torch.distributed.

The model, which is no measurement, gives the time of a step on N ranks:

    t(N) = max(t_interior, m * latency + B / bandwidth) + t_border + t_host + jitter * sqrt(2 ln N)

m and B are messages and bytes of a rank with the most neighbours. The last term is the expected
maximum of N normal distributions. Its inputs are the measured ones, or those given.
"""

import argparse
import json
import math
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import vkchi as ti  # noqa: E402

RANKS = (1, 2, 8, 64, 512, 4096)
PUBLISHED = (
    "Published for ImplicitGlobalGrid.jl: more than 0.96 on 2,197 GPUs of Piz Daint, measured, for "
    "a 3-D solver\n(Räss, Utkin, Duretz, Omlin, Podladchikov, Geosci. Model Dev. 15, 5757, 2022, "
    "doi:10.5194/gmd-15-5757-2022).\nAnother problem and machine: no comparison of the two programs."
)


# --- a worker ------------------------------------------------------------------------------------


class Counted:
    """A process group that counts what it sends."""

    def __init__(self, group):
        self.group, self.messages, self.bytes = group, 0, 0

    def send(self, tensors, peer, tag):
        self.messages, self.bytes = self.messages + 1, self.bytes + tensors[0].nbytes
        return self.group.send(tensors, peer, tag)

    def __getattr__(self, name):
        return getattr(self.group, name)


class Program:
    """A block per rank, divided along `axis`."""

    def __init__(self, size, axis=0):
        n = ti.distributed.size()
        ranks = tuple(n if k == axis else 1 for k in range(2))
        self.grid = ti.distributed.Grid(tuple(size * r for r in ranks), ranks=ranks)
        self.u, self.v = (self.grid.field(ti.f32) for _ in range(2))
        self.u.fill(1)
        interior, border = self.grid.interior, self.grid.border

        @ti.kernel
        def inside(u: ti.template(), v: ti.template()):
            for i, j in interior:
                v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])

        @ti.kernel
        def outside(u: ti.template(), v: ti.template()):
            for box in ti.static(border):
                for i, j in box:
                    v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])

        self.inside, self.outside = inside, outside

    def step(self):
        pending = self.grid.exchange(self.u, wait=False)
        self.inside(self.u, self.v)
        pending.wait()
        if self.grid.border:
            self.outside(self.u, self.v)
        self.u, self.v = self.v, self.u

    def steps(self, count):
        """Seconds of each step."""
        found = []
        for _ in range(count):
            begin = time.perf_counter()
            self.step()
            ti.sync()
            found.append(time.perf_counter() - begin)
        return found

    def parts(self, count):
        """Least seconds of the interior, the border, and their launches and the exchange alone."""
        found = {}
        acts = {
            "interior": lambda: self.inside(self.u, self.v),
            "border": lambda: self.grid.border and self.outside(self.u, self.v),
        }
        for name, act in acts.items():
            times = []
            for _ in range(count):
                begin = time.perf_counter()
                act()
                ti.sync()
                times.append(time.perf_counter() - begin)
            found[name] = min(times)
        return found


def exchanges(size, axis, rounds):
    """Microseconds of an exchange, and of send and receive of the same bytes: lists per round."""
    import torch

    from vkchi.distributed.group import current_group

    program, group = Program(size, axis), current_group()
    peer = 1 - group.rank
    out, into = (torch.zeros(4 * size, dtype=torch.uint8) for _ in range(2))

    def plain():
        works = [
            group.process_group.recv([into], peer, 3), group.process_group.send([out], peer, 3)
        ]  # fmt: skip
        for work in works:
            work.wait()

    found = {"plain": [], "exchange": [], "plain cpu": [], "exchange cpu": []}
    for _ in range(rounds):
        for name, act in (("plain", plain), ("exchange", lambda: program.grid.exchange(program.u))):
            begin, used = time.perf_counter(), time.thread_time()
            for _ in range(20):
                act()
            found[f"{name} cpu"].append((time.thread_time() - used) / 20 * 1e6)
            found[name].append((time.perf_counter() - begin) / 20 * 1e6)
    return found


def link(rounds):
    """Seconds of the shortest message, and bytes per second of a long one, between two ranks."""
    import torch

    from vkchi.distributed.group import current_group

    group, best = current_group(), {}
    for size in (8, 1 << 24):
        data = torch.zeros(size, dtype=torch.uint8)
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            for rank in (0, 1):  # there and back
                act = group.process_group.send if group.rank == rank else group.process_group.recv
                act([data], 1 - group.rank, 5).wait()
            times.append((time.perf_counter() - begin) / 2)
        best[size] = min(times)
    return best[8], (1 << 24) / (best[1 << 24] - best[8])


def work(size):
    """Answer commands, a line of JSON each, until the end of stdin."""
    from vkchi.distributed.group import current_group

    ti.distributed.init()
    program = Program(size)
    program.steps(3)

    def count():
        group = current_group()
        counted = group.process_group = Counted(group.process_group)
        program.step()
        group.process_group = counted.group
        return counted.messages, counted.bytes

    acts = {
        "steps": program.steps, "parts": program.parts, "count": count, "link": link,
        "exchanges": lambda axis, rounds: exchanges(size, axis, rounds),
    }  # fmt: skip
    print("ready", flush=True)
    for line in sys.stdin:
        name, *given = json.loads(line)
        print(json.dumps(acts[name](*given)), flush=True)


# --- the controller ------------------------------------------------------------------------------


class Workers:
    def __init__(self, count, size, *, is_group):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.processes = []
        for rank in range(count):
            place = {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port)} if is_group else {}  # fmt: skip
            kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
            command = [sys.executable, __file__, "--worker", "--size", str(size)]
            self.processes.append(subprocess.Popen(
                command, env={**kept, **place, "LP_NUM_THREADS": "1"}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            ))  # fmt: skip
        for process in self.processes:
            assert process.stdout.readline().strip() == "ready", "a worker failed to start"

    def run(self, *command, first=None):
        chosen = self.processes[:first]
        for process in chosen:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in chosen]

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def spread(values):
    """Median with the lower and upper quartile."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def neighbours(count, size):
    """Messages and bytes of a rank with the most neighbours, on `count` ranks."""
    from vkchi.distributed.decomposition import Decomposition, box_size

    rows = max(k for k in range(1, math.isqrt(count) + 1) if count % k == 0)
    ranks = (count // rows, rows)
    shape = tuple(size * r for r in ranks)
    layout = Decomposition(shape, 1, (False, False), ranks, tuple(range(count)))
    middle = ranks[0] // 2 * ranks[1] + ranks[1] // 2
    peers = layout.peers(middle)
    return len(peers), 4 * sum(box_size(b) for p in peers for b in layout.sent(middle, p))


def show_model(given, size):
    """Print the inputs and the model's times."""
    interior = size * size / given["rate"]
    print("\nModel, not measured. Inputs:")
    for name, unit in (("rate", "cells/s"), ("latency", "s"), ("bandwidth", "bytes/s"),
                       ("border", "s"), ("host", "s"), ("jitter", "s")):  # fmt: skip
        print(f"  {name:10} {given[name]:10.3g} {unit}")
    print(f"{'ranks':>7} {'messages':>9} {'bytes':>8} {'step, ms':>9}  efficiency (model)")
    for count in RANKS:
        m, size_bytes = neighbours(count, size)
        message = m * given["latency"] + size_bytes / given["bandwidth"]
        rest = given["border"] + given["host"] if m else 0.0
        rest += given["jitter"] * math.sqrt(2 * math.log(count))
        total = max(interior, message) + rest
        print(f"{count:7} {m:9} {size_bytes:8} {1e3 * total:9.3f}  {interior / total:.3f}")
    print(PUBLISHED)


def measure(size, steps, rounds):
    """Print the measurements, and return the inputs of the model."""
    print(f"{size} x {size} f32 cells per process, {steps} steps, {rounds} rounds, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    ranks, alone = (Workers(2, size, is_group=is_group) for is_group in (True, False))
    found = {"ranks": [], "independent": [], "ranks over independent": []}
    ones, jitter = [], []
    for _ in range(rounds):
        one = alone.run("steps", steps, first=1)[0]
        both, apart = (max(map(statistics.median, w.run("steps", steps))) for w in (ranks, alone))
        base = statistics.median(one)
        ones.append(base)
        jitter.append(statistics.pstdev(one))
        found["ranks"].append(base / both)
        found["independent"].append(base / apart)
        found["ranks over independent"].append(apart / both)
    print(f"one process: {1e3 * statistics.median(ones):.1f} ms per step; noise of one process: "
          f"{max(ones) / min(ones):.2f} between rounds")  # fmt: skip
    print("weak scaling, median with quartiles:")
    print(f"  two ranks, efficiency          {spread(found['ranks'])}, goal 0.9")
    print(f"  two independent processes      {spread(found['independent'])}")
    print(f"  two ranks over independent     {spread(found['ranks over independent'])}")
    messages, size_bytes = ranks.run("count")[0]
    print(f"per step and rank: {messages} messages of 1, {size_bytes} bytes of {4 * size}")
    host = 0.0
    for axis in (0, 1):
        one = ranks.run("exchanges", axis, 9 * rounds)[0]
        wall, used = (
            [a - b for a, b in zip(one[f"exchange{k}"], one[f"plain{k}"])] for k in ("", " cpu")
        )
        print(f"exchange along axis {axis} over send and receive of {4 * size} bytes: "
              f"least {min(one['exchange']) - min(one['plain']):.0f} us, "
              f"median {statistics.median(wall):.0f} us (goal on axis 0: 60 us); "
              f"CPU time of the thread: {statistics.median(used):.0f} us")  # fmt: skip
        host = host or max(1e-6, 1e-6 * statistics.median(used))
    parts, (latency, bandwidth) = ranks.run("parts", steps)[0], ranks.run("link", 20)[0]
    ranks.close()
    alone.close()
    return {
        "rate": size * size / parts["interior"], "border": parts["border"], "host": host,
        "latency": latency, "bandwidth": bandwidth, "jitter": statistics.median(jitter),
    }  # fmt: skip


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--size", type=int, default=4096)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--model-only", action="store_true", help="with the inputs given")
    for name, default in (("rate", 1e9), ("latency", 5e-5), ("bandwidth", 1e9), ("border", 1e-5),
                          ("host", 1e-4), ("jitter", 1e-4)):  # fmt: skip
        options.add_argument(f"--{name}", type=float, help=f"input of the model; {default:g}")
        options.set_defaults(**{f"default_{name}": default})
    given = options.parse_args()
    if given.worker:
        work(given.size)
        return
    names = ("rate", "latency", "bandwidth", "border", "host", "jitter")
    inputs = {name: getattr(given, f"default_{name}") for name in names}
    if not given.model_only:
        inputs = measure(given.size, given.steps, given.rounds)
    inputs |= {name: value for name in names if (value := getattr(given, name)) is not None}
    show_model(inputs, given.size)


if __name__ == "__main__":
    main()
