"""Views in Python: `x[2:10]`, `x[:, 3]`, `x[i]` of arrays, as numpy's, in the array's memory."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError
from vkchi.fields.views import Run

SHAPES = [(9,), (5, 7), (3, 4, 5)]
MEMORIES = pytest.mark.parametrize("is_field", [True, False], ids=["field", "ndarray"])


def array_of(values: Any, *, is_field: bool, dtype: Any = ti.f32, needs_grad: bool = False) -> Any:
    make = ti.field if is_field else ti.ndarray
    x = make(dtype, np.shape(values), needs_grad=needs_grad)
    x.from_numpy(np.asarray(values, dtype.dtype))
    return x


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A key with at least one slice, or too few indices."""
    count = int(rng.integers(1, len(shape) + 1))
    key: list[Any] = []
    for n in shape[:count]:
        if n and rng.integers(3) == 0:
            key.append(int(rng.integers(n)))
        else:
            begin, end = (None if rng.integers(3) == 0 else int(rng.integers(-n - 2, n + 3))
                          for _ in range(2))  # fmt: skip
            key.append(slice(begin, end, int(rng.integers(1, 4))))
    if count == len(shape) and all(isinstance(k, int) for k in key):
        key[-1] = slice(None)
    if rng.integers(5) == 0 and count < len(shape):
        key.insert(int(rng.integers(count + 1)), ...)
    return tuple(key) if len(key) > 1 or rng.integers(2) else key[0]


@MEMORIES
@pytest.mark.parametrize("shape", SHAPES)
def test_random_slices_read_and_write_like_numpys(is_field: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x = array_of(rng.random(shape), is_field=is_field)
    n = x.to_numpy()
    for _ in range(60):
        key = random_key(rng, shape)
        part, want = x[key], n[key]
        for _ in range(2):  # slices of slices
            if want.ndim and rng.integers(2):
                key = random_key(rng, want.shape)
                part, want = part[key], want[key]
        assert (part.shape, part.size, part.nbytes) == (want.shape, want.size, want.nbytes)
        assert part.ndim == want.ndim and (not want.ndim or len(part) == len(want))
        np.testing.assert_array_equal(part.to_numpy(), want)
        np.testing.assert_array_equal(np.asarray(part), want)
        if want.size:
            place = tuple(int(rng.integers(m)) for m in want.shape)
            assert part[place] == want[place]
            part[place] = want[place] = 7.5
        choice = rng.integers(3)
        if choice == 0:
            part.fill(3)
            want[...] = 3
        elif choice == 1:
            new = rng.random(want.shape).astype(np.float32)
            part.from_numpy(new)
            want[...] = new
        elif want.size:
            other = array_of(rng.random(want.shape), is_field=not is_field)
            part.copy_from(other)
            want[...] = other.to_numpy()
        np.testing.assert_array_equal(x.to_numpy(), n)


@MEMORIES
def test_assignments_broadcast_like_numpys(is_field: bool) -> None:
    x = array_of(np.arange(35).reshape(5, 7), is_field=is_field)
    n = x.to_numpy()
    for a in (x, n):
        a[1] = 2.5
        a[:, 2] = [1, 2, 3, 4, 5]
        a[2:4] = np.arange(7)
        a[::2, ::3] = a[1:4, 1:4]
        a[1:] = a[:-1]  # they overlap
        a[..., -1:] = 8
    np.testing.assert_array_equal(x.to_numpy(), n)
    with pytest.raises(ArgumentError, match=r"shape \(3,\) do not fit into .* shape \(7,\)"):
        x[0] = [1, 2, 3]
    with pytest.raises(ArgumentError, match="copy_from"):
        x[0] = x[1, 2:]


@MEMORIES
def test_vectors_and_matrices(is_field: bool) -> None:
    v = ti.Vector.field(3, ti.f32, (4, 5)) if is_field else ti.Vector.ndarray(3, ti.f32, (4, 5))
    m = ti.Matrix.field(2, 3, ti.f32, 6) if is_field else ti.Matrix.ndarray(2, 3, ti.f32, 6)
    v.from_numpy(np.arange(60).reshape(4, 5, 3))
    m.from_numpy(np.arange(36).reshape(6, 2, 3))
    row, some = v[2, ::2], m[1::2]
    assert (row.n, row.shape, row.element_shape) == (3, (3,), (3,))
    assert (some.n, some.m, some.nbytes) == (2, 3, 72)
    assert list(row[1]) == [36, 37, 38] and some[1][1, 2] == 23
    row[1] = [1, 2, 3]
    row[2][1] = 9
    some[0] = 5
    some[2][0, 1] = 6
    assert list(v[2, 2]) == [1, 2, 3] and v[2, 4][1] == 9
    assert m[1][1, 2] == 5 and m[5][0, 1] == 6
    v[:, 0] = [1, 0, 2]
    assert v.to_numpy()[:, 0].tolist() == [[1, 0, 2]] * 4


def test_fields_of_one_tree_keep_their_elements_apart() -> None:
    x, y = ti.field(ti.f32), ti.Vector.field(2, ti.f32)
    ti.root.dense(ti.ij, (4, 6)).place(x, y)
    part = y[1:3, ::2]
    part.fill(4)
    x[2:, 1] = 3
    assert part[1, 1][0] == 4 and y.to_numpy().sum() == 4 * 2 * 6
    assert x.to_numpy().sum() == 6
    component = y.get_scalar_field(1)[2]
    component[0] = 9
    assert list(y[2, 0]) == [4, 9]
    np.testing.assert_array_equal(component.to_numpy(), [9, 0, 4, 0, 4, 0])


def test_keys_that_select_no_view() -> None:
    x = ti.ndarray(ti.f32, (4, 6))
    for key, error, message in (
        (slice(None, None, -1), TypeError, "positive steps"),
        (slice(None, None, 0), TypeError, "zero"),
        (slice(1.5, None), TypeError, "slice indices must be integers"),
        ((1, slice(None), 2), IndexError, "2 axes"),
        (4, IndexError, "out of range for an axis of 4"),
        (-1, IndexError, "out of range for an axis of 4"),
        ((slice(None), 6), IndexError, "out of range for an axis of 6"),
        (None, IndexError, "2 axes"),
        ((..., ...), IndexError, "2 axes|Ellipsis"),
        ("a", IndexError, "2 axes"),
        (1.0, IndexError, "2 axes"),
    ):
        with pytest.raises(error, match=message):
            x[key]
        with pytest.raises(error, match=message):
            x[key] = 1


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (lambda x: ti.root.pointer(ti.i, 4).dense(ti.i, 4).place(x), "sparse"),
        (lambda x: ti.root.dense(ti.i, 16).place(x, offset=3), "offset"),
        (lambda x: ti.root.dense(ti.i, 4).dense(ti.j, 4).dense(ti.i, 4).place(x), "split an axis"),
    ],
)
def test_fields_without_views(place: Callable[[Any], None], why: str) -> None:
    x = ti.field(ti.f32)
    place(x)
    with pytest.raises(ArgumentError, match=why):
        x[4:6]


