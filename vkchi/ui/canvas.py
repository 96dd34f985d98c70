"""`ti.ui.Canvas`: 2D shapes and scenes of a window, drawn in order of declaration.

Positions are fractions of the window, from the lower left. Arrays are copied on declaration.

    canvas = window.get_canvas()
    canvas.set_background_color((1, 1, 1))
    canvas.circles(x, radius=0.01, color=(0.3, 0.5, 0.8))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import ToolError
from vkchi.gui import shape_arrays
from vkchi.gui.pixels import colour_map
from vkchi.texture import Texture
from vkchi.tools.image import colours_of_map
from vkchi.types.lazy_numpy import np
from vkchi.ui import draw_calls
from vkchi.ui.draw_calls import GREY, DrawCall, Numbers
from vkchi.ui.object_pool import ObjectPool
from vkchi.ui.packages import require_ggui
from vkchi.ui.scene import Scene

if TYPE_CHECKING:
    from vkchi.ui.picture import Image, Layer

SIZES = {2: 1, 3: 0}  # number of array axes -> number of element axes


class Canvas:
    """The layers of a window's next frame, from `window.get_canvas()`."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.background: draw_calls.Colour = (0.0, 0.0, 0.0)
        self.is_touched = True
        self._layers: list[Layer] = []
        self._pool, self._scenes = ObjectPool(), list[Scene]()
        self._images: dict[tuple[int, int], list[Image]] = {}
        self._used: list[Image] = []

    def set_background_color(self, color: Any) -> None:
        """Set the background colour: red, green, blue from 0 to 1; a fourth number is ignored.

        Raises ToolError unless there are 3 or 4 numbers.
        """
        self.background, self.is_touched = draw_calls.colour_of("set_background_color", color), True

    def set_image(self, img: Any) -> None:
        """Fill the window with an image, interpolated linearly if the sizes differ.

        img: a field, ndarray, numpy array, tensor or texture of shape (width, height). Elements are
        scalars or vectors of 1 to 4, or there is a third axis of that length; floats from 0 to 1,
        or u8. Raises ToolError.
        """
        values = image_bytes(img)
        require_ggui()
        from vkchi.ui.picture import Image

        shape = (values.shape[0], values.shape[1])
        waiting = self._images.get(shape)
        image = waiting.pop() if waiting else Image(shape)
        self._used.append(image)
        image.put(values)
        self._add(image)

    def contour(
        self, scalar_field: Any, cmap_name: str = "plasma", normalize: bool = False
    ) -> None:
        """Fill the window with a false-colour image of a scalar field: dark blue for 0, yellow for
        1.

        scalar_field: two axes; normalize: map the minimum to 0 and the maximum to 1; cmap_name:
        plasma, or a map of the package `cmap`. Raises ToolError for other fields and unknown colour
        maps, MissingPackageError without that package.
        """
        values = shape_arrays.plane("contour", scalar_field).astype(np.float64)
        if normalize:
            values = (values - values.min()) / (values.max() - values.min() + 1e-16)
        is_plasma = cmap_name == "plasma"
        self.set_image(colour_map(values) if is_plasma else colours_of_map(cmap_name, values))

    def circles(
        self, centers: Any, radius: float, color: Any = GREY, per_vertex_color: Any = None,
        per_vertex_radius: Any = None,
    ) -> None:  # fmt: skip
        """Draw discs. centers: vectors of 2; third components are ignored.

        radius: a fraction of the window's height; color: red, green, blue from 0 to 1;
        per_vertex_color, per_vertex_radius: values per disc, in place of the common ones. Raises
        ToolError.
        """
        self._put(
            draw_calls.draw_balls(
                "circles", 2, centers, radius, color, per_vertex_color, per_vertex_radius
            )
        )  # fmt: skip

    def lines(
        self, vertices: Any, width: float, indices: Any = None, color: Any = GREY,
        per_vertex_color: Any = None,
    ) -> None:  # fmt: skip
        """Draw lines between `vertices` 0 and 1, 2 and 3, and so on, or between those of `indices`.

        width: a fraction of the window's height; color, per_vertex_color: of all, or one for each
        vertex. Raises ToolError.
        """
        pixels = width * self.size[1]
        self._put(
            draw_calls.draw_lines("lines", 2, vertices, pixels, indices, color, per_vertex_color)
        )  # fmt: skip

    def triangles(
        self, vertices: Any, color: Any = GREY, indices: Any = None, per_vertex_color: Any = None
    ) -> None:
        """Draw triangles of three consecutive `vertices`, or of those at three consecutive
        `indices`.

        color, per_vertex_color: of all, or one for each vertex. Raises ToolError.
        """
        self._put(
            draw_calls.draw_surface(
                "triangles", 2, vertices, indices, None, color, per_vertex_color
            )
        )  # fmt: skip

    def vector_field(
        self, vector_field: Any, arrow_spacing: int = 5, scale: float = 0.1, width: float = 0.002,
        color: Any = (0, 0, 0),
    ) -> None:  # fmt: skip
        """Draw arrows for `vector_field`, one per `arrow_spacing` elements along both axes.

        The longest vector of the field has the length `scale`, a fraction of the window; width: of
        the lines, a fraction of its height; color: of all arrows. Raises ToolError.
        """
        at, way = shape_arrays.vector_arrows("vector_field", vector_field, arrow_spacing)
        ends = shape_arrays.arrow_lines(at, np.asarray(way) * (scale / 0.1), 0.2, 30)
        points = np.stack(ends, 1).reshape(-1, 2).astype(np.float32)
        self.lines(points, width, color=color)

    def scene(self, scene: Scene) -> None:
        """Draw a scene over the previous layers, and empty it."""
        require_ggui()
        self._layers.append(scene.take(self.size[0] / self.size[1]))
        self._scenes.append(scene)
        self.is_touched = True

    def _put(self, shape: DrawCall) -> None:
        drawn = self._pool.put(shape)
        if drawn is not None:
            self._add(drawn)

    def _add(self, drawn: Any) -> None:
        from vkchi.ui.picture import Layer

        self.is_touched = True
        if not self._layers or self._layers[-1].view is not None:
            self._layers.append(Layer([]))
        self._layers[-1].objects.append(drawn)

    # --- frames ----------------------------------------------------------------------------------

    def take(self) -> list[Layer]:
        """Remove and return the layers of the frame."""
        layers, self._layers, self.is_touched = self._layers, [], False
        return layers

    def recycle(self) -> None:
        """Release the objects of a drawn frame for reuse."""
        used, self._used, self._images = self._used, [], {}
        for image in used:
            self._images.setdefault(image.bytes.shape[:2], []).append(image)
        self._pool.recycle()
        scenes, self._scenes = self._scenes, []
        for scene in scenes:
            scene.recycle()


