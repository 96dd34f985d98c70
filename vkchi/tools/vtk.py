"""Fields as VTK files (`.vtr`, XML rectilinear grids), which ParaView reads.

write_vtk(density, "density")       # writes density.vtr
"""

from __future__ import annotations

import base64
import html
import os
import sys
from typing import Any

from vkchi.errors import ToolError
from vkchi.interop import host_views
from vkchi.types.lazy_numpy import np

_ORDER = "LittleEndian" if sys.byteorder == "little" else "BigEndian"
_NAMES = {"i": "Int", "u": "UInt", "f": "Float"}
_INSTEAD = {"bool": np.uint8, "float16": np.float32}  # of types that VTK has not


def write_vtk(scalar_field: Any, filename: Any) -> None:
    """Write a scalar field or array with two or three axes to `filename`.vtr.

    Each value belongs to one cell, a unit cube: element (i, j, k) lies between the points (i, j, k)
    and (i + 1, j + 1, k + 1), with k = 0 for two axes.

    Args:
        scalar_field: the field or array.
        filename: path of the file, without the suffix.

    Raises:
        ToolError: for other shapes.
        ArgumentError: for objects that are no arrays of numbers.
    """
    values = host_views.to_number_array(scalar_field)
    if values.ndim not in (2, 3) or values.size == 0:
        raise ToolError(f"write_vtk takes a 2D or 3D scalar field, not one of shape {values.shape}")
    values = values.reshape((*values.shape, 1)[:3])
    values = values.astype(_INSTEAD.get(values.dtype.name, values.dtype), copy=False)
    name = os.path.basename(os.fspath(filename))
    with open(os.fspath(filename) + ".vtr", "w", encoding="utf-8") as out:
        out.write(grid_text(name, values))


def grid_text(name: str, values: np.ndarray[Any, Any]) -> str:
    """Text of the file, with one cell array `name`. In VTK, x is the fastest axis."""
    extent = " ".join(f"0 {n}" for n in values.shape)
    points = [np.arange(n + 1, dtype=np.float64) for n in values.shape]
    coordinates = [data_array(axis, a) for axis, a in zip("xyz", points)]
    lines = [
        '<?xml version="1.0"?>',
        f'<VTKFile type="RectilinearGrid" version="1.0" byte_order="{_ORDER}" '
        'header_type="UInt64">',
        f'<RectilinearGrid WholeExtent="{extent}">',
        f'<Piece Extent="{extent}">',
        f'<CellData Scalars="{html.escape(name)}">',
        data_array(name, values.ravel(order="F")),
        "</CellData>",
        "<Coordinates>",
        *coordinates,
        "</Coordinates>",
        "</Piece>",
        "</RectilinearGrid>",
        "</VTKFile>",
    ]
    return "\n".join(lines) + "\n"


def data_array(name: str, values: np.ndarray[Any, Any]) -> str:
    """One DataArray element: the byte count as u64 and the bytes, together in base64."""
    kind = f"{_NAMES[values.dtype.kind]}{values.dtype.itemsize * 8}"
    raw = values.tobytes()
    text = base64.b64encode(np.uint64(len(raw)).tobytes() + raw).decode("ascii")
    return f'<DataArray Name="{html.escape(name)}" type="{kind}" format="binary">{text}</DataArray>'
