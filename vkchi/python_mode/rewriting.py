"""Python code of a user's function for stepping: its control flow, with calls for its statements.

The code has the user's file, lines and names. A statement becomes a call of a method of the
`Steps`, by its number; names that it assigns become Python variables, for the debugger.

    x = v[i] + 1        ->    (x,) = _vkchi.run(3)
    if x > 2:           ->    if _vkchi.test(4):
    for i in range(n):  ->    while _vkchi.more(5) with i := _vkchi.found[0]
    return x            ->    return _vkchi.run(6)

Calls of the debugger (`breakpoint()`, `pdb.set_trace()`) stay as they are.

The user's frame itself suspends tracing before each call, and resumes it after (CALL). These are
calls of C functions, so a debugger that steps into the call sees no frame of vkchi.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from vkchi.errors import InternalError
from vkchi.frontend.control.statements import is_debugger_call
from vkchi.frontend.syntax.source import Source
from vkchi.frontend.syntax.syntax_facts import bottom_names
from vkchi.tuples import NamedTuple

STEPS = "_vkchi"  # the parameter of the code that has the Steps, unless the function has that name
CALL = (
    "({steps}.{method}({number}, {steps}.gettrace(), {steps}.settrace(None)), "
    "{steps}.settrace({steps}.trace))"
)
LEAVING = (ast.Pass, ast.Break, ast.Continue)  # statements that stay as they are
Path = tuple[tuple[int, bool], ...]


class Step(NamedTuple):
    """A statement of a function.

    - `node`: the statement.
    - `path`: the blocks around it, outermost first: number of the statement, and branch.
    - `names`: Python variables that show its result.
    """

    node: Any
    path: Path
    names: tuple[str, ...]


class SteppedCode(NamedTuple):
    """The code of a function, its steps by number, and its number of `return`s of values."""

    code: CodeType
    steps: tuple[Step, ...]
    results: int

    def function(self, fn: FunctionType) -> Callable[..., Any]:
        """Return a function with this code, and the globals and cells of `fn`."""
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
        closure = tuple([cells[name] for name in self.code.co_freevars])
        return FunctionType(self.code, fn.__globals__, fn.__name__, None, closure)


def stepped_code(fn: FunctionType, source: Source) -> SteppedCode:
    """Return the code of a function for stepping, made once per source."""
    found = source.memo.get(STEPS)
    if found is None:
        found = source.memo[STEPS] = _Rewriter(fn, source).rewritten()
    assert isinstance(found, SteppedCode)
    return found


class _Rewriter:
    def __init__(self, fn: FunctionType, source: Source) -> None:
        self.fn, self.source = fn, source
        self.variables = {*fn.__code__.co_varnames, *fn.__code__.co_cellvars}
        self.steps: list[Step] = []
        code, self.own = fn.__code__, STEPS
        while self.own in {*self.variables, *code.co_freevars, *code.co_names}:
            self.own += "_"

    def rewritten(self) -> SteppedCode:
        node = self.source.node
        cells = ", ".join(self.fn.__code__.co_freevars)
        given = ", ".join([self.own, *[arg.arg for arg in parameters_of(node)]])
        module = ast.parse(f"def outer({cells}):\n  def inner({given}): pass")
        outer = module.body[0]
        assert isinstance(outer, ast.FunctionDef)
        inner = outer.body[0]
        assert isinstance(inner, ast.FunctionDef)
        for part in ast.walk(module):
            ast.copy_location(part, node)
        inner.name, inner.body = node.name, self.block(node.body, ())
        ast.increment_lineno(module, self.source.line_shift)
        code = compile(module, self.source.file, "exec", dont_inherit=True)
        results = [step for step in self.steps if isinstance(step.node, ast.Return)]
        count = sum(step.node.value is not None for step in results)
        return SteppedCode(_inner(_inner(code)), tuple(self.steps), count)

    # --- statements ----------------------------------------------------------------------------

    def block(self, stmts: Sequence[ast.stmt], path: Path) -> list[ast.stmt]:
        return [self.statement(n, path) for n in stmts]

    def statement(self, n: ast.stmt, path: Path) -> ast.stmt:
        if isinstance(n, LEAVING) or is_plain(n):
            return copy.deepcopy(n)  # `increment_lineno` moves it
        if isinstance(n, ast.If | ast.While):
            number, test = self.call("test", n, path, n.test)
            body = self.block(n.body, (*path, (number, True)))
            orelse = self.block(n.orelse, (*path, (number, False)))
            return ast.copy_location(type(n)(test, body, orelse), n)
        if isinstance(n, ast.For):
            names = tuple(names_in(n.target))
            number, more = self.call("more", n, path, n.target, names)
            body = self.block(n.body, (*path, (number, True)))
            return ast.copy_location(ast.While(more, body, []), n)
        if isinstance(n, ast.Return):
            return ast.copy_location(ast.Return(self.call("run", n, path, n)[1]), n)
        names = tuple(self.shown(n))
        call = self.call("run", n, path, n, names)[1]
        if not names:
            return ast.copy_location(ast.Expr(call), n)
        return ast.copy_location(ast.Assign([self.targets(names, n)], call), n)

    def call(
        self, method: str, n: ast.stmt, path: Path, at: ast.AST, names: tuple[str, ...] = ()
    ) -> tuple[int, ast.expr]:
        """Add a step; return its number, and the call that runs it, located at a node.

        The call of a loop also binds the names.
        """
        self.steps.append(Step(n, path, names))
        number = len(self.steps) - 1
        text = CALL.format(steps=self.own, method=method, number=number)
        made = ast.parse(f"{text}[0]", mode="eval").body
        if method == "more":
            assert isinstance(made, ast.Subscript) and isinstance(made.value, ast.Tuple)
            for k, name in enumerate(names):
                found = ast.parse(f"({name} := {self.own}.found[{k}])", mode="eval").body
                made.value.elts.append(found)
        for part in ast.walk(made):
            ast.copy_location(part, at)
        return number, made

    def targets(self, names: Sequence[str], at: ast.AST) -> ast.expr:
        parts: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
        made = ast.Tuple(parts, ast.Store())
        for part in ast.walk(made):
            ast.copy_location(part, at)
        return made

    def shown(self, n: ast.stmt) -> Iterator[str]:
        """Yield the variables of Python that a statement may change, each once."""
        found: dict[str, None] = {}
        for part in ast.walk(n):
            if isinstance(part, ast.Assign):
                found |= {name: None for target in part.targets for name in bottom_names(target)}
            elif isinstance(part, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
                found |= dict.fromkeys(bottom_names(part.target))
            elif isinstance(part, ast.Call):  # it may change arguments by reference
                for given in (*part.args, *[k.value for k in part.keywords], part.func):
                    found |= dict.fromkeys(bottom_names(given))
        return (name for name in found if name in self.variables)


def is_plain(n: ast.stmt) -> bool:
    """True for docstrings and for calls of the debugger."""
    return isinstance(n, ast.Expr) and (
        isinstance(n.value, ast.Constant) or is_debugger_call(n.value)
    )


def parameters_of(node: ast.FunctionDef) -> list[ast.arg]:
    """Return all parameters of a function, in the order of the rewritten function."""
    args = node.args
    many = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *many]


def names_in(target: ast.expr) -> Iterator[str]:
    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            yield part.id


def _inner(code: CodeType) -> CodeType:
    for found in code.co_consts:
        if isinstance(found, CodeType):
            return found
    raise InternalError(f"{code.co_name} contains no function")
