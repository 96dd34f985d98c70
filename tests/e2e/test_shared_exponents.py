"""Quantised floats that share an exponent, and vectors whose components have separate places, with
other features: sparse blocks, tapes, graphs, modules, copies, errors.

Values are compared with Taichi's in `language/test_quantised.py`.
"""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.types.packed_numbers import NumpyLanes, QuantFloat, SharedFloats, quantised_of

quant = ti.types.quant


def sharing(block: Any = None, n: int = 8, offset: Any = None) -> tuple[Any, Any]:
    """A field of vectors with a shared exponent, and numbers beside it in the same words."""
    v, kind = ti.Vector.field(3, dtype=quant.float(6, 8)), ti.field(quant.int(2, signed=False))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(v, shared_exponent=True)
    word.place(kind)
    (block or ti.root.dense(ti.i, n)).place(word, offset=offset)
    return v, kind


def separate(n: int = 8, offset: Any = None) -> Any:
    """A field of vectors whose components have types and blocks of their own."""
    v = ti.Vector.field(2, dtype=[quant.fixed(10, max_value=16.0), quant.float(6, 12)])
    for k in range(2):
        word = ti.BitpackedFields(max_num_bits=32)
        word.place(v.get_scalar_field(k))
        ti.root.dense(ti.i, n).place(word, offset=offset)
    return v


MAKERS = [lambda **options: sharing(**options)[0], separate]


# --- numbers -------------------------------------------------------------------------------------


def test_types_have_a_text_and_encoding_again_changes_nothing() -> None:
    number = SharedFloats(tuple([QuantFloat(5, k, True, ti.f32) for k in (10, 14)]))
    assert quantised_of(number.text()) == number
    values = np.random.default_rng(0).standard_normal((2, 500)).astype(np.float32)
    slots = number.pack([NumpyLanes(x) for x in values])
    again = number.pack([number.unpack(slots, k) for k in range(2)])
    np.testing.assert_array_equal(again.v, slots.v)


def test_numbers_that_are_none_and_the_widest_exponent() -> None:
    x, y = ti.field(quant.float(8, 12)), ti.field(quant.float(8, 12))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(x, y, shared_exponent=True)
    ti.root.dense(ti.i, 4).place(word)
    most = 2047 * 2.0**117
    for v, want in ((np.inf, most), (-np.inf, -most), (np.nan, most), (1e-40, 0.0), (1e-37, None)):
        x[0] = y[0] = 0.0
        x[0] = v
        assert x[0] == pytest.approx(v, rel=1e-3) if want is None else x[0] == want
        assert y[0] == 0.0


# --- elements and whole fields -------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_python_sees_numbers(make: Any) -> None:
    v = make(offset=-2)
    n = v.n
    values = np.arange(8 * n).reshape(8, n) / 4
    v.from_numpy(values)
    np.testing.assert_allclose(v.to_numpy(), values, atol=0.13)
    v.from_numpy(np.arange(8)[:, None] * np.ones(n))
    assert list(v[-2]) == [0] * n
    assert list(v[5]) == [7] * n
    v[-1] = [2, 1, 4][:n]
    v[-1][0] = 1.5
    v[0].y = 0.5
    assert (list(v[-1]), v[0][1]) == ([1.5, 1, 4][:n], 0.5)
    assert v.get_scalar_field(0)[-1] == 1.5
    with pytest.raises(IndexError):
        v[6]
    other = copy.deepcopy(v)
    other.fill(3)
    assert (v[-1][0], other[-1][0]) == (1.5, 3)
    plain, array = ti.Vector.field(n, ti.f32, 8), ti.Vector.ndarray(n, ti.f32, 8)
    plain.fill(0.25)
    v.copy_from(plain)
    assert v.to_numpy().sum() == 2 * n
    array.fill(0.5)
    v.copy_from(array)
    np.testing.assert_array_equal(np.asarray(v), np.full((8, n), 0.5))
    assert (v.shape, v.n, v.m, len(v), v.nbytes) == ((8,), n, 1, 8, 32 * n)
    assert v.grad is None
    assert "0.5" in str(v)
    assert "0.5" in repr(v)


