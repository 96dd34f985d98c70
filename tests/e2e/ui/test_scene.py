"""Pictures of `ti.ui.Scene`: where things are seen, how bright, how deep, against formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ToolError

W, H, FAR = 200, 100, 3.0
SCALE = H / 2 / math.tan(math.radians(30))  # pixels of a unit at distance 1
QUAD = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float32)
TWO = np.array([0, 1, 2, 0, 2, 3], np.int32)
COLOUR = (1.0, 0.5, 0.25)


@pytest.fixture(scope="module")
def window():
    made = ti.ui.Window("test", (W, H), show_window=False)
    yield made
    made.destroy()


@pytest.fixture
def scene(window):
    """A scene seen from (0, 0, 3), towards -z, with no light."""
    found = window.get_scene()
    found.set_camera(looking())
    found.ambient_light((0, 0, 0))
    return found


def looking(**options) -> ti.ui.Camera:
    camera = ti.ui.Camera()
    camera.position(0, 0, FAR)
    camera.lookat(0, 0, 0)
    camera.fov(60)
    for name, value in options.items():
        getattr(camera, name)(value)
    return camera


def field_of(values):
    values = np.asarray(values, np.float32)
    made = ti.Vector.field(values.shape[-1], ti.f32, values.shape[:-1])
    made.from_numpy(values)
    return made


def shot(window, scene) -> np.ndarray:
    """The frame: f32[w, h, 3]."""
    window.get_canvas().scene(scene)
    return window.get_image_buffer_as_numpy()[:, :, :3]


def rays() -> np.ndarray:
    """[w, h, 3]: from the eye through the middles of the pixels, one unit far along -z."""
    x, y = np.meshgrid(np.arange(W) + 0.5 - W / 2, np.arange(H) + 0.5 - H / 2, indexing="ij")
    return np.stack([x / SCALE, y / SCALE, -np.ones_like(x)], -1)


def lit(normal, at, lights, ambient=(0, 0, 0)) -> np.ndarray:
    sum_ = np.zeros_like(at) + ambient
    for place, colour in lights:
        way = place - at
        way /= np.linalg.norm(way, axis=-1, keepdims=True)
        sum_ += np.maximum((normal * way).sum(-1, keepdims=True), 0) * colour
    return np.minimum(sum_ * COLOUR, 1)


LIGHTS = [((0.5, 0.0, 2.0), (0.5, 0.25, 1.0)), ((-3.0, 4.0, 1.0), (0.2, 0.6, 0.1))]


def light(scene) -> None:
    scene.ambient_light((0.1, 0.2, 0.3))
    for place, colour in LIGHTS:
        scene.point_light(pos=place, color=colour)


# --- balls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [(0, 0, 0), (1.2, 0.5, 0.5), (-0.8, -0.3, 1.5)])
def test_a_ball(window, scene, centre) -> None:
    """A disc around the image of the centre, shaded as the front half of the ball, as in Taichi."""
    centre, radius = np.array(centre, float), 0.5
    light(scene)
    scene.particles(field_of([centre]), radius=radius, color=COLOUR)
    image = shot(window, scene)
    from_eye = centre - [0, 0, FAR]
    across = (rays()[:, :, :2] + from_eye[:2] / from_eye[2]) * np.linalg.norm(from_eye) / radius
    inside = 1 - (across**2).sum(-1)
    hit = inside > 1e-2  # at the outline, all is steep
    normal = np.concatenate([across, np.sqrt(np.maximum(inside, 0))[..., None]], -1)
    at = centre + radius * normal
    wanted = lit(normal, at, LIGHTS, (0.1, 0.2, 0.3))
    assert abs(image - wanted)[hit].max() < 0.011 and image[inside < -1e-3].max() == 0
    depth = window.get_depth_buffer_as_numpy()
    near, far = 0.1, 1000
    seen = near / (far - near) * (far / (FAR - at[..., 2]) - 1)
    assert abs(depth / seen - 1)[hit].max() < 4e-3 and depth[inside < -1e-3].max() == 0


@pytest.mark.parametrize("far", [0.0, 0.1, 0.25])
def test_a_ball_that_reaches_the_eye(window, scene, far: float) -> None:
    """From outside it is whole, though nearer than the near plane; from inside it is not seen."""
    scene.ambient_light((1, 1, 1))
    scene.particles(field_of([[0, 0, FAR - far]]), radius=0.2, color=COLOUR)
    image = shot(window, scene)
    assert (image[W // 2, H // 2].tolist() != [0, 0, 0]) == (far > 0.2)


def test_a_ball_without_perspective(window, scene) -> None:
    camera = looking(projection_mode=ti.ui.ProjectionMode.Orthogonal, left=-2, right=2)
    scene.set_camera(camera)
    scene.ambient_light((1, 1, 1))
    scene.particles(field_of([[1, 0.5, 0]]), radius=0.25, color=COLOUR)
    mask = shot(window, scene)[:, :, 0] > 0
    x, y = np.meshgrid(np.arange(W) / 50 + 0.01 - 2, np.arange(H) / 50 + 0.01 - 1, indexing="ij")
    assert np.array_equal(mask, (x - 1) ** 2 + (y - 0.5) ** 2 < 0.25**2)
    depth = window.get_depth_buffer_as_numpy()
    assert depth[150, 75] == pytest.approx((1000 - 2.75) / (1000 - 0.1), abs=1e-5)


@pytest.mark.parametrize("top", [-1, 1])
def test_a_ball_in_a_stretched_projection(window, scene, top: int) -> None:
    """Its outline is stretched and turned over as a surface is, and its light with it."""
    camera = looking(projection_mode=ti.ui.ProjectionMode.Orthogonal, top=top, bottom=-top)
    scene.set_camera(camera)
    scene.ambient_light((0.1, 0.1, 0.1))
    scene.point_light(pos=(0, 50, 0), color=(1, 1, 1))
    scene.particles(field_of([[0.5, 0.25, 0]]), radius=0.5, color=(1, 1, 1))
    image = shot(window, scene)[:, :, 0]
    x, y = np.meshgrid(np.arange(W) / 100 + 0.005 - 1, np.arange(H) / 50 + 0.01 - 1, indexing="ij")
    y *= -top
    assert np.array_equal(image > 0, (x - 0.5) ** 2 + (y - 0.25) ** 2 < 0.25)
    assert image[(y > 0.6) & (image > 0)].min() > 0.3 > image[(y < 0.2) & (image > 0)].max()


def test_balls_hide_each_other(window, scene) -> None:
    scene.ambient_light((1, 1, 1))
    colours = field_of(np.eye(3))
    radii = ti.field(ti.f32, 3)
    radii.from_numpy(np.array([0.3, 0.3, 0.9], np.float32))
    scene.particles(
        field_of([[0, 0, 0], [0, 0, 1], [0, 0, -1]]), 1, per_vertex_color=colours,
        per_vertex_radius=radii,
    )  # fmt: skip
    image = shot(window, scene)
    assert image[100, 50].tolist() == [0, 1, 0]  # the one in front
    assert image[100, 65].tolist() == [0, 0, 1]


def test_a_part_of_the_balls(window, scene) -> None:
    scene.ambient_light((1, 1, 1))
    at, colours = field_of([[-2, 0, 0], [-1, 0, 0], [0, 0, 0], [1, 0, 0]]), field_of(np.eye(4, 3))
    scene.particles(at, 0.2, per_vertex_color=colours, index_offset=1, index_count=2)
    image = shot(window, scene)
    x = [round(W / 2 + SCALE / FAR * k) for k in (-2, -1, 0, 1)]
    assert [image[k, 50].tolist() for k in x] == [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


# --- surfaces ------------------------------------------------------------------------------------


def plane_under(z: float = 0.0) -> np.ndarray:
    """Intersections of the pixels' rays with a plane."""
    return rays() * (FAR - z) + [0, 0, FAR]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_surface(window, scene, indexed: bool, two_sided: bool, turned: bool) -> None:
    """It is lit in front, where corners go round against the clock, and behind if it is asked
    for; it is seen from both sides."""
    order = TWO[::-1].copy() if turned else TWO
    light(scene)
    if indexed:
        indices = ti.field(ti.i32, 6)
        indices.from_numpy(order)
        scene.mesh(field_of(QUAD), indices, color=COLOUR, two_sided=two_sided)
    else:
        scene.mesh(field_of(QUAD[order]), color=COLOUR, two_sided=two_sided)
    image = shot(window, scene)
    at = plane_under()
    normal = np.array([0, 0, -1.0 if turned and not two_sided else 1.0])
    wanted = lit(normal, at, LIGHTS, (0.1, 0.2, 0.3))
    mask = abs(at[:, :, :2]).max(-1) < 1
    assert mask.sum() == 58 * 58 == (image.max(-1) > 0).sum()
    assert abs(image - wanted)[mask].max() < 0.004


