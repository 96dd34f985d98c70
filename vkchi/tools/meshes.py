"""Mesh files: `read_mesh` and `write_mesh`, by the package meshio, which is imported on first use.

PLY files are read without it: meshio 5.3 reads unsigned bytes of binary files as signed, and reads
no properties of faces.

mesh = read_mesh("cloth.ply"); write_mesh("cloth.obj", mesh.vertices, mesh.triangles)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from vkchi.errors import KernelRuntimeError, MissingPackageError, ToolError
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.tools.np2ply import NUMPY_TYPES
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import Array, Numbers


KINDS = {1: "vertex", 2: "line", 3: "triangle", 4: "quad"}  # meshio's names, by number of corners
# Formats that are written: meshio's module, and the kinds of cells that it has (None: all).
WRITTEN: dict[str, tuple[str, tuple[str, ...] | None]] = {
    ".obj": ("obj", ("triangle", "quad")), ".ply": ("ply", ("triangle", "quad")),
    ".stl": ("stl", ("triangle",)),
    ".vtk": ("vtk", None), ".vtu": ("vtu", None),
}  # fmt: skip
WITH_DATA = (".ply", ".vtk", ".vtu")
INDICES = ("vertex_indices", "vertex_index")  # names of the list of a face's corners in PLY files


class Mesh(NamedTuple):
    """Contents of a mesh file, as numpy arrays.

    - vertices: coordinates, one row per vertex.
    - cells: vertex numbers `i32[m, corners]`, by kind: triangle, quad, line, tetra, ... as meshio
      calls them; a polygon of n corners is `polygon` followed by n.
    - vertex_data: other values of the vertices, by name, one row per vertex.
    - cell_data: values of the cells, by name, then by kind.
    """

    vertices: Array
    cells: dict[str, Array]
    vertex_data: dict[str, Array]
    cell_data: dict[str, dict[str, Array]]

    @property
    def triangles(self) -> Array:
        """All triangles, `i32[m, 3]`; quads and polygons as fans of triangles."""
        fans: list[Array] = [np.zeros((0, 3), np.int32)]
        for kind, corners in self.cells.items():
            count = corners.shape[1] - 2
            if kind == kind_of(count + 2) and count > 0:
                fan = [corners[:, [0, k + 1, k + 2]] for k in range(count)]
                fans.append(np.stack(fan, axis=1).reshape(-1, 3))
        return np.concatenate(fans)


def kind_of(corners: int) -> str:
    """Name of a flat cell with this number of corners."""
    return KINDS.get(corners, f"polygon{corners}")


def read_mesh(filename: str | os.PathLike[str]) -> Mesh:
    """Read a mesh file; its suffix is the format: .ply, .obj, .stl, .vtk, .vtu, .msh, ...

    PLY needs no package. Other formats are those of meshio; its limits hold (an OBJ file has one
    texture coordinate per vertex).

    Args:
        filename: path of the file.

    Returns:
        The mesh.

    Raises:
        ToolError: for unknown suffixes.
        KernelRuntimeError: if the file cannot be read, or if a cell has a corner that is no vertex.
        MissingPackageError: without meshio.
    """
    name = os.fspath(filename)
    suffix = os.path.splitext(name)[1].lower()
    read = from_ply if suffix == ".ply" else reader_of(suffix)
    try:
        mesh = read(name)
        check_corners(mesh.cells, len(mesh.vertices))
    except local(Exception) as e:  # meshio raises many kinds for broken files
        raise KernelRuntimeError(
            f"cannot read the mesh {name!r}: {e or type(e).__name__}"
        ) from None
    return mesh


def write_mesh(
    filename: str | os.PathLike[str],
    vertices: Numbers,
    cells: Numbers | Mapping[str, Numbers],
    vertex_data: Mapping[str, Numbers] | None = None,
) -> None:
    """Write a mesh by meshio; the suffix is the format: .obj, .ply, .stl, .vtk or .vtu.

    Arrays, fields and lists are accepted.

    Args:
        filename: path of the file.
        vertices: two or three coordinates per row.
        cells: three or four vertex numbers per row, or those of triangles in one axis, or arrays by
            kind, as in `Mesh.cells`.
        vertex_data: values with one row per vertex, by name, for PLY (numbers only) and VTK.

    Raises:
        ToolError: for other suffixes, shapes, kinds and vertex numbers.
        ArgumentError: for objects that are no arrays.
        KernelRuntimeError: if the file cannot be written.
        MissingPackageError: without meshio.
    """
    name = os.fspath(filename)
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in WRITTEN:
        raise ToolError(f"write_mesh: {name!r} ends in none of {' '.join(WRITTEN)}")
    module, kinds = WRITTEN[suffix]
    points = host_views.to_number_array(vertices)
    if points.ndim != 2 or points.shape[1] not in (2, 3):
        raise ToolError(f"vertices are rows of two or three numbers, not shape {points.shape}")
    points = np.pad(points, [(0, 0), (0, 3 - points.shape[1])])
    points = points.astype(np.float64 if points.dtype == np.float64 else np.float32)
    blocks = blocks_of(cells)
    wrong = kinds and sorted(blocks.keys() - {*kinds})
    if wrong:
        raise ToolError(f"a {suffix} file has no cells of kind {wrong[0]!r}: use .vtu")
    try:
        check_corners(blocks, len(points))
    except local(ValueError) as e:
        raise ToolError(f"write_mesh: {e}") from None
    data = {k: host_views.to_number_array(v) for k, v in (vertex_data or {}).items()}
    for key, values in data.items():
        if suffix not in WITH_DATA or values.shape[:1] != (len(points),):
            raise ToolError(f"vertex_data[{key!r}]: {len(points)} rows, in {' '.join(WITH_DATA)}")
        if suffix == ".ply" and values.ndim != 1:
            raise ToolError(f"vertex_data[{key!r}]: a .ply file has one number per vertex and name")
    meshio = import_meshio()
    try:
        getattr(meshio, module).write(name, meshio.Mesh(points, blocks, point_data=data))
    except local(Exception) as e:
        raise KernelRuntimeError(f"cannot write the mesh {name!r}: {e}") from None


def blocks_of(cells: Any) -> dict[str, Array]:
    """Cells by kind. Raises ToolError for arrays of other shapes."""
    given = cells if isinstance(cells, Mapping) else {"": cells}
    found: dict[str, Array] = {}
    for kind, corners in given.items():
        values = host_views.to_number_array(corners)
        if values.ndim == 1 and values.size % 3 == 0 and not kind:
            values = values.reshape(-1, 3)
        is_flat = values.ndim == 2 and (kind or values.shape[1] in (3, 4))
        if not is_flat or values.dtype.kind not in "iu":
            raise ToolError(
                "cells are rows of three or four vertex numbers, or a dictionary of such arrays, "
                f"not {values.dtype} of shape {values.shape}"
            )
        found[kind or kind_of(values.shape[1])] = values.astype(np.int32)
    return found


def check_corners(cells: Mapping[str, Array], count: int) -> None:
    """Raise ValueError unless all corners are numbers of `count` vertices."""
    for kind, corners in cells.items():
        wrong = np.argwhere(((corners < 0) | (corners >= count)).any(axis=1))
        if len(wrong):
            raise ValueError(f"{kind} {wrong[0][0]} has a corner that is no vertex")


# --- readers --------------------------------------------------------------------------------------


def from_ply(name: str) -> Mesh:
    """Read a PLY file. Raises OSError, and ValueError for a malformed one."""
    tables = read_ply(name)
    vertex, face = tables.get("vertex", {}), tables.get("face", {})
    if not {"x", "y", "z"} <= vertex.keys():
        raise ValueError("its vertices have no x, y and z")
    data = {name: np.concatenate(parts or [np.zeros(0)]) for name, parts in vertex.items()}
    vertices = np.stack([data.pop(axis) for axis in "xyz"], axis=1)
    corners = next((face.pop(name) for name in INDICES if name in face), [])
    kinds = [kind_of(part.shape[1]) for part in corners]
    cells = joined(kinds, [part.astype(np.int32) for part in corners])
    return Mesh(vertices, cells, data, {name: joined(kinds, face[name]) for name in face})


def import_meshio() -> Any:
    """Import and return meshio. Raises MissingPackageError if it is not installed."""
    try:
        import meshio
    except ImportError:
        raise MissingPackageError(
            "mesh files other than PLY, and write_mesh, need meshio, which is not installed: "
            "pip install meshio"
        ) from None
    return meshio


def reader_of(suffix: str) -> Any:
    """Reader of files with this suffix. Raises ToolError, MissingPackageError."""
    meshio = import_meshio()
    known = meshio.extension_to_filetypes
    modules = [getattr(meshio, name, None) for name in known.get(suffix, ())]
    readers: list[Any] = [module.read for module in modules if module and hasattr(module, "read")]
    if not readers:
        raise ToolError(f"read_mesh: no mesh format has the suffix {suffix!r}: {' '.join(known)}")

    def read(name: str) -> Mesh:
        with np.errstate(over="ignore"):  # of sizes that meshio tries
            for attempt in readers[:-1]:
                try:
                    return from_meshio(attempt(name))
                except meshio.ReadError:
                    continue
            return from_meshio(readers[-1](name))

    return read


def from_meshio(found: Any) -> Mesh:
    """Contents of a mesh of meshio."""
    kinds = [
        kind_of(block.data.shape[1]) if block.type == "polygon" else block.type
        for block in found.cells
    ]
    cells = joined(kinds, [block.data.astype(np.int32) for block in found.cells])
    points = native(found.points) if len(found.points) else np.zeros((0, 3))
    data = {key: joined(kinds, rows) for key, rows in found.cell_data.items() if is_rows(rows)}
    vertex_data = {key: native(rows) for key, rows in found.point_data.items()}
    return Mesh(points, cells, vertex_data, data)


def native(values: Any) -> Array:
    """The array in the byte order of this machine."""
    found: Array = np.asarray(values)
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def is_rows(values: Sequence[Any]) -> bool:
    return all(np.ndim(rows) > 0 for rows in values)


def joined(kinds: Sequence[str], arrays: Sequence[Array]) -> dict[str, Array]:
    """Arrays of the same kind, one after another."""
    return {
        kind: np.concatenate([native(a) for k, a in zip(kinds, arrays, strict=True) if k == kind])
        for kind in dict.fromkeys(kinds)
    }


PLY_TYPES = {**NUMPY_TYPES, **{np.dtype(t).name: t for t in NUMPY_TYPES.values()}}
ORDERS: dict[str, Literal["=", "<", ">"]] = {
    "ascii": "=",
    "binary_little_endian": "<",
    "binary_big_endian": ">",
}
# Values by element and property: an array for each run of rows with lists of the same lengths.
Tables = dict[str, dict[str, list["Array"]]]
HEADER = re.compile(rb"ply\r?\n(.*?\n)end_header\r?\n", re.DOTALL)


class Property(NamedTuple):
    """A property of a PLY element; `length`: type of the length of a list, else None."""

    name: str
    dtype: np.dtype[Any]
    length: np.dtype[Any] | None


def read_ply(name: str) -> Tables:
    """Contents of a PLY file. Raises OSError, and ValueError for a malformed one."""
    with open(name, "rb") as file:
        data = file.read()
    header = HEADER.match(data)
    if header is None:
        raise ValueError("it has no header of a PLY file")
    lines = [line.split() for line in header[1].decode("latin-1").splitlines()]
    form = next((words[1] for words in lines if words[:1] == ["format"]), "")
    if form not in ORDERS:
        raise ValueError(f"PLY has no format {form!r}")
    body, is_text = data[header.end() :], form == "ascii"
    if is_text:  # the same as a binary file, all of whose types are double
        body = np.array(body.split(), np.bytes_).astype(np.float64).tobytes()
    elements: dict[str, tuple[int, list[Property]]] = {}
    properties: list[Property] = []
    for words in lines:
        if words[:1] == ["element"]:
            properties = []
            elements[words[1]] = (int(words[2]), properties)
        elif words[:1] == ["property"]:
            types = [type_of(word, ORDERS[form]) for word in words[1:-1] if word != "list"]
            properties.append(Property(words[-1], types[-1], types[0] if types[1:] else None))
    at, tables = 0, Tables()
    for element, (count, properties) in elements.items():
        rows = read_rows(body, at, count, properties, is_text)
        at += sum(part.nbytes for part in rows)
        tables[element] = {
            p.name: [cast(part[str(k)], p) for part in rows] for k, p in enumerate(properties)
        }
    return tables


def type_of(word: str, order: Literal["=", "<", ">"]) -> np.dtype[Any]:
    """Type called `word` in a header. Raises ValueError."""
    if word not in PLY_TYPES:
        raise ValueError(f"PLY has no type {word!r}")
    return np.dtype(PLY_TYPES[word]).newbyteorder(order)


def read_rows(
    body: bytes, at: int, count: int, properties: Sequence[Property], is_text: bool
) -> list[np.ndarray[Any, Any]]:
    """Rows of an element as structured arrays: one for each run of rows with lists of the same
    lengths. Field k has property k. Raises ValueError."""
    found = []
    most = 1 if any(p.length for p in properties) else count
    while count and properties:
        dtype, lengths = row_type(body, at, properties, is_text)
        size = min(most, count, (len(body) - at) // dtype.itemsize)
        if not size:
            raise ValueError("it ends too early")
        rows = np.frombuffer(body, dtype, size, at)
        alike = np.ones(size, bool)
        for field, length in lengths.items():
            alike &= rows[field] == length
        kept = size if alike.all() else int(alike.argmin())
        found.append(rows[:kept])
        at, count = at + kept * dtype.itemsize, count - kept
        most = 2 * size if kept == size else 1
    return found


def row_type(
    body: bytes, at: int, properties: Sequence[Property], is_text: bool
) -> tuple[np.dtype[Any], dict[str, int]]:
    """Type of the row at this offset, and the lengths of its lists. Raises ValueError."""
    fields: list[Any] = []
    lengths = {}
    for k, p in enumerate(properties):
        kind, count = (np.dtype(np.float64),) * 2 if is_text else (p.dtype, p.length)
        if p.length is None or count is None:
            fields.append((str(k), kind))
            continue
        begin = at + np.dtype(fields).itemsize
        number = np.frombuffer(body, count, 1, begin)[0]
        if not (0 <= number < len(body) and number == int(number)):
            raise ValueError(f"a list of {p.name} has the length {number}")
        length = lengths[f"{k} count"] = int(number)
        fields += [(f"{k} count", count), (str(k), kind, (length,))]
    return np.dtype(fields), lengths


def cast(values: np.ndarray[Any, Any], p: Property) -> np.ndarray[Any, Any]:
    """Values in the type of the property. Raises ValueError for numbers that it lacks."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = values.astype(p.dtype.newbyteorder("="))
    if p.dtype.kind in "iu" and (found != values).any():
        raise ValueError(f"a value of {p.name} does not fit its type")
    return found
