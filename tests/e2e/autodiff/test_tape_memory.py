"""Tapes in limited memory: the same gradients, bit for bit, and the arrays as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti

N, STEPS = 8, 25


class Planets:
    """Bodies that attract each other, moved in place: every step overwrites what gradients need."""

    def __init__(self) -> None:
        self.x = ti.Vector.field(2, ti.f32, N, needs_grad=True)
        self.v = ti.Vector.field(2, ti.f32, N, needs_grad=True)
        self.loss = ti.field(ti.f32, (), needs_grad=True)
        self.first = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
        x, v, loss = self.x, self.v, self.loss

        @ti.kernel
        def push(k: ti.f32):
            for i in range(N):
                f = ti.Vector([0.0, 0.0])
                for j in range(N):
                    if i != j:
                        d = x[i] - x[j]
                        f += d / (d.norm_sqr() + 0.5)
                v[i] += k * f

        @ti.kernel
        def move():
            for i in x:
                x[i] += 0.1 * v[i]

        @ti.kernel
        def measure():
            for i in x:
                loss[None] += x[i].norm_sqr()

        self.push, self.move, self.measure = push, move, measure

    def run(self) -> None:
        for t in range(STEPS):
            self.push(0.01 * t)
            self.move()
            if t == 10:
                self.x[3] = [1.0, 2.0]
        self.measure()

    def gradient(self, memory: Any) -> tuple[Any, ...]:
        self.x.from_numpy(self.first)
        self.v.fill(0)
        with ti.ad.Tape(self.loss, memory=memory) as tape:
            self.run()
        arrays = [a.to_numpy() for a in (self.x.grad, self.v.grad, self.x, self.v)]
        return (*arrays, tape.report)


STATE = 2 * N * 2 * 4 + 4  # bytes: x, v and the loss


@pytest.mark.parametrize("states", [2, 3, 4, 6])
def test_checkpoints_change_nothing(states: int) -> None:
    planets = Planets()
    *expected, report = planets.gradient(None)
    assert report.repeated == 0
    *found, report = planets.gradient(states * STATE)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert report.states <= states
    assert report.saved_bytes <= states * STATE
    assert report.repeated > 0
    assert f"{report.repeated} calls done again" in str(report)


def test_more_memory_repeats_less() -> None:
    planets = Planets()
    repeated = [planets.gradient(k * STATE)[-1].repeated for k in (2, 3, 4, 6)]
    assert repeated == sorted(repeated, reverse=True)
    assert repeated[0] == 53 * 52 // 2  # 51 calls and what Python writes, from the start every time


def test_enough_memory_repeats_nothing() -> None:
    assert Planets().gradient("1MiB")[-1].repeated == 0


def test_too_little_memory() -> None:
    with pytest.raises(ti.TaichiRuntimeError, match="must hold two states of 132 bytes"):
        Planets().gradient(200)


@pytest.mark.parametrize("memory", ["lots", "12 parsecs", 0, -5, "1.5.2MiB", True])
def test_wrong_amounts(memory: Any) -> None:
    with pytest.raises(ti.TaichiRuntimeError, match="memory is a number of bytes"):
        ti.ad.Tape(ti.field(ti.f32, (), needs_grad=True), memory=memory)


def test_gradients_of_ones_own_need_all_memory() -> None:
    planets = Planets()

    @ti.ad.grad_replaced
    def both():
        planets.push(0.1)

    @ti.ad.grad_for(both)
    def both_grad():
        pass

    with (
        pytest.raises(ti.TaichiRuntimeError, match="both.. has a gradient of its own"),
        ti.ad.Tape(planets.loss, memory=2 * STATE),
    ):
        both()
        planets.run()


def test_only_what_is_overwritten_is_saved() -> None:
    """Time-indexed arrays overwrite nothing that was read."""
    x = ti.field(ti.f32, (20, 64), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def step(t: ti.i32):
        for i in range(64):
            x[t, i] = ti.sin(x[t - 1, i]) + x[t - 1, (i + 1) % 64] ** 2

    @ti.kernel
    def measure():
        for i in range(64):
            loss[None] += x[19, i]

    with ti.ad.Tape(loss) as tape:
        for t in range(1, 20):
            step(t)
        measure()
    assert tape.report is not None
    assert tape.report.saved_bytes == 0