@pytest.mark.parametrize("instanced", [True, False])
@pytest.mark.parametrize("two_sided", [True, False])
def test_a_surface_lit_from_behind(window, scene, instanced: bool, two_sided: bool) -> None:
    """As in Taichi, |normal . direction to the light| counts for two-sided meshes."""
    behind = [((0.5, 0.3, -2.0), (0.2, 0.3, 1.0))]
    scene.point_light(pos=behind[0][0], color=behind[0][1])
    if instanced:
        turn = ti.Matrix.field(4, 4, ti.f32, 1)
        turn[0] = np.eye(4)
        scene.mesh_instance(field_of(QUAD), TWO, color=COLOUR, two_sided=two_sided, transforms=turn)
    else:
        scene.mesh(field_of(QUAD), TWO, color=COLOUR, two_sided=two_sided)
    image, at = shot(window, scene), plane_under()
    wanted = lit(np.array([0, 0, -1.0]), at, behind) * two_sided
    mask = abs(at[:, :, :2]).max(-1) < 1
    assert abs(image - wanted)[mask].max() < 0.004
    assert (wanted[mask].max() > 0.1) == two_sided


def test_depths_of_a_surface(window, scene) -> None:
    tilted = QUAD + np.array([0, 0, 1], np.float32) * QUAD[:, :1]
    scene.mesh(field_of(tilted), TWO)
    window.get_canvas().scene(scene)
    field, array = ti.field(ti.f32, (W, H)), ti.ndarray(ti.f32, (W, H))
    window.get_depth_buffer(field)
    window.get_depth_buffer(array)
    way = rays()
    t = FAR / (way[..., 0] + 1)  # for z = x
    at = way * t[..., None] + [0, 0, FAR]
    mask = (abs(at[:, :, :2]).max(-1) < 0.98) & (t > 0)
    wanted = 0.1 / 999.9 * (1000 / t - 1)
    for depth in (field, array):
        assert abs(depth.to_numpy() - wanted)[mask].max() < 2e-5
    with pytest.raises(ToolError, match=r"the shape \(200, 100\) of f32 is needed"):
        window.get_depth_buffer(ti.field(ti.f32, (3, 3)))


