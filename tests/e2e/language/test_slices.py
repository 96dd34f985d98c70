"""Slices of arrays in kernels: as numpy's, without copies, with indices from 0."""

import itertools
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.test_64bit_loops import declare_wide
from vkchi.runtime import current_runtime

CONTENTS = np.arange(6 * 7).reshape(6, 7)


def array_of(values: Any, *, is_field: bool, dtype: Any = ti.i32, needs_grad: bool = False) -> Any:
    make = ti.field if is_field else ti.ndarray
    x = make(dtype, np.shape(values), needs_grad=needs_grad)
    x.from_numpy(np.asarray(values, dtype=np.int32 if dtype is ti.i32 else np.float32))
    return x


@pytest.mark.parametrize("is_field", [True, False])
def test_run_time_bounds_follow_python(is_field: bool) -> None:
    m = array_of(CONTENTS, is_field=is_field)
    found, count = ti.field(ti.i32, 16), ti.field(ti.i32, ())

    @ti.func
    def copy(row: Any) -> None:
        count[None] = row.shape[0]
        for k in row:
            found[k] = row[k]

    @ti.kernel
    def of_row(i: ti.i32, begin: ti.i32, end: ti.i32):
        copy(m[i, begin:end])

    @ti.kernel
    def of_column(j: ti.i32, begin: ti.i32, end: ti.i32):
        copy(m[begin:end:2, j])

    for begin, end in itertools.product((-9, -7, -3, 0, 2, 5, 6, 8), repeat=2):
        of_row(2, begin, end)
        np.testing.assert_array_equal(
            found.to_numpy()[: count[None]], CONTENTS[2, begin:end], f"{begin}:{end}"
        )
        of_column(3, begin, end)
        np.testing.assert_array_equal(
            found.to_numpy()[: count[None]], CONTENTS[begin:end:2, 3], f"{begin}:{end}:2"
        )


def random_slice(rng: np.random.Generator, extent: int) -> str:
    """The text of a slice or index of an axis; names are arguments of the kernel."""
    if extent and rng.integers(4) == 0:
        return str(rng.choice([str(rng.integers(extent)), f"min(p1, {extent - 1})"]))
    bounds = ["", "", "p0", "p1", "m1", "m3", *map(str, rng.integers(-extent - 2, extent + 2, 4))]
    begin, end = rng.choice(bounds, 2)
    step = rng.choice(["", "", "", ":1", ":2", ":3"])
    return f"{begin}:{end}{step}"


