"""Reductions inside tapes: sums over all ranks as steps, and the cotangents of losses.

The adjoint of a sum over ranks is the sum of the ranks' adjoints of its result, for each cell.
Tapes differentiate the sum of the losses of all ranks. A loss that is computed from reductions
alone is the same on all ranks, and counts on rank 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed import reductions
from vkchi.distributed.decomposition import Box
from vkchi.distributed.exchange import local_slices
from vkchi.distributed.group import Group
from vkchi.distributed.recorded import CollectiveStep, check_recordable
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func, walk
from vkchi.ir.ops import is_loop
from vkchi.tape.hosted import HostStep, traced_number
from vkchi.tape.ledger import HostAccount
from vkchi.tape.log import Launch
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[Any]


class Reduction:
    """A sum or product of the owned cells of fields, "sum" or "dot", over all ranks; also "min" and
    "max", without gradients."""

    def __init__(self, group: Group, name: str, fields: Sequence[Storage], owned: Box) -> None:
        self.group, self.name, self.who, self.fields = group, name, f"grid.{name}()", fields
        self.places = [local_slices(x, owned) for x in fields]

    def value(self, *inputs: Values) -> Values:
        owned = [x[place] for x, place in zip(inputs, self.places)]
        return self.reduce(owned)

    def reduce(self, owned: Sequence[Values]) -> Values:
        return reductions.reduce(self.group, self.name, owned, len(self.fields[0].shape))

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        """Gradients of whole blocks. `inputs` are those of "dot", in reverse order."""
        total = reductions.combine(self.group, f"the gradient of {self.name}()", slope)
        found = []
        for x, place, factor in zip(self.fields, self.places, inputs or (1.0,)):
            more = np.zeros(x.shape + shape_of(x.elem), x.compute.dtype)
            more[place] = total * factor
            found.append(more)
        return found


def reduce_in_tape(
    group: Group, name: str, fields: Sequence[Storage], owned: Box, tape: Any, out: Storage | None
) -> tuple[Values, Any]:
    """Reduce fields, and record sums; return the result, and that for the user. Raises
    GradientError as `check_recordable`, and for extrema stored into an array with a gradient."""
    check_recordable(group, name, tape)
    function = Reduction(group, name, fields, owned)
    is_recorded = tape.may_record(fields)
    if is_recorded and name in ("min", "max"):
        if out is not None and out.has_grad():
            raise GradientError(
                f"{function.who} is not differentiated: give an `out` without gradient, or store "
                "float(...) of the result, a constant"
            )
        is_recorded = False
    values = [x.seen()[place] for x, place in zip(fields, function.places)]
    result = function.reduce(values)
    if is_recorded:
        saved = values[::-1] if name == "dot" else []
        tape.record(function, fields, saved, result, result, step=CollectiveStep)
        tape.adjust_seeds = SeedAdjuster(group, tape)
    way = f"{function.who} took it from there here"
    tape.note_detached(fields, result, way, is_shown=is_recorded)
    shown = result if result.ndim else traced_number(result) if is_recorded else result.item()
    return result, shown


OWN, COMMON = 1, 2  # bits: values of this rank alone; results of reductions


class SeedAdjuster:
    """Cotangents of outputs: 0 on other ranks than 0 for outputs computed from reductions alone."""

    def __init__(self, group: Group, tape: Any) -> None:
        self.group, self.tape = group, tape

    def __call__(self, seeds: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        sources, found = self.sources(), []
        for output, cotangent in seeds:
            is_tensor = not isinstance(output, Storage)  # of torch: its writers are not followed
            mine = OWN | COMMON if is_tensor else sources.get(id(output.whole), OWN)
            bits = zlib.crc32(output.contents().tobytes()) if mine == COMMON else 0
            operation = "the gradient of reductions"
            words = np.array([mine, bits])
            rows = self.group.exchange_words(operation, self.group.begin(operation), words)
            if (rows != words).any():
                raise self.error("it is computed otherwise on other ranks")
            if mine == OWN | COMMON:
                raise self.error("it also has values of this rank")
            is_other = mine == COMMON and self.group.rank > 0
            found.append((output, 0.0 if is_other else cotangent))
        return found

    def error(self, why: str) -> GradientError:
        return GradientError(
            f"the loss is computed from results of grid.sum() or grid.dot(), and {why}",
            help="store values of cells into a field v of the grid, add them by "
            "grid.sum(v, out=s), and compute the loss from such results alone, without loops",
        )  # fmt: skip

    def sources(self) -> dict[int, int]:
        """Sources of the derivatives in arrays and host accounts, by id.

        Fields of more than one element have values of this rank. So has a result of a kernel with
        loops, which may have other bounds on other ranks, or with such arrays.
        """
        found = {id(self.tape.loss): 0}
        for step in self.tape.entries:
            bits, outputs = 0, []
            if isinstance(step, HostStep):
                is_reduction = isinstance(step.function, Reduction)
                bits, outputs = COMMON if is_reduction else 0, [step.output]
                for x in () if is_reduction else step.inputs:
                    bits |= found.get(id(x), OWN)
            elif isinstance(step, Launch):
                arrays, facts = step.bound.arrays, step.facts
                outputs = [arrays[name].whole for name, _ in facts.stores]
                for name, _ in facts.uses:
                    bits |= found.get(id(arrays[name].whole), OWN)
                is_single = all(x.size == 1 for x in arrays.values())
                has_hosts = step.special is not None and step.special.call.hosts
                if not is_single or has_hosts or has_loops(step.plan.kernel.func):
                    bits |= OWN
            for x in outputs:
                is_single = isinstance(x, HostAccount) or x.size == 1
                found[id(x)] = found.get(id(x), 0) | bits if is_single else OWN
        return found


def has_loops(fn: Func) -> bool:
    """True if an op of the kernel may run more than once."""
    return any(op.kind == "parallel" or is_loop(op) for op in walk(fn.body))
