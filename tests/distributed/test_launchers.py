"""Programs under torchrun: the examples, a launcher that is killed, a restart."""

from __future__ import annotations

import difflib
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
EXAMPLES = ROOT / "examples" / "distributed"
WAVE, ONE_DEVICE = EXAMPLES / "wave.py", EXAMPLES / "wave_on_one_device.py"
MPM = EXAMPLES / "mpm.py"
pytest.importorskip("torch.distributed")
pytestmark = [
    pytest.mark.device, pytest.mark.one_driver,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of Linux"),
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(processes: int = 2) -> list[str]:
    """The launcher of processes, by address: a machine may have no name `localhost`."""
    place = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    place += ["--nproc-per-node", str(processes)]
    return [sys.executable, "-m", "torch.distributed.run", *place]


def environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    cache = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(folder / "cache"), "VKCHI_VERIFY": "0"}
    threads = {"LP_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**kept, **cache, **threads, "PYTHONPATH": str(ROOT)}


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, env=environment(folder), text=True, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wave_has_the_same_bits_and_film_on_four_processes(tmp_path: Path) -> None:
    films = [tmp_path / "films" / f"{name}.gif" for name in ("device", "alone", "four")]
    programs = [[sys.executable, str(ONE_DEVICE)], [sys.executable, str(WAVE)]]
    programs += [[*torchrun(4), str(WAVE)]]
    said = [output_of([*program, str(film)], tmp_path) for program, film in zip(programs, films)]
    found = [re.findall(r"highest [-.\d]+, checksum \w+", text) for text in said]
    assert len(found[0]) == 1 and found == found[:1] * 3, "printed once"
    assert len({film.read_bytes() for film in films}) == 1
    image = pytest.importorskip("PIL.Image").open(films[0])
    assert (image.n_frames, image.size) == (50, (240, 240))


def test_the_page_shows_the_ten_lines_in_which_the_wave_differs() -> None:
    one, many = (
        path.read_text(encoding="utf-8").partition("def main")[2].splitlines()
        for path in (ONE_DEVICE, WAVE)
    )
    lines = list(difflib.unified_diff(one, many, n=0, lineterm=""))[2:]
    diff = [line for line in lines if not line.startswith("@@")]
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert "\n".join(["```diff", *diff, "```"]) in page
    assert sum(line.startswith("+") for line in diff) <= 10


def test_gradient_descent_is_the_same_on_two_processes(tmp_path: Path) -> None:
    command = [str(EXAMPLES / "heat_inverse.py"), "--rounds", "21"]
    alone = output_of([sys.executable, *command], tmp_path)
    both = output_of([*torchrun(), *command], tmp_path)
    one, two = ([float(x) for x in re.findall(r"loss (\S+)", said)] for said in (alone, both))
    assert "1 processes" in alone and "2 processes" in both and both.count("round   0") == 1
    assert one == pytest.approx(two, rel=1e-2)
    assert one[0] == 1 and one[-1] < 0.1


def test_a_fluid_is_the_same_on_two_processes(tmp_path: Path) -> None:
    alone = output_of([sys.executable, str(MPM), str(tmp_path / "mpm.png")], tmp_path)
    both = output_of([*torchrun(), str(MPM)], tmp_path)
    assert (tmp_path / "mpm.png").is_file()
    pattern = r"(\d) processes, 4096.00 particles, center ([.\d]+), ([.\d]+)"
    (one,), (two,) = re.findall(pattern, alone), re.findall(pattern, both)
    assert (one[0], two[0]) == ("1", "2")
    assert all(abs(float(a) - float(b)) < 1e-3 for a, b in zip(one[1:], two[1:]))
    counts = [int(n) for n in re.findall(r"has (\d+) particles", both)]
    assert sum(counts) == 4096 and min(counts) > 0


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
sys.stdout.write(f"from step {first} sum {grid.sum(u)}\\n")  # at once: ranks share the output
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