@pytest.mark.parametrize("seed", range(30))
def test_random_slices_of_slices(seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(seed)
    contents = np.arange(5 * 4 * 6, dtype=np.int32).reshape(5, 4, 6)
    numbers = {"p0": 0, "p1": 1, "m1": -1, "m3": -3}
    steps, expected, text = [], contents, "x"
    for _ in range(rng.integers(1, 4)):
        if not expected.ndim:
            break
        items = [random_slice(rng, n) for n in expected.shape]
        if not any(":" in item for item in items):
            items[0] = ":"
        count = len(items) if ":" not in items[0] else rng.integers(1, len(items) + 1)
        if count < len(items) and rng.integers(2):
            items = ["...", *items[len(items) - count :]]
        else:
            items = items[:count]
        steps.append(", ".join(items))
        text += f"[{steps[-1]}]"
        expected = eval(f"expected[{steps[-1]}]", {**numbers, "expected": expected})
        if not isinstance(expected, np.ndarray):
            expected = np.asarray(expected)
    shape = ", ".join(f"sizes[{k}] = part.shape[{k}]" for k in range(expected.ndim))
    path = tmp_path / f"sliced_{seed}.py"
    path.write_text(f"""
from __future__ import annotations
import vkchi as ti

@ti.kernel
def run(p0: ti.i32, p1: ti.i32, m1: ti.i32, m3: ti.i32):
    part = {text}
    {shape.replace(", sizes", "; sizes")}
    for I in ti.grouped(part):
        y[I] = part[I]
    part.fill(-5)
""")
    for is_field in (True, False):
        x = array_of(contents, is_field=is_field)
        y, sizes = ti.field(ti.i32, (8,) * expected.ndim), ti.field(ti.i32, 3)
        scope = {"x": x, "y": y, "sizes": sizes}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        scope["run"](*numbers.values())
        assert tuple(sizes.to_numpy()[: expected.ndim]) == expected.shape, text
        got = y.to_numpy()[tuple(slice(n) for n in expected.shape)]
        np.testing.assert_array_equal(got, expected, text)
        filled = contents.copy()
        part = eval(text, {**numbers, "x": filled})
        part[...] = -5
        np.testing.assert_array_equal(x.to_numpy(), filled, text)


def test_constant_bounds_of_static_shapes_give_constant_lengths() -> None:
    m = array_of(CONTENTS, is_field=True)

    @ti.kernel
    def total() -> ti.i32:
        s = 0
        row = m[2, 1:-1:2]
        for k in ti.static(range(row.shape[0])):
            s += row[k]
        return s * 100 + len(row) * 10 + row.ndim

    assert total() == CONTENTS[2, 1:-1:2].sum() * 100 + 31


def test_assignments() -> None:
    m, other = array_of(CONTENTS, is_field=True), array_of(CONTENTS + 100, is_field=False)

    @ti.kernel
    def assign(other: ti.types.ndarray(), n: ti.i32):
        m[0, :] = 5
        m[3, 2:4].fill(9)
        m[..., 6] = 7
        m[1:3, :n] = other[:2, 1 : n + 1]
        m[5, :3] = m[5, 0] + 1

    assign(other, 6)
    expected = CONTENTS.copy()
    expected[0], expected[3, 2:4], expected[..., 6] = 5, 9, 7
    expected[1:3, :6] = CONTENTS[:2, 1:] + 100
    expected[5, :3] = CONTENTS[5, 0] + 1
    np.testing.assert_array_equal(m.to_numpy(), expected)


def test_structs_and_vectors() -> None:
    s = ti.Struct.field({"x": ti.f32, "v": ti.math.vec2}, shape=8)
    v = ti.Vector.field(3, ti.f32, shape=(2, 4))

    @ti.kernel
    def run():
        part = s[2:5]
        for i in part:
            part[i].x = i
            part[i].v = [1, 2]
        part.v[1][0] = 9
        part.x[2] = -1
        v[1, 1:3] = ti.math.vec3(1, 2, 3)
        v[0, :][3].y = 4

    run()
    assert s.x.to_numpy().tolist() == [0, 0, 0, 1, -1, 0, 0, 0]
    assert s.v.to_numpy()[2:5].tolist() == [[1, 2], [9, 2], [1, 2]]
    assert v.to_numpy()[1, :, 2].tolist() == [0, 3, 3, 0]
    assert v[0, 3].y == 4


def test_bit_packed_elements() -> None:
    x = ti.field(ti.types.quant.int(5, True))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x)
    ti.root.dense(ti.i, 8).place(word)

    @ti.kernel
    def run():
        x[2:5] = -3

    run()
    assert x.to_numpy().tolist() == [0, 0, -3, -3, -3, 0, 0, 0]


