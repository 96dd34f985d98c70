"""Errors for arguments of the wrong kind: colours, points, sizes of windows, torch dtypes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, ToolError
from vkchi.gui.gui import resolution
from vkchi.interop import host_views
from vkchi.ui.draw_calls import colour_of, point_of


@pytest.mark.parametrize("given", ["red", None, [1, 2]])
def test_colours_and_points_are_numbers(given: object) -> None:
    with pytest.raises(ToolError, match="circles: a colour is red, green and blue"):
        colour_of("circles", given)
    with pytest.raises(ToolError, match="camera: eye is a place of three numbers"):
        point_of("camera", "eye", given)


@pytest.mark.parametrize("size", [1.5, None, (3, 4, 5), (0, 2), "ab"])
def test_the_size_of_a_window_is_one_integer_or_two(size: object) -> None:
    with pytest.raises(ToolError, match="res is a number of pixels, or two"):
        resolution(size)


def test_a_torch_without_a_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(__version__="2.0", bool="bool", float32="float32")
    monkeypatch.setattr(host_views, "import_uninterrupted", lambda name: torch)
    assert host_views.to_pytorch_type(ti.f32) == "float32"
    assert host_views.to_pytorch_type(ti.u1) == "bool"
    with pytest.raises(ArgumentError, match="torch 2.0 has no dtype uint16"):
        host_views.to_pytorch_type(ti.u16)
