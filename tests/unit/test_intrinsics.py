"""Functions, methods and attributes in a kernel: the ops that they build, and the results."""

from __future__ import annotations

import math
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.unit.lowering import Building
from vkchi import types
from vkchi.errors import (
    CompilationError,
    KernelSyntaxError,
    KernelTypeError,
)
from vkchi.frontend.calls.intrinsics import CALLS, METHODS, component_indices
from vkchi.frontend.calls.tables import find_call
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.tensor_attributes import find_attribute
from vkchi.ir.core import Param
from vkchi.ir.ops import ELEMENTWISE, TABLE
from vkchi.lang import (
    atomic_functions,
    compile_time,
    elementwise,
    matrix,
    random,
    simt,
)
from vkchi.lang import math as tm
from vkchi.lang.elementwise import INTRINSICS
from vkchi.lang.function import Function
from vkchi.lang.linear_algebra import decompose
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.types import f16, f32, f64, i8, i16, i32, i64, u1, u8, u32, u64

VEC2, VEC3, MAT2 = types.vector(2, f32), types.vector(3, f32), types.matrix(2, 2, f32)
LANG = (
    atomic_functions,
    decompose,
    elementwise,
    matrix,
    random,
    compile_time,
    tm,
)
# Known to the frontend's statements, not to the call table.
STATEMENTS = {
    compile_time.loop_config, compile_time.static, compile_time.parallel,
    compile_time.parallel_context, compile_time.stream_parallel,
}  # fmt: skip


# --- the tables are whole -----------------------------------------------------


def functions_of(module: ModuleType) -> list[Function]:
    return [x for x in vars(module).values() if isinstance(x, Function)]


def test_every_function_can_be_called() -> None:
    missing = {
        f"{module.__name__}.{fn.__name__}"
        for module in (*LANG, simt.block, simt.grid)
        for fn in functions_of(module)
        if find_call(fn) is None and fn not in STATEMENTS
    }
    missing |= {
        f"{module.__name__}.{name}"
        for module in (simt.subgroup, simt.warp)
        for name, fn in module.FUNCTIONS.items()
        if find_call(fn) is None
    }
    assert missing == set()


def test_every_elementwise_op_is_built_by_something() -> None:
    """The names of ops that users reach; a new op must be added to the frontend or to this set."""
    built = {
        kind for rule in operator_lowering.RULES.values() for kind in (rule.on_ints, rule.on_floats)
    }
    built |= {fn.__name__ for fn in operator_lowering.COMPARISONS.values()}
    built |= {
        "neg",
        "not",
        "abs",
        "select",
        "cast",
        "bitcast",
        "pow",
        "stop_grad",
        "stop_first_grad",
    }
    built |= {"undefined_slope", "with_derivative_of", "trip_count"}
    from vkchi.frontend.ops import elementwise_calls as rows

    built |= {row.op for row in INTRINSICS.values()}
    for rules in (rows._PAIR_RULES, rows._MANY_RULES):
        built |= {kind for rule in rules.values() for kind in (rule.on_ints, rule.on_floats)}
    assert ELEMENTWISE - built == set()
    assert built - {""} <= set(TABLE)


MATH_NAMES = """
acos asin atan2 cconj cdiv ceil cexp cinv clamp clog clz cmul cos cpow cross csqrt degrees
determinant distance dot e exp eye floor fract inf inverse isinf isnan ivec2 ivec3 ivec4 length log
log2 mat2 mat3 mat4 max min mix mod nan normalize pi popcnt pow radians reflect refract rot_by_axis
rot_yaw_pitch_roll rotation2d rotation3d round scale sign sin smoothstep sqrt step tan tanh
translate uvec2 uvec3 uvec4 vdir vec2 vec3 vec4
""".split()
METHOD_NAMES = """
all any cast cross determinant dot fill get_shape inverse max min norm norm_inv norm_sqr normalized
outer_product sum to_list to_numpy trace transpose
""".split()
MAKER_NAMES = "cols diag field identity ndarray one rows unit zero".split()


