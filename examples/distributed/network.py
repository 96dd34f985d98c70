"""A network with an operator of vkchi, trained by torch on any number of processes.

python examples/distributed/network.py [STEPS]
torchrun --nproc-per-node 4 examples/distributed/network.py [STEPS]

The operator is RWKV's causal depthwise convolution (`examples/torch_depthwise.py`). Every process
draws its own share of each batch. DistributedDataParallel averages the gradients, so that the
weights stay equal.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import vkchi as ti

CHANNELS, LENGTH, BATCH = 8, 16, 16
Array3 = ti.types.ndarray(dtype=ti.f32, ndim=3)
Array2 = ti.types.ndarray(dtype=ti.f32, ndim=2)


@ti.torch_op(outputs={"out": "k"})
@ti.kernel
def depthwise(w: Array2, k: Array3, out: Array3):
    for b, c, t in out:
        s = 0.0
        for u in range(t + 1):
            s += w[c, w.shape[1] - 1 - (t - u)] * k[b, c, u]
        out[b, c, t] = s


class Network(torch.nn.Module):
    """A causal filter per channel between two layers that mix channels."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.Conv1d(CHANNELS, CHANNELS, 1)
        self.w = torch.nn.Parameter(0.1 * torch.randn(CHANNELS, LENGTH))
        self.after = torch.nn.Conv1d(CHANNELS, CHANNELS, 1)

    def forward(self, k: torch.Tensor) -> torch.Tensor:
        return self.after(torch.tanh(depthwise(self.w, self.before(k))))


def main() -> None:
    ti.distributed.init()
    rank, size = ti.distributed.rank(), ti.distributed.size()
    torch.manual_seed(0)  # the same weights in all processes
    teacher, network = Network(), Network()
    model = network if size == 1 else DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    share = torch.Generator().manual_seed(1 + rank)
    losses = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
        k = torch.randn(BATCH, CHANNELS, LENGTH, generator=share)
        loss = ((model(k) - teacher(k).detach()) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / size
        if size > 1:
            dist.all_reduce(mean)
        losses.append(float(mean))
    if rank == 0:
        print(f"{size} processes, loss {losses[0]:.4f}, after {len(losses)} steps {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
