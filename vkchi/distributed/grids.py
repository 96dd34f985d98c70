"""Grids divided into blocks, one per rank: fields with halos, loop ranges, whole-array transfers.

ti.distributed.init()
grid = ti.distributed.Grid((4096, 4096), halo=1)
u, v = grid.field(ti.f32), grid.field(ti.f32)

@ti.kernel
def step():
    for i, j in grid.owned:                     # global indices
        v[i, j] = u[i - 1, j] + u[i + 1, j]

grid.exchange(u)
step()
"""

from __future__ import annotations

import math
import operator
import os
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.decomposition import Decomposition, box_shape, check_ranks, choose_ranks
from vkchi.distributed.exchange import Exchange, Plan, check_not_in_flight, local_slices
from vkchi.distributed.group import current_group
from vkchi.distributed.reductions import Reduction
from vkchi.errors import (
    ArgumentError,
    DistributedError,
    GradientError,
    KernelRuntimeError,
    MissingPackageError,
)
from vkchi.fields.constructors import ComponentOrder, field
from vkchi.fields.field import Field
from vkchi.fields.storage import Storage
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.weak import insert_bounded
from vkchi.lang.ndrange import ndrange
from vkchi.runtime import current_runtime
from vkchi.span import name_in_user_code
from vkchi.types import Scalar, Tensor, cook, shape_of, u1
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from vkchi.distributed.particles import Particles
    from vkchi.fields.struct_arrays import StructField
    from vkchi.runtime import Runtime
    from vkchi.types.hints import DType, Numbers
    from vkchi.types.struct_types import StructType

    Values = NDArray[Any]

MOST_PLANS = 256  # kept, by fields