def test_documented_names_exist() -> None:
    assert [name for name in MATH_NAMES if not hasattr(tm, name)] == []
    assert [name for name in METHOD_NAMES if name not in METHODS] == []
    for cls in (Matrix, Vector):
        assert [name for name in METHOD_NAMES + MAKER_NAMES if not hasattr(cls, name)] == []


# --- constants and promotion --------------------------------------------------


def test_python_numbers_stay_python_numbers() -> None:
    cx = Building()
    assert operator_lowering.binary(cx, "/", 1, 2) == 0.5
    assert operator_lowering.binary(cx, "//", -7, 2) == -4
    assert operator_lowering.binary(cx, "/", 1.0, 0) == math.inf
    assert math.isnan(operator_lowering.binary(cx, "/", 0.0, 0.0))
    assert operator_lowering.binary(cx, "+", [1], [2]) == [1, 2]
    assert operator_lowering.compare(cx, "<", 1, 2) is True
    assert operator_lowering.unary(cx, "not", 3) is False
    assert cx.call_of(elementwise.sqrt, 4.0) == 2.0
    assert cx.call_of(elementwise.max, 1, 3, 2) == 3
    assert cx.call_of(tm.mix, 0.0, 2.0, 0.25) == 0.5
    assert cx.kinds() == []


@pytest.mark.parametrize(
    ("number", "t"),
    [(1, i32), (-(2**31), i32), (True, u1), (1.5, f32),
     (np.float64(2), f32), (np.int8(3), i32)],
)  # fmt: skip
def test_the_type_of_a_number_alone(number: Any, t: Any) -> None:
    assert operator_lowering.value(Building(), number).type is t


def test_defaults_decide() -> None:
    cx = Building(default_fp=f64, default_ip=i64)
    assert operator_lowering.value(cx, 1).type is i64
    assert operator_lowering.value(cx, 1.0).type is f64
    assert operator_lowering.binary(cx, "*", cx.param(f32, 1), 1.0).type is f64
    assert cx.call_of(tm.vec3, 1, 2, 3).type is types.vector(3, f64)
    assert cx.call_of(tm.uvec2, 1, 2).type is types.vector(2, u64)


def test_a_float_beside_f64_loses_nothing() -> None:
    cx = Building()
    assert cx.run(operator_lowering.binary(cx, "+", cx.param(f64, 0.0), 0.1)) == 0.1
    cx = Building()
    v = cx.param(types.vector(2, f64), [0, 0])
    assert cx.run(operator_lowering.binary(cx, "+", v, [0.1, 0.2])).tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("op", "x", "y", "kinds"),
    [
        ("+", (f32, 1), 1, ["const", "add"]),
        ("*", 2.0, (f32, 1), ["const", "mul"]),
        ("+", (i32, 1), 1.5, ["cast", "const", "add"]),
        ("**", (f32, 3), 2, ["mul"]),
        ("**", (f32, 3), 1, []),
        ("**", (f32, 3), 3, ["mul", "mul"]),
        ("**", (f32, 3), 10, ["mul"] * 4),
        ("**", (f32, 3), -1, ["const", "div"]),
        ("**", (f32, 3), 0.5, ["sqrt"]),
        ("**", (f32, 3), 0.25, ["const", "pow"]),
        ("**", (f32, 3), 2.0, ["mul"]),
        ("*", (VEC2, [1, 2]), 2, ["const", "mul"]),
        ("*", (VEC2, [1, 2]), (f32, 2), ["splat", "mul"]),
        ("+", (VEC2, [1, 2]), [1, 2], ["const", "add"]),
        ("//", (f32, 1), 2, ["const", "floordiv"]),
    ],
)
def test_few_ops(op: str, x: Any, y: Any, kinds: list[str]) -> None:
    cx = Building()
    args = [cx.param(*a) if isinstance(a, tuple) else a for a in (x, y)]
    operator_lowering.binary(cx, op, *args)
    assert cx.kinds() == kinds


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 31])
@pytest.mark.parametrize("base", [2, -3, 0, 7])
def test_integer_power_at_run_time(base: int, exponent: int) -> None:
    cx = Building()
    y = operator_lowering.binary(cx, "**", cx.param(i32, base), cx.param(i32, exponent))
    assert cx.run(y) == np.array(base**exponent).astype(object) % 2**32 - (
        2**32 if base**exponent % 2**32 >= 2**31 else 0
    )


