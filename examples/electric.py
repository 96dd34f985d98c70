"""A charge is led along a path by electrodes, whose charges a small neural network sets.

In step t the network reads the position that step t overwrites: the charge's position and velocity
are stored once, not per step. The tape saves the values that the gradient needs. `--check` compares
that gradient with finite differences in f64. With `import taichi as ti` it does the same for
Taichi. Source: DiffTaichi (Hu et al., ICLR 2020), example "electric".

    python examples/electric.py [--rounds N]
    python examples/electric.py --check
"""

import sys

import numpy as np

import vkchi as ti

ELECTRODES, HIDDEN, INPUTS = 8, 24, 6
DT, DRAG, FORCE, SOFTENING = 0.03, 1.5, 0.09, 0.004


class Electric:
    """A charge at x with velocity v; the electrodes' charges by time step."""

    def __init__(self, steps: int = 100, dtype=ti.f32) -> None:
        self.steps, self.dtype, self.t = steps, dtype, 0
        grad = {"needs_grad": True}
        self.x, self.v, self.x0 = (ti.Vector.field(2, dtype, (), **grad) for _ in range(3))
        self.charge = ti.field(dtype, (steps, ELECTRODES), **grad)
        shapes = ((HIDDEN, INPUTS), HIDDEN, (ELECTRODES, HIDDEN))
        self.weights = [ti.field(dtype, shape, **grad) for shape in shapes]
        self.goal = ti.Vector.field(2, dtype, steps)
        self.electrodes = ti.Vector.field(2, dtype, ELECTRODES)
        self.loss = ti.field(dtype, (), **grad)
        random = np.random.default_rng(3)
        for w in self.weights[::2]:
            w.from_numpy(random.normal(size=w.shape) / np.sqrt(w.shape[1]))
        angle = 2 * np.pi * np.arange(ELECTRODES) / ELECTRODES
        self.electrodes.from_numpy(0.5 + 0.45 * np.stack([np.cos(angle), np.sin(angle)], -1))
        way = np.pi * np.arange(steps) / steps
        self.goal.from_numpy(
            np.stack([0.5 + 0.2 * np.sin(2 * way), 0.5 + 0.2 * np.cos(2 * way)], -1)
        )
        self.x0[None] = [0.5, 0.6]
        self.descent = None
        self.make_kernels()

    def make_kernels(self) -> None:
        x, v, x0, charge = self.x, self.v, self.x0, self.charge
        goal, electrodes, loss, steps = self.goal, self.electrodes, self.loss, self.steps
        w1, b1, w2 = self.weights

        @ti.kernel
        def start():
            x[None] = x0[None]
            v[None] = [0.0, 0.0]

        @ti.kernel
        def clear():
            for t, k in charge:
                charge[t, k] = 0.0

        @ti.kernel
        def think(t: ti.i32):
            for h in range(HIDDEN):
                off = goal[t] - x[None]
                s = b1[h]
                for d in ti.static(range(2)):
                    s += w1[h, d] * (x[None][d] - 0.5) * 4 + w1[h, 2 + d] * v[None][d]
                    s += w1[h, 4 + d] * off[d] * 8
                for k in ti.static(range(ELECTRODES)):
                    charge[t, k] += w2[k, h] * ti.tanh(s)

        @ti.kernel
        def move(t: ti.i32):
            push = x[None] * 0
            for k in ti.static(range(ELECTRODES)):
                d = x[None] - electrodes[k]
                push += FORCE * ti.tanh(charge[t, k]) * d / (d.dot(d) + SOFTENING) ** 1.5
            v[None] = v[None] * (1 - DRAG * DT) + DT * push
            x[None] += DT * v[None]
            off = x[None] - goal[t]
            loss[None] += off.dot(off) / steps

        self.start, self.clear, self.think, self.move = start, clear, think, move

    def run(self) -> None:
        self.start()
        self.clear()
        for t in range(self.steps):
            self.think(t)
            self.move(t)

    def learn(self) -> float:
        import learning  # local import: Taichi runs this file with `--check` only

        with ti.ad.Tape(self.loss):
            self.run()
        if self.descent is None:
            self.descent = learning.Adam(*self.weights, rate=0.03)
        self.descent.step()
        return self.loss[None]

    def step(self) -> None:
        if self.t == 0:
            self.start()
            self.clear()
        self.think(self.t)
        self.move(self.t)
        self.t = (self.t + 1) % self.steps

    def draw(self, gui) -> None:
        t = (self.t - 1) % self.steps
        gui.circles(self.goal.to_numpy().astype(np.float32), radius=1, color=0x4A6078)
        charge = np.tanh(self.charge.to_numpy()[t]).astype(np.float32)
        red, blue = np.clip(charge, 0, 1), np.clip(-charge, 0, 1)
        colour = ti.rgb_to_hex((0.25 + 0.75 * red, np.full_like(red, 0.25), 0.25 + 0.75 * blue))
        gui.circles(self.electrodes.to_numpy().astype(np.float32), radius=14, color=colour)
        gui.circle(self.goal.to_numpy()[t].astype(np.float32), 0x9FE0A8, 9)
        gui.circle(self.x.to_numpy().astype(np.float32), 0xF4D35E, 7)


def check(steps: int = 12) -> float:
    """Relative error of the gradient of all weights along a direction, compared with finite
    differences."""
    problem, random = Electric(steps, ti.f64), np.random.default_rng(5)
    ways = [random.normal(size=w.shape) for w in problem.weights]
    with ti.ad.Tape(problem.loss):
        problem.run()
    found = sum((w.grad.to_numpy() * way).sum() for w, way in zip(problem.weights, ways))
    before = [w.to_numpy() for w in problem.weights]

    def loss_at(distance: float) -> float:
        for w, old, way in zip(problem.weights, before, ways):
            w.from_numpy(old + distance * way)
        problem.loss[None] = 0
        problem.run()
        return problem.loss[None]

    h = 1e-3  # sixth-order differences
    wanted = sum(c * (loss_at(k * h) - loss_at(-k * h))
                 for k, c in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))) / h  # fmt: skip
    print(f"gradient {found:.12e}, differences {wanted:.12e}")
    return abs(found - wanted) / abs(wanted)


if __name__ == "__main__":
    if "--check" in sys.argv:
        ti.init(arch=ti.cpu, default_fp=ti.f64)
        error = check()
        print(f"they differ by {error:.1e} of their size")
        if error > 1e-9:
            raise SystemExit("the gradient is wrong")
    else:
        import learning

        learning.run(Electric, "electric", res=400, rounds=80, goal=2e-3, background=0x10161F)
