"""A robot of rigid boxes learns to walk: springs between them change their length to a rhythm.

A trunk has four legs. The rest length of each long spring depends on a sum of phases of a clock.
Descent through all time steps finds the weights, with gradients through contacts and friction. The
loss is minus the distance walked. Source: DiffTaichi (Hu et al., ICLR 2020), example "rigid_body",
with a different robot.

    python examples/rigid_bodies.py [--rounds N]
"""

from __future__ import annotations

import learning
import numpy as np
import viewer

import vkchi as ti

tm = ti.math
DT, GRAVITY, GROUND, PHASES, OMEGA = 2e-3, 9.8, 0.1, 4, 15.0
STIFFNESS, DAMPING, STRETCH = 200.0, 4.0, 0.5
BOUNCE, HOLD, DRAG = 4000.0, 8.0, 0.2
TRUNK, LEG = (0.2, 0.04), (0.025, 0.05)  # half sizes
CORNERS = ((-1, -1), (-1, 1), (1, -1), (1, 1))
HIPS = (-0.17, -0.06, 0.06, 0.17)


class Robot(learning.Simulation):
    """Positions x, angles a, velocities v and w of the bodies, and springs.

    Spring s joins point `ends[s, 0]` of body `bodies[s, 0]` to point `ends[s, 1]` of body
    `bodies[s, 1]`, in the bodies' own axes.
    """

    at_once, shown = 5, 4

    def __init__(self, steps: int = 200) -> None:
        self.steps, n = steps, 1 + len(HIPS)
        grad = {"needs_grad": True}
        self.x, self.v, self.push = (ti.Vector.field(2, ti.f32, n, **grad) for _ in range(3))
        self.a, self.w, self.twist = (ti.field(ti.f32, n, **grad) for _ in range(3))
        self.size, self.first = (ti.Vector.field(2, ti.f32, n) for _ in range(2))
        legs = [(x, GROUND + LEG[1]) for x in HIPS]
        self.first.from_numpy(np.array([(0, GROUND + 2 * LEG[1] + TRUNK[1]), *legs], np.float32))
        self.size.from_numpy(np.array([TRUNK, *[LEG] * len(HIPS)], np.float32))
        springs = [spring for leg in range(1, n) for spring in self.springs_of(leg)]
        self.bodies, self.ends = (
            ti.field(ti.i32, (len(springs), 2)),
            ti.Vector.field(2, ti.f32, (len(springs), 2)),
        )
        self.rest = ti.field(ti.f32, len(springs))
        self.bodies.from_numpy(np.array([[0, leg] for leg, _, _ in springs], np.int32))
        self.ends.from_numpy(np.array([[a, b] for _, a, b in springs], np.float32))
        self.weights = ti.field(ti.f32, (len(springs), PHASES), **grad)
        self.weights.from_numpy(np.random.default_rng(2).normal(size=self.weights.shape) * 0.1)
        self.loss = ti.field(ti.f32, (), **grad)
        self.descent = learning.Adam(self.weights, rate=0.2)
        self.make_kernels()
        self.make_motion()

    def springs_of(self, leg: int) -> list:
        """The four springs of a leg: (leg, end on the trunk, end on the leg).

        The first two are at the hip and short.
        """
        hip = HIPS[leg - 1]
        found = [(leg, (hip + d, -TRUNK[1]), (d, LEG[1])) for d in (-LEG[0], LEG[0])]
        return found + [(leg, (hip + d, -TRUNK[1]), (0.0, -LEG[1])) for d in (-0.08, 0.08)]

    def make_kernels(self) -> None:
        x, v, a, w, push, twist = self.x, self.v, self.a, self.w, self.push, self.twist
        bodies, ends, rest, weights, first = (
            self.bodies,
            self.ends,
            self.rest,
            self.weights,
            self.first,
        )

        @ti.func
        def arm(body, end):
            """Vector from a body's centre to a point of it."""
            return tm.rotation2d(a[body]) @ end

        @ti.func
        def speed(body, r):
            return v[body] + w[body] * ti.Vector([-r.y, r.x])

        @ti.kernel
        def start():
            for i in x:
                x[i], v[i], a[i], w[i] = first[i], [0.0, 0.0], 0.0, 0.0

        @ti.kernel
        def measure_springs():
            for s in rest:
                d = first[0] + ends[s, 0] - first[bodies[s, 1]] - ends[s, 1]
                rest[s] = d.norm()

        @ti.kernel
        def clear():
            for i in x:
                push[i], twist[i] = [0.0, 0.0], 0.0

        @ti.kernel
        def pull(t: ti.i32):
            for s in rest:
                i, k = bodies[s, 0], bodies[s, 1]
                r, q = arm(i, ends[s, 0]), arm(k, ends[s, 1])
                d = x[i] + r - x[k] - q
                length = d.norm(1e-6)
                rhythm = 0.0
                for m in ti.static(range(PHASES)):
                    rhythm += weights[s, m] * ti.sin(OMEGA * t * DT + 2 * tm.pi * m / PHASES)
                wanted = rest[s] * (1 + STRETCH * ti.tanh(rhythm)) if rest[s] > 0.02 else rest[s]
                way = d / length
                tension = STIFFNESS * (length - wanted)
                tension += DAMPING * way.dot(speed(i, r) - speed(k, q))
                push[i] -= tension * way
                push[k] += tension * way
                twist[i] -= tension * tm.cross(r, way)
                twist[k] += tension * tm.cross(q, way)

        self.start, self.clear, self.pull = start, clear, pull
        measure_springs()

    def make_motion(self) -> None:
        x, v, a, w, push, twist = self.x, self.v, self.a, self.w, self.push, self.twist
        size, first, loss = self.size, self.first, self.loss

        @ti.kernel
        def move():
            for i in x:
                mass = 250 * size[i].x * size[i].y
                inertia = mass * size[i].norm_sqr() / 3
                force, torque = push[i] + ti.Vector([0.0, -GRAVITY * mass]), twist[i]
                for sx, sy in ti.static(CORNERS):
                    r = tm.rotation2d(a[i]) @ (size[i] * ti.Vector([sx, sy]))
                    depth = GROUND - (x[i] + r).y
                    if depth > 0:
                        u = v[i] + w[i] * ti.Vector([-r.y, r.x])
                        up = ti.max(BOUNCE * depth - 10 * u.y, 0.0)
                        f = ti.Vector([-ti.tanh(HOLD * u.x) * up, up])
                        force += f
                        torque += tm.cross(r, f)
                v[i] = (v[i] + DT * force / mass) * ti.exp(-DRAG * DT)
                w[i] = (w[i] + DT * torque / inertia) * ti.exp(-DRAG * DT)
                x[i] += DT * v[i]
                a[i] += DT * w[i]

        @ti.kernel
        def measure():
            loss[None] = first[0].x - x[0].x

        self.move, self.measure = move, measure

    def advance(self, t: int) -> None:
        """A time step."""
        self.clear()
        self.pull(t)
        self.move()

    def draw(self, gui: ti.GUI) -> None:
        viewer.fill_box(gui, (0, 0), (1, GROUND), 0x5B6770)
        for at, angle, half in zip(self.x.to_numpy(), self.a.to_numpy(), self.size.to_numpy()):
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            corners = at + (0.4, 0) + (np.array(CORNERS) * half) @ turn.T
            colour = 0xE4572E if half[0] > half[1] else 0x4C9BE8
            gui.triangle(corners[0], corners[1], corners[3], colour)
            gui.triangle(corners[0], corners[3], corners[2], colour)


if __name__ == "__main__":
    learning.run(Robot, "rigid bodies", res=400, rounds=20, goal=-0.1, background=0x18202A)
