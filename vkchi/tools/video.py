"""Films: `write_video` streams frames into a file; `VideoManager` also keeps them as PNG files.

write_video("film.mp4", (draw(k) for k in range(100)), framerate=24)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelRuntimeError, MissingPackageError, ToolError
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.logs import logger
from vkchi.tools.image import Origin, import_pillow, imwrite, to_image
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import Numbers

log = logger()
FRAME_NAME = "%06d.png"
FIRST_BUILD = 4  # frames; then after twice as many, and so on
# Formats by suffix. Pillow's name; PyAV's codec and its options for nearly lossless films.
PICTURES = {".gif": "GIF", ".apng": "PNG", ".png": "PNG"}
LEAST_FRAMERATE = 0.01  # per second; longer frames exceed the formats' fields
CODECS = {
    ".mp4": ("libx264", {"crf": "1"}),
    ".webm": ("libvpx-vp9", {"crf": "10", "b": "0", "row-mt": "1"}),
}


def write_video(
    filename: str | os.PathLike[str],
    frames: Iterable[Numbers],
    framerate: float = 24,
    *,
    origin: Origin = "lower",
    cmap: str | None = None,
) -> None:
    """Write a film; its suffix is the format: .mp4, .webm, .gif, or .apng and .png (animated PNG).

    MP4 and WebM need even sizes: an odd last row or column is left out. GIF and PNG keep the frames
    in memory. A GIF has at most 50 frames per second.

    Args:
        filename: path of the file.
        frames: images of one size, as for `imwrite`. A generator draws each frame when it is
            written.
        framerate: frames per second.
        origin: as for `imwrite`.
        cmap: as for `imwrite`.

    Raises:
        ToolError: for other suffixes, rates and arrays, no frames, and frames of several sizes.
        ArgumentError: for objects that are no arrays.
        KernelRuntimeError: if the file cannot be written.
        MissingPackageError: without Pillow, and for MP4 and WebM without PyAV.
    """
    name = os.fspath(filename)
    is_number = isinstance(framerate, int | float) and not isinstance(framerate, bool)
    if not is_number or not LEAST_FRAMERATE <= framerate < float("inf"):
        raise ToolError(
            f"write_video: framerate is a number from {LEAST_FRAMERATE} on, not {framerate!r}"
        )
    write_images(name, (to_image(frame, origin, cmap) for frame in frames), framerate)


def write_images(name: str, images: Iterable[Any], framerate: float) -> None:
    """Write Pillow images to a film. Raises as `write_video`."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in (*PICTURES, *CODECS):
        raise ToolError(f"write_video: {name!r} ends in none of " + " ".join((*CODECS, *PICTURES)))
    failures: list[OSError] = []
    images = of_one_size(reporting(images, failures))
    try:
        if suffix in CODECS:
            encode(name, suffix, images, framerate)
            return
        first, *others = images
        first.save(
            name,
            PICTURES[suffix],
            save_all=True,
            append_images=others,
            duration=delays(1 + len(others), framerate, suffix),
            loop=0,
        )
    except local(OSError) as e:
        if e in failures:
            raise
        raise KernelRuntimeError(f"cannot make the film {name!r}: {e}") from None


def reporting(images: Iterable[Any], failures: list[OSError]) -> Iterator[Any]:
    """The same images. Appends an OSError of the iterator to `failures`."""
    try:
        yield from images
    except local(OSError) as e:
        failures.append(e)
        raise


def delays(count: int, framerate: float, suffix: str) -> int | list[int]:
    """Milliseconds that each of `count` frames is shown; one number if all are equal.

    Files store hundredths (GIF) or thousandths of a second. Rounded times of frames spread the
    remainder. GIF frames last 20 ms at least, because browsers slow shorter ones down.
    """
    unit, least = (10, 20) if suffix == ".gif" else (1, 1)
    times = [round(1000 * k / framerate / unit) * unit for k in range(count + 1)]
    found = [max(end - start, least) for start, end in pairwise(times)]
    return found if len(set(found)) > 1 else found[0]


def of_one_size(images: Iterable[Any]) -> Iterator[Any]:
    """The same images. Raises ToolError if there are none, or if their sizes differ."""
    size = None
    for k, image in enumerate(images):
        if size is None:
            size = image.size
        if image.size != size:
            raise ToolError(f"frame {k} of the film has the size {image.size}, frame 0 has {size}")
        yield image
    if size is None:
        raise ToolError("the film has no frames")


def encode(name: str, suffix: str, images: Iterable[Any], framerate: float) -> None:
    """Write images to an MP4 or WebM file. Raises MissingPackageError, ToolError for images smaller
    than 2 by 2, OSError if the file cannot be written."""
    from fractions import Fraction  # not for those who make no film

    av = import_av()
    codec, options = CODECS[suffix]
    try:
        with av.open(name, "w") as film:
            stream = None
            for image in images:
                width, height = (n // 2 * 2 for n in image.size)
                if stream is None:
                    if not width or not height:
                        raise ToolError(f"a film has 2 by 2 pixels at least, not {image.size}")
                    rate = Fraction(float(framerate)).limit_denominator(65535)
                    stream = film.add_stream(codec, rate=rate, options=dict(options))
                    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                even = image.crop((0, image.height - height, width, image.height))
                film.mux(stream.encode(av.VideoFrame.from_image(even)))
            film.mux(stream.encode())  # type: ignore[union-attr]
    except local(av.FFmpegError) as e:
        raise OSError(str(e)) from None


def import_av() -> Any:
    """Import and return PyAV. Raises MissingPackageError if it is not installed."""
    try:
        import av
    except ImportError:
        raise MissingPackageError(
            "MP4 and WebM films need PyAV, which is not installed: pip install av, or write a .gif"
        ) from None
    return av


class VideoManager:
    """Writer of frames to `output_dir`/frames, which is created, and of their videos to
    `output_dir`.

    Frames of an earlier run are overwritten. Those of a longer film remain in the folder, and are
    not part of the new film.

    width, height: of MP4 and WebM, by default those of the first frame; post_processor: its
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

    def make_video(
        self, mp4: bool = True, gif: bool = True, *, webm: bool = False, apng: bool = False
    ) -> None:
        """Make the videos of the frames written so far.

        Raises ToolError without frames and for frames of several sizes, MissingPackageError for MP4
        and WebM without PyAV, KernelRuntimeError if a frame cannot be read or a film not be
        written.
        """
        if not self.frame_fns:
            raise ToolError("make_video: no frame has been written")
        wanted = {".gif": gif, ".apng": apng, ".mp4": mp4, ".webm": webm}
        for suffix in [suffix for suffix in wanted if wanted[suffix]]:
            size = (self.width, self.height) if suffix in CODECS else None
            write_images(self.get_output_filename(suffix), self._images(size), self.framerate)

    def _images(self, size: tuple[int | None, int | None] | None) -> Iterator[Any]:
        """Read the frames, as Pillow images; scale them to `size` if it is given.

        Raises KernelRuntimeError for a file that is gone or is no picture.
        """
        pillow = import_pillow()
        for name in self.frame_fns:
            path = os.path.join(self.frame_directory, name)
            try:
                with pillow.open(path) as frame:
                    image = frame.resize(size) if size and frame.size != size else frame.copy()
            except local(OSError) as e:
                raise KernelRuntimeError(f"cannot read the frame {path!r}: {e}") from None
            yield image

    def _build(self) -> None:
        """Make both videos; a missing PyAV is logged, not raised."""
        try:
            self.make_video()
        except MissingPackageError as e:
            log.warning("%s", e)


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
