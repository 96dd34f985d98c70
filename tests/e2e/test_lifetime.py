"""Memory is freed when objects die, counted in bytes of the device; arrays after reset."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

N = 1 << 16


@ti.kernel
def increase(f: ti.template()):
    for i in f:
        f[i] += 1


@ti.kernel
def increase_array(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


@ti.data_oriented
class Solver:
    def __init__(self) -> None:
        self.x = ti.field(ti.f32, N)

    @ti.kernel
    def run(self):
        for i in self.x:
            self.x[i] += 1


def run_closure() -> Any:
    x = ti.field(ti.f32, N)

    @ti.kernel
    def run():
        for i in x:
            x[i] += 1

    run()
    return run


def place() -> Any:
    x = ti.field(ti.f32)
    ti.root.dense(ti.i, N).place(x)
    x[0] = 1
    return x


def build() -> Any:
    x, builder = ti.field(ti.f32), ti.FieldsBuilder()
    builder.dense(ti.i, N).place(x)
    builder.finalize()
    return x


def used_bytes() -> int:
    """Memory that arrays hold on the device, after launches are done."""
    device = current_runtime().device
    ti.sync()
    device.sweep()
    return device.heap.used_bytes


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only the count of references frees objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


MAKERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "field": (lambda: ti.field(ti.f32, N), lambda x: x[0]),
    "field in a kernel": (lambda: ti.field(ti.f32, N), increase),
    "field with a gradient": (lambda: ti.field(ti.f32, N, needs_grad=True), increase),
    "vector field": (lambda: ti.Vector.field(3, ti.f32, N), increase),
    "struct field": (lambda: ti.Struct.field({"a": ti.f32, "b": ti.i32}, shape=N), lambda x: x[0]),
    "placed field": (place, increase),
    "field of a builder": (build, increase),
    "ndarray": (lambda: ti.ndarray(ti.f32, N), increase_array),
    "ndarray with a gradient": (lambda: ti.ndarray(ti.f32, N, needs_grad=True), increase_array),
    "matrix ndarray": (lambda: ti.Matrix.ndarray(2, 2, ti.f32, N), increase_array),
    "numpy argument": (lambda: np.zeros(N, np.float32), increase_array),
    "field of a kernel": (run_closure, lambda run: run()),
    "field of an object": (Solver, lambda solver: solver.run()),
    "copy": (lambda: copy.deepcopy(ti.ndarray(ti.f32, N)), increase_array),
    "element": (lambda: ti.Vector.field(2, ti.f32, N)[3], lambda v: v + 1),
}


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("name", MAKERS)
def test_memory_is_freed(name: str) -> None:
    make, use = MAKERS[name]
    use(make())
    before = used_bytes()
    for _ in range(3):
        thing = make()
        use(thing)
        del thing
        assert used_bytes() == before


def test_memory_stays_as_long_as_something_is_left() -> None:
    before = used_bytes()
    x = ti.Vector.field(2, ti.f32, N)
    element = x[3]
    del x
    assert used_bytes() > before
    element[0] = 5
    assert element.to_list() == [5, 0]


def test_a_result_is_a_copy() -> None:
    x = ti.field(ti.f32, 8)
    values = x.to_numpy()
    x.fill(3)
    del x
    gc.collect()
    assert values.tolist() == [0] * 8


# --- after reset ----------------------------------------------------------------------------------

OLD = {
    "read a field": lambda f, x, v, t: f[0],
    "write a field": lambda f, x, v, t: f.__setitem__(0, 1),
    "field to numpy": lambda f, x, v, t: f.to_numpy(),
    "field from numpy": lambda f, x, v, t: f.from_numpy(np.zeros(4, np.float32)),
    "fill a field": lambda f, x, v, t: f.fill(0),
    "read an ndarray": lambda f, x, v, t: x[0],
    "ndarray to numpy": lambda f, x, v, t: x.to_numpy(),
    "numpy reads it": lambda f, x, v, t: np.asarray(x),
    "pickle an ndarray": lambda f, x, v, t: pickle.dumps(x),
    "copy an ndarray": lambda f, x, v, t: copy.deepcopy(x),
    "read an element": lambda f, x, v, t: v[0],
    "write an element": lambda f, x, v, t: v.__setitem__(0, 1),
    "pass an ndarray": lambda f, x, v, t: increase_array(x),
    "pass a field": lambda f, x, v, t: increase(f),
    "run a kernel on a field": lambda f, x, v, t: t(),
    "copy from": lambda f, x, v, t: ti.field(ti.f32, 4).copy_from(f),
}


def make_old() -> tuple[Any, ...]:
    f, x, v = ti.field(ti.f32, 4), ti.ndarray(ti.f32, 4), ti.Vector.field(2, ti.f32, 4)

    @ti.kernel
    def touch():
        for i in f:
            f[i] += 1

    touch(), increase(f), increase_array(x)
    return f, x, v[1], touch


@pytest.mark.usefixtures("own_runtime")
@pytest.mark.parametrize("use", OLD)
def test_old_arrays_after_init(use: str) -> None:
    ti.init()
    old = make_old()
    ti.init()
    with pytest.raises(ti.VkchiError, match=r"reset|freed"):
        OLD[use](*old)
    fresh = ti.field(ti.f32, 4)
    increase(fresh)
    assert fresh[3] == 1


@pytest.mark.usefixtures("own_runtime")
def test_after_reset_init_is_needed() -> None:
    ti.init()
    f, x, v, touch = make_old()
    ti.reset()
    ti.reset()
    for use in (lambda: ti.field(ti.f32, 3), lambda: ti.ndarray(ti.f32, 3), touch, ti.sync):
        with pytest.raises(ti.TaichiRuntimeError, match=r"call ti.init\(\) first"):
            use()
    with pytest.raises(ti.TaichiRuntimeError):
        f[0]
    assert "ti.ndarray" in repr(x) and "ti.field" in repr(f)


@pytest.mark.usefixtures("own_runtime")
def test_kernels_and_types_live_on() -> None:
    @ti.kernel
    def make(v: float) -> ti.math.vec2:
        return ti.math.vec2(v, 2 * v)

    ti.init()
    assert make(1.5).to_list() == [1.5, 3.0]
    ti.init(default_fp=ti.f32)
    assert make(1.5).to_list() == [1.5, 3.0]
    value = ti.Vector([1, 2])
    ti.reset()
    assert (value + 1).to_list() == [2, 3]


@pytest.mark.usefixtures("own_runtime")
def test_init_again_frees_earlier_memory() -> None:
    for _ in range(3):
        ti.init()
        before = used_bytes()
        x = ti.field(ti.f32, N)
        x.fill(1)
        assert used_bytes() - before == used_of(N)


def used_of(n: int) -> int:
    """Memory of an array of n f32: its numbers, a spare one, in units of the allocator."""
    x = ti.ndarray(ti.f32, n)
    before = used_bytes()
    del x
    return before - used_bytes()


# --- copies ---------------------------------------------------------------------------------------


def test_a_copy_of_a_field_outlives_its_tree() -> None:
    x = ti.field(ti.i32)
    builder = ti.FieldsBuilder()
    builder.dense(ti.i, 3).place(x)
    tree = builder.finalize()
    x.fill(4)
    y = copy.deepcopy(x)
    tree.destroy()

    @ti.kernel
    def add():
        for i in y:
            y[i] += i

    add()
    assert y.to_numpy().tolist() == [4, 5, 6]


def test_a_copy_of_a_component_is_not_the_field() -> None:
    x = ti.Vector.field(2, ti.i32, 3)
    x.fill(2)
    y = copy.deepcopy(x.get_scalar_field(1))

    @ti.kernel
    def add():
        for i in x:
            y[i] += 1
            x[i] += 10

    add()
    assert y.to_numpy().tolist() == [3] * 3 and x.to_numpy().tolist() == [[12, 12]] * 3


def test_a_shallow_copy_is_the_array() -> None:
    x = ti.field(ti.i32, shape=())
    y = copy.copy(x)
    a = ti.ndarray(ti.i32, 3)

    @ti.kernel
    def add() -> ti.i32:
        for _ in range(1):
            x[None] = 1
            y[None] = 2
            for _ in range(5):
                x[None] += y[None]
        return x[None]

    assert add() == 64
    assert copy.copy(a) is a


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ti.ndarray(ti.f32, (2, 3)),
        lambda: ti.ndarray(ti.i32, ()),
        lambda: ti.ndarray(ti.u1, 5),
        lambda: ti.Vector.ndarray(3, ti.i32, 4),
        lambda: ti.Matrix.ndarray(2, 2, ti.f32, (2, 2)),
        lambda: ti.ndarray(ti.math.vec3, 2, needs_grad=True),
    ],
)
def test_copies_of_ndarrays(make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
    x = make()
    x.fill(1)
    if x.grad is not None:
        x.grad.fill(2)
    y = copied(x)
    assert type(y) is type(x) and y.get_type() == x.get_type()
    x.fill(0)
    assert y.to_numpy().all() and not x.to_numpy().any()
    if x.grad is not None:
        x.grad.fill(0)
        assert (y.grad.to_numpy() == 2).all()


@pytest.mark.parametrize(
    "value",
    [
        ti.Vector([1, 2]),
        ti.Vector([1.5, 2], dt=ti.f32),
        ti.Matrix([[1, 2], [3, 4]]),
        ti.math.mat2(1, 2, 3, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_of_values(value: Any, copied: Callable[[Any], Any]) -> None:
    made = copied(value)
    assert type(made) is type(value) and made.dt is value.dt
    assert made.to_list() == value.to_list()


@pytest.mark.parametrize(
    "t", [ti.f32, ti.u1, ti.types.vector(3, ti.i32), ti.types.matrix(2, 3, ti.f64), ti.math.vec3]
)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_types(t: Any, copied: Callable[[Any], Any]) -> None:
    made = copied(t)
    assert str(made) == str(t)
    assert made is t or made.type is t.type


def test_fields_are_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"pickle x.to_numpy\(\), and give it to from_numpy"):
        pickle.dumps(ti.field(ti.f32, 3))
    x = ti.Vector.field(2, ti.f32, 3)
    x[1] = [1, 2]
    assert pickle.loads(pickle.dumps(x[1])).to_list() == [1, 2]


def test_kernels_and_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(increase)) is increase
    assert copy.deepcopy(increase) is increase and copy.copy(increase) is increase
