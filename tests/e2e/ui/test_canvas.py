"""Pictures of `ti.ui.Canvas`, by colours at pixels; windows are off-screen. Counts of pixels are
those of Taichi 1.7.4 at the same sizes."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ToolError
from vkchi.ui import draw_calls

W, H = 200, 100


@pytest.fixture(scope="module")
def window():
    made = ti.ui.Window("test", (W, H), show_window=False)
    yield made
    made.destroy()


@pytest.fixture
def canvas(window):
    found = window.get_canvas()
    found.set_background_color((0, 0, 0))
    return found


def shot(window) -> np.ndarray:
    """The frame: u8[w, h, 3]."""
    return np.rint(window.get_image_buffer_as_numpy()[:, :, :3] * 255).astype(np.uint8)


def field_of(values, dtype=ti.f32):
    values = np.asarray(values)
    made = ti.Vector.field(values.shape[-1], dtype, values.shape[:-1])
    made.from_numpy(values)
    return made


def extent(mask) -> list[int]:
    """First and last column, first and last row, count."""
    at = np.argwhere(mask)
    (x0, y0), (x1, y1) = at.min(0), at.max(0)
    return [x0, x1, y0, y1, len(at)]


def test_the_background(window, canvas) -> None:
    canvas.set_background_color((0.25, 0.5, 0.75))
    image = window.get_image_buffer_as_numpy()
    assert image.shape == (W, H, 4) and image.dtype == np.float32
    assert abs(shot(window) - np.array([63.75, 127.5, 191.25])).max() < 0.76


def test_a_circle(window, canvas) -> None:
    canvas.circles(field_of([[0.25, 0.75]]), radius=0.1, color=(1, 0.5, 0))
    image = shot(window)
    assert image[50, 75].tolist() == [255, 128, 0]
    assert extent(image[:, :, 0] > 127) == [40, 59, 65, 84, 316]
    x, y = np.meshgrid(np.arange(W) + 0.5 - 50, np.arange(H) + 0.5 - 75, indexing="ij")
    assert np.array_equal(image[:, :, 0] > 127, x * x + y * y < 100)


def test_circles_of_their_own(window, canvas) -> None:
    radii = ti.field(ti.f32, 3)
    radii.from_numpy(np.array([0.05, 0.1, 0.2], np.float32))
    colours = np.eye(3, dtype=np.float32)
    at = field_of([[0.2, 0.5], [0.5, 0.5], [0.8, 0.5]])
    canvas.circles(at, 0.3, per_vertex_color=field_of(colours), per_vertex_radius=radii)
    image = shot(window)
    for k, radius in enumerate((5, 10, 20)):
        columns = np.flatnonzero((image == 255 * colours[k]).all(-1).any(1))
        assert len(columns) == 2 * radius


def test_canvas_lines(window, canvas) -> None:
    ends = field_of([[0.1, 0.5], [0.9, 0.5]])
    canvas.lines(ends, width=0.1, color=(1, 1, 1))
    assert extent(shot(window)[:, :, 0] > 127) == [20, 179, 45, 54, 1600]
    ends.from_numpy(np.array([[0.5, 0.1], [0.5, 0.9]], np.float32))
    canvas.lines(ends, width=0.1, color=(1, 1, 1))
    assert extent(shot(window)[:, :, 0] > 127) == [95, 104, 10, 89, 800]


def test_lines_of_indices_and_colours(window, canvas) -> None:
    at = np.array([[0.1, 0.25], [0.9, 0.25], [0.1, 0.75], [0.9, 0.75]], np.float32)
    indices = ti.field(ti.i32, 2)
    indices.from_numpy(np.array([3, 2], np.int32))
    colours = np.array([[1, 0, 0]] * 2 + [[0, 1, 0], [0, 0, 1]], np.float32)
    canvas.lines(field_of(at), 0.04, indices, per_vertex_color=field_of(colours))
    image = shot(window).astype(int)
    assert image[:, :50].max() == 0
    assert image[22, 75, 1] > 240 > 20 > image[177, 75, 1]
    assert abs(image[100, 75] - [0, 127, 128]).max() <= 2


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_canvas_triangles(window, canvas, order) -> None:
    corners = np.array([[0, 0], [1, 0], [0, 1]], np.float32)
    colours = np.eye(3, dtype=np.float32)
    canvas.triangles(
        field_of(corners[list(order)]), per_vertex_color=field_of(colours[list(order)])
    )
    image = shot(window)
    wanted = {(0, 0): [253, 1, 1], (100, 25): [62, 128, 65], (50, 50): [62, 64, 129],
              (180, 90): [0, 0, 0], (66, 33): [85, 85, 85]}  # fmt: skip
    for place, colour in wanted.items():
        assert abs(image[place].astype(int) - colour).max() <= 1


def test_triangles_of_indices(window, canvas) -> None:
    corners = field_of([[0, 0], [1, 0], [1, 1], [0, 1]])
    indices = np.array([0, 1, 2, 0, 2, 3], np.int32)
    canvas.triangles(corners, color=(0.2, 0.4, 0.6), indices=indices)
    assert np.unique(shot(window).reshape(-1, 3), axis=0).tolist() == [[51, 102, 153]]


# --- images --------------------------------------------------------------------------------------

RNG = np.random.default_rng(1)
BYTES = RNG.integers(0, 256, (W, H, 3), np.uint8)


@pytest.mark.parametrize("kind", ["numpy", "field", "ndarray", "channels", "matrix"])
def test_an_image_of_bytes(window, canvas, kind: str, need) -> None:
    if kind != "numpy":
        need("u8")
    if kind == "numpy":
        img = BYTES
    elif kind == "field":
        img = field_of(BYTES, ti.u8)
    elif kind == "ndarray":
        img = ti.Vector.ndarray(3, ti.u8, (W, H))
        img.from_numpy(BYTES)
    elif kind == "channels":
        img = ti.field(ti.u8, (W, H, 3))
        img.from_numpy(BYTES)
    else:
        img = ti.Matrix.field(3, 1, ti.u8, (W, H))
        img.from_numpy(BYTES[..., None])
    canvas.set_image(img)
    assert np.array_equal(shot(window), BYTES)


@pytest.mark.parametrize("kind", ["numpy", "field", "grey", "rgba", "transposed"])
def test_an_image_of_floats(window, canvas, kind: str) -> None:
    values = RNG.uniform(-0.2, 1.2, (W, H, 4)).astype(np.float32)
    wanted = (values[:, :, :3].clip(0, 1) * np.float32(255)).astype(np.uint8)
    if kind == "grey":
        img = ti.field(ti.f32, (W, H))
        img.from_numpy(values[:, :, 0])
        wanted = np.repeat(wanted[:, :, :1], 3, 2)
    elif kind == "transposed":
        img = np.asfortranarray(values[:, :, :3])
    elif kind == "numpy":
        img = values[:, :, :3]
    else:
        img = field_of(values if kind == "rgba" else values[:, :, :3])
    canvas.set_image(img)
    assert np.array_equal(shot(window), wanted)


def test_a_small_image_is_smooth(window, canvas) -> None:
    small = np.zeros((4, 2, 3), np.float32)
    small[:, :, 0], small[:, :, 1] = np.arange(4)[:, None] / 4, np.arange(2) / 2
    canvas.set_image(small)
    image = shot(window)
    wanted = {(0, 0): [0, 0, 0], (50, 25): [32, 1, 0], (100, 25): [96, 1, 0],
              (199, 99): [191, 127, 0], (75, 75): [64, 127, 0], (60, 60): [45, 90, 0]}  # fmt: skip
    for place, colour in wanted.items():
        assert abs(image[place].astype(int) - colour).max() <= 1


@ti.kernel
def paint_colours(out: ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.rgba8, lod=0)):
    for i, j in ti.ndrange(W, H):
        out.store(ti.Vector([i, j]), ti.Vector([i / W, j / H, 0.5, 1.0]))


@ti.kernel
def paint_grey(out: ti.types.rw_texture(num_dimensions=2, fmt=ti.Format.r32f, lod=0)):
    for i, j in ti.ndrange(W, H):
        out.store(ti.Vector([i, j]), ti.Vector([i / W, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize("fmt", ["rgba8", "r32f"])
def test_a_texture(window, canvas, fmt: str) -> None:
    texture = ti.Texture(ti.Format[fmt], (W, H))
    (paint_colours if fmt == "rgba8" else paint_grey)(texture)
    canvas.set_image(texture)
    image = shot(window).astype(int)
    x, y = np.meshgrid(np.arange(W) / W, np.arange(H) / H, indexing="ij")
    wanted = np.stack([x, y, 0 * x + 0.5] if fmt == "rgba8" else [x] * 3, -1) * 255
    assert abs(image - wanted).max() <= 1


def test_a_contour(window, canvas) -> None:
    values = ti.field(ti.f32, (W, H))
    values.from_numpy(np.repeat(np.linspace(2, 4, W, dtype=np.float32)[:, None], H, 1))
    canvas.contour(values, normalize=True)
    image = shot(window)
    assert abs(image[0, 0].astype(int) - [0x0D, 0x08, 0x87]).max() <= 1
    assert abs(image[-1, 0].astype(int) - [0xF0, 0xF9, 0x21]).max() <= 1


def test_a_vector_field(window, canvas) -> None:
    values = ti.Vector.field(2, ti.f32, (20, 10))
    values.fill(ti.Vector([1.0, 0.0]))
    canvas.set_background_color((1, 1, 1))
    canvas.vector_field(values, arrow_spacing=5, scale=0.2, width=0.02)
    image = shot(window)[:, :, 0] < 128
    assert image[2:38, 0].all() and not image[41:49, 0].any() and image[52:88, 0].all()


# --- frames --------------------------------------------------------------------------------------


def test_the_later_is_over_the_earlier(window, canvas) -> None:
    at, corners = field_of([[0.25, 0.25]]), field_of([[0, 0], [1, 0], [0, 1]])
    disc = {"radius": 0.1, "color": (1, 0.5, 0)}
    canvas.triangles(corners, color=(0.2, 0.4, 0.6))
    canvas.circles(at, **disc)
    assert shot(window)[50, 25].tolist() == [255, 128, 0]
    canvas.circles(at, **disc)
    canvas.triangles(corners, color=(0.2, 0.4, 0.6))
    assert shot(window)[50, 25].tolist() == [51, 102, 153]
    canvas.circles(at, **disc)
    canvas.set_image(BYTES)
    assert np.array_equal(shot(window), BYTES)


def test_drawing_uses_contents_at_call(window, canvas) -> None:
    at = field_of([[0.25, 0.5]])

    @ti.kernel
    def move():
        at[0].x += 0.5

    canvas.circles(at, 0.1, color=(1, 0, 0))
    move()
    canvas.circles(at, 0.1, color=(0, 1, 0))
    at.fill(0)
    image = shot(window)
    assert image[50, 50].tolist() == [255, 0, 0] and image[150, 50].tolist() == [0, 255, 0]


def test_a_frame_begins_empty(window, canvas) -> None:
    canvas.circles(field_of([[0.5, 0.5]]), 0.1)
    seen = shot(window)
    window.show()
    assert np.array_equal(shot(window), seen)  # nothing new was drawn
    window.show()
    assert shot(window).max() == 0
    canvas.circles(np.zeros((0, 2), np.float32), 0.1)
    assert shot(window).max() == 0


KINDS = {
    "f32": lambda a: a, "f64": lambda a: a.astype(np.float64), "steps": lambda a: a[::-1][::-1],
    "list": lambda a: a.tolist(), "field": field_of, "f64 field": lambda a: field_of(a, ti.f64),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_position_arguments(window, canvas, kind: str, need) -> None:
    need(*(["f64"] if kind == "f64 field" else []))
    make = KINDS[kind]
    canvas.circles(make(np.array([[0.25, 0.5], [0.75, 0.5]], np.float32)), 0.1, color=(1, 1, 1))
    image = shot(window)
    assert image[50, 50].min() == 255 == image[150, 50].min()


def test_positions_among_other_numbers(window, canvas) -> None:
    """Members of one cell lie apart, and are put together."""
    mass, at = ti.field(ti.f32), ti.Vector.field(2, ti.f32)
    ti.root.dense(ti.i, 3).place(mass, at)
    at.from_numpy(np.array([[0.25, 0.5], [0.5, 0.5], [0.75, 0.5]], np.float32))
    canvas.circles(at, 0.1, color=(1, 1, 1))
    assert extent(shot(window)[:, :, 0] > 0) == [40, 159, 40, 59, 948]


WRONG = {
    "vectors of 2 or 3": lambda c: c.circles(np.zeros((4, 5)), 0.1),
    "per_vertex_color has fewer": lambda c: c.circles(
        np.zeros((4, 2)), 0.1, per_vertex_color=np.zeros((3, 3))
    ),
    "4 positions, and per_vertex_radius has 5": lambda c: c.circles(
        np.zeros((4, 2)), 0.1, per_vertex_radius=np.zeros(5)
    ),
    "indices are integers": lambda c: c.triangles(np.zeros((4, 2)), indices=np.zeros(3)),
    "a colour is red, green and blue": lambda c: c.set_background_color((1, 2)),
    "floats or u8": lambda c: c.set_image(np.zeros((3, 3), np.int32)),
    "1 to 4 channels": lambda c: c.set_image(np.zeros((3, 3, 5), np.float32)),
    "is an array of numbers": lambda c: c.circles("places", 0.1),
    "no colour map is called": lambda c: c.contour(np.zeros((3, 3)), "no such map"),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(canvas, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        WRONG[message](canvas)


def test_arrays_read_in_place() -> None:
    """Memory of the device that is the host's, and host memory, goes to the renderer as it is."""
    values = np.zeros((5, 3), np.float32)
    assert np.shares_memory(draw_calls.vectors_of_widths("test", "x", values, 3), values)
    field, array = field_of(values), ti.Vector.ndarray(3, ti.f32, 5)
    indices = ti.field(ti.i32, 6)
    if field.host is None:
        pytest.skip("the device's memory is not the host's")
    for x in (field, array):
        assert np.shares_memory(draw_calls.vectors_of_widths("test", "x", x, 3), x.host)
    assert np.shares_memory(draw_calls.vertex_indices("test", indices), indices.host)
    torch = pytest.importorskip("torch")
    tensor = torch.zeros((5, 3))
    assert np.shares_memory(draw_calls.vectors_of_widths("test", "x", tensor, 3), tensor.numpy())