@pytest.mark.parametrize("make", MAKERS)
def test_components_at_computed_indices(make: Any) -> None:
    v = make(n=64)

    @ti.kernel
    def add():
        for k in range(64 * 12 * 2):
            v[k % 64][k // 64 % 2] += 1.0

    @ti.kernel
    def put(k: ti.i32) -> ti.f32:
        v[3][k] = 7.0
        return ti.atomic_add(v[3][k], 2.0) + v[3][k]

    add()
    np.testing.assert_array_equal(v.to_numpy()[:, :2], np.full((64, 2), 12.0))
    assert [put(k) for k in range(2)] == [16.0, 16.0]
    assert v[3][1] == 9.0
    assert v[4][1] == 12.0


@pytest.mark.parametrize("make", MAKERS)
def test_functions_of_kernels(make: Any) -> None:
    v = make()
    ones = ti.Vector.field(v.n, ti.f32, 8)
    ones.fill(1)

    @ti.func
    def put(field: ti.template(), i):
        field[i] = i
        field[i].x -= 1

    @ti.kernel
    def run(field: ti.template()) -> ti.i32:
        for i in field:
            put(field, i)
        for I in ti.grouped(field):
            field[I].y = ti.max(field[I].x, 2.0)
        return field.shape[0] + field.n

    @ti.kernel
    def copy_ones():
        v.copy_from(ones)

    assert run(v) == 8 + v.n
    assert list(v[5])[:2] == [4, 4]
    copy_ones()
    assert (v.to_numpy() == 1).all()


def test_atomic_operations_give_the_old_number() -> None:
    v, _ = sharing()

    @ti.kernel
    def run() -> ti.math.vec3:
        old = ti.math.vec3(0)
        for _ in range(1):
            old.x = ti.atomic_add(v[1].x, 2.0)
            old.y = ti.atomic_mul(v[1].x, 3.0)
            old.z = ti.atomic_min(v[1].x, -8.0)
        v[2] = [1, 2, 4]
        ti.atomic_max(v[2], ti.Vector([1.5, 1.0, 5.0]))
        return old

    assert list(run()) == [0, 2, 6]
    assert list(v[1]) == [-8, 0, 0]
    assert list(v[2]) == [1.5, 2, 5]


def test_loads_between_stores_see_rounded_numbers() -> None:
    v, _ = sharing()

    @ti.kernel
    def run() -> ti.f32:
        v[1].x = 1.01
        v[1].y = v[1].x * 100.0
        if v[1].y > 5.0:
            v[1].z = 0.5
        return v[1].x

    assert run() == 1.0  # 1.015625 until the exponent grows
    assert list(v[1]) == [1, 102, 1]


def test_indices_outside_change_nothing() -> None:
    v, kind = sharing()
    v.fill(3)
    kind.fill(1)

    @ti.kernel
    def stray(at: ti.i32):
        v[at] = 9
        v[at].x = 7
        v[at].y += 1

    for at in (8, -1, 1 << 30):
        stray(at)
    assert (v.to_numpy() == 3).all()
    assert (kind.to_numpy() == 1).all()


# --- other features ------------------------------------------------------------------------------


def test_sparse_blocks() -> None:
    block = ti.root.pointer(ti.i, 4)
    v, _ = sharing(block.bitmasked(ti.i, 4))

    @ti.kernel
    def put():
        v[5].y = 3
        v[9] = [1, 2, 4]

    @ti.kernel
    def count() -> ti.i32:
        n = 0
        for _ in v:
            n += 1
        return n

    put()
    assert (count(), list(v[5]), list(v[9])) == (2, [0, 3, 0], [1, 2, 4])
    v[15][1] = 2
    assert count() == 3
    v.fill(1)
    assert v.to_numpy().sum() == 9
    block.deactivate_all()
    assert (count(), v.to_numpy().any()) == (0, False)


def test_components_in_different_sparse_blocks() -> None:
    v = ti.Vector.field(2, ti.f32, needs_grad=True)
    blocks = [ti.root.pointer(ti.i, 4) for _ in range(2)]
    for k, block in enumerate(blocks):
        block.dense(ti.i, 2).place(v.get_scalar_field(k))
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def put():
        v[3] = [1, 2]

    @ti.kernel
    def total():
        for i in v:
            loss[None] += v[i].x * v[i].y

    put()
    with ti.ad.Tape(loss):
        total()
    assert list(v.grad[3]) == [2, 1]
    blocks[1].deactivate_all()
    assert list(v[3]) == [1, 0]


@pytest.mark.parametrize("make", MAKERS)
def test_gradients_pass_reads_alone(make: Any) -> None:
    v = make()
    a = ti.field(ti.f32, 8, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    v.fill(2)

    @ti.kernel
    def total():
        for i in a:
            loss[None] += v[i].x * a[i]

    @ti.kernel
    def put():
        for i in a:
            v[i].x = 3 * a[i]

    with ti.ad.Tape(loss):
        total()
    np.testing.assert_array_equal(a.grad.to_numpy(), np.full(8, 2.0))
    with pytest.raises(Exception, match="bits of a number"), ti.ad.Tape(loss):
        put()
        total()


@pytest.mark.parametrize("make", MAKERS)
def test_records_modules_and_verification(make: Any, tmp_path: Path) -> None:
    v = make()

    @ti.kernel
    def add():
        for i in v:
            v[i] += i
            v[i].x += 1

    with ti.record() as steps:
        add()
        add()
    v.fill(0)
    steps.run()
    assert list(v[3])[:2] == [8, 6]
    module = ti.aot.Module()
    module.add_kernel(add)
    module.save(str(tmp_path))
    ti.load(str(tmp_path)).add()
    ti.verify(add)


def test_fields_with_a_shared_exponent_are_no_fields_of_modules() -> None:
    with pytest.raises(ti.Unsupported, match="`v` shares its exponent"):
        ti.aot.Module().add_field("v", sharing()[0])


def test_destroyed_trees() -> None:
    v = ti.Vector.field(3, dtype=quant.float(6, 8))
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(v, shared_exponent=True)
    builder = ti.FieldsBuilder()
    builder.dense(ti.i, 4).place(word)
    tree = builder.finalize()
    first = v.get_scalar_field(0)
    v.fill(1)
    assert (v.shape, first[0]) == ((4,), 1)
    tree.destroy()
    for field in (v, first):
        with pytest.raises(KernelRuntimeError, match="destroyed"):
            field[0]


PROGRAM = """
import sys
import vkchi as ti
ti.init()
quant = ti.types.quant
v = ti.Vector.field(2, dtype=quant.float(6, int(sys.argv[1])))
w = ti.Vector.field(2, dtype=[quant.fixed(8), quant.fixed(int(sys.argv[1]))])
word = ti.BitpackedFields(max_num_bits=32)
word.place(v, shared_exponent=True)
ti.root.dense(ti.i, 4).place(word)
word = ti.BitpackedFields(max_num_bits=32)
word.place(w)
ti.root.dense(ti.i, 4).place(word)

@ti.kernel
def put():
    v[1].x = 0.3
    v[1].y = 0.7
    w[1] = [0.3, 0.7]

put()
print(*v[1], *w[1])
"""


def test_processes_with_other_types(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    known = os.environ | {"VKCHI_CACHE_DIR": str(tmp_path / "cache"), "VKCHI_DUMP_SPV": ""}

    def run(bits: int) -> str:
        args = [sys.executable, str(file), str(bits)]
        done = subprocess.run(args, env=known, capture_output=True, text=True, check=True)
        return done.stdout

    first, other = run(8), run(12)
    assert first != other
    assert (run(8), run(12)) == (first, other)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([quant.float(5, 6), quant.float(6, 6)], "one width, not of 5 and 6 bits"),
        ([quant.float(5, 6), quant.int(6)], "no exponent to share"),
        ([quant.float(5, 1), quant.float(5, 6)], "a sign alone"),
        ([quant.float(5, 10)] * 3, "need 35 bits"),
        ([ti.f32], "not a quantised field"),
        ([], "no fields"),
    ],
)
def test_exponents_that_cannot_be_shared(types: Any, message: str) -> None:
    word = ti.BitpackedFields(max_num_bits=32)
    with pytest.raises(ArgumentError, match=message):
        word.place(*map(ti.field, types), shared_exponent=True)


def test_fields_cannot_be_placed_twice() -> None:
    v = ti.Vector.field(3, dtype=quant.float(6, 8))
    word, other = (ti.BitpackedFields(max_num_bits=32) for _ in range(2))
    with pytest.raises(ArgumentError, match="as a whole"):
        word.place(v.get_scalar_field(0), shared_exponent=True)
    word.place(v, shared_exponent=True)
    for again in (v, v.get_scalar_field(1)):
        with pytest.raises(KernelRuntimeError, match="placed already"):
            other.place(again)
    x, w = ti.field(quant.int(4)), ti.Vector.field(2, dtype=quant.int(4))
    with pytest.raises(KernelRuntimeError, match="already"):
        other.place(x, x)
    other.place(w.get_scalar_field(0))
    with pytest.raises(KernelRuntimeError, match="already"):
        word.place(w)
    with pytest.raises(KernelRuntimeError, match="not placed"):
        w[0]


def test_invalid_components() -> None:
    with pytest.raises(ArgumentError, match="same type in kernels, not i32, f32"):
        ti.Vector.field(2, dtype=[quant.int(5), quant.fixed(6)])
    with pytest.raises(ArgumentError, match="2 types are needed"):
        ti.Vector.field(2, dtype=[quant.int(5), quant.int(6), quant.int(7)])
    with pytest.raises(Exception, match="without shape="):
        ti.Vector.field(2, dtype=[quant.int(5), quant.int(6)], shape=3)
    with pytest.raises(ti.Unsupported, match="no gradients"):
        ti.Vector.field(2, dtype=[quant.fixed(5), quant.fixed(6)], needs_grad=True)
    with pytest.raises(ArgumentError, match="same type, not.*a field of each"):
        ti.Vector.field(2, dtype=[ti.f32, ti.i32])
    v = separate()
    with pytest.raises(ArgumentError, match="no common memory"):
        v.to_numpy(copy=False)
    with pytest.raises(ArgumentError, match="components of `v`"):
        ti.StructField({"v": v})
    w = ti.Vector.field(2, dtype=[quant.int(5), quant.int(6)])
    for k in range(2):
        word = ti.BitpackedFields(max_num_bits=32)
        word.place(w.get_scalar_field(k))
        ti.root.dense(ti.i, 3 + k).place(word)
    with pytest.raises(ArgumentError, match=r"indices \[0, 3\) and \[0, 4\)"):
        w.fill(0)
