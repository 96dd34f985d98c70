"""Kernels on numpy arrays between two inaccessible pages: an access there ends the process.

`test_host_array_bounds.py` runs it as a program.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

import vkchi as ti
from vkchi.interop.in_place import host_arrays
from vkchi.runtime import current_runtime

ANY = ti.types.ndarray()
VECTORS = ti.types.ndarray(dtype=ti.types.vector(3, ti.f32), ndim=1)
TYPES = {"f4": ti.f32, "i4": ti.i32, "u1": ti.u8, "u2": ti.u16}
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
PROT_NONE = 0


def fenced(values: np.ndarray, *, at_end: bool) -> np.ndarray:
    """A copy that ends, or begins, at a page that cannot be read or written."""
    pages = -(-values.nbytes // PAGE)
    raw = np.frombuffer(mmap.mmap(-1, (pages + 2) * PAGE), np.uint8)
    for page in (0, pages + 1):
        address = ctypes.c_void_p(raw.ctypes.data + page * PAGE)
        assert LIBC.mprotect(address, PAGE, PROT_NONE) == 0
    at = (pages + 1) * PAGE - values.nbytes if at_end else PAGE
    made = raw[at : at + values.nbytes].view(values.dtype).reshape(values.shape)
    made[...] = values
    return made


def own(values: np.ndarray, axes: int) -> Any:
    """An ndarray with these contents."""
    scalar = TYPES[values.dtype.str[1:]]
    shape = values.shape[: values.ndim - axes]
    made = ti.ndarray(ti.types.vector(values.shape[-1], scalar) if axes else scalar, shape)
    made.from_numpy(values)
    return made


def compare(kernel: Any, *arrays: np.ndarray, axes: int = 0) -> None:
    """Assert that a kernel computes the same on fenced arrays in place as on ndarrays."""
    ours = [own(values, axes) for values in arrays]
    kernel(*ours)
    for given in each_fenced(kernel, arrays, axes):
        for a, b in zip(given, ours, strict=True):
            np.testing.assert_allclose(a, b.to_numpy(), rtol=1e-5)


def each_fenced(kernel: Any, arrays: Any, axes: int = 0, numbers: tuple[int, ...] = ()) -> Any:
    """Yield fenced copies of the arrays, at either fence, after the kernel ran on them in place."""
    for at_end in (True, False):
        given = [fenced(values, at_end=at_end) for values in arrays]
        for values in given:
            found = host_arrays(current_runtime()).find(values, axes)
            assert found is not None
            assert found.start == values.ctypes.data
        kernel(*given, *numbers)
        yield given


def stray(kernel: Any, values: np.ndarray, count: int, axes: int = 0) -> None:
    """Run a kernel that has out-of-range accesses at either fence."""
    for _ in each_fenced(kernel, [values], axes, (count,)):
        pass


@ti.kernel
def blur(x: ANY, y: ANY):
    for i in y:
        s = 0.0
        for d in range(-3, 4):
            if 0 <= i + d < x.shape[0]:
                s += x[i + d]
        y[i] = s


@ti.kernel
def blur_outside(x: ANY, y: ANY):
    for i in y:
        s = 0.0
        for d in ti.static(range(-3, 4)):
            s += x[i + d]
        y[i] = s


@ti.kernel
def convolve(w: ANY, k: ANY, out: ANY):
    for b, c in out:
        s = 0.0
        for u in range(c + 1):
            s += w[c - u] * k[b, u]
        out[b, c] = s


@ti.kernel
def matmul(a: ANY, b: ANY, c: ANY):
    for i, j in c:
        s = 0.0
        for q in range(a.shape[1]):
            s += a[i, q] * b[q, j]
        c[i, j] = s


@ti.kernel
def sum_rows(x: ANY, r: ANY):
    for i in r:
        s = 0.0
        for j in range(x.shape[1]):
            s += x[i, j]
        r[i] = s


@ti.kernel
def transpose(x: ANY, y: ANY):
    for i, j in x:
        y[j, i] = x[i, j]


@ti.kernel
def add_up(x: ANY, r: ANY):
    for i in x:
        r[0] += x[i]


@ti.kernel
def count(x: ANY, h: ANY):
    for i in x:
        h[x[i] % h.shape[0]] += 1


@ti.kernel
def attract(x: VECTORS, v: VECTORS):
    for i in x:
        f = ti.Vector([0.0, 0.0, 0.0])
        for j in range(x.shape[0]):
            d = x[j] - x[i]
            f += d / (d.norm() + 1)
        v[i] += f


@ti.kernel
def scatter(x: ANY, n: ti.i32):
    for i in range(n):
        x[i * 3 - 50] = 2
        x[i - 7] += x[2 * i]
        ti.atomic_max(x[5 * i - 100], 3)


@ti.kernel
def scatter_vectors(x: VECTORS, n: ti.i32):
    for i in range(n):
        x[i - 30] = x[i + 30]
        x[i][1] = x[2 * i - 11][2]


def main() -> None:
    ti.init(random_seed=3)
    rng = np.random.default_rng(1)

    def floats(*shape: int) -> np.ndarray:
        return rng.random(shape).astype(np.float32)

    def integers(n: int, dtype: type) -> np.ndarray:
        return rng.integers(0, 9, n).astype(dtype)

    for n in (1, 7, 64, 1501):
        compare(blur, floats(n), floats(n))
        compare(add_up, floats(n), np.zeros(1, np.float32))
        compare(count, integers(n, np.int32), np.zeros(5, np.int32))
        compare(attract, floats(min(n, 99), 3), floats(min(n, 99), 3), axes=1)
        for _ in each_fenced(blur_outside, [floats(n), floats(n)]):
            pass
        for values in (floats(n), integers(4 * n, np.uint8), integers(2 * n, np.uint16)):
            if current_runtime().device.caps.can_store(TYPES[values.dtype.str[1:]].name):
                stray(scatter, values, values.size + 90)
        stray(scatter_vectors, floats(n, 3), n + 50, axes=1)
    for a, b, c in ((1, 1, 1), (3, 5, 7), (33, 64, 31), (64, 50, 72)):
        compare(matmul, floats(a, b), floats(b, c), floats(a, c))
        compare(sum_rows, floats(a, b), floats(a))
        compare(transpose, floats(a, b), floats(b, a))
        compare(convolve, floats(c), floats(a, c), floats(a, c))
    print("no access outside")


if __name__ == "__main__":
    main()
