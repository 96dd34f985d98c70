"""Programs under torchrun: the example, a launcher that is killed, a restart."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAVE = ROOT / "examples" / "distributed" / "wave.py"
pytest.importorskip("torch.distributed")
pytestmark = [
    pytest.mark.device, pytest.mark.one_driver,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of Linux"),
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun() -> list[str]:
    """The launcher of two processes, by address: a machine may have no name `localhost`."""
    place = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [sys.executable, "-m", "torch.distributed.run", *place, "--nproc-per-node", "2"]


def environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    cache = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(folder / "cache"), "VKCHI_VERIFY": "0"}
    return {**kept, **cache, "PYTHONPATH": str(ROOT), "LP_NUM_THREADS": "1"}


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, env=environment(folder), text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_gives_the_same_bits_on_two_processes(tmp_path: Path) -> None:
    alone = output_of([sys.executable, str(WAVE), str(tmp_path / "wave.png")], tmp_path)
    both = output_of([*torchrun(), str(WAVE)], tmp_path)
    assert (tmp_path / "wave.png").is_file()
    pattern = r"(\d) processes, highest ([-.\d]+), checksum (\w+)"
    (one,), (two,) = re.findall(pattern, alone), re.findall(pattern, both)
    assert (one[0], two[0]) == ("1", "2") and one[1:] == two[1:]


RESTARTED = """
import os, sys, signal
import vkchi as ti
from vkchi.distributed import checkpoint
ti.distributed.init()
grid = ti.distributed.Grid((8, 8))
u = grid.field(ti.f32, name="u")

@ti.kernel
def add():
    for i, j in grid.owned:
        u[i, j] += 1

is_new = not os.path.exists(os.path.join(sys.argv[1], "latest"))
first = 0 if is_new else grid.load(sys.argv[1]) + 1
for step in range(first, 6):
    add()
    if step == 3 and is_new and ti.distributed.rank() == 1:
        checkpoint.BlockSavePlanner.resolve_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    grid.save(sys.argv[1], step)
print("from step", first, "sum", grid.sum(u), flush=True)
"""
FOREVER = """
import os, sys, time
import vkchi as ti
ti.distributed.init(timeout=60)
open(os.path.join(sys.argv[1], f"pid{os.getpid()}"), "w").close()
time.sleep(100)
"""


def test_a_restart_resumes_from_the_last_checkpoint(tmp_path: Path) -> None:
    """A rank is killed while it writes step 3."""
    program = tmp_path / "program.py"
    program.write_text(RESTARTED)
    command = [*torchrun(), "--max-restarts", "1", str(program), str(tmp_path / "kept")]
    assert output_of(command, tmp_path).count("from step 3 sum 384.0") == 2


def test_workers_end_with_their_launcher(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FOREVER)
    launcher = subprocess.Popen(
        [*torchrun(), str(program), str(tmp_path)], env=environment(tmp_path),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: len(list(tmp_path.glob("pid*"))) == 2, 90)
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    workers = [int(path.name[3:]) for path in tmp_path.glob("pid*")]
    wait_until(lambda: not any(Path(f"/proc/{pid}").is_dir() for pid in workers), 20)


def wait_until(holds, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)
