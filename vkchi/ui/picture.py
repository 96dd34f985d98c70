"""Rendering of frames by pygfx: layers of objects, drawn in order into a readable image.

Colours are stored as given, as in Taichi. pygfx would interpret them as linear light, and store and
show them as sRGB.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pygfx as gfx
import wgpu
from pygfx.renderers.wgpu import WgpuRenderer, select_adapter, set_wgpu_limits

from vkchi.interrupts.local import suppress
from vkchi.runtime import find_runtime
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

Floats = np.ndarray[Any, Any]
Triple = tuple[float, float, float]
FORMAT = "rgba8unorm"
LARGEST = ("max-storage-buffer-binding-size", "max-buffer-size")  # raised to the device's
# From fractions of the window, from the lower left, to clip coordinates; z is nearly constant.
PLANE = np.array([[2, 0, 0, -1], [0, 2, 0, -1], [0, 0, 1e-6, 0.5], [0, 0, 0, 1]], np.float64)
# Depth reversal: pygfx has 0 nearest and 1 farthest, `Camera` the opposite.
NEAREST_FIRST = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, -1, 1], [0, 0, 0, 1]], np.float64)


class Layer(NamedTuple):
    """Objects seen by one camera, with matrices for row vectors as in `Camera`.

    The matrices of a 2D layer are None. lights: pairs of position and colour.
    """

    objects: list[gfx.WorldObject]
    view: Floats | None = None
    projection: Floats | None = None
    ambient: Triple = (0.0, 0.0, 0.0)
    lights: tuple[tuple[Triple, Triple], ...] = ()


class MatrixCamera(gfx.Camera):
    """A camera with given matrices."""

    def __init__(self) -> None:
        super().__init__()
        self._matrix = PLANE

    def put(self, layer: Layer) -> None:
        """Set the matrices for a layer."""
        if layer.view is None or layer.projection is None:
            self._matrix, turn = PLANE, np.eye(4)
        else:
            self._matrix = NEAREST_FIRST @ layer.projection.T.astype(np.float64)
            turn = np.linalg.inv(layer.view.T.astype(np.float64))
        self.world.matrix = turn
        self.flag_update()

    def _update_projection_matrix(self) -> Floats:
        return self._matrix


class FrameRenderer:
    """An image that is redrawn in each frame.

    `target` is a canvas, or a texture for off-screen rendering.
    """

    def __init__(self, target: gfx.Texture | Any) -> None:
        choose_adapter()
        self.renderer = WgpuRenderer(
            target, pixel_scale=1, pixel_filter="nearest", ppaa="none", sort_objects=False,
            enable_events=False,
        )  # fmt: skip
        self.blender = self.renderer._blender
        self.blender.texture_info["color"]["format"] = FORMAT
        self._eye, self._lights = MatrixCamera(), list[gfx.PointLight]()
        self._ambient = gfx.AmbientLight(intensity=1)
        self._background = gfx.Background(None, gfx.BackgroundMaterial())
        if not isinstance(target, gfx.Texture):
            self._show_as_is(target)

    def _show_as_is(self, canvas: Any) -> None:
        """Disable colour conversion between the image and the screen."""
        context, device = canvas.get_context("wgpu"), self.renderer.device
        shown = context.get_preferred_format(device.adapter)
        if not shown.endswith("-srgb"):
            self.renderer.gamma_correction = 2.2  # cancels pygfx's own gamma
        context.configure(device=device, format=shown.removesuffix("-srgb"))

    def compose(self, layers: Sequence[Layer], background: Triple) -> None:
        """Draw a frame into the image: the background, then the layers in order.

        The background is left out if the first object is an image, which covers it.
        """
        self.renderer._renders_since_last_flush = 0  # frames need not be presented
        is_covered = bool(layers) and layers[0].view is None and is_image(layers[0].objects[0])
        if not is_covered:
            self._background.material.set_colors(light_colour(background))
            layers = [Layer([self._background]), *layers]
        for k, layer in enumerate(layers):
            scene = gfx.Scene()
            scene.add(*layer.objects)
            self._light(scene, layer)
            self._eye.put(layer)
            self.renderer.render(scene, self._eye, clear=k == 0, flush=False)
            scene.clear()

    def _light(self, scene: gfx.Scene, layer: Layer) -> None:
        while len(self._lights) < len(layer.lights):
            self._lights.append(gfx.PointLight(intensity=1))
        for light, (place, colour) in zip(self._lights, layer.lights):
            light.local.position = place
            light.intensity = max(1.0, *colour)
            light.color = light_colour(tuple(c / light.intensity for c in colour))
            scene.add(light)
        self._ambient.intensity = max(1.0, *layer.ambient)
        self._ambient.color = light_colour(
            tuple(c / self._ambient.intensity for c in layer.ambient)
        )
        scene.add(self._ambient)

    def view(self) -> wgpu.GPUTextureView:
        """The image as a render target for overlays."""
        return self.blender.get_texture_view("color", wgpu.TextureUsage.RENDER_ATTACHMENT)

    def present(self) -> None:
        """Copy the image to the canvas."""
        self.renderer.flush()

    def pixels(self) -> Floats:
        """u8[w, h, 4] from the lower left."""
        return np.swapaxes(self.renderer.snapshot()[::-1], 0, 1)

    def depths(self) -> Floats:
        """f32[w, h] from the lower left: 1 nearest, 0 farthest and for the background."""
        texture = self.blender.get_texture("depth")
        width, height, _ = texture.size
        data = self.renderer.device.queue.read_texture(
            {"texture": texture, "mip_level": 0, "origin": (0, 0, 0)},
            {"offset": 0, "bytes_per_row": 4 * width, "rows_per_image": height},
            (width, height, 1),
        )
        rows = np.frombuffer(data, np.float32).reshape(height, width)
        return np.swapaxes(1 - rows[::-1], 0, 1)


@functools.cache
def choose_adapter() -> None:
    """Select the GPU of the kernels for pygfx, and raise its buffer limits to the maximum.

    pygfx has one device per process. The GPU is found by its name among wgpu's Vulkan adapters. No
    effect without a runtime, without such an adapter, if pygfx is already in use, or on a second
    call.
    """
    runtime = find_runtime()
    if runtime is None:
        return
    for adapter in wgpu.gpu.enumerate_adapters_sync():
        found = adapter.info["backend_type"], adapter.info["device"]
        if found == ("Vulkan", runtime.device.info.name):
            with suppress(RuntimeError):  # pygfx is already in use
                select_adapter(adapter)
                set_wgpu_limits(**{name: adapter.limits[name] for name in LARGEST})
            return


def light_colour(colour: Sequence[float]) -> gfx.Color:
    """A pygfx colour with the given linear components; negative ones become 0."""
    red, green, blue = (max(float(c), 0.0) for c in colour)
    return gfx.Color.from_physical(red, green, blue)


def make_texture(size: tuple[int, int]) -> gfx.Texture:
    """A target for off-screen rendering."""
    return gfx.Texture(dim=2, size=(*size, 1), format=FORMAT)


def is_image(drawn: gfx.WorldObject) -> bool:
    """True if the object is an Image, which covers the window."""
    return isinstance(drawn, Image)


class Image(gfx.Image):
    """An image that fills the window, with linear interpolation."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.bytes = np.zeros((*shape, 4), np.uint8)
        self.texture = gfx.Texture(self.bytes, dim=2, colorspace="physical")
        material = gfx.ImageBasicMaterial(
            clim=(0, 255), interpolation="linear", alpha_mode="solid", depth_test=False,
            depth_write=False,
        )  # fmt: skip
        super().__init__(gfx.Geometry(grid=self.texture), material)
        w, h = shape
        # Rows of the texture are columns here: swap x and y.
        self.local.matrix = np.array(
            [[0, 1 / w, 0, 0.5 / w], [1 / h, 0, 0, 0.5 / h], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64
        )

    def put(self, values: Floats) -> None:
        """Copy the pixels u8[w, h, 4]."""
        self.bytes[...] = values
        self.texture.update_full()
