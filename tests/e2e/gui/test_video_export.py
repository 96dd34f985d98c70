"""Video files of drawn frames."""

from __future__ import annotations

from pathlib import Path

import pytest

import vkchi as ti


def test_an_mp4_by_the_ffmpeg_of_imageio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setattr("shutil.which", lambda name: None)
    film = ti.tools.VideoManager(tmp_path, automatic_build=False)
    gui = ti.GUI("film", res=32, show_gui=False)
    for k in range(3):
        gui.circle((k / 3, 0.5), radius=5)
        film.write_frame(gui.get_image()[:, :, :3])
        gui.clear()
    film.make_video(gif=False)
    assert (tmp_path / "video.mp4").read_bytes()[4:8] == b"ftyp"
