"""On-screen windows, by rendercanvas and glfw. Imported when a window is opened.

screen = Screen("title", (640, 480), pos=(100, 100), vsync=False, listen=print)
picture = FrameRenderer(screen.canvas); screen.show(picture.present); screen.poll()
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelRuntimeError
from vkchi.interrupts.local import local
from vkchi.vk.instance import list_extensions
from vkchi.vk.raw import load_vulkan

EVENTS = (
    "key_down", "key_up", "char", "pointer_move", "pointer_down", "pointer_up", "wheel",
)  # fmt: skip
# Vulkan instance extensions that wgpu needs per window system.
SURFACES = {"x11": "VK_KHR_xlib_surface", "wayland": "VK_KHR_wayland_surface"}


class Screen:
    """Window of `size` pixels; `listen` receives its events of the kinds in EVENTS.

    Raises KernelRuntimeError if no window can be opened, or if no graphics API can draw on it.
    """

    def __init__(
        self, title: str, size: tuple[int, int], *, pos: tuple[int, int], vsync: bool,
        listen: Callable[[dict[str, Any]], None],
    ) -> None:  # fmt: skip
        try:
            from rendercanvas.glfw import RenderCanvas, get_glfw_present_info, glfw

            check_display(glfw)
            self.canvas = RenderCanvas(
                size=size, title=title, update_mode="manual", vsync=vsync
            )  # fmt: skip
        except local(ImportError, RuntimeError) as error:
            raise KernelRuntimeError(f"no window can be opened: {error}") from None
        platform = get_glfw_present_info(self.canvas._window)["platform"]
        if not has_surface(platform):
            self.canvas.close()
            raise KernelRuntimeError(
                f"the Vulkan drivers lack {SURFACES[platform]}, and libEGL.so.1 is not installed"
            )
        glfw.set_window_pos(self.canvas._window, *pos)  # no public API in rendercanvas
        self.canvas.add_event_handler(listen, *EVENTS)
        self.poll()

    @property
    def size(self) -> tuple[int, int]:
        """Size in pixels."""
        width, height = self.canvas.get_physical_size()
        return max(int(width), 1), max(int(height), 1)

    @property
    def logical_size(self) -> tuple[float, float]:
        """Size in the units of events, each perhaps several pixels."""
        width, height = self.canvas.get_logical_size()
        return max(float(width), 1.0), max(float(height), 1.0)

    @property
    def is_open(self) -> bool:
        """True until the window is closed."""
        return not self.canvas.get_closed()

    def show(self, present: Callable[[], None]) -> None:
        """Draw into the canvas with `present`, and show it. No effect if the window is closed."""
        if self.is_open:
            self.canvas.request_draw(present)
            self.canvas.force_draw()

    def poll(self) -> None:
        """Deliver pending events."""
        if self.is_open:
            # Called by rendercanvas' own event loop, which is not used here.
            self.canvas._process_events()

    def close(self) -> None:
        """Close the window."""
        self.canvas.close()


def check_display(glfw: Any) -> None:
    """Raise RuntimeError if GLFW reaches no display: making a window would abort the process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", glfw.GLFWError)
        if not glfw.init():
            code, reason = glfw.get_error()
            raise RuntimeError((reason or b"").decode(errors="replace") or f"GLFW error {code}")


def has_surface(platform: str) -> bool:
    """True if Vulkan or OpenGL can draw on windows of rendercanvas' `platform`.

    True also for platforms that are not in SURFACES. wgpu aborts the process if neither can, so
    this test precedes the first call of wgpu.
    """
    extension = SURFACES.get(platform)
    return extension is None or extension in list_extensions(load_vulkan()) or has_egl()


def has_egl() -> bool:
    """True if the EGL library, which wgpu's OpenGL backend loads, is installed."""
    try:
        ctypes.CDLL("libEGL.so.1")
    except local(OSError):
        return False
    return True
