"""Video from frames: `VideoManager` writes PNG files, and an MP4 (by ffmpeg) and a GIF of them.

manager = VideoManager("out", framerate=24, automatic_build=False)
manager.write_frame(pixels); manager.make_video(gif=True, mp4=False)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from vkchi.errors import KernelRuntimeError, MissingPackageError, ToolError
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.logs import logger
from vkchi.tools.image import import_pillow, imwrite
from vkchi.types.lazy_numpy import np

log = logger()
FRAME_NAME = "%06d.png"
FIRST_BUILD = 4  # frames; then after twice as many, and so on


class VideoManager:
    """Writer of frames to `output_dir`/frames, which is created, and of their videos to
    `output_dir`.

    width, height: of the MP4, by default those of the first frame; post_processor: its
    `process(img)` is called on each frame; automatic_build: make the videos after 4, 8, 16, ...
    frames. Raises ToolError for sizes and rates that are not positive, and for only one of width
    and height. Source: Taichi's `ti.tools.VideoManager`.
    """

    def __init__(
        self,
        output_dir: Any,
        video_filename: str | None = None,
        width: int | None = None,
        height: int | None = None,
        post_processor: Any = None,
        framerate: int = 24,
        automatic_build: bool = True,
    ) -> None:
        if (width is None) != (height is None):
            raise ToolError("VideoManager: give both width= and height=, or neither")
        for name, value in {"width": width, "height": height, "framerate": framerate}.items():
            if value is not None and not value > 0:
                raise ToolError(f"VideoManager: {name} is a positive number, not {value!r}")
        self.directory, self.video_filename = os.fspath(output_dir), video_filename
        self.width, self.height = width, height
        self.post_processor, self.framerate = post_processor, framerate
        self.automatic_build = automatic_build
        self.frame_directory = os.path.join(self.directory, "frames")
        self.frame_fns: list[str] = []
        self.frame_counter, self.next_video_checkpoint = 0, FIRST_BUILD
        os.makedirs(self.frame_directory, exist_ok=True)

    def get_output_filename(self, suffix: str) -> str:
        """The path of the video with this suffix (`.mp4`, `.gif`)."""
        stem = os.path.splitext(self.video_filename or "video")[0]
        return os.path.join(self.directory, stem + suffix)

    def get_frame_directory(self) -> str:
        """The folder of the frames."""
        return self.frame_directory

    def write_frame(self, img: Any) -> None:
        """Write the next frame: a field or array, as `ti.tools.imwrite` takes it.

        An odd last row or column is left out before post-processing, since MP4 needs even sizes.
        Raises ToolError for other arrays, ArgumentError for objects that are no arrays,
        KernelRuntimeError if the file cannot be written. With `automatic_build`, raises the errors
        of `make_video` except MissingPackageError.
        """
        values = crop_to_even(host_views.to_number_array(img))
        if self.post_processor is not None:
            values = host_views.to_number_array(self.post_processor.process(values))
        name = FRAME_NAME % self.frame_counter
        imwrite(values, os.path.join(self.frame_directory, name))
        if self.width is None:
            self.width, self.height = values.shape[:2]
        self.frame_fns.append(name)
        self.frame_counter += 1
        if self.automatic_build and self.frame_counter == self.next_video_checkpoint:
            self.next_video_checkpoint *= 2
            self._build()

    def write_frames(self, images: Iterable[Any]) -> None:
        """Write several frames."""
        for img in images:
            self.write_frame(img)

    def clean_frames(self) -> None:
        """Delete the files of the frames written so far."""
        for name in self.frame_fns:
            path = os.path.join(self.frame_directory, name)
            if os.path.exists(path):
                os.remove(path)

    def make_video(self, mp4: bool = True, gif: bool = True) -> None:
        """Make the videos of the frames written so far.

        Raises ToolError without frames, MissingPackageError if an MP4 is requested without ffmpeg,
        KernelRuntimeError if ffmpeg fails or the GIF cannot be written.
        """
        if not self.frame_fns:
            raise ToolError("make_video: no frame has been written")
        if gif:
            self._make_gif()
        if mp4:
            self._make_mp4()

    def _build(self) -> None:
        """Make both videos; a missing ffmpeg is logged, not raised."""
        try:
            self.make_video()
        except MissingPackageError as e:
            log.warning("%s", e)

    def _make_gif(self) -> None:
        pillow, name = import_pillow(), self.get_output_filename(".gif")
        frames = [os.path.join(self.frame_directory, name) for name in self.frame_fns]
        with ExitStack() as opened:
            try:
                images = [opened.enter_context(pillow.open(frame)) for frame in frames]
                images[0].save(
                    name,
                    save_all=True,
                    append_images=images[1:],
                    duration=1000 / self.framerate,
                    loop=0,
                )
            except local(OSError) as e:
                raise KernelRuntimeError(f"cannot make the film {name!r}: {e}") from None

    def _make_mp4(self) -> None:
        import subprocess  # not for those who make no film

        program = find_ffmpeg()
        command = [
            program, "-loglevel", "error", "-y", "-framerate", str(self.framerate),
            "-i", os.path.join(self.frame_directory, FRAME_NAME),
            "-s:v", f"{self.width}x{self.height}", "-c:v", "libx264", "-profile:v", "high",
            "-crf", "1", "-pix_fmt", "yuv420p", self.get_output_filename(".mp4"),
        ]  # fmt: skip
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise KernelRuntimeError(f"ffmpeg failed: {made.stderr.strip()}")


def find_ffmpeg() -> str:
    """Path of ffmpeg: the system's, or that of the package imageio-ffmpeg.

    Raises MissingPackageError if there is none.
    """
    program = shutil.which("ffmpeg")
    if program is not None:
        return program
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return str(get_ffmpeg_exe())
    except local(ImportError, RuntimeError):
        raise MissingPackageError(
            "MP4 files need the program ffmpeg, which is not installed: install it, or pip install "
            '"vkchi[video]", or say make_video(mp4=False)'
        ) from None


def crop_to_even(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Drop the last column and row if their counts are odd.

    Raises ToolError for arrays of fewer than two axes or than 2 by 2 pixels.
    """
    if values.ndim < 2 or min(values.shape[:2]) < 2:
        raise ToolError(
            "a frame is an array of shape (width, height), or with a third axis of 1, 3 or 4 "
            f"channels, of 2 by 2 pixels at least, not {values.shape}"
        )
    return values[: values.shape[0] // 2 * 2, : values.shape[1] // 2 * 2]
