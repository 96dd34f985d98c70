"""Textures in Python, and textures as kernel arguments.

A texture is stored as an ndarray with one element per texel. `lang/texture_sampling.py` defines the
reads of kernels.

    tex = ti.Texture(ti.Format.rgba8, (64, 64)); tex.from_image(Image.open("logo.png"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, ToolError
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.field import cook_shape
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec
from vkchi.interop import host_views
from vkchi.lang.texture_sampling import encode_texel
from vkchi.ndarray import Ndarray
from vkchi.runtime import current_runtime
from vkchi.signature import ANNOTATIONS, Parameter
from vkchi.signature.bound import BoundArguments
from vkchi.signature.wording import axes_text, describe_argument, other_device_message
from vkchi.types import SCALARS, Scalar, with_shape
from vkchi.types.formats import Format, rw_texture, texel_of, texture
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.fields.field import Field
    from vkchi.types.hints import Shape


def choose_scalar(device: Device, t: Scalar) -> Scalar:
    """Scalar type that stores a channel of type t: t, or a 32-bit type if the device cannot store
    t."""
    return t if device.caps.can_store(t.name) else SCALARS[f"{t.kind}32"]


class Texture:
    """A grid of texels, of one to three axes, initially zero; the first axis is x.

    fmt: a `ti.Format`; arr_shape: texels along each axis. Raises ArgumentError for other objects
    and shapes, Unsupported for the formats `unknown` and `depth24stencil8`, KernelRuntimeError
    before `init`.
    """

    __vkchi_name__ = "a ti.Texture that is no argument of the kernel"  # for error messages

    def __init__(self, fmt: Format, arr_shape: Shape) -> None:
        if not isinstance(fmt, Format):
            raise ArgumentError(f"ti.Texture: a format such as ti.Format.r32f, not {fmt!r}")
        self.texel = texel_of(fmt)
        self.fmt, self.shape = fmt, cook_shape(arr_shape)
        self.num_dims = len(self.shape)
        if not 1 <= self.num_dims <= 3:
            raise ArgumentError(f"ti.Texture: a shape of 1 to 3 axes, not {self.shape}")
        runtime = current_runtime()
        scalar = choose_scalar(runtime.device, SCALARS[self.texel.scalar])
        elem = with_shape(scalar, (self.texel.channels,) if self.texel.channels > 1 else ())
        self.storage = Ndarray(runtime, elem, self.shape[::-1])

    def __repr__(self) -> str:
        return f"<ti.Texture of ti.{self.fmt}, shape {self.shape}>"

    # --- contents --------------------------------------------------------------------------------

    def from_ndarray(self, ndarray: Ndarray) -> None:
        """Copy the elements of an ndarray (or numpy array, or torch tensor) in memory order.

        The texture's axis x varies fastest. The array has the texture's shape, or that reversed
        (height, width). Elements are scalars for formats of one channel. Otherwise they are
        vectors, or a last axis, with the number of channels. They have the format's own type, or
        are floats that are converted as by `store`. Raises ArgumentError for other arrays.
        """
        self._take("from_ndarray", ndarray)

    def from_field(self, field: Field) -> None:
        """Copy the elements of a `field`, as `from_ndarray` does. Raises ArgumentError for other
        objects."""
        if not isinstance(field, Storage):
            raise ArgumentError(f"from_field takes a field, not {describe_argument(field)}")
        self._take("from_field", field)

    def _take(self, who: str, source: Any) -> None:
        values = (
            source.contents() if isinstance(source, Storage) else host_views.to_number_array(source)
        )
        inner = (self.texel.channels,) if self.texel.channels > 1 else ()
        accepted = [(*shape, *inner) for shape in (self.shape, self.shape[::-1])]
        if inner == ():
            accepted += [(*shape, 1) for shape in accepted]
        if values.shape not in accepted:
            raise ArgumentError(
                f"{who}: an array of shape {accepted[0]} is needed for this texture, "
                f"not {values.shape}"
            )
        if isinstance(source, Storage):
            tape = self.storage.runtime.tape if self.texel.kind == "float" else None
            if tape is not None and tape.refill(self.storage, source):
                return
            source.tell(ArrayAccess("read"))
        self.storage.from_numpy(self._encoded(who, values).reshape((*self.shape[::-1], *inner)))

    def _encoded(self, who: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        own = SCALARS[self.texel.scalar]
        if values.dtype == own.dtype:
            return values
        if values.dtype.kind != "f":
            raise ArgumentError(
                f"{who}: a texture of ti.{self.fmt} takes {own} or floats, not {values.dtype}"
            )
        channels = values.astype(np.float32).reshape(-1, self.texel.channels)
        given = dict(zip(self.texel.order, channels.T))
        colour = [given.get(name, 0.0) for name in "rgba"]
        return np.stack(encode_texel(self.texel, colour, self.storage.dtype), axis=-1)

    def texels(self, who: str) -> Any:
        """Return the texels as a numpy array [x, y], with channels in the order red, green, blue,
        alpha; without an axis of channels for one channel. Raises ToolError unless the texture has
        two axes."""
        if self.num_dims != 2:
            raise ToolError(f"{who}: a texture of two axes is needed, not {self!r}")
        values = np.swapaxes(self.storage.seen(), 0, 1)
        if self.texel.scalar == "u8":
            values = values.astype(np.uint8)
        order = self.texel.order
        if values.ndim > 2:
            values = values[:, :, [order.index(name) for name in "rgba" if name in order]]
        return values

    # --- images ----------------------------------------------------------------------------------

    def from_image(self, image: Any) -> None:
        """Copy a Pillow image of the same size, as red, green and blue; alpha is 0.

        Texel (x, y) is the pixel in column width - 1 - x and row y, as in Taichi. For textures of
        two axes of ti.Format.rgba8. Raises ArgumentError for other textures and images.
        """
        from vkchi.tools.image import import_pillow  # few programs need it

        self._check_image("from_image")
        if not isinstance(image, import_pillow().Image):
            raise ArgumentError(f"from_image takes a Pillow image, not {type(image).__name__}")
        if image.size != self.shape:
            raise ArgumentError(
                f"from_image: the image is of size {image.size}, and the texture of {self.shape}"
            )
        pixels = np.asarray(image.convert("RGB"))[:, ::-1]
        alpha = np.zeros((*pixels.shape[:2], 1), np.uint8)
        self.storage.from_numpy(np.concatenate([pixels, alpha], axis=-1))

    def to_image(self) -> Any:
        """A Pillow image in mode RGB, with the layout of `from_image`; alpha is omitted."""
        from vkchi.tools.image import import_pillow

        self._check_image("to_image")
        texels = self.storage.to_numpy()[:, ::-1, :3].astype(np.uint8)
        return import_pillow().fromarray(np.ascontiguousarray(texels))

    def _check_image(self, who: str) -> None:
        if self.num_dims != 2 or self.fmt is not Format.rgba8:
            raise ArgumentError(
                f"{who} is for textures of two axes of ti.Format.rgba8; this has "
                f"{axes_text(self.num_dims)} of ti.{self.fmt}"
            )


class TextureParameter(Parameter):
    """A kernel parameter that is a texture; the kernel is compiled for its format."""

    kind = "texture"

    def __init__(self, name: str, note: Any) -> None:
        super().__init__(name, None)
        if not isinstance(note, texture | rw_texture):
            raise ArgumentError(
                f"argument `{name}`: write ti.types.{note.__name__}(num_dimensions=2, ...)"
            )
        self.note = note

    def sign(self, arg: Any) -> Any:
        if not isinstance(arg, Texture):
            raise self.refuse(f"a ti.Texture is needed, not {describe_argument(arg)}")
        if arg.num_dims != self.note.num_dimensions:
            wanted = axes_text(self.note.num_dimensions)
            raise self.refuse(f"a texture of {wanted} is needed, this has {arg.num_dims}")
        if isinstance(self.note, rw_texture) and arg.fmt is not self.note.fmt:
            raise self.refuse(f"a texture of ti.{self.note.fmt} is needed, not of ti.{arg.fmt}")
        return (arg.fmt, arg.storage.argument)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        fmt, texels = signed
        return ArgSpec(self.name, "texture", texels, (self.note, fmt))

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        if arg.storage.device is not bound.runtime.device:
            arg.storage.check_alive()
            raise self.refuse(other_device_message("the texture", arg.storage, bound.runtime))
        bound.bind_array(self.name, arg.storage)

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        dims = [("dim", self.name, k) for k in range(arg.num_dims)]
        return [("ptr", self.name, 0), ("size", self.name, 0), *dims]


ANNOTATIONS.update({texture: TextureParameter, rw_texture: TextureParameter})
