"""Gradients of operators in torch's data-parallel modules, compared with those of one process.

A program for two processes, run by `test_torch_modules`. Prints a line per module and process.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import vkchi as ti

EXAMPLE = runpy.run_path(sys.argv[1])  # examples/distributed/network.py
STEPS = 3


@ti.kernel
def scale(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
    for i, j in x:
        y[i, j] = x[i, j] * w[j]


@ti.kernel
def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i, j in x:
        y[i, j] = x[i, j] ** 3


@ti.torch_op(outputs={"z": "x"})
def scaled_cube(x, w, z):  # an operator of several kernels
    y = ti.ndarray(ti.f32, x.shape, needs_grad=True)
    scale(x, w, y)
    cube(y, z)


class Cubes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled_cube(x, self.w)


def make(kind: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    found: torch.nn.Module = kind()
    return found


def by_ddp(module: torch.nn.Module) -> torch.nn.Module:
    return DistributedDataParallel(module)


def by_fsdp(module: torch.nn.Module) -> torch.nn.Module:
    return FullyShardedDataParallel(module, device_id=torch.device("cpu"), use_orig_params=True)


def by_fully_shard(module: torch.nn.Module) -> torch.nn.Module:
    fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return module


def whole(model: torch.nn.Module) -> list[torch.Tensor]:
    values: list[Any] = [x for p in model.parameters() for x in (p.grad, p.detach())]
    return [v.full_tensor() if hasattr(v, "full_tensor") else v.clone() for v in values]


def train(model: torch.nn.Module, data: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of the last of several steps, and the parameters after it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (model(data) ** 2).mean().backward()
        optimizer.step()
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            return whole(model)
    return whole(model)


def main() -> None:
    ti.distributed.init(timeout=60, debug="debug" in sys.argv)  # then tensors are copied
    rank, size = ti.distributed.rank(), ti.distributed.size()
    torch.manual_seed(5)
    shapes = {EXAMPLE["Network"]: (8, EXAMPLE["CHANNELS"], EXAMPLE["LENGTH"]), Cubes: (8, 6)}
    for kind, shape in shapes.items():
        data = torch.randn(shape)
        share = data.chunk(size)[rank]
        expected = train(make(kind), data)
        for wrap in (by_ddp, by_fsdp, by_fully_shard):
            found = train(wrap(make(kind)), share)
            off = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected))
            print(f"{kind.__name__} {wrap.__name__} {len(found)} {off < 1e-5} {off}\n", end="")


if __name__ == "__main__":
    main()
