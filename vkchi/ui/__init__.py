"""`ti.ui`: windows with 3D scenes (Taichi's GGUI), rendered by pygfx.

The renderer (the extra `ggui`: pygfx, rendercanvas, glfw, imgui-bundle) is imported when a window
is created.

    window = ti.ui.Window("balls", (640, 480))
"""

from vkchi.gui.gui import GUI
from vkchi.hooks import open_names
from vkchi.tools.image import hex_to_rgb, rgb_to_hex
from vkchi.ui.camera import Camera, ProjectionMode
from vkchi.ui.canvas import Canvas
from vkchi.ui.imgui_widgets import Gui
from vkchi.ui.packages import require_ggui as check_ggui_availability
from vkchi.ui.scene import Scene
from vkchi.ui.window import (
    ALT,
    BACKSPACE,
    CAPSLOCK,
    CTRL,
    DOWN,
    ESCAPE,
    LEFT,
    LMB,
    MMB,
    PRESS,
    RELEASE,
    RETURN,
    RIGHT,
    RMB,
    SHIFT,
    SPACE,
    TAB,
    UP,
    Window,
)

__all__ = [
    "Camera", "Canvas", "Gui", "ProjectionMode", "Scene", "Window", "check_ggui_availability",
    "make_camera", "GUI", "hex_to_rgb", "rgb_to_hex", "ALT", "BACKSPACE", "CAPSLOCK", "CTRL",
    "DOWN", "ESCAPE", "LEFT", "LMB", "MMB", "PRESS", "RELEASE", "RETURN", "RIGHT", "RMB", "SHIFT",
    "SPACE", "TAB", "UP",
]  # fmt: skip


def make_camera() -> Camera:
    """Alternative name of `ti.ui.Camera()`."""
    return Camera()


open_names(globals())
