"""What a process loads before its first result: a warm one no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
stages = {}
def note(name):
    stages[name] = sorted(sys.modules)
import vkchi as ti
note("import")
ti.init(arch=ti.vulkan)
note("init")
x, y = ti.field(ti.f32, 8), ti.Vector.field(2, ti.f32, 8)
@ti.func
def twice(a):
    return a * 2
@ti.kernel
def run(a: ti.f32) -> ti.f32:
    for i in x:
        x[i] += twice(a)
        y[i] = [x[i], ti.sin(x[i])]
    return a
y.fill(1.0)
y[2][1] = 5
print(run(2.0), x[3], y[3][0], y[2][1])
note("kernel")
print(y[3])
print(json.dumps(stages))
"""
COMPILER = (
    "analysis", "passes", "spirv", "autodiff", "races", "tape", "aot", "graph", "linalg",
    "algorithms", "gui", "tools", "operators", "reports.profiler", "reports.delivery", "compiler",
    "ir.ops", "ir.text", "ir.parse", "ir.builder", "ir.verify", "ir.interp", "frontend.lower",
    "frontend.context", "frontend.intrinsics",
)  # fmt: skip


def stages_of(folder: Path) -> dict[str, list[str]]:
    """The modules that are loaded after each stage of the program."""
    path = folder / "program.py"
    path.write_text(PROGRAM)
    kept = {k: v for k, v in os.environ.items() if k not in ("VKCHI_CACHE", "VKCHI_DUMP_SPV")}
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**kept, "PYTHONPATH": str(ROOT), "VKCHI_CACHE_DIR": str(folder / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *result, stages = done.stdout.splitlines()
    assert result[0].startswith("2.0 4.0 4.0 -0.75") and result[1].startswith("[ 4.")
    return json.loads(stages)


def of_compiler(modules: list[str]) -> list[str]:
    """Those that nothing needs that compiles nothing."""
    parts = tuple(f"vkchi.{name}" for name in COMPILER)
    return [
        name for name in modules if name in parts or name.startswith(tuple(f"{p}." for p in parts))
    ]


@pytest.mark.device
def test_a_warm_process_loads_no_compiler(tmp_path):
    cold, warm = stages_of(tmp_path), stages_of(tmp_path)
    assert "vkchi.passes.pipeline" in cold["kernel"], "else this test tests nothing"
    assert "numpy" not in warm["kernel"], "half of what a short program takes"
    for stage, modules in warm.items():
        assert of_compiler(modules) == [], stage
    for stage in ("import", "init"):
        assert of_compiler(cold[stage]) == []
    heavy = {"vulkan._vulkan", "logging", "dataclasses", "hashlib", "torch"}
    assert not heavy.intersection(warm["kernel"]) - heavy.intersection(loaded_by_numpy())


def loaded_by_numpy() -> list[str]:
    program = "import sys, numpy; print(*sys.modules)"
    return subprocess.check_output([sys.executable, "-c", program], text=True).split()
