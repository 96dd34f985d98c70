"""Films of `ti.tools.write_video` and `VideoManager`, read back by Pillow and PyAV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import MissingPackageError

PIL = pytest.importorskip("PIL.Image")
PICTURES, VIDEOS = [".gif", ".apng", ".png"], [".mp4", ".webm"]


def frames_of(path: Path) -> list[np.ndarray[Any, Any]]:
    """Frames of a film, `u8[height, width, 3]`."""
    if path.suffix in PICTURES:
        with PIL.open(path) as film:
            found = []
            for k in range(film.n_frames):
                film.seek(k)
                found.append(np.array(film.convert("RGB")))
            return found
    av = pytest.importorskip("av")
    with av.open(str(path)) as film:
        return [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]


def draw(k: int, width: int = 48, height: int = 32) -> np.ndarray[Any, Any]:
    """Frame k: a bright block at the bottom, which moves right."""
    image = np.full((width, height, 3), 10 * k, np.uint8)
    image[8 * k : 8 * k + 8, :8] = 250
    return image


@pytest.mark.parametrize("suffix", PICTURES + VIDEOS)
def test_frames_of_a_generator(tmp_path: Path, suffix: str) -> None:
    if suffix in VIDEOS:
        pytest.importorskip("av")
    path = tmp_path / f"film{suffix}"
    ti.tools.write_video(path, (draw(k) for k in range(5)), framerate=10)
    found = frames_of(path)
    assert len(found) == 5 and found[0].shape == (32, 48, 3)
    for k, frame in enumerate(found):
        wanted = draw(k).swapaxes(0, 1)[::-1].astype(int)
        assert abs(frame - wanted).mean() < 2, k
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no files of frames


@pytest.mark.parametrize("suffix", VIDEOS)
def test_videos_are_written_while_frames_are_drawn(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("av")
    path, rng, sizes = tmp_path / f"a{suffix}", np.random.default_rng(1), []

    def noise() -> Iterator[np.ndarray[Any, Any]]:
        for _ in range(240):
            sizes.append(path.stat().st_size if path.exists() else 0)
            yield rng.integers(0, 256, (64, 64), np.uint8)

    ti.tools.write_video(path, noise())
    assert sizes[0] == 0 < sizes[-1] < path.stat().st_size


def test_framerates(tmp_path: Path) -> None:
    frames = [draw(k) for k in range(4)]
    ti.tools.write_video(tmp_path / "a.gif", frames, framerate=10)
    ti.tools.write_video(tmp_path / "a.apng", frames, framerate=8)
    with PIL.open(tmp_path / "a.gif") as gif, PIL.open(tmp_path / "a.apng") as png:
        assert gif.info["duration"] == 100 and png.info["duration"] == 125
    av = pytest.importorskip("av")
    for rate in (24, 29.97):
        ti.tools.write_video(tmp_path / "a.mp4", frames, framerate=rate)
        with av.open(str(tmp_path / "a.mp4")) as film:
            assert float(film.streams.video[0].average_rate) == pytest.approx(rate, 1e-4)


@pytest.mark.parametrize(("rate", "seconds"), [(24, 2), (30, 1.6), (12.5, 3.84), (60, 0.96)])
def test_delays_of_gifs_spread_the_remainder(tmp_path: Path, rate: float, seconds: float) -> None:
    """48 frames. GIF stores hundredths of a second; frames last two at least."""
    ti.tools.write_video(tmp_path / "a.gif", [draw(k % 5) for k in range(48)], framerate=rate)
    delays = []
    with PIL.open(tmp_path / "a.gif") as film:
        for k in range(film.n_frames):
            film.seek(k)
            delays.append(film.info["duration"])
    assert len(delays) == 48 and min(delays) >= 20
    assert sum(delays) == pytest.approx(1000 * seconds, abs=10)
    assert max(delays) - min(delays) <= 10


@pytest.mark.parametrize("suffix", VIDEOS)
def test_odd_sizes_lose_a_row_and_a_column(tmp_path: Path, suffix: str) -> None:
    """The last ones, as in `VideoManager`."""
    pytest.importorskip("av")
    image = np.zeros((33, 17), np.uint8)
    image[32], image[:, 16] = 255, 255
    ti.tools.write_video(tmp_path / f"a{suffix}", [image] * 3)
    assert all(f.shape == (16, 32, 3) and f.max() < 30 for f in frames_of(tmp_path / f"a{suffix}"))


def test_origin_and_colour_maps(tmp_path: Path) -> None:
    pytest.importorskip("cmap")
    rows = np.linspace(0, 1, 12 * 16, dtype=np.float32).reshape(12, 16)
    ti.tools.write_video(tmp_path / "a.apng", [rows], origin="upper", cmap="viridis")
    ti.tools.imwrite(rows, tmp_path / "b.png", origin="upper", cmap="viridis")
    (found,) = frames_of(tmp_path / "a.apng")
    assert np.array_equal(found, np.array(PIL.open(tmp_path / "b.png")))


WRONG: dict[str, tuple[str, list[Any], str]] = {
    "suffix": ("a.avi", [draw(0)], "ends in none of .mp4 .webm .gif"),
    "no frames": ("a.gif", [], "has no frames"),
    "sizes": ("a.gif", [draw(0), draw(1, 40)], r"frame 1 of the film has the size \(40, 32\)"),
    "shape": ("a.gif", [np.zeros(3)], "an image is an array"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_frames_are_errors(tmp_path: Path, fault: str) -> None:
    name, frames, message = WRONG[fault]
    with pytest.raises(ti.VkchiError, match=message):
        ti.tools.write_video(tmp_path / name, frames)
    with pytest.raises(ti.VkchiError, match="framerate is a number from 0.01 on"):
        ti.tools.write_video(tmp_path / "a.gif", [draw(0)], framerate=0)


@pytest.mark.parametrize("suffix", PICTURES + VIDEOS)
def test_a_film_in_a_folder_that_is_missing(tmp_path: Path, suffix: str) -> None:
    if suffix in VIDEOS:
        pytest.importorskip("av")
    with pytest.raises(RuntimeError, match=rf"cannot make the film .*x{suffix}': .*No such file"):
        ti.tools.write_video(tmp_path / "no" / f"x{suffix}", [draw(0)])


def test_videos_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingPackageError, match="pip install av"):
        ti.tools.write_video(tmp_path / "a.webm", [draw(0)])
    ti.tools.write_video(tmp_path / "a.gif", [draw(0)])


# --- VideoManager --------------------------------------------------------------------------------


def test_all_films_of_a_manager(tmp_path: Path) -> None:
    pytest.importorskip("av")
    film = ti.tools.VideoManager(tmp_path, "film", automatic_build=False)
    film.write_frames(draw(k) for k in range(5))
    film.make_video(webm=True, apng=True)
    for suffix in (".mp4", ".webm", ".gif", ".apng"):
        found = frames_of(Path(film.get_output_filename(suffix)))
        assert len(found) == 5 and found[0].shape == (32, 48, 3), suffix


def test_sizes_of_a_managers_mp4(tmp_path: Path) -> None:
    """Frames of several sizes are scaled to the one of the video."""
    pytest.importorskip("av")
    film = ti.tools.VideoManager(tmp_path, width=24, height=16, automatic_build=False)
    film.write_frames([draw(0), draw(1), draw(2, 96, 64)])
    film.make_video(gif=False)
    found = frames_of(tmp_path / "video.mp4")
    assert [f.shape for f in found] == [(16, 24, 3)] * 3
    assert found[1][14, 6].min() > 200 and found[1][2, 6].max() < 40
    with pytest.raises(ti.VkchiError, match="frame 2 of the film has the size"):
        film.make_video(mp4=False)


def test_a_manager_builds_after_four_frames(tmp_path: Path) -> None:
    pytest.importorskip("av")
    film = ti.tools.VideoManager(tmp_path)
    film.write_frames(draw(k) for k in range(5))
    assert len(frames_of(tmp_path / "video.mp4")) == len(frames_of(tmp_path / "video.gif")) == 4


@pytest.mark.parametrize("rate", ["24", True, 0, 1e-7, float("nan")])
def test_rates_that_no_film_has(rate, tmp_path):
    frames = [np.zeros((8, 8, 3), np.uint8)] * 2
    with pytest.raises(ti.VkchiError, match="framerate is a number from 0.01 on"):
        ti.tools.write_video(str(tmp_path / "x.gif"), frames, rate)


def test_errors_of_the_users_frames_are_the_users(tmp_path):
    def draw():
        yield np.zeros((8, 8, 3), np.uint8)
        raise FileNotFoundError("my texture")

    with pytest.raises(FileNotFoundError, match="my texture"):
        ti.tools.write_video(str(tmp_path / "x.gif"), draw())
