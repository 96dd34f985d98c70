"""Loads of short inner loops: the same with and without `unroll_loads`, for every writer of the
loaded memory."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti

N, K = 40, 5


def powers(way: str) -> np.ndarray:
    """Each lane's own number of steps, each a polynomial with weights that all share, and some of
    its own; with `way` "written" the weights change from step to step."""
    ti.reset()
    ti.init(arch=ti.vulkan)
    w, own = ti.field(ti.f32, K), ti.field(ti.f32, (N, K))
    out = ti.field(ti.f32, N)
    rng = np.random.default_rng(1)
    w.from_numpy(rng.random(K, dtype=np.float32))
    own.from_numpy(rng.random((N, K), dtype=np.float32))

    @ti.kernel
    def step():
        for i in out:
            s, t = 0.5, 0
            while t < i % 7 and s < 1e6:
                for k in range(K):
                    s = s * w[k] + own[i, k]
                if ti.static(way == "written"):
                    own[i, t % K] = s
                t += 1
            out[i] = s

    step()
    return out.to_numpy()


def expected(way: str) -> np.ndarray:
    """The same in numpy."""
    rng = np.random.default_rng(1)
    w, own = rng.random(K, dtype=np.float32), rng.random((N, K), dtype=np.float32)
    found = np.zeros(N, np.float32)
    for i in range(N):
        s = np.float32(0.5)
        for t in range(i % 7):
            for k in range(K):
                s = np.float32(np.float32(s * w[k]) + own[i, k])
            if way == "written":
                own[i, t % K] = s
        found[i] = s
    return found


@pytest.mark.parametrize("way", ["read", "written"])
@pytest.mark.parametrize("passes", ["", "-unroll_loads"])
def test_steps_of_polynomials(way: str, passes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_PASSES", passes)
    np.testing.assert_allclose(powers(way), expected(way), rtol=1e-6)