def test_integer_power_of_vectors() -> None:
    cx = Building()
    t = types.vector(3, i32)
    y = operator_lowering.binary(cx, "**", cx.param(t, [2, 3, -1]), cx.param(t, [10, 0, 3]))
    assert cx.run(y).tolist() == [1024, 1, -1]


def test_lists_and_vectors_of_values() -> None:
    cx = Building()
    x = cx.param(f32, 2)
    y = operator_lowering.binary(
        cx, "+", cx.param(VEC3, [1, 2, 3]), [x, 1, operator_lowering.binary(cx, "*", x, x)]
    )
    assert cx.run(y).tolist() == [3, 3, 7]


def test_python_vectors_become_constants() -> None:
    cx = Building()
    y = operator_lowering.binary(cx, "*", cx.param(i32, 3), Vector([1, 2]))
    assert y.type is types.vector(2, i32) and cx.run(y).tolist() == [3, 6]
    cx = Building()
    assert operator_lowering.value(cx, Vector([1.0, 2.0], dt=f64)).type is types.vector(2, f64)
    assert operator_lowering.value(cx, Matrix([[1, 2], [3, 4]])).type is types.matrix(2, 2, i32)


def test_truth_and_not() -> None:
    cx = Building()
    i, b = cx.param(i32, 3), cx.param(u1, True)
    assert operator_lowering.as_condition(cx, b) is b
    assert operator_lowering.unary(cx, "not", operator_lowering.unary(cx, "not", b)) is b
    y = operator_lowering.unary(cx, "not", i)
    assert y.type is u1 and not cx.run(y)
    assert operator_lowering.as_condition(Building(), True).type is u1


# --- select, atomics, casts ---------------------------------------------------


@pytest.mark.parametrize(
    ("c", "a", "b", "expected"),
    [
        ((u1, True), 1, 2.0, 1.0),
        ((i32, 0), (VEC2, [1, 2]), 5, [5, 5]),
        ((types.vector(2, i32), [1, 0]), (VEC2, [1, 2]), (types.vector(2, i32), [7, 8]), [1, 8]),
        ((types.vector(2, i32), [1, 0]), 1, 0, [1, 0]),
    ],
)
def test_select(c: Any, a: Any, b: Any, expected: Any) -> None:
    cx = Building()
    args = [cx.param(*x) if isinstance(x, tuple) else x for x in (c, a, b)]
    assert cx.run(cx.call_of(elementwise.select, *args)).tolist() == expected


@pytest.mark.parametrize(
    ("fn", "t", "start", "operand", "end"),
    [
        (atomic_functions.atomic_add, f32, 1, 2, 3),
        (atomic_functions.atomic_add, i32, 1, 2.7, 3),
        (atomic_functions.atomic_sub, i32, 1, 3, -2),
        (atomic_functions.atomic_sub, u32, 1, 3, 2**32 - 2),
        (atomic_functions.atomic_mul, f32, 3, 2, 6),
        (atomic_functions.atomic_min, f32, 3, 2, 2),
        (atomic_functions.atomic_max, VEC2, [3, 1], 2, [3, 2]),
        (atomic_functions.atomic_and, i32, 7, 10, 2),
        (atomic_functions.atomic_or, u8, 5, 10, 15),
        (atomic_functions.atomic_xor, i32, 7, 2, 5),
    ],
)
def test_atomics(fn: Function, t: Any, start: Any, operand: Any, end: Any) -> None:
    cx = Building()
    old = cx.run(cx.call_of(fn, cx.place(t, start), operand))
    np.testing.assert_array_equal(old, start)
    np.testing.assert_array_equal(cx.results["x"], end)
    assert 0 in CALLS[fn].targets


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(300, u8, 44), (-1, u32, 2**32 - 1), (2.7, i32, 2), (-2.7, int, -2), (3, float, 3.0),
     (2, bool, True), (0.1, f64, 0.1), (0.1, f16, float(np.float16(0.1)))],
)  # fmt: skip
def test_cast_of_numbers(value: Any, dtype: Any, expected: Any) -> None:
    cx = Building()
    assert cx.run(cx.call_of(elementwise.cast, value, dtype)) == expected


