"""`ti.ui.Canvas`: what is drawn in a window, one thing over the other.

Owns: Taichi's methods. Positions are parts of the window from the lower left. What is drawn is
copied when it is declared. Must not know: how it is shown.

    canvas = window.get_canvas()
    canvas.set_background_color((1, 1, 1))
    canvas.circles(x, radius=0.01, color=(0.3, 0.5, 0.8))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import ToolError
from vkchi.gui import diagrams
from vkchi.gui.image import colour_map
from vkchi.texture import Texture
from vkchi.types.lazy_numpy import np
from vkchi.ui import shapes
from vkchi.ui.packages import require
from vkchi.ui.reused import Pool
from vkchi.ui.scene import Scene
from vkchi.ui.shapes import GREY, Numbers, Shape

if TYPE_CHECKING:
    from vkchi.ui.picture import Image, Layer

SIZES = {2: 1, 3: 0}  # axes of an image: of numbers, of channels


class Canvas:
    """The layers of a window's next frame. `window.get_canvas()` gives it."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.background: shapes.Colour = (0.0, 0.0, 0.0)
        self.is_touched = True
        self._layers: list[Layer] = []
        self._pool, self._scenes = Pool(), list[Scene]()
        self._images: dict[tuple[int, int], list[Image]] = {}
        self._used: list[Image] = []

    def set_background_color(self, color: Any) -> None:
        """The colour of what nothing is drawn on: red, green, blue from 0 to 1."""
        self.background, self.is_touched = shapes.colour_of("set_background_color", color), True

    def set_image(self, img: Any) -> None:
        """Fill the window with an image, smooth where it has not the window's size.

        img: a field, ndarray, numpy array, tensor or texture of shape (width, height), of numbers
        or vectors of 1 to 4, or with a third axis of as many; floats from 0 to 1, or u8. Raises
        ToolError.
        """
        values = image_bytes(img)
        require()
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
        """Fill the window with the colours of a field of numbers, dark blue for 0, yellow for 1;
        normalize: from its least to its greatest. The map is plasma: raises ToolError for
        others."""
        if cmap_name != "plasma":
            raise ToolError(f"contour: the colour map is 'plasma', not {cmap_name!r}: set_image()")
        values = diagrams.plane("contour", scalar_field).astype(np.float64)
        if normalize:
            values = (values - values.min()) / (values.max() - values.min() + 1e-16)
        self.set_image(colour_map(values))

    def circles(
        self, centers: Any, radius: float, color: Any = GREY, per_vertex_color: Any = None,
        per_vertex_radius: Any = None,
    ) -> None:  # fmt: skip
        """Discs; radii are parts of the window's height. centers: vectors of 2; per_vertex_color,
        per_vertex_radius: of each, in place of those of all. Raises ToolError."""
        self._put(
            shapes.balls(
                "circles", 2, centers, radius, color, per_vertex_color, per_vertex_radius
            )
        )  # fmt: skip

    def lines(
        self, vertices: Any, width: float, indices: Any = None, color: Any = GREY,
        per_vertex_color: Any = None,
    ) -> None:  # fmt: skip
        """Lines between vertices 0 and 1, 2 and 3, or those that `indices` name; `width` is a part
        of the window's height. Raises ToolError."""
        pixels = width * self.size[1]
        self._put(
            shapes.lines("lines", 2, vertices, pixels, indices, color, per_vertex_color)
        )  # fmt: skip

    def triangles(
        self, vertices: Any, color: Any = GREY, indices: Any = None, per_vertex_color: Any = None
    ) -> None:
        """Triangles of three vertices after each other, or those that `indices` name. Raises
        ToolError."""
        self._put(
            shapes.surface(
                "triangles", 2, vertices, indices, None, color, per_vertex_color
            )
        )  # fmt: skip

    def vector_field(
        self, vector_field: Any, arrow_spacing: int = 5, scale: float = 0.1, width: float = 0.002,
        color: Any = (0, 0, 0),
    ) -> None:  # fmt: skip
        """Arrows of a field of vectors, one for every `arrow_spacing` along both axes; the longest
        is `scale` long, a part of the window."""
        at, way = diagrams.vector_arrows("vector_field", vector_field, arrow_spacing)
        ends = diagrams.arrow_lines(at, np.asarray(way) * (scale / 0.1), 0.2, 30)
        points = np.stack(ends, 1).reshape(-1, 2).astype(np.float32)
        self.lines(points, width, color=color)

    def scene(self, scene: Scene) -> None:
        """Draw a scene over what is there; the scene is empty then."""
        require()
        self._layers.append(scene.take(self.size[0] / self.size[1]))
        self._scenes.append(scene)
        self.is_touched = True

    def _put(self, shape: Shape) -> None:
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
        """The layers of the frame; none are left."""
        layers, self._layers, self.is_touched = self._layers, [], False
        return layers

    def recycle(self) -> None:
        """The frame is drawn: what it used may be used again."""
        used, self._used, self._images = self._used, [], {}
        for image in used:
            self._images.setdefault(image.bytes.shape[:2], []).append(image)
        self._pool.recycle()
        scenes, self._scenes = self._scenes, []
        for scene in scenes:
            scene.recycle()


def image_bytes(img: Any) -> Numbers:
    """u8[w, h, 4] of what `set_image` takes; floats are cut to 0 to 1, and down to a 255th, as
    Taichi cuts them. Raises ToolError."""
    values = shapes.seen("set_image", "the image", texels(img))
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim == 4 and values.shape[3] == 1:  # of a ti.Matrix.field(3, 1, ...)
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
        np.fmin(np.fmax(values, 0, out=values), 255, out=values)  # nan is 0
    channels = values.shape[2]
    found = (np.zeros if channels == 2 else np.empty)((*values.shape[:2], 4), np.uint8)
    np.copyto(found[:, :, : 3 if channels == 1 else channels], values, casting="unsafe")
    found[:, :, 3] = 255
    return found


def texels(img: Any) -> Any:
    """An image, of a texture its texels: [x, y], with channels in the order red, green, blue."""
    if not isinstance(img, Texture):
        return img
    if img.num_dims != 2:
        raise ToolError(f"set_image: a texture of two axes is needed, not {img!r}")
    values = np.swapaxes(img.storage.seen(), 0, 1)
    if img.texel.scalar == "u8":
        values = values.astype(np.uint8)
    if values.ndim == 2:
        return values
    return values[:, :, [img.texel.order.index(name) for name in "rgba" if name in img.texel.order]]
