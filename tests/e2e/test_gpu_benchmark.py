"""`benchmarks/gpu.py` runs to its end on any device, and lists the parts that it could not run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vkchi.runtime import current_runtime

pytestmark = pytest.mark.device
ROOT = Path(__file__).parents[2]


def test_gpu_benchmark_completes():
    device = current_runtime().device.info.name
    command = [sys.executable, ROOT / "benchmarks/gpu.py", "--device", device, "--quick",
               "--megabytes", "1", "--shape", "2,4,64"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=250)
    assert done.returncode == 0, done.stderr
    said = [line.strip() for line in done.stdout.splitlines()]
    sections = ("device:", "memory shared with CUDA", "copy of 1 MB", "saxpy", "sum", "a launch")
    operators = ("padding", *(f"depthwise v{k}" for k in range(4)))
    for start in (*sections, *operators):
        assert any(line.startswith(start) for line in said), start
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        assert sum(line.endswith("no CUDA device") for line in said) == 2  # sharing, depthwise
