"""Checkpoints of grids by `torch.distributed.checkpoint`: written by N ranks, read by M.

A folder per step has the arrays' owned blocks, a file per rank, and `grid.json`, which describes
them. The file `latest` has the folder's name. Each step is written to a temporary folder, which is
renamed once all ranks have written: a rank that dies leaves the last checkpoint as it was.

Imports torch.
"""

from __future__ import annotations

import json
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
from vkchi.distributed.group import Group
from vkchi.errors import DistributedError
from vkchi.interrupts.local import local
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        with group.errors(operation), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            yield
    except dcp.CheckpointException as e:
        listed = "; ".join(f"rank {k}: {one[0]!r}" for k, one in sorted(e.failures.items()))
        raise DistributedError(f"{operation}: {listed}") from e


def on_first_rank(group: Group, operation: str, act: Callable[[], str]) -> str:
    """Run a function on rank 0 while the others wait, and return its result on all ranks. Raises
    DistributedError on all ranks for errors of files."""
    said = ["", ""]
    if group.rank == 0:
        try:
            said = ["", act()]
        except local(OSError, ValueError, KeyError, TypeError) as e:
            said = [f"{type(e).__name__}: {e}", ""]
    error, result = json.loads(group.gather_texts(operation, json.dumps(said))[0])
    if error:
        raise DistributedError(f"{operation}: {error}")
    return str(result)


def save(
    group: Group, path: str, step: int, blocks: Mapping[str, Block], facts: dict[str, Any]
) -> None:
    """Write the blocks, and make them the latest checkpoint in the folder `path`. `facts` describe
    them, for `load`."""
    operation, root = "save()", Path(path)
    temporary = root / f".step-{step}.tmp"

    def begin() -> str:
        for old in root.glob(".step-*.tmp"):  # of runs that were ended
            shutil.rmtree(old)
        temporary.mkdir(parents=True)
        return ""

    def publish() -> str:
        with open(temporary / "grid.json", "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "step": step, **facts}, file, indent=1)
            sync(file.fileno())
        names = (f"step-{step}{more}" for more in ("", *(f".{k}" for k in range(1, 1000))))
        name = next(name for name in names if not (root / name).exists())
        platform.sync_folder(str(temporary))
        temporary.rename(root / name)
        before = latest_name(root)
        with open(root / ".latest.tmp", "w", encoding="utf-8") as file:
            file.write(name)
            sync(file.fileno())
        platform.sync_folder(str(root))
        platform.replace(str(root / ".latest.tmp"), str(root / "latest"))
        platform.sync_folder(str(root))
        for old in root.glob("step-*"):
            if old.name not in (name, before) and (old / "grid.json").is_file():
                shutil.rmtree(old, ignore_errors=True)
        return ""

    on_first_rank(group, operation, begin)
    with errors(group, operation):
        dcp.save(
            dict(blocks), storage_writer=dcp.FileSystemWriter(temporary),
            planner=BlockSavePlanner(), process_group=group.process_group,
            no_dist=group.process_group is None,
        )  # fmt: skip
    on_first_rank(group, operation, publish)


def find(group: Group, path: str) -> tuple[Path, dict[str, Any]]:
    """The folder of the latest checkpoint, and the facts about it. Raises DistributedError if there
    is none."""
    root = Path(path)

    def read() -> str:
        name = latest_name(root)
        if not name:
            raise FileNotFoundError(f"there is no checkpoint in {path}")
        facts = json.loads((root / name / "grid.json").read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise ValueError(f"{root / name} was written by another version of vkchi")
        return json.dumps([name, facts])

    name, facts = json.loads(on_first_rank(group, "load()", read))
    return root / name, facts


def load(group: Group, folder: Path, blocks: Mapping[str, Block]) -> None:
    """Fill the blocks from a checkpoint that has their arrays."""
    with errors(group, "load()"):
        dcp.load(
            dict(blocks), storage_reader=dcp.FileSystemReader(folder), planner=BlockLoadPlanner(),
            process_group=group.process_group, no_dist=group.process_group is None,
        )  # fmt: skip


def latest_name(root: Path) -> str:
    """The name of the latest checkpoint; "" if there is none."""
    file = root / "latest"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def sync(descriptor: int) -> None:
    os.fsync(descriptor)
