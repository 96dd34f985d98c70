"""Matrices of `ti.ui.Camera`, and moving it. The numbers are those of Taichi 1.7.4."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ToolError


def project(camera: ti.ui.Camera, place, aspect: float = 2.0) -> np.ndarray:
    """Screen position of a point: x, y from -1 to 1, depth."""
    row = [*place, 1] @ camera.get_view_matrix() @ camera.get_projection_matrix(aspect)
    return row[:3] / row[3]


def test_matrices_of_a_new_camera() -> None:
    camera = ti.ui.make_camera()
    assert camera.get_view_matrix().tolist() == np.diag([-1, 1, -1, 1]).tolist()
    wanted = [[1.2071067, 0, 0, 0], [0, 2.4142134, 0, 0], [0, 0, 1.0001e-4, -1], [0, 0, 0.10001, 0]]
    np.testing.assert_allclose(camera.get_projection_matrix(2.0), wanted, rtol=1e-5)
    assert [*camera.curr_position, *camera.curr_lookat, *camera.curr_up] == [
        0,
        0,
        0,
        0,
        0,
        1,
        0,
        1,
        0,
    ]


def test_camera_matrices() -> None:
    camera = ti.ui.Camera()
    camera.position(1, 2, 3)
    camera.lookat(0, 0.5, -1)
    camera.fov(60)
    camera.z_near(0.5)
    camera.z_far(50)
    wanted = [
        [0.9701424, -0.08291849, 0.22792116, 0], [0, 0.939743, 0.34188175, 0],
        [-0.2425356, -0.33167398, 0.91168463, 0], [-0.24253559, -0.8015455, -3.6467385, 1],
    ]  # fmt: skip
    np.testing.assert_allclose(camera.get_view_matrix(), wanted, atol=1e-6)
    np.testing.assert_allclose(
        camera.get_projection_matrix(2.0),
        [[0.8660253, 0, 0, 0], [0, 1.7320507, 0, 0], [0, 0, 0.01010101, -1], [0, 0, 0.5050505, 0]],
        rtol=1e-6,
    )
    camera.projection_mode(ti.ui.ProjectionMode.Orthogonal)
    camera.left(-2), camera.right(3), camera.top(1.5), camera.bottom(-1)
    np.testing.assert_allclose(
        camera.get_projection_matrix(2.0),
        [[0.4, 0, 0, 0], [0, -0.8, 0, 0], [0, 0, 0.02020202, 0], [-0.2, 0.2, 1.010101, 1]],
        rtol=1e-6,
    )


@pytest.mark.parametrize("mode", ti.ui.ProjectionMode)
def test_depths_fall_from_near_to_far(mode) -> None:
    camera = ti.ui.Camera()
    camera.projection_mode(mode)
    camera.position(0, 0, 5)
    camera.lookat(0, 0, 0)
    camera.z_near(1)
    camera.z_far(9)
    assert project(camera, (0, 0, 4))[2] == pytest.approx(1)
    assert project(camera, (0, 0, -4))[2] == pytest.approx(0, abs=1e-6)
    assert project(camera, (0, 1, 0))[1] > 0 < project(camera, (1, 0, 0))[0]


class Hands:
    """Someone at a window."""

    def __init__(self) -> None:
        self.keys, self.cursor = set(), (0.5, 0.5)

    def is_pressed(self, *keys: str) -> bool:
        return not self.keys.isdisjoint(keys)

    def get_cursor_pos(self) -> tuple[float, float]:
        return self.cursor


@pytest.fixture
def clock(monkeypatch):
    """Time, which passes by a 60th of a second at each look."""
    now = [0.0]

    def look() -> float:
        now[0] += 1 / 60
        return now[0]

    monkeypatch.setattr(time, "perf_counter", look)


WAYS = {
    "w": (0, 0, -1),
    "s": (0, 0, 1),
    "a": (-1, 0, 0),
    "d": (1, 0, 0),
    "e": (0, 1, 0),
    "q": (0, -1, 0),
}


@pytest.mark.parametrize("key", WAYS)
def test_keys_move(key: str, clock) -> None:
    camera, hands = ti.ui.Camera(), Hands()
    camera.position(0, 0, 3)
    camera.lookat(0, 0, 0)
    camera.track_user_inputs(hands)
    hands.keys = {key}
    for _ in range(4):
        camera.track_user_inputs(hands, movement_speed=0.25)
    np.testing.assert_allclose(
        list(camera.curr_position - ti.Vector([0, 0, 3])), WAYS[key], atol=1e-6
    )
    np.testing.assert_allclose(
        list(camera.curr_lookat - camera.curr_position), [0, 0, -1], atol=1e-6
    )


def test_the_mouse_turns(clock) -> None:
    camera, hands = ti.ui.Camera(), Hands()
    camera.position(0, 0, 3)
    camera.lookat(0, 0, 0)
    camera.track_user_inputs(hands, hold_key=ti.ui.RMB)
    hands.cursor = (0.6, 0.7)
    camera.track_user_inputs(hands, hold_key=ti.ui.RMB)
    assert list(camera.curr_lookat) == [0, 0, 2]  # the button is up
    hands.keys, hands.cursor = {ti.ui.RMB}, (0.7, 0.8)
    camera.track_user_inputs(hands, yaw_speed=2, pitch_speed=3, hold_key=ti.ui.RMB)
    yaw, pitch = math.pi - 0.2, 0.3
    wanted = [math.sin(yaw) * math.cos(pitch), math.sin(pitch), 3 + math.cos(yaw) * math.cos(pitch)]
    np.testing.assert_allclose(list(camera.curr_lookat), wanted, atol=1e-6)
    hands.cursor = (0.7, 90)
    camera.track_user_inputs(hands, hold_key=ti.ui.RMB)  # not over the top
    assert 0.99 < camera.curr_lookat[1] < 1


def test_wrong_angles() -> None:
    with pytest.raises(ToolError, match="between 0 and 180"):
        ti.ui.Camera().fov(180)