@pytest.mark.parametrize("is_field", [True, False])
def test_gradients(is_field: bool) -> None:
    values = np.arange(8.0)
    x = array_of(values, is_field=is_field, dtype=ti.f32, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.func
    def squares(part: Any) -> None:
        for i in part:
            loss[None] += part[i] ** 2

    @ti.kernel
    def run(n: ti.i32):
        squares(x[1:n:2])

    with ti.ad.Tape(loss):
        run(7)
    expected = np.zeros(8)
    expected[1:7:2] = 2 * values[1:7:2]
    np.testing.assert_array_equal(x.grad.to_numpy(), expected)

    @ti.kernel
    def of_gradient() -> ti.f32:
        return x[1:].grad[2] + x.grad[1:][2]

    assert of_gradient() == 2 * expected[3]


def test_slices_in_loops_lambdas_and_functions_with_code_of_their_own() -> None:
    m = array_of(CONTENTS, is_field=True)

    @ti.real_func
    def total(i: ti.i32) -> ti.i32:
        s = 0
        row = m[i, 2:]
        for k in range(row.shape[0]):
            s += row[k]
        return s

    @ti.kernel
    def run():
        for i in range(6):
            row = m[i, :]
            pick = lambda k: row[k]  # noqa: E731
            s = total(i)
            for k in range(3):
                rest = row[k:]
                s += rest[0] + pick(k)
            m[i, 6] = s

    run()
    expected = CONTENTS[:, 2:].sum(1) + 2 * CONTENTS[:, :3].sum(1)
    np.testing.assert_array_equal(m.to_numpy()[:, 6], expected)


def test_shared_memory() -> None:
    out = ti.field(ti.i32, 64)

    @ti.kernel
    def run():
        ti.loop_config(block_dim=64)
        for i in range(64):
            pad = ti.simt.block.SharedArray((64,), ti.i32)
            half = pad[32:]
            pad[i] = i
            ti.simt.block.sync()
            out[i] = half[i % 32]

    run()
    assert out.to_numpy().tolist() == [32 + i % 32 for i in range(64)]


@pytest.mark.parametrize("debug", [False, True])
def test_arrays_with_64_bit_indices(init: Any, debug: bool) -> None:
    init(debug=debug)
    if not current_runtime().device.caps.int64:
        pytest.skip("the device has no i64")
    x = declare_wide(array_of(np.arange(10), is_field=False))
    y = ti.field(ti.i32, 10)

    @ti.kernel
    def run(x: ti.types.ndarray(), begin: ti.i32, end: ti.i64) -> ti.i32:
        part = x[begin:end]
        for k in part:
            y[k] = part[k]
        return part.shape[0]

    assert run(x, 3, -1) == 6
    assert y.to_numpy().tolist() == [3, 4, 5, 6, 7, 8, 0, 0, 0, 0]


def test_unsigned_bounds_beyond_all_extents() -> None:
    m = array_of(CONTENTS, is_field=True)

    @ti.kernel
    def length(begin: ti.u32, end: ti.u32) -> ti.i32:
        return m[begin:end, 0].shape[0]

    assert length(0, 4_000_000_000) == 6
    assert length(3_000_000_000, 4_000_000_000) == 0


def test_indices_outside_a_slice_are_reported(init: Any) -> None:
    init(debug=True)
    m = array_of(CONTENTS, is_field=True)

    @ti.kernel
    def pick(i: ti.i32, k: ti.i32) -> ti.i32:
        return m[1:3, 1:4][i, :][k]

    assert pick(1, 2) == CONTENTS[2, 3]
    for i, k in ((1, 3), (1, -1), (2, 0), (-1, 0)):
        with pytest.raises(IndexError, match="out of bounds"):
            pick(i, k)


def test_arrays_without_slices() -> None:
    moved, sparse = ti.field(ti.i32, 8, offset=-4), ti.field(ti.i32)
    ti.root.pointer(ti.i, 4).dense(ti.i, 2).place(sparse)

    @ti.kernel
    def of_moved():
        moved[0:2] = 1

    @ti.kernel
    def of_sparse():
        sparse[0:2] = 1

    @ti.kernel
    def of_clamped(x: ti.types.ndarray(boundary="clamp")):
        x[0:2] = 1

    for run, args, why in (
        (of_moved, (), "with an offset"),
        (of_sparse, (), "in a sparse block"),
        (of_clamped, (ti.ndarray(ti.i32, 8),), "boundary="),
    ):
        with pytest.raises(ti.TaichiTypeError, match=f"{why}.* and has no slices"):
            run(*args)


def test_another_slice_for_a_name() -> None:
    m = array_of(CONTENTS, is_field=True)

    @ti.kernel
    def here() -> ti.i32:
        row = m[0, :]
        row = m[2, :]
        return row[1]

    @ti.kernel
    def in_a_loop():
        row = m[0, :]
        for i in range(3):
            row = m[i, :]

    assert here() == CONTENTS[2, 1]
    with pytest.raises(ti.TaichiSyntaxError, match="`row` is a compile-time constant"):
        in_a_loop()
