"""Modules that a process loads before its first result: a warm one no compiler, another one all of
it while the driver starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
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
    "analysis", "opt", "spirv", "autodiff", "races", "tape", "aot", "graph", "linalg",
    "algorithms", "gui", "ui", "tools", "operators", "reports.profiler", "reports.delivery",
    "compiler", "ir.ops", "ir.text", "ir.parse", "ir.builder", "ir.verify", "ir.interp",
    "frontend.lowering", "frontend.context", "frontend.calls.intrinsics",
)  # fmt: skip
# Modules for few kernels: cold processes of others do not load them.
RARE = (
    "frontend.ops.simt", "frontend.ops.warp_calls", "frontend.ops.draw",
    "frontend.ops.decompositions", "frontend.values.textures", "frontend.calls.call_stack",
    "lang.simt", "lang.linear_algebra.decompose",
    "lang.texture_sampling",
    "opt.loops.fusion", "opt.loops.legality", "opt.math.functions", "opt.math.f64_math",
    "opt.math.quotient", "opt.lowering.subgroups",
)  # fmt: skip


GRADIENTS = """
import json, sys
import vkchi as ti
ti.init(arch=ti.vulkan)
n = 8
x = ti.field(ti.f32, (4, n), needs_grad=True)
loss = ti.field(ti.f32, (), needs_grad=True)
a, b = (ti.field(ti.f32, n, needs_grad=True) for _ in range(2))
@ti.kernel
def step(t: ti.i32):
    for i in range(n):
        v = x[t, i]
        for _ in range(t + 2):
            v = ti.sin(v) * 1.5
        x[t + 1, i] = v
@ti.kernel
def total():
    for i in range(n):
        loss[None] += x[3, i] ** 2
@ti.kernel
def square():
    for i in a:
        b[i] += a[i] * a[i]
for i in range(n):
    x[0, i], a[i], b.grad[i] = 0.1 * i, i, 1.0
with ti.ad.Tape(loss):
    for t in range(3):
        step(t)
    total()