def test_casts_of_values() -> None:
    cx = Building()
    v = cx.param(VEC3, [1.5, -2.5, 3])
    assert cx.call_of(int, v).type is types.vector(3, i32)
    assert cx.call_of(bool, v).type is types.vector(3, u1)
    assert cx.call_of(f32, v) if f32 in CALLS else True
    assert cx.run(cx.method("cast", v, i8)).tolist() == [1, -2, 3]


def test_bit_intrinsics() -> None:
    cx = Building()
    assert cx.run(cx.call_of(elementwise.bit_cast, 1.0, u32)) == 0x3F800000
    cx = Building()
    assert cx.run(cx.call_of(elementwise.bit_shr, cx.param(i32, -1), 28)) == 15
    cx = Building()
    assert cx.run(cx.call_of(elementwise.popcnt, cx.param(u8, 255))) == 8


# --- vectors and matrices -----------------------------------------------------


@pytest.mark.parametrize("t", [f32, f64])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_inverse_and_determinant(n: int, t: Any) -> None:
    rng = np.random.default_rng(n)
    a = (rng.random((n, n)) + 2 * np.eye(n)).astype(t.dtype)
    eps = np.finfo(t.dtype).eps * 64
    cx = Building()
    inverse = cx.run(cx.method("inverse", cx.param(types.matrix(n, n, t), a)))
    np.testing.assert_allclose(inverse @ a, np.eye(n), atol=eps)
    cx = Building()
    determinant = cx.run(cx.method("determinant", cx.param(types.matrix(n, n, t), a)))
    np.testing.assert_allclose(determinant, np.linalg.det(a.astype(np.float64)), rtol=eps)
    assert determinant.dtype == t.dtype


def test_methods_that_reduce() -> None:
    for name, expected in [("sum", 6), ("max", 3), ("min", 1), ("any", True), ("all", True)]:
        cx = Building()
        assert cx.run(cx.method(name, cx.param(VEC3, [1, 2, 3]))) == expected
    for value, any_, all_ in [([0, 0, 1], True, False), ([0, 0, 0], False, False)]:
        for name, expected in (("any", any_), ("all", all_)):
            cx = Building()
            assert cx.run(cx.method(name, cx.param(VEC3, value))) == expected


def test_swizzles() -> None:
    cx = Building()
    v = cx.param(VEC3, [1, 2, 3])
    assert cx.attribute("xyz", v) is v
    assert cx.attribute("n", v) == 3
    assert cx.run(cx.attribute("zzx", v)).tolist() == [3, 3, 1]
    assert component_indices("bg", VEC3) == (2, 1)
    assert component_indices("w", VEC3) is None
    assert component_indices("x", MAT2) is None
    assert component_indices("xg", VEC3) is None
    names = ["".join(letters) for k in range(1, 5) for letters in product("xyzw", repeat=k)]
    assert len(names) == 4 + 16 + 64 + 256 and all(map(find_attribute, names))
    assert find_attribute("xxxxx") is find_attribute("xg") is find_attribute("") is None


