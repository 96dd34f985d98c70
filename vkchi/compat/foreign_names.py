"""Names that users of numpy, torch, Warp or Taichi may expect, with the code to write instead.

`NAMES` lists names of the module, `MEMBERS` names of fields and ndarrays in Python.

    >>> help_for_name("zeros", [])
    'ti.field(ti.f32, shape=...): fields begin with zeros'
"""

from __future__ import annotations

from collections.abc import Iterable

from vkchi.errors import nearest_name

_FIELD = "ti.field(ti.f32, shape=...)"
_REDUCE = "`s += x[i]` in a loop of a kernel, or x.to_numpy().sum() in Python"
_EXTREME = "ti.atomic_{0}(m, x[i]) in a loop of a kernel, or x.to_numpy().{0}() in Python"
_FROM = "x = ti.field(ti.f32, shape=a.shape); x.from_numpy(a)"
_INDEX = "loop over it in a kernel: `for i in x`; in Python, np.{0}(...) and from_numpy"
_VECTOR = "ti.types.vector({0}, ti.{1}) for the type, ti.Vector([...]) for a value"
_MATRIX = "ti.types.matrix({0}, {0}, ti.f32) for the type, ti.Matrix([...]) for a value"
_SHAPING = "make a field of the other shape, and copy in a kernel; in Python, use x.to_numpy()"
_TENSORS = "the operator `{}` on vectors and matrices; for whole fields write a loop in a kernel"

# Name of the module `ti` -> what to write. Names that vkchi has must not be here.
NAMES: dict[str, str] = {
    # numpy and torch: arrays
    "array": _FROM,
    "asarray": _FROM,
    "as_tensor": _FROM,
    "from_numpy": _FROM,
    "tensor": _FROM,
    "Tensor": f"{_FIELD}, or ti.ndarray(ti.f32, shape)",
    "zeros": f"{_FIELD}: fields begin with zeros",
    "empty": f"{_FIELD}: fields begin with zeros",
    "zeros_like": "ti.field(x.dtype, shape=x.shape): fields begin with zeros",
    "empty_like": "ti.field(x.dtype, shape=x.shape): fields begin with zeros",
    "ones": f"x = {_FIELD}; x.fill(1)",
    "ones_like": "x = ti.field(y.dtype, shape=y.shape); x.fill(1)",
    "full": f"x = {_FIELD}; x.fill(value)",
    "full_like": "x = ti.field(y.dtype, shape=y.shape); x.fill(value)",
    "arange": _INDEX.format("arange"),
    "linspace": _INDEX.format("linspace"),
    "meshgrid": "loop over pairs of indices in a kernel: `for i, j in ti.ndrange(n, m)`",
    "eye": "ti.Matrix.identity(ti.f32, n)",
    "identity": "ti.Matrix.identity(ti.f32, n)",
    "clone": "copy.deepcopy(x), or y.copy_from(x)",
    "copy": "copy.deepcopy(x), or y.copy_from(x)",
    "reshape": _SHAPING,
    "transpose": "v.transpose() of a matrix; for whole fields write a loop in a kernel",
    "stack": _SHAPING,
    "concatenate": _SHAPING,
    "cat": _SHAPING,
    # numpy and torch: reductions and functions
    "sum": _REDUCE,
    "mean": "`s += x[i] / n` in a loop of a kernel, or x.to_numpy().mean() in Python",
    "prod": "`p *= x[i]` in a loop of a kernel, or x.to_numpy().prod() in Python",
    "amax": _EXTREME.format("max"),
    "amin": _EXTREME.format("min"),
    "argmax": "x.to_numpy().argmax() in Python",
    "argmin": "x.to_numpy().argmin() in Python",
    "sort": "ti.algorithms.parallel_sort(x)",
    "cumsum": "ti.algorithms.PrefixSumExecutor(n).run(x)",
    "where": "ti.select(condition, a, b)",
    "clip": "ti.math.clamp(x, low, high)",
    "clamp": "ti.math.clamp(x, low, high)",
    "maximum": "ti.max(a, b)",
    "minimum": "ti.min(a, b)",
    "power": "ti.pow(a, b), or a ** b",
    "absolute": "ti.abs(x)",
    "fabs": "ti.abs(x)",
    "square": "x * x",
    "arcsin": "ti.asin(x)",
    "arccos": "ti.acos(x)",
    "arctan": "ti.math.atan(x)",
    "atan": "ti.math.atan(x)",
    "arctan2": "ti.atan2(y, x)",
    "sinh": "ti.math.sinh(x)",
    "cosh": "ti.math.cosh(x)",
    "exp2": "ti.math.exp2(x)",
    "log2": "ti.math.log2(x)",
    "log10": "ti.log(x) / ti.math.log(10.0)",
    "log1p": "ti.log(1 + x)",
    "expm1": "ti.exp(x) - 1",
    "isnan": "ti.math.isnan(x)",
    "isinf": "ti.math.isinf(x)",
    "isfinite": "not (ti.math.isnan(x) or ti.math.isinf(x))",
    "trunc": "ti.math.trunc(x)",
    "rint": "ti.round(x)",
    "mod": "a % b, or ti.math.mod(a, b)",
    "fmod": "a % b, or ti.raw_mod(a, b)",
    "sign": "ti.math.sign(x)",
    "sigmoid": "1 / (1 + ti.exp(-x))",
    "relu": "ti.max(x, 0)",
    "dot": "a.dot(b), or ti.math.dot(a, b)",
    "cross": "a.cross(b), or ti.math.cross(a, b)",
    "matmul": _TENSORS.format("@"),
    "outer": "a.outer_product(b)",
    "norm": "v.norm()",
    "length_sq": "v.norm_sqr()",
    "normalize": "v.normalized(), or ti.math.normalize(v)",
    "inv": "m.inverse()",
    "inverse": "m.inverse()",
    "determinant": "m.determinant()",
    "det": "m.determinant()",
    "trace": "m.trace()",
    "pi": "ti.math.pi",
    "e": "ti.math.e",
    "inf": "ti.math.inf",
    "nan": "ti.math.nan",
    "rand": "ti.random()",
    "random_seed": "ti.init(random_seed=...)",
    "seed": "ti.init(random_seed=...)",
    "manual_seed": "ti.init(random_seed=...)",
    # types
    "int": "int, or ti.i32",
    "float": "float, or ti.f32",
    "bool": "bool, or ti.u1",
    "half": "ti.f16",
    "double": "ti.f64",
    "bfloat16": "ti.f16: kernels have no bfloat16",
    "dtype": "ti.f32, ti.i32, ...",
    "vec": _VECTOR.format("n", "f32"),
    "vec2": "ti.math.vec2",
    "vec3": "ti.math.vec3",
    "vec4": "ti.math.vec4",
    "mat2": "ti.math.mat2",
    "mat3": "ti.math.mat3",
    "mat4": "ti.math.mat4",
    "ivec2": "ti.math.ivec2",
    "ivec3": "ti.math.ivec3",
    "vec2f": "ti.math.vec2",
    "vec3f": "ti.math.vec3",
    "vec4f": "ti.math.vec4",
    "mat22": _MATRIX.format(2),
    "mat33": _MATRIX.format(3),
    "mat44": _MATRIX.format(4),
    "vector": _VECTOR.format("n", "f32"),
    "matrix": _MATRIX.format("n"),
    "struct": "ti.dataclass for a class, ti.types.struct(...) for a type",
    # Warp, numba, jax
    "tid": "a loop over the indices: `for i in x`",
    "from_torch": "pass the tensor to a kernel, as `x: ti.types.ndarray()`",
    "to_torch": "x.to_torch()",
    "synchronize": "ti.sync()",
    "jit": "@ti.kernel",
    "njit": "@ti.kernel",
    "vmap": "a loop in a kernel: `for i in x`",
    "prange": "range(n): loops at the top of a kernel are parallel",
    "range": "range(n)",
    "print": "print(x)",
    "grad": "with ti.ad.Tape(loss): ...; then x.grad",
    "no_grads": "ti.ad.no_grad",
    "is_nan": "ti.math.isnan(x)",
}