def test_copies_are_arrays_of_their_own() -> None:
    x = array_of(np.arange(12).reshape(3, 4), is_field=False, needs_grad=True)
    x.grad.fill(2)
    for made in (copy.deepcopy(x[1:, ::2]), pickle.loads(pickle.dumps(x[1:, ::2]))):
        made[0, 0] = 99
        assert isinstance(made, ti.Ndarray) and made.grad[1, 1] == 2
    assert x[1, 0] == 4 and copy.copy(x[1]).whole is x
    assert "shape=(4,)" in repr(x[1]) and repr(x[1]).startswith("ti.ndarray([4")


def test_other_libraries_share_the_memory() -> None:
    torch = pytest.importorskip("torch")
    x = array_of(np.arange(24).reshape(4, 6), is_field=False)
    if x.host is None:
        pytest.skip("the host does not reach this device's memory")
    view, tensor = np.from_dlpack(x[1:3, ::2]), torch.from_dlpack(x[:, 4])
    view = view if view.flags.writeable else x[1:3, ::2].in_place()
    view[0, 1] = -1
    tensor[3] = -2
    assert x[1, 2] == -1 and x[3, 4] == -2
    assert x[2].to_numpy(copy=False)[1] == 13
    x[0].from_torch(torch.ones(6))
    assert x[0].to_torch().tolist() == [1] * 6


