"""A Cornell box by path tracing: each frame adds one sample per pixel.

Walls are diffuse, one ball is a mirror, and a square in the ceiling is the light. Each diffuse
bounce samples a point of the light directly; a reflected ray that then hits the light adds nothing.
Source: Kajiya, "The rendering equation", SIGGRAPH 1986; Goral et al., SIGGRAPH 1984 (the box).

    python examples/path_tracer.py
"""

from __future__ import annotations

import viewer

import vkchi as ti

tm = ti.math
vec3 = ti.types.vector(3, ti.f32)
BOUNCES, FAR, NEAR = 6, 1e9, 1e-3
LAMP, LAMP_LIGHT = 0.25, 12.0  # half side length; radiance
# Balls: centre, radius, colour, 1 for a mirror.
BALLS = (
    ((-0.42, -0.65, -0.35), 0.35, (0.95, 0.95, 0.95), 1),
    ((0.4, -0.6, 0.25), 0.4, (0.8,) * 3, 0),
)
# Walls of a box from -1 to 1: axis, side, colour. The side towards the viewer is open.
WALLS = ((0, -1, (0.75, 0.1, 0.1)), (0, 1, (0.1, 0.6, 0.15)), (1, -1, (0.75,) * 3),
         (1, 1, (0.75,) * 3), (2, -1, (0.75,) * 3))  # fmt: skip


@ti.func
def hit(origin, way):
    """First intersection of a ray: distance (FAR if none), normal, colour, and 1 for a mirror."""
    nearest, normal, colour, is_mirror = FAR, vec3(0.0), vec3(0.0), 0
    for axis, side, paint in ti.static(WALLS):
        t = (side - origin[axis]) / way[axis]
        at = origin + t * way
        is_inside = True
        for other in ti.static(range(3)):
            if ti.static(other != axis):
                is_inside = is_inside and ti.abs(at[other]) <= 1.0
        if NEAR < t < nearest and is_inside:
            nearest, colour, is_mirror = t, vec3(paint), 0
            normal = vec3(0.0)
            normal[axis] = -side
    for middle, radius, paint, mirrors in ti.static(BALLS):
        d = origin - vec3(middle)
        b = d.dot(way)
        root = b * b - d.norm_sqr() + radius * radius
        if root > 0:
            t = -b - ti.sqrt(root)
            if NEAR < t < nearest:
                nearest, colour, is_mirror = t, vec3(paint), mirrors
                normal = (d + t * way) / radius
    return nearest, normal, colour, is_mirror


@ti.func
def is_lamp(at):
    return at.y > 1 - NEAR and ti.abs(at.x) < LAMP and ti.abs(at.z) < LAMP


@ti.func
def light_from_lamp(at, normal):
    """Direct light at a point, sampled at one random point of the lamp."""
    lamp = vec3((2 * ti.random() - 1) * LAMP, 1.0, (2 * ti.random() - 1) * LAMP)
    d = lamp - at
    squared = d.norm_sqr()
    way = d / ti.sqrt(squared)
    cosines = ti.max(normal.dot(way), 0.0) * ti.max(way.y, 0.0)
    distance, _, _, _ = hit(at, way)
    light = 0.0
    if cosines > 0 and distance > ti.sqrt(squared) - 2 * NEAR:
        light = LAMP_LIGHT * cosines / squared * (2 * LAMP) ** 2 / tm.pi
    return light


@ti.func
def diffuse(normal):
    """A random direction whose density is proportional to the cosine of its angle to the normal."""
    height, angle = 2 * ti.random() - 1, 2 * tm.pi * ti.random()
    r = ti.sqrt(ti.max(1 - height * height, 0.0))
    return (normal + vec3(r * ti.cos(angle), r * ti.sin(angle), height) * 0.999).normalized()


class CornellBox:
    def __init__(self, size: int = 256) -> None:
        self.samples = 0
        self.light = light = ti.Vector.field(3, ti.f32, (size, size))
        self.pixels = pixels = ti.Vector.field(3, ti.f32, (size, size))

        @ti.kernel
        def sample():
            for i, j in light:
                x, y = (i + ti.random()) / size * 2 - 1, (j + ti.random()) / size * 2 - 1
                origin, way = vec3(0.0, 0.0, 3.9), vec3(0.36 * x, 0.36 * y, -1.0).normalized()
                total, kept, counts_lamp = vec3(0.0), vec3(1.0), True
                for _ in range(BOUNCES):
                    distance, normal, colour, is_mirror = hit(origin, way)
                    if distance >= FAR:
                        break
                    at = origin + distance * way
                    if is_lamp(at):
                        if counts_lamp:
                            total += kept * LAMP_LIGHT
                        break
                    origin, kept = at + NEAR * normal, kept * colour
                    if is_mirror == 1:
                        way, counts_lamp = tm.reflect(way, normal), True
                    else:
                        total += kept * light_from_lamp(origin, normal)
                        way, counts_lamp = diffuse(normal), False
                light[i, j] += total

        @ti.kernel
        def develop(samples: ti.f32):
            for i, j in pixels:
                pixels[i, j] = ti.min(light[i, j] / samples, 1.0) ** (1 / 2.2)

        self.sample, self.develop = sample, develop

    def step(self) -> None:
        self.sample()
        self.samples += 1

    def draw(self, gui: ti.GUI) -> None:
        self.develop(self.samples)
        gui.set_image(self.pixels)


if __name__ == "__main__":
    viewer.run(CornellBox, "Cornell box", res=256)
