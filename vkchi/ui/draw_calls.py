"""Draw calls as arrays: validation and conversion of users' arguments.

Arrays are read in place if possible (`read_in_place`): device memory that the host can address is
not copied here.

    >>> vectors_of_widths("circles", "centers", np.zeros((5, 2), np.float32), 2).shape
    (5, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.errors import ArgumentError, ToolError
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

Numbers = np.ndarray[Any, Any]
Colour = tuple[float, float, float]
GREY: Colour = (0.5, 0.5, 0.5)


class DrawCall(NamedTuple):
    """One draw call.

    - kind: key of `shaders.TEXTS`.
    - arrays: positions f32[n, 2 or 3], colors f32[n, 3 or 4], radii f32[n], normals f32[n, 3],
      indices i32[m] or u32[m], transforms f32[4 k, 4] (rows are the matrices' columns).
    - switches: flat, two_sided, wireframe.
    - items: number of spheres, lines or triangles.
    - size: radius of spheres, or width of lines in pixels.
    """

    kind: str
    arrays: dict[str, Numbers]
    switches: frozenset[str]
    items: int
    instances: int = 1
    colour: Colour = GREY
    size: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """Key that is equal for shapes that can reuse the same renderer object."""
        shapes = tuple((name, values.shape) for name, values in self.arrays.items())
        return (self.kind, self.switches, shapes)


# --- user arguments ------------------------------------------------------------------------------


def read_in_place(who: str, name: str, x: Any) -> Numbers:
    """The values of a field, ndarray, numpy array, tensor or list, without a copy if possible.

    Valid only until the next device operation. Raises ToolError.
    """
    try:
        values = x.seen() if isinstance(x, Storage) else host_views.to_number_array(x)
    except local(ArgumentError, TypeError, ValueError) as e:
        raise ToolError(f"{who}: {name} is an array of numbers: {e}") from None
    return np.asarray(values)


def vectors_of_widths(who: str, name: str, x: Any, *widths: int) -> Numbers:
    """f32[n, k] from vectors with k components, k being one of `widths`. Raises ToolError."""
    values = read_in_place(who, name, x)
    if values.ndim < 2 or values.shape[-1] not in widths:
        wanted = " or ".join(map(str, widths))
        raise ToolError(f"{who}: {name} has vectors of {wanted}, not the shape {values.shape}")
    return np.ascontiguousarray(values.reshape(-1, values.shape[-1]), np.float32)


def scalars_per_position(who: str, name: str, x: Any, count: int) -> Numbers:
    """f32[count] from an array of `count` scalars of any shape. Raises ToolError."""
    values = np.ascontiguousarray(read_in_place(who, name, x).reshape(-1), np.float32)
    if len(values) != count:
        raise ToolError(f"{who}: there are {count} positions, and {name} has {len(values)} numbers")
    return values


def vertex_indices(who: str, x: Any, first: int = 0, count: int | None = None) -> Numbers:
    """i32[m] or u32[m]: `count` indices from position `first` on, or all of them for None.

    Raises ToolError.
    """
    values = read_in_place(who, "indices", x).reshape(-1)
    if values.dtype.kind not in "iu":
        raise ToolError(f"{who}: indices are integers, not {values.dtype}")
    chosen = select_range(who, values, first, count)
    return np.ascontiguousarray(chosen if chosen.itemsize == 4 else chosen.astype(np.int32))


def select_range(who: str, values: Numbers, first: int, count: int | None) -> Numbers:
    """At most `count` rows from `first` on, or all of them for None.

    Raises ToolError for negative numbers.
    """
    if first < 0 or (count is not None and count < 0):
        raise ToolError(f"{who}: offsets and counts are not negative: {first}, {count}")
    return values[first:] if count is None else values[first : first + count]


def colour_of(who: str, colour: Any) -> Colour:
    """Red, green and blue of a colour of 3 or 4 numbers. Raises ToolError for anything else."""
    found = floats_of(colour)
    if found is None or len(found) not in (3, 4):
        raise ToolError(f"{who}: a colour is red, green and blue from 0 to 1, not {colour!r}")
    return found[0], found[1], found[2]


def floats_of(x: Any) -> list[float] | None:
    """The numbers of a vector, list, array or scalar; None for an object that is none of these."""
    try:
        return [float(v) for v in np.asarray(getattr(x, "entries", x)).reshape(-1)]
    except local(TypeError, ValueError):
        return None


def point_of(who: str, name: str, x: Any) -> tuple[float, float, float]:
    """Three coordinates. Raises ToolError for anything else."""
    found = floats_of(x)
    if found is None or len(found) != 3:
        raise ToolError(f"{who}: {name} is a place of three numbers, not {x!r}")
    return found[0], found[1], found[2]


def add_colours(who: str, arrays: dict[str, Numbers], colours: Any, first: int = 0) -> None:
    """Set arrays["colors"] to one colour per position, from `first` on; no effect for None.

    Raises ToolError if there are too few.
    """
    if colours is None:
        return
    found, count = (
        vectors_of_widths(who, "per_vertex_color", colours, 3, 4),
        len(arrays["positions"]),
    )
    found = found[first : first + count]
    if len(found) < count:
        raise ToolError(f"{who}: per_vertex_color has fewer colours than there are positions")
    arrays["colors"] = found


# --- shapes --------------------------------------------------------------------------------------


def draw_balls(
    who: str, width: int, centers: Any, radius: Any, color: Any, colours: Any, radii: Any,
    first: int = 0, count: int | None = None,
) -> DrawCall:  # fmt: skip
    """Discs (`width` 2) or spheres (`width` 3), `count` of them from `first`. Raises ToolError."""
    places = vectors_of_widths(who, "centers", centers, *range(width, 4))
    arrays = {"positions": select_range(who, places, first, count)}
    add_colours(who, arrays, colours, first)
    total = len(arrays["positions"])
    if radii is not None:
        found = scalars_per_position(who, "per_vertex_radius", radii, len(places))
        arrays["radii"] = select_range(who, found, first, count)
    switches = frozenset(("flat",) if width == 2 else ())
    return DrawCall("balls", arrays, switches, total, 1, colour_of(who, color), float(radius))


def draw_lines(
    who: str, width: int, vertices: Any, thickness: float, at: Any, color: Any, colours: Any,
    offsets: Sequence[int | None] = (0, None, 0, None),
) -> DrawCall:  # fmt: skip
    """Lines between positions 0 and 1, 2 and 3, ... of `vertices`, or of those at the indices `at`.

    width: 2 for 2D, 3 for 3D; thickness: in pixels; offsets: first vertex, vertex count, first
    index, index count. Raises ToolError.
    """
    arrays = cut_vertices(who, vertices, at, colours, offsets, width)
    items = arrays.get("indices", arrays["positions"])
    switches = frozenset(("flat",) if width == 2 else ())
    return DrawCall(
        "lines", arrays, switches, len(items) // 2, 1, colour_of(who, color), float(thickness)
    )


def draw_surface(
    who: str, width: int, vertices: Any, at: Any, normals: Any, color: Any, colours: Any,
    switches: Sequence[str] = (), offsets: Sequence[int | None] = (0, None, 0, None),
) -> DrawCall:  # fmt: skip
    """Triangles of three consecutive `vertices`, or of those at three consecutive indices `at`.

    width, offsets: as in `draw_lines`. In 3D, default normals are those of `mean_normals` if there
    are indices, otherwise the triangles' own. Raises ToolError.
    """
    arrays = cut_vertices(who, vertices, at, colours, offsets, width)
    if normals is not None:
        first = offsets[0] or 0
        arrays["normals"] = vectors_of_widths(who, "normals", normals, 3)[first:][
            : len(arrays["positions"])
        ]
        if len(arrays["normals"]) < len(arrays["positions"]):
            raise ToolError(f"{who}: fewer normals than vertices")
    elif "indices" in arrays and width == 3:
        whole = (
            vertex_indices(who, at) if offsets[2] or offsets[3] is not None else arrays["indices"]
        )
        arrays["normals"] = mean_normals(arrays["positions"], whole)
    items = arrays.get("indices", arrays["positions"])
    flat = ("flat",) if width == 2 else ()
    return DrawCall(
        "surface", arrays, frozenset((*switches, *flat)), len(items) // 3, 1, colour_of(who, color)
    )


def cut_vertices(
    who: str, vertices: Any, at: Any, colours: Any, offsets: Sequence[int | None], width: int
) -> dict[str, Numbers]:
    """Arrays of a draw call: `positions` and, unless None, `colors` and `indices` of the selected
    range.

    The vertex offset is the first vertex; the indices `at` count from it. The vertex count applies
    only without indices. Raises ToolError.
    """
    first, count, first_index, index_count = offsets
    places = vectors_of_widths(who, "vertices", vertices, *range(width, 4))
    chosen = select_range(who, places, first or 0, count if at is None else None)
    arrays = {"positions": chosen}
    add_colours(who, arrays, colours, first or 0)
    if at is not None:
        arrays["indices"] = vertex_indices(who, at, first_index or 0, index_count)
        if not are_below(len(chosen), arrays["indices"]):
            raise ToolError(f"{who}: indices of vertices are from 0 to {len(chosen) - 1}")
    return arrays


def are_below(count: int, at: Numbers) -> bool:
    """True if all indices are from 0 to count - 1."""
    return not at.size or bool(0 <= at.min() <= at.max() < count)


def mean_normals(positions: Numbers, at: Numbers) -> Numbers:
    """f32[n, 3]: per vertex, the sum of the unit normals of adjacent triangles.

    `at` has the corners' indices; triangles with an index out of range are skipped.
    """
    corners = at[: len(at) // 3 * 3].reshape(-1, 3)
    if not are_below(len(positions), corners):  # indices outside the drawn range may be invalid
        corners = corners[((corners >= 0) & (corners < len(positions))).all(1)]
    a, b, c = (positions[corners[:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    length = np.sqrt(np.einsum("ij,ij->i", normal, normal))
    normal /= np.maximum(length, np.float32(1e-30))[:, None]
    flat, weights = corners.T.reshape(-1), np.tile(normal, (3, 1))
    sums = [np.bincount(flat, weights[:, k], len(positions)) for k in range(3)]
    return np.stack(sums, -1).astype(np.float32)


def transforms_of(who: str, transforms: Any, first: int, count: int | None) -> Numbers:
    """f32[4 k, 4]: the columns of k [4, 4] matrices, concatenated. Raises ToolError."""
    values = read_in_place(who, "transforms", transforms)
    if values.ndim < 3 or values.shape[-2:] != (4, 4):
        raise ToolError(f"{who}: transforms has matrices of 4 by 4, not the shape {values.shape}")
    chosen = select_range(who, values.reshape(-1, 4, 4), first, count)
    return np.ascontiguousarray(chosen.transpose(0, 2, 1), np.float32).reshape(-1, 4)
