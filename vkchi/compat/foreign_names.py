"""Help lines for names and annotations that users of numpy, torch, Warp or Taichi may expect.

`NAMES` lists names of the module, `MEMBERS` names of fields and ndarrays in Python; the last part
suggests annotations.

    >>> help_for_name("zeros", [])
    'write ti.field(ti.f32, shape=...): fields begin with zeros'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vkchi.errors import nearest_name

_FIELD = "ti.field(ti.f32, shape=...)"
_REDUCE = "write `s += x[i]` in a loop of a kernel, or x.to_numpy().sum() in Python"
_EXTREME = "write ti.atomic_{0}(m, x[i]) in a loop of a kernel, or x.to_numpy().{0}() in Python"
_FROM = "write x = ti.field(ti.f32, shape=a.shape); x.from_numpy(a)"
_INDEX = "loop over indices in a kernel: `for i in x`; in Python, write x.from_numpy(np.{0}(...))"
_VECTOR = "write ti.types.vector({0}, ti.{1}) for the type, ti.Vector([...]) for a value"
_MATRIX = "write ti.types.matrix({0}, {0}, ti.f32) for the type, ti.Matrix([...]) for a value"
_SHAPING = "make a field of the other shape, and copy in a kernel; in Python, use x.to_numpy()"
_TENSORS = "use the operator `{}` on matrices; for whole fields, write a loop in a kernel"

# Name of the module `ti` -> help line, an imperative sentence. Names that vkchi has are not here.
NAMES: dict[str, str] = {
    # numpy and torch: arrays
    "array": _FROM,
    "asarray": _FROM,
    "as_tensor": _FROM,
    "from_numpy": _FROM,
    "zeros": f"write {_FIELD}: fields begin with zeros",
    "empty": f"write {_FIELD}: fields begin with zeros",
    "zeros_like": "write ti.field(x.dtype, shape=x.shape): fields begin with zeros",
    "empty_like": "write ti.field(x.dtype, shape=x.shape): fields begin with zeros",
    "ones": f"write x = {_FIELD}; x.fill(1)",
    "ones_like": "write x = ti.field(y.dtype, shape=y.shape); x.fill(1)",
    "full": f"write x = {_FIELD}; x.fill(value)",
    "full_like": "write x = ti.field(y.dtype, shape=y.shape); x.fill(value)",
    "arange": _INDEX.format("arange"),
    "linspace": _INDEX.format("linspace"),
    "meshgrid": "loop over pairs of indices in a kernel: `for i, j in ti.ndrange(n, m)`",
    "eye": "write ti.Matrix.identity(ti.f32, n)",
    "identity": "write ti.Matrix.identity(ti.f32, n)",
    "clone": "write copy.deepcopy(x), or y.copy_from(x)",
    "copy": "write copy.deepcopy(x), or y.copy_from(x)",
    "reshape": _SHAPING,
    "transpose": "write v.transpose() for a matrix, and a loop in a kernel for whole fields",
    "stack": _SHAPING,
    "concatenate": _SHAPING,
    "cat": _SHAPING,
    # numpy and torch: reductions and functions
    "sum": _REDUCE,
    "mean": "write `s += x[i] / n` in a loop of a kernel, or x.to_numpy().mean() in Python",
    "prod": "write `p *= x[i]` in a loop of a kernel, or x.to_numpy().prod() in Python",
    "amax": _EXTREME.format("max"),
    "amin": _EXTREME.format("min"),
    "argmax": "write x.to_numpy().argmax() in Python",
    "argmin": "write x.to_numpy().argmin() in Python",
    "sort": "write ti.algorithms.parallel_sort(x)",
    "cumsum": "write ti.algorithms.PrefixSumExecutor(n).run(x)",
    "where": "write ti.select(condition, a, b)",
    "clip": "write ti.math.clamp(x, low, high)",
    "clamp": "write ti.math.clamp(x, low, high)",
    "maximum": "write ti.max(a, b)",
    "minimum": "write ti.min(a, b)",
    "power": "write ti.pow(a, b), or a ** b",
    "absolute": "write ti.abs(x)",
    "fabs": "write ti.abs(x)",
    "square": "write x * x",
    "arcsin": "write ti.asin(x)",
    "arccos": "write ti.acos(x)",
    "arctan": "write ti.math.atan(x)",
    "atan": "write ti.math.atan(x)",
    "arctan2": "write ti.atan2(y, x)",
    "sinh": "write ti.math.sinh(x)",
    "cosh": "write ti.math.cosh(x)",
    "exp2": "write ti.math.exp2(x)",
    "log2": "write ti.math.log2(x)",
    "log10": "write ti.log(x) / ti.math.log(10.0)",
    "log1p": "write ti.log(1 + x)",
    "expm1": "write ti.exp(x) - 1",
    "isnan": "write ti.math.isnan(x)",
    "isinf": "write ti.math.isinf(x)",
    "isfinite": "write not (ti.math.isnan(x) or ti.math.isinf(x))",
    "trunc": "write ti.math.trunc(x)",
    "rint": "write ti.round(x)",
    "mod": "write a % b, or ti.math.mod(a, b)",
    "fmod": "write a % b, or ti.raw_mod(a, b)",
    "sign": "write ti.math.sign(x)",
    "sigmoid": "write 1 / (1 + ti.exp(-x))",
    "relu": "write ti.max(x, 0)",
    "dot": "write a.dot(b), or ti.math.dot(a, b)",
    "cross": "write a.cross(b), or ti.math.cross(a, b)",
    "matmul": _TENSORS.format("@"),
    "outer": "write a.outer_product(b)",
    "norm": "write v.norm()",
    "length_sq": "write v.norm_sqr()",
    "normalize": "write v.normalized(), or ti.math.normalize(v)",
    "inv": "write m.inverse()",
    "inverse": "write m.inverse()",
    "determinant": "write m.determinant()",
    "det": "write m.determinant()",
    "trace": "write m.trace()",
    "pi": "write ti.math.pi",
    "e": "write ti.math.e",
    "inf": "write ti.math.inf",
    "nan": "write ti.math.nan",
    "rand": "write ti.random()",
    "random_seed": "write ti.init(random_seed=...)",
    "seed": "write ti.init(random_seed=...)",
    "manual_seed": "write ti.init(random_seed=...)",
    # types
    "int": "write int, or ti.i32",
    "float": "write float, or ti.f32",
    "bool": "write bool, or ti.u1",
    "half": "write ti.f16",
    "double": "write ti.f64",
    "dtype": "write ti.f32, ti.i32, ...",
    "vec": _VECTOR.format("n", "f32"),
    "vec2": "write ti.math.vec2",
    "vec3": "write ti.math.vec3",
    "vec4": "write ti.math.vec4",
    "mat2": "write ti.math.mat2",
    "mat3": "write ti.math.mat3",
    "mat4": "write ti.math.mat4",
    "ivec2": "write ti.math.ivec2",
    "ivec3": "write ti.math.ivec3",
    "vec2f": "write ti.math.vec2",
    "vec3f": "write ti.math.vec3",
    "vec4f": "write ti.math.vec4",
    "mat22": _MATRIX.format(2),
    "mat33": _MATRIX.format(3),
    "mat44": _MATRIX.format(4),
    "vector": _VECTOR.format("n", "f32"),
    "matrix": _MATRIX.format("n"),
    "struct": "write @ti.dataclass before a class, or ti.types.struct(...)",
    # Warp, numba, jax
    "launch": "call the kernel: step(x, n)",
    "tid": "loop over the indices: `for i in x`",
    "from_torch": "pass the tensor to a kernel, to an argument `x: ti.types.ndarray()`",
    "to_torch": "write x.to_torch()",
    "synchronize": "write ti.sync()",
    "jit": "write @ti.kernel",
    "njit": "write @ti.kernel",
    "vmap": "write a loop in a kernel: `for i in x`",
    "prange": "write range(n): loops at the top of a kernel are parallel",
    "range": "write range(n)",
    "print": "write print(x)",
    "grad": "call the kernels under `with ti.ad.Tape(loss):`, then read x.grad",
    "no_grads": "write ti.ad.no_grad",
    "is_nan": "write ti.math.isnan(x)",
}

_NUMPY = "compute on fields in a kernel; in Python, write x.to_numpy()"
_AS_NUMPY = (
    "sum mean min max prod std var any all argmax argmin cumsum sort argsort dot reshape flatten "
    "ravel transpose squeeze astype clip round tolist nonzero repeat take view"
)

# Attribute of a field or ndarray in Python -> help line.
MEMBERS: dict[str, str] = {
    **{name: f"{_NUMPY}.{name}(...)" for name in _AS_NUMPY.split()},
    "T": f"{_NUMPY}.T",
    "numpy": "write x.to_numpy()",
    "cpu": "write x.to_numpy(), or x.to_torch()",
    "cuda": 'write x.to_torch(device="cuda")',
    "torch": "write x.to_torch()",
    "to_list": "write x.to_numpy().tolist()",
    "item": "write x[None] for a field without axes, else x[i]",
    "copy": "write copy.deepcopy(x), or y.copy_from(x)",
    "clone": "write copy.deepcopy(x), or y.copy_from(x)",
    "zero_": "write x.fill(0)",
    "zero": "write x.fill(0)",
    "fill_": "write x.fill(value)",
    "copy_": "write x.copy_from(y), or x.from_numpy(a)",
    "append": "use ti.root.dynamic(...), whose length grows; other fields have a fixed shape",
    "detach": "write ti.stop_grad(x[i]) in a kernel; x.to_numpy() and x.to_torch() are copies",
    "backward": "call the kernels under `with ti.ad.Tape(loss):`",
    "requires_grad": "write ti.field(ti.f32, shape=..., needs_grad=True)",
    "requires_grad_": "write ti.field(ti.f32, shape=..., needs_grad=True)",
}


def help_for_name(name: str, known: Iterable[str], table: Mapping[str, str] = NAMES) -> str:
    """Help for a name that the module lacks, or a field or ndarray with `table=MEMBERS`.

    It is from the table, or the nearest of `known`; "" if there is none.
    """
    if name in table:
        return table[name]
    close = nearest_name(name, known)
    return f"did you mean `{close}`?" if close else ""


# --- annotations ---------------------------------------------------------------------------------
#
# >>> suggest_annotation(ti.Vector)
# 'ti.types.vector(n, ti.f32)'

# Keyed by module and name, so that no module is loaded for a message.
VALUES = {
    "vkchi.lang.matrix.Vector": "ti.types.vector(n, ti.f32)",
    "vkchi.lang.matrix.Matrix": "ti.types.matrix(n, m, ti.f32)",
}
ARRAYS = {
    "numpy.ndarray": "ti.types.ndarray()",
    "torch.Tensor": "ti.types.ndarray()",
    "vkchi.ndarray.Ndarray": "ti.types.ndarray()",
    "vkchi.fields.constructors.field": "ti.template()",
    "vkchi.fields.field.Field": "ti.template()",
}
_AN_ARRAY = (
    "for numbers, write {0}: ti.types.ndarray() and pass np.asarray({0}); for constants, write "
    "{0}: ti.template()"
)
# Python's types -> help, with the argument's name.
PYTHON_TYPES = {
    list: _AN_ARRAY,
    tuple: _AN_ARRAY,
    dict: "write {0}: ti.template(), whose items are constants, or a @ti.dataclass",
    set: "write {0}: ti.template(), and loop over it in ti.static(...)",
    str: "write {0}: ti.template(): strings are constants of a kernel",
    complex: "write {0}: ti.math.vec2, of the real and the imaginary part",
    bytes: "write {0}: ti.types.ndarray() and pass np.frombuffer({0}, np.uint8)",
    object: "write {0}: ti.template()",
}


def help_for_annotation(name: str, note: object) -> str:
    """The help for an argument with an annotation that kernels do not support."""
    origin = getattr(note, "__origin__", note)  # list[int] -> list
    if isinstance(origin, type) and origin in PYTHON_TYPES:
        return PYTHON_TYPES[origin].format(name)
    written = suggest_annotation(note) or "ti.f32, ti.types.ndarray() or ti.template()"
    return f"write {name}: {written}"


def suggest_tensor_type(note: object) -> str:
    """The vector or matrix type to write instead of an annotation; "" if there is none."""
    return VALUES.get(_path(note), "")


def suggest_annotation(note: object) -> str:
    """The argument type to write instead of an annotation; "" if there is none."""
    return suggest_tensor_type(note) or ARRAYS.get(_path(note), "")


def _path(note: object) -> str:
    return f"{getattr(note, '__module__', '')}.{getattr(note, '__qualname__', '')}"
