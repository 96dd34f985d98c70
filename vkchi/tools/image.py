"""Image files and windows by Pillow: `imread`, `imwrite`, `imresize`, `imshow`.

The first axis of an array is x, from left to right; the second is y, from bottom to top; a third
has 1, 3 or 4 channels. With `origin="upper"`, the first axis is the row, from top to bottom, and
the second the column, as in numpy, Pillow and matplotlib. Pillow is imported on first use.

    imwrite(pixels, "julia.png"); imread("julia.png").shape     # (320, 640, 3)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from vkchi.errors import (
    ConversionWarning,
    KernelRuntimeError,
    MissingPackageError,
    ToolError,
    Unsupported,
    warn_line,
)
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.platform import has_screen
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import Array, Numbers

Origin = Literal["lower", "upper"]
# Options of Pillow's `save`, by format: high quality, and no chroma subsampling.
_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95, "subsampling": 0}}
_NO_ALPHA = ("JPEG", "PPM")
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def import_pillow() -> Any:
    """Import Pillow's Image module. Raises MissingPackageError if it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingPackageError(
            "images need Pillow, which is not installed: pip install Pillow"
        ) from None
    return Image


# --- arrays as pixels ----------------------------------------------------------------------------


def to_bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert to u8.

    Floats are clipped to [0, 1], multiplied by 255 and truncated; nan is 0. Unsigned integers give
    their upper eight bits. Raises ToolError for other types.
    """
    if values.dtype == np.uint8:
        return values
    scaled: np.ndarray[Any, Any] | None = None
    if values.dtype.kind == "f":
        wide = values.astype(np.result_type(values, np.float32))
        scaled = np.fmin(np.fmax(wide, 0), 1) * np.float32(255)  # nan is 0
    elif values.dtype.kind == "u":
        scaled = values >> (values.dtype.itemsize - 1) * 8
    if scaled is not None:
        return scaled.astype(np.uint8)
    raise ToolError(
        f"an image is made of floats from 0 to 1 or unsigned integers, not of {values.dtype}: "
        "convert it, for example with .astype(np.uint8)"
    )


def to_pixels(
    img: Numbers, origin: Origin = "lower", cmap: str | None = None
) -> np.ndarray[Any, Any]:
    """Convert an image to rows of pixels from the top: `u8[height, width, channels]`.

    Scalars are converted as in `to_bytes`, then by the colour map `cmap`, if any. Raises ToolError
    for other shapes, scalar types and origins, ArgumentError for objects that are no arrays of
    numbers, and the errors of `colours_of_map`.
    """
    is_rows = check_origin(origin) == "upper"
    values = to_bytes(host_views.to_number_array(img))
    if cmap is not None:
        if values.ndim == 3 and values.shape[2] == 1:
            values = values[:, :, 0]
        if values.ndim != 2:
            raise ToolError(f"cmap needs an image of one channel, not of shape {values.shape}")
        values = to_bytes(colours_of_map(cmap, np.arange(256) / 255)[:, :3])[values]
    if values.ndim == 2:
        values = values[:, :, np.newaxis]
    if values.ndim != 3 or values.shape[2] not in (1, 3, 4) or values.size == 0:
        raise ToolError(
            "an image is an array of shape (width, height), or with a third axis of 1, 3 or 4 "
            f"channels, not {values.shape}"
        )
    return np.ascontiguousarray(values if is_rows else values.swapaxes(0, 1)[::-1])


def check_origin(origin: str) -> str:
    """Return the origin. Raises ToolError if it is neither "lower" nor "upper"."""
    if origin not in ("lower", "upper"):
        raise ToolError(f'origin is "lower" or "upper", not {origin!r}')
    return origin


def colours_of_map(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Colours f32[..., 4] of `values` from 0 to 1 in a colour map of the package `cmap`.

    Values outside are clamped, nan is 0. Raises ToolError for unknown names, MissingPackageError if
    the package is not installed.
    """
    try:
        import cmap
    except ImportError:
        raise MissingPackageError(
            "colour maps need cmap, which is not installed: pip install cmap"
        ) from None
    try:
        found = cmap.Colormap(name)
    except local(TypeError, ValueError):
        raise ToolError(f"no colour map is called {name!r}: try 'viridis' or 'gray'") from None
    colours: np.ndarray[Any, Any] = found(np.clip(np.nan_to_num(values), 0, 1))
    return colours.astype(np.float32)


