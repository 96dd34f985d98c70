"""A stand-in for the frontend's context: the interpreter runs the ops that handlers build.

with Building() as cx:
    y = arith.binary(cx, "+", cx.param(i32, 3), 1)
cx.run(y)                  # 4
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkchi.errors import CompilationError
from vkchi.frontend.calls.intrinsics import METHODS
from vkchi.frontend.calls.tables import find_call
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.tensor_attributes import find_attribute
from vkchi.frontend.ops.tensor_construction import call_type
from vkchi.frontend.state.dependencies import Dependencies
from vkchi.frontend.values.references import MemoryTarget
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, Value, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.span import Span
from vkchi.target.options import Options
from vkchi.types import Array, DefaultTensor, Type, scalar_of, shape_of, u32


class Building:
    """Stand-in for the frontend's context: one open region, and parameters with their arguments."""

    def __init__(self, **options: Any) -> None:
        self.b, self.options = Builder(), Options(**options)
        self.span = Span("here.py", 1, 1, 1, 2)
        self.params: dict[str, tuple[Param, Any]] = {}
        self.cautions: list[Any] = []
        self.dependencies = Dependencies()
        self._region = self.b.region()
        self.body = self._region.__enter__()

    def fail(self, sentence: str, *, kind: Any = CompilationError, label: str = "",
             help: str = "", arg: int | None = None,
             constant: Any = None) -> CompilationError:  # fmt: skip
        return kind(sentence, self.span, label=label, help=help)

    def seed(self) -> None:
        self.params.setdefault(".seed", (Param(u32, ".seed"), 7))

    def array_of(self, obj: Any) -> Any:
        raise AssertionError

    def call(self, fn: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError

    def items_of(self, x: Any, most: int | None = None) -> list[Any]:
        return list(x)[:most]

    def run_python(self, fn: Any, args: Any, kwargs: Any = None) -> Any:
        return fn(*args, **(kwargs or {}))

    # --- for tests -------------------------------------------------------------------------------

    def param(self, t: Any, value: Any, name: str = "") -> Param:
        """Add a parameter with the argument `value`; it is not a compile-time constant."""
        name = name or f"p{len(self.params)}"
        p = Param(t, name)
        self.params[name] = (p, np.array(value, scalar_of(t).dtype))
        return p

    def place(self, t: Any, value: Any, name: str = "x") -> MemoryTarget:
        """Add a 0-D array with the element `value`, and return that element."""
        p = Param(Array.of(t, 0, ()), name)
        self.params[name] = (p, np.array(value, scalar_of(t).dtype).reshape(shape_of(t)))
        return MemoryTarget(self.b.emit("elem", p))

    def kinds(self) -> list[str]:
        """Kinds of the ops built so far."""
        return [op.kind for op in walk(self.body)]

    def call_of(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Lower a call of `fn`: a type, or a function in CALLS."""
        if isinstance(fn, Type | DefaultTensor):
            return call_type(self, fn, args, *kwargs)
        call = find_call(fn)
        assert call is not None
        return call.handler(self, *args, **kwargs)

    def method(self, name: str, v: Value, *args: Any) -> Any:
        return METHODS[name](self, v, *args)

    def attribute(self, name: str, v: Value) -> Any:
        attribute = find_attribute(name)
        assert attribute is not None
        return attribute(self, v)

    def run(self, x: Any) -> Any:
        """Close the region, interpret it, and return the value of x: a numpy scalar or array."""
        v = operator_lowering.value(self, x)
        out = Param(Array.of(v.type, 0, ()), "out")
        self.b.emit("store", self.b.emit("elem", out), v)
        self.b.emit("yield")
        self._region.__exit__(None, None, None)
        fn = Func("f", (*[p for p, _ in self.params.values()], out), self.body)
        verify(fn)
        args = {name: value for name, (_, value) in self.params.items()}
        args["out"] = np.zeros(shape_of(v.type), scalar_of(v.type).dtype)
        self.results = run_reference(fn, args)
        return self.results["out"][()]
