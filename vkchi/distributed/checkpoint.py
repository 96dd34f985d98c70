"""Checkpoints of grids by `torch.distributed.checkpoint`: written by N ranks, read by M.

A folder per step has the arrays' owned blocks, a file per rank, and `grid.json`, which describes
them. The file `latest` has the folder's name. Each step is written to a temporary folder, which is
renamed once all ranks have written: a rank that dies leaves the last checkpoint as it was.

Fields of particles are arrays of the particles of all ranks, in order of rank. Each rank reads an
equal part, and sends the particles to their owners.

Imports torch.
"""

from __future__ import annotations

import json
import operator
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from vkchi import platform
from vkchi.distributed.decomposition import split
from vkchi.distributed.exchange import local_slices
from vkchi.distributed.group import Communication, Group
from vkchi.errors import ArgumentError, DistributedError
from vkchi.fields.field import Field
from vkchi.fields.struct_arrays import StructArrays
from vkchi.interrupts.local import local
from vkchi.types.lazy_numpy import is_integer_scalar, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.distributed.grids import Grid
    from vkchi.distributed.particles import Particles

FORMAT = 1


class Block:
    """The part of an array of shape `size` that this rank has: `values` from `begin` on."""

    def __init__(self, values: NDArray[Any], begin: Sequence[int], size: Sequence[int]) -> None:
        inner = [0] * (values.ndim - len(begin))
        self.tensor = torch.from_numpy(np.ascontiguousarray(values))
        self.chunk = ChunkStorageMetadata(torch.Size([*begin, *inner]), self.tensor.size())
        self.size = torch.Size([*size, *values.shape[len(begin) :]])

    @property
    def values(self) -> NDArray[Any]:
        found: NDArray[Any] = self.tensor.numpy()
        return found


class BlockSavePlanner(dcp.DefaultSavePlanner):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> dcp.SavePlan:
        items = []
        for name, block in self.state_dict.items():
            if not block.tensor.numel():
                continue
            properties = TensorProperties.create_from_tensor(block.tensor)
            data = TensorWriteData(block.chunk, properties, block.size)
            index = MetadataIndex(name, block.chunk.offsets)
            items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        self.plan = dcp.SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        found: torch.Tensor = self.state_dict[write_item.index.fqn].tensor
        return found


