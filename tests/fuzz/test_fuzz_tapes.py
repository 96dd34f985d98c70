"""Random tapes of kernels that overwrite elements, and writes from Python between them.

The gradient matches finite differences, and is equal with limited memory.

`VKCHI_FUZZ=n` runs n tapes in place of TAPES.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime
from vkchi.tape.snapshots import UNLIMITED

TAPES = int(os.environ.get("VKCHI_FUZZ", "100"))
N, TIMES = 4, 5
Act = Callable[[], Any]


class World:
    """Three fields of N numbers, `h` of TIMES rows of N numbers, their inputs, and kernels."""

    def __init__(self, t: Any) -> None:
        self.dtype = np.float64 if t is ti.f64 else np.float32
        self.numbers = [ti.field(t, N, needs_grad=True) for _ in range(3)]
        self.h = ti.field(t, (TIMES, N), needs_grad=True)
        self.loss = ti.field(t, (), needs_grad=True)
        self.order = ti.field(ti.i32, N)
        self.inputs = [ti.field(t, x.shape, needs_grad=True) for x in (*self.numbers, self.h)]
        self.make_row_kernels()
        self.make_kernels()

    def make_row_kernels(self) -> None:
        h, loss, a = self.h, self.loss, self.numbers[0]

        @ti.kernel
        def step(t: ti.i32, u: ti.i32):
            for i in range(N):
                h[t, i] = ti.sin(h[u, i] * a[i]) + h[t, i] * 0.1

        @ti.kernel
        def shift(t: ti.i32, first: ti.i32, last: ti.i32):
            for i in range(first, last):
                h[t, i] = h[t - 1, i] * h[t - 1, (i + 1) % N]

        @ti.kernel
        def sum_row(t: ti.i32):
            for i in range(N):
                loss[None] += h[t, i] * (i + 1)

        self.step, self.shift, self.sum_row = step, shift, sum_row

    def make_kernels(self) -> None:
        loss, order = self.loss, self.order

        @ti.kernel
        def multiply(p: ti.template(), q: ti.template()):
            for i in p:
                p[i] *= ti.cos(q[(i + 1) % N])

        @ti.kernel
        def scatter(p: ti.template(), q: ti.template(), by: float):
            for i in p:
                p[order[i]] += q[i] * by
            for i in p:
                order[i] = (order[i] + 1) % N

        @ti.kernel
        def iterate(p: ti.template(), first: ti.i32, last: ti.i32, rounds: ti.i32):
            for i in range(first, last):
                for _ in range(rounds):
                    p[i] = ti.sin(p[i]) * 1.2

        @ti.kernel
        def serial(p: ti.template(), i: ti.i32, j: ti.i32):
            p[i] = p[j] * p[i] + 0.1
            loss[None] *= 0.9
            loss[None] += p[i] * p[j]

        @ti.kernel
        def clear(p: ti.template(), first: ti.i32, last: ti.i32):
            for i in range(first, last):
                p[i] = 0.4

        @ti.kernel
        def add_up(p: ti.template()):
            for i in p:
                loss[None] += p[i] * p[i] * (i + 1)

        self.multiply, self.scatter, self.iterate = multiply, scatter, iterate
        self.serial, self.clear, self.add_up = serial, clear, add_up

        @ti.kernel
        def begin(p: ti.template(), q: ti.template()):
            for place in ti.grouped(p):
                p[place] = q[place]

        self.begin = begin

    def take_inputs(self) -> None:
        """Copy the inputs to the fields, so later writes from Python replace computed values."""
        for x, given in zip((*self.numbers, self.h), self.inputs, strict=True):
            self.begin(x, given)

    def start(self, values: list[Any]) -> None:
        """Set the inputs to `values`, and `order` and `loss` to their first contents."""
        for x, v in zip(self.inputs, values, strict=True):
            x.from_numpy(v.astype(self.dtype))
        self.order.from_numpy(np.array([2, 0, 3, 1], np.int32))
        self.loss.fill(0)


def draw_act(r: random.Random, w: World) -> Act:
    """A random call of a kernel, or write from Python, as a function without parameters."""
    p, q = r.sample(w.numbers, 2)
    i, j, t = r.randrange(N), r.randrange(N), r.randrange(1, TIMES)
    first, last = sorted((r.randrange(N + 1), r.randrange(N + 1)))
    acts: list[Act] = [
        lambda: w.step(t, t - 1),
        lambda: w.step(t, i),
        lambda: w.shift(t, first, last),
        lambda: w.sum_row(t),
        lambda: w.multiply(p, q),
        lambda: w.scatter(p, q, i * 0.3 + 0.1),
        lambda: w.iterate(p, first, last, j),
        lambda: w.serial(p, i, j),
        lambda: w.clear(p, first, last),
        lambda: w.add_up(p),
        lambda: p.copy_from(q),
        lambda: p.fill(0.3),
        lambda: w.order.fill(i),
        lambda: p.__setitem__(i, 0.7),
        lambda: w.h.__setitem__((t, i), 0.2),
        lambda: q.from_numpy(np.full(N, 0.6, w.dtype)),
    ]
    weights = [3, 2, 3, 2, 3, 3, 3, 3, 1, 2, 1, 1, 1, 1, 1, 1]
    return r.choices(acts, weights)[0]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A World in f64 where the device has it, else in f32."""
    ti.init(random_seed=7)
    caps = current_runtime().device.caps
    t = ti.f64 if caps.has_type("f64") and caps.can_store("f64") else ti.f32
    ti.init(random_seed=7, default_fp=t)
    yield World(t)
    ti.reset()  # others want f32


