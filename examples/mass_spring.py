"""A robot of masses and springs learns to walk: a small neural network contracts its springs.

The network reads phases of a clock, and the positions and velocities of the masses. Its output
changes the rest lengths of the springs. Network and physics are differentiated through time, and
gradient descent on the weights makes the robot move to the right. The printed loss is minus the
distance walked; it ends below -0.3, minus the robot's length. Source: DiffTaichi (Hu et al., ICLR
2020), example "mass_spring", with a different robot.

    python examples/mass_spring.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np
import viewer

import vkchi as ti

DT, GRAVITY, STIFFNESS, DRAG, GROUND = 4e-3, -4.8, 3000.0, 3.0, 0.1
PUSH, HOLD = 500.0, 1000.0
STRETCH, HIDDEN, PHASES, OMEGA = 0.2, 16, 8, 12.0
COLUMNS, SPACING, RATE = 4, 0.1, 0.2


def build_robot() -> tuple[np.ndarray, np.ndarray]:
    """Two rows of masses, joined to all their neighbours: positions [n, 2], pairs [m, 2]."""
    cells = [(i, j) for i in range(COLUMNS) for j in (0, 1)]
    places = np.array([0.1, GROUND]) + SPACING * np.array(cells)
    near = 1.5 * SPACING
    pairs = [(a, b) for a in range(len(places)) for b in range(a)
             if np.linalg.norm(places[a] - places[b]) < near]  # fmt: skip
    return places.astype(np.float32), np.array(pairs, np.int32)


class Robot(learning.Problem):
    """Positions x[t, i] and velocities v[t, i] by time step, and the network, whose weights are
    learned."""

    def __init__(self, steps: int = 300) -> None:
        self.steps, self.t = steps, 0
        places, pairs = build_robot()
        self.n, self.m = n, m = len(places), len(pairs)
        grad = {"needs_grad": True}
        self.x, self.v, self.force = (
            ti.Vector.field(2, ti.f32, (steps, n), **grad) for _ in range(3)
        )
        self.hidden = ti.field(ti.f32, (steps, HIDDEN), **grad)
        self.action = ti.field(ti.f32, (steps, m), **grad)
        self.inputs = PHASES + 4 * n
        shapes = ((HIDDEN, self.inputs), HIDDEN, (m, HIDDEN), m)
        self.weights = [ti.field(ti.f32, shape, **grad) for shape in shapes]
        self.loss = ti.field(ti.f32, (), **grad)
        self.places, self.ends = ti.Vector.field(2, ti.f32, n), ti.Vector.field(2, ti.i32, m)
        self.rest = ti.field(ti.f32, m)
        self.places.from_numpy(places)
        self.ends.from_numpy(pairs)
        self.rest.from_numpy(np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1))
        self.make_network()
        self.make_physics()
        self.make_learning()
        random = np.random.default_rng(2)
        for w in (self.weights[0], self.weights[2]):
            w.from_numpy(0.3 * random.normal(size=w.shape) / np.sqrt(w.shape[1]))

    def make_network(self) -> None:
        x, v, hidden, action, n = self.x, self.v, self.hidden, self.action, self.n
        w1, b1, w2, b2 = self.weights

        @ti.kernel
        def think(t: ti.i32):
            for h in range(HIDDEN):
                s = b1[h]
                for k in ti.static(range(PHASES)):
                    s += w1[h, k] * ti.sin(OMEGA * t * DT + 2 * np.pi / PHASES * k)
                middle = ti.Vector.zero(ti.f32, 2)
                for i in range(n):
                    middle += x[t, i] / n
                for i in range(n):
                    off = x[t, i] - middle
                    for d in ti.static(range(2)):
                        s += w1[h, PHASES + 4 * i + d] * off[d] * 5
                        s += w1[h, PHASES + 4 * i + 2 + d] * v[t, i][d] * 0.5
                hidden[t, h] = ti.tanh(s)

        @ti.kernel
        def act(t: ti.i32):
            for k in range(action.shape[1]):
                s = b2[k]
                for h in range(HIDDEN):
                    s += w2[k, h] * hidden[t, h]
                action[t, k] = ti.tanh(s)

        self.think, self.act = think, act

    def make_physics(self) -> None:
        x, v, force, action = self.x, self.v, self.force, self.action
        places, ends, rest = self.places, self.ends, self.rest

        @ti.kernel
        def start():
            for i in places:
                x[0, i], v[0, i] = places[i], [0.0, 0.0]
            for t, i in force:
                force[t, i] = [0.0, 0.0]

        @ti.kernel
        def pull(t: ti.i32):
            for k in ends:
                a, b = ends[k].x, ends[k].y
                d = x[t, a] - x[t, b]
                length = d.norm() + 1e-4
                wanted = rest[k] * (1 + STRETCH * action[t, k])
                f = DT * STIFFNESS * (length - wanted) / length * d
                force[t, a] -= f
                force[t, b] += f

        @ti.kernel
        def advance(t: ti.i32):
            for i in places:
                u = ti.exp(-DRAG * DT) * v[t - 1, i] + force[t - 1, i]
                u.y += DT * GRAVITY
                depth = GROUND - x[t - 1, i].y
                if depth > 0:  # penalty force and friction, growing with depth
                    u.y += DT * (PUSH * depth - 10 * u.y)
                    u.x *= ti.exp(-DT * HOLD * depth)
                v[t, i] = u
                x[t, i] = x[t - 1, i] + DT * u

        self.start, self.pull, self.advance = start, pull, advance

    def make_learning(self) -> None:
        x, loss, steps, n = self.x, self.loss, self.steps, self.n

        @ti.kernel
        def measure():
            for i in range(n):
                loss[None] -= (x[steps - 1, i].x - x[0, i].x) / n

        self.measure = measure

    def run(self) -> None:
        """Simulate the walk and measure the loss: minus the mean distance to the right."""
        self.start()
        for t in range(1, self.steps):
            self.think(t - 1)
            self.act(t - 1)
            self.pull(t - 1)
            self.advance(t)
        self.measure()

    def descend(self) -> None:
        """A step of length RATE down the gradient of all weights together."""
        slopes = [w.grad.to_numpy() for w in self.weights]
        norm = np.sqrt(sum(float((g * g).sum()) for g in slopes)) + 1e-6
        for w, slope in zip(self.weights, slopes, strict=True):
            w.from_numpy(w.to_numpy() - RATE / norm * slope)

    def step(self) -> None:
        if self.t == 0:
            self.path = self.x.to_numpy()
        self.t = (self.t + 4) % self.steps

    def draw(self, gui: ti.GUI) -> None:
        at, ends = self.path[self.t], self.ends.to_numpy()
        pull = self.action.to_numpy()[max(self.t - 1, 0)]
        colour = ti.rgb_to_hex((0.6 + 0.4 * pull, 0.5 + 0 * pull, 0.6 - 0.4 * pull))
        viewer.fill_box(gui, (0, 0), (1, GROUND - 0.01), 0x5B6770)
        gui.lines(at[ends[:, 0]], at[ends[:, 1]], radius=2, color=colour)
        gui.circles(at, radius=6, color=0xE8ECF0)


if __name__ == "__main__":
    learning.run(Robot, "mass-spring robot", res=400, rounds=60, goal=-0.3, background=0x18202A)
