"""Code of the first tier (`opt/tiers`): its omissions, and the switch to the next one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.launch import specialization
from vkchi.launch.executable import Executable
from vkchi.runtime import current_runtime
from vkchi.target import tuning

pytestmark = pytest.mark.device
N, M = 40, 48
A = ti.types.ndarray(ti.f32, 2)


@pytest.fixture(autouse=True)
def third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges of all loops are worth it, from the third launch on, where loops are split at all."""
    monkeypatch.delenv("VKCHI_SHAPES", raising=False)
    monkeypatch.setattr(tuning, "LAUNCHES", 1 << 40)
    monkeypatch.setattr(tuning, "RUN_ALONE", 0.0)
    monkeypatch.setattr(specialization.ShapeSpecializer, "_launches", lambda self, *launch: 3)
    ti.init(arch=ti.vulkan)
    if not current_runtime().device.caps.is_cpu:
        pytest.skip("graphics cards have no edges apart")


def executable(kernel: Any, *args: Any) -> Executable:
    found: Executable = kernel.inspect(lambda plan, _: plan, *args)
    return found


def made(kernel: Any, *args: Any) -> list[int]:
    """Number of dispatches in the code that came after the first tier."""
    found = executable(kernel, *args).shapes
    return [] if found is None else [len(met.form.steps) for met in found.made.values()]


def floats(*shape: int) -> Any:
    found = ti.field(ti.f32, shape)
    found.from_numpy(np.random.default_rng(sum(shape)).random(shape, np.float32))
    return found


def smoothing(x: Any, y: Any) -> Any:
    n, m = x.shape

    @ti.kernel
    def step(a: ti.f32):
        for i, j in x:
            up = x[ti.max(i - 1, 0), j] + x[ti.min(i + 1, n - 1), j]
            y[i, j] = a * (up + x[i, (j + 1) % m]) / 3 + ti.sqrt(x[i, j])

    return step


def test_the_next_tier_gives_the_same_bits():
    x, y = floats(N, M), ti.field(ti.f32, (N, M))
    step = smoothing(x, y)
    dispatches, results = [], []
    for _ in range(5):
        step(0.3)
        dispatches.append(made(step, 0.3))
        results.append(y.to_numpy())
    assert len(executable(step, 0.3).steps) == 1
    assert dispatches == [[], [], [2], [2], [2]]
    assert all(np.array_equal(results[0], one) for one in results)
    a = x.to_numpy()
    up = np.concatenate([a[:1], a[:-1]]) + np.concatenate([a[1:], a[-1:]])
    want = np.float32(0.3) * (up + np.roll(a, -1, 1)) / 3 + np.sqrt(a)
    np.testing.assert_allclose(results[0], want, rtol=1e-6)


def test_recordings_begin_in_first_tier():
    x, y = floats(N, M), ti.field(ti.f32, (N, M))
    step = smoothing(x, y)
    with ti.record() as recording:
        step(0.5)
    assert made(step, 0.5) == [2]
    recording.run()
    first = y.to_numpy()
    y.fill(0)
    step(0.5)
    assert np.array_equal(first, y.to_numpy())


def test_floats_that_could_become_constants_are_not_left():
    """The compiler's sine is not the device's."""
    x, y = floats(N, M), ti.field(ti.f32, (N, M))

    @ti.kernel
    def step():
        for i, j in x:
            s = 0.25
            if i < 1:
                s = x[i, j]
            y[i, j] = ti.sin(s)

    step()
    assert len(executable(step).steps) == 2
    assert made(step) == []


