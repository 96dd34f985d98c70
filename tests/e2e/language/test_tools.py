"""ti.tools: images and films as files, read back by other means."""

import itertools
import sys
import warnings

import numpy as np
import pytest

import vkchi as ti

PIL = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(5)
tools = ti.tools


def pixels(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


# --- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "bmp"])
@pytest.mark.parametrize("shape", [(4, 2), (4, 2, 1), (4, 2, 3), (5, 3, 4)])
def test_image_file_round_trip(tmp_path, suffix, shape):
    if suffix == "bmp" and shape[-1] == 4:
        pytest.skip("not every writer of BMP keeps alpha")
    values, name = pixels(*shape), str(tmp_path / f"x.{suffix}")
    tools.imwrite(values, name)
    found = tools.imread(name)
    expected = values if values.ndim == 3 else values[:, :, np.newaxis]
    assert found.dtype == np.uint8 and np.array_equal(found[:, :, : expected.shape[2]], expected)


def test_jpg_is_close(tmp_path):
    name, ramp = str(tmp_path / "x.jpg"), np.linspace(0, 255, 32 * 24 * 3)
    values = ramp.reshape(32, 24, 3).astype(np.uint8)
    tools.imwrite(values, name)
    assert np.abs(tools.imread(name).astype(int) - values).max() < 12


def test_x_is_first_and_y_goes_up(tmp_path):
    values, name = pixels(4, 2, 3), str(tmp_path / "x.png")
    tools.imwrite(values, name)
    image = PIL.open(name)
    assert image.size == (4, 2)
    for x, y in itertools.product(range(4), range(2)):
        assert image.getpixel((x, 1 - y)) == tuple(values[x, y].tolist())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_clipped_and_cut(tmp_path, dtype):
    values, name = (
        np.array([[0, 0.25, 0.5, 0.999], [1, 2, -1, 0.1]], dtype),
        str(tmp_path / "x.png"),
    )
    tools.imwrite(values, name)
    assert tools.imread(name)[:, :, 0].tolist() == [[0, 63, 127, 254], [255, 255, 0, 25]]


def test_every_byte_survives_as_a_float(tmp_path):
    values, name = np.arange(256, dtype=np.uint8).reshape(16, 16), str(tmp_path / "x.png")
    tools.imwrite(values.astype(np.float32) / 255, name)
    assert np.array_equal(tools.imread(name)[:, :, 0], values)


@pytest.mark.ours("imwrite-types")
def test_wide_integers_count_by_their_range(tmp_path):
    name = str(tmp_path / "x.png")
    for dtype in (np.uint16, np.uint32, np.uint64):
        most = np.iinfo(dtype).max
        tools.imwrite(np.array([[0, most // 2, most]], dtype), name)
        assert tools.imread(name)[0, :, 0].tolist() == [0, 127, 255]


@pytest.mark.parametrize("bits", [pytest.param(16, marks=pytest.mark.ours("imwrite-types")), 32])
def test_bytes_survive_as_the_upper_bits_of_wide_integers(tmp_path, bits):
    values, name = np.arange(256, dtype=f"u{bits // 8}").reshape(16, 16), str(tmp_path / "x.png")
    tools.imwrite(values << (bits - 8), name)
    assert np.array_equal(tools.imread(name)[:, :, 0], values)


@pytest.mark.ours("imwrite-types")
def test_halves_and_nan(tmp_path):
    name = str(tmp_path / "x.png")
    tools.imwrite(np.array([[0.5, np.nan, np.inf, -np.inf]], np.float16), name)
    assert tools.imread(name)[0, :, 0].tolist() == [127, 0, 255, 0]


@pytest.mark.parametrize("kind", ["scalar field", "vector field", "ndarray", "vector ndarray"])
def test_fields_and_ndarrays(tmp_path, kind):
    made = {
        "scalar field": lambda: ti.field(ti.f32, shape=(6, 4)),
        "vector field": lambda: ti.Vector.field(3, ti.f32, shape=(6, 4)),
        "ndarray": lambda: ti.ndarray(ti.f32, shape=(6, 4)),
        "vector ndarray": lambda: ti.Vector.ndarray(3, ti.f32, shape=(6, 4)),
    }[kind]()
    values, name = RNG.random(made.to_numpy().shape).astype(np.float32), str(tmp_path / "x.png")
    made.from_numpy(values)
    tools.imwrite(made, name)
    expected = (values * np.float32(255)).astype(np.uint8).reshape(6, 4, -1)
    assert np.array_equal(tools.imread(name), expected)


@pytest.mark.ours("imwrite-types")
def test_tensors_paths_and_large_suffixes(tmp_path):
    torch = pytest.importorskip("torch")
    tools.imwrite(torch.ones(3, 2), tmp_path / "X.PNG")
    assert tools.imread(tmp_path / "X.PNG").tolist() == [[[255]] * 2] * 3


@pytest.mark.ours("imread-channels")
def test_image_channels(tmp_path):
    name = str(tmp_path / "x.png")
    tools.imwrite(np.full((3, 2, 3), 200, np.uint8), name)
    found = {n: tools.imread(name, n) for n in (1, 2, 3, 4)}
    assert {n: a.shape for n, a in found.items()} == {n: (3, 2, n) for n in found}
    assert found[1][0, 0].tolist() == [200] and found[4][0, 0].tolist() == [200, 200, 200, 255]


@pytest.mark.parametrize("mode, channels", [("1", 1), ("L", 1), ("P", 3), ("RGB", 3), ("RGBA", 4)])
def test_files_of_other_programs(tmp_path, mode, channels):
    name = str(tmp_path / "x.png")
    source = PIL.fromarray(np.where(pixels(2, 4, 3) > 99, 255, 0).astype(np.uint8)).convert(mode)
    source.save(name)
    found = tools.imread(name)
    assert found.shape == (4, 2, channels)
    shown = np.asarray(source.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])).reshape(2, 4, -1)
    assert np.array_equal(found, shown.swapaxes(0, 1)[:, ::-1])


WRONG_IMAGES = [
    np.zeros((2, 2), np.int32), np.zeros((2, 2), bool), np.zeros((2, 2, 2), np.uint8),
    np.zeros(4, np.uint8), np.zeros((2, 2, 2, 3), np.uint8),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(WRONG_IMAGES)))
def test_invalid_image_raises(tmp_path, k):
    with pytest.raises((ValueError, AssertionError)):
        tools.imwrite(WRONG_IMAGES[k], str(tmp_path / "x.png"))


@pytest.mark.parametrize("name", ["x.xyz", "x", "none/x.png"])
def test_files_that_cannot_be_written(tmp_path, name):
    with pytest.raises(RuntimeError):
        tools.imwrite(pixels(2, 2), str(tmp_path / name))


@pytest.mark.ours("image-orientation")
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_photographs_are_turned_upright(tmp_path, orientation):
    """6: the camera was turned left, so that the image must be turned right; 8: the reverse."""
    rows, name = pixels(4, 6, 3), str(tmp_path / "x.png")
    exif = PIL.Exif()
    exif[0x0112] = orientation
    PIL.fromarray(rows).save(name, exif=exif)
    turned = {1: rows, 3: rows[::-1, ::-1], 6: np.rot90(rows, -1), 8: np.rot90(rows)}[orientation]
    assert np.array_equal(tools.imread(name, origin="upper"), turned)


def warnings_of(write):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        write()
    return [str(w.message) for w in found]


@pytest.mark.ours("image-orientation")
def test_floats_of_0_to_255_warn(tmp_path):
    name, ramp = str(tmp_path / "x.png"), np.linspace(0, 255, 64, dtype=np.float32).reshape(8, 8)
    (text,) = warnings_of(lambda: tools.imwrite(ramp, name))
    assert (
        text.startswith("most floats of the image exceed 1, up to 255") and "divide by 255" in text
    )
    right = [ramp / 255, ramp / 20, (ramp > 100) * np.float32(255), np.where(ramp > 200, ramp, 0.5)]
    for values in right:
        assert warnings_of(lambda values=values: tools.imwrite(values, name)) == []


@pytest.mark.parametrize("text", [None, "no image"])
def test_files_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "x.png"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RuntimeError):
        tools.imread(str(path))


@pytest.mark.parametrize("size", [(8, 4), (3,), (2, 2), (7, 5), (4, 2)])
def test_image_sizes(size):
    values = pixels(4, 2, 3)
    w, h = size if len(size) == 2 else size * 2
    x, y = np.arange(w) * 4 // w, np.arange(h) * 2 // h
    found = tools.imresize(values, *size)
    assert isinstance(found, np.ndarray) and np.array_equal(found, values[np.ix_(x, y)])


def test_sizes_of_fields():
    field = ti.field(ti.f32, shape=(4, 4))
    field.from_numpy(np.arange(16, dtype=np.float32).reshape(4, 4))
    assert tools.imresize(field, 2).tolist() == [[0, 2], [8, 10]]


@pytest.mark.parametrize("size", [(0, 2), (2.5, 2), (-1,)])
def test_sizes_that_are_none(size):
    with pytest.raises((AssertionError, TypeError)):
        tools.imresize(pixels(4, 4), *size)


def test_windows_need_a_screen(monkeypatch):
    for key in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(key, raising=False)
    if sys.platform in ("win32", "darwin"):
        pytest.skip("there always is one")
    with pytest.raises(RuntimeError):
        tools.imshow(pixels(4, 4))


@pytest.mark.ours("image-origin")
@pytest.mark.parametrize("origin", ["lower", "upper"])
def test_imshow_passes_the_image_to_the_viewer(origin, monkeypatch, tmp_path):
    cmap = pytest.importorskip("cmap")
    shown = []
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(PIL.Image, "show", lambda image, title: shown.append((title, image)))
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    tools.imshow(values, "ramp", origin=origin, cmap="viridis")
    ((title, image),) = shown
    tools.imwrite(values, str(tmp_path / "x.png"), origin=origin, cmap="viridis")
    assert title == "ramp"
    assert np.array_equal(np.array(image), np.array(PIL.open(tmp_path / "x.png")))
    rows = values if origin == "upper" else values.T[::-1]
    expected = np.array([[cmap.Colormap("viridis")(float(v)).rgba8[:3] for v in r] for r in rows])
    off = np.abs(np.array(image)[..., :3].astype(int) - expected)
    assert off.max() <= 4, "values are truncated to bytes first"


@pytest.mark.ours("missing-packages")
def test_without_pillow(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install Pillow"):
        tools.imwrite(pixels(2, 2), tmp_path / "x.png")


def test_a_julia_set(tmp_path):
    n, name = 64, str(tmp_path / "julia.png")
    image = ti.field(ti.f32, shape=(2 * n, n))

    @ti.func
    def square(z):
        return ti.Vector([z[0] ** 2 - z[1] ** 2, 2 * z[0] * z[1]])

    @ti.kernel
    def paint(t: ti.f32):
        for i, j in image:
            c = ti.Vector([-0.8, ti.cos(t) * 0.2])
            z = ti.Vector([i / n - 1, j / n - 0.5]) * 2
            count = 0
            while z.norm() < 20 and count < 50:
                z = square(z) + c
                count += 1
            image[i, j] = 1 - count * 0.02

    paint(0.3)
    tools.imwrite(image, name)
    found = tools.imread(name)[:, :, 0]
    assert found.shape == (2 * n, n) and len(np.unique(found)) > 5
    assert np.array_equal(found, (image.to_numpy() * np.float32(255)).astype(np.uint8))


def test_read_change_write(tmp_path):
    source, result = str(tmp_path / "a.png"), str(tmp_path / "b.png")
    values = pixels(8, 6, 3)
    tools.imwrite(values, source)
    loaded = tools.imread(source)
    field = ti.Vector.field(3, ti.i32, shape=loaded.shape[:2])
    field.from_numpy(loaded.astype(np.int32))

    @ti.kernel
    def invert():
        for i, j in field:
            field[i, j] = 255 - field[i, j]

    invert()
    tools.imwrite(field.to_numpy().astype(np.uint8), result)
    assert np.array_equal(tools.imread(result), 255 - values)


# --- colours -------------------------------------------------------------------------------------


def test_image_colours():
    assert ti.hex_to_rgb(0x336699) == (0.2, 0.4, 0.6)
    assert ti.rgb_to_hex((0.2, 0.4, 0.6)) == 0x336699
    assert ti.rgb_to_hex([2.0, -1.0, 0.5]) == 0xFF007F


def test_arrays_of_colours():
    codes = np.array([0xFF0000, 0x12C456])
    rgb = ti.hex_to_rgb(codes)
    assert np.allclose(rgb, [[1, 0x12 / 255], [0, 0xC4 / 255], [0, 0x56 / 255]])
    assert ti.rgb_to_hex(np.array([[0, 0.5], [1, 0.2], [0.3, 0.4]])).tolist() == [65356, 8336230]


# --- films ---------------------------------------------------------------------------------------


def test_video_frames(tmp_path):
    manager = tools.VideoManager(output_dir=str(tmp_path / "out"), automatic_build=False)
    frames = [pixels(8, 6, 3) for _ in range(3)]
    manager.write_frame(frames[0])
    manager.write_frames(frames[1:])
    folder = tmp_path / "out" / "frames"
    assert manager.get_frame_directory() == str(folder)
    assert sorted(p.name for p in folder.iterdir()) == [f"{k:06d}.png" for k in range(3)]
    assert np.array_equal(tools.imread(str(folder / "000002.png")), frames[2])


def test_odd_frames_lose_a_row_and_a_column(tmp_path):
    manager = tools.VideoManager(output_dir=str(tmp_path), automatic_build=False)
    manager.write_frame(pixels(7, 5, 3))
    assert tools.imread(str(tmp_path / "frames" / "000000.png")).shape == (6, 4, 3)


@pytest.mark.ours("films")
def test_gif_file(tmp_path):
    manager = tools.VideoManager(str(tmp_path), "film", framerate=10, automatic_build=False)
    for k in range(3):
        manager.write_frame(np.full((8, 6, 3), k * 100, np.uint8))
    manager.make_video(gif=True, mp4=False)
    film = PIL.open(tmp_path / "film.gif")
    assert film.n_frames == 3 and film.size == (8, 6) and film.info["duration"] == 100
    manager.clean_frames()
    assert list((tmp_path / "frames").iterdir()) == []


@pytest.mark.ours("films")
def test_mp4_needs_a_package(tmp_path, monkeypatch):
    manager = tools.VideoManager(str(tmp_path))
    monkeypatch.setitem(sys.modules, "av", None)
    manager.write_frames([pixels(4, 4, 3)] * 4)  # builds after four, as far as it can
    assert (tmp_path / "video.gif").exists()
    with pytest.raises(ImportError, match="pip install av"):
        manager.make_video(mp4=True, gif=False)


def test_post_processors(tmp_path):
    class Dim:
        def process(self, img):
            return img // 2

    manager = tools.VideoManager(str(tmp_path), post_processor=Dim(), automatic_build=False)
    values = pixels(4, 4, 3)
    manager.write_frame(values)
    assert np.array_equal(tools.imread(str(tmp_path / "frames" / "000000.png")), values // 2)


@pytest.mark.ours("films")
def test_films_of_nothing(tmp_path):
    with pytest.raises(ValueError, match="no frame"):
        tools.VideoManager(str(tmp_path)).make_video()


@pytest.mark.ours("image-origin")
def test_origin_upper_takes_rows_from_the_top(tmp_path):
    """As in numpy and Pillow, whose own reading of the file is the reference."""
    rows = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    file = str(tmp_path / "a.png")
    ti.tools.imwrite(rows, file, origin="upper")
    np.testing.assert_array_equal(np.array(PIL.open(file)), rows)
    np.testing.assert_array_equal(ti.tools.imread(file, origin="upper"), rows)
    np.testing.assert_array_equal(ti.tools.imread(file), rows.swapaxes(0, 1)[:, ::-1])
    with pytest.raises(ti.VkchiError, match="origin is"):
        ti.tools.imwrite(rows, file, origin="top")


@pytest.mark.ours("image-origin")
def test_colour_maps_of_images(tmp_path):
    """The ends of viridis, by matplotlib's table: #440154 and #fde725."""
    pytest.importorskip("cmap")
    file = str(tmp_path / "a.png")
    ti.tools.imwrite(np.array([[0.0, 1.0]]), file, origin="upper", cmap="viridis")
    found = np.array(PIL.open(file)).astype(int)
    np.testing.assert_allclose(found[0], [[0x44, 0x01, 0x54], [0xFD, 0xE7, 0x25]], atol=1)
    with pytest.raises(ti.VkchiError, match="no colour map is called"):
        ti.tools.imwrite(np.zeros((2, 2)), file, cmap="no such map")
    with pytest.raises(ti.VkchiError, match="one channel"):
        ti.tools.imwrite(np.zeros((2, 2, 3)), file, cmap="gray")