def from_pixels(rows: np.ndarray[Any, Any], origin: Origin = "lower") -> np.ndarray[Any, Any]:
    """Convert rows of pixels from the top to an image array, the reverse of `to_pixels`."""
    if rows.ndim == 2:
        rows = rows[:, :, np.newaxis]
    return rows if check_origin(origin) == "upper" else rows.swapaxes(0, 1)[:, ::-1]


def to_image(img: Any, origin: Origin = "lower", cmap: str | None = None) -> Any:
    """Pillow image (grey, RGB or RGBA) of an array.

    Raises the errors of `to_pixels`, and MissingPackageError without Pillow.
    """
    values = host_views.to_number_array(img)
    if cmap is None:
        warn_of_white(values)
    rows = to_pixels(values, origin, cmap)
    return import_pillow().fromarray(rows[:, :, 0] if rows.shape[2] == 1 else rows)


FAR = 16  # a picture of floats up to here may be overexposed on purpose


def warn_of_white(values: np.ndarray[Any, Any]) -> None:
    """Warn if most positive floats of an image are clipped to white, though they differ and are far
    above 1: most likely an image of 0 to 255."""
    if values.dtype.kind != "f" or not values.size:
        return
    above = values > 1
    count = np.count_nonzero(above)
    if not count or 2 * count <= np.count_nonzero(values > 0):
        return
    clipped = values[above]
    greatest = clipped.max()
    if greatest > FAR and clipped.min() < greatest:
        warn_line(
            f"most floats of the image exceed 1, up to {greatest:g}, and become white\n"
            "help: floats are colours from 0 to 1: divide by 255, or by the greatest value",
            ConversionWarning,
        )


# --- files ---------------------------------------------------------------------------------------


def imwrite(
    img: Numbers,
    filename: str | os.PathLike[str],
    *,
    origin: Origin = "lower",
    cmap: str | None = None,
) -> None:
    """Write a field or array to an image file; its suffix is the format (png, jpg, bmp, ...).

    Floats are clipped to 0 to 1; unsigned integers give their upper eight bits. Alpha is dropped
    for JPEG and PPM.

    Args:
        img: shape (width, height), or (width, height, 1, 3 or 4 channels).
        filename: path of the file.
        origin: "lower" as described, or "upper" for (rows from the top, columns).
        cmap: name of a colour map for one channel.

    Raises:
        ToolError: for other arrays and unknown suffixes.
        ArgumentError: for objects that are no arrays.
        KernelRuntimeError: if the file cannot be written.
        MissingPackageError: without Pillow.
    """
    made = to_image(img, origin, cmap)
    name = os.fspath(filename)
    suffix = os.path.splitext(name)[1].lower()
    fmt = import_pillow().registered_extensions().get(suffix)
    if fmt is None or fmt not in import_pillow().SAVE:
        raise ToolError(f"imwrite: no image format has the suffix {suffix!r}: say .png, .jpg, .bmp")
    if fmt in _NO_ALPHA and made.mode == "RGBA":
        made = made.convert("RGB")
    try:
        made.save(name, fmt, **_OPTIONS.get(fmt, {}))
    except local(OSError) as e:
        raise KernelRuntimeError(f"cannot write the image {name!r}: {e}") from None


def imread(
    filename: str | os.PathLike[str], channels: int = 0, *, origin: Origin = "lower"
) -> np.ndarray[Any, Any]:
    """Read an image file. Photographs are turned upright, as their EXIF orientation says.

    Args:
        filename: path of the file.
        channels: 1 (grey), 2 (grey and alpha), 3 or 4; 0: as in the file.
        origin: "lower" or "upper".

    Returns:
        `u8[width, height, channels]`, x to the right, y up. With `origin="upper"`,
        `u8[rows from the top, columns, channels]`.

    Raises:
        ToolError: for other values of `channels` and `origin`.
        KernelRuntimeError: if the file cannot be read.
        MissingPackageError: without Pillow.
    """
    if channels != 0 and channels not in _MODES:
        raise ToolError(f"imread: channels is a number from 0 to 4, not {channels!r}")
    name = os.fspath(filename)
    pillow = import_pillow()
    wrong = (OSError, SyntaxError, ValueError, pillow.DecompressionBombError)
    try:
        with pillow.open(name) as opened:
            upright = turn_upright(opened)
            image = upright.convert(_MODES[channels] if channels else own_mode(upright))
    except wrong as e:  # Pillow's, of missing and of broken files
        raise KernelRuntimeError(f"cannot read the image {name!r}: {e}") from None
    return from_pixels(np.array(image), origin)


