"""Particles divided over the ranks of a grid: each is on the rank that owns its cell.

p = ti.distributed.Particles(grid, 10_000, x=ti.math.vec2, v=ti.math.vec2, cell=dx)
p.add(positions if ti.distributed.rank() == 0 else None)

@ti.kernel
def move():
    for k in range(p.n[None]):
        p.x[k] += dt * p.v[k]

move()
p.migrate()

Particles are sent as rows of bytes, one per particle. Ranks first compare their problems, then the
numbers of rows. Fields are written only if all ranks have room.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from vkchi.distributed.decomposition import split
from vkchi.distributed.exchange import host_view
from vkchi.distributed.grids import Grid
from vkchi.errors import ArgumentError, DistributedError, GradientError
from vkchi.fields.constructors import field
from vkchi.fields.field import Field
from vkchi.fields.python_scope import missing_member
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.runtime import current_runtime
from vkchi.types import Scalar, Tensor, cook, i32, shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.types.hints import DType, Numbers

    Values = NDArray[Any]

ATTRIBUTES = ("grid", "capacity", "cell", "n")
MOST_LISTED = 8  # ranks in a message


@python_scope
class Particles:
    """Particles in fields of `capacity` elements, of which the first `count` are in use here.

    A particle is on the rank that owns the cell of its position `x`: cell i covers
    [i * cell, (i + 1) * cell) along each axis. After kernels have moved particles, `migrate` sends
    them to their owners. All ranks must call the methods in the same order.

    The fields are attributes. `n[None]` is `count` on the device. Kernels may change it, for
    example to remove the last particles.

    Args:
        grid: the grid, whose blocks and periodic axes apply.
        capacity: the number of particles for which each rank has room, ghosts included.
        x: type of positions: floating-point vectors with a component per axis of the grid, or
            scalars for one axis.
        cell: width of a cell, in the units of `x`.
        **types: types of further fields, by name: scalars, vectors and matrices.

    Raises:
        ArgumentError: for other types and names.
        DistributedError: if ranks give other arguments.
    """

    grid: Grid
    capacity: int
    cell: float
    n: Field
    x: Field
    _fields: dict[str, Field]
    _facts: str  # on which messages depend

    def __init__(
        self, grid: Grid, capacity: int, *, x: DType, cell: float = 1.0, **types: DType
    ) -> None:
        if not isinstance(grid, Grid):
            raise ArgumentError(f"Particles: a Grid is needed, not {type(grid).__name__}")
        if not isinstance(cell, Real) or not 0 < cell < math.inf:
            raise ArgumentError(f"Particles: cell is a width above 0, not {cell!r}")
        if not hasattr(capacity, "__index__") or capacity < 1:
            raise ArgumentError(f"Particles: capacity is 1 or more particles, not {capacity!r}")
        elems = {name: cook(t) for name, t in {"x": x, **types}.items()}
        for name, elem in elems.items():
            if not isinstance(elem, Scalar | Tensor):
                raise ArgumentError(f"Particles: {name} is of scalars, vectors or matrices, not "
                                    f"{elem!r}")  # fmt: skip
            if name.startswith("_") or hasattr(Particles, name) or name in ATTRIBUTES:
                raise ArgumentError(f"Particles: no field can have the name {name}, which is that "
                                    "of another attribute")  # fmt: skip
        made = {name: field(elem, int(capacity), name=name) for name, elem in elems.items()}
        axes, inner = len(grid.shape), made["x"].element_shape
        if made["x"].compute.kind != "f" or (inner or (1,)) != (axes,):
            raise ArgumentError(f"Particles: x is of vectors of {axes} floats, a component per "
                                f"axis of the grid, not {elems['x']}")  # fmt: skip
        facts = {
            "capacity": int(capacity), "cell": float(cell),
            "fields": {name: str(elem) for name, elem in elems.items()},
        }  # fmt: skip
        grid.group.agree("Particles()", grid=grid, **facts)
        vars(self).update(grid=grid, capacity=int(capacity), cell=float(cell), n=field(i32, ()))
        label = grid._remember("particles", "", self)
        vars(self).update(made, _fields=made, _facts=f"{label} {facts} {grid.blocks}")

    def __repr__(self) -> str:
        return f"<Particles {', '.join(self._fields)} of {self.grid}>"

    def __setattr__(self, name: str, value: object) -> None:
        raise ArgumentError(f"Particles: {name} cannot be set: copy values into a field by "
                            "p.x.from_numpy(...) or a kernel")  # fmt: skip

    def __getattr__(self, name: str) -> Field:
        raise missing_member(type(self), name, vars(self))

    @property
    def count(self) -> int:
        """The number of particles on this rank, without ghosts. Waits for the device."""
        return int(self.n[None])

    # --- operations ------------------------------------------------------------------------------

    def add(self, x: Numbers | None, **values: Numbers) -> None:
        """Add particles, and send each to its owner. Ghosts are dropped.

        Every rank gives particles of its own, or None. If all ranks make the same arrays, only rank
        0 must give them.

        Args:
            x: positions, of shape (m,) and that of an element; or None.
            **values: by field, an array of m elements, or one element for all. Fields that are not
                given are 0.

        Raises:
            ArgumentError: for unknown fields and other shapes. Other ranks raise DistributedError.
            DistributedError: on all ranks, if a position is outside the domain or NaN, if a rank
                has no room, if all ranks give the same particles, or if a rank fails. No particle
                has been added then.
            GradientError: inside a tape or `ti.record()`.
        """
        count, problem = self._begin("add")
        error: ArgumentError | Warning | None = None
        try:
            given = self._arrays_of(x, values)
        except (ArgumentError, Warning) as e:  # a filter may make warnings errors
            error, given = e, self._values(0)
            rank = self.grid.group.rank
            problem = f"rank {rank} was given invalid arguments; see its own message"
        try:
            arrived = self._deliver("add()", given, problem, count, is_new=True)
        except DistributedError:
            if error is not None:
                raise error from None
            raise
        self._store(count, arrived, is_end=True)

    def migrate(self) -> None:
        """Send the particles that have left this rank's block to their owners.

        Positions on periodic axes are wrapped into the domain. Particles that stay keep their
        order; those that arrive follow, in order of rank and of their order there. Ghosts are
        dropped.

        Raises:
            DistributedError: on all ranks, if a position is outside the domain or NaN, if a rank
                has no room, or if a rank fails. No particle has been moved or changed then.
            GradientError: inside a tape or `ti.record()`.
        """
        count, problem = self._begin("migrate")
        values = self._values(count)
        before = values["x"]
        values["x"], points = self._wrapped(before)
        stays = self._is_own(points)
        leaving = np.flatnonzero(~stays)
        targets, problem = self._owners(points[leaving], problem, leaving)
        rows = packed(values, leaving)
        arrived = self._send("migrate()", problem, count - len(leaving), rows, targets)
        is_wrapped = (before != values["x"]).reshape(points.shape).any(1)
        touched = np.flatnonzero(is_wrapped | ~stays)
        first = int(touched[0]) if touched.size else count
        stayed = packed(values, first + np.flatnonzero(stays[first:]))
        self._store(first, np.concatenate([stayed, arrived]), is_end=True)

    def ghosts(self, radius: float) -> int:
        """Copy particles of neighbouring ranks that are near this rank's block: behind the own
        ones, in the elements `count` to `count` + result of the fields.

        They are all those that can be at most `radius` away from a particle of this block, along
        each axis. Over a periodic border, positions are shifted by the domain, so that distances
        need no wrap; a rank may also get copies of its own particles. A later call replaces the
        ghosts. They have the same order if positions have not changed.

        Args:
            radius: a distance in the units of `x`, at most the width of a block.

        Returns:
            The number of ghosts.

        Raises:
            ArgumentError: for another radius.
            DistributedError: on all ranks, if a particle has left its block since `migrate`, if a
                rank has no room, or if a rank fails.
            GradientError: inside a tape or `ti.record()`.
        """
        grid, cell = self.grid, self.cell
        count, problem = self._begin("ghosts")
        axes = zip(grid.shape, grid.ranks, grid.periodic)
        least = min([n // k * cell for n, k, wraps in axes if k > 1 or wraps], default=math.inf)
        if not isinstance(radius, Real) or not 0 < radius <= least:
            raise ArgumentError(f"ghosts: radius is above 0, and at most the width of the least "
                                f"block, {least:g}, not {radius!r}")  # fmt: skip
        values = self._values(count)
        x = self._points(values["x"])
        strays = np.flatnonzero(~self._is_own(x))
        if strays.size:
            problem = self._misplaced(strays[0], x[strays[0]], "its block: call migrate() first")
        which, moved, targets = [np.zeros(0, np.int64)], [x[:0]], [np.zeros(0, np.int64)]
        for direction in grid.blocks.directions():
            peer = grid.blocks.neighbor(grid.group.rank, direction)
            if peer is None:
                continue
            near, shift = np.ones(count, bool), np.zeros(len(grid.shape))
            for axis, step in enumerate(direction):
                (begin, end), extent = grid.owned.bounds[axis], grid.shape[axis]
                if step < 0:
                    near &= x[:, axis] < begin * cell + radius
                    shift[axis] = extent * cell * (begin == 0)
                elif step > 0:
                    near &= x[:, axis] >= end * cell - radius
                    shift[axis] = -extent * cell * (end == extent)
            which.append(np.flatnonzero(near))
            moved.append(x[near] + shift)
            targets.append(np.full(len(which[-1]), peer))
        chosen = np.concatenate(which)
        copies = {name: array[chosen] for name, array in values.items()}
        copies["x"] = np.concatenate(moved).reshape(copies["x"].shape).astype(copies["x"].dtype)
        rows = packed(copies, np.arange(len(chosen)))
        arrived = self._send(f"ghosts({radius:g})", problem, count, rows, np.concatenate(targets))
        self._store(count, arrived)
        return len(arrived)

    # --- positions -------------------------------------------------------------------------------

    def _points(self, x: Values) -> Values:
        """Positions as f64, an axis per column."""
        return x.reshape(-1, len(self.grid.shape)).astype(np.float64)

    def _wrapped(self, x: Values) -> tuple[Values, Values]:
        """Positions with periodic axes wrapped into the domain, also as `_points`; `x` itself if
        all are inside."""
        points = self._points(x)
        for axis, (n, wraps) in enumerate(zip(self.grid.shape, self.grid.periodic)):
            size, column = n * self.cell, points[:, axis]
            outside = np.flatnonzero((column < 0) | (column >= size)) if wraps else ()
            if len(outside):
                with np.errstate(invalid="ignore"):  # infinite positions become NaN
                    rounded = host_views.cast(np.mod(column[outside], size), self.x.number)
                rounded[rounded.astype(np.float64) >= size] = 0
                x, column[outside] = x.copy(), rounded
                x.reshape(points.shape)[outside, axis] = rounded
        return x, points

    def _is_own(self, points: Values) -> Values:
        """True for each wrapped position in a cell of this rank. Owners are found by comparisons
        with borders of blocks in f64, equal on all ranks."""
        begin, end = np.array(self.grid.owned.bounds).T * self.cell
        found: Values = ((points >= begin) & (points < end)).all(1)
        return found

    def _owners(self, points: Values, problem: str, numbers: Values) -> tuple[Values, str]:
        """The ranks of wrapped positions, and the given problem, or a position outside. `numbers`
        are those of the particles."""
        blocks = self.grid.blocks
        size = np.array(blocks.shape) * self.cell
        is_inside = ((points >= 0) & (points < size)).all(1)
        if not is_inside.all() and not problem:
            at = np.argmin(is_inside)
            where = "the domain or NaN; no particle has been moved"
            problem = self._misplaced(numbers[at], points[at], where)
        found = np.zeros(len(points), np.int64)
        for axis, (extent, count) in enumerate(zip(blocks.shape, blocks.ranks)):
            starts = np.array([begin for begin, _ in split(extent, count)]) * self.cell
            column = np.where(is_inside, points[:, axis], 0)
            found = found * count + np.searchsorted(starts, column, "right") - 1
        return np.array(blocks.order)[found], problem

    def _misplaced(self, at: int, point: Values, where: str) -> str:
        """The problem of a particle on this rank."""
        rank, place = self.grid.group.rank, point.tolist()
        return f"particle {at} of rank {rank} is at {place}, outside {where}"

    # --- messages --------------------------------------------------------------------------------

    def _begin(self, who: str) -> tuple[int, str]:
        """`count`, or 0 and a problem if it is out of range. Raises an error in a recording, and
        for fields that were freed."""
        runtime = current_runtime()
        for x in (self.n, *self._fields.values()):
            x.check_alive()
            if x.runtime is not runtime:
                raise ArgumentError(f"{who}: the particles are on another device")
        if runtime.tape is not None and who != "save":
            raise GradientError(f"particles.{who}() is not recorded, nor differentiated: call it "
                                "outside of tapes and ti.record()")  # fmt: skip
        count, capacity = self.count, self.capacity
        if 0 <= count <= capacity:
            return count, ""
        return 0, f"n[None] is {count} on rank {self.grid.group.rank}, not 0 to {capacity}"

    def _compare(self, operation: str, problem: str, *facts: Any) -> list[Any]:
        """The facts of all ranks. Raises DistributedError on all ranks if any has a problem."""
        rows = self.grid.group.share(operation, [problem, *facts], self._facts)
        for text, *_ in rows:
            if text:
                raise DistributedError(f"{operation}: {text}")
        return [row[1:] for row in rows]

    def _send(
        self, operation: str, problem: str, staying: int, rows: Values, targets: Values,
        checksum: int = 0,
    ) -> Values:  # fmt: skip
        """Send rows to ranks, and return those that arrive here, by source rank and order there.

        Raises DistributedError on all ranks if any has a problem, or no room for them beside
        `staying` particles, or if all have the same checksum, not 0.
        """
        group, capacity = self.grid.group, self.capacity
        given = np.bincount(targets, minlength=group.size).tolist()
        moved = [(k, n) for k, n in enumerate(given) if n]
        said = self._compare(operation, problem, staying, checksum, moved)
        if checksum and group.size > 1 and all(row[1:] == said[0][1:] for row in said):
            raise DistributedError(
                f"{operation}: all ranks give the same particles, which would be added once per "
                "rank: give them on rank 0, and None on the others"
            )
        needs, taken = [row[0] for row in said], [0] * group.size
        for source, (_, _, counts) in enumerate(said):
            for target, n in counts:
                needs[target] += n
                taken[source] += n * (target == group.rank)
        short = [f"rank {k} needs {n}" for k, n in enumerate(needs) if n > capacity]
        if short:
            raise DistributedError(
                f"{operation}: {', '.join(short[:MOST_LISTED])} particles, and capacity is "
                f"{capacity}: give Particles a larger capacity; no particle has been moved"
            )
        if not any(counts for _, _, counts in said):
            return rows
        return group.all_to_all(operation, rows[np.argsort(targets, kind="stable")], given, taken)

    def _deliver(
        self, operation: str, values: dict[str, Values], problem: str = "", staying: int = 0, *,
        is_new: bool = False,
    ) -> Values:  # fmt: skip
        """Send particles with these values to their owners; return the rows that arrive here. If
        they are new, they must not be the same on all ranks."""
        values["x"], points = self._wrapped(values["x"])
        numbers = np.arange(len(points))
        targets, problem = self._owners(points, problem, numbers)
        rows = packed(values, numbers)
        checksum = zlib.crc32(rows.data) if is_new and len(rows) else 0
        return self._send(operation, problem, staying, rows, targets, checksum)

    def _all_values(self, who: str) -> tuple[dict[str, Values], int, int]:
        """Values of this rank's particles, the number of those of lower ranks, and of all. Raises
        DistributedError if one is outside the domain."""
        count, problem = self._begin(who)
        values = self._values(count)
        _, problem = self._owners(self._wrapped(values["x"])[1], problem, np.arange(count))
        counts = [n for (n,) in self._compare(f"{who}()", problem, count)]
        return values, sum(counts[: self.grid.group.rank]), sum(counts)

    # --- fields ----------------------------------------------------------------------------------

    def _values(self, count: int) -> dict[str, Values]:
        """The first values of all fields, perhaps views of their memory."""
        return {name: x.seen()[:count] for name, x in self._fields.items()}

    def _arrays_of(self, x: Numbers | None, values: Mapping[str, Numbers]) -> dict[str, Values]:
        """Values of new particles by field, of the fields' types."""
        for name in values:
            if name not in self._fields:
                raise ArgumentError(f"add: {name} is no field of {self!r}")
        if x is None:
            if values:
                raise ArgumentError("add: values are given without positions x")
            x = np.zeros((0, *shape_of(self.x.elem)))
        found: dict[str, Values] = {}
        for name, target in self._fields.items():
            given = host_views.to_number_array(x if name == "x" else values.get(name, 0))
            inner = shape_of(target.elem)
            m = len(found["x"]) if found else given.shape[0] if given.ndim else 0
            if given.shape != (m, *inner) and (name == "x" or given.shape not in ((), inner)):
                raise ArgumentError(f"add: {name} has shape {given.shape}, and {(m, *inner)} is "
                                    "needed")  # fmt: skip
            target.warn_of_losses(given)
            one = host_views.cast(given, target.compute)
            found[name] = host_views.cast(np.broadcast_to(one, (m, *inner)), target.number)
        return found

    def _store(self, first: int, rows: Values, *, is_end: bool = False) -> None:
        """Store rows from an element on; with `is_end`, as the last particles."""
        start, last = 0, first + len(rows)
        for x in self._fields.values() if len(rows) else ():
            end = start + x.number.dtype.itemsize * math.prod(shape_of(x.elem))
            column = np.ascontiguousarray(rows[:, start:end]).reshape(-1)
            values = column.view(x.number.dtype).reshape(-1, *shape_of(x.elem))
            start, target = end, host_view(x)
            if target is not None:
                x.ready_to_write()
                target[first:last] = values
            else:
                whole = x.contents()
                whole[first:last] = values
                x.put_unnoticed(whole)
        if is_end and self.count != last:
            self.n[None] = last


def packed(values: Mapping[str, Values], which: Values) -> Values:
    """The given elements of all arrays as rows of bytes, one per particle."""
    columns = []
    for array in values.values():
        chosen = np.ascontiguousarray(array[which])
        width = chosen.itemsize * math.prod(chosen.shape[1:])
        columns.append(chosen.reshape(-1).view(np.uint8).reshape(len(which), width))
    return np.concatenate(columns, axis=1)
