"""`ti.ui.Camera`: where a scene is seen from, and how.

Owns: the matrices, and moving by keys and the mouse. Must not know: windows' insides, pygfx.

    camera = ti.ui.Camera()
    camera.position(0, 1, 3)
    camera.lookat(0, 0, 0)
    camera.track_user_inputs(window, movement_speed=0.03, hold_key=ti.ui.RMB)

Source: Taichi's documentation of GGUI; that the greatest depth is the nearest place, and that
`top` is below `bottom`, are its matrices'.
"""

from __future__ import annotations

import math
import time
from enum import IntEnum
from typing import Any, Protocol

from vkchi.errors import ToolError
from vkchi.lang.matrix import Matrix, Vector
from vkchi.types.lazy_numpy import np

Floats = np.ndarray[Any, Any]
STEEPEST = math.pi / 2 * 0.99
FRAMES = 60.0  # speeds are given per frame of so many a second


class ProjectionMode(IntEnum):
    """How places are put on the screen: what is farther is smaller, or is not."""

    Perspective = 0
    Orthogonal = 1


class Input(Protocol):
    """What tells of keys and the mouse."""

    def is_pressed(self, *keys: str) -> bool: ...
    def get_cursor_pos(self) -> tuple[float, float]: ...


class Camera:
    """A place, a place looked at, a way up and a projection. `curr_position`, `curr_lookat` and
    `curr_up` are vectors of three."""

    def __init__(self) -> None:
        self._mode, self._fov = ProjectionMode.Perspective, 45.0
        self._sides = {"left": -1.0, "right": 1.0, "top": -1.0, "bottom": 1.0}
        self._near, self._far = 0.1, 1000.0
        self._cursor: tuple[float, float] | None = None
        self._time: float | None = None
        self.position(0.0, 0.0, 0.0)
        self.lookat(0.0, 0.0, 1.0)
        self.up(0.0, 1.0, 0.0)

    def position(self, x: float, y: float, z: float) -> None:
        """Where the camera is."""
        self.curr_position = vector(x, y, z)

    def lookat(self, x: float, y: float, z: float) -> None:
        """A place in the middle of the picture."""
        self.curr_lookat = vector(x, y, z)

    def up(self, x: float, y: float, z: float) -> None:
        """Which way is up."""
        self.curr_up = vector(x, y, z)

    def projection_mode(self, mode: int) -> None:
        """A `ti.ui.ProjectionMode`, or 0 for perspective and 1 for none."""
        self._mode = ProjectionMode(mode)

    def fov(self, fov: float) -> None:
        """The angle between the picture's upper and lower edges, in degrees; in perspective.
        Raises ToolError unless it is between 0 and 180."""
        if not 0 < fov < 180:
            raise ToolError(f"fov is an angle between 0 and 180 degrees, not {fov!r}")
        self._fov = float(fov)

    def left(self, left: float) -> None:
        """The picture's left edge; without perspective."""
        self._sides["left"] = float(left)

    def right(self, right: float) -> None:
        """The picture's right edge; without perspective."""
        self._sides["right"] = float(right)

    def top(self, top: float) -> None:
        """The picture's lower edge (as Taichi has it), -1 at first; without perspective."""
        self._sides["top"] = float(top)

    def bottom(self, bottom: float) -> None:
        """The picture's upper edge (as Taichi has it), 1 at first; without perspective."""
        self._sides["bottom"] = float(bottom)

    def z_near(self, z_near: float) -> None:
        """How near what is seen begins."""
        self._near = float(z_near)

    def z_far(self, z_far: float) -> None:
        """How far what is seen ends."""
        self._far = float(z_far)

    # --- matrices --------------------------------------------------------------------------------

    def get_view_matrix(self) -> Floats:
        """f32[4, 4] that a row [x, y, z, 1] is multiplied with: places as seen from the camera,
        which looks along -z."""
        eye, front, up = self._frame()
        side = np.cross(front, up)
        side /= np.linalg.norm(side) or 1.0
        axes = np.stack([side, np.cross(side, front), -front])
        view = np.eye(4)
        view[:3, :3] = axes.T
        view[3, :3] = -axes @ eye
        return view.astype(np.float32)

    def get_projection_matrix(self, aspect: float) -> Floats:
        """f32[4, 4] that a row [x, y, z, 1], as seen from the camera, is multiplied with; aspect:
        the picture's width by its height. Depths are 1 nearest and 0 farthest."""
        near, far = self._near, self._far
        found = np.zeros((4, 4))
        if self._mode is ProjectionMode.Perspective:
            found[1, 1] = 1 / math.tan(math.radians(self._fov) / 2)
            found[0, 0] = found[1, 1] / aspect
            found[2, 2:] = near / (far - near), -1
            found[3, 2] = far * near / (far - near)
        else:
            left, right, low, high = (self._sides[s] for s in ("left", "right", "top", "bottom"))
            found[0, 0], found[1, 1] = 2 / (right - left), 2 / (high - low)
            found[2, 2] = 1 / (far - near)
            found[3] = (left + right) / (left - right), (low + high) / (low - high), 0, 1
            found[3, 2] = far / (far - near)
        return found.astype(np.float32)

    def _frame(self) -> tuple[Floats, Floats, Floats]:
        eye, at, up = (
            np.asarray([float(x[k]) for k in range(3)])
            for x in (self.curr_position, self.curr_lookat, self.curr_up)
        )
        return eye, (at - eye) / (np.linalg.norm(at - eye) or 1.0), up

    # --- moving ----------------------------------------------------------------------------------

    def track_user_inputs(
        self,
        window: Input,
        movement_speed: float = 1.0,
        yaw_speed: float = 2.0,
        pitch_speed: float = 2.0,
        hold_key: str | None = None,
    ) -> None:
        """Move by the keys w, s, a, d, e, q: forward, back, left, right, up, down; turn with the
        mouse, while `hold_key` is down if there is one. Speeds are per 60th of a second."""
        now = time.perf_counter()
        frames = 0.0 if self._time is None else (now - self._time) * FRAMES
        self._time = now
        eye, front, up = self._frame()
        ways = {"w": front, "a": np.cross(up, front), "e": up}
        for (key, way), back in zip(ways.items(), "sdq"):
            steps = window.is_pressed(key) - window.is_pressed(back)
            eye = eye + steps * movement_speed * frames * way
        cursor = window.get_cursor_pos()
        if hold_key is None or window.is_pressed(hold_key):
            before = self._cursor or cursor
            front = turned(
                front,
                (before[0] - cursor[0]) * yaw_speed * frames,
                (cursor[1] - before[1]) * pitch_speed * frames,
            )
        self._cursor = cursor
        self.position(*eye)
        self.lookat(*(eye + front))


def turned(front: Floats, yaw: float, pitch: float) -> Floats:
    """A unit vector turned around the vertical, and up; not quite as far as straight up."""
    around = math.atan2(front[0], front[2]) + yaw
    high = math.asin(max(-1.0, min(1.0, front[1]))) + pitch
    high = max(-STEEPEST, min(STEEPEST, high))
    return np.array(
        [math.sin(around) * math.cos(high), math.sin(high), math.cos(around) * math.cos(high)]
    )


def vector(x: float, y: float, z: float) -> Matrix:
    """A vector of Python's scope."""
    return Vector([float(x), float(y), float(z)])
