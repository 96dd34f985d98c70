"""Reductions over all ranks: partial results per rank, combined in order of rank.

Every rank gets the same bits. The order of additions depends on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.group import WORDS, Group
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def wide_type(values: Sequence[NDArray[Any]]) -> Any:
    """The 64-bit type in which arrays are reduced: integers are exact, modulo 2**64."""
    kinds = {x.dtype.kind for x in values}
    return np.float64 if "f" in kinds else np.uint64 if kinds == {"u"} else np.int64


def reduce(group: Group, who: str, values: Sequence[NDArray[Any]], axes: int) -> NDArray[Any]:
    """Reduce arrays by "sum", "min" or "max" over their first `axes` axes, or two by "dot", and
    over ranks. NaNs propagate."""
    act: Any = np.minimum if who == "min" else np.maximum if who == "max" else np.add
    wide = wide_type(values)
    if who == "dot":
        part = (values[0].astype(wide) * values[1].astype(wide)).sum()
    else:
        part = act.reduce(values[0], axis=tuple(range(axes)), dtype=wide)
    return combine(group, f"{who}()", np.asarray(part), act)


def combine(group: Group, operation: str, part: NDArray[Any], act: Any = np.add) -> NDArray[Any]:
    """Combine the partial results of all ranks in order of rank."""
    digest = group.begin(operation, f"{part.shape} {part.dtype}")
    flat = part.reshape(-1)
    rows = [
        group.exchange_words(operation, digest, flat[k : k + WORDS - 1])
        for k in range(0, flat.size, WORDS - 1)
    ]
    return np.asarray(act.reduce(np.concatenate(rows, axis=1), axis=0)).reshape(part.shape)
