"""Reductions over all ranks: partial results per rank, combined in order of rank.

Every rank gets the same bits. The order of additions depends on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.decomposition import Decomposition
from vkchi.distributed.exchange import local_slices
from vkchi.distributed.group import Group
from vkchi.fields.storage import Storage
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[Any]


class Reduction:
    """The "sum", "min" or "max" of the owned cells of a field, or the "dot" product of two, over
    all ranks. NaNs propagate. `facts` are equal on all ranks. The methods are those of
    `vkchi.tape.hosted.HostFunction`."""

    def __init__(
        self, group: Group, name: str, fields: Sequence[Storage], layout: Decomposition, facts: str
    ) -> None:
        self.group, self.name, self.who, self.fields = group, name, f"grid.{name}()", fields
        self.facts, owned = facts, layout.owned(group.rank)
        self.places = [local_slices(x, owned) for x in fields]

    def value(self, *inputs: Values) -> Values:
        """Reduce whole blocks in a 64-bit type: integers are exact, modulo 2**64."""
        owned = [x[place] for x, place in zip(inputs, self.places)]
        kinds = {x.dtype.kind for x in owned}
        wide: Any = np.float64 if "f" in kinds else np.uint64 if kinds == {"u"} else np.int64
        act: Any = {"min": np.minimum, "max": np.maximum}.get(self.name, np.add)
        if self.name == "dot":
            part = (owned[0].astype(wide) * owned[1].astype(wide)).sum()
        else:
            part = act.reduce(owned[0], axis=tuple(range(len(self.places[0]))), dtype=wide)
        return self._combine(f"{self.name}()", np.asarray(part), act)

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        """Gradients of whole blocks. `inputs` are the owned cells of "dot", in reverse order."""
        total = self._combine(f"the gradient of {self.name}()", slope)
        found = []
        for x, place, factor in zip(self.fields, self.places, inputs or (1.0,)):
            more = np.zeros(x.shape + shape_of(x.elem), x.compute.dtype)
            more[place] = total * factor
            found.append(more)
        return found

    def _combine(self, operation: str, part: Values, act: Any = np.add) -> Values:
        """Combine the partial results of all ranks in order of rank."""
        facts = f"{part.shape} {part.dtype} {self.facts}"
        parts = self.group.share(operation, part.tolist(), facts)
        return np.asarray(act.reduce(np.array(parts, part.dtype), axis=0))
