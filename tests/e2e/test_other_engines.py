"""Kernels in workers of Dask. `scripts/ray-check` runs those of Ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti

pytest.importorskip("cloudpickle")
da = pytest.importorskip("dask.array")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


@ti.kernel
def smooth(u: ti.types.ndarray(ndim=2), v: ti.types.ndarray(ndim=2)):
    for i, j in ti.ndrange((1, u.shape[0] - 1), (1, u.shape[1] - 1)):
        v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


def step(block: Any) -> Any:
    made = np.zeros_like(block)
    smooth(block, made)
    return made


def by_numpy(u: Any, pad: str) -> Any:
    p = np.pad(u, 1, mode=pad)
    around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    return np.float32(0.25) * around


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("boundary, pad", [(0.0, "constant"), ("periodic", "wrap")])
def test_map_overlap_gives_the_bits_of_numpy(scheduler: str, boundary: Any, pad: str) -> None:
    u = np.random.default_rng(0).random((67, 41), dtype=np.float32)
    for chunks in ((67, 41), (16, 10), (5, 41), (33, 1)):
        blocks = da.from_array(u, chunks=chunks)
        made = blocks.map_overlap(step, depth=1, boundary=boundary, dtype=u.dtype)
        made = made.map_overlap(step, depth=1, boundary=boundary, dtype=u.dtype)
        found = made.compute(scheduler=scheduler, num_workers=4)
        np.testing.assert_array_equal(found, by_numpy(by_numpy(u, pad), pad))


CHECK = """
    p = np.pad(whole, 1)
    around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    for scheduler in ("threads", "processes"):
        found = v.compute(scheduler=scheduler, num_workers=2)
        print(scheduler, np.array_equal(found, np.float32(0.25) * around))
"""


def test_the_snippet_of_the_page(tmp_path: Path) -> None:
    """A program: its kernel is pickled by value, and workers open devices of their own."""
    (code,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "dask" in text)
    (tmp_path / "snippet.py").write_text(code + CHECK, encoding="utf-8")
    cache = {"VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path / "cache"), "VKCHI_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, **cache, "PYTHONPATH": str(ROOT), "VKCHI_DUMP_SPV": ""}, timeout=200,
    )  # fmt: skip
    assert done.stdout.split() == ["threads", "True", "processes", "True"], done.stderr
