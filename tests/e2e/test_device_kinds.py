"""A device whose subgroups are narrow may be a CPU or a GPU; each is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

N = 300


def test_the_kind_is_the_drivers(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--like-gpu"):
        pytest.skip("the device is taken for a GPU")
    device = current_runtime().device
    assert device.caps.kind == device.info.kind
    assert device.caps.is_cpu == (device.info.kind == "cpu")


@pytest.mark.parametrize("kind", ["integrated", "cpu"])
def test_both_kinds_compute_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums, scattered sums, tiles, stencils and remainders, at the width that the device has."""
    device = current_runtime().device
    monkeypatch.setattr(device, "caps", device.caps._replace(kind=kind))
    rng = np.random.default_rng(3)
    plane = rng.integers(0, 50, (N, N)).astype(np.int32)
    x, y = ti.field(ti.i32, (N, N)), ti.field(ti.i32, (N, N))
    bins, total = ti.field(ti.i32, 64), ti.field(ti.i32, ())
    x.from_numpy(plane)

    @ti.kernel
    def add_up() -> ti.i32:
        s = 0
        for i, j in x:
            s += x[i, j]
        return s

    @ti.kernel
    def count():
        for i, j in x:
            bins[x[i, j]] += 1
            ti.atomic_max(total[None], x[i, j] * (i + 1))

    @ti.kernel
    def transpose():
        for i, j in x:
            y[i, j] = x[j, i]

    @ti.kernel
    def smooth(n: ti.i32):
        for i, j in x:
            y[i, j] = x[(i + 1) % n, j] + x[i, (j + n - 1) % n]

    @ti.kernel
    def rows():
        for i in range(N):
            s = 0
            for j in range(N):
                s += x[i, j] * x[i, N - 1 - j]
            y[i, 0] = s

    def contents(f: Any) -> Any:
        return f.to_numpy()

    assert add_up() == plane.sum()
    count()
    np.testing.assert_array_equal(contents(bins), np.bincount(plane.ravel(), minlength=64))
    assert total[None] == (plane * np.arange(1, N + 1)[:, None]).max()
    transpose()
    np.testing.assert_array_equal(contents(y), plane.T)
    smooth(N)
    want = np.roll(plane, -1, 0) + np.roll(plane, 1, 1)
    np.testing.assert_array_equal(contents(y), want)
    rows()
    np.testing.assert_array_equal(contents(y)[:, 0], (plane * plane[:, ::-1]).sum(1))
