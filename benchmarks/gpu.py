#!/usr/bin/env python3
"""Performance of a device: sharing with CUDA, bandwidth, launches, operators of Taichi's documents.

    benchmarks/gpu.py [--device NAME] [--megabytes 256]

Prints, in under five minutes on one GPU:
- for each way of sharing memory with CUDA, a check of results and the cost of a call;
- the bandwidth of saxpy and of a reduction beside that of a copy;
- the time of a launch beside torch's;
- padding beside the document's version in torch;
- depthwise convolution v0 to v3 beside the document's CUDA kernel (compiled by NVRTC) and torch's
  conv1d.

Without a CUDA device, those parts print "no CUDA device", and torch runs on the CPU. Every result
is checked. With `--device llvmpipe --megabytes 16` it runs on any machine, as a test of the script.
"""

import argparse
import ctypes
import importlib.util
import math
import pathlib
import sys
import time

import numpy as np

import vkchi as ti

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


IS_QUICK = False  # one call per figure, as a test of the script


BATCH_S = 0.02  # batch duration at which waits are negligible
MOST_IN_BATCH = 200


def best(call, sync=ti.sync, runs=7, inner=5):
    """Seconds per call, the minimum over batches of at least `inner` calls, more if they are
    short."""
    call()
    sync()
    start = time.perf_counter()
    call()
    sync()
    enough = int(BATCH_S / (time.perf_counter() - start))
    runs, inner = (1, 1) if IS_QUICK else (runs, max(inner, min(enough, MOST_IN_BATCH)))
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
    for _ in range(2):
        saxpy(2.0, x, y)
    assert y[n - 1] == y[0] == 4
    moved = 3 * 4 * n / best(lambda: saxpy(2.0, x, y))
    print(f"saxpy                   {moved / 1e9:8.1f} GB/s, {moved / copy:.2f} of the copy's")
    total(x, s)
    assert abs(s[0] / n - 1) < 1e-3
    read = 4 * n / best(lambda: total(x, s))
    print(f"sum                     {read / 1e9:8.1f} GB/s, {read / copy:.2f} of the copy's")


def launches(place):
    x = ti.ndarray(ti.f32, 16)
    ours = best(lambda: nothing(x), inner=500)
    print(f"a launch                {ours * 1e6:8.2f} us")
    both = best(lambda: (nothing(x), ti.sync()), inner=50)
    print(f"a launch, and its end   {both * 1e6:8.2f} us")
    if place is None:
        return
    torch, where, wait = place
    y = torch.zeros(16, device=where)
    theirs = best(lambda: y.fill_(1), wait, inner=500)
    print(
        f"  torch's               {theirs * 1e6:8.2f} us on {where}, {theirs / ours:.2f} times that"
    )
    theirs = best(lambda: (y.fill_(1), wait()), wait, inner=50)
    print(
        f"  torch's, and its end  {theirs * 1e6:8.2f} us on {where}, {theirs / both:.2f} times that"
    )


def example(name):
    """Import an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def torch_place():
    """Torch, its device and its synchronization function; None if torch is not installed."""
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
    """The document's version, on torch's default device."""
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


# The document's kernel, rewritten: a block is a row of (batch, channel), a thread one of its steps.
CUDA_FORWARD = """
extern "C" __global__ void forward(
    float *out, const float *weights, const float *keys, float eps, int channels, int steps)
{
    const int row = blockIdx.x, now = threadIdx.x;
    const float *weight = weights + (row % channels) * steps + steps - 1 - now;
    const float *key = keys + row * steps;
    float sum = eps;
    for (int past = 0; past <= now; past++)
        sum += weight[past] * key[past];
    out[row * steps + now] = sum;
}
"""


def compile_cuda(torch):
    """The document's kernel as a function of the CUDA driver."""
    from cuda.bindings import driver, nvrtc

    def check(result):
        error, *found = result
        assert int(error) == 0, error
        return found[0] if len(found) == 1 else found

    major, minor = torch.cuda.get_device_capability()
    program = check(nvrtc.nvrtcCreateProgram(CUDA_FORWARD.encode(), b"forward.cu", 0, [], []))
    check(
        nvrtc.nvrtcCompileProgram(
            program, 1, [f"--gpu-architecture=compute_{major}{minor}".encode()]
        )
    )
    code = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, code))
    torch.zeros(1, device="cuda")  # creates the context
    function = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(code)), b"forward"))
    kinds = (ctypes.c_void_p,) * 3 + (ctypes.c_float, ctypes.c_int, ctypes.c_int)

    def forward(out, w, k, eps):
        B, C, T = k.shape
        args = (out.data_ptr(), w.data_ptr(), k.data_ptr(), eps, C, T), kinds
        stream = torch.cuda.current_stream().cuda_stream
        check(driver.cuLaunchKernel(function, B * C, 1, 1, T, 1, 1, 0, stream, args, 0))

    return forward


