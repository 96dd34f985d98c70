"""Arguments of kernels: host arrays of every sort, numbers, templates, methods."""

import sys
from contextlib import nullcontext

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import CompilationError


@ti.kernel
def increase(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


@ti.kernel
def shift_then_double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        x[i] = y[i] + 1
    for i in y:
        y[i] = y[i] * 2


@ti.kernel
def dot(x: ti.types.ndarray(), y: ti.types.ndarray()) -> ti.f32:
    total = 0.0
    for i in x:
        total += x[i] * y[i]
    return total


def test_the_same_numpy_array_twice():
    a = np.arange(4, dtype=np.float32)
    shift_then_double(a, a)
    assert a.tolist() == [2, 4, 6, 8]
    b = np.arange(8, dtype=np.float32)
    shift_then_double(b[::2], b[::2])
    assert b.tolist() == [2, 1, 6, 3, 10, 5, 14, 7]


def test_numpy_and_torch_views_of_the_same_memory():
    torch = pytest.importorskip("torch")
    a = np.arange(4, dtype=np.float32)
    shift_then_double(a, torch.from_numpy(a))
    assert a.tolist() == [2, 4, 6, 8]


def test_overlapping_views():
    a = np.arange(6, dtype=np.float32)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="`x` and `y` overlap in memory"):
        shift_then_double(a[:5], a[1:])
    assert a.tolist() == [0, 1, 2, 3, 4, 5]
    assert dot(a[:5], a[1:]) == float(a[:5] @ a[1:])  # reading is fine
    shift_then_double(a[:3], a[3:])
    assert a.tolist() == [4, 5, 6, 6, 8, 10]
    shift_then_double(a[::2], a[1::2])
    assert a.tolist() == [6, 10, 7, 12, 11, 20]


@ti.kernel
def increase_all(x: ti.types.ndarray()):
    for place in ti.grouped(x):
        x[place] += 1


def strided(shape, steps):
    """A view of numbers, with so many numbers from one element to the next along each axis."""
    whole = np.zeros(64, np.float32)
    return np.lib.stride_tricks.as_strided(whole, shape, [4 * step for step in steps])


@pytest.mark.parametrize(
    "shape, steps",
    [((3, 2), (1, 1)), ((5,), (0,)), ((2, 3), (0, 1)), ((3, 3), (2, 4)), ((4, 3, 2), (3, 2, 10))],
)
def test_views_that_overlap_themselves(shape, steps):
    view = strided(shape, steps)
    says = r"increase_all\(\): argument `x`: the kernel writes to it at .*test_arguments.py:\d+:9, "
    with pytest.raises(ti.TaichiRuntimeTypeError, match=says + "and several of its elements are"):
        increase_all(view)
    assert not view.any()
    assert dot(strided((5,), (0,)), np.ones(5, np.float32)) == 0  # reading is fine


@pytest.mark.parametrize(
    "shape, steps",
    [
        ((2, 3), (3, 2)),
        ((3, 3), (3, 2)),
        ((1, 3), (0, 1)),
        ((0, 3), (0, 0)),
        ((2, 3, 2), (1, 2, 6)),
    ],
)
def test_views_with_interleaved_elements(shape, steps):
    view = strided(shape, steps)
    increase_all(view)
    assert np.array_equal(view, np.ones(shape))


def test_elements_that_share_bytes():
    view = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (3,), (2,))
    with pytest.raises(ti.TaichiRuntimeTypeError, match="the same memory: pass a copy"):
        increase(view)


def test_expanded_tensors():
    torch = pytest.importorskip("torch")
    for tensor in (torch.zeros(1).expand(3), torch.zeros(3, 1).expand(3, 2)):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="the same memory: pass a copy"):
            increase_all(tensor)
    tensor = torch.zeros(1, 3).expand(1, 3)
    increase_all(tensor)
    assert tensor.tolist() == [[1, 1, 1]]


def test_wrong_arguments_name_the_line_of_the_call():
    masked = np.ma.array([1.0, 2.0], mask=[0, 1], dtype=np.float32)
    symbol = ti.graph.Arg(ti.graph.ArgKind.NDARRAY, "x", ti.f32, ndim=1)
    builder = ti.graph.GraphBuilder()
    builder.dispatch(increase, symbol)
    graph = builder.compile()
    wrong = ti.graph.GraphBuilder()
    wrong.dispatch(increase, 3)
    lines = []
    for call in (
        lambda: increase(masked),
        lambda: increase(masked, 3),
        lambda: wrong.compile().run({}),
        lambda: builder.dispatch(increase),
        lambda: graph.run({"x": masked}),
        lambda: graph.run({}),
    ):
        with pytest.raises(ti.TaichiRuntimeTypeError) as e:
            call()
        span = e.value.span
        assert span is not None and span.file == __file__
        lines.append(span.line - call.__code__.co_firstlineno)
        if sys.version_info >= (3, 11):
            assert f"called at {span.place}\n" in e.value.__notes__[0]
    assert lines == [0] * 6