def test_views_of_a_destroyed_tree() -> None:
    builder, q = ti.FieldsBuilder(), ti.field(ti.f32)
    builder.dense(ti.i, 8).place(q)
    tree = builder.finalize()
    part, unused = q[2:5], q[1:]
    part.fill(1)
    tree.destroy()
    for act in (
        lambda: part[0], lambda: part.fill(1), part.to_numpy, lambda: part[1:][0],
        lambda: unused[0], lambda: part.copy_from(part[:]),
    ):  # fmt: skip
        with pytest.raises(ti.TaichiRuntimeError, match="destroyed"):
            act()


# --- kernels -------------------------------------------------------------------------------------


@ti.kernel
def add_places(a: ti.types.ndarray(), s: ti.f32):
    for place in ti.grouped(a):
        total = s
        for k in ti.static(range(len(a.shape))):
            total += place[k] * (k + 2) + a.shape[k]
        a[place] += total


@ti.kernel
def add_places_of_field(a: ti.template(), s: ti.f32):
    for place in ti.grouped(a):
        total = s
        for k in ti.static(range(len(a.shape))):
            total += place[k] * (k + 2) + a.shape[k]
        a[place] += total


@MEMORIES
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_of_random_slices(is_field: bool, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = array_of(rng.integers(0, 9, shape), is_field=is_field)
    n = x.to_numpy()
    for _ in range(4 if is_field else 12):
        key = random_key(rng, shape)
        part, want = x[key], n[key]
        if want.ndim == 0:
            continue
        (add_places_of_field if is_field else add_places)(part, 1.0)
        want += 1.0 + sum(want.shape)
        for k, places in enumerate(np.indices(want.shape)):
            want += places * (k + 2)
        np.testing.assert_array_equal(x.to_numpy(), n, str(key))


@ti.kernel
def shift(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for _ in range(1):
        for i in range(a.shape[0]):
            b[i] = a[i] + 1


def test_parts_of_one_array_alias() -> None:
    x = array_of(np.zeros(9), is_field=False)
    shift(x[:-1], x[1:])  # each iteration reads what the one before wrote
    assert x.to_numpy().tolist() == list(range(9))
    shift(x[1::2], x[::2])
    assert x.to_numpy().tolist() == [2, 1, 4, 3, 6, 5, 8, 7, 8]
    shift(x[4:], x)  # a view and its base
    assert x.to_numpy().tolist() == [7, 6, 9, 8, 9, 5, 8, 7, 8]


@ti.kernel
def two_loops(a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray()):
    for i in a:
        a[i] = i
    for i in b:
        c[i] = b[b.shape[0] - 1 - i]


def test_loops_over_overlapping_views_are_not_fused() -> None:
    x, c = array_of(np.zeros(12), is_field=False), ti.ndarray(ti.f32, 8)
    for _ in range(3):
        x.fill(-1)
        two_loops(x[2:10], x[4:12], c)
        want = np.full(12, -1.0)
        want[2:10] = np.arange(8)
        np.testing.assert_array_equal(c.to_numpy(), want[4:12][::-1])


def test_successive_launches_over_overlapping_views() -> None:
    x = array_of(np.zeros(16), is_field=False)
    want = np.zeros(16)
    with ti.record() as steps:
        add_places(x[:8], 1.0)
        add_places(x[1:9], 2.0)
        shift(x[::2], x[1::2])
    for _ in range(3):
        steps.run()
        for begin, s in ((0, 1), (1, 2)):
            want[begin : begin + 8] += s + 8 + 2 * np.arange(8)
        want[1::2] = want[::2] + 1
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_one_code_for_bounds_and_another_for_steps() -> None:
    x, y = ti.ndarray(ti.f32, 64), ti.ndarray(ti.f32, 32)

    @ti.kernel
    def fill(a: ti.types.ndarray(ndim=1)):
        for i in a:
            a[i] = i

    for n in range(1, 20):
        fill(x[n : 2 * n])
        fill(y[n:])
        assert x[n : 2 * n].to_numpy().tolist() == list(range(n))
    (cache,) = fill._caches.values()
    counts = [len(part.compiled) for _, part in cache.views.values()]
    assert counts == [1]
    fill(x[::2])
    assert len(cache.views) == 2
    with pytest.raises(ArgumentError, match="1 axis is needed, it has 2"):
        fill(ti.ndarray(ti.f32, (4, 4))[1:])
    with pytest.raises(ArgumentError, match=r"ti.template\(\)"):
        fill(ti.field(ti.f32, 4)[1:])


def test_empty_views() -> None:
    x = array_of(np.ones(8), is_field=False)
    add_places(x[5:5], 1.0)
    add_places(x[6:2], 1.0)
    x[3:3] = 4
    x[3:3] = x[1:1]
    assert x[3:3].to_numpy().shape == (0,) and x.to_numpy().sum() == 8


def test_bytes_of_structs() -> None:
    s = ti.types.struct(a=ti.f32, v=ti.types.vector(3, ti.f32), k=ti.types.struct(n=ti.i32))
    for x in (s.field(shape=(2, 5)), ti.ndarray(s, (2, 5))):
        assert (x.nbytes, x.size, len(x), x.ndim) == (10 * 5 * 4, 10, 2, 2)
        assert x.v[1, ::2].nbytes == 3 * 12


def test_optional_and_tensor_parameters() -> None:
    @ti.kernel
    def total(a: ti.Tensor, b: ti.types.ndarray() | None) -> ti.f32:
        found = 0.0
        for i in range(a.shape[0]):
            found += a[i]
            if ti.static(b is not None):
                found += b[i]
        return found

    x, f = (array_of(np.arange(8), is_field=is_field) for is_field in (False, True))
    assert total(x[2:4], None) == 5
    assert total(f[::4], None) == 4
    assert total(f[:2], x[4:]) == 1 + 9
    assert total(x[:2], x[4:]) == 1 + 9


def test_captured_views() -> None:
    class Part:
        def __init__(self, base: Any) -> None:
            self.whole = base
            self.part = base[2:8:2]

    for is_field in (True, False):
        part = Part(array_of(np.zeros(10), is_field=is_field))

        @ti.kernel
        def run():
            for i in part.part:  # noqa: B023
                part.part[i] += i + 1  # noqa: B023

        run()
        part.part = part.whole[1:3]
        run()
        run()
        assert part.whole.to_numpy().tolist() == [0, 2, 5, 0, 2, 0, 3, 0, 0, 0]
        other = array_of(np.zeros(4), is_field=is_field)
        part.part = other[1:]
        run()
        assert other.to_numpy().tolist() == [0, 1, 2, 3]


def test_functions_take_views() -> None:
    @ti.func
    def add(row: ti.template(), s):
        for k in row:
            row[k] += s

    @ti.kernel
    def run(a: ti.types.ndarray(ndim=2)):
        for i in range(a.shape[0]):
            add(a[i, 1:], i + 1)

    x = array_of(np.zeros((4, 6)), is_field=False)
    run(x[1:3, ::2])
    assert x.to_numpy()[1:3].tolist() == [[0, 0, 1, 0, 1, 0], [0, 0, 2, 0, 2, 0]]


def test_an_index_beyond_the_view_is_reported(init: Any) -> None:
    init(debug=True)
    x, f = ti.ndarray(ti.f32, 10), ti.field(ti.f32, (4, 4))
    part = f[:, 1]

    @ti.kernel
    def put(a: ti.types.ndarray(), k: ti.i32):
        a[k] = 1

    @ti.kernel
    def put_in_field(k: ti.i32):
        part[k] = 1

    put(x[2:5], 2)
    with pytest.raises(ti.TaichiAssertionError, match=r"accessing `a` of size \(3\).*\(3\)"):
        put(x[2:5], 3)
    put_in_field(3)
    with pytest.raises(ti.TaichiAssertionError, match=r"size \(4\).*\(4\)"):
        put_in_field(4)
    assert x.to_numpy().sum() == 1 and f.to_numpy().sum() == 1


def test_threads_call_kernels_with_views() -> None:
    x = array_of(np.zeros((8, 16)), is_field=False)

    def run(k: int) -> None:
        for _ in range(20):
            add_places(x[k, ::2], 1.0)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = np.zeros((8, 16))
    want[:4, ::2] = 20 * (1 + 8 + 2 * np.arange(8))
    np.testing.assert_array_equal(x.to_numpy(), want)


CACHED = """
import sys, numpy as np, vkchi as ti
ti.init()
x, f = ti.ndarray(ti.f32, 12), ti.field(ti.f32, 12)
part = f[1:12:int(sys.argv[1])]
@ti.kernel
def run(a: ti.types.ndarray()):
    for i in a: a[i] = i + 1
    for i in part: part[i] = i + 1
run(x[1:12:int(sys.argv[1])])
want = np.zeros(12); k = np.arange(1, 12, int(sys.argv[1])); want[k] = range(1, len(k) + 1)
assert (x.to_numpy() == want).all() and (f.to_numpy() == want).all(), (x, f)
"""


def test_the_disk_cache_knows_steps(tmp_path: Path) -> None:
    script = tmp_path / "cached.py"
    script.write_text(CACHED)
    env = {**os.environ, "VKCHI_CACHE": "1", "VKCHI_CACHE_DIR": str(tmp_path / "cache")}
    env["VKCHI_DUMP_SPV"] = ""  # would compile all kernels
    for step in ("1", "2", "3", "2"):
        subprocess.run([sys.executable, str(script), step], env=env, check=True)


def test_unsupported_arguments() -> None:
    x = ti.ndarray(ti.f32, 8)

    @ti.kernel
    def clamped(a: ti.types.ndarray(boundary="clamp")):
        a[0] = 1

    @ti.kernel
    def templated(a: ti.template()):
        a[0] = 1

    pack = ti.types.argpack(a=ti.types.ndarray(boundary="clamp"))

    @ti.kernel
    def packed(p: pack):
        p.a[0] = 1

    for act, message in (
        (lambda: clamped(x[1:]), "clamp"),
        (lambda: templated(x[1:]), "an ndarray is no template"),
        (lambda: packed(pack(a=x[1:])), "clamp"),
        (lambda: ti.aot.Module().add_kernel(add_places, template_args={"a": x[1:]}), "a copy of"),
        (lambda: ti.spatial.HashGrid(x[1:], 0.1), "not <view of a ti.ndarray"),
        (lambda: x[1:] + 1, "to_numpy"),
    ):
        with pytest.raises(ti.TaichiRuntimeError, match=message):
            act()


# --- gradients -----------------------------------------------------------------------------------


@ti.kernel
def triple_squares(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for i in a:
        b[i] = a[i] * a[i] * 3.0


@ti.kernel
def weigh(a: ti.types.ndarray(), loss: ti.types.ndarray()):
    for i, j in a:
        loss[None] += a[i, j] * (1 + i + 10 * j)


@ti.kernel
def triple_squares_of_fields(a: ti.template(), b: ti.template()):
    for i in a:
        b[i] = a[i] * a[i] * 3.0


@ti.kernel
def weigh_field(a: ti.template(), loss: ti.template()):
    for i, j in a:
        loss[None] += a[i, j] * (1 + i + 10 * j)


def steps(x: Any, square: Callable[..., None]) -> None:
    square(x[1], x[3])
    square(x[:, 0], x[:, 2])
    x[0:2, 1] = 5.0
    x[::2, 3] = x[1::2, 3]
    x[4, 1:] = x[2, :3]
    x[1:, 0] = x[:-1, 0]  # they overlap
    x[5, 1:3] = np.array([0.5, 0.25], np.float32)
    x[2, 0] = 1.5
    square(x[4, 2:], x[1, :2])


def square_numpy(a: Any, b: Any) -> None:
    b[...] = a**2 * 3


@MEMORIES
def test_gradients_flow_through_views(is_field: bool) -> None:
    rng = np.random.default_rng(3)
    x = array_of(rng.random((6, 4)), is_field=is_field, needs_grad=True)
    loss = array_of(0, is_field=is_field, needs_grad=True)
    before = x.to_numpy()
    square, total = (triple_squares_of_fields, weigh_field) if is_field else (triple_squares, weigh)
    with ti.ad.Tape(loss):
        steps(x, square)
        total(x[:, :], loss)

    def value(values: Any) -> float:
        n = values.copy()
        steps(n, square_numpy)
        return float((n * (1 + np.arange(6)[:, None] + 10 * np.arange(4))).sum())

    assert loss[None] == pytest.approx(value(before.astype(float)), rel=1e-5)
    for place in np.ndindex(6, 4):
        more, less = before.astype(float), before.astype(float)
        more[place] += 1e-4
        less[place] -= 1e-4
        slope = (value(more) - value(less)) / 2e-4
        assert x.grad[place] == pytest.approx(slope, rel=1e-3, abs=1e-3), place
    assert x[1:].grad.whole is x.grad
    np.testing.assert_array_equal(x[1, ::2].grad.to_numpy(), x.grad.to_numpy()[1, ::2])


def test_the_gradient_of_one_call() -> None:
    x = array_of(np.arange(12).reshape(3, 4), is_field=False, needs_grad=True)
    x.grad[2] = 1
    x[0].grad.fill(7)
    triple_squares(x[1], x[2])
    triple_squares.grad(x[1], x[2])
    want = [[7] * 4, [24, 30, 36, 42], [0] * 4]
    assert x.grad.to_numpy().tolist() == want


@ti.kernel
def double(a: ti.types.ndarray(), b: ti.types.ndarray()):
    for i in a:
        b[i] = 2 * a[i]


def test_a_base_that_views_overwrote_in_part() -> None:
    """The part keeps its derivative, and a part that is overwritten by a constant loses it."""
    x, y = (array_of(np.ones(8), is_field=False, needs_grad=True) for _ in range(2))
    with ti.ad.Tape() as tape:
        double(x, y)
        y[:4] = 3.0
        double(x[:2], y[2:4])
    tape.backward({y: 1.0})
    assert x.grad.to_numpy().tolist() == [2, 2, 0, 0, 2, 2, 2, 2]


def test_views_whose_bounds_need_64_bits_are_no_arguments() -> None:
    """Without memory of that size: the axes of a small view are replaced."""
    x = array_of(np.zeros(4), is_field=False)
    for run in (Run(2**31, 1, 2, 0), Run(0, 2, 2**31, 0)):
        v = x[1:3]
        v.axes = (run,)
        with pytest.raises(ArgumentError, match="beyond 2147483647"):
            double(v, x)
    assert x[1:3].numbers == (1, 2)


def test_unsupported_outputs_of_tapes() -> None:
    x, y = (array_of(np.ones(4), is_field=False, needs_grad=True) for _ in range(2))
    with ti.ad.Tape() as tape:
        double(x[:2], y[2:])
    loss = array_of(0, is_field=False, needs_grad=True)
    for act in (
        lambda: ti.ad.hvp(lambda: None, loss, x[1:], 1.0),
        lambda: ti.ad.Tape(x[:1]).__enter__(),
    ):
        with pytest.raises(ti.TaichiRuntimeError, match="whole array"):
            act()
    tape.backward({y: 1.0})
    assert x.grad.to_numpy().tolist() == [2, 2, 0, 0]


@MEMORIES
def test_writes_of_python_inside_a_tape(is_field: bool) -> None:
    """Of integers, vectors and other types, and by a host array."""
    v = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    if not is_field:
        v = ti.Vector.ndarray(2, ti.f32, 4, needs_grad=True)
    count = array_of(np.arange(6), is_field=is_field, dtype=ti.i32)
    x = array_of(np.ones(6), is_field=False, needs_grad=True)
    loss = array_of(0, is_field=False, needs_grad=True)

    @ti.kernel
    def total(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i in a:
            b[None] += a[i] * a[i]

    with ti.ad.Tape(loss):
        v[1:].fill(3)
        v[2:] = [1, 2]
        v[:1] = v[3:]
        count[2:4] = 7
        count[4:] = count[:2]
        count[:1] = np.array([5])
        x[1:3] = count[3:5]
        x[4:].from_numpy(np.array([2, 3]))
        total(x[:], loss)
    assert v.to_numpy().tolist() == [[1, 2], [3, 3], [1, 2], [1, 2]]
    assert count.to_numpy().tolist() == [5, 1, 7, 7, 0, 1]
    assert x.to_numpy().tolist() == [1, 7, 0, 1, 2, 3] and loss[None] == 64
    assert x.grad.to_numpy().tolist() == [2, 14, 0, 2, 4, 6]  # no kernel used x before


@MEMORIES
def test_numbers_that_python_computes_from_a_derivative_are_no_constants(is_field: bool) -> None:
    x = array_of(np.ones(4), is_field=is_field, needs_grad=True)
    y = array_of(np.zeros(4), is_field=is_field, needs_grad=True)
    loss = array_of(0, is_field=is_field, needs_grad=True)

    @ti.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i]

    with pytest.raises(ti.ad.GradientError, match="Python"), ti.ad.Tape(loss):
        double()
        y[1:3] = y[1] * 2
        total()
    loss.fill(0)
    with ti.ad.Tape(loss):
        double()
        assert y[1] == 2
        y[1:3] = 0.5
        total()
    assert x.grad.to_numpy().tolist() == [2, 0, 0, 2] and loss[None] == 5


WRITES: list[Callable[[Any], None]] = [
    lambda x: x[1:3].from_numpy(np.array([2, 2], np.float32)),
    lambda x: x[1:3].fill(2),
    lambda x: x.__setitem__(slice(1, 3), [2, 2]),
    lambda x: x.__setitem__(slice(1, 3), np.float32(2)),
]


@MEMORIES
@pytest.mark.parametrize("write", WRITES)
def test_writes_before_kernels_are_inputs_and_after_are_constants(
    write: Callable[[Any], None], is_field: bool
) -> None:
    """As writes of elements are, in reverse mode and in `hvp`."""
    x, loss = (array_of(n, is_field=is_field, needs_grad=True) for n in (np.ones(4), 0))

    @ti.kernel
    def cubes(x: ti.template(), loss: ti.template()):
        for i in x:
            loss[None] += x[i] ** 3

    @ti.kernel
    def cubes_of_ndarray(x: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] ** 3

    total = cubes if is_field else cubes_of_ndarray

    def run() -> None:
        write(x)
        total(x, loss)

    with ti.ad.Tape(loss):
        run()
    assert x.grad.to_numpy().tolist() == [3, 12, 12, 3]
    with ti.ad.Tape(loss):
        total(x, loss)
        run()
    assert x.grad.to_numpy().tolist() == [6, 12, 12, 6] and loss[None] == 36
    assert ti.ad.hvp(run, loss, x, np.ones(4)).tolist() == [6, 12, 12, 6]


@MEMORIES
def test_values_that_python_computed_from_a_slice_are_unknown(is_field: bool) -> None:
    def steps(act: Callable[[Any], None]) -> Any:
        x, y = (array_of(np.arange(1, 7), is_field=is_field, needs_grad=True) for _ in range(2))
        with ti.ad.Tape() as tape:
            double = run_field if is_field else run_ndarray
            double(x, y)
            act(y)
        tape.backward({y: 1.0})
        return x.grad.to_numpy().tolist()

    @ti.kernel
    def run_field(a: ti.template(), b: ti.template()):
        for i in a:
            b[i] = 2 * a[i]

    @ti.kernel
    def run_ndarray(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i in a:
            b[i] = 2 * a[i]

    def halve(y: Any) -> None:
        y[1:3] = y[1:3].to_numpy() / 2

    def scale(y: Any) -> None:
        y[1:5:2] = [y[1] * 2, 0]

    def set_others(y: Any) -> None:
        assert y[0] == 2
        y[1:5:2] = [1, 2]

    for act in (halve, scale):
        with pytest.raises(ti.ad.GradientError, match="overwritten by Python, which had read it"):
            steps(act)
    assert steps(set_others) == [2, 0, 2, 0, 2, 2]


def test_a_constant_view_beside_another_of_its_base() -> None:
    x, y = (array_of(np.full(4, 3.0), is_field=False, needs_grad=True) for _ in range(2))

    @ti.kernel
    def product(
        a: ti.types.ndarray(needs_grad=False), b: ti.types.ndarray(), c: ti.types.ndarray()
    ):
        for i in a:
            c[i] = a[i] * b[i]

    with ti.ad.Tape() as tape:
        product(x[:2], x[2:], y[1:3])
    tape.backward({y: 1.0})
    assert x.grad.to_numpy().tolist()[2:] == [3, 3]


def test_a_gradient_is_needed_where_annotated() -> None:
    @ti.kernel
    def run(a: ti.types.ndarray(), b: ti.types.ndarray(needs_grad=True)):
        b[0] = a[0]

    x = ti.ndarray(ti.f32, 4)
    with pytest.raises(ArgumentError, match="an array with a gradient is needed"):
        run(x, x[1:])


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_strides_are_those_of_numpy(order: str) -> None:
    a = np.zeros((6, 8), np.float32, order="C" if order == "ij" else "F")
    for x in (ti.field(ti.f32, (6, 8), order=order), ti.ndarray(ti.f32, (6, 8), order=order)):
        for index in (np.s_[1:5:2], np.s_[2], np.s_[:, 3], np.s_[::2, 1:7:3], np.s_[2:3, 8:]):
            assert x[index].strides == a[index].strides, index
    v = ti.Vector.ndarray(3, ti.f32, 10)
    assert v[2:8:2].strides == (24,)