def test_normals_and_colours_of_corners(window, scene) -> None:
    scene.point_light((0, 0, 1000), (1, 1, 1))
    slant = np.array([[0, 0, 1], [0.6, 0, 0.8], [0.6, 0, 0.8], [0, 0, 1]])
    colours = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]], np.float32)
    scene.mesh(field_of(QUAD), TWO, normals=field_of(slant), per_vertex_color=field_of(colours))
    image = shot(window, scene)
    at = plane_under()
    mix = (at + 1) / 2
    normal = slant[0] + (slant[1] - slant[0]) * mix[..., :1]
    bright = normal[..., 2] / np.linalg.norm(normal, axis=-1)
    wanted = np.stack([1 - mix[..., 1], mix[..., 1], 0 * bright], -1) * bright[..., None]
    mask = abs(at[:, :, :2]).max(-1) < 1
    assert abs(image - wanted)[mask].max() < 0.005


def test_shared_corners_are_smooth(window, scene) -> None:
    """Two slopes that meet: their shared edge is lit as if it were level."""
    roof = np.array([[-1, -1, -1], [0, -1, 0], [0, 1, 0], [-1, 1, -1], [1, -1, -1], [1, 1, -1]])
    indices = np.array([0, 1, 2, 0, 2, 3, 1, 4, 5, 1, 5, 2], np.int32)
    scene.point_light((0, 0, 1000), (1, 1, 1))
    scene.mesh(field_of(roof), indices, color=(1, 1, 1))
    image = shot(window, scene)
    assert image[100, 50, 0] == pytest.approx(1, abs=0.02)
    scene.point_light((0, 0, 1000), (1, 1, 1))
    scene.mesh(field_of(roof[indices]), color=(1, 1, 1))
    assert shot(window, scene)[100, 50, 0] == pytest.approx(math.sqrt(0.5), abs=0.005)


