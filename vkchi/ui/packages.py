"""Check that the packages of `ti.ui` are installed."""

from __future__ import annotations

import functools
import importlib.util

from vkchi.errors import MissingPackageError

PACKAGES = {  # module -> package, for pip
    "pygfx": "pygfx~=0.17.0", "wgpu": "wgpu", "rendercanvas": "rendercanvas", "glfw": "glfw",
    "imgui_bundle": "imgui-bundle",
}  # fmt: skip


@functools.cache
def require_ggui() -> None:
    """Raise MissingPackageError if one of PACKAGES is not installed."""
    lacking = [module for module in PACKAGES if not is_installed(module)]
    if lacking:
        raise MissingPackageError(
            f"ti.ui needs {', '.join(lacking)}, which is not installed: pip install "
            f"{' '.join(PACKAGES[m] for m in lacking)} (ti.GUI draws in two dimensions without)"
        )


def is_installed(package: str) -> bool:
    """True if a package is found; it is not imported."""
    return importlib.util.find_spec(package) is not None
