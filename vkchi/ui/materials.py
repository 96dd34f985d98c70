"""Shapes as pygfx objects with custom shaders. Imported when the first shape is drawn.

Arrays are copied to the renderer's memory when a shape is put into its object, in one copy
(`Queue.write_buffer`). pygfx itself would keep the array and read it when the frame is shown, after
the program may have changed it.
"""

from __future__ import annotations

from typing import Any

import pygfx as gfx
import wgpu
from pygfx.renderers.wgpu import BaseShader, Binding, get_shared, register_wgpu_render_function
from pygfx.renderers.wgpu.engine.update import ensure_wgpu_object

from vkchi.types.lazy_numpy import np
from vkchi.ui.draw_calls import DrawCall
from vkchi.ui.shaders import SQUARES, TEXTS

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST


class ShapeObject(gfx.WorldObject):
    """A shape in the renderer's memory."""

    def __init__(self, shape: DrawCall) -> None:
        super().__init__(None, ShapeMaterial(shape))
        self.count = (0, 0)
        self.buffers = {name: make_buffer(values) for name, values in shape.arrays.items()}

    def put(self, shape: DrawCall) -> None:
        """Replace the contents by a shape with an equal key; its arrays are copied immediately."""
        queue = get_shared().device.queue
        for name, values in shape.arrays.items():
            queue.write_buffer(ensure_wgpu_object(self.buffers[name]), 0, values)
        is_square = shape.kind in SQUARES
        self.count = (4, shape.items) if is_square else (3 * shape.items, shape.instances)
        data = self.material.uniform_buffer.data
        data["color"], data["size"] = (*shape.colour, 1.0), shape.size
        self.material.uniform_buffer.update_full()


def make_buffer(values: np.ndarray[Any, Any]) -> gfx.Buffer:
    """A buffer for an array [n] or [n, k] of 4-byte scalars."""
    width = f"{values.shape[1]}x" if values.ndim == 2 else ""
    return gfx.Buffer(
        nbytes=values.nbytes,
        nitems=len(values),
        format=f"{width}{values.dtype.kind}4",
        usage=USAGE,
    )


class ShapeMaterial(gfx.Material):
    """Opaque material of a shape. 2D shapes are drawn without depth test."""

    uniform_type = dict(gfx.Material.uniform_type, color="4xf4", size="f4")

    def __init__(self, shape: DrawCall) -> None:
        is_flat = "flat" in shape.switches
        super().__init__(alpha_mode="solid", depth_test=not is_flat, depth_write=not is_flat)
        self.kind, self.switches = shape.kind, shape.switches
        self.widths = {
            name: values.shape[1] for name, values in shape.arrays.items() if values.ndim == 2
        }


@register_wgpu_render_function(ShapeObject, ShapeMaterial)
class ShapeShader(BaseShader):
    """Template variables and bindings for a shape's shader."""

    type = "render"

    def __init__(self, drawn: ShapeObject) -> None:
        super().__init__(drawn)
        material = drawn.material
        self["kind"] = material.kind
        for switch in ("flat", "two_sided", "wireframe"):
            self[switch] = switch in material.switches
        for name, switch in {
            "indices": "indexed", "normals": "normals", "radii": "radii",
            "transforms": "instanced",
        }.items():  # fmt: skip
            self[switch] = name in drawn.buffers
        self["pos"] = material.widths["positions"]
        self["colour"] = material.widths.get("colors", 0)

    def get_bindings(
        self, drawn: ShapeObject, shared: Any, scene: Any
    ) -> dict[int, dict[int, Binding]]:
        bindings = [
            Binding("u_stdinfo", "buffer/uniform", shared.uniform_buffer),
            Binding("u_wobject", "buffer/uniform", drawn.uniform_buffer),
            Binding("u_material", "buffer/uniform", drawn.material.uniform_buffer),
        ] + [
            Binding(f"s_{name}", "buffer/read_only_storage", buffer, "VERTEX")
            for name, buffer in drawn.buffers.items()
        ]
        numbered = dict(enumerate(bindings))
        self.define_bindings(0, numbered)
        return {0: numbered}

    def get_pipeline_info(self, drawn: ShapeObject, shared: Any) -> dict[str, str]:
        is_square = drawn.material.kind in SQUARES
        topologies = wgpu.PrimitiveTopology
        return {
            "primitive_topology": (
                topologies.triangle_strip if is_square else topologies.triangle_list
            ),
            "cull_mode": wgpu.CullMode.none,
        }

    def get_render_info(self, drawn: ShapeObject, shared: Any) -> dict[str, tuple[int, ...]]:
        return {"indices": drawn.count}

    def get_code(self) -> str:
        return TEXTS[self["kind"]]