def test_constructors() -> None:
    def built(fn: Any, *args: Any) -> Any:
        cx = Building()
        values = [cx.param(*a) if isinstance(a, tuple) else a for a in args]
        v = cx.call_of(fn, *values)
        return v.type, cx.run(v).tolist()

    assert built(tm.vec3, (VEC2, [1, 2]), 3) == (VEC3, [1, 2, 3])
    assert built(tm.vec3, [1, 2, 3]) == (VEC3, [1, 2, 3])
    assert built(tm.vec3, 1) == (VEC3, [1, 1, 1])
    assert built(tm.ivec2, (f32, 2.7), 1.2) == (types.vector(2, i32), [2, 1])
    assert built(tm.mat2, (VEC2, [1, 2]), [3, 4]) == (MAT2, [[1, 2], [3, 4]])
    assert built(tm.mat2, 1, 2, 3, 4) == (MAT2, [[1, 2], [3, 4]])
    assert built(matrix.Vector, [1, 2.5]) == (VEC2, [1, 2.5])
    assert built(matrix.Vector, [1, 2]) == (types.vector(2, i32), [1, 2])
    assert built(matrix.Matrix, [[1, 2], [3, 4]]) == (types.matrix(2, 2, i32), [[1, 2], [3, 4]])
    assert built(matrix.rows, [[1, 2], [3, 4.0]]) == (MAT2, [[1, 2], [3, 4]])
    assert built(matrix.cols, [[1, 2], [3, 4.0]]) == (MAT2, [[1, 3], [2, 4]])
    assert built(matrix.unit, 3, (i32, 1)) == (types.vector(3, i32), [0, 1, 0])
    assert built(matrix.diag, 2, (f32, 5)) == (MAT2, [[5, 0], [0, 5]])


def test_a_constant_vector_is_one_op() -> None:
    cx = Building()
    cx.call_of(tm.vec3, 1, 2.5, 3)
    cx.call_of(matrix.Vector, [1.0, 2.0])
    assert cx.kinds() == ["const", "const"]


# --- random numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [f16, f32, f64, i8, i16, i32, i64, u8, u32, u64, u1])
def test_random_numbers(t: Any) -> None:
    cx = Building()
    v = cx.call_of(random.random, t)
    assert v.type is t
    cx.run(v)
    assert ".seed" in cx.params


def test_random_floats_are_below_one() -> None:
    """All bits set is the largest number."""
    for t, bits in ((f16, 11), (f32, 24), (f64, 53)):
        largest = np.float64(2**bits - 1) * 2.0**-bits
        assert t.dtype.type(largest) < 1.0


def test_normal_numbers() -> None:
    cx = Building()
    assert np.isfinite(cx.run(cx.call_of(random.randn)))
    with pytest.raises(KernelTypeError, match="randn"):
        Building().call_of(random.randn, i32)


# --- Python's functions ---------------------------------------------------------------------------


def test_builtins_on_values() -> None:
    def run(fn: Any, *args: Any) -> Any:
        cx = Building()
        values = [cx.param(*a) if isinstance(a, tuple) else a for a in args]
        return cx.run(cx.call_of(fn, *values)).tolist()

    x = (f32, -2.5)
    assert run(abs, x) == 2.5
    assert run(min, x, 1) == -2.5
    assert run(max, x, 1, 3) == 3
    assert run(round, (f32, 2.6)) == 3
    assert run(round, (f32, 2.625), 2) == pytest.approx(2.62)
    assert run(math.floor, x) == -3
    assert run(math.sqrt, (f32, 9)) == 3
    assert run(math.log, (f32, 8), 2) == pytest.approx(3)
    assert run(np.sin, (f32, 0)) == 0
    assert run(np.float64, (f32, 0.5)) == 0.5
    assert run(pow, (f32, 3), 2) == 9
    assert run(sum, (VEC3, [1, 2, 3])) == 6
    assert run(max, (VEC3, [1, 5, 3])) == 5
    assert run(all, (VEC3, [1, 0, 3])) is False
    assert run(math.hypot, (f32, 3), (f32, 4)) == 5


def test_builtins_on_python_objects() -> None:
    cx = Building()
    assert cx.call_of(len, [1, 2]) == 2
    assert cx.call_of(sum, [1, 2, 3]) == 6
    assert cx.call_of(max, [1, 5, 3]) == 5
    assert cx.call_of(int, "7") == 7
    assert cx.call_of(math.sqrt, 4) == 2.0
    assert cx.call_of(any, [0, 1]) is True
    assert cx.call_of(len, cx.param(VEC3, [1, 2, 3])) == 3
    assert cx.kinds() == []


