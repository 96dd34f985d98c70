"""Bit-packed integers in fields: features beyond Taichi's, and differences. Common features are in
`language/test_quantised.py`."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.test_quantised import N, as_fixed, as_floating, packed, wrapped
from vkchi.errors import ArgumentError, GradientError

quant = ti.types.quant


def test_the_step_of_a_fixed_point_number() -> None:
    assert quant.fixed(6, max_value=2.0).scale == 2 / 32
    assert quant.fixed(6, signed=False, max_value=2.0).scale == 2 / 64
    assert quant.fixed(6, max_value=2.0, scale=0.3).scale == 0.3
    assert quant.fixed(8) == quant.fixed(8, True, 1.0, ti.f32)


def test_words_of_64_bits_raise_on_devices_without_them(caps: Any) -> None:
    if caps.int64 and caps.i64_atomics:
        pytest.skip("the device has them")
    with pytest.raises(ti.DeviceError, match="words of 64 bits"):
        ti.BitpackedFields(max_num_bits=64)


def test_debug_mode_names_an_index_outside(own_runtime: None) -> None:
    ti.init(debug=True)
    (x,) = packed(quant.int(5), n=8)

    @ti.kernel
    def stray(at: ti.i32):
        x[at] = 9

    with pytest.raises(ti.TaichiAssertionError, match="8"):
        stray(8)


def test_records_and_graphs() -> None:
    (x,) = packed(quant.int(7), n=8)

    @ti.kernel
    def add():
        for i in x:
            x[i] += i

    with ti.record() as steps:
        add()
        add()
    x.fill(0)
    steps.run()
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(8))


def test_saved_modules_have_fields_of_numbers(tmp_path: Any) -> None:
    x, y = packed(quant.int(7), quant.fixed(8), n=8)

    @ti.kernel
    def add():
        for i in x:
            x[i] += i
            y[i] = x[i] / 64

    module = ti.aot.Module()
    module.add_field("y", y)
    module.add_kernel(add)
    module.save(str(tmp_path))
    loaded = ti.load(str(tmp_path))
    loaded.add()
    loaded.add()
    np.testing.assert_array_equal(loaded.fields["y"].to_numpy(), np.arange(8) / 32)
    assert loaded.fields["y"][3] == 3 / 32
    loaded.fields["y"].fill(0.5)
    assert (loaded.fields["y"].to_numpy() == 0.5).all()
    loaded.fields["y"].from_numpy(np.full(8, -0.25, np.float32))
    loaded.fields["y"][2] = 0.125
    assert loaded.fields["y"].to_numpy().tolist() == [-0.25, -0.25, 0.125] + [-0.25] * 5
    assert "(8,)" in repr(loaded.fields["y"])
    assert not y.to_numpy().any()


def diagonal(n: int) -> Any:
    """The n by n matrix of 1, 2, 3, ..."""
    builder = ti.linalg.SparseMatrixBuilder(n, n, max_num_triplets=n)

    @ti.kernel
    def put(A: ti.types.sparse_matrix_builder()):
        for i in range(n):
            A[i, i] += i + 1.0

    put(builder)
    return builder.build()


def test_sparse_matrices_take_numbers() -> None:
    A, (x,) = diagonal(8), packed(quant.fixed(12, max_value=8.0), n=8)
    x.fill(1.5)
    np.testing.assert_array_equal(A @ x, 1.5 * np.arange(1, 9))
    solver = ti.linalg.SparseSolver(solver_type="LLT")
    solver.compute(A)
    want = 1.5 / np.arange(1, 9)
    np.testing.assert_allclose(solver.solve(x), want, rtol=1e-6)
    solution, has_converged = ti.linalg.SparseCG(A, x).solve()
    assert has_converged
    np.testing.assert_allclose(solution, want, rtol=1e-5)


def test_solvers_that_overwrite_their_arguments_reject_quantised_fields() -> None:
    b, x = packed(quant.fixed(16), quant.fixed(16), n=8)

    @ti.kernel
    def double(v: ti.template(), out: ti.template()):
        for i in v:
            out[i] = 2 * v[i]

    with pytest.raises(ti.TaichiTypeError, match=r"`b` holds .*fixed.*field of ti.f32"):
        ti.linalg.MatrixFreeCG(ti.linalg.LinearOperator(double), b, x)


@pytest.mark.parametrize("number", [quant.fixed(14, scale=0.25), quant.float(6, 10), quant.int(9)])
def test_prefix_sums(number: Any) -> None:
    (x,) = packed(number, n=100)
    values = np.array([(-1) ** k * (k % 7) for k in range(100)], np.float64)
    x.from_numpy(values)
    ti.algorithms.PrefixSumExecutor(100).run(x)
    np.testing.assert_array_equal(x.to_numpy(), np.cumsum(values))


def test_copies_between_fields_of_numbers_and_others() -> None:
    x, y = packed(quant.fixed(12, max_value=8.0), quant.int(7), n=8)
    z, w = ti.field(ti.f32, 8), ti.ndarray(ti.i32, 8)
    z.from_numpy(np.arange(8, dtype=np.float32) / 2)
    x.copy_from(z)
    y.copy_from(x)
    w.copy_from(y)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(8) / 2)
    np.testing.assert_array_equal(w.to_numpy(), np.arange(8) // 2)
    z.copy_from(y)
    np.testing.assert_array_equal(z.to_numpy(), np.arange(8) // 2)
    held = np.zeros(8, np.float64)
    x.copy_to(held)
    np.testing.assert_array_equal(held, np.arange(8) / 2)
    with pytest.raises(ArgumentError, match="i32 of shape"):
        y.copy_from(ti.field(ti.f32, 9))


def test_kernels_of_numbers_are_verified() -> None:
    (x,) = packed(quant.fixed(32), n=8)
    x.from_numpy(np.linspace(-1, 1, 8))

    @ti.kernel
    def halve():
        for i in x:
            x[i] = x[i] / 2

    ti.verify(halve)


def test_textures_take_numbers() -> None:
    x = ti.field(quant.fixed(8))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x)
    ti.root.dense(ti.ij, (4, 4)).place(word)
    x.fill(0.5)
    texture = ti.Texture(ti.Format.r32f, (4, 4))
    texture.from_field(x)
    found = ti.field(ti.f32, ())

    @ti.kernel
    def read(t: ti.types.texture(num_dimensions=2)):
        for _ in range(1):
            found[None] = t.fetch(ti.Vector([1, 2]), 0).x

    read(texture)
    assert found[None] == 0.5


def test_kernels_have_no_variables_of_such_types() -> None:
    five = quant.int(5)

    @ti.kernel
    def cast() -> ti.i32:
        return ti.cast(3.7, five)

    @ti.kernel
    def annotate():
        v: five = 3
        print(v)

    for kernel in (cast, annotate):
        with pytest.raises(Exception, match="a type that fields alone have"):
            kernel()


def test_a_gradient_that_would_be_lost_raises() -> None:
    x, y = packed(quant.fixed(8), quant.float(5, 8))
    a = ti.field(ti.f32, N, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def put(field: ti.template()):
        for i in a:
            field[i] = a[i] * a[i]

    @ti.kernel
    def total(field: ti.template()):
        for i in a:
            loss[None] += field[i] * a[i]

    x.fill(0.25)
    with ti.ad.Tape(loss):
        total(x)
    np.testing.assert_array_equal(a.grad.to_numpy(), np.full(N, 0.25))
    for field in (x, y):
        with pytest.raises(Exception, match="bits of a number"), ti.ad.Tape(loss):
            put(field)
            total(field)


def test_a_gradient_that_a_copy_would_lose_raises() -> None:
    (x,) = packed(quant.fixed(12, max_value=8.0), n=8)
    a, z = (ti.field(ti.f32, 8, needs_grad=True) for _ in range(2))
    loss = ti.field(ti.f32, (), needs_grad=True)
    a.fill(0.5)

    @ti.kernel
    def scale():
        for i in a:
            z[i] = 3 * a[i]

    @ti.kernel
    def total(field: ti.template()):
        for i in a:
            loss[None] += field[i] * a[i]

    with pytest.raises(GradientError, match="would be lost"), ti.ad.Tape(loss):
        scale()
        x.copy_from(z)
        total(x)
    x.fill(0.25)
    with ti.ad.Tape(loss):  # no function of `a`, so no derivative is lost
        scale()
        z.copy_from(x)
        total(z)
    np.testing.assert_array_equal(a.grad.to_numpy(), np.full(8, 0.25))


def test_a_gradient_of_a_tensor_raises() -> None:
    torch = pytest.importorskip("torch")
    (x,) = packed(quant.fixed(12, max_value=8.0), n=8)
    a = ti.field(ti.f32, 8, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def total():
        for i in a:
            loss[None] += x[i] * a[i]

    tensor = torch.full((8,), 0.25, requires_grad=True)
    with pytest.raises(GradientError, match="would be lost"), ti.ad.Tape(loss):
        x.from_torch(tensor)
        total()
    x.from_torch(tensor.detach())
    assert x[7] == 0.25


@pytest.mark.parametrize("kind", ["quant_array", "bit_struct"])
def test_plain_fields_cannot_be_packed_into_words(kind: str) -> None:
    if kind == "quant_array":
        word = ti.root.dense(ti.i, 3).quant_array(ti.i, 2, max_num_bits=32)
        x = ti.field(quant.int(5))
    else:
        (x,) = packed(quant.int(5), n=3)
        word = x.parent()
    with pytest.raises(ArgumentError, match=f"words of a {kind} block"):
        word.place(ti.field(ti.f32))
    if kind == "quant_array":
        word.place(x)
    x[2] = 5
    assert (x[0], x[2]) == (0, 5)


def test_sparse_blocks() -> None:
    x, y = ti.field(quant.int(5)), ti.field(quant.fixed(8))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x, y)
    block = ti.root.pointer(ti.i, 4)
    block.bitmasked(ti.i, 4).place(word)

    @ti.kernel
    def put(i: ti.i32, j: ti.i32):
        x[i] = 3
        ti.atomic_max(y[j], 0.5)

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for i in x:
            n += 1
        return n

    put(5, 9)
    assert count() == 2
    x.fill(7)
    assert list(np.flatnonzero(x.to_numpy())) == [5, 9]
    block.deactivate_all()
    assert count() == 0
    assert not x.to_numpy().any()
    assert not y.to_numpy().any()


def test_offsets_and_templates() -> None:
    x = ti.field(quant.int(6))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x)
    ti.root.dense(ti.i, 8).place(word, offset=-4)

    @ti.kernel
    def put(field: ti.template()):
        for i in field:
            field[i] = 2 * i

    put(x)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(-4, 4))
    assert x[-4] == -8


@pytest.mark.parametrize("make", [lambda: quant.int(0), lambda: quant.int(65),
                                  lambda: quant.fixed(33), lambda: quant.float(9, 4),
                                  lambda: quant.float(5, 25)])  # fmt: skip
def test_widths_there_are_none_of(make: Any) -> None:
    with pytest.raises(Exception, match="bits are possible"):
        make()


@pytest.mark.parametrize(
    "options", [{"max_value": "a"}, {"max_value": None}, {"scale": "1"}, {"scale": 1e-39},
    {"scale": 1e39}, {"max_value": 0.0}, {"scale": float("nan")}],
)  # fmt: skip
def test_steps_there_are_none_of(options: Any) -> None:
    with pytest.raises(ArgumentError, match="quant.fixed"):
        quant.fixed(5, **options)


def test_vectors_lie_in_one_word() -> None:
    v = ti.Vector.field(3, dtype=quant.fixed(10))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(v)
    ti.root.dense(ti.i, 4).place(word)

    @ti.kernel
    def put(k: ti.i32) -> ti.f32:
        for i in v:
            v[i] = [0.125 * i, 0.25, -0.5]
            v[i][1] += 0.25
        return v[1][k]

    assert [put(k) for k in range(3)] == [0.125, 0.5, -0.5]
    np.testing.assert_array_equal(v.to_numpy()[3], [0.375, 0.5, -0.5])
    v[2][0] = -1
    assert list(v[2]) == [-1, 0.5, -0.5]
    assert v.get_scalar_field(0)[2] == -1
    np.testing.assert_array_equal(v.get_scalar_field(2).to_numpy(), [-0.5] * 4)
    v.fill(0.5)
    assert (v.to_numpy() == 0.5).all()


def test_atomic_operations_give_the_old_number() -> None:
    a, x, f = packed(quant.int(6), quant.fixed(8, max_value=4.0), quant.float(5, 8))

    @ti.kernel
    def step(k: ti.i32, v: ti.f32) -> ti.math.vec3:
        old = ti.math.vec3(0)
        for _ in range(1):
            n = ti.cast(v, ti.i32)
            if k == 0:
                old = [ti.atomic_add(a[0], n), ti.atomic_add(x[0], v), ti.atomic_add(f[0], v)]
            elif k == 1:
                old = [ti.atomic_sub(a[0], n), ti.atomic_sub(x[0], v), ti.atomic_sub(f[0], v)]
            elif k == 2:
                old = [ti.atomic_max(a[0], n), ti.atomic_max(x[0], v), ti.atomic_max(f[0], v)]
            elif k == 3:
                old = [ti.atomic_min(a[0], n), ti.atomic_min(x[0], v), ti.atomic_min(f[0], v)]
            else:
                old = [ti.atomic_mul(a[0], n), ti.atomic_mul(x[0], v), ti.atomic_mul(f[0], v)]
        return old

    draw = np.random.default_rng(3)
    want = [0, 0.0, 0.0]
    for _ in range(40):
        k, v = int(draw.integers(5)), float(draw.integers(-12, 12) / 4)
        assert list(step(k, v)) == want
        n, scale = int(v), 4.0 / 128
        by = [lambda p, q: p + q, lambda p, q: p - q, max, min, lambda p, q: p * q][k]
        want = [
            wrapped(by(want[0], n), 6, True),
            as_fixed(by(want[1], v), 8, True, scale),
            as_floating(by(want[2], v), 5, 8, True),
        ]
        assert [a[0], x[0], f[0]] == want


def test_indices_outside_change_nothing() -> None:
    x, y = packed(quant.int(5), quant.int(9), n=8)
    x.fill(3)
    y.fill(-7)

    @ti.kernel
    def stray(at: ti.i32):
        x[at] = 9
        y[at] += 1

    for at in (8, -1, 1 << 30, -(1 << 30)):
        stray(at)
    np.testing.assert_array_equal(x.to_numpy(), np.full(8, 3))
    np.testing.assert_array_equal(y.to_numpy(), np.full(8, -7))


@pytest.mark.parametrize("seed", range(6))
def test_random_sequences_of_operations(seed: int) -> None:
    """Writes and sums by kernels and by Python, in words that random types share."""
    draw = np.random.default_rng(seed)
    types, left = [], 32
    while left > 1 and len(types) < 6:
        bits, signed = int(draw.integers(1, min(left, 14) + 1)), bool(draw.integers(2))
        types.append((bits, signed))
        left -= bits
    fields = packed(*[quant.int(*t) for t in types], n=16)
    model = [[0] * 16 for _ in types]

    @ti.kernel
    def put(field: ti.template(), first: ti.i32, step: ti.i32):
        for i in field:
            field[i] = first + i * step

    @ti.kernel
    def add(field: ti.template(), by: ti.i32):
        for k in range(64):
            field[k % 16] += by

    for _ in range(25):
        k, (first, step) = int(draw.integers(len(types))), draw.integers(-5000, 5000, 2).tolist()
        kind = draw.integers(4)
        if kind == 0:
            put(fields[k], first, step)
            raw = [first + i * step for i in range(16)]
        elif kind == 1:
            add(fields[k], first)
            raw = [v + 4 * first for v in model[k]]
        elif kind == 2:
            fields[k].from_numpy(np.arange(16) * step)
            raw = [i * step for i in range(16)]
        else:
            first = wrapped(first, *types[k])  # values that do not fit raise in Python
            fields[k][3] = first
            raw = [first if i == 3 else v for i, v in enumerate(model[k])]
        model[k] = [wrapped(v, *types[k]) for v in raw]
        for field, want in zip(fields, model, strict=True):
            np.testing.assert_array_equal(field.to_numpy(), want)