def test_masked_arrays():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0], dtype=np.float32)
    says = r"argument `x`: a masked numpy array, and kernels know no masks: pass x.filled\(value\)"
    with pytest.raises(ti.TaichiRuntimeTypeError, match=says):
        increase(masked)
    increase(masked.data)
    assert masked.filled(9).tolist() == [2, 9, 4]
    x = ti.field(ti.f32, 3)
    for take in (x.from_numpy, lambda values: x.fill(values[1])):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="know no masks"):
            take(masked)
    for make in (ti.Vector, ti.math.vec3, lambda values: ti.Vector([1, 2, 3]) * values):
        with pytest.raises(TypeError, match="no masks"):
            make(masked)


def test_array_subclasses(tmp_path):
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32).view(np.matrix)
    increase_all(matrix)
    assert matrix.tolist() == [[2, 3], [4, 5]]
    np.zeros(3, np.float32).tofile(tmp_path / "numbers")
    mapped = np.memmap(tmp_path / "numbers", np.float32, "r+")
    increase(mapped)
    assert mapped.tolist() == [1, 1, 1]
    with pytest.raises(ti.TaichiRuntimeTypeError, match="is read-only: pass a copy"):
        increase(np.memmap(tmp_path / "numbers", np.float32, "r"))
    record = np.dtype([("a", "i4"), ("b", "f4")])
    others = (np.zeros(3, record), np.zeros(3, record).view(np.recarray), np.array([1, None]))
    for array in (*others, np.zeros(3, np.complex64), np.zeros(3, "M8[s]"), [1.0, 2.0], 3.0, None):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="argument `x`: "):
            increase(array)


def test_array_likes():
    class Numbers:
        def __array__(self, dtype=None, copy=None):
            return np.zeros(3, np.float32)

    for numbers in (Numbers(), [1.0, 2.0], ((1.0, 2.0), (3.0, 4.0))):
        says = r"argument `x`: an array is needed, not .*: pass np.asarray\(...\) of it"
        with pytest.raises(ti.TaichiRuntimeTypeError, match=says):
            increase(numbers)
    with pytest.raises(ti.TaichiRuntimeTypeError, match=r": annotate it with ti.template\(\)"):
        increase(ti.field(ti.f32, 3))


def test_reinterpreted_memory():
    @ti.kernel
    def mix(x: ti.types.ndarray(ti.f32), y: ti.types.ndarray(ti.i32)):
        for i in x:
            x[i] = y[i]

    a = np.zeros(4, np.float32)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="overlap"):
        mix(a, a.view(np.int32))


def test_read_only_numpy_arrays():
    a = np.arange(4, dtype=np.float32)
    a.setflags(write=False)
    assert dot(a, a) == 14
    with pytest.raises(ti.TaichiRuntimeTypeError, match=r"increase\(\): argument `x`.*read-only"):
        increase(a)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="read-only"):
        increase(np.broadcast_to(np.float32(1), (4,)))
    assert a.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_arrays_have_no_iterations(shape):
    @ti.kernel
    def grow(x: ti.types.ndarray()) -> ti.i32:
        count = 0
        for I in ti.grouped(x):
            x[I] += 1
            count += 1
        return count

    assert grow(np.zeros(shape, np.float32)) == 0


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i4"])
def test_byte_order(dtype):
    a = np.arange(4).astype(dtype)
    increase(a)
    assert a.tolist() == [1, 2, 3, 4] and a.dtype == dtype


def test_arrays_without_axes_and_of_bools():
    @ti.kernel
    def flip(x: ti.types.ndarray(), flags: ti.types.ndarray()):
        x[None] += 2
        for i in flags:
            flags[i] = not flags[i]

    x, flags = np.array(3, np.float32), np.array([True, False, True])
    flip(x, flags)
    assert x == 5 and flags.tolist() == [False, True, False]


