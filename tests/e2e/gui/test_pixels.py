"""Pixels that the drawing methods of ti.GUI paint, off-screen.

The expectations are the rule that Taichi's own GUI follows, found by measuring it: a disc covers of
pixel (i, j) its radius less the distance of (i, j) from its middle, a line that of (i + 0.5, j +
0.5), cut to 0 to 1; a triangle all pixels whose middle is inside; later shapes blend over earlier
ones. Channels were equal to Taichi's within half of 1/255 for all methods here, `contour` within
3/255.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.gui import paint, shape_arrays

W, H = 24, 16
MIDDLES = np.stack(np.meshgrid(np.arange(W) + 0.5, np.arange(H) + 0.5, indexing="ij"), -1)
RNG = np.random.default_rng(5)


def make(**options) -> ti.GUI:
    return ti.GUI("test", res=(W, H), show_gui=False, **options)


def disc(x: float, y: float, r: float) -> np.ndarray:
    """Coverage of each pixel by a disc; lengths are in pixels."""
    return np.clip(r - np.linalg.norm(MIDDLES - 0.5 - (x, y), axis=2), 0, 1)


def line(a, b, r: float) -> np.ndarray:
    a, b = np.array(a, float), np.array(b, float)
    t = np.clip((MIDDLES - a) @ (b - a) / max((b - a) @ (b - a), 1e-9), 0, 1)
    return np.clip(r - np.linalg.norm(MIDDLES - a - t[..., None] * (b - a), axis=2), 0, 1)


def rgb(colour: int) -> np.ndarray:
    return np.array([colour >> 16 & 255, colour >> 8 & 255, colour & 255]) / 255


def blend(*layers: tuple[np.ndarray, int], back: int = 0) -> np.ndarray:
    """Layers of coverage and colour, one over the other."""
    image = np.tile(rgb(back), (W, H, 1))
    for part, colour in layers:
        image += part[..., None] * (rgb(colour) - image)
    return image


def check(gui: ti.GUI, expected: np.ndarray) -> None:
    image = gui.get_image()
    assert image.shape == (W, H, 4) and image.dtype == np.float32
    np.testing.assert_allclose(image[..., :3], expected, atol=1e-5)
    assert (image[..., 3] == 1).all()


def test_a_disc() -> None:
    gui = make(background_color=0x336699)
    gui.circle((0.5, 0.25), color=0xFF8000, radius=3)
    check(gui, blend((disc(12, 4, 3), 0xFF8000), back=0x336699))
    assert gui.get_image()[12, 4].tolist() == pytest.approx([1, 128 / 255, 0, 1])


def test_img_has_the_pixels_of_this_frame() -> None:
    gui = make()
    gui.circle((0.5, 0.5), color=0xFF0000, radius=3)
    assert gui.img.shape == (W, H, 4) and gui.img[W // 2, H // 2].tolist()[:3] == [1, 0, 0]
    assert np.array_equal(gui.img, gui.get_image())


def test_img_is_a_copy_of_the_image_that_was_set() -> None:
    gui, picture = make(), np.random.default_rng(3).random((W, H, 3)).astype(np.float32)
    gui.set_image(picture)
    first = gui.img
    assert first.dtype == np.float32 and first.flags.c_contiguous and first.flags.writeable
    np.testing.assert_allclose(first[..., :3], picture, atol=1 / 255)
    first[:] = 0
    assert np.array_equal(gui.img, gui.get_image()) and gui.img.max() > 0


def test_the_smallest_disc_is_a_pixel() -> None:
    gui = make()
    gui.circle(ti.Vector([0.5, 0.5]))
    image = gui.get_image()
    assert image[12, 8].tolist() == [1, 1, 1, 1] and image[..., :3].sum() == 3


def test_discs_cover_earlier_ones() -> None:
    at, radius = np.array([[0.4, 0.5], [0.5, 0.5], [1.02, 0.1]]), np.array([3.0, 2.5, 4.0])
    gui = make()
    gui.circles(at, radius=radius, color=np.array([0xFF0000, 0x00FF00, 0x0000FF]))
    each = zip(at * (W, H), radius, (0xFF0000, 0x00FF00, 0x0000FF))
    check(gui, blend(*[(disc(*p, r), c) for p, r, c in each]))


@pytest.mark.parametrize("indices", [[1, 0, 2], np.array([1, 0, 2]), "field"])
def test_palette_colours(indices) -> None:
    if isinstance(indices, str):
        indices = ti.field(ti.i32, 3)
        indices.from_numpy(np.array([1, 0, 2], np.int32))
    at = np.array([[0.2, 0.5], [0.5, 0.5], [0.8, 0.5]])
    gui = make()
    gui.circles(at, radius=2, palette=[0x068587, 0xED553B, 0xEEEEF0], palette_indices=indices)
    each = zip(at * (W, H), (0xED553B, 0x068587, 0xEEEEF0))
    check(gui, blend(*[(disc(*p, 2), c) for p, c in each]))


def test_positions_of_fields_ndarrays_and_lists() -> None:
    at = np.array([[0.25, 0.25], [0.75, 0.5]], np.float32)
    x, y = ti.Vector.field(2, ti.f32, 2), ti.Vector.ndarray(2, ti.f32, 2)
    x.from_numpy(at)
    y.from_numpy(at)
    for given in (at, x, y, at.tolist(), at.astype(np.float64)):
        gui = make()
        gui.circles(given, radius=2)
        check(gui, blend((disc(6, 4, 2), 0xFFFFFF), (disc(18, 8, 2), 0xFFFFFF)))


def test_line_pixels() -> None:
    a, b = np.array([[0.1, 0.2], [0.3, 0.9]]), np.array([[0.9, 0.4], [0.3, 0.9]])
    gui = make()
    gui.line(a[0], b[0], radius=1.5, color=0xFFAA00)
    check(gui, blend((line(a[0] * (W, H), b[0] * (W, H), 1.5), 0xFFAA00)))
    gui = make()
    gui.lines(a, b, radius=np.array([1, 2]), color=np.array([0xFF, 0xFF00]))  # one is a point
    each = zip(a * (W, H), b * (W, H), (1, 2), (0xFF, 0xFF00))
    check(gui, blend(*[(line(p, q, r), c) for p, q, r, c in each]))


def inside(*corners) -> np.ndarray:
    sides = []
    for k in range(3):
        (ax, ay), (bx, by) = np.array(corners[k]) * (W, H), np.array(corners[k - 2]) * (W, H)
        sides.append((bx - ax) * (MIDDLES[..., 1] - ay) - (by - ay) * (MIDDLES[..., 0] - ax))
    sides = np.array(sides)
    return ((sides >= 0).all(0) | (sides <= 0).all(0)).astype(float)


def test_triangle_pixels() -> None:
    corners = (0.11, 0.13), (0.86, 0.34), (0.41, 0.91)
    gui = make()
    gui.triangle(*corners, color=0x123456)
    check(gui, blend((inside(*corners), 0x123456)))
    assert inside(*corners).sum() > 50
    gui = make()
    a, b, c = (np.array([p, q]) for p, q in zip(corners, ((0, 0), (0, 0), (1, 1))))
    gui.triangles(a, b, c, color=np.array([0xFF, 0xFF00]))  # the second has no area
    check(gui, blend((inside(*corners), 0xFF)))


def test_a_rectangle_is_four_lines() -> None:
    gui = make()
    gui.rect((0.25, 0.75), (0.75, 0.25), radius=1, color=0xFFFFFF)
    corners = [(6, 12), (18, 12), (18, 4), (6, 4)]
    sides = [line(corners[k], corners[(k + 1) % 4], 1) for k in range(4)]
    check(gui, blend(*[(side, 0xFFFFFF) for side in sides]))


def arrow_lines(orig, direction, tip=0.2, angle=45):
    orig, direction = np.array(orig), np.array(direction)
    end, a = orig + direction, np.deg2rad(180 - angle)
    turned = [np.array([[np.cos(s), -np.sin(s)], [np.sin(s), np.cos(s)]]) for s in (-a, a)]
    ends = [(orig, end), *[(end, end + tip * t @ direction) for t in turned]]
    return [line(p * (W, H), q * (W, H), 1) for p, q in ends]


def test_arrow_pixels() -> None:
    gui = make()
    gui.arrow((0.2, 0.3), (0.5, 0.2), color=0xFF)
    check(gui, blend(*[(part, 0xFF) for part in arrow_lines((0.2, 0.3), (0.5, 0.2))]))
    gui = make()
    gui.arrows(np.array([[0.2, 0.3]]), np.array([[0.5, 0.2]]), tip_scale=0.4, angle=30)
    parts = arrow_lines((0.2, 0.3), (0.5, 0.2), 0.4, 30)
    check(gui, blend(*[(part, 0xFFFFFF) for part in parts]))


@pytest.mark.parametrize(("bound", "x"), [(0.5, (0.25, 0.75)), (0, (0.0, 1.0))])
def test_arrow_fields(bound: float, x) -> None:
    values = RNG.random((2, 2, 2)) * 0.4
    gui = make()
    gui.arrow_field(values, bound=bound)
    places = [(i, j) for i in range(2) for j in range(2)]
    arrows = [arrow_lines((x[i], x[j]), values[i, j]) for i, j in places]
    layers = [arrows[n][k] for k in range(3) for n in range(4)]  # shafts first
    check(gui, blend(*[(part, 0xFFFFFF) for part in layers]))


def test_point_fields() -> None:
    values = ti.field(ti.f32, (2, 2))
    values.from_numpy(np.array([[1, 2], [3, 1.5]], np.float32))
    gui = make()
    gui.point_field(values, color=0xFF00)
    places = [(6, 4, 1), (6, 12, 2), (18, 4, 3), (18, 12, 1.5)]
    check(gui, blend(*[(disc(*p), 0xFF00) for p in places]))


def test_vector_fields() -> None:
    values = np.zeros((8, 4, 2))
    values[0, 0], values[4, 0], values[5, 3] = (0.3, 0.4), (2, 0), (7, 0)  # the last is left out
    gui = make()
    gui.vector_field(values, arrow_spacing=4)
    arrows = [arrow_lines((0, 0), (0.03 / 7, 0.04 / 7)), arrow_lines((0.5, 0), (0.2 / 7, 0))]
    layers = [arrows[n][k] for k in range(3) for n in range(2)]
    check(gui, blend(*[(part, 0xFFFFFF) for part in layers]))


def test_contour_pixels() -> None:
    gui = ti.GUI("test", res=(16, 2), show_gui=False)
    values = np.repeat(np.linspace(2, 5, 4)[:, None], 2, 1)
    gui.contour(values, normalize=True)
    image = gui.get_image()
    first, middle, last = image[0, 0, :3], image[7:9, 0, :3].mean(0), image[15, 1, :3]
    np.testing.assert_allclose(first, [0.0504, 0.0298, 0.528], atol=3 / 255)
    np.testing.assert_allclose(middle, [0.797, 0.28, 0.47], atol=4 / 255)
    np.testing.assert_allclose(last, [0.94, 0.9752, 0.1313], atol=3 / 255)
    gui.contour(values)  # all above 1
    np.testing.assert_allclose(gui.get_image()[0, 0, :3], last, atol=1e-6)


def test_contour_with_a_colour_map() -> None:
    """Black and white are the ends of grey."""
    pytest.importorskip("cmap")
    gui = ti.GUI("test", res=(4, 2), show_gui=False)
    gui.contour(np.array([[0.0, 0.0], [1.0, 1.0]]), cmap="gray")
    image = gui.get_image()
    assert image[0, 0, :3].tolist() == [0, 0, 0] and image[3, 1, :3].tolist() == [1, 1, 1]


@pytest.mark.parametrize("n", [4, 5000])
@pytest.mark.filterwarnings("error")
def test_non_finite_positions_are_not_painted(n: int) -> None:
    """Neither by numpy nor by the kernel, and nothing warns."""
    at = np.full((n, 2), np.nan)
    at[0], at[1], at[2] = (0.5, 0.5), 1e300, -np.inf
    gui = make()
    gui.circles(at, radius=np.where(np.arange(n) == 0, 2, 1e300))
    gui.lines(at, at[::-1], radius=3, color=0xFF)
    gui.triangles(at, at + 0.25, at[::-1], color=0xFF)
    check(gui, blend((disc(12, 8, 2), 0xFFFFFF)))


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "u1", "u2", "u4"])
@pytest.mark.parametrize("channels", [None, 1, 2, 3, 4])
def test_set_image_pixels(dtype: str, channels: int | None) -> None:
    shape = (W, H) if channels is None else (W, H, channels)
    values = RNG.random(shape)
    if dtype[0] == "u":
        values = (values * np.iinfo(dtype).max).astype(dtype)
    values = values.astype(dtype)
    gui = make()
    gui.set_image(values)
    expected = np.zeros((W, H, 4))
    scale = np.iinfo(dtype).max if dtype[0] == "u" else 1
    colours = values.reshape(W, H, -1) / scale
    expected[:, :, : 3 if channels in (None, 1) else channels] = colours
    if (channels or 1) < 4:
        expected[:, :, 3] = 1
    np.testing.assert_allclose(gui.get_image(), expected, atol=1e-3 if dtype == "f2" else 1e-6)


@pytest.mark.parametrize("dtype", [ti.f32, ti.u8, ti.u32])
def test_fields_and_ndarrays_as_pictures(dtype, need) -> None:
    need(str(dtype))
    top = 1.0 if dtype is ti.f32 else 2 ** (8 if dtype is ti.u8 else 32) - 1
    for n in (1, 2, 3, 4):
        x, y = ti.Vector.field(n, dtype, (W, H)), ti.Vector.ndarray(n, dtype, (W, H))
        for array in (x, y):
            array.fill(top)
            gui = make()
            gui.set_image(array)
            wanted = {1: [1, 1, 1, 1], 2: [1, 1, 0, 1], 3: [1, 1, 1, 1], 4: [1, 1, 1, 1]}[n]
            assert (gui.get_image() == wanted).all()
    z = ti.field(dtype, (W, H))
    z.fill(top)
    gui.set_image(z)
    assert (gui.get_image() == 1).all()


def test_textures_as_pictures() -> None:
    colours = RNG.integers(0, 256, (W, H, 4), dtype=np.uint8)
    texture = ti.Texture(ti.Format.rgba8, (W, H))
    texture.from_ndarray(np.ascontiguousarray(colours.swapaxes(0, 1)))
    gui = make()
    gui.set_image(texture)
    np.testing.assert_allclose(gui.get_image(), colours / 255, atol=1e-6)
    grey = ti.Texture(ti.Format.r32f, (W, H))
    values = RNG.random((W, H)).astype(np.float32)
    grey.from_ndarray(np.ascontiguousarray(values.T))
    gui.set_image(grey)
    assert np.array_equal(gui.get_image()[:, :, 1], values)


def test_a_picture_is_drawn_upon_and_left_alone() -> None:
    values = np.full((W, H, 3), 0.5, np.float32)
    gui = make()
    gui.set_image(values)
    gui.circle((0.5, 0.5), radius=3)
    check(gui, 0.5 + 0.5 * disc(12, 8, 3)[..., None] * np.ones(3))
    assert (values == 0.5).all()


def test_clear_and_show_begin_anew(tmp_path: Path) -> None:
    gui = make(background_color=0x204060)
    gui.circle((0.5, 0.5), radius=9)
    gui.clear(0xFF0000)
    check(gui, blend(back=0xFF0000))
    gui.circle((0.5, 0.5), radius=3)
    gui.show(tmp_path / "a.png")
    check(gui, blend(back=0x204060))
    assert gui.frame == 1


def test_saved_image_files(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    gui = make()
    values = RNG.random((W, H, 3)).astype(np.float32) * 1.5 - 0.2
    gui.set_image(values)
    gui.show(str(tmp_path / "a.png"))
    read = ti.tools.imread(tmp_path / "a.png")
    assert np.array_equal(read, (np.clip(values, 0, 1) * np.float32(255)).astype(np.uint8))


def test_text_pixels() -> None:
    pytest.importorskip("PIL")
    gui = ti.GUI("test", res=(200, 200), show_gui=False)
    gui.text("Hg\nHg", (0.25, 0.5), font_size=30, color=0xFF8000)
    image = gui.get_image()
    x, y = np.nonzero(image[:, :, 0] > 0.5)
    assert 50 <= x.min() <= 56 and x.max() < 110  # two letters wide, from the position on
    assert 86 <= y.max() <= 100 and y.min() < 50  # below the position, two lines
    assert image[..., :3].max((0, 1)).tolist() == pytest.approx([1, 128 / 255, 0], abs=0.02)
    gui.text("far out", (3, -7))


# --- the two ways to paint -----------------------------------------------------------------------


def some_shapes(kinds: str, n: int) -> shape_arrays.ShapeBatch:
    """Shapes in and around a window of 90 x 70 pixels: small and large ones, and one that goes far
    beyond it."""
    res, random = np.array([90, 70], np.float32), np.random.default_rng(7)
    a, b, c = ((random.random((n, 2)) * 1.4 - 0.2).astype(np.float32) * res for _ in range(3))
    b[: n // 2], c[: n // 2] = a[: n // 2] + (9, 1), a[: n // 2] - 7
    b[-2] = a[-2] + (0, 40)  # upright
    a[-1], b[-1] = (-3e3, -6e3), (3e3, 6e3)
    colour = random.integers(0, 1 << 24, n).astype(np.uint32)
    radius = (random.random(n) * 5 - 1).astype(np.float32)
    parts = {
        "discs": lambda: shape_arrays.discs(a, radius, colour),
        "lines": lambda: shape_arrays.segments(a, b, radius, colour),
        "triangles": lambda: shape_arrays.triangles(a, b, c, colour),
    }
    mixed = shape_arrays.join_batches([parts[kind]() for kind in kinds.split()])
    order = random.permutation(len(mixed.radius))
    return shape_arrays.ShapeBatch(*(x[order] for x in mixed))


@pytest.mark.parametrize("alpha", [1.0, 0.25])
@pytest.mark.parametrize("most", [1 << 20, 500])
@pytest.mark.parametrize(
    "kinds", ["discs", "lines", "triangles", "discs lines", "discs lines triangles"]
)
def test_the_kernel_paints_as_numpy_does(
    kinds: str, most: int, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paint, "MOST_ENTRIES", most)
    lot = some_shapes(kinds, 120)
    boxes = lot.boxes((90, 70))
    one, other = (np.full((90, 70, 4), 0.25, np.float32) for _ in range(2))
    one[..., 3] = other[..., 3] = alpha
    paint.paint_by_numpy(one, lot, boxes)
    paint.paint_by_kernel(other, lot, boxes)
    np.testing.assert_allclose(other, one, atol=2e-5)
    assert np.ptp(one[..., :3]) > 0.5


def test_tiles_have_the_shapes_that_touch_them_and_few_others() -> None:
    """Tiles of a large triangle and of lines, in order; nothing else from their boxes."""
    size = 40 * paint.TILE
    ends = np.array([[0.0, 0.0], [size - 1.0, size - 1.0]], np.float32)
    colour = np.zeros(2, np.uint32)
    lines = shape_arrays.segments(ends[[0, 1]], ends[[1, 0]], np.ones(2, np.float32), colour)
    half = shape_arrays.triangles(
        *(np.array([x], np.float32) for x in (*ends, (0, size - 1))), colour[:1]
    )
    found = {"lines": lines, "half": half}
    counts = {}
    for name, made in found.items():
        (lot,) = paint.bin_shapes(made, made.boxes((size, size)), (size, size))
        counts[name] = len(lot.order)
        along = lot.starts[np.arange(40) * 41]  # the tiles on the diagonal
        if name == "lines":
            assert all(lot.order[k : k + 2].tolist() == [0, 1] for k in along)
    assert 2 * 40 <= counts["lines"] <= 2 * 3 * 40 and 820 <= counts["half"] <= 900


def test_many_discs_are_painted_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paint, "paint_by_numpy", None)
    at = RNG.random((2000, 2))
    gui = make()
    gui.circles(at, radius=1.5, color=RNG.integers(0, 1 << 24, 2000))
    assert gui.get_image()[..., :3].mean() > 0.1


def test_a_tape_does_not_record_painting() -> None:
    x = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add() -> None:
        for i in x:
            loss[None] += 2 * x[i]

    gui = make()
    with ti.ad.Tape(loss):
        add()
        gui.circles(RNG.random((500, 2)))
        assert gui.get_image()[..., 0].max() > 0.9
    assert x.grad.to_numpy().tolist() == [2, 2, 2]


def test_drawing_needs_no_device(own_runtime: None) -> None:
    ti.reset()
    gui = make()
    gui.circles(RNG.random((200, 2)), radius=2)
    assert gui.get_image()[..., 0].max() == 1


def test_positions_that_are_nan_are_left_out() -> None:
    gui = make()
    gui.circles(np.array([[np.nan, 0.5], [0.5, np.inf], [0.5, 0.5]]), radius=2)
    gui.line((0, np.nan), (1, 1))
    gui.circle((0.2, 0.2), radius=-1)
    gui.circle((1e30, -1e30), radius=5)
    gui.line((-1e30, 0.3), (1e30, 0.3))
    gui.circle((0.5, 0.5), radius=np.nan)
    gui.triangle((0, np.nan), (1, 0), (0, 1))
    gui.circles(np.zeros((0, 2)))
    check(gui, blend((disc(12, 8, 2), 0xFFFFFF)))
