"""Errors of `ti.tools` for files that cannot be read or written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ToolError

pytest.importorskip("PIL")


def test_an_image_of_billions_of_pixels(tmp_path: Path) -> None:
    path = tmp_path / "huge.ppm"
    path.write_bytes(b"P6 70000 70000 255\n")
    with pytest.raises(RuntimeError, match="cannot read the image .*huge.ppm': Image size"):
        ti.tools.imread(path)


def test_a_film_without_its_frames(tmp_path: Path) -> None:
    film = ti.tools.VideoManager(tmp_path, automatic_build=False)
    film.write_frame(np.zeros((4, 4)))
    film.clean_frames()
    with pytest.raises(RuntimeError, match=r"cannot read the frame .*000000.png': .*No such"):
        film.make_video(mp4=False)


def test_a_frame_that_is_no_image_is_not_counted(tmp_path: Path) -> None:
    film = ti.tools.VideoManager(tmp_path)
    for wrong in (np.zeros(3), np.zeros((4, 4, 2)), np.zeros((1, 5)), 3.0):
        with pytest.raises(ValueError, match="is an array of shape"):
            film.write_frame(wrong)
    film.write_frame(np.zeros((6, 5)))
    assert (film.frame_counter, film.width, film.height) == (1, 6, 4)


def test_a_picture_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"cannot write the image .*no.x\.png': .*No such file"):
        ti.tools.imwrite(np.zeros((4, 4)), tmp_path / "no" / "x.png")


@pytest.mark.parametrize("shape", [(0, 4), (4, 0, 3)])
def test_images_without_pixels_have_no_other_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(ToolError, match="has no pixels"):
        ti.tools.imresize(np.zeros(shape, np.uint8), 4)