def test_parts_of_surfaces(window, scene) -> None:
    scene.ambient_light((1, 1, 1))
    colours = np.repeat(np.eye(3, dtype=np.float32), [3, 3, 4], 0)[:6]
    places = np.concatenate([QUAD, QUAD])
    at = plane_under()
    lower = at[..., 1] < at[..., 0]

    def is_seen(**part) -> tuple[bool, bool]:
        scene.mesh(**part)
        seen = shot(window, scene).max(-1) > 0
        inside = abs(at[:, :, :2]).max(-1) < 0.95
        far = abs(at[..., 0] - at[..., 1]) > 0.1
        return tuple(bool(seen[inside & far & side].all()) for side in (lower, ~lower))

    assert is_seen(vertices=field_of(QUAD), indices=TWO, index_count=3) == (True, False)
    assert is_seen(vertices=field_of(QUAD), indices=TWO, index_offset=3) == (False, True)
    corners = field_of(QUAD[TWO])
    assert is_seen(vertices=corners, vertex_offset=3, per_vertex_color=field_of(colours)) == (
        False, True,
    )  # fmt: skip
    assert is_seen(vertices=corners, vertex_count=3) == (True, False)
    assert is_seen(vertices=field_of(places), indices=TWO, vertex_offset=4) == (True, True)


def test_a_wireframe(window, scene) -> None:
    scene.ambient_light((1, 1, 1))
    scene.mesh(field_of(QUAD), TWO, color=COLOUR, show_wireframe=True)
    seen = shot(window, scene).max(-1) > 0
    assert seen[71, 30] and seen[128, 30] and seen[90, 21] and seen[90, 78]  # its sides
    assert seen[110, 60] and not seen[110, 40] and not seen[90, 60]  # its diagonal
    assert seen.sum() < 600


def test_scene_instances(window, scene) -> None:
    transforms = ti.Matrix.field(4, 4, ti.f32, 3)
    matrices = np.tile(np.diag([0.3, 0.3, 0.3, 1]).astype(np.float32), (3, 1, 1))
    matrices[:, 0, 3] = -1, 0, 1
    transforms.from_numpy(matrices)
    scene.ambient_light((1, 1, 1))
    scene.mesh_instance(field_of(QUAD), TWO, transforms=transforms, color=COLOUR)
    assert window.get_canvas().scene(scene) is None
    columns = np.flatnonzero(window.get_image_buffer_as_numpy()[:, 50, 0] > 0)
    wanted = W / 2 + SCALE / FAR * np.array([[-1.3, -0.7], [-0.3, 0.3], [0.7, 1.3]])
    assert abs(np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)[1][0] - wanted[1, 0]) < 1
    assert len(columns) == pytest.approx(3 * 0.6 * SCALE / FAR, abs=3)
    scene.mesh_instance(
        field_of(QUAD), TWO, transforms=transforms, instance_offset=2, instance_count=1
    )
    columns = np.flatnonzero(shot(window, scene)[:, 50, 0] > 0)
    assert abs(columns[[0, -1]] + 0.5 - wanted[2]).max() < 1.2


def test_instances_turn_their_normals(window, scene) -> None:
    turn = np.eye(4, dtype=np.float32)[None].copy()
    turn[0, :3, :3] = [[0, 0, 2], [0, 1, 0], [-1, 0, 0]]  # the view along z becomes one along x
    side = QUAD[:, [2, 1, 0]] * [1, 1, -1]
    transforms = ti.Matrix.field(4, 4, ti.f32, 1)
    transforms.from_numpy(turn)
    scene.point_light((0, 0, 1000), (1, 1, 1))
    scene.mesh_instance(field_of(side), TWO, color=(1, 1, 1), transforms=transforms, two_sided=True)
    assert shot(window, scene)[100, 50, 0] == pytest.approx(1, abs=0.01)


# --- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 5, 10])
def test_scene_lines(window, scene, width: int) -> None:
    """So many pixels wide, near or far, and no light falls on them."""
    scene.lines(field_of([[-1, 0, 0], [1, 0, 0]]), width=width, color=COLOUR)
    image = shot(window, scene)
    assert np.flatnonzero(image[:, 50, 0])[[0, -1]].tolist() == [71, 128]
    assert (image[100, :, 0] > 0).sum() == width
    assert np.rint(image[100, 50] * 255).tolist() == [255, 128, 64]
    scene.lines(field_of([[-1, 0, 1], [1, 0, -2]]), width=width, color=COLOUR)
    image = shot(window, scene)
    assert (image[80, :, 0] > 0).sum() == width == (image[105, :, 0] > 0).sum()