def turn_upright(image: Any) -> Any:
    """A Pillow image turned as its EXIF orientation says; the image itself without a valid one."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except local(Exception):  # damaged EXIF data; errors of the pixels are raised again on reading
        return image


def own_mode(image: Any) -> str:
    """Eight-bit Pillow mode (L, LA, RGB or RGBA) that keeps the channels of an image."""
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    is_grey = image.mode in ("1", "L", "LA") or image.mode[0] in "IF"
    return ("LA" if is_grey else "RGBA") if has_alpha else ("L" if is_grey else "RGB")


def imresize(img: Numbers, w: int, h: int | None = None) -> np.ndarray[Any, Any]:
    """Resize an image array, without interpolation.

    Pixel (x, y) is the source pixel at the scaled coordinates, rounded down.

    Args:
        img: an array of two or more axes; the first two are x and y.
        w: the new width.
        h: the new height (w).

    Returns:
        An array of `w` by `h` pixels. An array of that size is returned unchanged.

    Raises:
        ToolError: for sizes that are no positive integers, arrays of fewer than two axes and arrays
            without pixels.
    """
    values = host_views.to_number_array(img)
    h = w if h is None else h
    if any(not isinstance(n, int | np.integer) or n < 1 for n in (w, h)) or values.ndim < 2:
        raise ToolError(f"imresize takes an image and positive integers, not {w!r} and {h!r}")
    if 0 in values.shape[:2]:
        raise ToolError(f"imresize: an image of shape {values.shape} has no pixels")
    if values.shape[:2] == (w, h):
        return values
    x, y = (np.arange(n) * (old / n) for n, old in zip((w, h), values.shape))
    resized: np.ndarray[Any, Any] = values[np.ix_(x.astype(np.int64), y.astype(np.int64))]
    return resized


# --- windows -------------------------------------------------------------------------------------


def imshow(
    img: Numbers, title: str = "imshow", *, origin: Origin = "lower", cmap: str | None = None
) -> None:
    """Show a field or array: in the notebook (or IPython), else in the system's image viewer.

    Args:
        img: as for `imwrite`.
        title: passed to the viewer.
        origin: as for `imwrite`.
        cmap: as for `imwrite`.

    Raises:
        Unsupported: outside of IPython without a screen.
        ToolError: for unsuitable arrays.
        ArgumentError: for objects that are no arrays.
        MissingPackageError: without Pillow.
    """
    image = to_image(img, origin, cmap)
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        ipython.display.display(image)
    elif has_screen():
        image.show(title)
    else:
        raise Unsupported(
            "imshow: no screen here; write a file instead: ti.tools.imwrite(img, ...)"
        )


# --- colours -------------------------------------------------------------------------------------


@overload
def rgb_to_hex(c: Iterable[float]) -> int: ...
@overload
def rgb_to_hex(c: Iterable[Array]) -> Array: ...
def rgb_to_hex(c: Iterable[float] | Iterable[Array]) -> int | Array:
    """Join red, green and blue. They are multiplied by 255, truncated and clipped.

    Args:
        c: red, green and blue from 0 to 1, as numbers or arrays.

    Returns:
        `0xRRGGBB`, or an array of such numbers.
    """
    red, green, blue = (np.clip(np.asarray(np.asarray(x) * 255, np.int32), 0, 255) for x in c)
    return ((red << 16) + (green << 8) + blue)[()]


@overload
def hex_to_rgb(color: int) -> tuple[float, float, float]: ...
@overload
def hex_to_rgb(color: Array) -> tuple[Array, Array, Array]: ...
def hex_to_rgb(color: int | Array) -> tuple[float, float, float] | tuple[Array, Array, Array]:
    """Split colours into red, green and blue.

    Args:
        color: `0xRRGGBB`, or an array of such numbers.

    Returns:
        Red, green and blue, each from 0 to 1.
    """
    whole: Any = color
    return (whole >> 16 & 0xFF) / 255, (whole >> 8 & 0xFF) / 255, (whole & 0xFF) / 255