def test_tensors_that_numpy_cannot_view():
    torch = pytest.importorskip("torch")
    with pytest.raises(ti.TaichiRuntimeTypeError, match="`x`: kernels have no float8_e4m3fn"):
        increase(torch.zeros(4, dtype=torch.float8_e4m3fn))
    with pytest.raises(ti.TaichiRuntimeTypeError, match="`x`: a tensor .* numpy cannot view"):
        increase(torch.eye(3).to_sparse())
    complex_numbers = torch.ones(3, dtype=torch.complex64).conj()
    for tensor in (complex_numbers, complex_numbers.imag, complex_numbers.resolve_conj()):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="argument `x`: "):
            increase(tensor)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="`x`: a tensor on the meta device has no"):
        increase(torch.zeros(3, device="meta"))
    parameter = torch.nn.Parameter(torch.zeros(3), requires_grad=False)  # of a class of its own
    increase(parameter)
    assert parameter.tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [1e300, -1e300, 3.4028236e38, np.float64(1e39)])
def test_floats_that_f32_does_not_hold_are_infinite(value):
    @ti.kernel
    def same(a: ti.f32) -> ti.f32:
        return a

    assert same(value) == np.copysign(np.inf, value)
    with pytest.raises(
        ti.TaichiRuntimeTypeError, match=r"same\(\): argument `a`.*does not fit f32"
    ):
        same(10**400)
    assert same(3.4028235e38) == float(np.finfo(np.float32).max)
    assert np.isnan(same(float("nan"))) and np.signbit(same(-0.0))


def test_vectors_of_integers():
    vec_u, vec_i, vec_b = (ti.types.vector(2, t) for t in (ti.u32, ti.i32, ti.u1))

    @ti.kernel
    def first(u: vec_u, i: vec_i, b: vec_b) -> ti.i32:
        return ti.i32(u[0]) * 100 + i[0] * 10 + ti.i32(b[0])

    assert first([1, 2], [-2, 0], [1, 0]) == 81
    assert first(np.array([1, 2]), ti.Vector([2, 0]), (False, True)) == 120
    for bad in ([-1, 0], [2**32, 0], [1.5, 0], ["1", 0], [1], [[1, 2]], 1, None):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=r"first\(\): argument `u`"):
            first(bad, [0, 0], [0, 0])
    with pytest.raises(ti.TaichiRuntimeTypeError, match="2147483648 does not fit i32"):
        first([0, 0], [2**31, 0], [0, 0])


def test_vectors_of_floats_take_numbers_only():
    vec = ti.types.vector(2, ti.f32)

    @ti.kernel
    def total(v: vec) -> ti.f32:
        return v[0] + v[1]

    assert total([1, 2.5]) == 3.5 and total([1e300, 1]) == np.inf
    for bad in (["1", "2"], [None, 1], [1j, 2], [[1], [2, 3]]):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=r"total\(\): argument `v`"):
            total(bad)


@ti.kernel
def half_of_first(a: ti.template()) -> ti.f32:
    return a[0] / 2


def test_templates_that_change_in_place_compile_again():
    numbers, vector, array = [1, 2], ti.Vector([1.0, 2.0]), np.array([1.0, 2.0])
    for value in (numbers, vector, array):
        assert half_of_first(value) == 0.5
        value[0] = 3
        assert half_of_first(value) == 1.5


def test_templates_that_are_equal_but_differ():
    assert np.signbit(half_of_first((-0.0,))) and not np.signbit(half_of_first((0.0,)))

    @ti.kernel
    def divide(a: ti.template()) -> ti.f32:
        return 1 // a[0] + 1 / a[0]

    assert divide((2,)) == 0.5 and divide((2.0,)) == 0.5 and divide((True,)) == 2
    assert divide((np.float32(2),)) == 0.5 and divide((np.int32(2),)) == 0.5


def test_template_dictionaries():
    @ti.kernel
    def get(a: ti.template()) -> ti.f32:
        return a["x"]

    table = {"x": 3.0}
    assert get(table) == 3
    table["x"] = 4.0
    assert get(table) == 4


def test_keywords_and_defaults():
    @ti.kernel
    def mix(a: ti.i32, b: ti.i32 = 5, *, c: ti.f32 = 1.5) -> ti.f32:
        return a * 100 + b * 10 + c

    assert (mix(1), mix(1, 2), mix(b=1, a=2), mix(1, c=3)) == (151.5, 121.5, 211.5, 153)
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"z": 3}), ((1,), {"a": 3})):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=r"mix\(a, b, c\)"):
            mix(*args, **kwargs)


@ti.data_oriented
class Base:
    def __init__(self, n):
        self.x = ti.field(ti.f32, n)

    @ti.func
    def weigh(self, i):
        return i * 2

    @ti.kernel
    def run(self, scale: ti.f32):
        for i in self.x:
            self.x[i] = self.weigh(i) * scale

    @ti.kernel
    def count(self) -> ti.i32:
        return 1

    @staticmethod
    @ti.kernel
    def next_of(a: ti.i32) -> ti.i32:
        return a + 1

    @classmethod
    def six(cls):
        return cls.next_of(5)


