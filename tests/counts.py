"""Evaluation of `Count` expressions from values by name."""


def read_mapping(kind: str, name: str, axis: int) -> str:
    """Return source code that reads a launch value from the mapping `f`.

    The mapping has numbers for scalars (`kind` "arg"), and sequences for the extents of arrays and
    the components of tensors.
    """
    return f"f[{name!r}]" if kind == "arg" else f"f[{name!r}][{axis}]"
