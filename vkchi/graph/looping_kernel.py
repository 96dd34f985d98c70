"""Kernels with loops `while ti.graph.do_while(flag):` around their parallel loops.

Such a kernel becomes several: one per run of statements before, in and behind its loops. They are
compiled from parts of its syntax, and launched in order. The body of a loop runs once, and again
while the flag is not 0. The device evaluates the flag (`graph.device_loop`); the host does in debug
mode, under a tape, for loops in loops, and for arrays of other libraries.

    @ti.kernel(graph=True)
    def solve(x: ti.Tensor, left: ti.Tensor):
        while ti.graph.do_while(left):
            for i in x:
                x[i] *= 0.5
            for _ in range(1):
                left[None] -= 1

Source: Quadrants' user guide, "Graph".
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NoReturn

from vkchi.errors import ArgumentError, KernelRuntimeError, KernelSyntaxError
from vkchi.fields.storage import Storage
from vkchi.frontend.syntax.source import Source, function_of_part, source_of
from vkchi.graph.device_loop import cell_of_condition, is_true
from vkchi.graph.record import Record
from vkchi.interop import host_views
from vkchi.kernel import Kernel
from vkchi.lang.compile_time import do_while
from vkchi.pickling import PickledFunction
from vkchi.runtime import Runtime, current_runtime
from vkchi.tuples import NamedTuple


class DoWhile(NamedTuple):
    """A loop: the code of its flag, an expression of the parameters, and its parts."""

    flag: CodeType
    parts: list[Any]  # kernels and loops


class LoopingKernel(PickledFunction):
    """A kernel with loops of `ti.graph.do_while`: kernels of its parts, which a call launches."""

    __vkchi_kind__ = "kernel"
    process_state = ("_count", "_fn", "_names", "_source", "_whole", "parts")

    def __init__(self, fn: FunctionType) -> None:
        functools.update_wrapper(self, fn)
        self.__vkchi_func__ = self._fn = fn
        self._source, self._whole = source_of(fn), Kernel(fn)
        check_returns(self._source)
        self._names = tuple(inspect.signature(fn).parameters)
        self._count = 0
        self.parts = list(self._make_parts(self._source.node.body))
        check_variables(fn, self._source, self._names)

    def revive(self, fn: FunctionType, attributes: dict[str, Any]) -> None:
        """Make the parts again, of the unpickled function."""
        LoopingKernel.__init__(self, fn)

    def __repr__(self) -> str:
        return f"<ti.kernel {self._fn.__qualname__} with loops of ti.graph.do_while>"

    def _make_parts(self, body: Iterable[ast.stmt]) -> Iterator[Kernel | DoWhile]:
        for loop, statements in parts_of(self._fn, body):
            if loop is None:
                self._count += 1
                part = function_of_part(self._fn, self._source, statements, self._count)
                yield Kernel(part)
            else:
                check_jumps(self._source, loop)
                flag = flag_of(self._source, loop)
                code = compile(ast.fix_missing_locations(ast.Expression(flag)), "<flag>", "eval")
                yield DoWhile(code, list(self._make_parts(statements)))

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __call__(self, *args: Any, **named: Any) -> None:
        given = dict(zip(self._names, self._whole.arrange(args, named), strict=True))
        tape = current_runtime().tape
        if tape is not None and tape.kind == "record":
            raise KernelRuntimeError(
                f"{self._fn.__name__}() has loops of ti.graph.do_while, which ti.record() cannot "
                "record\nhelp: record the kernels of the loop, and call `g.run_while(flag)`"
            )
        for loop in loops_in(self.parts):  # before anything runs
            self._flag(loop, given)
        self._run(self.parts, given)

    def grad(self, *args: Any, **named: Any) -> NoReturn:
        """Raise KernelRuntimeError: the gradient needs the iterations of a call."""
        raise KernelRuntimeError(
            f"{self._fn.__name__}() has loops of ti.graph.do_while and no grad()\n"
            "help: call it under `with ti.ad.Tape(loss):`"
        )

    def _run(self, parts: list[Any], given: Mapping[str, Any]) -> None:
        for part in parts:
            if isinstance(part, DoWhile):
                self._repeat(part, given)
            else:
                part(*given.values())

    def _repeat(self, loop: DoWhile, given: Mapping[str, Any]) -> None:
        runtime, flag = current_runtime(), self._flag(loop, given)
        if runs_on_device(loop, given, runtime):
            with Record() as recorded:
                self._run(loop.parts, given)
            recorded.run()
            recorded.run_while(flag)
            return
        self._run(loop.parts, given)
        while is_true(flag, cell_of_condition(flag, runtime)):
            self._run(loop.parts, given)

    def _flag(self, loop: DoWhile, given: Mapping[str, Any]) -> Storage:
        """The array of a loop's flag. Raises ArgumentError unless it holds one integer."""
        flag = eval(loop.flag, self._fn.__globals__, {**variables_around(self._fn), **given})
        is_integer = isinstance(flag, Storage) and flag.compute.kind in "iub"
        if not is_integer or flag.shape not in ((), (1,)):
            raise ArgumentError(
                f"{self._fn.__name__}(): the flag of ti.graph.do_while is a field or ndarray of "
                f"one integer, not {flag!r}"
            )
        return flag  # type: ignore[no-any-return]


