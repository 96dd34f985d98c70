#!/usr/bin/env python3
"""Times of the programs in docs/performance.md before and after each rule.

    benchmarks/rules.py [--rounds 7] [NUMBER...]

Each snippet under a heading with a number defines `before` and `after`. Calls of the two alternate;
the printed times are the minimum of the rounds, each with `ti.sync()`.
"""

import argparse
import pathlib
import re
import runpy
import tempfile
import time

import vkchi as ti

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "performance.md"
RULE = re.compile(r"^## (\d+)\. (.*?)\n.*?^```python\n(.*?)^```", re.S | re.M)


def seconds(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    ti.sync()
    return (time.perf_counter() - start) / repeats


def measure(code, rounds):
    """Least time of `before` and of `after`, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rule.py"
        path.write_text(code)
        found = runpy.run_path(str(path))
        calls = found["before"], found["after"]
        for call in calls:  # compile, also for repeated shapes
            seconds(call, 20)
        times = [], []
        for _ in range(rounds):
            for call, best in zip(calls, times):
                repeats = max(1, min(50, int(0.1 / seconds(call, 1))))
                best.append(seconds(call, repeats))
    return min(times[0]), min(times[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for number, title, code in RULE.findall(PAGE.read_text()):
        if options.numbers and number not in options.numbers:
            continue
        before, after = measure(code, options.rounds)
        print(f"{number:>2} {before * 1e3:8.3f} ms {after * 1e3:8.3f} ms {before / after:7.2f}  {title}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
