"""Wrong programs raise Taichi's errors, by the names that programs catch."""

from pathlib import Path

import numpy as np
import pytest

import vkchi as ti

INDEX = ti.lang.exception.TaichiIndexError
FRAME = """
import numpy as np

x = ti.field(ti.f32, 4)
v = ti.Vector.field(3, ti.f32, 4)
a = ti.ndarray(ti.f32, 4)
vec3 = ti.types.vector(3, ti.f32)

@ti.func
def f(n):
    return n

@ti.kernel
def g(n: ti.i32):
    pass

@ti.kernel
def reads(n: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    pass

@ti.kernel
def grid(n: ti.types.ndarray(ndim=2)):
    pass

@ti.kernel
def vectors(n: ti.types.ndarray(dtype=vec3)):
    pass

@ti.kernel
def demands(n: ti.types.ndarray(needs_grad=True)):
    pass
"""

# Body of a kernel of one i32 -> the error of compiling it.
BODIES = {
    "b = nonsense": "TaichiNameError",
    "nonsense(1)": "TaichiNameError",
    "b = ti.nonsense": "TaichiCompilationError",
    "b = x.nonsense": "TaichiCompilationError",
    "n += 1": "TaichiSyntaxError",
    "n = 2": "TaichiSyntaxError",
    "try:\n        b = 1\n    except ValueError:\n        pass": "TaichiSyntaxError",
    "with open('a'):\n        pass": "TaichiSyntaxError",
    "import math": "TaichiSyntaxError",
    "from math import pi": "TaichiSyntaxError",
    "class A:\n        pass": "TaichiSyntaxError",
    "def h():\n        pass": "TaichiSyntaxError",
    "raise ValueError()": "TaichiSyntaxError",
    "yield 1": "TaichiSyntaxError",
    "h = lambda *b: b": "TaichiSyntaxError",
    "global q\n    q = 1": "TaichiSyntaxError",
    "b = 1\n    del b": "TaichiSyntaxError",
    "b = {1, 2}": "TaichiSyntaxError",
    "return 1": "TaichiSyntaxError",
    "for i in range(3):\n        break": "TaichiSyntaxError",
    "for i in x:\n        break": "TaichiSyntaxError",
    "b = n in [1, 2]": "TaichiSyntaxError",
    "b = ti.Vector([1, 2]) + ti.Vector([1, 2, 3])": "TaichiTypeError",
    "b = ti.Vector([1, 2]) == ti.Vector([1, 2, 3])": "TaichiTypeError",
    "b = ti.Matrix([[1, 2], [3, 4]]) @ ti.Vector([1, 2, 3])": "TaichiCompilationError",
    "b = 1.0 << 2": "TaichiTypeError",
    "b = 1.5 & 2": "TaichiTypeError",
    "b = ~1.0": "TaichiCompilationError",
    "x[1, 2] = 1.0": INDEX,
    "b = x[1, 2]": INDEX,
    "x[1.5] = 1.0": "TaichiTypeError",
    "b = ti.Vector([1, 2]).z": "TaichiSyntaxError",
    "g(1)": "TaichiSyntaxError",
    "f()": "TaichiSyntaxError",
    "f(1, 2)": "TaichiSyntaxError",
    "f(m=2)": "TaichiSyntaxError",
    "ti.static_assert(1 == 2, 'no')": "TaichiCompilationError",
    "if n:\n        b = 1\n    c = b": "TaichiNameError",
    "for i in range(2):\n        b = 1\n    c = b": "TaichiNameError",
}

