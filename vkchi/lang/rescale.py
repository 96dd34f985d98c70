"""Index conversion between fields of different shapes: `ti.rescale_index`, in both scopes.

>>> rescale_index(coarse, fine, Vector([1, 3]))       # shapes (2, 4) and (4, 8)
[2 6]
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.lang.function import composite
from vkchi.lang.matrix import pack


@composite
def rescale_index(a: Any, b: Any, I: Any) -> Any:  # noqa: E741
    """Return the index in field or block b that corresponds to index I of a.

    Along axes of different lengths, the index is multiplied or floor-divided by the quotient of the
    lengths, rounded down. Raises KernelTypeError if a or b has no shape.
    """
    shapes = [getattr(x, "shape", None) for x in (a, b)]
    if not all(isinstance(shape, tuple) for shape in shapes):
        raise KernelTypeError("rescale_index takes two fields or blocks, and an index")
    parts = list(I) if isinstance(I, list | tuple) else [I[k] for k in range(I.n)]
    for k, (old, new) in enumerate(zip(*shapes)):
        if k < len(parts) and old > new:
            parts[k] = parts[k] // (old // new)
        elif k < len(parts) and old < new:
            parts[k] = parts[k] * (new // old)
    return pack(parts)