class BlockLoadPlanner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
    def set_up_planner(
        self, state_dict: dict[str, Block], metadata: dcp.Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> dcp.LoadPlan:
        assert self.metadata is not None
        items = []
        for name, block in self.state_dict.items():
            if block.tensor.numel():
                saved = self.metadata.state_dict_metadata[name]
                items += create_read_items_for_chunk_list(name, saved, [block.chunk])
        return dcp.LoadPlan(items)

    def resolve_tensor(self, read_item: dcp.ReadItem) -> torch.Tensor:
        ends = zip(read_item.dest_offsets, read_item.lengths)
        part = tuple([slice(begin, begin + length) for begin, length in ends])
        found: torch.Tensor = self.state_dict[read_item.dest_index.fqn].tensor[part]
        return found


@contextmanager
def errors(group: Group, operation: str) -> Iterator[None]:
    """Context that turns errors of torch into DistributedError, with those of each rank."""
    try:
        with Communication(group, operation), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            yield
    except dcp.CheckpointException as e:
        listed = "; ".join(f"rank {k}: {one[0]!r}" for k, one in sorted(e.failures.items()))
        raise DistributedError(f"{operation}: {listed}") from e


def on_first_rank(group: Group, operation: str, act: Callable[[], Any]) -> Any:
    """Run a function on rank 0 while the others wait, and return its result on all ranks. Raises
    DistributedError on all ranks for errors of files."""
    error = result = None
    if group.rank == 0:
        try:
            result = act()
        except local(OSError, ValueError, KeyError, TypeError) as e:
            error = f"{type(e).__name__}: {e}"
    error, result = group.share(operation, [error, result])[0]
    if error is not None:
        raise DistributedError(f"{operation}: {error}")
    return result


def named(
    grid: Grid, who: str, given: Mapping[str, Any]
) -> tuple[dict[str, Field], dict[str, Particles], dict[str, Any]]:
    """Fields by name, structs by their members; particles by name; facts for `grid.json`. Without
    names all arrays of the grid."""
    fields: dict[str, Field] = {}
    particles: dict[str, Particles] = {}
    elems: dict[str, str] = {}
    cells: dict[str, float] = {}
    made = [(name, x) for name, ref in grid._made if (x := ref()) is not None]
    for name, x in list(given.items()) or made:
        leaves: list[tuple[tuple[str, ...], Any]] = [((), x)]
        is_particles = hasattr(x, "_all_values")  # their module imports that of grids
        if is_particles:
            particles[name] = x
            leaves = [((key,), one) for key, one in x._fields.items()]
        elif isinstance(x, StructArrays):
            leaves = list(x._leaves())
        for path, leaf in leaves:
            key = ".".join((name, *path))
            if key in elems:
                raise ArgumentError(f"{who}: two arrays have the name {key!r}: give names, "
                                    f"grid.{who}(path, u=u, v=v)")  # fmt: skip
            elems[key] = str(getattr(leaf, "elem", ""))
            if is_particles:
                cells[key] = x.cell
            else:
                fields[key] = leaf
    if fields or not particles:
        grid._members(who, list(fields.values()))
    if any(x.grid is not grid for x in particles.values()):
        raise ArgumentError(f"{who}: the particles are those of another grid")
    if len({id(x) for x in particles.values()}) < len(particles):
        raise ArgumentError(f"{who}: particles are given twice")
    return fields, particles, {"shape": list(grid.shape), "arrays": elems, "cells": cells}


def save(grid: Grid, path: str, step: int, given: Mapping[str, Any]) -> None:
    """Write arrays of a grid, and make them the latest checkpoint in the folder `path`."""
    group, operation, root = grid.group, "save()", Path(path)
    fields, particles, facts = named(grid, "save", given)
    if not is_integer_scalar(step) or step < 0:
        raise ArgumentError(f"save: step is an integer, 0 or more, not {step!r}")
    step = operator.index(step)
    group.agree("Grid.save()", path=path, step=step, **facts)
    begin = [first for first, _ in grid.owned.bounds]
    blocks = {name: Block(grid._owned_values(x), begin, grid.shape) for name, x in fields.items()}
    counts = {}
    for name, x in particles.items():
        values, before, counts[name] = x._all_values("save")
        for key, array in values.items():
            blocks[f"{name}.{key}"] = Block(array, [before], [counts[name]])
    temporary = root / f".step-{step}.tmp"

    def begin_step() -> None:
        for old in root.glob(".step-*.tmp"):  # of runs that were ended
            shutil.rmtree(old)
        temporary.mkdir(parents=True)

    def publish() -> None:
        written = dcp.FileSystemReader(temporary).read_metadata().storage_data.values()
        lost = {one.relative_path for one in written} - {one.name for one in temporary.iterdir()}
        if lost:
            raise FileNotFoundError(f"{temporary} lacks {', '.join(sorted(lost))} of other ranks, "
                                    "which must reach the same folder")  # fmt: skip
        known = {"format": FORMAT, "step": step, **facts, "counts": counts}
        write(temporary / "grid.json", json.dumps(known, indent=1))
        names = (f"step-{step}{more}" for more in ("", *(f".{k}" for k in range(1, 1000))))
        name = next(name for name in names if not (root / name).exists())
        temporary.rename(root / name)
        before = latest_name(root)
        write(root / ".latest.tmp", name)
        platform.replace(str(root / ".latest.tmp"), str(root / "latest"))
        platform.sync_folder(str(root))
        for old in root.glob("step-*"):
            if old.name not in (name, before) and (old / "grid.json").is_file():
                shutil.rmtree(old, ignore_errors=True)

    on_first_rank(group, operation, begin_step)
    with errors(group, operation):
        dcp.save(
            dict(blocks), storage_writer=dcp.FileSystemWriter(temporary),
            planner=BlockSavePlanner(), process_group=group.process_group,
            no_dist=group.process_group is None,
        )  # fmt: skip
    on_first_rank(group, operation, publish)


def load(grid: Grid, path: str, given: Mapping[str, Any]) -> int:
    """Read the latest checkpoint in the folder `path`; return its step. Nothing is changed before
    all arrays have been read, and all particles have been sent to ranks that have room."""
    group, operation, root = grid.group, "load()", Path(path)
    fields, particles, facts = named(grid, "load", given)
    group.agree("Grid.load()", path=path, **facts)

    def read() -> list[Any]:
        name = latest_name(root)
        if not name:
            raise FileNotFoundError(f"there is no checkpoint in {path}")
        saved = json.loads((root / name / "grid.json").read_text(encoding="utf-8"))
        if saved["format"] != FORMAT:
            raise ValueError(f"{root / name} was written by another version of vkchi")
        return [name, saved]

    latest, saved = on_first_rank(group, operation, read)
    folder, cells = root / latest, saved.get("cells", {})
    if saved["shape"] != facts["shape"]:
        raise DistributedError(f"load: {folder} is of a grid of shape {saved['shape']}")
    for name, elem in facts["arrays"].items():
        if saved["arrays"].get(name) != elem:
            listed = ", ".join(f"{k}: {v}" for k, v in saved["arrays"].items())
            raise DistributedError(f"load: {name} is {elem}, and {folder} has {listed}")
        if cells.get(name) != facts["cells"].get(name):
            ours, theirs = (
                f"of particles in cells of {k[name]}" if name in k else "a field"
                for k in (facts["cells"], cells)
            )
            raise DistributedError(f"load: {name} is {ours}, and {theirs} in {folder}")
    begin = [first for first, _ in grid.owned.bounds]
    blocks = {
        name: Block(np.empty_like(grid._owned_values(x)), begin, grid.shape)
        for name, x in fields.items()
    }
    for name, x in particles.items():
        x._begin("load")
        total = saved["counts"][name]
        first, last = split(total, group.size)[group.rank]
        for key, one in x._values(0).items():
            part = np.empty((last - first, *one.shape[1:]), one.dtype)
            blocks[f"{name}.{key}"] = Block(part, [first], [total])
    with errors(group, operation):
        dcp.load(
            dict(blocks), storage_reader=dcp.FileSystemReader(folder), planner=BlockLoadPlanner(),
            process_group=group.process_group, no_dist=group.process_group is None,
        )  # fmt: skip
    arrived = {
        name: x._deliver(operation, {key: blocks[f"{name}.{key}"].values for key in x._fields})
        for name, x in particles.items()
    }
    for name, rows in arrived.items():
        particles[name]._store(0, rows, is_end=True)
    for name, field in fields.items():
        whole = field.to_numpy()
        whole[local_slices(field, grid.owned.bounds)] = blocks[name].values
        field.from_numpy(whole)
    if fields:
        grid.exchange(*fields.values())
    return int(saved["step"])


def write(path: Path, text: str) -> None:
    """Write a file, and its folder, to the disk."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    platform.sync_folder(str(path.parent))


def latest_name(root: Path) -> str:
    """The name of the latest checkpoint; "" if there is none."""
    file = root / "latest"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""
