"""Memory shared with CUDA, on a card: needs torch with CUDA, cuda-bindings, and the same card as
Vulkan's device (`scripts/gpu-check`). Order of calls: `test_cuda.py`."""

import gc

import numpy as np
import pytest

import vkchi as ti
from vkchi.interop.cuda.link import LinkFailure, find_link
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.cuda]

N = 1 << 16


@pytest.fixture
def torch(is_open):
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    link = find_link(current_runtime())
    if isinstance(link, LinkFailure):
        pytest.skip(link.reason)
    return found


@ti.kernel
def add_one(x: ti.types.ndarray()):
    for i in ti.grouped(x):
        x[i] += 1


@ti.kernel
def scaled(x: ti.types.ndarray(), a: ti.f32, y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] ** 2


def lend(x):
    """Way in which an argument is passed, outside of a call."""
    return find_link(current_runtime()).arrays.lend(x, 0)


def test_ours_in_torch_in_both_directions(torch):
    x = ti.ndarray(ti.f32, N)
    x.fill(3)
    seen = torch.from_dlpack(x)
    assert seen.is_cuda and seen.data_ptr() == find_link(current_runtime()).map(x.buffer)
    for k in range(50):
        seen.mul_(2).sub_(3)
        add_one(x)
        add_one(x)
        seen.add_(1)
    assert float(seen.min()) == float(seen.max()) == 3
    np.testing.assert_array_equal(x.to_numpy(), 3)


def test_fields_and_vectors(torch):
    x = ti.Vector.field(3, ti.f32, (5, 4))
    seen = torch.from_dlpack(x)
    assert seen.shape == (5, 4, 3)
    seen.copy_(torch.arange(60.0, device="cuda").reshape(5, 4, 3))
    np.testing.assert_array_equal(x.to_numpy().ravel(), np.arange(60))


def test_on_another_stream(torch):
    x = ti.ndarray(ti.f32, N)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        seen = torch.from_dlpack(x)
        for _ in range(20):
            seen.add_(1)
            add_one(x)
        total = seen.sum()
    stream.synchronize()
    assert float(total) == 40 * N


def test_destruction_in_any_order(torch):
    x = ti.ndarray(ti.f32, N)
    seen = torch.from_dlpack(x)
    add_one(x)
    del x
    gc.collect()
    others = [ti.ndarray(ti.f32, N) for _ in range(4)]
    assert float(seen.sum()) == N
    seen.zero_()
    del seen
    gc.collect()
    for other in others:
        assert float(other.to_numpy().sum()) == 0


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int64", "uint8", "float16"])
def test_tensors_as_arguments(torch, dtype):
    x = torch.arange(100, device="cuda").remainder(50).to(getattr(torch, dtype))
    want = x + 1
    add_one(x)
    assert torch.equal(x, want)


def test_tensors_in_order_without_a_wait(torch):
    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    for _ in range(100):
        x.add_(1)
        scaled(x, 0.5, y)
        x.copy_(y.sqrt().mul_(2**0.5))
    torch.testing.assert_close(x, torch.full_like(x, 101))
    scaled(x.clone(), 1.0, y)
    assert lend(x).copied is not None


def test_tensors_in_steps_reversed_and_expanded(torch):
    base = torch.zeros(8, 6, device="cuda")
    add_one(base.T)
    add_one(base[::2])
    want = torch.ones(8, 6)
    want[::2] += 1
    assert torch.equal(base.cpu(), want)
    y = torch.zeros(8, device="cuda")
    scaled(torch.full((1,), 3.0, device="cuda").expand(8), 1.0, y)
    assert float(y.sum()) == 72


def test_tensors_of_other_streams_and_devices(torch):
    x = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        x.add_(1)
        add_one(x)
        assert float(x.sum()) == 2 * N
    if torch.cuda.device_count() > 1:
        other = 1 - find_link(current_runtime()).cuda.ordinal
        y = torch.zeros(N, device=f"cuda:{other}")
        add_one(y)
        assert float(y.sum()) == N


def test_memory_of_the_pool_is_used_in_place(torch):
    with ti.torch_memory():
        x = torch.zeros(1 << 20, device="cuda")
    add_one(x)
    loan = lend(x)
    if loan.copied is not None:
        pytest.skip("this driver takes no memory of CUDA's into Vulkan")
    assert float(x.sum()) == 1 << 20
    part = x[256:512]
    add_one(part)
    assert float(x.sum()) == (1 << 20) + 256
    del part, loan


def test_an_operator(torch):
    op = ti.torch_op(scaled, outputs={"y": "x"})
    x = torch.rand(64, device="cuda", requires_grad=True)
    y = op(x, 0.5)
    assert y.is_cuda
    y.sum().backward()
    torch.testing.assert_close(x.grad, x.detach())


def test_a_thousand_times(torch):
    x = ti.ndarray(ti.f32, N)
    y = torch.zeros(N, device="cuda")
    torch.from_dlpack(x)
    add_one(y)
    device = current_runtime().device
    device.sweep()
    before = device.heap.used_bytes
    for _ in range(1000):
        torch.from_dlpack(x).add_(1)
        add_one(y)
    assert float(x.to_numpy()[0]) == 1000 and float(y[0]) == 1001
    device.sweep()
    assert device.heap.used_bytes <= before
