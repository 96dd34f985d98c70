"""Programs as Taichi's documentation of GGUI has them, in our words, a few frames each: arguments
and order of calls. Each returns its window, of which a picture is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import vkchi as ti

PROGRAMS: dict[str, Callable[[], ti.ui.Window]] = {}


@pytest.fixture(autouse=True)
def off_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TI_GUI_SHOW", "0")


def program(run: Callable[[], ti.ui.Window]) -> Callable[[], ti.ui.Window]:
    PROGRAMS[run.__name__] = run
    return run


def frames(window: ti.ui.Window, count: int = 2) -> Iterator[int]:
    """Frames of a loop `while window.running`; the last is not shown."""
    for k in range(count):
        assert window.running
        yield k
        if k < count - 1:
            window.show()


@program
def a_colour_and_shapes() -> ti.ui.Window:
    window = ti.ui.Window(name="Window Title", res=(320, 180), fps_limit=200, pos=(150, 150))
    canvas = window.get_canvas()
    at = ti.Vector.field(2, dtype=ti.f32, shape=4)
    at.from_numpy(np.array([[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8]], np.float32))
    colours = ti.Vector.field(3, dtype=ti.f32, shape=4)
    colours.fill(ti.Vector([0.1, 0.6, 0.3]))
    indices = ti.field(ti.i32, shape=6)
    indices.from_numpy(np.array([0, 1, 2, 2, 3, 0], np.int32))
    for _ in frames(window):
        canvas.set_background_color((1.0, 1.0, 1.0))
        canvas.triangles(at, color=(0.5, 0.5, 0.5), indices=indices, per_vertex_color=colours)
        canvas.lines(at, width=0.02, indices=indices, color=(0.0, 0.0, 0.0))
        canvas.circles(at, radius=0.05, color=(0.9, 0.2, 0.1), per_vertex_color=None)
    return window


@program
def an_image_from_a_kernel() -> ti.ui.Window:
    window = ti.ui.Window("image", (320, 180), vsync=True)
    canvas = window.get_canvas()
    img = ti.Vector.field(3, ti.f32, shape=window.get_window_shape())

    @ti.kernel
    def shade(t: ti.f32):
        for i, j in img:
            img[i, j] = ti.Vector([i / 320, j / 180, t])

    for k in frames(window):
        shade(0.5 * k)
        canvas.set_image(img)
    return window


@program
def a_scene_with_all_there_is() -> ti.ui.Window:
    window = ti.ui.Window("scene", (320, 180))
    canvas, scene, camera = window.get_canvas(), window.get_scene(), ti.ui.make_camera()
    balls = ti.Vector.field(3, dtype=ti.f32, shape=10)
    colours = ti.Vector.field(4, dtype=ti.f32, shape=10)
    ends = ti.Vector.field(3, dtype=ti.f32, shape=10)
    transforms = ti.Matrix.field(4, 4, ti.f32, shape=10)
    corners, indices = ti.Vector.field(3, ti.f32, 3), ti.field(ti.i32, 3)
    corners.from_numpy(np.array([[0, 0, 0], [0.2, 0, 0], [0, 0.2, 0]], np.float32))

    @ti.kernel
    def place():
        for k in balls:
            balls[k] = ti.Vector([k * 0.2 - 0.9, 0.5, 0.0])
            colours[k] = ti.Vector([k / 9, 0.4, 1 - k / 9, 1.0])
            ends[k] = ti.Vector([ti.sin(k * 0.7), ti.cos(k * 0.7) * 0.5, -0.5])
            transforms[k] = ti.Matrix.identity(ti.f32, 4)
            transforms[k][0, 3] = k * 0.2 - 0.9
            transforms[k][1, 3] = -0.6
        for k in indices:
            indices[k] = k

    place()
    for _ in frames(window):
        camera.position(0.0, 0.0, 3.0)
        camera.lookat(0.0, 0.0, 0.0)
        camera.up(0.0, 1.0, 0.0)
        camera.projection_mode(ti.ui.ProjectionMode.Perspective)
        camera.track_user_inputs(window, movement_speed=0.03, hold_key=ti.ui.RMB)
        scene.set_camera(camera)
        scene.point_light(pos=(0, 1, 2), color=(1, 1, 1))
        scene.ambient_light((0.5, 0.5, 0.5))
        scene.particles(balls, color=(0.7, 0.3, 0.2), radius=0.08, per_vertex_color=colours)
        scene.lines(ends, color=(0.3, 0.7, 0.2), width=3.0, vertex_count=10, vertex_offset=0)
        scene.mesh_instance(corners, indices, transforms=transforms, two_sided=True,
                            instance_count=8, instance_offset=1)  # fmt: skip
        canvas.scene(scene)
    return window


@program
def a_cloth() -> ti.ui.Window:
    n = 16
    x = ti.Vector.field(3, dtype=float, shape=(n, n))
    vertices = ti.Vector.field(3, dtype=float, shape=n * n)
    indices = ti.field(int, shape=(n - 1) * (n - 1) * 6)
    colours = ti.Vector.field(3, dtype=float, shape=n * n)

    @ti.kernel
    def build():
        for i, j in ti.ndrange(n - 1, n - 1):
            square = i * (n - 1) + j
            indices[square * 6 + 0] = i * n + j
            indices[square * 6 + 1] = (i + 1) * n + j
            indices[square * 6 + 2] = i * n + (j + 1)
            indices[square * 6 + 3] = (i + 1) * n + j + 1
            indices[square * 6 + 4] = i * n + (j + 1)
            indices[square * 6 + 5] = (i + 1) * n + j
        for i, j in ti.ndrange(n, n):
            colours[i * n + j] = (
                (0.22, 0.72, 0.52) if (i // 4 + j // 4) % 2 == 0 else (1, 0.33, 0.45)
            )

    @ti.kernel
    def step(t: float):
        for i, j in x:
            x[i, j] = [i / n - 0.5, 0.2 * ti.sin(4 * i / n + t), j / n - 0.5]
        for i, j in ti.ndrange(n, n):
            vertices[i * n + j] = x[i, j]

    build()
    window = ti.ui.Window("cloth", (320, 180), vsync=True)
    canvas = window.get_canvas()
    canvas.set_background_color((1, 1, 1))
    scene, camera = ti.ui.Scene(), ti.ui.Camera()
    for k in frames(window):
        step(0.1 * k)
        camera.position(0.0, 1.0, 1.5)
        camera.lookat(0.0, 0.0, 0)
        scene.set_camera(camera)
        scene.point_light(pos=(0, 1, 2), color=(1, 1, 1))
        scene.ambient_light((0.5, 0.5, 0.5))
        scene.mesh(vertices, indices=indices, per_vertex_color=colours, two_sided=True)
        canvas.scene(scene)
    return window


@program
def events_and_widgets() -> ti.ui.Window:
    window = ti.ui.Window("events", res=(320, 180))
    canvas, gui, colour, use = window.get_canvas(), window.GUI, (0.2, 0.3, 0.4), True
    gravity, count = ti.Vector.field(2, ti.f32, shape=()), 3
    for _ in frames(window):
        if window.get_event(ti.ui.PRESS) and window.event.key == "r":
            raise AssertionError
        if window.event is not None:
            gravity[None] = [0, 0]
        for event in window.get_events(ti.ui.PRESS):
            assert event.key in (ti.ui.ESCAPE, ti.ui.SPACE)
        if window.is_pressed(ti.ui.LEFT, "a") or window.is_pressed(ti.ui.LMB):
            gravity[None][0] = -1
        assert len(window.get_cursor_pos()) == 2
        gui.begin("settings", 0.05, 0.3, 0.4, 0.6)
        gui.text("on and off")
        use = gui.checkbox("use", use)
        count = gui.slider_int("count", count, 0, 10)
        colour = gui.color_edit_3("colour", colour)
        if gui.button("again"):
            count = 0
        gui.end()
        canvas.set_background_color(colour)
    assert use and count == 3
    return window


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, tmp_path) -> None:
    window = PROGRAMS[name]()
    image = window.get_image_buffer_as_numpy()
    depth = window.get_depth_buffer_as_numpy()
    has_scene = name in ("a_cloth", "a_scene_with_all_there_is")
    assert image.shape == (320, 180, 4) and image[..., :3].std() > 0.03
    assert depth.shape == (320, 180) and (depth.max() > 0) == has_scene
    pytest.importorskip("PIL")
    window.save_image(str(tmp_path / "image.png"))
    window.show()
    window.destroy()


def test_scene_program() -> None:
    window = a_scene_with_all_there_is()
    image = window.get_image_buffer_as_numpy()[..., :3]
    scale = 90 / np.tan(np.pi / 8) / 3
    at = (160 + scale * (np.arange(10) * 0.2 - 0.9)).astype(int)
    row = image[at, int(90 + scale * 0.5)]
    wanted = np.array([1, 0.4, 1]) * np.abs(np.arange(10)[:, None] / 9 - [0, 0, 1]) ** [1, 0, 1]
    light = row[:, 1] / 0.4  # more than one
    assert abs(row - np.minimum(wanted * light[:, None], 1)).max() < 0.02 and light.min() > 1
    low = image[np.clip(at + 3, 0, 319), int(90 - scale * 0.6) + 4].max(-1)
    assert (low > 0.3).tolist() == [False] + [True] * 8 + [False]


def test_a_film(tmp_path) -> None:
    pytest.importorskip("PIL")
    window = ti.ui.Window("film", (40, 30), show_window=False)
    film = ti.tools.VideoManager(tmp_path, framerate=24, automatic_build=False)
    for k in range(3):
        window.get_canvas().set_background_color((k / 2, 0, 0))
        film.write_frame(window.get_image_buffer_as_numpy())
        window.show()
    film.make_video(gif=True, mp4=False)
    assert len(list((tmp_path / "frames").glob("*.png"))) == 3
