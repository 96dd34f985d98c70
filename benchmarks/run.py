#!/usr/bin/env python3
"""Run the benchmark programs on vkchi, and on Taichi if a Python with taichi is given.

    benchmarks/run.py [--against PYTHON] [--arch vulkan] [--rounds 3] [NAME...]

Prints milliseconds per program. With --against it prints both columns and their ratio, and
geometric means (above 1: vkchi is faster). Each round runs both in turn.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def run_alone(arch: str, names: list[str]) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(HERE / "programs.py"), "vkchi", arch, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for name, value in found.items():
        print(
            f"{name:28s} {value * 1e3:12.4f} ms"
            if isinstance(value, float)
            else f"{name:28s} {value}"
        )
    if any(isinstance(value, str) for value in found.values()):
        sys.exit("some programs failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--against", help="a Python that has taichi")
    parser.add_argument("--arch", default="vulkan")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.against:
        run_alone(options.arch, options.names)
        return
    taichi = f"{options.against} taichi {options.arch}"
    ours = f"{sys.executable} vkchi {options.arch}"
    command = [
        sys.executable,
        str(HERE / "compare.py"),
        taichi,
        ours,
        *options.names,
        "--rounds",
        str(options.rounds),
    ]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
