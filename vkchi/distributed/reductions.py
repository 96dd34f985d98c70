"""Reductions over all ranks: partial results per rank, combined in order of rank.

Every rank gets the same bits. The order of additions depends on the number of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.distributed.group import WORDS, Group
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def wide_type(dtype: Any) -> Any:
    """The 64-bit type in which values of a type are reduced."""
    return {"f": np.float64, "u": np.uint64}.get(np.dtype(dtype).kind, np.int64)


def reduce(group: Group, operation: str, values: NDArray[Any], axes: int) -> Any:
    """Reduce over the first `axes` axes, and over ranks. `operation` is "sum()", "min()", "max()".

    NaNs propagate. Returns a Python number, or an array for values with further axes.
    """
    act: Any = {"sum()": np.add, "min()": np.minimum, "max()": np.maximum}[operation]
    over = tuple(range(axes))
    part = act.reduce(values, axis=over, dtype=wide_type(values.dtype))
    return combine(group, operation, np.asarray(part), act)


def total(group: Group, operation: str, part: Any) -> Any:
    """Sum of a number over ranks, in order of rank."""
    return combine(group, operation, np.asarray(part), np.add)


def combine(group: Group, operation: str, part: NDArray[Any], act: Any) -> Any:
    """Combine the partial results of all ranks in order of rank."""
    digest = group.begin(operation, f"{part.shape} {part.dtype}")
    flat = part.reshape(-1)
    rows = [
        group.exchange_words(operation, digest, flat[k : k + WORDS - 1])
        for k in range(0, flat.size, WORDS - 1)
    ]
    result = act.reduce(np.concatenate(rows, axis=1), axis=0).reshape(part.shape)
    return result.item() if result.ndim == 0 else result
