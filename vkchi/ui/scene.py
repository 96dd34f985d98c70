"""`ti.ui.Scene`: balls, surfaces and lines in three dimensions, and lights.

Owns: Taichi's methods. What is drawn is copied when it is declared; a canvas takes it, and then the
scene is empty but for its camera and the light from everywhere. Must not know: windows.

    scene = window.get_scene()
    scene.set_camera(camera)
    scene.point_light(pos=(0, 5, 5), color=(1, 1, 1))
    scene.particles(x, radius=0.05)
    canvas.scene(scene)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.ui import shapes
from vkchi.ui.camera import Camera
from vkchi.ui.reused import Pool
from vkchi.ui.shapes import GREY, Shape

if TYPE_CHECKING:
    from vkchi.ui.picture import Layer

Triple = tuple[float, float, float]


class Scene:
    """What one camera sees. `window.get_scene()` gives that of a window, `ti.ui.Scene()` one of its
    own."""

    def __init__(self) -> None:
        self._camera = Camera()
        self._ambient: Triple = (0.0, 0.0, 0.0)
        self._lights: list[tuple[Triple, Triple]] = []
        self._objects: list[Any] = []
        self._pool = Pool()

    def set_camera(self, camera: Camera) -> None:
        """Look through a camera."""
        self._camera = camera

    def ambient_light(self, color: Any) -> None:
        """Light from everywhere: its colour, which stays until it is set anew."""
        self._ambient = shapes.colour_of("ambient_light", color)

    def point_light(self, pos: Any, color: Any) -> None:
        """A light at a place, as bright far away as near; to be set in each frame."""
        place = shapes.point_of("point_light", "pos", pos)
        self._lights.append((place, shapes.colour_of("point_light", color)))

    def particles(
        self, centers: Any, radius: float, color: Any = GREY, per_vertex_color: Any = None,
        per_vertex_radius: Any = None, index_offset: int = 0, index_count: int | None = None,
    ) -> None:  # fmt: skip
        """Balls.

        centers: vectors of 3; radius: of all, where `per_vertex_radius`, n numbers, is not given;
        color: of all, red, green, blue from 0 to 1, where `per_vertex_color`, n vectors of 3 or 4,
        is not given; index_offset, index_count: which part is drawn. Raises ToolError.
        """
        self._put(
            shapes.balls(
                "particles", 3, centers, radius, color, per_vertex_color, per_vertex_radius,
                index_offset, index_count,
            )
        )  # fmt: skip

    def lines(
        self, vertices: Any, width: float, indices: Any = None, color: Any = GREY,
        per_vertex_color: Any = None, vertex_offset: int = 0, vertex_count: int | None = None,
        index_offset: int = 0, index_count: int | None = None,
    ) -> None:  # fmt: skip
        """Lines, `width` pixels wide, that no light falls on: between vertices 0 and 1, 2 and 3,
        or those of `indices`. Offsets and counts choose a part, as in `mesh`. Raises ToolError."""
        offsets = (vertex_offset, vertex_count, index_offset, index_count)
        self._put(
            shapes.lines(
                "lines", 3, vertices, width, indices, color, per_vertex_color, offsets
            )
        )  # fmt: skip

    def mesh(
        self, vertices: Any, indices: Any = None, normals: Any = None, color: Any = GREY,
        per_vertex_color: Any = None, two_sided: bool = False, vertex_offset: int = 0,
        vertex_count: int | None = None, index_offset: int = 0, index_count: int | None = None,
        show_wireframe: bool = False,
    ) -> None:  # fmt: skip
        """A surface of triangles.

        vertices: vectors of 3, three after each other a triangle, or those that `indices` name;
        normals: of the vertices, by default from the triangles around; two_sided: lit on both
        sides, not only where the vertices go round against the clock; show_wireframe: the edges
        alone. vertex_offset: where vertices begin, with indices what is added to each;
        vertex_count: how many, without indices; index_offset, index_count: which part of the
        indices. Raises ToolError.
        """
        self._put(
            shapes.surface(
                "mesh", 3, vertices, indices, normals, color, per_vertex_color,
                switches_of(two_sided, show_wireframe),
                (vertex_offset, vertex_count, index_offset, index_count),
            )
        )  # fmt: skip

    def mesh_instance(
        self, vertices: Any, indices: Any = None, normals: Any = None, color: Any = GREY,
        per_vertex_color: Any = None, two_sided: bool = False, transforms: Any = None,
        instance_offset: int = 0, instance_count: int | None = None, vertex_offset: int = 0,
        vertex_count: int | None = None, index_offset: int = 0, index_count: int | None = None,
        show_wireframe: bool = False,
    ) -> None:  # fmt: skip
        """A surface as often as there are transforms, matrices [4, 4] that a column [x, y, z, 1] is
        multiplied with, from `instance_offset` on; the rest as in `mesh`. Raises ToolError."""
        shape = shapes.surface(
            "mesh_instance", 3, vertices, indices, normals, color, per_vertex_color,
            switches_of(two_sided, show_wireframe),
            (vertex_offset, vertex_count, index_offset, index_count),
        )  # fmt: skip
        if transforms is not None:
            columns = shapes.transforms_of(
                "mesh_instance", transforms, instance_offset, instance_count
            )
            shape = shape._replace(
                arrays={**shape.arrays, "transforms": columns}, instances=len(columns) // 4
            )
        self._put(shape)

    def _put(self, shape: Shape) -> None:
        drawn = self._pool.put(shape)
        if drawn is not None:
            self._objects.append(drawn)

    def take(self, aspect: float) -> Layer:
        """What was declared, for a picture so many times as wide as high; it is empty then."""
        from vkchi.ui.picture import Layer

        objects, self._objects = self._objects, []
        lights, self._lights = tuple(self._lights), []
        camera = self._camera
        view, projection = camera.get_view_matrix(), camera.get_projection_matrix(aspect)
        return Layer(objects, view, projection, self._ambient, lights)

    def recycle(self) -> None:
        """The frame is done."""
        self._pool.recycle()


def switches_of(two_sided: bool, show_wireframe: bool) -> Sequence[str]:
    """Names of what is switched on."""
    named = {"two_sided": two_sided, "wireframe": show_wireframe}
    return [name for name, is_on in named.items() if is_on]
