"""`ti.ui.Camera`: view and projection matrices, and movement by keys and mouse.

    camera = ti.ui.Camera()
    camera.position(0, 1, 3)
    camera.lookat(0, 0, 0)
    camera.track_user_inputs(window, movement_speed=0.03, hold_key=ti.ui.RMB)

Source: Taichi's documentation of GGUI. Two conventions follow its matrices: the largest depth is
nearest, and `top` is below `bottom`.
"""

from __future__ import annotations

import math
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.errors import ToolError
from vkchi.lang.matrix import Matrix, Vector
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from collections.abc import Sequence


Floats = np.ndarray[Any, Any]
STEEPEST = math.pi / 2 * 0.99
FRAMES = 60.0  # frames per second that speeds refer to


class ProjectionMode(IntEnum):
    """Perspective or orthographic projection."""

    Perspective = 0
    Orthogonal = 1


class InputSource(Protocol):
    """State of keys and the mouse."""

    def is_pressed(self, *keys: str) -> bool: ...
    def get_cursor_pos(self) -> tuple[float, float]: ...


class Camera:
    """A position, a target, an up direction and a projection.

    `curr_position`, `curr_lookat` and `curr_up` are vectors of 3.
    """

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
        """Set the camera's position."""
        self.curr_position = float_vector(x, y, z)

    def lookat(self, x: float, y: float, z: float) -> None:
        """Set the target, which appears in the centre of the image."""
        self.curr_lookat = float_vector(x, y, z)

    def up(self, x: float, y: float, z: float) -> None:
        """Set the up direction."""
        self.curr_up = float_vector(x, y, z)

    def projection_mode(self, mode: int) -> None:
        """Set the projection: a `ti.ui.ProjectionMode` (0 perspective, 1 orthographic).

        Raises ValueError for other values of `mode`.
        """
        self._mode = ProjectionMode(mode)

    def fov(self, fov: float) -> None:
        """Set the vertical field of view in degrees (perspective only).

        Raises ToolError unless `fov` is between 0 and 180.
        """
        if not 0 < fov < 180:
            raise ToolError(f"fov is an angle between 0 and 180 degrees, not {fov!r}")
        self._fov = float(fov)

    def left(self, left: float) -> None:
        """Set the left edge of the image, in units of length from the axis of view.

        Orthographic only; default -1.
        """
        self._sides["left"] = float(left)

    def right(self, right: float) -> None:
        """Set the right edge of the image, in units of length from the axis of view.

        Orthographic only; default 1.
        """
        self._sides["right"] = float(right)

    def top(self, top: float) -> None:
        """Set the lower edge of the image, as in Taichi (orthographic only; default -1)."""
        self._sides["top"] = float(top)

    def bottom(self, bottom: float) -> None:
        """Set the upper edge of the image, as in Taichi (orthographic only; default 1)."""
        self._sides["bottom"] = float(bottom)

    def z_near(self, z_near: float) -> None:
        """Set the distance of the near clipping plane."""
        self._near = float(z_near)

    def z_far(self, z_far: float) -> None:
        """Set the distance of the far clipping plane."""
        self._far = float(z_far)

    # --- matrices --------------------------------------------------------------------------------

    def get_view_matrix(self) -> Floats:
        """World to camera transform, f32[4, 4], for a row vector [x, y, z, 1] on the left.

        The camera looks along -z.
        """
        eye, front, up = self._frame()
        side = np.cross(front, up)
        side /= np.linalg.norm(side) or 1.0
        axes = np.stack([side, np.cross(side, front), -front])
        view = np.eye(4)
        view[:3, :3] = axes.T
        view[3, :3] = -axes @ eye
        return view.astype(np.float32)

    def get_projection_matrix(self, aspect: float) -> Floats:
        """Camera to clip transform, f32[4, 4], for a row vector on the left.

        aspect: width divided by height of the image. Depths are 1 at the near plane and 0 at the
        far plane.
        """
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

    # --- movement --------------------------------------------------------------------------------

    def track_user_inputs(
        self,
        window: InputSource,
        movement_speed: float = 1.0,
        yaw_speed: float = 2.0,
        pitch_speed: float = 2.0,
        hold_key: str | None = None,
    ) -> None:
        """Move with the keys w, s, a, d, e, q: forward, back, left, right, up, down.

        The mouse rotates the camera, while `hold_key` is down if given. The target becomes the
        point one unit in front of the camera.

        Speeds are multiplied by the time since the last call, in 60ths of a second; the first call
        does not move. movement_speed: length; yaw_speed, pitch_speed: radians per width and height
        of `window`.
        """
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
            front = rotate_direction(
                front,
                (before[0] - cursor[0]) * yaw_speed * frames,
                (cursor[1] - before[1]) * pitch_speed * frames,
            )
        self._cursor = cursor
        self.position(*eye)
        self.lookat(*(eye + front))


def rotate_direction(front: Floats, yaw: float, pitch: float) -> Floats:
    """A unit vector rotated about the y axis by `yaw` and in elevation by `pitch`, in radians.

    The elevation is limited to STEEPEST, below 90 degrees.
    """
    around = math.atan2(front[0], front[2]) + yaw
    high = math.asin(max(-1.0, min(1.0, front[1]))) + pitch
    high = max(-STEEPEST, min(STEEPEST, high))
    return np.array(
        [math.sin(around) * math.cos(high), math.sin(high), math.cos(around) * math.cos(high)]
    )


def float_vector(x: float, y: float, z: float) -> Matrix:
    """A Vector of three floats."""
    return Vector([float(x), float(y), float(z)])


# --- angles --------------------------------------------------------------------------------------
#
# Conversion between directions and angles of cameras, in radians.
#
# Yaw is measured from the z axis towards the x axis, pitch from the horizontal plane towards the y
# axis.
#
# >>> vec_to_euler(euler_to_vec(0.5, 0.25))
# (0.5, 0.25)


def euler_to_vec(yaw: float, pitch: float) -> Vector:
    """The unit vector with the angles `yaw` and `pitch`."""
    across = math.cos(pitch)
    return Vector([math.sin(yaw) * across, math.sin(pitch), math.cos(yaw) * across])


def vec_to_euler(v: Vector | Sequence[float], eps: float = 1e-6) -> tuple[float, float]:
    """Yaw and pitch of a vector `v` of any length; `eps` has no effect, as in Taichi."""
    x, y, z = (float(c) for c in _components(v))
    return math.atan2(x, z), math.atan2(y, math.hypot(x, z))


def _components(v: Any) -> list[float]:
    return list(v.to_list() if isinstance(v, Vector) else v)
