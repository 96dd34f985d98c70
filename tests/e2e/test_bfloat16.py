"""bfloat16: stored with 16 bits, computed with as f32, rounded to nearest, ties to even."""

from __future__ import annotations

import copy
import math
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ConversionWarning
from vkchi.types.bfloat16 import decode, encode

ALL = np.arange(1 << 16, dtype=np.uint16)
# The values of all bit patterns, from the definition: an f32 whose low half is zero.
VALUES = np.array(
    [struct.unpack("<f", struct.pack("<I", k << 16))[0] for k in range(1 << 16)], "f4"
)
IS_NAN = np.isnan(VALUES)
TIE = 0x8000  # half of the last place


@pytest.fixture(autouse=True)
def storage(need: Any) -> None:
    need("bf16")


def nearest(x: np.ndarray) -> np.ndarray:
    """The bits of the nearest bf16, an even one of two, by a search in exact arithmetic."""
    finite = np.flatnonzero(np.isfinite(VALUES) & (ALL < 0x8000)).astype(np.uint16)
    known = np.append(VALUES[finite].astype(np.float64), 2.0**128)  # beyond: infinity
    size = np.abs(x.astype(np.float64))
    above = np.searchsorted(known, np.minimum(size, 2.0**128))
    below = np.maximum(above - 1, 0)
    above = np.minimum(above, len(known) - 1)
    up, down = known[above] - np.minimum(size, 2.0**128), np.minimum(size, 2.0**128) - known[below]
    chosen = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return (chosen | np.where(np.signbit(x), 0x8000, 0)).astype(np.uint16)


def bits_of(array: Any) -> np.ndarray:
    """The bits in the memory of an array, through torch, which has the type."""
    torch = pytest.importorskip("torch")
    tensor = array.to_torch()
    assert tensor.dtype is torch.bfloat16
    return tensor.view(torch.int16).numpy().view(np.uint16)


def hard_numbers() -> np.ndarray:
    """Numbers beside and on the middle of each two neighbours, and random bit patterns."""
    word = ALL.astype(np.uint32) << 16
    words = [word | low for low in (0, 1, TIE - 1, TIE, TIE + 1, 0xFFFF)]
    words.append(np.random.default_rng(3).integers(0, 2**32, 1 << 17, dtype=np.uint32))
    return np.concatenate(words).view(np.float32)