def depthwise_cuda(torch, w, k, want):
    """The document's CUDA kernel on torch's tensors."""
    try:
        forward = compile_cuda(torch)
    except ImportError:
        return print("  the document's, CUDA  no cuda-bindings: pip install cuda-bindings")
    except (RuntimeError, OSError) as error:  # raised by the package without NVRTC
        return print(f"  the document's, CUDA  not compiled: {str(error).splitlines()[0]}")
    out = torch.zeros_like(k)
    call = lambda: forward(out, w, k, 0.1)  # noqa: E731
    seconds = best(call, torch.cuda.synchronize, inner=3)
    np.testing.assert_allclose(out.cpu().numpy(), want, rtol=1e-3)
    print(f"  the document's, CUDA  {seconds * 1e3:8.3f} ms")


@ti.kernel
def scaled(x: ti.types.ndarray(), a: ti.f32, y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] * x[i]


def sharing(place, megabytes):
    """For each way of sharing memory with CUDA: check the results, and print the cost of a call."""
    print("memory shared with CUDA")
    if place is None or place[1] != "cuda":
        return print("  no CUDA device")
    from vkchi.interop.cuda.link import LinkFailure, find_link
    from vkchi.runtime import current_runtime

    link = find_link(current_runtime())
    if isinstance(link, LinkFailure):
        if current_runtime().device.info.vendor == "nvidia":
            FAILED.append("sharing")
        return print(f"  none: {link.reason}")
    torch, _, wait = place
    n = megabytes * (1 << 20) // 4
    for name, path in SHARED.items():
        try:
            x, y, times = path(torch, n)
            x.fill_(3)
            scaled(times[0], 0.5, times[1])
            y.mul_(2)
            assert float(y.min()) == float(y.max()) == 9, f"{name}: {float(y.min())}"
            seconds = best(lambda: scaled(times[0], 0.5, times[1]), wait)
            loans = [link.arrays.lend(t, 0) for t in times if isinstance(t, torch.Tensor)]
            copies = sum(loan.copied is not None for loan in loans)
            rate = 8 * n / seconds / 1e9
            print(f"  {name:34} {seconds * 1e6:9.1f} us, {rate:7.1f} GB/s, {copies} copied")
        except Exception as error:
            print(f"  {name:34} FAILED: {type(error).__name__}: {error}")
            FAILED.append(name)


FAILED = []


def ours_by_dlpack(torch, n):
    x, y = ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, n)
    return torch.from_dlpack(x), torch.from_dlpack(y), (x, y)


def ours_and_back(torch, n):
    x, y, _ = ours_by_dlpack(torch, n)
    return x, y, (x, y)


def torchs(torch, n):
    x, y = torch.zeros(n, device="cuda"), torch.zeros(n, device="cuda")
    return x, y, (x, y)


def torchs_in_steps(torch, n):
    x, y = (torch.zeros(n, 2, device="cuda")[:, 0] for _ in range(2))
    return x, y, (x, y)


def of_the_pool(torch, n):
    with ti.torch_memory():
        return torchs(torch, n)


def of_another_stream(torch, n):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x, y, _ = torchs(torch, n)
    torch.cuda.current_stream().wait_stream(stream)
    return x, y, (x, y)


SHARED = {
    "ours, seen by torch": ours_by_dlpack,
    "ours, seen by torch, as an argument": ours_and_back,
    "torch's": torchs,
    "torch's, in steps": torchs_in_steps,
    "torch's, made on another stream": of_another_stream,
    "torch's, by ti.torch_memory": of_the_pool,
}


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
    if where == "cuda":
        depthwise_cuda(torch, tw[:, 0].contiguous(), tk, want)
    else:
        print("  the document's, CUDA  no CUDA device")
    print(f"  torch's conv1d        {best(conv, wait, inner=3) * 1e3:8.3f} ms on {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--shape", default="8,64,256", help="batch, channels, steps")
    parser.add_argument("--quick", action="store_true", help="measure nothing, only run it all")
    options = parser.parse_args()
    global IS_QUICK
    IS_QUICK = options.quick
    ti.init(arch=ti.gpu, device=options.device, log_level="error")
    from vkchi.runtime import current_runtime

    info, place = current_runtime().device.info, torch_place()
    print(f"device: {info.name}, {info.driver}")
    sharing(place, options.megabytes)
    bandwidth(options.megabytes)
    launches(place)
    padding(place)
    depthwise(place, tuple(map(int, options.shape.split(","))))
    if FAILED:
        sys.exit(f"wrong: {', '.join(FAILED)}")


if __name__ == "__main__":
    main()
