"""Errors in Python scope: the types that Taichi's programs catch, and that Python's programs
expect."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti

SHARED: dict[str, Any] = {"ti": ti, "np": np}


@pytest.fixture(scope="module", autouse=True)
def things() -> None:
    SHARED["x"] = ti.field(ti.f32, 4)
    SHARED["v"] = ti.Vector.field(3, ti.f32, 4)
    SHARED["a"] = ti.ndarray(ti.f32, 4)
    SHARED["noted"] = noted


@ti.kernel
def takes_int(n: ti.i32):
    pass


@ti.kernel
def takes_vector(n: ti.math.vec3):
    pass


@ti.kernel
def takes_two(n: ti.types.ndarray(dtype=ti.f32, ndim=2)):
    pass


@ti.kernel
def takes_template(n: ti.template()):
    pass


@ti.func
def only_in_kernels(n):
    return n


def noted(note: Any, *args: Any) -> None:
    """Call a kernel of one argument with this annotation."""

    @ti.kernel
    def k(n: note):
        pass

    k(*args)


SHARED |= {k.__name__: k for k in (takes_int, takes_vector, takes_two, only_in_kernels)}

# Expression -> names in `ti` and Python's classes, all of which must catch its error.
CALLS = {
    "takes_int()": ("TaichiSyntaxError", "TaichiCompilationError", TypeError),
    "takes_int(1, 2)": ("TaichiSyntaxError", TypeError),
    "takes_int(m=1)": ("TaichiSyntaxError", TypeError),
    "takes_int(1, n=1)": ("TaichiSyntaxError", TypeError),
    "takes_int(1.5)": ("TaichiRuntimeTypeError", "TaichiRuntimeError", TypeError),
    "takes_int('a')": ("TaichiRuntimeTypeError", TypeError),
    "takes_int(None)": ("TaichiRuntimeTypeError",),
    "takes_int([1])": ("TaichiRuntimeTypeError",),
    "takes_int(x)": ("TaichiRuntimeTypeError",),
    "takes_vector(1.0)": ("TaichiRuntimeTypeError",),
    "takes_vector(ti.Vector([1, 2]))": ("TaichiRuntimeTypeError", ValueError),
    "takes_two(a)": (ValueError, TypeError),
    "takes_two(x)": (TypeError,),
    "takes_two(np.zeros((2, 2)))": (ValueError,),
    "takes_two(np.zeros(4, np.float32))": (ValueError,),
    "takes_two(None)": ("TaichiRuntimeTypeError",),
    "takes_two([1.0])": ("TaichiRuntimeTypeError",),
    "only_in_kernels(1)": ("TaichiSyntaxError",),
    "noted(ti.types.ndarray(element_dim=1), a)": (ValueError,),
    "noted(ti.types.ndarray(element_dim=2), np.zeros((2, 0, 2), np.float32))": (ValueError,),
    "noted(ti.types.ndarray(element_shape=(2,)), np.zeros((4, 3), np.float32))": (ValueError,),
    "noted(ti.types.ndarray(needs_grad=True), a)": (ValueError,),
    "noted(ti.types.ndarray(dtype=ti.math.vec3), a)": (ValueError,),
    "noted(ti.template(), a)": ("TaichiRuntimeTypeError",),
    "noted(list, [1])": ("TaichiSyntaxError",),
    "noted(3, 1)": ("TaichiSyntaxError",),
    "ti.types.ndarray(boundary='mirror')": (ValueError,),
    "ti.types.ndarray(dtype='f32')": (TypeError,),
    "ti.types.vector('3', ti.f32)": (TypeError,),
    "ti.types.matrix(2, 0, ti.f32)": (TypeError,),
    "ti.types.vector(3, ti.f32)(1, 2)": ("TaichiTypeError", TypeError),
    "x[4]": (IndexError, "TaichiIndexError"),
    "x[-1]": (IndexError,),
    "x[0, 0]": (IndexError, "TaichiIndexError"),
    "x[::-1]": (TypeError, IndexError),
    "x[1.5]": (TypeError,),
    "x['a']": (TypeError,),
    "a[0, 0]": ("TaichiIndexError",),
    "a[::-1]": (TypeError,),
    "a[4]": (IndexError,),
    "a.__setitem__(0, 'a')": (TypeError,),
    "x.__setitem__(0, None)": (TypeError,),
    "x.__setitem__(0, [1, 2])": (TypeError, ValueError),
    "v.__setitem__(0, [1, 2])": (ValueError,),
    "list(x)": (NotImplementedError, TypeError),
    "list(a)": (NotImplementedError, TypeError),
    "3 in x": (TypeError,),
    "x.from_numpy(np.zeros(5))": (ValueError,),
    "x.from_numpy(np.zeros((4, 1)))": (ValueError,),
    "x.from_numpy('abcd')": (TypeError,),
    "a.from_numpy(np.zeros(5))": (ValueError,),
    "x.copy_from(ti.field(ti.f32, 5))": (ValueError,),
    "x.copy_from(3)": (TypeError,),
    "x.fill('a')": (TypeError,),
    "x.fill([1, 2])": (ValueError,),
    "np.array(x, copy=False)": (ValueError,),
    "x.to_paddle()": (NotImplementedError, "Unsupported"),
    "a.to_paddle()": (NotImplementedError, "Unsupported"),
    "ti.field('f32', 3)": (ValueError,),
    "ti.field(ti.f32, (2, -1))": ("TaichiRuntimeError",),
    "ti.field(ti.f32, 0)": ("TaichiRuntimeError",),
    "ti.field(ti.f32, 2.0)": (TypeError,),
    "ti.ndarray(ti.f32, (2, -1))": ("TaichiRuntimeError",),
    "ti.ndarray('f32', 2)": ("TaichiRuntimeError",),
    "ti.field()": (TypeError,),
    "ti.init(foo=1)": (TypeError, KeyError),
    "ti.init(arch='abacus')": (TypeError, ValueError),
    "ti.init(arch=(ti.cpu, 3))": (TypeError,),
    "ti.init(default_fp=ti.i32)": (TypeError,),
    "ti.init(default_ip=ti.f32)": (TypeError,),
    "ti.init(log_level='loud')": (ValueError,),
    "ti.init(random_seed='a')": (TypeError,),
    "ti.Vector(3)": ("TaichiTypeError", TypeError),
    "ti.Vector(['a'])": ("TaichiTypeError",),
    "ti.Matrix([[1, 2], [3]])": (ValueError, "TaichiTypeError"),
    "ti.Vector([1, 2]) + ti.Vector([1, 2, 3])": (ValueError, "TaichiTypeError"),
    "ti.Vector([1, 2]) @ ti.Matrix([[1, 2, 3]])": ("TaichiCompilationError",),
    "ti.Vector([1, 2])[2]": (IndexError,),
    "ti.Vector([1, 2])[0, 0]": (IndexError,),
    "ti.Vector([1, 2])[0.5]": (TypeError, IndexError),
    "ti.Matrix([[1, 2]])[0]": (IndexError,),
    "ti.Vector([1, 2]).z": ("TaichiSyntaxError",),
    "ti.Vector([1, 2]).nonsense": (AttributeError,),
    "ti.Vector([1, 2, 3, 4]).cross(ti.Vector([1, 2, 3, 4]))": ("TaichiCompilationError",),
    "ti.Matrix([[1, 2]]).inverse()": ("TaichiCompilationError",),
    "ti.Matrix([[1, 2]]).trace()": ("TaichiCompilationError",),
    "ti.Vector([1, 2]).transpose()": ("TaichiCompilationError",),
    "ti.Vector([1.5]) & 1": (TypeError,),
    "bool(ti.Vector([1, 2]))": (TypeError,),
    "ti.random()": ("TaichiSyntaxError",),
    "ti.nonsense": (AttributeError,),
}


@pytest.mark.parametrize("expression", CALLS)
def test_python_scope_error_types(expression: str) -> None:
    for kind in CALLS[expression]:
        with pytest.raises(getattr(ti, kind) if isinstance(kind, str) else kind):
            eval(expression, SHARED)


# Body of a kernel -> how Taichi's programs catch it.
BODIES = {
    "a = nonsense": "TaichiNameError",
    "nonsense(1)": "TaichiNameError",
    "a = ti.nonsense": "TaichiCompilationError",
    "n += 1": "TaichiSyntaxError",
    "n = 2": "TaichiSyntaxError",
    "try:\n        a = 1\n    except ValueError:\n        pass": "TaichiSyntaxError",
    "with open('a'):\n        pass": "TaichiSyntaxError",
    "import math": "TaichiSyntaxError",
    "raise ValueError()": "TaichiSyntaxError",
    "yield 1": "TaichiSyntaxError",
    "del n": "TaichiSyntaxError",
    "a = {1, 2}": "TaichiSyntaxError",
    "return 1": "TaichiSyntaxError",
    "for i in range(3):\n        break": "TaichiSyntaxError",
    "for i in 5:\n        pass": "TaichiCompilationError",
    "a = ti.Vector([1, 2]) + ti.Vector([1, 2, 3])": "TaichiTypeError",
    "a = ti.Matrix([[1, 2], [3, 4]]) @ ti.Vector([1, 2, 3])": "TaichiCompilationError",
    "a = 1.0 << 2": "TaichiTypeError",
    "a = n + None": "TaichiTypeError",
    "a = ~1.0": "TaichiCompilationError",
    "x[1, 2] = 1.0": "TaichiIndexError",
    "x[1.5] = 1.0": "TaichiTypeError",
    "a = ti.Vector([1, 2]).z": "TaichiSyntaxError",
    "a = ti.Vector([1, 2])[3]": "TaichiCompilationError",
    "takes_int(1)": "TaichiSyntaxError",
    "only_in_kernels()": "TaichiSyntaxError",
    "only_in_kernels(1, 2)": "TaichiSyntaxError",
    "only_in_kernels(m=2)": "TaichiSyntaxError",
    "ti.static_assert(1 == 2, 'no')": "TaichiCompilationError",
    "if n:\n        b = 1\n    c = b": "TaichiNameError",
    "b = 1\n    b = ti.Vector([1, 2])": "TaichiTypeError",
    "a = ti.types.vector(3, ti.f32)(1, 2)": "TaichiCompilationError",
}


@pytest.mark.parametrize("body", BODIES)
def test_compile_error_types(body: str, tmp_path: Any) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"@ti.kernel\ndef k(n: ti.i32):\n    {body}\n")
    scope = dict(SHARED)
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(getattr(ti, BODIES[body])) as error:
        scope["k"](1)
    assert isinstance(error.value, ti.TaichiCompilationError)
    assert str(error.value).startswith(f"{path}:")


def test_a_kernel_that_says_it_returns(tmp_path: Any) -> None:
    @ti.kernel
    def k() -> ti.i32:
        pass

    with pytest.raises(ti.TaichiSyntaxError):
        k()


@pytest.mark.parametrize("make", [lambda: ti.field(ti.f32, 4), lambda: ti.ndarray(ti.f32, 4)])
def test_a_shape_is_not_assigned(make: Any) -> None:
    x = make()
    with pytest.raises(AttributeError, match="shape"):
        x.shape = (2, 2)
    assert x.shape == (4,)


def test_error_base_classes() -> None:
    assert issubclass(ti.TaichiSyntaxError, SyntaxError)
    assert issubclass(ti.TaichiTypeError, TypeError)
    assert issubclass(ti.TaichiNameError, NameError)
    assert issubclass(ti.TaichiIndexError, IndexError)
    assert issubclass(ti.TaichiRuntimeError, RuntimeError)
    assert hasattr(ti.lang, "exception") and hasattr(ti.types, "primitive_types")
    assert issubclass(ti.TaichiRuntimeTypeError, (ti.TaichiRuntimeError, TypeError))
    assert issubclass(ti.TaichiAssertionError, AssertionError)
    assert issubclass(ti.TaichiAssertionError, ti.TaichiRuntimeError)
    for name in ("SyntaxError", "TypeError", "NameError"):
        assert issubclass(getattr(ti, f"Taichi{name}"), ti.TaichiCompilationError)


def test_a_failed_init_leaves_the_device_alone() -> None:
    x = ti.field(ti.i32, 3)
    x.fill(4)
    with pytest.raises(ti.TaichiRuntimeTypeError):
        ti.init(nonsense=True)
    assert x[2] == 4