def test_special_numbers_are_the_same_in_both_tiers():
    """A constant known in only one variant of a loop changes no sign, and no integer."""
    x = ti.field(ti.f32, (N, M))
    special = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)
    x.from_numpy(np.resize(special, (N, M)))
    y, z = ti.field(ti.f32, (N, M)), ti.field(ti.i32, (N, M))

    @ti.kernel
    def add():
        for i, j in x:
            y[i, j] = 1.0 / (x[ti.max(i - 1, 0), j] + ti.select(i < 1, 2.0, 0.0))

    @ti.kernel
    def turn():
        for i, j in x:
            y[i, j] = ti.atan2(x[ti.max(i - 1, 0), j] + ti.select(i < 1, 2.0, 0.0), -1.0)

    @ti.kernel
    def larger():
        for i, j in x:
            y[i, j] = ti.max(x[ti.max(i - 1, 0), j], x[(i - 1 + N) % N, j]) - x[i, j]

    @ti.kernel
    def count():
        for i, j in x:
            z[i, j] = ti.cast(ti.select(i < 1, x[ti.max(i - 1, 0), j], 3e9), ti.i32)

    @ti.kernel
    def compare():
        for i, j in x:
            z[i, j] = ti.select(i < 1, x[ti.max(i - 1, 0), j], 1e-40) > 0.0

    for kernel, result, later in (
        (add, y, []), (turn, y, []), (larger, y, [2]), (count, z, []), (compare, z, []),
    ):  # fmt: skip
        results = []
        for _ in range(4):
            kernel()
            results.append(result.to_numpy())
        assert made(kernel) == later
        signs = [np.signbit(one[~np.isnan(one)]) for one in results]
        for k in range(1, 4):
            np.testing.assert_array_equal(results[k], results[0])
            np.testing.assert_array_equal(signs[k], signs[0])


def test_fast_math_and_draws_leave_nothing():
    x, y = floats(N, M), ti.field(ti.f32, (N, M))

    @ti.kernel
    def draw():
        for i, j in x:
            y[i, j] = x[ti.max(i - 1, 0), j]
        for i in range(4):
            y[i, 0] = ti.random()

    draw()
    assert len(executable(draw).steps) == 3
    ti.init(arch=ti.vulkan, fast_math=True)
    x, y = floats(N, M), ti.field(ti.f32, (N, M))
    step = smoothing(x, y)
    step(0.3)
    assert len(executable(step, 0.3).steps) == 2


def test_extents_and_the_next_tier_come_together():
    x, y = floats(N, M), ti.field(ti.f32, (N, M))

    @ti.kernel
    def step(shift: A):
        for i, j in x:
            y[i, j] = x[ti.max(i - 1, 0), j] + shift[i % shift.shape[0], j % shift.shape[1]]

    for extent in range(2, 2 + tuning.MOST_SHAPES + 2):
        shift = ti.ndarray(ti.f32, (extent, 3))
        shift.from_numpy(np.random.default_rng(extent).random((extent, 3), np.float32))
        results = []
        for _ in range(4):
            step(shift)
            results.append(y.to_numpy())
        assert all(np.array_equal(results[0], one) for one in results)
    assert made(step, shift) == [2] * tuning.MOST_SHAPES
    found = executable(step, shift)
    last = found.form_for(found.bind_arguments((shift,)))
    assert len(last.steps) == 2  # beyond these: for any extents


PROGRAM = """
import sys
import numpy as np
import vkchi as ti
from vkchi.target import tuning
tuning.LAUNCHES, tuning.RUN_ALONE = 1 << 40, 0.0
ti.init(arch=ti.vulkan)
x, y = ti.field(ti.f32, (40, 48)), ti.field(ti.f32, (40, 48))

@ti.kernel
def step():
    for i, j in x:
        y[i, j] = x[ti.max(i - 1, 0), j]

step()
forms = step.inspect(lambda plan, _: plan.shapes.made.values())
print([len(met.form.steps) for met in forms], "vkchi.compiler" in sys.modules)
"""


def test_the_next_process_begins_with_it(cache_environment: Any, tmp_path: Any) -> None:
    path, cache = tmp_path / "program.py", tmp_path / "cache"
    path.write_text(PROGRAM)

    def run(mode: str) -> str:
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, check=False,
            env={**cache_environment(cache), "VKCHI_SHAPES": mode},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    assert run("1") == "[] True"
    assert run("first") == "[2] True"
    assert run("1") == "[2] False"
