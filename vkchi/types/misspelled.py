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
_AN_ARRAY = (
    "for numbers, write {0}: ti.types.ndarray() and pass np.asarray({0}); for constants, write "
    "{0}: ti.template()"
)
# Python's types -> help, with the argument's name.
PYTHON_TYPES = {
    list: _AN_ARRAY,
    tuple: _AN_ARRAY,
    dict: "write {0}: ti.template(), whose items are constants, or a @ti.dataclass",
    set: "write {0}: ti.template(), and loop over it in ti.static(...)",
    str: "write {0}: ti.template(): strings are constants of a kernel",
    complex: "write {0}: ti.math.vec2, of the real and the imaginary part",
    bytes: "write {0}: ti.types.ndarray() and pass np.frombuffer({0}, np.uint8)",
    object: "write {0}: ti.template()",
}


def help_for_annotation(name: str, note: object) -> str:
    """The help for an argument with an annotation that kernels do not support."""
    origin = getattr(note, "__origin__", note)  # list[int] -> list
    if isinstance(origin, type) and origin in PYTHON_TYPES:
        return PYTHON_TYPES[origin].format(name)
    written = suggest_annotation(note) or "ti.f32, ti.types.ndarray() or ti.template()"
    return f"write {name}: {written}"


def suggest_tensor_type(note: object) -> str:
    """The vector or matrix type to write instead of an annotation; "" if there is none."""
    return VALUES.get(_path(note), "")


def suggest_annotation(note: object) -> str:
    """The argument type to write instead of an annotation; "" if there is none."""
    return suggest_tensor_type(note) or ARRAYS.get(_path(note), "")


def _path(note: object) -> str:
    return f"{getattr(note, '__module__', '')}.{getattr(note, '__qualname__', '')}"