def image_bytes(img: Any) -> Numbers:
    """Convert the argument of `set_image` to u8[w, h, 4] with alpha 255.

    As in Taichi, floats are clamped to 0 to 1 and truncated to multiples of 1/255. Raises
    ToolError.
    """
    picture = img.texels("set_image") if isinstance(img, Texture) else img
    values = draw_calls.read_in_place("set_image", "the image", picture)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim == 4 and values.shape[3] == 1:  # from ti.Matrix.field(3, 1, ...)
        values = values[:, :, :, 0]
    if values.ndim != 3 or values.shape[2] not in (1, 2, 3, 4):
        raise ToolError(
            "set_image: an image has the shape (width, height), or a third axis or vectors of 1 to "
            f"4 channels, not {values.shape}"
        )
    if values.dtype.kind != "f" and values.dtype != np.uint8:
        raise ToolError(f"set_image: an image is made of floats or u8, not of {values.dtype}")
    if values.dtype != np.uint8:
        values = values * np.float32(255)
        np.fmin(np.fmax(values, 0, out=values), 255, out=values)  # maps nan to 0
    channels = values.shape[2]
    found = (np.zeros if channels == 2 else np.empty)((*values.shape[:2], 4), np.uint8)
    np.copyto(found[:, :, : 3 if channels == 1 else channels], values, casting="unsafe")
    found[:, :, 3] = 255
    return found
