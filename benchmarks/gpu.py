#!/usr/bin/env python3
"""What a device does of what it can: bandwidth, launches, and the document's operators beside torch's.

    benchmarks/gpu.py [--device NAME] [--megabytes 256]

Prints, in under five minutes on one GPU: the bandwidth of saxpy and of a reduction beside that of a copy; the time of a
launch; padding beside the document's version in torch, and depthwise convolution v0 to v3 beside torch's conv1d, both on
torch's CUDA device where there is one, and on the processor where there is none. Every result is checked. With
`--device llvmpipe --megabytes 16` it runs anywhere, which shows that it runs.
"""

import argparse
import importlib.util
import math
import pathlib
import sys
import time

import numpy as np

import vkchi as ti

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def best(call, sync=ti.sync, runs=7, inner=5):
    """Seconds of a call, of the fastest of several batches."""
    call()
    sync()
    found = math.inf
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(inner):
            call()
        sync()
        found = min(found, (time.perf_counter() - start) / inner)
    return found


@ti.kernel
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] + y[i]


@ti.kernel
def total(x: ti.types.ndarray(), s: ti.types.ndarray()):
    for i in x:
        s[0] += x[i]


@ti.kernel
def nothing(x: ti.types.ndarray()):
    for i in range(1):
        x[i] = 1


def bandwidth(megabytes):
    n = megabytes * (1 << 20) // 4
    x, y, s = ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, 1)
    x.fill(1)
    copy = 2 * 4 * n / best(lambda: y.copy_from(x))
    print(f"copy of {megabytes} MB          {copy / 1e9:8.1f} GB/s")
    y.fill(0)
    moved = 3 * 4 * n / best(lambda: saxpy(2.0, x, y), runs=1, inner=1)
    assert y[n - 1] == 4
    moved = max(moved, 3 * 4 * n / best(lambda: saxpy(2.0, x, y)))
    print(f"saxpy                   {moved / 1e9:8.1f} GB/s, {moved / copy:.2f} of the copy's")
    total(x, s)
    assert abs(s[0] / n - 1) < 1e-3
    read = 4 * n / best(lambda: total(x, s))
    print(f"sum                     {read / 1e9:8.1f} GB/s, {read / copy:.2f} of the copy's")


def launches():
    x = ti.ndarray(ti.f32, 16)
    print(f"a launch                {best(lambda: nothing(x), inner=500) * 1e6:8.2f} us")
    print(
        f"a launch, and its end   {best(lambda: (nothing(x), ti.sync()), inner=50) * 1e6:8.2f} us"
    )


def example(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def torch_place():
    """Torch, its device and what waits for it; None where torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    if torch.cuda.is_available():
        return torch, "cuda", torch.cuda.synchronize
    return torch, "cpu", lambda: None


def padding(place):
    module = example("padding")
    brick = module.make_brick()
    tile = ti.ndarray(ti.i32, brick.shape)
    tile.from_numpy(brick)
    image = ti.ndarray(ti.i32, (module.IMAGE_HEIGHT, module.IMAGE_WIDTH))
    ours = best(lambda: module.ti_pad(image, tile), inner=50)
    np.testing.assert_array_equal(image.to_numpy(), module.pad_numpy(brick))
    print(f"padding                 {ours * 1e3:8.3f} ms, 1 dispatch")
    if place is None:
        return
    torch, where, wait = place
    with torch.device(where):
        np.testing.assert_array_equal(
            torch_pad(torch, module, brick).cpu().numpy(), image.to_numpy()
        )
        theirs = best(lambda: torch_pad(torch, module, brick), wait)
    print(
        f"  the document's, torch {theirs * 1e3:8.3f} ms on {where}, {theirs / ours:.0f} times that"
    )


def torch_pad(torch, m, brick):
    """The document's version, on torch's device of the moment."""
    tile = torch.as_tensor(brick)
    rows, cols = torch.arange(m.IMAGE_HEIGHT), torch.arange(m.IMAGE_WIDTH)
    arr = torch.stack(torch.meshgrid(rows, cols, indexing="ij"), 2)
    arr[:, :, 0] = m.IMAGE_HEIGHT - 1 + m.PH - arr[:, :, 0]
    arr[:, :, 1] -= m.PW
    arr1 = torch.flip(arr, (2,))
    v = torch.floor(arr1[:, :, 1] / m.TILE_HEIGHT).to(torch.int)
    u = torch.floor((arr1[:, :, 0] - v * m.SHIFT_Y[0]) / m.TILE_WIDTH).to(torch.int)
    uu, vv = torch.stack((u, u), 2), torch.stack((v, v), 2)
    arr2 = arr1 - uu * torch.tensor(m.SHIFT_X) - vv * torch.tensor(m.SHIFT_Y)
    arr2[:, :, 1] = m.TILE_HEIGHT - 1 - arr2[:, :, 1]
    table = torch.flip(arr2, (2,)).view(-1, 2).to(torch.float)
    inds = table.mv(torch.tensor([m.TILE_WIDTH, 1.0]))
    gathered = torch.index_select(tile.view(-1), 0, inds.to(torch.long))
    return gathered.view(m.IMAGE_HEIGHT, m.IMAGE_WIDTH)


def depthwise(place, shape):
    module = example("depthwise_conv")
    B, C, T = shape
    rng = np.random.default_rng(0)
    w0, k0 = rng.random((C, T), dtype=np.float32), rng.random(shape, dtype=np.float32)
    w, k, out = ti.ndarray(ti.f32, (C, T)), ti.ndarray(ti.f32, shape), ti.ndarray(ti.f32, shape)
    w.from_numpy(w0)
    k.from_numpy(k0)
    forwards = {"v0": module.forward_v0, "v1": module.make_shared(T)[0],
                "v2": module.forward_v2, "v3": module.make_shared_vector(T)[0]}  # fmt: skip
    want = None
    for name, forward in forwards.items():
        seconds = best(lambda f=forward: f(out, w, k, 0.1), inner=3)
        want = out.to_numpy() if want is None else want
        np.testing.assert_allclose(out.to_numpy(), want, rtol=1e-3)
        print(f"depthwise {name} {shape}  {seconds * 1e3:8.3f} ms")
    if place is None:
        return
    torch, where, wait = place
    tw, tk = torch.as_tensor(w0, device=where)[:, None], torch.as_tensor(k0, device=where)

    def conv():
        padded = torch.nn.functional.pad(tk, (T - 1, 0))
        return 0.1 + torch.nn.functional.conv1d(padded, tw, groups=C)

    np.testing.assert_allclose(conv().cpu().numpy(), want, rtol=1e-2)
    print(f"  torch's conv1d        {best(conv, wait, inner=3) * 1e3:8.3f} ms on {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--shape", default="8,64,256", help="batch, channels, steps")
    options = parser.parse_args()
    ti.init(arch=ti.gpu, device=options.device, log_level="error")
    from vkchi.runtime import current

    info, place = current().device.info, torch_place()
    print(f"device: {info.name}, {info.driver}")
    bandwidth(options.megabytes)
    launches()
    padding(place)
    depthwise(place, tuple(map(int, options.shape.split(","))))


if __name__ == "__main__":
    main()