b.grad.fill(1.0)
square()
square.grad()
print([x.grad[0, i] for i in range(n)], [a.grad[i] for i in range(n)])
print(json.dumps({"end": sorted(sys.modules)}))
"""
# Modules that differentiate, and all that read a kernel's IR.
DIFFERENTIATION = (
    "frontend.lowering", "frontend.context", "opt", "spirv", "compiler",
    "analysis.memory.footprint",
    "analysis.memory.alias", "autodiff.primal", "autodiff.rules", "autodiff.reverse",
    "autodiff.forward",
    "autodiff.reaching", "ir.ops", "ir.text", "ir.parse", "ir.builder", "ir.verify",
    "races.meeting", "races.conflicts", "calls.questions", "calls.gradients", "calls.variant",
)  # fmt: skip


# Variables without which a process loads what it loads for users.
UNSET = {"VKCHI_CACHE", "VKCHI_DUMP_SPV", "VKCHI_VERIFY"}


def outcome_of(folder: Path, program: str) -> tuple[list[str], dict[str, list[str]]]:
    """The program's output, and the modules that are loaded after each of its stages."""
    path = folder / "program.py"
    path.write_text(program)
    kept = {k: v for k, v in os.environ.items() if k not in UNSET}
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**kept, "PYTHONPATH": str(ROOT), "VKCHI_CACHE_DIR": str(folder / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *result, stages = done.stdout.splitlines()
    return result, json.loads(stages)


def stages_of(folder: Path) -> dict[str, list[str]]:
    """The modules that are loaded after each stage of a program of one kernel."""
    result, stages = outcome_of(folder, PROGRAM)
    assert result[0].startswith("2.0 4.0 4.0 -0.75") and result[1].startswith("[ 4.")
    return stages


def of_compiler(modules: list[str], names: tuple[str, ...] = COMPILER) -> list[str]:
    """Those that nothing needs that compiles nothing."""
    parts = tuple(f"vkchi.{name}" for name in names)
    return [
        name for name in modules if name in parts or name.startswith(tuple(f"{p}." for p in parts))
    ]


def test_names_are_those_of_modules():
    """Else tests that such modules are not loaded would hold for any process."""
    names = (*COMPILER, *RARE, *DIFFERENTIATION, *PACKAGES, *LOADED)
    assert [name for name in names if find_spec(f"vkchi.{name}") is None] == []


@pytest.mark.device
def test_a_warm_process_loads_no_compiler(tmp_path):
    cold, warm = stages_of(tmp_path), stages_of(tmp_path)
    assert "vkchi.opt.pipeline" in cold["kernel"], "else this test tests nothing"
    assert "numpy" not in warm["kernel"], "half of what a short program takes"
    for stage, modules in warm.items():
        assert of_compiler(modules) == [], stage
    assert of_compiler(cold["import"]) == []
    assert of_compiler(cold["kernel"], RARE) == []
    heavy = {"vulkan._vulkan", "logging", "dataclasses", "hashlib", "torch"}
    assert not heavy.intersection(warm["kernel"]) - heavy.intersection(loaded_by_numpy())


@pytest.mark.device
def test_a_process_that_may_be_warm_loads_no_compiler_ahead(tmp_path):
    stages_of(tmp_path)
    _, stages = outcome_of(tmp_path, PROGRAM.replace("a * 2", "a + a"))
    assert of_compiler(stages["init"]) == [] and "vkchi.opt.pipeline" in stages["kernel"]


@pytest.mark.device
def test_compiler_loads_while_driver_starts(tmp_path):
    """The compiler too, where no kernel can be found in the cache: only modules that a plain loop
    needs."""
    for options, expected in (("", LOADED), ("", ()), ("offline_cache=False", LOADED)):
        program = AHEAD.replace("OPTIONS", options)
        ((said,), stages) = outcome_of(tmp_path, program)
        assert said == "2.0" and {"vkchi.kernel", "vkchi.fields.constructors"} <= set(
            stages["init"]
        )
        assert ("vkchi.cache.manifest" in stages["kernel"]) is (options == "")
        assert set(of_compiler(stages["init"])) >= {f"vkchi.{name}" for name in expected}
        if expected:
            ahead, in_the_end = (of_compiler(stages[k], PACKAGES) for k in ("init", "kernel"))
            assert ahead == in_the_end
            assert of_compiler(stages["kernel"], RARE) == []


PACKAGES = ("analysis", "opt", "spirv", "frontend")
LOADED = ("compiler", "frontend.lowering", "opt.pipeline", "spirv.dispatch")
AHEAD = """
import json, sys, time
from vkchi import platform
from vkchi.interrupts import imports
platform.count_processors = lambda: 2
import vkchi as ti
ti.init(OPTIONS)
while imports.BackgroundTask.begun():
    time.sleep(0.001)
stages = {"init": sorted(sys.modules)}
n = 1 << 16
x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)
@ti.kernel
def saxpy(a: ti.f32):
    for i in x:
        y[i] = a * x[i] + y[i]
x.fill(1.0)
saxpy(2.0)
print(y[5])
stages["kernel"] = sorted(sys.modules)
print(json.dumps(stages))
"""


def loaded_by_numpy() -> list[str]:
    program = "import sys, numpy; print(*sys.modules)"
    return subprocess.check_output([sys.executable, "-c", program], text=True).split()


@pytest.mark.device
def test_gradients_begin_warm(tmp_path):
    (expected, cold), (found, warm) = (outcome_of(tmp_path, GRADIENTS) for _ in range(2))
    assert "vkchi.autodiff.reverse" in cold["end"], "else this test tests nothing"
    assert of_compiler(warm["end"], DIFFERENTIATION) == []
    assert not {"numpy", "inspect", "shutil"} & set(warm["end"]) - loaded_by_site()
    assert found == expected
    # Other calls than those that were kept: some answers are there, and some are found.
    other = (
        GRADIENTS.replace("(4, n)", "(6, n)")
        .replace("range(3)", "range(5)")
        .replace("x[3,", "x[5,")
    )
    (anew, _), (again, _) = (outcome_of(tmp_path, other) for _ in range(2))
    assert anew == again != expected


@pytest.mark.device
def test_calls_of_other_numbers_find_some_answers(tmp_path):
    shorter = GRADIENTS.replace("for t in range(3)", "for t in range(1, 3)")
    first, _ = outcome_of(tmp_path, shorter)
    longer, _ = outcome_of(tmp_path, GRADIENTS)
    (tmp_path / "fresh").mkdir()
    assert longer == outcome_of(tmp_path / "fresh", GRADIENTS)[0] != first


@pytest.mark.device
def test_answers_that_cannot_be_read_are_found_anew(tmp_path, capsys):
    from vkchi.__main__ import main
    from vkchi.cache.store import CacheStore

    expected, _ = outcome_of(tmp_path, GRADIENTS)
    store = CacheStore(str(tmp_path / "cache"))
    headers = {e.key: e.header for e in store.entries()}
    keys = [key for key, header in headers.items() if header["kind"] == "answers"]
    assert sorted(headers[key]["name"] for key in keys) == ["square", "step", "total"]
    for verb in (["show", keys[0]], ["verify"]):
        assert main(["cache", "--folder", str(tmp_path / "cache"), *verb]) == 0
    said = capsys.readouterr().out
    assert '"differentiated",' in said and "0 damaged" in said
    assert main(["cache", "--folder", str(tmp_path / "cache"), "diff", *keys[:2]]) == 1
    for damage in (lambda body: b"", lambda body: body[:-9] + b"no answer", crafted):
        for key in keys:
            found = store.peek(key)
            assert found is not None
            store.put(key, found[0], damage(found[1]))
        assert outcome_of(tmp_path, GRADIENTS)[0] == expected


def crafted(body: bytes) -> bytes:
    """An entry of the right sum and form, in which each answer is that to another question."""
    from vkchi.cache.codec import encode
    from vkchi.cache.query_cache import table_in

    table = table_in(body)
    kernel = dict(zip(table.kernel, [*table.kernel.values()][1:] + [b""]))
    calls = dict.fromkeys(table.calls, encode("no answer", "str"))
    return encode(table._replace(kernel=kernel, calls=calls), "Table")


def loaded_by_site() -> set[str]:
    program = "import sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())