# Statement in Python scope -> its error.
CALLS = {
    "g()": "TaichiSyntaxError",
    "g(1, 2)": "TaichiSyntaxError",
    "g(m=1)": "TaichiSyntaxError",
    "g(1.5)": "TaichiRuntimeTypeError",
    "g('a')": "TaichiRuntimeTypeError",
    "g(None)": "TaichiRuntimeTypeError",
    "g([1])": "TaichiRuntimeTypeError",
    "reads(None)": "TaichiRuntimeTypeError",
    "reads(np.zeros(3))": ValueError,
    "reads(ti.ndarray(ti.i32, 4))": TypeError,
    "reads(ti.ndarray(ti.f32, (2, 2)))": ValueError,
    "grid(a)": ValueError,
    "vectors(a)": ValueError,
    "vectors(np.zeros((4, 2), np.float32))": ValueError,
    "demands(a)": ValueError,
    "f(1)": "TaichiSyntaxError",
    "ti.types.ndarray(boundary='mirror')": ValueError,
    "x[::-1]": TypeError,
    "x[1.5]": TypeError,
    "a[0, 0]": INDEX,
    "a[::-1]": TypeError,
    "x[0] = 'a'": TypeError,
    "x[0] = None": TypeError,
    "list(x)": NotImplementedError,
    "x.from_numpy(np.zeros(5, np.float32))": ValueError,
    "x.from_numpy(np.zeros((4, 1), np.float32))": ValueError,
    "a.from_numpy(np.zeros(5, np.float32))": ValueError,
    "x.copy_from(ti.field(ti.f32, 5))": ValueError,
    "x.copy_from(3)": TypeError,
    "ti.field('f32', 3)": ValueError,
    "ti.field()": TypeError,
    "ti.field(ti.f32, (2, -1))": RuntimeError,
    "ti.field(ti.f32, 0)": RuntimeError,
    "ti.field(ti.f32, offset=3)": "TaichiSyntaxError",
    "ti.field(ti.f32, (3, 3), offset=3)": "TaichiSyntaxError",
    "ti.ndarray(ti.f32, (2, -1))": "TaichiRuntimeError",
    "ti.ndarray('f32', 2)": "TaichiRuntimeError",
    "ti.init(foo=1)": KeyError,
    "ti.Vector(3)": "TaichiTypeError",
    "ti.Matrix([[1, 2], [3]])": ValueError,
    "ti.Vector([1, 2]) + ti.Vector([1, 2, 3])": ValueError,
    "ti.Matrix([[1, 2], [3, 4]]) @ ti.Vector([1, 2, 3])": "TaichiCompilationError",
    "ti.Vector([1, 2])[2]": IndexError,
    "ti.Vector([1, 2])[0.5]": IndexError,
    "ti.Vector([1, 2]).nonsense": AttributeError,
    "ti.Vector([1, 2, 3, 4]).cross(ti.Vector([1, 2, 3, 4]))": "TaichiCompilationError",
    "ti.Matrix([[1, 2]]).inverse()": "TaichiCompilationError",
    "ti.Vector([1, 2]).transpose()": "TaichiCompilationError",
    "ti.nonsense": AttributeError,
}

# Head of a kernel -> the error of its first call with a number.
HEADS = {
    "(n)": "TaichiSyntaxError",
    "(n: list)": "TaichiSyntaxError",
    "(*n)": "TaichiSyntaxError",
    "(**n)": "TaichiSyntaxError",
    "(n: ti.i32) -> ti.i32": "TaichiSyntaxError",
    "(n: ti.i32) -> list": "TaichiCompilationError",
}


def run(text: str, path: Path, kind: str | type) -> None:
    """Run a program that has to raise an error of this kind."""
    path.write_text(FRAME + text)
    scope = {"ti": ti, "np": np, "__name__": "program"}
    with pytest.raises(getattr(ti, kind) if isinstance(kind, str) else kind):
        exec(compile(path.read_text(), str(path), "exec"), scope)


@pytest.mark.parametrize("body", BODIES)
def test_compile_error_types(body: str, tmp_path: Path) -> None:
    run(f"\n@ti.kernel\ndef k(n: ti.i32):\n    {body}\n\nk(1)\n", tmp_path / "p.py", BODIES[body])


@pytest.mark.parametrize("statement", CALLS)
def test_python_scope_error_types(statement: str, tmp_path: Path) -> None:
    run(f"\n{statement}\n", tmp_path / "p.py", CALLS[statement])


@pytest.mark.parametrize("head", HEADS)
def test_error_first_lines(head: str, tmp_path: Path) -> None:
    run(f"\n@ti.kernel\ndef k{head}:\n    pass\n\nk(1)\n", tmp_path / "p.py", HEADS[head])


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("TaichiSyntaxError", SyntaxError),
        ("TaichiTypeError", TypeError),
        ("TaichiNameError", NameError),
        ("TaichiRuntimeError", RuntimeError),
        ("TaichiRuntimeTypeError", TypeError),
        ("TaichiAssertionError", AssertionError),
    ],
)
def test_error_base_classes(name: str, python: type) -> None:
    assert issubclass(getattr(ti, name), python)
    runtime = "Runtime" in name or "Assertion" in name
    assert issubclass(
        getattr(ti, name), ti.TaichiRuntimeError if runtime else ti.TaichiCompilationError
    )
