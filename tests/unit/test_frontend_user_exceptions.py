"""Exceptions of the user's Python during compilation: the kernel's line and the user's, and the
exception itself as the cause."""

from __future__ import annotations

import linecache
import os
import traceback
from typing import Any

import pytest

import vkchi as ti
from vkchi.errors import CompilationError
from vkchi.frontend.lowering import lower_kernel
from vkchi.target.options import Options


def fail(*args: Any) -> Any:
    raise LookupError("no such material")


class Hostile:
    """Every special method fails."""

    def __getattr__(self, name: str) -> Any:
        return fail(name)

    def __setattr__(self, name: str, value: Any) -> Any:
        return fail(name, value)

    def method(self) -> Any:
        return fail()

    material = property(fail)
    __getitem__ = __add__ = __radd__ = __neg__ = __lt__ = __bool__ = __len__ = __iter__ = fail
    __contains__ = __format__ = __str__ = __call__ = fail
    __eq__, __hash__ = fail, object.__hash__  # type: ignore[assignment]


class Missing(dict[int, int]):
    def __missing__(self, key: int) -> int:
        return int(fail(key))


class Made:
    def __init__(self) -> None:
        fail()


class Careless:
    @property
    def size(self) -> Any:
        return self.shape[0]  # type: ignore[attr-defined]


def generate() -> Any:
    yield 1
    fail()


hostile, missing, careless = Hostile(), Missing(), Careless()


def lower(statement: str, **options: Any) -> None:
    """Lower a kernel of one statement."""
    text = f"def k():\n    {statement}\n"
    file = f"<{statement}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = dict(globals())
    exec(compile(text, file, "exec"), names)
    lower_kernel(names["k"], (), Options(**options))


@pytest.mark.parametrize(
    "statement",
    [
        "x = ti.static(fail())",
        "x = ti.static(max(1, fail()))",
        "x = hostile.material",
        "x = hostile.nothing",
        "x = hostile[0]",
        "x = hostile + 1",
        "x = 1 + hostile",
        "x = -hostile",
        "x = ti.static(hostile < 1)",
        "x = ti.static(hostile == 1)",
        "x = ti.static(not hostile)",
        "x = ti.static(hostile and 1)",
        "x = ti.static(1 in hostile)",
        "x = ti.static(str(hostile))",
        "x = ti.static(hasattr(hostile, 'material'))",
        "x = ti.static(getattr(hostile, 'material'))",
        "x = ti.static(sorted([hostile, hostile]))",
        "x = 1 if hostile else 2",
        "x = len(hostile)",
        "x = [i for i in hostile]",
        "x = hostile()",
        "x = hostile.method()",
        "x = missing[3]",
        "x = list(generate())",
        "x = Made()",
        "a, b = hostile",
        "print(hostile)",
        "print(f'{hostile}')",
        "ti.static_print(hostile)",
        "assert ti.static(fail())",
        "for i in ti.static(hostile): pass",
        "for i in ti.static(generate()): pass",
        "for i, j in ti.static(enumerate(generate())): pass",
        "while hostile: pass",
        "if ti.static(hostile): pass",
    ],
)
def test_the_cause_is_the_users_exception(statement: str) -> None:
    with pytest.raises(CompilationError) as caught:
        lower(statement, debug=True)
    error = caught.value
    assert error.span is not None and error.span.place.startswith(f"<{statement}>:2:")
    first, *rest = str(error).splitlines()
    assert first.endswith("() raised LookupError at compile time: no such material")
    line = fail.__code__.co_firstlineno + 1
    assert f"note: {__file__}:{line}:5: raised here" in rest
    assert isinstance(error.__cause__, LookupError)
    files = {frame.filename for frame in traceback.extract_tb(error.__cause__.__traceback__)}
    assert files == {__file__}


def test_an_attribute_that_a_property_misses_is_not_the_property() -> None:
    with pytest.raises(CompilationError, match=r"size\(\) raised AttributeError .* 'shape'"):
        lower("x = careless.size")
    with pytest.raises(CompilationError, match="(?s)has no attribute `sizes`.*did you mean `size`"):
        lower("x = careless.sizes")
    with pytest.raises(CompilationError, match=r"`vkchi.math` has no attribute `all`[^?]*$"):
        lower("x = ti.math.all(1)")


def test_errors_of_builtins_have_one_location() -> None:
    with pytest.raises(CompilationError) as caught:
        lower("x = ti.static([1].index(2))")
    assert "index() raised ValueError at compile time: 2 is not in list" in str(caught.value)
    assert "raised here" not in str(caught.value)


def test_interrupts_stay_interrupts() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    globals()["interrupt"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        lower("x = ti.static(interrupt())")


@pytest.mark.device
def test_a_call_shows_both_locations() -> None:
    def material(name: str) -> int:
        return {"water": 1}[name]

    @ti.kernel
    def run() -> ti.i32:
        return ti.static(material("steel"))

    ti.init()
    with pytest.raises(ti.TaichiCompilationError) as caught:
        run()
    whole = "".join(traceback.format_exception(caught.value))
    before, _, after = whole.partition("KeyError: 'steel'")
    assert 'in material\n    return {"water": 1}[name]' in before
    assert "vkchi" + os.sep + "frontend" not in before
    assert "material() raised KeyError at compile time: 'steel'" in after
    assert "return ti.static(material(" in after


@pytest.mark.device
def test_a_gradient_of_ones_own_keeps_its_line() -> None:
    ti.init()
    x, loss = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def square():
        loss[None] += x[None] ** 2

    @ti.ad.grad_replaced
    def forward():
        square()

    @ti.ad.grad_for(forward)
    def backward():
        fail()

    with pytest.raises(LookupError) as caught, ti.ad.Tape(loss):
        forward()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fail"
    with ti.ad.Tape(loss):  # and the next tape works
        square()
