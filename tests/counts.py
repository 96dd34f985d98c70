"""Counts, which the host evaluates at launch, evaluated from values by name."""


def read_mapping(kind: str, name: str, axis: int) -> str:
    """A `Read` for values in a mapping by name: numbers of scalars, sequences of extents of arrays
    and of components of tensors."""
    return f"f[{name!r}]" if kind == "arg" else f"f[{name!r}][{axis}]"
