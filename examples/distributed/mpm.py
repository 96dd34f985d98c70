"""A falling block of fluid by MLS-MPM, on any number of processes: particles add to the grid over
the borders of blocks, and migrate between them.

Source: Hu et al., "A Moving Least Squares Material Point Method", SIGGRAPH 2018; see mpm88.py.

python examples/distributed/mpm.py [PICTURE.png]
torchrun --nproc-per-node 4 examples/distributed/mpm.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np

import vkchi as ti

N, PARTICLES, STEPS = 64, 4096, 300
DX, DT, GRAVITY, STIFFNESS, WALL = 1 / N, 2e-4, 9.8, 400.0, 3
VOLUME = (0.5 * DX) ** 2


@ti.func
def weights(fx):
    """Quadratic B-splines at a particle's three nodes along both axes; fx in [0.5, 1.5)."""
    return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]


def main() -> None:
    ti.distributed.init()
    grid = ti.distributed.Grid((N, N), halo=2)  # a particle in cell i reaches nodes i - 1 to i + 2
    momentum, mass = grid.field(ti.math.vec2), grid.field(ti.f32)
    p = ti.distributed.Particles(
        grid, PARTICLES, x=ti.math.vec2, v=ti.math.vec2, affine=ti.math.mat2, ratio=ti.f32, cell=DX
    )
    if ti.distributed.rank() == 0:
        places = np.random.default_rng(1).random((PARTICLES, 2)) * 0.4 + [0.25, 0.3]
        p.add(places, v=[1.0, -3.0], ratio=1.0)
    else:
        p.add(None)

    @ti.kernel
    def scatter():  # density is 1: a particle's mass is its volume
        for i, j in mass:  # the halo included
            momentum[i, j], mass[i, j] = [0.0, 0.0], 0.0
        for k in range(p.n[None]):
            base = ti.cast(p.x[k] / DX - 0.5, ti.i32)
            fx = p.x[k] / DX - base
            w = weights(fx)
            stress = -DT * 4 * STIFFNESS * VOLUME * (p.ratio[k] - 1) / DX**2
            flow = ti.Matrix([[stress, 0.0], [0.0, stress]]) + VOLUME * p.affine[k]
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                weight = w[i].x * w[j].y
                momentum[base + offset] += weight * (VOLUME * p.v[k] + flow @ ((offset - fx) * DX))
                mass[base + offset] += weight * VOLUME

    @ti.kernel
    def update_grid():
        for i, j in grid.owned:
            if mass[i, j] > 0:
                u = momentum[i, j] / mass[i, j]
                u.y -= DT * GRAVITY
                if (i < WALL and u.x < 0) or (i > N - WALL and u.x > 0):
                    u.x = 0
                if (j < WALL and u.y < 0) or (j > N - WALL and u.y > 0):
                    u.y = 0
                momentum[i, j] = u

    @ti.kernel
    def gather():
        for k in range(p.n[None]):
            base = ti.cast(p.x[k] / DX - 0.5, ti.i32)
            fx = p.x[k] / DX - base
            w = weights(fx)
            u, c = ti.Vector.zero(ti.f32, 2), ti.Matrix.zero(ti.f32, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                part = w[i].x * w[j].y * momentum[base + offset]
                u += part
                c += 4 * part.outer_product(offset - fx) / DX
            p.v[k], p.affine[k] = u, c
            p.x[k] += DT * u
            p.ratio[k] *= 1 + DT * c.trace()

    for _ in range(STEPS):
        scatter()
        grid.reduce(momentum, mass)
        update_grid()
        grid.exchange(momentum)
        gather()
        p.migrate()

    scatter()
    grid.reduce(mass)
    total, whole = grid.sum(mass), grid.gather(mass)
    print(f"rank {ti.distributed.rank()} has {p.count} particles")
    if whole is not None:
        x, y = (float((whole.sum(axis) * np.arange(N)).sum()) * DX / total for axis in (1, 0))
        print(f"{ti.distributed.size()} processes, {total / VOLUME:.2f} particles, ", end="")
        print(f"center {x:.4f}, {y:.4f}")
        if len(sys.argv) > 1:
            ti.tools.imwrite(np.clip(whole / VOLUME / 8, 0, 1), sys.argv[1])


if __name__ == "__main__":
    main()
