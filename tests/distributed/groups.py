"""Run checks in groups of processes: `python groups.py SECONDS FOLDER SIZE:NAME,NAME...`.

The process imports torch and vkchi once, and forks the ranks of one group after the other. Each
rank runs the functions of `*checks.py` with these names in order, and stores what failed. A group
that takes longer than SECONDS is killed. The result, JSON on the last line of stdout, has a
dictionary of failures by check and rank per group. The exit status is 1 if anything failed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import ChainMap
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def rank_environment(rank: int, size: int, port: int) -> dict[str, str]:
    if size == 1:
        return {}
    place = {"RANK": str(rank), "WORLD_SIZE": str(size)}
    return {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def run_rank(rank: int, size: int, port: int, folder: Path, names: list[str]) -> None:
    os.environ.update(rank_environment(rank, size, port))
    os.environ["LP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(HERE))
    modules = [importlib.import_module(path.stem) for path in sorted(HERE.glob("*checks.py"))]
    checks = ChainMap(*map(vars, modules))
    failures: dict[str, str] = {}
    for name in names:
        begun = time.monotonic()
        try:
            checks[name](folder)
            failures[name] = ""
        except BaseException:
            failures[name] = traceback.format_exc()
        seconds = time.monotonic() - begun
        if os.environ.get("SHOW_SECONDS") and rank == 0 and seconds > 0.5:
            print(f"  {size} {name} {seconds:.1f} s", file=sys.stderr)
        path = folder / f"{rank}.json"
        path.with_suffix(".tmp").write_text(json.dumps(failures))
        path.with_suffix(".tmp").replace(path)
    sys.stdout.flush()
    os._exit(0)


def run_group(
    size: int, seconds: float, folder: Path, names: list[str]
) -> dict[str, dict[str, str]]:
    folder.mkdir()
    port, ranks = free_port(), []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                run_rank(rank, size, port, folder, names)
            finally:
                os._exit(1)
        ranks.append(child)
    end, left = time.monotonic() + seconds, set(ranks)
    while left and time.monotonic() < end:
        for child in list(left):
            if os.waitpid(child, os.WNOHANG)[0]:
                left.discard(child)
        time.sleep(0.02)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for rank in range(size):
        path = folder / f"{rank}.json"
        said = json.loads(path.read_text()) if path.is_file() else {}
        for name in names:
            text = said.get(name, "did not run")
            if text:
                found[name][str(rank)] = text
    return found


def run_groups(
    groups: list[tuple[int, list[str]]], folder: Path, seconds: float = 60.0
) -> list[dict[str, dict[str, str]]]:
    """Failures by check and rank, per group (size, names of checks)."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    cache = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(folder / "cache"), "VKCHI_VERIFY": "0"}
    command = [sys.executable, __file__, str(seconds), str(folder)]
    command += [f"{size}:{','.join(names)}" for size, names in groups]
    done = subprocess.run(
        command, env={**kept, **cache, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=None if "SHOW_SECONDS" in os.environ else subprocess.DEVNULL,
        timeout=seconds * len(groups) + 60, check=False,
    )  # fmt: skip
    found: list[dict[str, dict[str, str]]] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


if __name__ == "__main__":
    import torch.distributed.checkpoint  # noqa: F401

    import vkchi  # noqa: F401

    outcome = []
    for k, word in enumerate(sys.argv[3:]):
        start = time.monotonic()
        size, _, names = word.partition(":")
        place = Path(sys.argv[2]) / str(k)
        outcome.append(run_group(int(size), float(sys.argv[1]), place, names.split(",")))
        print(f"{word[:40]}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    print(json.dumps(outcome))
    sys.exit(any(texts for group in outcome for texts in group.values()))
