"""Sphere tracing of a scene given as a signed distance function.

Source: Hart, "Sphere tracing", The Visual Computer 12, 1996; soft shadows and smooth unions after
I. Quilez, "Raymarching signed distance fields".

    python examples/sdf_renderer.py
"""

from __future__ import annotations

import viewer

import vkchi as ti

tm = ti.math
vec3 = ti.types.vector(3, ti.f32)
STEPS, FAR, CLOSE = 96, 20.0, 1e-3


@ti.func
def ball(p, radius):
    return p.norm() - radius


@ti.func
def box(p, half, rounding):
    q = ti.abs(p) - half
    return ti.max(q, 0.0).norm() + ti.min(ti.max(q.x, q.y, q.z), 0.0) - rounding


@ti.func
def torus(p, big, small):
    return tm.vec2(tm.vec2(p.x, p.z).norm() - big, p.y).norm() - small


@ti.func
def blend(a, b, k):
    """Distance to the smooth union of two bodies at distances a and b."""
    h = tm.clamp(0.5 + 0.5 * (b - a) / k, 0.0, 1.0)
    return tm.mix(b, a, h) - k * h * (1 - h)


@ti.func
def scene(p, t):
    """Distance to the nearest surface, or a lower bound of it."""
    lifted = p - vec3(0.0, 0.35 * ti.sin(t), 0.0)
    body = blend(ball(lifted, 0.6), torus(p, 1.0, 0.22), 0.35)
    cube = box(p - vec3(1.8 * ti.cos(0.7 * t), -0.45, 1.8 * ti.sin(0.7 * t)), 0.3, 0.08)
    return ti.min(p.y + 0.85, ti.min(body, cube))


@ti.func
def march(origin, way, t):
    """Distance along a ray to the first surface, FAR if it is farther; at most STEPS steps."""
    distance = 0.0
    for _ in range(STEPS):
        free = scene(origin + distance * way, t)
        distance += free
        if free < CLOSE or distance > FAR:
            break
    return ti.min(distance, FAR)


@ti.func
def normal_at(p, t):
    """Unit normal: the direction of the distance's gradient, from four corners of a tetrahedron."""
    total = vec3(0.0)
    for x, y, z in ti.static(((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1))):
        corner = vec3(x, y, z)
        total += corner * scene(p + 1e-3 * corner, t)
    return total.normalized()


@ti.func
def shadow(origin, way, t):
    """Soft shadow: fraction of light that arrives, less the closer the ray passes to a surface."""
    light, distance = 1.0, 0.05
    for _ in range(32):
        free = scene(origin + distance * way, t)
        light = ti.min(light, 12 * free / distance)
        distance += tm.clamp(free, 0.02, 0.4)
        if light < 0.01 or distance > 6:
            break
    return tm.clamp(light, 0.0, 1.0)


class Sculpture:
    def __init__(self, width: int = 320, height: int = 240) -> None:
        self.t = 0.0
        self.pixels = pixels = ti.Vector.field(3, ti.f32, (width, height))

        @ti.kernel
        def paint(t: ti.f32):
            for i, j in pixels:
                x, y = (i + 0.5 - width / 2) / height, (j + 0.5) / height - 0.5
                origin = vec3(0.0, 1.2, 4.2)
                way = vec3(x, y - 0.28, -1.1).normalized()
                distance = march(origin, way, t)
                colour = tm.mix(vec3(0.75, 0.82, 0.9), vec3(0.25, 0.4, 0.65), 2 * y)
                if distance < FAR:
                    p = origin + distance * way
                    n, lamp = normal_at(p, t), vec3(0.6, 0.9, 0.5).normalized()
                    paint = vec3(0.9, 0.55, 0.3)
                    if p.y < -0.84:
                        paint = vec3(0.35) + 0.15 * ((ti.floor(p.x) + ti.floor(p.z)) % 2)
                    direct = ti.max(n.dot(lamp), 0.0) * shadow(p, lamp, t)
                    gloss = ti.max(tm.reflect(way, n).dot(lamp), 0.0) ** 24
                    lit = paint * (0.25 + 0.2 * n.y + 0.9 * direct) + 0.3 * gloss * direct
                    colour = tm.mix(colour, lit, ti.exp(-0.0006 * distance**3))
                pixels[i, j] = ti.sqrt(tm.clamp(colour, 0.0, 1.0))

        self.paint = paint

    def step(self) -> None:
        self.t += 0.05

    def draw(self, gui: ti.GUI) -> None:
        self.paint(self.t)
        gui.set_image(self.pixels)


if __name__ == "__main__":
    viewer.run(Sculpture, "signed distances", res=(320, 240))