def test_lists_of_values() -> None:
    cx = Building()
    x = cx.param(f32, 2)
    assert cx.run(cx.call_of(sum, [x, 1, x])) == 5
    cx = Building()
    x = cx.param(f32, 2)
    assert cx.run(
        cx.call_of(
            any,
            [operator_lowering.compare(cx, ">", x, 3), operator_lowering.compare(cx, ">", x, 1)],
        )
    )


# --- invocations ---------------------------------------------------------------------------------


def test_shared_arrays_and_barriers() -> None:
    cx = Building()
    ref = cx.call_of(simt.block.SharedArray, (4, 8), f32)
    assert ref.type is types.Array.of(f32, 2, (4, 8), None, "shared")
    assert cx.call_of(simt.block.SharedArray, 16, VEC2).type.shape == (16,)
    cx.call_of(simt.block.sync)
    cx.call_of(simt.grid.memfence)
    assert cx.kinds() == ["shared", "shared", "barrier", "fence"]
    assert cx.call_of(simt.block.global_thread_idx).type is i32


def test_subgroup_intrinsics() -> None:
    cx = Building()
    k = cx.b.const(1, i32)
    assert cx.call_of(simt.subgroup.FUNCTIONS["shuffle"], k, 2).type is i32
    assert cx.call_of(simt.subgroup.FUNCTIONS["exclusive_max"], k).type is i32
    assert cx.call_of(simt.warp.FUNCTIONS["ballot"], k).type is types.u32
    assert cx.call_of(simt.warp.FUNCTIONS["shfl_up_f32"], -1, k, 1).type is f32
    found = cx.kinds()
    assert {"subgroup_shuffle", "subgroup_exclusive_max", "warp_ballot"} <= set(found)


def test_ndrange_takes_values() -> None:
    cx = Building()
    n = cx.param(i32, 4)
    r = cx.call_of(ndrange, (1, n), 3)
    assert r.bounds == ((1, n), (0, 3))
    with pytest.raises(KernelTypeError, match="compile-time"):
        list(r)
    assert isinstance(cx.call_of(grouped, r), grouped)


# --- errors --------------------------------------------------------------------------------------


def vec3() -> tuple[Any, Any]:
    return VEC3, [1, 2, 3]


