"""Meshes and particles as PLY 1.0 files, binary or ASCII: `PLYWriter`.

writer = PLYWriter(num_vertices=3, num_faces=1)
writer.add_vertex_pos(x, y, z)
writer.add_faces(np.array([0, 1, 2]))
writer.export("triangle.ply")
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from vkchi.errors import ToolError, warn_user
from vkchi.interop import host_views
from vkchi.logs import logger
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import Numbers

log = logger()

NUMPY_TYPES = {
    "char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32,
    "uint": np.uint32, "float": np.float32, "double": np.float64,
}  # fmt: skip
CORNERS = {"tri": 3, "quad": 4}


class Channel(NamedTuple):
    """A property of all vertices or faces: name, PLY type and values of that type."""

    key: str
    data_type: str
    data: np.ndarray[Any, Any]


class PLYWriter:
    """A collection of vertices and faces to write to a file. Source: Taichi's `ti.tools.PLYWriter`.

    face_type: `tri` or `quad`. Arrays are numpy arrays, fields, ndarrays, tensors or lists. The
    constructor and the methods that add data raise ToolError for wrong counts and shapes,
    ArgumentError for objects that are no arrays of numbers.
    """

    def __init__(
        self,
        num_vertices: int,
        num_faces: int = 0,
        face_type: str = "tri",
        comment: str = "created by PLYWriter",
    ) -> None:
        if num_vertices < 1 or num_faces < 0:
            raise ToolError("PLYWriter: num_vertices is at least 1, num_faces at least 0")
        if face_type not in CORNERS:
            raise ToolError(f"PLYWriter: face_type is 'tri' or 'quad', not {face_type!r}")
        self.num_vertices, self.num_faces, self.face_type = num_vertices, num_faces, face_type
        self.comment = comment
        self.vertices: list[Channel] = []
        self.faces: list[Channel] = []
        self.face_indices = np.full((num_faces, CORNERS[face_type]), -1, np.int32)

    # --- vertices --------------------------------------------------------------------------------

    def add_vertex_channel(self, key: str, data_type: str, data: Numbers) -> None:
        """Add a property of each vertex; a table adds one per column: `key_1`, `key_2`, ...

        data_type: char, uchar, short, ushort, int, uint, float or double; others add nothing and
        warn. A warning is logged if the key exists already.
        """
        self.vertices += make_channels(self.vertices, key, data_type, data, self.num_vertices)

    def _add_floats(self, keys: str, *data: Numbers) -> None:
        for key, values in zip(keys.split(), data, strict=True):
            self.add_vertex_channel(key, "float", values)

    def add_vertex_pos(self, x: Numbers, y: Numbers, z: Numbers) -> None:
        """Add the positions, one array per coordinate."""
        self._add_floats("x y z", x, y, z)

    def add_vertex_normal(self, nx: Numbers, ny: Numbers, nz: Numbers) -> None:
        """Add the normals, one array per coordinate."""
        self._add_floats("nx ny nz", nx, ny, nz)

    def add_vertex_vel(self, vx: Numbers, vy: Numbers, vz: Numbers) -> None:
        """Add the velocities, one array per coordinate."""
        self._add_floats("vx vy vz", vx, vy, vz)

    def add_vertex_color(self, r: Numbers, g: Numbers, b: Numbers) -> None:
        """Add the colours, by convention from 0 to 1; written unchanged as floats."""
        self._add_floats("red green blue", r, g, b)

    def add_vertex_alpha(self, alpha: Numbers) -> None:
        """Add the opacities, by convention from 0 to 1; written unchanged as floats."""
        self._add_floats("Alpha", alpha)

    def add_vertex_rgba(self, r: Numbers, g: Numbers, b: Numbers, a: Numbers) -> None:
        """Add the colours and opacities, by convention from 0 to 1; written unchanged as floats."""
        self._add_floats("red green blue Alpha", r, g, b, a)

    def add_vertex_id(self) -> None:
        """Add the vertices' numbers, from 0."""
        self.add_vertex_channel("id", "int", np.arange(self.num_vertices))

    def add_vertex_piece(self, piece: Numbers) -> None:
        """Add the number of the piece that each vertex belongs to."""
        self.add_vertex_channel("piece", "int", piece)

    # --- faces -----------------------------------------------------------------------------------

    def add_faces(self, indices: Numbers) -> None:
        """Set all faces: `num_faces` times 3 or 4 vertex numbers, from 0; an array of any shape."""
        values = host_views.to_number_array(indices)
        shape = self.face_indices.shape
        if values.size != self.face_indices.size:
            raise ToolError(f"add_faces: {shape[0]} times {shape[1]} corners, not {values.size}")
        self.face_indices = values.reshape(shape).astype(np.int32)

    def add_face_channel(self, key: str, data_type: str, data: Numbers) -> None:
        """Add a property of each face, as `add_vertex_channel`."""
        self.faces += make_channels(self.faces, key, data_type, data, self.num_faces)

    def add_face_id(self) -> None:
        """Add the faces' numbers, from 0."""
        self.add_face_channel("id", "int", np.arange(self.num_faces))

    def add_face_piece(self, piece: Numbers) -> None:
        """Add the number of the piece that each face belongs to."""
        self.add_face_channel("piece", "int", piece)

    # --- files -----------------------------------------------------------------------------------

    def sanity_check(self) -> None:
        """Raise ToolError unless positions exist and all corners are numbers of vertices."""
        missing = {"x", "y", "z"} - {channel.key for channel in self.vertices}
        if missing:
            raise ToolError("PLYWriter: the positions are missing: call add_vertex_pos(x, y, z)")
        wrong = (self.face_indices < 0) | (self.face_indices >= self.num_vertices)
        if wrong.any():
            raise ToolError(
                f"PLYWriter: face {int(np.argwhere(wrong)[0][0])} has a corner that is no vertex"
            )

    def header(self, form: str) -> str:
        """Header lines; form: ascii, binary_little_endian or binary_big_endian."""
        lines = ["ply", f"format {form} 1.0", f"comment {self.comment}"]
        lines.append(f"element vertex {self.num_vertices}")
        lines += [f"property {channel.data_type} {channel.key}" for channel in self.vertices]
        if self.num_faces:
            lines += [f"element face {self.num_faces}"]
            lines += ["property list uchar int vertex_indices"]
            lines += [f"property {channel.data_type} {channel.key}" for channel in self.faces]
        return "\n".join([*lines, "end_header", ""])

    def print_header(self, path: str | os.PathLike[str], _format: str) -> None:
        """Write a file with the header alone; `_format` as in `header`."""
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            out.write(self.header(_format))

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write a binary file. Raises ToolError if positions or corners are wrong."""
        self.sanity_check()
        with open(path, "wb") as out:
            out.write(self.header(f"binary_{sys.byteorder}_endian").encode())
            for table in self._tables():
                out.write(table.tobytes())

    def export_ascii(self, path: str | os.PathLike[str]) -> None:
        """Write a text file. Raises ToolError if positions or corners are wrong."""
        self.sanity_check()
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            out.write(self.header("ascii"))
            for table in self._tables():
                columns = [table[name].reshape(len(table), -1) for name in table.dtype.names or ()]
                words = np.concatenate([column.astype(str) for column in columns], axis=1)
                out.writelines(" ".join(row) + "\n" for row in words.tolist())

    def export_frame(self, series_num: int, path: str | os.PathLike[str]) -> None:
        """Write the binary file of one frame: `a.ply` becomes `a_000007.ply`."""
        self.export(frame_path(series_num, path))

    def export_frame_ascii(self, series_num: int, path: str | os.PathLike[str]) -> None:
        """Write the text file of one frame: `a.ply` becomes `a_000007.ply`."""
        self.export_ascii(frame_path(series_num, path))

    def _tables(self) -> list[np.ndarray[Any, Any]]:
        """Rows of the file as structured arrays: vertices, then faces if there are any."""
        tables = [as_table([channel.data for channel in self.vertices])]
        if self.num_faces:
            count = np.full(self.num_faces, self.face_indices.shape[1], np.uint8)
            properties = [channel.data for channel in self.faces]
            tables.append(as_table([count, self.face_indices, *properties]))
        return tables


def as_table(columns: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Columns as one packed structured array of rows."""
    dtype = np.dtype([(f"f{k}", c.dtype, c.shape[1:]) for k, c in enumerate(columns)])
    table = np.empty(len(columns[0]), dtype)
    for k, column in enumerate(columns):
        table[f"f{k}"] = column
    return table


