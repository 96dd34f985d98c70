"""Host time of a repeated launch of kernels that read Python values, beside another checkout.

    git worktree add /tmp/before COMMIT
    python benchmarks/changed_values.py --beside /tmp/before [--rounds 300]

Each checkout runs in its own process; the two alternate. A row is a kernel that reads some globals
and attributes of `self`. Figures are microseconds of the calling thread per launch, the minimum of
all rounds. `x` is the ratio.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
CASES = {
    "0": (0, 0),
    "5 globals, 3 attributes": (5, 3),
    "20 globals": (20, 0),
    "20 attributes": (0, 20),
}
LAUNCHES = 60  # per round; short rounds find idle moments


def kernel_text(name: str, globals_: int, attributes: int) -> str:
    """Source of a class with a kernel that reads the given numbers of globals and attributes."""
    terms = [f"G{k}" for k in range(globals_)] + [f"self.a{k}" for k in range(attributes)]
    return (
        "@ti.data_oriented\n"
        f"class {name}:\n"
        "    def __init__(self):\n"
        f"        for k in range({attributes}):\n"
        "            setattr(self, f'a{k}', 0.5 + k)\n"
        "    @ti.kernel\n"
        "    def run(self, x: ti.types.ndarray(), c: ti.f32):\n"
        "        for i in x:\n"
        f"            x[i] = c + {' + '.join(terms) or 0}\n"
    )


def measure(rounds: int) -> None:
    """Print lines of case and microseconds for each round."""
    import tempfile

    import vkchi as ti

    ti.init(offline_cache=False)
    names = [f"Case{k}" for k in range(len(CASES))]
    text = "import vkchi as ti\n" + "".join(f"G{k} = 0.25 + {k}\n" for k in range(20))
    text += "".join(kernel_text(n, *case) for n, case in zip(names, CASES.values(), strict=True))
    space: dict[str, Any] = {"__name__": "cases"}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        exec(compile(text, file.name, "exec"), space)
        x = ti.ndarray(ti.f32, 64)
        runs = [space[name]().run for name in names]
        for run in runs:
            for _ in range(5):
                run(x, 1.0)
    for _ in range(rounds):
        if sys.stdin.readline() == "":
            return
        for case, run in zip(CASES, runs, strict=True):
            ti.sync()
            began = time.thread_time()
            for _ in range(LAUNCHES):
                run(x, 1.0)
            spent = time.thread_time() - began
            print(f"{case}\t{spent / LAUNCHES * 1e6}", flush=True)
        ti.sync()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--measure", action="store_true")
    given = parser.parse_args()
    if given.measure:
        measure(given.rounds)
        return
    places = [given.beside, HERE] if given.beside else [HERE]
    script = [sys.executable, str(Path(__file__).resolve()), "--measure"]
    processes = [
        subprocess.Popen(
            [*script, "--rounds", str(given.rounds)], cwd=place, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(place),
        )
        for place in places
    ]  # fmt: skip
    best = [{case: float("inf") for case in CASES} for _ in places]
    for _ in range(given.rounds):
        for process, found in zip(processes, best, strict=True):
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            for _ in CASES:
                case, spent = process.stdout.readline().split("\t")
                found[case] = min(found[case], float(spent))
    for process in processes:
        process.kill()
        process.wait()
    for case in CASES:
        row = [f"{found[case]:6.2f}" for found in best]
        quotient = f"x {best[-1][case] / best[0][case]:.3f}" if len(best) > 1 else ""
        print(f"{case:26}", *row, quotient)


def environment(place: Path) -> dict[str, str]:
    """The environment with a checkout first on PYTHONPATH."""
    import os

    return {**os.environ, "PYTHONPATH": str(place)}


if __name__ == "__main__":
    main()