@pytest.mark.parametrize("seed", range(TAPES))
def test_random_tape_gradient_matches_differences(seed: int, world: World) -> None:
    r, numbers = random.Random(seed), np.random.default_rng(seed)
    acts: list[Act] = [world.take_inputs]
    acts += [draw_act(r, world) for _ in range(r.randrange(3, 14))]
    acts += [lambda: world.add_up(world.numbers[1]), lambda: world.sum_row(TIMES - 1)]
    values = [numbers.uniform(0.3, 1.2, x.shape) for x in world.inputs]
    found = gradients(world, values, acts, None)
    for got, want in zip(gradients(world, values, acts, 5000), found, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}: in limited memory")
    check_traces(r, world, values, acts, found)
    check_backward(world, values, acts, found)
    along = [numbers.normal(size=v.shape) for v in values]
    product = sum(float(np.sum(g * d)) for g, d in zip(found, along, strict=True))
    is_f64 = world.dtype is np.float64
    slope = difference(world, values, along, acts, 1e-6 if is_f64 else 1e-2)
    tolerance = 1e-5 if is_f64 else 5e-2
    assert product == pytest.approx(slope, rel=tolerance, abs=tolerance), f"seed {seed}"


def check_traces(
    r: random.Random, world: World, values: list[Any], acts: list[Act], found: list[Any]
) -> None:
    """Assert that tapes that repeat an earlier one have equal gradients.

    Tapes with another act somewhere have the gradients of a tape with a memory limit of UNLIMITED -
    1.
    """
    for _ in range(4):
        for got, want in zip(gradients(world, values, acts, None), found, strict=True):
            np.testing.assert_array_equal(got, want, err_msg="done again")
    for _ in range(2):
        k = r.randrange(1, len(acts))
        others = [*acts[:k], draw_act(r, world), *acts[k + r.randrange(2) :]]
        noted = gradients(world, values, others, UNLIMITED - 1)
        for _ in range(4):
            for got, want in zip(gradients(world, values, others, None), noted, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"another act at {k}")


def check_backward(world: World, values: list[Any], acts: list[Act], found: list[Any]) -> None:
    """Assert that a tape without loss has the same gradients after its arrays have changed."""
    for memory in (None, 5000):
        world.start(values)
        with ti.ad.Tape(memory=memory) as tape:
            for act in acts:
                act()
        ends = []
        for k in range(2):
            for x in (*world.numbers, world.h, *world.inputs, world.order):
                x.fill(k + 2)
            ends.append(world.numbers[0].to_numpy())
            ti.ad.clear_all_gradients()
            tape.backward({world.loss: 1.0})
            np.testing.assert_array_equal(world.numbers[0].to_numpy(), ends[k])
            for x, want in zip(world.inputs, found, strict=True):
                np.testing.assert_array_equal(x.grad.to_numpy(), want, err_msg="backward")


def gradients(world: World, values: list[Any], acts: list[Act], memory: int | None) -> list[Any]:
    """Gradients of the loss by all inputs, from a tape with the memory limit `memory`."""
    world.start(values)
    with ti.ad.Tape(world.loss, memory=memory):
        for act in acts:
            act()
    return [x.grad.to_numpy() for x in world.inputs]


def difference(
    world: World, values: list[Any], along: list[Any], acts: list[Act], step: float
) -> float:
    """The derivative of the loss along a direction, by central differences."""
    ends = []
    for sign in (1, -1):
        world.start([v + sign * step * d for v, d in zip(values, along, strict=True)])
        for act in acts:
            act()
        ends.append(float(world.loss[None]))
    return (ends[0] - ends[1]) / (2 * step)