def make_channels(
    known: list[Channel], key: str, data_type: str, data: Any, count: int
) -> list[Channel]:
    """Channels of `data`: one for `count` numbers, one per column for a table of `count` rows.

    Raises ToolError for other shapes. A warning is logged for keys in `known`. A type that PLY
    lacks gives no channels, with a warning.
    """
    if data_type not in NUMPY_TYPES:
        has = ", ".join(NUMPY_TYPES)
        text = f"`{key}` is left out: PLY has no type {data_type!r}; it has {has}"
        warn_user(text, RuntimeWarning)
        return []
    values = host_views.to_number_array(data)
    if values.ndim not in (1, 2) or len(values) != count:
        raise ToolError(f"`{key}`: {count} numbers or rows are needed, not shape {values.shape}")
    columns = {key: values} if values.ndim == 1 else {
        f"{key}_{k + 1}": values[:, k] for k in range(values.shape[1])
    }  # fmt: skip
    for name in columns:
        if any(channel.key == name for channel in known):
            log.warning("PLYWriter: there are two properties called %s", name)
    dtype = NUMPY_TYPES[data_type]
    return [Channel(name, data_type, column.astype(dtype)) for name, column in columns.items()]


def frame_path(series_num: int, path: str | os.PathLike[str]) -> str:
    """File name of one frame of a series: `a_000007.ply` for frame 7 of `a.ply`."""
    return f"{os.fspath(path).removesuffix('.ply')}_{series_num:06d}.ply"