_NUMPY = "kernels compute on fields; in Python write x.to_numpy()"
_AS_NUMPY = (
    "sum mean min max prod std var any all argmax argmin cumsum sort argsort dot reshape flatten "
    "ravel transpose squeeze astype clip round tolist nonzero repeat take view"
)

# Attribute of a field or ndarray in Python -> what to write.
MEMBERS: dict[str, str] = {
    **{name: f"{_NUMPY}.{name}(...)" for name in _AS_NUMPY.split()},
    "T": f"{_NUMPY}.T",
    "nbytes": f"{_NUMPY}.nbytes",
    "size": "math.prod(x.shape)",
    "numpy": "x.to_numpy()",
    "cpu": "x.to_numpy(), or x.to_torch()",
    "cuda": 'x.to_torch(device="cuda")',
    "torch": "x.to_torch()",
    "to_list": "x.to_numpy().tolist()",
    "item": "x[None] of a field without axes, or x[i]",
    "copy": "copy.deepcopy(x), or y.copy_from(x)",
    "clone": "copy.deepcopy(x), or y.copy_from(x)",
    "zero_": "x.fill(0)",
    "zero": "x.fill(0)",
    "fill_": "x.fill(value)",
    "copy_": "x.copy_from(y), or x.from_numpy(a)",
    "append": "ti.root.dynamic(...) has cells that grow; other fields have a fixed shape",
    "backward": "with ti.ad.Tape(loss): ...",
    "requires_grad": "ti.field(ti.f32, shape=..., needs_grad=True)",
    "requires_grad_": "ti.field(ti.f32, shape=..., needs_grad=True)",
}


def help_for_name(name: str, known: Iterable[str]) -> str:
    """Help for a name that the module lacks: from NAMES, or the nearest of `known`; "" if none."""
    if name in NAMES:
        return f"write {NAMES[name]}"
    close = nearest_name(name, known)
    return f"did you mean `{close}`?" if close else ""


def help_for_member(name: str, known: Iterable[str]) -> str:
    """The help for a missing attribute of a field or ndarray: from MEMBERS, or the nearest of
    `known`.

    "" if there is none.
    """
    if name in MEMBERS:
        return MEMBERS[name] if MEMBERS[name].startswith("kernels") else f"write {MEMBERS[name]}"
    close = nearest_name(name, known)
    return f"did you mean `{close}`?" if close else ""
