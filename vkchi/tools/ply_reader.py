"""Reader of PLY 1.0 files, binary or ASCII, with any elements and properties.

read_ply("points.ply")["vertex"]["x"]       # [array([...])]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from vkchi.tools.np2ply import NUMPY_TYPES
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import Array

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
