"""The kernels of the two documents that vkchi began with, as they stand there.

Sources: "Taichi & PyTorch 01: Underlying difference" and "Accelerate PyTorch with Taichi" (the
current version and the one with `field_dim=`). Only the import, `init` and the sizes are ours.
"""

import numpy as np
import pytest

import vkchi as ti


def as_given(kind, array):
    """The array as a numpy array, torch tensor or ti.ndarray."""
    if kind == "numpy":
        return array
    if kind == "torch":
        return pytest.importorskip("torch").from_numpy(array)
    made = ti.ndarray(getattr(ti, {"f": "f32", "i": "i32"}[array.dtype.kind]), array.shape)
    made.from_numpy(array)
    return made


def values_of(array):
    return (
        array
        if isinstance(array, np.ndarray)
        else array.numpy()
        if hasattr(array, "numpy")
        else array.to_numpy()
    )


kinds = pytest.mark.parametrize("kind", ["numpy", "torch", "ndarray"])


def test_init_particles():
    n_particles = 8192

    x = ti.Vector.field(2, float, n_particles)
    v = ti.Vector.field(2, float, n_particles)
    C = ti.Matrix.field(2, 2, float, n_particles)
    J = ti.field(float, n_particles)

    @ti.kernel
    def init():
        for i in range(n_particles):
            x[i] = [ti.random() * 0.4 + 0.2, ti.random() * 0.4 + 0.2]
            v[i] = [0, -1]
            J[i] = 1

    init()

    p = x.to_numpy()
    assert p.min() >= 0.2 and p.max() <= 0.6
    assert np.abs(p.mean(0) - 0.4).max() < 0.01
    assert np.abs(np.corrcoef(p.T)[0, 1]) < 0.05
    assert len(np.unique(p, axis=0)) > 0.99 * n_particles
    np.testing.assert_array_equal(v.to_numpy(), np.tile([0, -1], (n_particles, 1)))
    assert (J.to_numpy() == 1).all() and not C.to_numpy().any()


# --- padding -----------------------------------------------------------------------------------

tile_height, tile_width = 16, 16
ph, pw = 32, 32
image_height, image_width = tile_height + 2 * ph, tile_width + 2 * pw
shift_x, shift_y = (tile_width, 0), (4, tile_height)


# fmt: off
@ti.kernel
def ti_pad(image_pixels: ti.types.ndarray(), tile: ti.types.ndarray()):
    for row, col in ti.ndrange(image_height, image_width):
        # image_pixel_to_coord
        x1, y1 = ti.math.ivec2(col - pw, image_height - 1 - row + ph)
        # map_coord
        v: ti.i32 = ti.floor(y1 / tile_height)
        u: ti.i32 = ti.floor((x1 - v * shift_y[0]) / tile_width)
        x2, y2 = ti.math.ivec2(x1 - u * shift_x[0] - v * shift_y[0],
                 y1 - u * shift_x[1] - v * shift_y[1])
        # coord_to_tile_pixel
        x, y = ti.math.ivec2(tile_height - 1 - y2, x2)
        image_pixels[row, col] = tile[x, y]
# fmt: on


def torch_pad(torch, arr, tile, y):
    # image_pixel_to_coord
    arr[:, :, 0] = image_height - 1 + ph - arr[:, :, 0]
    arr[:, :, 1] -= pw
    arr1 = torch.flip(arr, (2,))
    # map_coord
    v = torch.floor(arr1[:, :, 1] / tile_height).to(torch.int)
    u = torch.floor((arr1[:, :, 0] - v * shift_y[0]) / tile_width).to(torch.int)
    uu = torch.stack((u, u), axis=2)
    vv = torch.stack((v, v), axis=2)
    arr2 = arr1 - uu * torch.tensor(shift_x) - vv * torch.tensor(shift_y)
    # coord_to_tile_pixel
    arr2[:, :, 1] = tile_height - 1 - arr2[:, :, 1]
    table = torch.flip(arr2, (2,))
    table = table.view(-1, 2).to(torch.float)
    inds = table.mv(y)
    gathered = torch.index_select(tile.view(-1), 0, inds.to(torch.long))
    return gathered


