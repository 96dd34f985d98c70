"""Suggestions for invalid kernel annotations, such as `ti.Vector` for a vector type.

>>> suggest_annotation(ti.Vector)
'ti.types.vector(n, ti.f32)'
"""

from __future__ import annotations

# Keyed by module and name, so that no module is loaded for a message.
VALUES = {
    "vkchi.lang.matrix.Vector": "ti.types.vector(n, ti.f32)",
    "vkchi.lang.matrix.Matrix": "ti.types.matrix(n, m, ti.f32)",
}
ARRAYS = {
    "numpy.ndarray": "ti.types.ndarray()",
    "torch.Tensor": "ti.types.ndarray()",
    "vkchi.ndarray.Ndarray": "ti.types.ndarray()",
    "vkchi.fields.constructors.field": "ti.template()",
    "vkchi.fields.field.Field": "ti.template()",
}


def suggest_tensor_type(note: object) -> str:
    """The vector or matrix type to write instead of an annotation; "" if there is none."""
    return VALUES.get(_path(note), "")


def suggest_annotation(note: object) -> str:
    """The argument type to write instead of an annotation; "" if there is none."""
    return suggest_tensor_type(note) or ARRAYS.get(_path(note), "")


def _path(note: object) -> str:
    return f"{getattr(note, '__module__', '')}.{getattr(note, '__qualname__', '')}"