def loops_in(parts: list[Any]) -> Iterator[DoWhile]:
    """Yield the loops of a list of parts, also inner ones."""
    for part in parts:
        if isinstance(part, DoWhile):
            yield part
            yield from loops_in(part.parts)


def runs_on_device(loop: DoWhile, given: Mapping[str, Any], runtime: Runtime) -> bool:
    """True if the device evaluates a loop's flag."""
    is_watched = runtime.recording is not None or runtime.options.debug or runtime.options.python
    is_nested = any(isinstance(part, DoWhile) for part in loop.parts)
    others = (x for x in given.values() if not isinstance(x, Storage))
    return not (is_watched or is_nested or any(host_views.view_of(x) is not None for x in others))


# --- syntax --------------------------------------------------------------------------------------


def make_graph_kernel(fn: FunctionType) -> LoopingKernel | None:
    """The kernel of a function with loops of `do_while`; None if it has none."""
    if not any("do_while" in name for name in fn.__code__.co_names):
        return None
    body = source_of(fn).node.body
    has_loops = any(loop is not None for loop, _ in parts_of(fn, body))
    return LoopingKernel(fn) if has_loops else None


def parts_of(
    fn: FunctionType, body: Iterable[ast.stmt]
) -> Iterator[tuple[ast.While | None, list[ast.stmt]]]:
    """Yield each loop of `do_while` with its statements, and None with the others in between."""
    between: list[ast.stmt] = []
    for n in body:
        if isinstance(n, ast.While) and isinstance(n.test, ast.Call) and names_do_while(fn, n.test):
            if between:
                yield None, between
            yield n, n.body
            between = []
        else:
            between.append(n)
    if any(not is_text(n) for n in between):
        yield None, between


def is_text(n: ast.stmt) -> bool:
    return isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)


def names_do_while(fn: FunctionType, call: ast.Call) -> bool:
    """True if a call's function is `do_while`, by the globals and the variables around `fn`."""
    outer = variables_around(fn)
    words = ast.unparse(call.func).split(".")
    found = outer.get(words[0], fn.__globals__.get(words[0]))
    for word in words[1:]:
        found = getattr(found, word, None)
    return found is do_while


def variables_around(fn: FunctionType) -> dict[str, Any]:
    """The variables of enclosing functions that `fn` names, as far as they have values."""
    found: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def flag_of(source: Source, loop: ast.While) -> ast.expr:
    """The argument of `do_while`. Raises KernelSyntaxError unless there is one."""
    assert isinstance(loop.test, ast.Call)
    if len(loop.test.args) != 1 or loop.test.keywords:
        raise KernelSyntaxError(
            "ti.graph.do_while takes an array of one integer",
            source.span(loop.test),
            help="while ti.graph.do_while(flag):",
        )
    return loop.test.args[0]


def check_returns(source: Source) -> None:
    """Raise KernelSyntaxError for a `return`, which would only end its part."""
    for n in ast.walk(source.node):
        if isinstance(n, ast.Return):
            raise KernelSyntaxError(
                "a kernel with loops of ti.graph.do_while has no `return`",
                source.span(n),
                help="put what follows under an `if`, or choose between kernels in Python",
            )


def check_jumps(source: Source, loop: ast.While) -> None:
    """Raise KernelSyntaxError for `break` and `continue` of a loop of `do_while`."""
    for jump in jumps_of(loop.body):
        raise KernelSyntaxError(
            f"a loop of ti.graph.do_while has no `{ast.unparse(jump)}`",
            source.span(jump),
            help="set the flag to 0, and put what follows under an `if`",
        )


def jumps_of(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield each `break` and `continue` of the loop with this body."""
    for n in body:
        if isinstance(n, ast.Break | ast.Continue):
            yield n
        inner = n.orelse if isinstance(n, ast.For | ast.While) else ast.iter_child_nodes(n)
        yield from jumps_of(inner)


def check_variables(fn: FunctionType, source: Source, parameters: Iterable[str]) -> None:
    """Raise KernelSyntaxError for a variable that one part assigns and another one reads."""
    made: dict[str, ast.Name] = {}
    for statements in runs_of(fn, source.node.body):
        names = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)]
        own = {n.id: n for n in names if isinstance(n.ctx, ast.Store)}
        for n in names:
            if n.id in made and n.id not in own and n.id not in parameters:
                raise KernelSyntaxError(
                    f"`{n.id}` is assigned on the other side of a loop of ti.graph.do_while, and "
                    "variables do not last that long",
                    source.span(n),
                    notes=((f"`{n.id}` was assigned here", source.span(made[n.id])),),
                    help="keep it in an array of one element",
                )
        made |= own


def runs_of(fn: FunctionType, body: Iterable[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the statements of each part."""
    for loop, statements in parts_of(fn, body):
        if loop is None:
            yield statements
        else:
            yield from runs_of(fn, statements)