class Derived(Base):
    @ti.func
    def weigh(self, i):
        return i * 100

    def count(self):
        return super().count() + 1


def test_kernels_as_methods():
    a, b = Base(3), Derived(4)
    a.run(1.0)
    b.run(scale=2.0)
    assert a.x.to_numpy().tolist() == [0, 2, 4]
    assert b.x.to_numpy().tolist() == [0, 200, 400, 600]
    Base.run(a, 3.0)
    assert a.x.to_numpy().tolist() == [0, 6, 12]
    assert a.count() == 1 and b.count() == 2
    assert Base.next_of(1) == a.next_of(1) == 2 and Derived.six() == 6


def test_an_annotation_given_as_text_that_means_nothing_here():
    @ti.kernel
    def run(a: "no_such_type"):  # noqa: F821
        pass

    with pytest.raises(ti.TaichiNameError, match=r"annotation `no_such_type` of kernel run\(\)"):
        run(1)


def test_an_ndarray_is_no_template():
    with pytest.raises(ti.TaichiRuntimeTypeError, match="annotate it with ti.types.ndarray"):
        half_of_first(ti.ndarray(ti.f32, 3))


@pytest.mark.parametrize(("note", "number"), [(ti.i32, 1 << 70), (ti.u8, -3), (ti.u32, -1)])
def test_packs_take_numbers_that_fit(note, number):
    pack = ti.types.argpack(a=note)
    made = pack(1)
    for wrong in (lambda: pack(number), lambda: setattr(made, "a", number)):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=f"{number} does not fit {note}"):
            wrong()
    assert made.a == 1


SEEN = {
    "numpy": np.from_dlpack,
    "backwards": lambda x: np.from_dlpack(x)[::-1],
    "torch": lambda x: pytest.importorskip("torch").from_dlpack(x),
}


@pytest.mark.parametrize("see", SEEN.values(), ids=SEEN.keys())
@pytest.mark.parametrize("make", [ti.ndarray, ti.field])
def test_an_array_and_a_view_of_it(make, see):
    """A copy there and back would undo the kernel's writes to the array itself."""
    x, other = make(ti.f32, 4), ti.ndarray(ti.f32, 4)
    if x.host is None:
        pytest.skip("no views of the device's memory here")

    annotation = ti.template() if make is ti.field else ti.types.ndarray()

    @ti.kernel
    def both(a: annotation, b: ti.types.ndarray()):
        for i in b:
            a[i] += 1
            b[i] += 10

    @ti.kernel
    def take(a: annotation, b: ti.types.ndarray()):
        for i in b:
            b[i] = a[i] + 1

    @ti.kernel
    def look(a: annotation, b: ti.types.ndarray(), c: ti.types.ndarray()):
        for i in b:
            c[i] = a[i] + 10 * b[i]

    loss = ti.field(ti.f32, (), needs_grad=True)
    for kernel in (both, take):
        for block in (nullcontext(), ti.ad.Tape(loss)):
            message = "argument `b` is memory of the device's array `a`, and the kernel writes"
            with pytest.raises(ti.TaichiRuntimeTypeError, match=message), block:
                kernel(x, see(x))
    x.fill(2)
    look(x, see(x), other)
    assert other.to_numpy().tolist() == [22] * 4
    both(x, np.ones(4, np.float32))
    assert x.to_numpy().tolist() == [3] * 4


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("ti.f33", "`ti.f33` of kernel k() cannot be read: module 'vkchi' has no attribute 'f33'"),
        ("ti.types.vector(3, 4.5)", "dtype must be a number type such as ti.f32, not 4.5"),
        ("1 / 0", "cannot be read: division by zero"),
        ("nowhere", "name 'nowhere' is not defined"),
    ],
)
def test_annotations_that_cannot_be_evaluated_name_the_kernel_s_line(note: str, said: str) -> None:
    @ti.kernel
    def k(a: note):
        pass

    with pytest.raises(CompilationError) as e:
        k(1)
    place, _, message = str(e.value).partition(" ")
    assert place.startswith(f"{__file__}:") and said in message
    assert ("help: did you mean `f32`?" in message) == (note == "ti.f33")


def test_an_annotation_of_a_func_that_cannot_be_evaluated() -> None:
    note = "ti.f33"

    @ti.func
    def f(a: note):
        return a

    @ti.kernel
    def k() -> ti.f32:
        return f(1.0)

    with pytest.raises(CompilationError, match="an annotation of f\\(\\) cannot be") as e:
        k()
    assert str(e.value).endswith("help: did you mean `f32`?")
