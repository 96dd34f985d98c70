"""Skips of the tests of `ti.ui`."""

from __future__ import annotations

import pytest

from vkchi.errors import MissingPackageError
from vkchi.ui.packages import require_ggui


@pytest.fixture(scope="session", autouse=True)
def what_draws() -> None:
    """Skip if the extra `ggui` is not installed, or wgpu finds no adapter."""
    try:
        require_ggui()
    except MissingPackageError as error:
        pytest.skip(str(error))
    import wgpu

    if not wgpu.gpu.enumerate_adapters_sync():
        pytest.skip("wgpu finds no device here")