@python_scope
class Grid:
    """A grid of cells, divided into a block per rank of the group.

    Rank k of p along an axis of n cells owns n // p cells, or one more. Fields of the grid have a
    halo of `halo` cells on all sides of the block, which `exchange` fills with the neighbours'
    values. Indices are global. All ranks must make the same grids and fields, and call their
    methods in the same order.

    - shape, halo, periodic, ranks: as given, per axis.
    - position: index of this rank's block along each axis.
    - owned: range of the cells of this rank, for loops of kernels.
    - interior: the part of it that is `halo` cells or more from neighbours; `border`: the rest, as
      disjoint ranges.

    Args:
        shape: cells along each of 1 to 3 axes.
        halo: width of the halo in cells.
        periodic: True or False, or one per axis: opposite sides of the domain are neighbours.
            Otherwise halos outside the domain are the user's.
        ranks: blocks along each axis; by default those with the least cut surface.
        mesh: a torch DeviceMesh, whose array of ranks is the arrangement.

    Raises:
        ArgumentError: for an invalid shape, for blocks that are empty or narrower than the halo,
            and if the product of `ranks` is not the size of the group.
        DistributedError: if ranks give other arguments.
        KernelRuntimeError: before `ti.distributed.init`.
    """

    def __init__(
        self, shape: int | Sequence[int], halo: int = 1, periodic: bool | Sequence[bool] = False,
        ranks: Sequence[int] | None = None, *, mesh: Any = None,
    ) -> None:  # fmt: skip
        self.group = group = current_group()
        self.shape = whole_numbers("shape", shape)
        if not 1 <= len(self.shape) <= 3 or min(self.shape) < 1:
            raise ArgumentError(f"Grid: shape is 1 to 3 positive integers, not {shape!r}")
        (self.halo,) = whole_numbers("halo", halo)
        if self.halo < 0:
            raise ArgumentError(f"Grid: halo is 0 or more cells, not {halo}")
        axes = len(self.shape)
        given = list(periodic) if hasattr(periodic, "__iter__") else [periodic] * axes
        if len(given) != axes or not all(isinstance(p, bool | np.bool_) for p in given):
            raise ArgumentError(f"Grid: periodic is a bool, or {axes} of them, not {periodic!r}")
        self.periodic = tuple(map(bool, given))
        order = tuple(range(group.size))
        if mesh is not None:
            if ranks is not None:
                raise ArgumentError("Grid: give ranks= or mesh=, not both")
            ranks, order = tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist())
            if sorted(order) != list(range(group.size)):
                raise ArgumentError("Grid: mesh= must have every rank of the group once")
        if ranks is None:
            self.ranks = choose_ranks(self.shape, self.halo, self.periodic, group.size)
        else:
            self.ranks = whole_numbers("ranks", ranks)
        if len(self.ranks) != axes or min(self.ranks) < 1:
            raise ArgumentError(f"Grid: ranks is {axes} positive integers, not {self.ranks}")
        check_ranks(self.shape, self.halo, self.periodic, self.ranks, group.size)
        group.agree(
            "Grid()", shape=self.shape, halo=self.halo, periodic=self.periodic, ranks=self.ranks,
            order=order,
        )  # fmt: skip
        self.blocks = Decomposition(self.shape, self.halo, self.periodic, self.ranks, order)
        own = self.blocks.owned(group.rank)
        self.position = self.blocks.position(group.rank)
        self.owned = ndrange(*own)
        self.interior = ndrange(*self.blocks.interior(group.rank))
        self.border = tuple(ndrange(*box) for box in self.blocks.border(group.rank))
        self._origin = tuple(begin - self.halo for begin, _ in own)
        self._extent = tuple(n + 2 * self.halo for n in box_shape(own))
        self._plans: dict[tuple[int, ...], Plan] = {}
        # Fields and particles that exist, with names; members and labels; how many were made.
        self._made: list[tuple[str, weakref.ref[Any]]] = []
        self._labeled: list[tuple[str, weakref.ref[Any]]] = []
        self._counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Grid of shape {self.shape} on ranks {self.ranks}>"

    def field(
        self, dtype: DType | StructType, *, needs_grad: bool = False, name: str = "",
        layout: ComponentOrder = ComponentOrder.AOS,
    ) -> Field | StructField:  # fmt: skip
        """Create a field of this rank's cells and halo, initially 0, with global indices.

        Args:
            dtype: a scalar, vector, matrix or struct type.
            needs_grad: add `.grad`.
            name: used in messages.
            layout: as in `ti.field`.

        Returns:
            The field; for a struct type, a field of structs.

        Raises:
            ArgumentError: as in `ti.field`.
            DistributedError: if ranks give other arguments.
        """
        options: Any = {"needs_grad": needs_grad, "name": name, "layout": layout}
        made = field(dtype, self._extent, offset=self._origin, **options)
        self.group.agree(
            "Grid.field()", dtype=str(cook(dtype)), needs_grad=needs_grad, name=name, layout=layout
        )
        self._remember("field", name, made)
        return made

    def _remember(self, kind: str, name: str, made: Field | StructField | Particles) -> str:
        """Make an array one of those that `save` writes without names; return its label, which is
        equal on all ranks."""
        self._forget_deleted()
        label = f"{kind}{self._counts[kind]}"
        self._made.append((name or label, weakref.ref(made)))
        for k, x in enumerate(members_of(made)):
            self._labeled.append((f"{label}.{k}", weakref.ref(x)))
        self._counts[kind] += 1
        return label

    def _forget_deleted(self) -> None:
        """Drop the plans of deleted fields, which keep memory."""
        self._made = [row for row in self._made if row[1]() is not None]
        self._labeled = [row for row in self._labeled if row[1]() is not None]
        for key in [key for key, plan in self._plans.items() if plan.is_dead()]:
            del self._plans[key]

    def _labels(self, fields: Sequence[Storage]) -> list[str]:
        """Labels of fields or gradients by the order in which the fields were made: equal on all
        ranks. Empty for fields that were made otherwise."""
        found: dict[int, str] = {}
        for label, ref in self._labeled:
            x = ref()
            found[id(x)] = label
            if isinstance(x, Storage) and x.has_grad():
                found[id(x.companion("grad"))] = f"{label}.grad"
        return [found.get(id(x), "") for x in fields]

    # --- halos -----------------------------------------------------------------------------------

    def exchange(self, *fields: Field | StructField, wait: bool = True) -> Exchange:
        """Fill the halos of fields with the values of the cells' owners.

        Each neighbouring rank gets one message for all fields. Edges and corners are included.
        Halos outside a domain that is not periodic keep their values.

        Args:
            *fields: fields of this grid, or other dense fields of the same shape and offset.
            wait: with False, return while messages are on their way: the halos are filled by
                `Exchange.wait()`. Inside a tape they are filled at once.

        Returns:
            The exchange.

        Raises:
            ArgumentError: for other fields, and during another exchange of the same field.
            DistributedError: if a rank died, timed out or exchanges other fields.
            GradientError: in forward mode, and inside functions that a tape does not differentiate.
            KernelRuntimeError: inside `ti.record()`.
        """
        made = self._move_halos("exchange", fields, is_direct=wait)
        if wait:
            made.wait()
        return made

    def reduce(self, *fields: Field | StructField) -> None:
        """Add the halos of fields to the cells' owners, and set the halos to 0: the adjoint of
        `exchange`.

        So kernels that add to cells of the halo, such as the P2G transfer of MPM, add to the cells
        of other ranks. Each neighbouring rank gets one message for all fields. Halos outside a
        domain that is not periodic keep their values. Sums of floats are in the same order in each
        run on the same ranks.

        Args:
            *fields: as in `exchange`; not of bools.

        Raises:
            ArgumentError, DistributedError, GradientError, KernelRuntimeError: as `exchange`.
        """
        self._move_halos("reduce", fields, is_reversed=True).wait()

    def _move_halos(
        self, who: str, fields: Sequence[Any], *, is_reversed: bool = False,
        is_direct: bool = False,
    ) -> Exchange:  # fmt: skip
        """Begin an exchange or reduction of halos; inside a tape, also end it. With `is_direct`,
        the fields are not changed before the end."""
        operation, runtime = f"{who}()", current_runtime()
        plan, members = self._plan(who, fields, runtime)
        if is_reversed and any(x.number is u1 for x in members):
            raise ArgumentError(f"{who}: bools are not added: use a field of ti.i32")
        if self.group.sources is not None:
            self.group.sources.compare(operation)
        tape = runtime.tape
        if tape is None:
            form = {"is_reversed": is_reversed, "is_direct": is_direct}
            return Exchange(self.group, operation, plan, members, **form)
        self._check_recorded_graph(who)
        from vkchi.distributed.recorded import run_in_tape  # imports the tape

        plans = [self._plan(who, [x], runtime) for x in members]
        run_in_tape(self.group, plans, tape, who, is_reversed=is_reversed)
        return Exchange(self.group, operation)

    def _plan(
        self, who: str, given: Sequence[Any], runtime: Runtime
    ) -> tuple[Plan, Sequence[Storage]]:
        """The plan of an exchange of fields, made once while they have the same memory; its
        fields, structs by their members."""
        key = tuple([id(x) for x in given])
        plan = self._plans.get(key)
        members = None if plan is None else plan.find(given, runtime)
        if plan is not None and members is not None:
            check_not_in_flight(self.group, who, members)
            return plan, members
        self._forget_deleted()
        members = self._members(who, given)
        plan = Plan(self.group.rank, self.blocks, members, given, self._labels(members))
        insert_bounded(self._plans, key, plan, MOST_PLANS)
        return plan, members

    # --- whole arrays ----------------------------------------------------------------------------

    def scatter(self, array: Numbers | None, field: Field) -> None:
        """Fill a field, halos included, from one array of the grid's shape.

        Args:
            array: the array on rank 0, and None on other ranks; or the array on all ranks. It has
                the grid's shape, and that of the field's elements.
            field: the field.

        Raises:
            ArgumentError: on all ranks for an array of another shape or of other things than
                numbers, or, under `strict`, for losses in the cast; for a field of another block.
            DistributedError: if ranks other than 0 have the array and not all, or a rank fails.
        """
        (x,) = self._members("scatter", (field,))
        self._check_not_recording("scatter")
        group, want = self.group, [*self.shape, *shape_of(x.elem)]
        values: Values | None = None
        error: ArgumentError | Warning | None = None
        try:
            values = None if array is None else host_views.to_number_array(array)
            if values is not None and list(values.shape) == want:
                x.warn_of_losses(values)
        except (ArgumentError, Warning) as e:  # a filter may make warnings errors
            error = e
        shape = str(error) if error is not None else None if values is None else list(values.shape)
        shapes = group.share("scatter()", shape, f"{x.elem} {self._labels([x])} {self.blocks}")
        if error is not None:
            raise error
        for rank, one in enumerate(shapes):
            if isinstance(one, str):
                raise ArgumentError(f"scatter: on rank {rank}: {one}")
            if one not in (None, want):
                raise ArgumentError(
                    f"scatter: an array of shape {tuple(want)} is needed, not {tuple(one)}"
                )
        is_first = shapes[0] is not None and not any(shapes[1:])
        if not (is_first or all(shapes)):
            raise DistributedError(
                "scatter: the array must be on rank 0 alone (None elsewhere), or on all ranks"
            )
        parts: dict[int, Values] = {}
        if values is not None:
            for rank in range(group.size) if is_first else [group.rank]:
                parts[rank] = host_views.cast(values[self._covered(rank)[0]], x.compute)
        cells, places = self._covered(group.rank)
        if is_first:
            mine = np.broadcast_shapes(*(index.shape for index in cells)) + shape_of(x.elem)
            parts[group.rank] = self._deliver("scatter()", x, parts, {0: mine})[0]
        whole = x.to_numpy()  # cells outside of the domain keep their values
        whole[places] = parts[group.rank]
        x.from_numpy(whole)

    def _covered(self, rank: int) -> tuple[tuple[Values, ...], tuple[slice, ...]]:
        """The cells of a rank's block and halo that are in the domain: index arrays of the grid,
        and slices of the block."""
        found, places = [], []
        parts = zip(self.blocks.owned(rank), self.shape, self.periodic)
        for (begin, end), extent, wraps in parts:
            first, last = begin - self.halo, end + self.halo
            low, high = (first, last) if wraps else (max(first, 0), min(last, extent))
            found.append(np.arange(low, high) % extent)
            places.append(slice(low - first, high - first))
        return np.ix_(*found), tuple(places)

    def _deliver(
        self, operation: str, x: Storage, sent: Mapping[int, Values],
        shapes: Mapping[int, tuple[int, ...]],
    ) -> dict[int, Values]:  # fmt: skip
        """Send arrays of a field's type to ranks; return those of these shapes, by sender."""
        dtype, ranks = x.compute.dtype, range(self.group.size)
        rows = [sent[k].reshape(-1) for k in sorted(sent)] or [np.empty(0, dtype)]
        taken = [dtype.itemsize * math.prod(shapes[k]) if k in shapes else 0 for k in ranks]
        given = [sent[k].nbytes if k in sent else 0 for k in ranks]
        data = np.concatenate(rows).view(np.uint8)
        found = self.group.all_to_all(operation, data, given, taken).view(dtype)
        ends = np.cumsum(taken)[:-1] // dtype.itemsize
        parts = np.split(found, ends)
        return {k: parts[k].reshape(shape) for k, shape in shapes.items()}

    def gather(self, field: Field) -> Values | None:
        """Return the whole array of a field on rank 0, and None on the other ranks.

        Args:
            field: a field of the grid, not of structs.

        Returns:
            A numpy array of the grid's shape and that of the field's elements; halos are left out.

        Raises:
            ArgumentError: for a field of another block.
            DistributedError: if a rank fails or calls another operation.
        """
        (x,) = self._members("gather", (field,))
        self._check_recorded_graph("gather")
        group, blocks = self.group, self.blocks
        group.share("gather()", facts=f"{x.elem} {self._labels([x])} {blocks}")
        ranks, inner = () if group.rank else range(group.size), shape_of(x.elem)
        shapes = {k: box_shape(blocks.owned(k)) + inner for k in ranks}
        found = self._deliver("gather()", x, {0: self._owned_values(x)}, shapes)
        if group.rank:
            return None
        whole = np.empty(self.shape + inner, x.compute.dtype)
        for rank, block in found.items():
            whole[tuple(slice(*ends) for ends in blocks.owned(rank))] = block
        return whole

    def _owned_values(self, x: Storage) -> Values:
        """The values of the owned cells, perhaps a view of the memory."""
        found: Values = x.seen()[local_slices(x, self.owned.bounds)]
        return found

    # --- checkpoints -----------------------------------------------------------------------------

    def save(
        self, path: str | os.PathLike[str], step: int = 0, **arrays: Field | StructField | Particles
    ) -> None:
        """Write the owned cells of fields, and particles, to a folder, for `load` on any number of
        ranks.

        All ranks must reach the folder. A rank that dies meanwhile leaves the last checkpoint as it
        was; the last two are kept.

        Args:
            path: the folder; it is made if there is none.
            step: a number that `load` returns.
            **arrays: fields and particles by name. By default all of the grid: fields by their
                `name=`, or "field0", "field1" in the order in which they were made, and particles
                as "particles0", "particles1".

        Raises:
            ArgumentError: for fields of another block, equal names, and a negative step.
            DistributedError: if a rank fails or cannot write, ranks give other arguments, or a
                particle is outside the domain or NaN.
            MissingPackageError: without torch.
        """
        self._check_recorded_graph("save")
        self._checkpoints().save(self, os.fspath(path), step, arrays)

    def load(self, path: str | os.PathLike[str], **arrays: Field | StructField | Particles) -> int:
        """Read the latest checkpoint in a folder, exchange halos, and return its `step`.

        Halos outside a domain that is not periodic keep their values. Particles replace those that
        were there; each is sent to the owner of its position.

        Args:
            path: the folder given to `save`.
            **arrays: as in `save`. Other arrays of the checkpoint are not read.

        Raises:
            ArgumentError: for fields of another block, and equal names.
            DistributedError: if there is no checkpoint, it cannot be read, has another shape or
                other arrays, or a rank has no room for its particles. Nothing has changed then.
            GradientError: inside a tape.
            MissingPackageError: without torch.
        """
        self._check_not_recording("load")
        step: int = self._checkpoints().load(self, os.fspath(path), arrays)
        return step

    def _checkpoints(self) -> ModuleType:
        """The module `checkpoint`. Raises MissingPackageError without torch."""
        try:
            import_uninterrupted("torch.distributed.checkpoint")
        except ImportError:
            raise MissingPackageError(
                "checkpoints need torch: pip install 'vkchi[distributed]'"
            ) from None
        from vkchi.distributed import checkpoint

        return checkpoint

    # --- reductions ------------------------------------------------------------------------------

    def sum(self, field: Field, out: Storage | None = None) -> Any:
        """Sum over the cells of all ranks; equal on all ranks.

        Floats are added as f64, per rank and then in order of rank; integers as i64. Tapes
        differentiate it, if the result is stored unchanged: by `out`, or by `loss[None] = ...`.

        Args:
            field: a field of the grid, not of structs.
            out: an array of shape () for the result, with elements of the field's shape.

        Returns:
            A number, or an array for vectors and matrices; None with `out`.

        Raises:
            ArgumentError: for fields of another block, and an `out` of another shape.
            DistributedError: if a rank fails or calls another operation.
            GradientError: in a recording of derivatives other than tapes.
        """
        return self._reduce("sum", (field,), out)

    def min(self, field: Field, out: Storage | None = None) -> Any:
        """Minimum over the cells of all ranks, as `sum`. NaN if a value is NaN. A constant for
        tapes: GradientError if `out` and the field have gradients there."""
        return self._reduce("min", (field,), out)

    def max(self, field: Field, out: Storage | None = None) -> Any:
        """Maximum over the cells of all ranks, as `min`."""
        return self._reduce("max", (field,), out)

    def dot(self, a: Field, b: Field, out: Storage | None = None) -> Any:
        """Sum of the products of two fields over the cells of all ranks and all components, as
        `sum`. Raises ArgumentError for elements of different shapes."""
        return self._reduce("dot", (a, b), out)

    def _reduce(self, who: str, fields: Sequence[Field], out: Storage | None) -> Any:
        members = self._members(who, fields)
        self._check_recorded_graph(who)
        inner = shape_of(members[0].elem)
        if who == "dot":
            x, y = members
            if shape_of(y.elem) != inner:
                raise ArgumentError(f"dot: elements {x.elem} and {y.elem} have different shapes")
            inner = ()
        if out is not None:
            is_array = isinstance(out, Storage)
            if not is_array or out.shape != () or shape_of(out.elem) != inner:
                elements = f"elements of shape {inner}" if inner else "scalar elements"
                raise ArgumentError(f"{who}: out= is an array of shape () with {elements}")
            out.check_alive()
        facts = f"{self._labels(members)} {self.blocks}"
        function = Reduction(self.group, who, members, self.blocks, facts)
        tape = current_runtime().tape
        if tape is None:
            result = function.value(*[x.seen() for x in members])
            shown: Any = result if result.ndim else result.item()
        else:
            from vkchi.distributed.recorded import reduce_in_tape  # imports the tape

            result, shown = reduce_in_tape(function, tape, out)
        if out is None:
            return shown
        out.from_numpy(result)
        return None

    # --- checks ----------------------------------------------------------------------------------

    def _members(self, who: str, fields: Sequence[Any]) -> list[Storage]:
        """The fields, structs by their members. Raises ArgumentError for fields of other blocks or
        without memory, and for those of a running exchange."""
        found: list[Storage] = []
        for x in fields:
            members = members_of(x)
            if len(members) > 1 and who not in ("exchange", "reduce"):
                raise ArgumentError(f"{who}: takes no field of structs: give a member")
            found += members
        if not fields:
            raise ArgumentError(f"{who}: no field is given")
        for x in found:
            if not isinstance(x, Field) or not isinstance(x.elem, Scalar | Tensor):
                raise ArgumentError(f"{who}: takes fields of a grid, not {type(x).__name__}")
            x.check_alive()
            problem = ""
            if x.runtime is not current_runtime():
                problem = "is on another device"
            elif x.whole is not x or x.is_encoded or x.is_sparse:
                problem = "is no dense field of numbers or vectors: make it by grid.field(...)"
            elif x.shape != self._extent or x.origin != self._origin:
                problem = (
                    f"has shape {x.shape} and offset {x.origin}, not those of this grid's block, "
                    f"{self._extent} and {self._origin}: make it by grid.field(...)"
                )
            if problem:
                name = name_in_user_code(x) or getattr(x, "name", "") or "an argument"
                raise ArgumentError(f"{who}: {name} {problem}")
        if len({id(x) for x in found}) < len(found) and who != "dot":
            raise ArgumentError(f"{who}: a field is given twice")
        check_not_in_flight(self.group, who, found)
        return found

    def _check_recorded_graph(self, who: str) -> None:
        """Raise KernelRuntimeError inside `ti.record()`."""
        tape = current_runtime().tape
        if tape is not None and tape.kind == "record":
            raise KernelRuntimeError(
                f"{who}: messages are not recorded by ti.record(): record the kernels between two "
                "exchanges"
            )

    def _check_not_recording(self, who: str) -> None:
        """Raise an error inside a recording, which would miss the operation."""
        self._check_recorded_graph(who)
        if current_runtime().tape is not None:
            raise GradientError(f"grid.{who}() is not differentiable: call it outside of the tape")


def members_of(x: Any) -> list[Any]:
    """The fields of a field of structs; other things themselves."""
    return list(x.__vkchi_members__()) if hasattr(x, "__vkchi_members__") else [x]


def whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    """The integers given, as a tuple. Raises ArgumentError for others."""
    try:
        return tuple(operator.index(n) for n in ([given] if np.ndim(given) == 0 else given))
    except TypeError:
        raise ArgumentError(f"Grid: {name} is made of integers, not {given!r}") from None
