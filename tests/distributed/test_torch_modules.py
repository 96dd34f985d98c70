"""Operators of `ti.torch_op` in modules that torch trains on several processes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.distributed.test_launchers import ROOT, output_of, torchrun

PROGRAM = Path(__file__).parent / "torch_modules.py"
NETWORK = ROOT / "examples" / "distributed" / "network.py"
pytest.importorskip("torch.distributed")
pytestmark = [
    pytest.mark.device, pytest.mark.one_driver,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes of Linux"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["in place", "debug"])
def test_gradients_and_steps_equal_those_of_one_process(mode: str, tmp_path: Path) -> None:
    """Under DistributedDataParallel, FSDP, and `fully_shard` (FSDP2), on the CPU."""
    said = output_of([*torchrun(), str(PROGRAM), str(NETWORK), mode], tmp_path)
    rows = re.findall(r"^(\w+) (by_\w+) (\d+) (\w+) (\S+)$", said, re.M)
    assert len(rows) == 2 * 2 * 3, said
    for module, _, count, is_equal, off in rows:
        assert (int(count), is_equal) == ({"Network": 10, "Cubes": 2}[module], "True"), off


@pytest.mark.parametrize("processes", [1, 2])
def test_the_network_learns(processes: int, tmp_path: Path) -> None:
    launcher = torchrun() if processes == 2 else [sys.executable]
    said = output_of([*launcher, str(NETWORK), "40"], tmp_path)
    ((count, first, last),) = re.findall(
        r"^(\d) processes, loss ([\d.]+), after 40 steps ([\d.]+)$", said, re.M
    )
    assert int(count) == processes and float(last) < float(first) / 3
