"""Annotations that are meant for types of kernels and are none, and what to write for them.

Must not know: what kernels take.

    >>> meant(ti.Vector)
    'ti.types.vector(n, ti.f32)'
"""

from __future__ import annotations

# By module and name, for messages alone: nothing is loaded to compare with.
VALUES = {
    "vkchi.lang.matrix.Vector": "ti.types.vector(n, ti.f32)",
    "vkchi.lang.matrix.Matrix": "ti.types.matrix(n, m, ti.f32)",
}
ARRAYS = {
    "numpy.ndarray": "ti.types.ndarray()",
    "torch.Tensor": "ti.types.ndarray()",
    "vkchi.ndarray.Ndarray": "ti.types.ndarray()",
    "vkchi.fields.make.field": "ti.template()",
    "vkchi.fields.field.Field": "ti.template()",
}


def meant_value(note: object) -> str:
    """The type of a vector or matrix that an annotation is meant for; nothing if it is no such."""
    return VALUES.get(_path(note), "")


def meant(note: object) -> str:
    """The type of an argument that an annotation is meant for; nothing if none is known."""
    return meant_value(note) or ARRAYS.get(_path(note), "")


def _path(note: object) -> str:
    return f"{getattr(note, '__module__', '')}.{getattr(note, '__qualname__', '')}"