def test_lines_from_behind_the_eye(window, scene) -> None:
    scene.lines(field_of([[0, -0.2, 10], [0, -0.2, -10]]), width=4, color=COLOUR)
    rows = np.flatnonzero(shot(window, scene)[100, :, 0])
    assert rows[0] == 0 and rows[-1] == pytest.approx(H / 2 - 0.2 * SCALE / 13, abs=2)


def test_parts_of_lines(window, scene) -> None:
    at = field_of([[-1, k / 4, 0] for k in (-1, 0, 1)] + [[1, k / 4, 0] for k in (-1, 0, 1)])
    indices = ti.field(ti.i32, 6)
    indices.from_numpy(np.array([0, 3, 1, 4, 2, 5], np.int32))
    scene.lines(at, 2, indices, color=(1, 1, 1), index_offset=2, index_count=2)
    rows = np.flatnonzero(shot(window, scene)[100, :, 0])
    assert rows.tolist() == [49, 50]


# --- scenes --------------------------------------------------------------------------------------


def test_lights_are_set_in_each_frame_and_the_rest_stays(window, scene) -> None:
    scene.ambient_light((0.2, 0.2, 0.2))
    scene.point_light((0, 0, 1000), (0.5, 0.5, 0.5))
    seen = []
    for _ in range(2):
        scene.mesh(field_of(QUAD), TWO, color=(1, 1, 1))
        seen.append(shot(window, scene)[100, 50, 0])
    assert seen == pytest.approx([0.7, 0.2], abs=0.005)


def test_bright_lights(window, scene) -> None:
    scene.ambient_light((2, 0.2, 0.2))
    scene.point_light((0, 0, 1000), (0.1, 4, 0.1))
    scene.mesh(field_of(QUAD), TWO, color=(0.2, 0.2, 0.2))
    assert shot(window, scene)[100, 50] == pytest.approx([0.42, 0.84, 0.06], abs=0.005)


def test_a_scene_of_its_own_between_layers(window) -> None:
    scene, canvas = ti.ui.Scene(), window.get_canvas()
    scene.set_camera(looking())
    scene.ambient_light((1, 1, 1))
    canvas.set_image(np.full((W, H), 0.5, np.float32))
    scene.mesh(field_of(QUAD), TWO, color=(1, 0, 0))
    canvas.scene(scene)
    canvas.circles(np.array([[0.5, 0.5]], np.float32), 0.1, color=(0, 0, 1))
    image = window.get_image_buffer_as_numpy()
    assert np.rint(image[0, 0, :3] * 255).tolist() == [127] * 3
    assert image[80, 50].tolist() == [1, 0, 0, 1] and image[100, 50].tolist() == [0, 0, 1, 1]


WRONG = {
    "vectors of 3, not": lambda s: s.particles(np.zeros((4, 2)), 0.1),
    "matrices of 4 by 4": lambda s: s.mesh_instance(QUAD, TWO, transforms=np.zeros((2, 3, 3))),
    "fewer normals": lambda s: s.mesh(QUAD, TWO, normals=np.zeros((2, 3))),
    "indices of vertices are from 0 to 3": lambda s: s.mesh(QUAD, np.array([0, 1, 4], np.int32)),
    "vertices are from 0 to 3": lambda s: s.lines(QUAD, 1, np.array([0, -1], np.int32)),
    "not negative": lambda s: s.particles(QUAD, 0.1, index_offset=-1),
    "a place of three numbers": lambda s: s.point_light((0, 0), (1, 1, 1)),
}


def test_indices_that_are_not_drawn_may_be_anything(scene) -> None:
    at = np.array([0, 1, 2, 7, -1, 1 << 30], np.int32)
    scene.mesh(QUAD, at, index_count=3)
    scene.mesh(np.concatenate([QUAD, QUAD]), np.array([0, 1, 2, 7, 6, 5], np.int32),
               vertex_offset=4, index_count=3)  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(scene, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        WRONG[message](scene)