ERRORS: list[tuple[Any, type[CompilationError], str, str]] = [
    (lambda cx, v, m: operator_lowering.binary(cx, "+", v, cx.param(VEC2, [1, 2])), KernelTypeError,
     "operands of `+` have different shapes", "vector of 3 f32 and vector of 2 f32"),
    (lambda cx, v, m: operator_lowering.binary(cx, "*", m, cx.param(VEC2, [1, 2])), KernelTypeError,
     "operands of `*` have different shapes", "`@` is the matrix product"),
    (lambda cx, v, m: operator_lowering.binary(cx, "@", m, v), KernelTypeError,
     "cannot be multiplied as matrices", "2 by 2 matrix of f32 and vector of 3 f32"),
    (lambda cx, v, m: operator_lowering.binary(cx, "&", v, 1), KernelTypeError, "`&` takes",
     "ti.cast"),
    (lambda cx, v, m: operator_lowering.binary(cx, "<<", 1.0, cx.param(i32, 1)), KernelTypeError,
     "`<<` takes integers", "scalar f32 and scalar i32"),
    (lambda cx, v, m: operator_lowering.binary(cx, "+", v, "a"), KernelTypeError, "not a string",
     ""),
    (lambda cx, v, m: operator_lowering.binary(cx, "+", 1, "a"), KernelTypeError, "at compile time",
     "matrix"),
    (lambda cx, v, m: operator_lowering.binary(cx, "//", 1, 0), KernelTypeError, "division by zero",
     ""),
    (lambda cx, v, m: operator_lowering.binary(cx, "**", cx.param(i32, 2), -1), KernelTypeError,
     "negative power", "ti.cast"),
    (lambda cx, v, m: operator_lowering.binary(cx, "+", v, np.zeros(3)), KernelTypeError,
     "a numpy array",
     "ti.types.ndarray"),
    (lambda cx, v, m: operator_lowering.unary(cx, "~", v), KernelTypeError, "`~` takes integers",
     "of 3 f32"),
    (lambda cx, v, m: operator_lowering.as_condition(cx, v), KernelTypeError,
     "neither true nor false", ".any()"),
    (lambda cx, v, m: operator_lowering.value(cx, [1, [2, 3]]), KernelTypeError,
     "rows of the same length", ""),
    (lambda cx, v, m: operator_lowering.value(cx, v, VEC2), KernelTypeError, "shapes differ",
     "of 2 f32"),
    (lambda cx, v, m: cx.attribute("w", v), KernelSyntaxError, "`.w` needs a longer vector", ""),
    (lambda cx, v, m: cx.attribute("x", m), KernelTypeError, "`.x` is for vectors", "m[0, 1]"),
    (lambda cx, v, m: cx.method("dot", v, 1.0), KernelTypeError, "`dot` takes vectors", ""),
    (lambda cx, v, m: cx.method("cross", v, cx.param(VEC2, [1, 2])), KernelTypeError,
     "`cross` takes vectors of the same length", "vector of 3 and vector of 2"),
    (lambda cx, v, m: cx.method("inverse", v), KernelTypeError, "`inverse` takes a square", ""),
    (lambda cx, v, m: cx.method("transpose", v), KernelTypeError, "`transpose` takes a matrix",
     "outer_product"),
    (lambda cx, v, m: cx.call_of(tm.vec2, v), KernelTypeError, "has 2 components, and 3", ""),
    (lambda cx, v, m: cx.call_of(elementwise.popcnt, v), KernelTypeError, "takes integers", ""),
    (lambda cx, v, m: cx.call_of(elementwise.bit_cast, v, f64), KernelTypeError, "same width", ""),
    (lambda cx, v, m: cx.call_of(atomic_functions.atomic_add, v, 1), KernelTypeError, "assigned to",
     ""),
    (lambda cx, v, m: cx.call_of(atomic_functions.atomic_or, cx.place(f32, 1), 1), KernelTypeError,
     "is for integers", "scalar f32"),
    (
        lambda cx, v, m: cx.call_of(compile_time.static_assert, v),
        KernelTypeError, "a compile-time constant", "leave ti.static out",
    ),
    (lambda cx, v, m: cx.call_of(compile_time.static_assert, False, "no"), CompilationError, ": no",
     ""),
    (lambda cx, v, m: cx.call_of(simt.block.SharedArray, v, f32), KernelTypeError, "shape", ""),
    (lambda cx, v, m: cx.call_of(matrix.zero, f32, v), KernelTypeError, "n must", ""),
    (lambda cx, v, m: cx.call_of(elementwise.cast, v, "f32"), CompilationError, "number type", ""),
    (lambda cx, v, m: cx.call_of(tm.length, cx.param(f32, 1)), KernelTypeError, "a norm is", ""),
    (lambda cx, v, m: cx.call_of(len, cx.param(f32, 1)), KernelTypeError, "no `len`", ""),
    (lambda cx, v, m: cx.call_of(elementwise.cast, math.inf, i32), KernelTypeError, "fit i32", ""),
    (lambda cx, v, m: cx.call_of(ndrange, 1.5), KernelTypeError, "integers", ""),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_invalid_intrinsic_calls_raise(case: int) -> None:
    act, kind, sentence, rest = ERRORS[case]
    cx = Building()
    v, m = cx.param(*vec3()), cx.param(MAT2, [[1, 2], [3, 4]])
    assert isinstance(v, Param)
    with pytest.raises(kind) as caught:
        act(cx, v, m)
    error = caught.value
    text = "\n".join([str(error), error.label, error.help])
    assert sentence in str(error) and rest in text, text
    assert error.span is cx.span