def padded(tile):
    row, col = np.mgrid[0:image_height, 0:image_width]
    x1, y1 = col - pw, image_height - 1 - row + ph
    v = y1 // tile_height
    u = (x1 - v * shift_y[0]) // tile_width
    x2, y2 = x1 - u * shift_x[0] - v * shift_y[0], y1 - u * shift_x[1] - v * shift_y[1]
    return tile[tile_height - 1 - y2, x2]


@kinds
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_padding(kind, dtype):
    brick = (np.random.default_rng(1).random((tile_height, tile_width)) * 1000).astype(dtype)
    tile = as_given(kind, brick)
    image_pixels = as_given(kind, np.zeros((image_height, image_width), dtype))
    ti_pad(image_pixels, tile)
    ti.sync()
    np.testing.assert_array_equal(values_of(image_pixels), padded(brick))


def test_padding_equals_the_torch_version():
    torch = pytest.importorskip("torch")
    tile = torch.rand(tile_height, tile_width)
    image_pixels = torch.zeros(image_height, image_width)
    coords = torch.stack(
        torch.meshgrid(torch.arange(image_height), torch.arange(image_width), indexing="ij"), 2
    )
    gathered = torch_pad(torch, coords, tile, torch.tensor([float(tile_width), 1.0]))
    ti_pad(image_pixels, tile)
    assert torch.equal(image_pixels, gathered.view(image_height, image_width))


# --- depthwise convolution ---------------------------------------------------------------------

B, C, T, eps = 2, 3, 24, 0.1


def run_formula_very_slow(w, k, B, C, T, eps):
    out = np.empty((B, C, T), np.float32)
    for b in range(B):
        for c in range(C):
            for t in range(T):
                s = eps
                for u in range(t - T + 1, t + 1):
                    s += w[c][0][(T - 1) - (t - u)] * k[b][c][u + T - 1]
                out[b][c][t] = s
    return out


# fmt: off
def make_version(spelling):
    """The kernel of one document: `ndim=3` in the current one, `field_dim=3` before."""
    if spelling == "ndim":

        @ti.kernel
        def taichi_forward_v0(
                out: ti.types.ndarray(ndim=3),
                w: ti.types.ndarray(ndim=3),
                k: ti.types.ndarray(ndim=3),
                eps: ti.f32):

            for b, c, t in out:
                s = eps
                for u in range(t-T+1, t+1):
                    s += w[c, 0, (T-1)-(t-u)] * k[b, c, u+T-1]
                out[b, c, t] = s
    else:

        @ti.kernel
        def taichi_forward_v0(
                out: ti.types.ndarray(field_dim=3),
                w: ti.types.ndarray(field_dim=3),
                k: ti.types.ndarray(field_dim=3),
                eps: ti.f32):

            for b, c, t in out:
                s = eps
                for u in range(t-T+1, t+1):
                    s += w[c, 0, (T-1)-(t-u)] * k[b, c, u+T-1]
                out[b, c, t] = s

    return taichi_forward_v0
# fmt: on


@kinds
@pytest.mark.parametrize("spelling", ["ndim", "field_dim"])
def test_depthwise_convolution(kind, spelling):
    rng = np.random.default_rng(2)
    w, k = rng.random((C, 1, T), np.float32), rng.random((B, C, 2 * T - 1), np.float32)
    out = as_given(kind, np.zeros((B, C, T), np.float32))
    make_version(spelling)(out, as_given(kind, w), as_given(kind, k), eps)
    want = run_formula_very_slow(w, k, B, C, T, eps)
    np.testing.assert_allclose(values_of(out), want, rtol=1e-5)


def test_depthwise_convolution_equals_torch():
    torch = pytest.importorskip("torch")
    from torch import nn
    from torch.nn import functional as F

    w, k = torch.rand(C, T), torch.rand(B, C, T)
    want = eps + F.conv1d(nn.ZeroPad2d((T - 1, 0, 0, 0))(k), w.unsqueeze(1), groups=C)
    out = torch.zeros(B, C, T)
    padded_k = F.pad(k, (T - 1, 0))
    make_version("ndim")(out, w.unsqueeze(1), padded_k, eps)
    torch.testing.assert_close(out, want)
