"""Textures in kernels: `tex.sample_lod(uv, lod)`, `tex.fetch(i, lod)`, `tex.load(i)`, `tex.store`.

A texture is an array of texels, accessed by the formulas of `lang.texture_sampling`. A texel
outside reads as (0, 0, 0, 0), or (0, 0, 0, 1) for formats without alpha; a store outside is
dropped. Source: Vulkan, "Robust Image Access".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from vkchi.frontend.calls.tables import CALLS, CallHandler
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.flow import lower_branch
from vkchi.frontend.control.spaces import LoopSpace, space_of
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.trace import unwrap, wrap
from vkchi.frontend.values.kinds import MarkedKind, all_but, describe
from vkchi.frontend.values.operands import as_type, components, operand, own_type
from vkchi.frontend.values.references import ArrayRef
from vkchi.ir.core import Value
from vkchi.lang import texture_sampling as formulas
from vkchi.lang.function import Function, kernel_function
from vkchi.lang.matrix import pack
from vkchi.lang.ndrange import ndrange
from vkchi.types import Scalar, f32, i32, scalar_of, shape_of, with_shape
from vkchi.types.formats import rw_texture, texel_of, texture


@kernel_function
def sample_lod(texture: Any, uv: Any, lod: Any) -> Any:
    """Placeholder for `tex.sample_lod(uv, lod)`: the colour at normalised coordinates.

    It is interpolated linearly; integer formats give the nearest texel. `lod` is ignored: textures
    have one level.
    """


@kernel_function
def fetch(texture: Any, index: Any, lod: Any) -> Any:
    """Placeholder for `tex.fetch(index, lod)`: the colour of one texel of a sampled texture.

    Outside it is zero, with alpha 1 for formats without alpha.
    """


@kernel_function
def load(texture: Any, index: Any) -> Any:
    """Placeholder for `tex.load(index)`: the colour of one texel of a read-and-write texture.

    Outside it is zero, with alpha 1 for formats without alpha.
    """


@kernel_function
def store(texture: Any, index: Any, value: Any) -> None:
    """Placeholder for `tex.store(index, value)`: set one texel of a read-and-write texture.

    A store out of range does nothing.
    """


class TextureRef:
    """A texture argument.

    The axes of its array of texels are the texture's in reverse: the first axis of a texture is
    contiguous in memory.
    """

    __slots__ = ("_array", "_cx", "_format", "_note")
    __vkchi_name__ = "a texture"

    def __init__(self, cx: Lowering, array: ArrayRef, note: texture | rw_texture, fmt: Any) -> None:
        self._cx, self._array, self._note, self._format = cx, array, note, fmt

    @property
    def shape(self) -> tuple[Any, ...]:
        """Texels along each axis."""
        return self._array.shape(self._cx)[::-1]

    @property
    def sample_lod(self) -> Any:
        return partial(sample_lod, self)

    @property
    def fetch(self) -> Any:
        return partial(fetch, self)

    @property
    def load(self) -> Any:
        return partial(load, self)

    @property
    def store(self) -> Any:
        return partial(store, self)

    # --- texels ----------------------------------------------------------------------------------

    def check_kind(self, fn: Function, kind: type) -> None:
        """Check that the annotation permits this method. Raises KernelTypeError."""
        if isinstance(self._note, kind):
            return
        name = self._array.value.name
        fmt = f", fmt=ti.{self._format}" if kind is rw_texture else ""
        wrong = type(self._note).__name__
        raise self._cx.fail(
            f"`{fn.__name__}` is for ti.types.{kind.__name__}, and `{name}` is a ti.types.{wrong}",
            help=f"annotate {name}: ti.types.{kind.__name__}"
            f"(num_dimensions={self._array.type.ndim}{fmt})",
        )

    def parts(self, x: Any, t: Scalar, what: str) -> list[Any]:
        """Return the components of x as type t: one per axis of the texture.

        Raises KernelTypeError for another number, and for floats as i32.
        """
        given = operand(self._cx, x)
        own, count = own_type(self._cx, given), self._array.type.ndim
        if shape_of(own) != (count,) and not (count == 1 and shape_of(own) == ()):
            axes = "axis" if count == 1 else "axes"
            raise self._cx.fail(
                f"`{self._array.value.name}` has {count} {axes}: {what} of {count} needed",
                label=describe(own),
                arg=0,
                help=f"write ti.Vector([{', '.join('ijk'[:count])}])" if count > 1 else "",
            )
        if t is i32 and scalar_of(own).kind == "f":
            raise self._cx.fail(
                "texels are counted in integers",
                label=describe(own),
                arg=0,
                help="write int(i), or sample_lod(uv, lod) for places from 0 to 1",
            )
        return components(self._cx, as_type(self._cx, given, with_shape(t, shape_of(own))))

    def place(self, index: Sequence[Value]) -> Value:
        return self._cx.b.emit("elem", self._array.value, *reversed(index))

    def read(self, index: Sequence[Value]) -> Value:
        """Return the colour of the texel at an index in range."""
        texel = self._cx.b.emit("load", self.place(index))
        raw = [wrap(self._cx, c) for c in components(self._cx, texel)]
        return self.colour(formulas.decode_texel(texel_of(self._format), raw))

    def write(self, index: Sequence[Value], colour: Value) -> None:
        cx, t = self._cx, self._array.type.elem
        parts = [wrap(cx, c) for c in components(cx, colour)]
        raw = unwrap(formulas.encode_texel(texel_of(self._format), parts, scalar_of(t)))
        texel = cx.b.emit("pack", *raw, type=t) if shape_of(t) else raw[0]
        cx.b.emit("store", self.place(index), texel)

    def colour(self, parts: list[Any]) -> Value:
        """Return four numbers as a vector of f32."""
        v = operator_lowering.value(self._cx, CALLS[pack].handler(self._cx, unwrap(parts)))
        return operator_lowering.cast(self._cx, v, f32)

    def read_anywhere(self, index: Sequence[Value]) -> Value:
        """Return the colour of the texel at an index; outside zero, with alpha 1 for formats
        without alpha."""
        outside = [0.0, 0.0, 0.0, 0.0 if "a" in texel_of(self._format).order else 1.0]
        found = lower_branch(
            self._cx,
            self.is_inside(index),
            lambda: self.read(index),
            lambda: self.colour(outside),
        )
        assert isinstance(found, Value)
        return found

    def write_anywhere(self, index: Sequence[Value], colour: Value) -> None:
        lower_branch(
            self._cx, self.is_inside(index), lambda: self.write(index, colour), lambda: None
        )

    def is_inside(self, index: Sequence[Value]) -> Value:
        return operator_lowering.value(self._cx, unwrap(formulas.is_inside(*self._handles(index))))

    def blend(self, uv: Sequence[Value]) -> Value:
        """Return the colour at normalised coordinates, interpolated linearly.

        Integer formats give the nearest texel.
        """
        cx, texel = self._cx, texel_of(self._format)
        formula = formulas.sample_nearest if texel.kind == "int" else formulas.sample_linear
        places, extents = self._handles(uv)
        found = formula(lambda k: wrap(cx, self.read(self._as_index(k))), extents, places)
        return operator_lowering.cast(cx, unwrap(found), f32)

    def _as_index(self, parts: list[Any]) -> list[Value]:
        return [operator_lowering.value(self._cx, k) for k in unwrap(parts)]

    def _handles(self, parts: Sequence[Value]) -> tuple[list[Any], list[Any]]:
        return [wrap(self._cx, x) for x in parts], [wrap(self._cx, n) for n in self.shape]


class TextureKind(MarkedKind, of=[TextureRef]):
    is_kernels_own = True
    helps = all_but(
        "loop", help="read a texel: t.fetch(i, 0), or t.load(i) of a ti.types.rw_texture"
    )

    def space(self, cx: Any, x: Any) -> LoopSpace:
        return space_of(cx, ndrange(*x.shape))


# --- the methods ---------------------------------------------------------------------------------


def _sample_lod(cx: Lowering, tex: TextureRef, uv: Any, lod: Any) -> Value:
    tex.check_kind(sample_lod, texture)
    _check_level(cx, lod, f32)
    return tex.blend(tex.parts(uv, f32, "coordinates"))


def _fetch(cx: Lowering, tex: TextureRef, index: Any, lod: Any) -> Value:
    tex.check_kind(fetch, texture)
    _check_level(cx, lod, i32)
    if isinstance(lod, int) and lod != 0:
        raise cx.fail("textures have level 0 only", label=f"level {lod}", arg=1, help="say 0")
    return tex.read_anywhere(tex.parts(index, i32, "an index"))


def _load(cx: Lowering, tex: TextureRef, index: Any) -> Value:
    tex.check_kind(load, rw_texture)
    return tex.read_anywhere(tex.parts(index, i32, "an index"))


def _store(cx: Lowering, tex: TextureRef, index: Any, value: Any) -> None:
    tex.check_kind(store, rw_texture)
    places = tex.parts(index, i32, "an index")
    given = operand(cx, value)
    own = own_type(cx, given)
    if shape_of(own) != (4,):
        raise cx.fail(
            "a texel is stored as a vector of 4: red, green, blue, alpha",
            label=describe(own),
            arg=1,
            help="what the format lacks is ignored: tex.store(i, ti.Vector([x, 0.0, 0.0, 0.0]))",
        )
    tex.write_anywhere(places, as_type(cx, given, with_shape(f32, (4,))))


def _check_level(cx: Lowering, lod: Any, t: Scalar) -> None:
    """Check that a level of detail is a scalar of t's kind. Raises KernelTypeError."""
    own = own_type(cx, operand(cx, lod))
    if shape_of(own) != () or (t is i32 and scalar_of(own).kind == "f"):
        kind = "an integer" if t is i32 else "a number"
        raise cx.fail(f"the level of detail is {kind}", label=describe(own), arg=1)


CALLS.update({
    fn: CallHandler(handler)
    for fn, handler in (
        (sample_lod, _sample_lod), (fetch, _fetch), (load, _load), (store, _store),
    )
})  # fmt: skip
