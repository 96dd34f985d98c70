"""The device that the op tests run on; `VKCHI_DEVICE` and the driver's environment choose it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vkchi.device import Device, open_device


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    """One device for the session."""
    opened = open_device()
    yield opened
    opened.close()
