"""Whether what `ti.ui` is built on is installed. Must not know: what it does."""

from __future__ import annotations

import functools
import importlib.util

from vkchi.errors import MissingPackageError

PACKAGES = {
    "pygfx": "pygfx", "wgpu": "wgpu", "rendercanvas": "rendercanvas", "glfw": "glfw",
    "imgui_bundle": "imgui-bundle",
}  # fmt: skip


@functools.cache
def require() -> None:
    """Raises MissingPackageError where a package is not installed."""
    lacking = [name for package, name in PACKAGES.items() if not find(package)]
    if lacking:
        raise MissingPackageError(
            f"ti.ui needs {', '.join(lacking)}, which is not installed: "
            'pip install "vkchi[ggui]" (ti.GUI draws in two dimensions without)'
        )


def find(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None