@pytest.mark.parametrize("make", ["field", "ndarray"])
def test_all_bit_patterns_are_read(make: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(ALL.view(np.int16)).view(torch.bfloat16)
    x = ti.field(ti.bf16, 1 << 16) if make == "field" else ti.ndarray(ti.bf16, 1 << 16)
    y = ti.ndarray(ti.f32, 1 << 16)
    x.from_torch(tensor)

    @ti.kernel
    def of_field(y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i]

    @ti.kernel
    def of_ndarray(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i]

    if make == "field":
        of_field(y)
    else:
        of_ndarray(x, y)
    for got in (y.to_numpy(), x.to_numpy()):
        assert np.array_equal(np.isnan(got), IS_NAN)
        assert np.array_equal(got.view(np.uint32)[~IS_NAN], VALUES.view(np.uint32)[~IS_NAN])
    assert np.array_equal(bits_of(x), ALL)


def test_rounding_to_nearest_even() -> None:
    """On the device, in Python, and of the host functions: ties, subnormals, overflow, NaN."""
    given = hard_numbers()
    is_nan = np.isnan(given)
    want = nearest(np.where(is_nan, 0, given))
    x, y = ti.ndarray(ti.f32, given.shape), ti.ndarray(ti.bf16, given.shape)
    x.from_numpy(given)

    @ti.kernel
    def rounded(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i]

    rounded(x, y)
    # A device may read subnormals as zero: half of the least bf16 is one, and rounds to zero.
    for got in (bits_of(y), encode(given)):
        assert np.isnan(decode(got[is_nan])).all()
        np.testing.assert_array_equal(got[~is_nan], want[~is_nan])
    assert np.array_equal(encode(VALUES)[~IS_NAN], ALL[~IS_NAN])  # exact for its own values


def test_examples_of_rounding() -> None:
    least = 2.0**-133
    for given, want in (
        (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7),
        (256.5, 256.0), (257.0, 256.0), (259.0, 260.0), (least, least), (least / 2, 0.0),
        (1.5 * least, 2 * least), (3.3895e38, float.fromhex("0x1.fep127")), (-0.0, -0.0),
        (3.4e38, math.inf), (-3.4e38, -math.inf),
    ):  # fmt: skip
        got = ti.cast(given, ti.bf16)
        assert got == want and math.copysign(1, got) == math.copysign(1, want), given
        assert ti.bf16(given) == got
    assert math.isnan(ti.cast(math.nan, ti.bf16))
    assert ti.bf16(ti.Vector([257.0, 259.0])).to_list() == [256, 260]
    assert ti.Vector([257.0, 259.0], ti.bf16).to_list() == [256, 260]
    assert ti.cast(np.array([257, 259]), ti.bf16).tolist() == [256, 260]


def test_arithmetic_is_that_of_f32() -> None:
    """Products and sums are not rounded on the way; stores round once."""
    x, y = ti.field(ti.bf16, 3), ti.field(ti.f32, 3)
    x.from_numpy(np.array([1 + 2**-7, 3.0, 2**-7], np.float32))

    @ti.kernel
    def run():
        for i in range(1):
            y[0] = x[0] * x[0] + x[2]
            y[1] = ti.sqrt(x[1])
            x[1] = x[0] * x[0]
            y[2] = x[1]  # the rounded value, also where the compiler forwards it

    run()
    a = np.float32(1 + 2**-7)
    assert y[0] == a * a + np.float32(2**-7)
    assert y[1] == pytest.approx(math.sqrt(3), rel=1e-6)
    assert y[2] == x[1] == decode(encode(a * a)) != a * a


@pytest.mark.parametrize("mode", ["release", "debug", "python"])
def test_casts_arguments_and_results(mode: str) -> None:
    if mode != "release":
        ti.init(random_seed=7, **({"debug": True} if mode == "debug" else {"arch": ti.python}))
    vec2 = ti.types.vector(2, ti.bf16)

    @ti.func
    def raised(x: ti.bf16) -> ti.bf16:
        return x + 1

    @ti.kernel
    def run(x: ti.f32, y: ti.bf16, v: vec2, n: ti.i32) -> ti.types.vector(8, ti.f32):
        a = ti.cast(x, ti.bf16)
        b: ti.bf16 = n
        b += 1  # a variable of bf16: 256 + 1 rounds back
        c = vec2(x, 2 * x)
        return ti.Vector([a, a * a, b, y, v[0] + v[1], c[1], raised(x), ti.cast(a, ti.i32)])

    @ti.kernel
    def result(x: ti.f32) -> ti.bf16:
        return x

    got = list(run(257.0, 259.0, [257.0, 259.0], 257))
    assert got == [256, 65536, 256, 260, 516, 512, 256, 256]
    assert result(259.0) == 260
    ti.init(random_seed=7)


def test_vectors_matrices_and_structs() -> None:
    S = ti.types.struct(a=ti.bf16, v=ti.types.vector(3, ti.bf16), n=ti.i32)
    s, m = S.field(shape=5), ti.Matrix.field(2, 2, ti.bf16, shape=3)
    v = ti.types.vector(3, ti.bf16).ndarray(5)
    placed, beside = ti.field(ti.bf16), ti.field(ti.f32)
    ti.root.dense(ti.i, 5).place(placed, beside)

    @ti.kernel
    def run(v: ti.types.ndarray()):
        for i in s:
            s[i].a = 257 + i
            s[i].v = [i, 257.0, 259.0]
            s[i].n = i
            v[i] = 2 * s[i].v
            v[i][0] += 1
            placed[i], beside[i] = 257 + i, i
        for i in m:
            m[i] = ti.Matrix([[257.0, 1.0], [i, 2.0]])
            m[i] = m[i] @ m[i]

    run(v)
    rows = [decode(encode(257.0 + i)) for i in range(5)]
    assert [s[i].a for i in range(5)] == rows == placed.to_numpy().tolist()
    assert s.v.to_numpy().tolist() == [[i, 256, 260] for i in range(5)]
    assert v.to_numpy().tolist() == [[2 * i + 1, 512, 520] for i in range(5)]
    assert beside.to_numpy().tolist() == [0, 1, 2, 3, 4]
    want = [np.array([[256, 1], [i, 2]], "f4") for i in range(3)]
    assert np.array_equal(m.to_numpy(), decode(encode(np.stack([a @ a for a in want]))))
    v[2] = [1, 257.0, 3]
    v[3].z = 259
    assert v[2].to_list() == [1, 256, 3] and v[3][2] == 260
    with pytest.warns(ConversionWarning, match="1e\\+39 does not fit bf16"):
        v[0] = 1e39
    assert S(257.0, [1, 2, 259.0], 3).to_dict() == {"a": 256, "v": [1, 2, 260], "n": 3}


def test_elements_from_python() -> None:
    x = ti.field(ti.bf16, (3, 5), order="ji")
    x[1, 4] = 257.0
    x.fill(-1.5)
    x[2, 3] = 1 + 2**-8
    assert x[2, 3] == 1 and x[1, 4] == -1.5 and isinstance(x[2, 3], float)
    assert (x.dtype, x.nbytes, x.to_numpy().dtype) == (ti.bf16, 30, np.float32)
    assert copy.deepcopy(x)[2, 3] == 1
    y = ti.ndarray(ti.bf16, (3, 5))
    y.copy_from(x)
    assert np.array_equal(pickle.loads(pickle.dumps(y)).to_numpy(), x.to_numpy())
    assert ti.bfloat16 is not None and repr(ti.bf16) == "bf16"


@pytest.mark.parametrize("n", [1, 7, 64])
def test_atomics(n: int) -> None:
    """Neighbours in a word are updated by different invocations."""
    x, y = ti.field(ti.bf16, n), ti.ndarray(ti.bf16, 4)
    old = ti.field(ti.f32, n)

    @ti.kernel
    def run(y: ti.types.ndarray()):
        for i in range(64 * n):
            x[i % n] += 0.5
        for i in range(n):
            old[i] = ti.atomic_add(y[0], 1)
            ti.atomic_max(y[1], i)
            ti.atomic_min(y[2], -i)
        for _ in range(1):
            ti.atomic_mul(y[1], 0.5)
            ti.atomic_exchange(y[3], 257.0)

    run(y)
    assert x.to_numpy().tolist() == [32] * n
    assert sorted(old.to_numpy()) == list(range(n))
    assert y.to_numpy().tolist() == [n, (n - 1) / 2, -(n - 1), 256]


def test_sums_in_a_loop_are_rounded_once() -> None:
    """1000 * 0.25 in one accumulator of f32; each addition of bf16 would stop at 64."""
    x = ti.field(ti.bf16, ())

    @ti.kernel
    def run():
        for _ in range(1):
            for _j in range(1000):
                x[None] += 0.25

    run()
    assert x[None] == 250


def test_gradients() -> None:
    x, y = (ti.field(ti.bf16, 6, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    values = np.arange(1, 7, dtype=np.float32) / 2
    x.from_numpy(values)

    @ti.kernel
    def square():
        for i in x:
            y[i] = x[i] * ti.cast(x[i], ti.bf16)

    @ti.kernel
    def total():
        for i in y:
            for _ in range(2):
                loss[None] += y[i] * y[i]

    with ti.ad.Tape(loss):
        square()
        total()
        x.fill(0)
    assert x.grad.dtype is ti.bf16
    want = 2 * 4 * values.astype(np.float64) ** 3
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=2**-7)
    assert loss[None] == pytest.approx(2 * (values**4).sum(), rel=2**-7)


@pytest.mark.parametrize("start", [0, 1])
def test_torch_tensors(start: int) -> None:
    """In place where memory allows, else by a copy: an odd address, an odd length."""
    torch = pytest.importorskip("torch")
    whole = torch.arange(9, dtype=torch.bfloat16)
    tensor = whole[start : start + 7]

    @ti.kernel
    def run(x: ti.types.ndarray(dtype=ti.bf16, ndim=1)):
        for i in x:
            x[i] = 2 * x[i] + 256

    run(tensor)
    assert tensor.tolist() == [decode(encode(2.0 * k + 256)) for k in range(start, start + 7)]
    assert whole[start + 7 :].tolist() == list(range(start + 7, 9))
    with pytest.raises(TypeError, match="an array of bf16 is needed, not of f16"):
        run(tensor.half())


def test_torch_operators_have_gradients_of_bf16() -> None:
    torch = pytest.importorskip("torch")

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    x = torch.arange(8, dtype=torch.bfloat16, requires_grad=True)
    y = cube(x)
    y.sum().backward()
    assert y.dtype is x.grad.dtype is torch.bfloat16
    assert x.grad.tolist() == [3 * k * k for k in range(8)]


def test_dlpack() -> None:
    torch = pytest.importorskip("torch")
    x = ti.ndarray(ti.bf16, (4, 3))
    x.fill(1.5)
    tensor = torch.from_dlpack(x)
    assert tensor.dtype is torch.bfloat16 and (tensor == 1.5).all()
    if x.__dlpack_device__()[0] == 1:
        tensor[2, 1] = 7
        assert x[2, 1] == 7
        assert x.to_torch(copy=False).data_ptr() == tensor.data_ptr()
    with pytest.raises(ValueError, match="numpy has no bfloat16"):
        x.to_numpy(copy=False)
    y = ti.from_dlpack(torch.arange(64, dtype=torch.bfloat16))
    assert y.dtype is ti.bf16 and y.to_numpy().tolist() == list(range(64))
    with pytest.raises(TypeError, match="cannot give"):
        ti.from_dlpack(torch.zeros(2, dtype=torch.float8_e4m3fn))


def test_numpy_and_jax() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.0, 257.0, -0.0, np.inf], ml_dtypes.bfloat16)
    x = ti.field(ti.bf16, 4)
    x.from_numpy(values)
    assert x.to_numpy(ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert x.to_numpy().tolist() == [1, 256, 0, math.inf]

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in x:
            x[i] = x[i] * 2

    run(values)
    assert values.astype(float).tolist() == [2, 512, 0, math.inf]
    jax = pytest.importorskip("jax")
    y = ti.from_dlpack(jax.numpy.arange(6, dtype=jax.numpy.bfloat16))
    assert y.dtype is ti.bf16 and y.to_numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert jax.dlpack.from_dlpack(y).dtype == jax.numpy.bfloat16


def test_jax_operators_have_gradients_of_bf16() -> None:
    jax = pytest.importorskip("jax")

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    op = ti.jax_op(square, outputs={"y": "x"})
    x = jax.numpy.arange(4, dtype=jax.numpy.bfloat16)
    slope = jax.grad(lambda x: op(x).sum().astype("float32"))(x)
    assert slope.dtype == x.dtype and slope.astype(float).tolist() == [0, 2, 4, 6]


def test_shared_arrays_graphs_and_random_numbers() -> None:
    x, r = ti.ndarray(ti.bf16, 64), ti.field(ti.bf16, 256)

    @ti.kernel
    def reverse(x: ti.types.ndarray(dtype=ti.bf16, ndim=1), a: ti.bf16):
        ti.loop_config(block_dim=64)
        for i in range(64):
            tile = ti.simt.block.SharedArray((64,), ti.bf16)
            tile[i] = i + a
            ti.simt.block.sync()
            x[i] = tile[63 - i]

    @ti.kernel
    def draw():
        for i in r:
            r[i] = ti.random(ti.bf16)

    arg = ti.graph.Arg
    builder = ti.graph.GraphBuilder()
    builder.dispatch(
        reverse,
        arg(ti.graph.ArgKind.NDARRAY, "x", ti.bf16, ndim=1),
        arg(ti.graph.ArgKind.SCALAR, "a", ti.bf16),
    )
    builder.compile().run({"x": x, "a": 256.0})
    assert x.to_numpy().tolist() == [decode(encode(256.0 + 63 - i)) for i in range(64)]
    draw()
    found = r.to_numpy()
    assert ((found >= 0) & (found < 1)).all() and len(set(found)) > 50


def test_refusals() -> None:
    with pytest.raises(ValueError, match="default_fp is"):
        ti.init(default_fp=ti.bf16)
    ti.init(random_seed=7)
    x = ti.field(ti.bf16, 2)

    @ti.kernel
    def swap():
        ti.atomic_cas(x[0], 1.0, 2.0)

    with pytest.raises(ti.TaichiTypeError, match="`atomic_cas` is for integers"):
        swap()


PROGRAM = """
import sys
import vkchi as ti
ti.init(random_seed=7)
x = ti.ndarray(ti.bf16, 4, needs_grad=True)
loss = ti.ndarray(ti.f32, 1, needs_grad=True)

@ti.kernel
def run(x: ti.types.ndarray(), a: ti.bf16, loss: ti.types.ndarray()):
    for i in x:
        loss[0] += x[i] * x[i] * a

x.from_numpy(__import__("numpy").arange(4.0))
with ti.ad.Tape(loss):
    run(x, float(sys.argv[1]), loss)
with ti.record() as recorded:
    run(x, 2.0, loss)
recorded.run()
print(loss.to_numpy().tolist(), x.grad.to_numpy().tolist())
"""


def test_the_disk_cache_knows_the_type(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    env = {**os.environ, "VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path / "cache")}
    env["VKCHI_DUMP_SPV"] = ""  # would compile all kernels
    for a in (257.0, 257.0, 3.0):  # the second process compiles nothing
        command = [sys.executable, str(path), str(a)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        b = float(decode(encode(a)))
        grads = [float(decode(encode(2 * k * b))) for k in range(4)]
        assert done.stdout.split() == f"{[14 * b + 28]} {grads}".split(), done.stderr


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_operators_of_python_functions(library: str) -> None:
    module = pytest.importorskip(library)

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    def fourth(x, y):
        between = ti.ndarray(ti.bf16, x.shape, needs_grad=True)
        square(x, between)
        square(between, y)

    if library == "torch":
        op = ti.torch_op(outputs={"y": "x"})(fourth)
        x = module.arange(4, dtype=module.bfloat16, requires_grad=True)
        y = op(x)
        y.sum().backward()
        slope = x.grad
        values = slope.tolist()
    else:
        op = ti.jax_op(outputs={"y": "x"})(fourth)
        x = module.numpy.arange(4, dtype=module.numpy.bfloat16)
        y = op(x)
        slope = module.grad(lambda x: op(x).sum().astype("float32"))(x)
        values = slope.astype(float).tolist()
    assert y.dtype == slope.dtype == x.dtype
    assert values == [0, 4, 32, 108]


@pytest.mark.parametrize("make", ["field", "ndarray"])
def test_slices(make: str) -> None:
    x = ti.field(ti.bf16, (3, 5)) if make == "field" else ti.ndarray(ti.bf16, (3, 5))

    @ti.kernel
    def total(x: ti.types.ndarray(), y: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i]
            y[i] = 257.0
        return s

    x[1, 1::2] = 259.0
    x[2, 4] = 1.0
    row = x[1, :]
    row[0] = 257.0
    assert row.to_numpy().tolist() == [256, 260, 0, 260, 0]
    assert row[1:4].to_torch().tolist() == [260, 0, 260]
    if make == "ndarray":
        assert total(x[1, 1:4], x[0, 1:4]) == 520
        assert x.to_numpy()[0].tolist() == [0, 256, 256, 256, 0]
    x[:, 0] = np.array([1, 2, 3])
    assert x.to_numpy()[:, 0].tolist() == [1, 2, 3]
