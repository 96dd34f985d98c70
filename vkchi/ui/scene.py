"""`ti.ui.Scene`: spheres, surfaces and lines in 3D, and lights.

Arrays are copied on declaration. Drawing by a canvas empties the scene, except for its camera and
the ambient light.

    scene = window.get_scene()
    scene.set_camera(camera)
    scene.point_light(pos=(0, 5, 5), color=(1, 1, 1))
    scene.particles(x, radius=0.05)
    canvas.scene(scene)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.ui import draw_calls
from vkchi.ui.camera import Camera
from vkchi.ui.draw_calls import GREY, DrawCall
from vkchi.ui.object_pool import ObjectPool

if TYPE_CHECKING:
    from vkchi.ui.picture import Layer

Triple = tuple[float, float, float]


class Scene:
    """The objects and lights of one camera.

    `window.get_scene()` returns that of a window, `ti.ui.Scene()` makes a new one.
    """

    def __init__(self) -> None:
        self._camera = Camera()
        self._ambient: Triple = (0.0, 0.0, 0.0)
        self._lights: list[tuple[Triple, Triple]] = []
        self._objects: list[Any] = []
        self._pool = ObjectPool()

    def set_camera(self, camera: Camera) -> None:
        """Set the camera."""
        self._camera = camera

    def ambient_light(self, color: Any) -> None:
        """Set the `color` of the ambient light, which persists over frames.

        Raises ToolError unless it has 3 or 4 numbers.
        """
        self._ambient = draw_calls.colour_of("ambient_light", color)

    def point_light(self, pos: Any, color: Any) -> None:
        """Add a light at a position, without attenuation by distance; for one frame.

        Raises ToolError unless `pos` has 3 numbers and `color` 3 or 4.
        """
        place = draw_calls.point_of("point_light", "pos", pos)
        self._lights.append((place, draw_calls.colour_of("point_light", color)))

    def particles(
        self, centers: Any, radius: float, color: Any = GREY, per_vertex_color: Any = None,
        per_vertex_radius: Any = None, index_offset: int = 0, index_count: int | None = None,
    ) -> None:  # fmt: skip
        """Draw spheres.

        centers: vectors of 3; radius: common radius, unless `per_vertex_radius` has n scalars;
        color: common colour, red, green, blue from 0 to 1, unless `per_vertex_color` has n vectors
        of 3 or 4. index_offset, index_count: the range to draw. Raises ToolError.
        """
        self._put(
            draw_calls.draw_balls(
                "particles", 3, centers, radius, color, per_vertex_color, per_vertex_radius,
                index_offset, index_count,
            )
        )  # fmt: skip

    def lines(
        self, vertices: Any, width: float, indices: Any = None, color: Any = GREY,
        per_vertex_color: Any = None, vertex_offset: int = 0, vertex_count: int | None = None,
        index_offset: int = 0, index_count: int | None = None,
    ) -> None:  # fmt: skip
        """Draw unlit lines, `width` pixels wide, between `vertices` 0 and 1, 2 and 3, and so on.

        indices: connect those instead; color, per_vertex_color: of all, or one for each vertex.
        vertex_offset, vertex_count, index_offset, index_count select a range, as in `mesh`. Raises
        ToolError.
        """
        offsets = (vertex_offset, vertex_count, index_offset, index_count)
        self._put(
            draw_calls.draw_lines(
                "lines", 3, vertices, width, indices, color, per_vertex_color, offsets
            )
        )  # fmt: skip

    def mesh(
        self, vertices: Any, indices: Any = None, normals: Any = None, color: Any = GREY,
        per_vertex_color: Any = None, two_sided: bool = False, vertex_offset: int = 0,
        vertex_count: int | None = None, index_offset: int = 0, index_count: int | None = None,
        show_wireframe: bool = False,
    ) -> None:  # fmt: skip
        """Draw a triangle mesh.

        - vertices: vectors of 3; each three in sequence form a triangle, or those of `indices`.
        - normals: per vertex; by default the sum of adjacent triangles' unit normals
          or, without indices, the normal of each triangle.
        - color, per_vertex_color: of all, or one for each vertex.
        - two_sided: light both sides, not only the one with counterclockwise vertices.
        - show_wireframe: draw edges only.
        - vertex_offset: first vertex; with indices, the number added to each.
        - vertex_count: number of vertices, without indices.
        - index_offset, index_count: range of the indices.

        Raises ToolError.
        """
        self._put(
            draw_calls.draw_surface(
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
        """Draw one instance of a mesh per transform, `instance_count` from `instance_offset` on.

        A transform is a [4, 4] matrix for column vectors [x, y, z, 1]; without `transforms`, the
        mesh is drawn once. Other parameters are as in `mesh`. Raises ToolError.
        """
        shape = draw_calls.draw_surface(
            "mesh_instance", 3, vertices, indices, normals, color, per_vertex_color,
            switches_of(two_sided, show_wireframe),
            (vertex_offset, vertex_count, index_offset, index_count),
        )  # fmt: skip
        if transforms is not None:
            columns = draw_calls.transforms_of(
                "mesh_instance", transforms, instance_offset, instance_count
            )
            shape = shape._replace(
                arrays={**shape.arrays, "transforms": columns}, instances=len(columns) // 4
            )
        self._put(shape)

    def _put(self, shape: DrawCall) -> None:
        drawn = self._pool.put(shape)
        if drawn is not None:
            self._objects.append(drawn)

    def take(self, aspect: float) -> Layer:
        """Remove and return the declared objects and point lights as a layer.

        `aspect` is width divided by height.
        """
        from vkchi.ui.picture import Layer

        objects, self._objects = self._objects, []
        lights, self._lights = tuple(self._lights), []
        camera = self._camera
        view, projection = camera.get_view_matrix(), camera.get_projection_matrix(aspect)
        return Layer(objects, view, projection, self._ambient, lights)

    def recycle(self) -> None:
        """Release the objects of a drawn frame for reuse."""
        self._pool.recycle()


def switches_of(two_sided: bool, show_wireframe: bool) -> Sequence[str]:
    """Names of the enabled options."""
    named = {"two_sided": two_sided, "wireframe": show_wireframe}
    return [name for name, is_on in named.items() if is_on]
