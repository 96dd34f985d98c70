"""RWKV's operator inside PyTorch: a causal depthwise convolution as a torch operator, trained.

Source: "Accelerate PyTorch with Taichi", customize ML operators:

    out[b, c, t] = eps + sum over u <= t of w[c, T-1-(t-u)] * k[b, c, u]

`ti.torch_op` makes it a torch operator with shapes, derivative and `torch.compile`. vkchi generates
the gradient from the kernel. The program checks it against torch's `conv1d`, then trains a layer on
examples of a filter.

    python examples/torch_depthwise.py [--steps 60]
"""

from __future__ import annotations

import argparse

import torch

import vkchi as ti

Array3 = ti.types.ndarray(dtype=ti.f32, ndim=3)
Array2 = ti.types.ndarray(dtype=ti.f32, ndim=2)


@ti.torch_op(outputs={"out": "k"})
@ti.kernel
def depthwise(w: Array2, k: Array3, eps: ti.f32, out: Array3):
    for b, c, t in out:
        s = eps
        for u in range(t + 1):
            s += w[c, w.shape[1] - 1 - (t - u)] * k[b, c, u]
        out[b, c, t] = s


def by_torch(w: torch.Tensor, k: torch.Tensor, eps: float) -> torch.Tensor:
    """The same by torch's convolution."""
    channels, steps = w.shape
    padded = torch.nn.functional.pad(k, (steps - 1, 0))
    return eps + torch.nn.functional.conv1d(padded, w[:, None], groups=channels)


def greatest_difference(shape: tuple[int, int, int] = (2, 4, 32), eps: float = 0.1) -> float:
    """Maximum relative difference from torch, of the output and both gradients."""
    torch.manual_seed(0)
    _, channels, steps = shape
    w, k, slope = torch.rand(channels, steps), torch.rand(shape), torch.rand(shape)
    found = []
    for op in (depthwise, by_torch):
        leaves = [x.clone().requires_grad_() for x in (w, k)]
        out = op(*leaves, eps)
        found.append([out.detach(), *torch.autograd.grad(out, leaves, slope)])
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(*found, strict=True))


class TimeMix(torch.nn.Module):
    """A causal filter per channel."""

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(channels, steps))

    def forward(self, k: torch.Tensor) -> torch.Tensor:
        return depthwise(self.w, k, 0.0)


def train(steps: int) -> tuple[float, float]:
    """Train a TimeMix on decaying filters; return the losses of the first and the last step."""
    torch.manual_seed(1)
    channels, length = 4, 16
    filters = torch.exp(-torch.arange(length).flip(0) / torch.arange(1.0, channels + 1)[:, None])
    model = TimeMix(channels, length)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        k = torch.randn(8, channels, length)
        optimizer.zero_grad()
        loss = ((model(k) - by_torch(filters, k, 0.0)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    ti.init(arch=ti.vulkan)
    print(f"greatest relative difference to torch's conv1d: {greatest_difference():.1e}")
    first, last = train(options.steps)
    print(f"loss after {options.steps} steps: {last:.4f} (was {first:.4f})")


if __name__ == "__main__":
    main()
