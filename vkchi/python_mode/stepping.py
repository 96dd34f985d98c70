"""Execution of user's functions statement by statement.

A `Run` is one launch. `Steps` are one call of a function: its methods are called by the code that
`stepped_code` makes, and lower the statement with that number, which evaluates it.

Debuggers and tracers see the user's code only: tracing is suspended in the methods of `Steps`, and
resumed while the code of a function that a kernel calls runs.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from sys import gettrace, settrace
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from vkchi.errors import InternalError
from vkchi.frontend.context import LoopConfig, Lowering
from vkchi.frontend.control.carry import share_variables
from vkchi.frontend.control.expressions import bind_static
from vkchi.frontend.control.flow import (
    Arm,
    PathMerge,
    condition,
    condition_of,
    fill_holes,
    lower_block,
    run_region,
)
from vkchi.frontend.control.loops import (
    LoopForm,
    as_index,
    bind_indices,
    check_runs_to_end,
    choose_form,
    note_iteration,
)
from vkchi.frontend.control.spaces import LoopSpace, bounds_of, indices_of, parallel_bounds
from vkchi.frontend.control.statements import is_debugger_call
from vkchi.frontend.lowering import HANDLERS
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.state.scope import CONDITIONAL, UNSET, VARIABLE, LoopScope, Var
from vkchi.frontend.syntax.source import Source
from vkchi.frontend.syntax.syntax_facts import bottom_names
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.python_values import is_static_call
from vkchi.frontend.values.references import ArrayRef, MemoryTarget
from vkchi.frontend.values.targets import ComponentsTarget, ComponentTarget, VariableTarget
from vkchi.frontend.values.trees import (
    StructOfArrays,
    StructValue,
    child_pairs,
)
from vkchi.ir.core import Param, Value
from vkchi.lang.matrix import Matrix, Vector
from vkchi.python_mode.evaluation import EvaluatingBuilder, Evaluator, Held, HeldParam, held_value
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of
from vkchi.types.lazy_numpy import np

# --- code for stepping ---------------------------------------------------------------------------
#
# Python code of a user's function for stepping: its control flow, with calls for its statements.
#
# The code has the user's file, lines and names. A statement becomes a call of a method of the
# `Steps`, by its number; names that it assigns become Python variables, for the debugger.
#
#     x = v[i] + 1        ->    (x,) = _vkchi.run(3)
#     if x > 2:           ->    if _vkchi.test(4):
#     for i in range(n):  ->    while _vkchi.more(5) with i := _vkchi.found[0]
#     return x            ->    return _vkchi.run(6)
#
# Calls of the debugger (`breakpoint()`, `pdb.set_trace()`) stay as they are.
#
# The user's frame itself suspends tracing before each call, and resumes it after (CALL). These are
# calls of C functions, so a debugger that steps into the call sees no frame of vkchi.

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


# --- execution -----------------------------------------------------------------------------------

OWN_PACKAGE = "vkchi"
Undo = Callable[[], object]


class Run(Lowering):
    """The lowering of one launch, whose ops are evaluated.

    - `bind`: gives the value of a parameter of the kernel, by its binding.
    - `shown`: the user's objects of array parameters.
    - `renew_seed`: begins the random numbers of a dispatch.
    """

    def __init__(
        self,
        options: Options,
        evaluator: Evaluator,
        bind: Callable[[Param, tuple[Any, ...]], Any],
        renew_seed: Callable[[], None],
    ) -> None:
        super().__init__(HANDLERS._replace(body=run_body), options)
        self.evaluator, self.bind, self.renew_seed = evaluator, bind, renew_seed
        self.b = self.builder = EvaluatingBuilder(evaluator)
        self.in_serial = True  # a launch makes no decisions about loops
        self.is_certain = False  # conditions of the launch were checked before it
        self.shown: dict[Value, Any] = {}
        self.trace: Any = None

    def add_param(self, param: Param, binding: tuple[Any, ...]) -> Param:
        made = HeldParam(param.type, param.name, param.attributes)
        super().add_param(made, binding)
        made.held = self.bind(made, binding)
        return made

    @property
    def run_arm(self) -> Callable[[Value, Any, Any], Any] | None:  # type: ignore[override]
        """The function that runs one of two arms; None in a region."""
        return self._run_arm if self.builder.is_direct else None

    def _run_arm(self, cond: Value, a: Arm, b: Arm) -> Any:
        """Run the selected arm, and convert its value to the common type of both."""
        is_first = bool(held_value(cond))
        lower = (a if is_first else b).lower
        assert lower is not None
        self.frames.append({})
        with self.act.block():
            taken = lower()
        self.frames.pop()
        join = PathMerge(self)
        tree = join.merge(taken, b.value, "") if is_first else join.merge(a.value, taken, "")
        mine = 0 if is_first else 1
        values = [operator_lowering.value(self, pair[mine], pair[2]) for pair in join.pairs]
        return fill_holes(tree, values)

    def forget_notes(self) -> None:
        """Drop the notes of a statement: warnings and conditions were given before the launch."""
        self.cautions.clear()
        self.demands.clear()
        self.decisions.clear()
        self.reports.sites.clear()


def run_body(cx: Lowering) -> None:
    """Run the current activation's statements as Python code, through which debuggers can step.

    In a region, and for functions of vkchi, the statements are lowered as usual.
    """
    assert isinstance(cx, Run)
    is_own = (cx.act.fn.__module__ or "").partition(".")[0] == OWN_PACKAGE
    if is_own or not cx.builder.is_direct:
        cx.stepped_calls += not is_own
        lower_block(cx, cx.act.source.node.body)
        return
    act = cx.act
    code = stepped_code(act.fn, act.source)
    result = common_result(cx, code.results)
    steps = Steps(cx, code.steps)
    names = [arg.arg for arg in parameters_of(act.source.node)]
    args = [steps.shown(name) for name in names]
    run = code.function(act.fn)
    resume: Callable[[Any], object] = settrace
    try:
        # One line, so that a debugger that returns to this frame does not stop in it.
        cx.trace = (resume(cx.trace), run(steps, *args), gettrace(), resume(None))[2]
    except BaseException:
        cx.trace = gettrace()
        settrace(None)
        raise
    steps.close_to(())
    cx.act = act
    if result is not UNSET:
        act.result.value = convert_leaves(cx, act.result.value, result)


def common_result(cx: Run, results: int) -> Any:
    """Lower the current function without running it; return its result, of the type of all
    `return`s.

    UNSET for a kernel, and for a function with a return annotation or fewer than two `results`:
    `return`s of values.
    """
    act = cx.act
    if results < 2 or act.returns is not None or act.is_kernel:
        return UNSET
    with act.block():
        arm = run_region(cx, (), lambda: lower_block(cx, act.source.node.body))
    cx.forget_notes()
    return arm.changed.get(act.result, UNSET)


def convert_leaves(cx: Run, x: Any, like: Any) -> Any:
    """Convert the kernel values and numbers in x to the types at the same positions of `like`.

    Other parts of x are unchanged.
    """
    pairs = child_pairs(like, x)
    if pairs is not None:
        return kind_of(x).with_children(x, [convert_leaves(cx, p, other) for other, p in pairs])
    if (
        not isinstance(like, Value)
        or kind_of(x).is_container
        or getattr(x, "type", None) is like.type
    ):
        return x
    assert isinstance(like.type, Scalar | Tensor)
    return operator_lowering.value(cx, x, like.type)


class Steps:
    """One call of a function.

    - `opened`: the open blocks, each with its undo function.
    - `loops`, `last`: the running loops, and the names of their last iteration, by number.
    - `found`: values of the names that a loop binds.
    - `trace`: the trace function, which the code resumes after each call.
    """

    gettrace, settrace = gettrace, settrace

    def __init__(self, cx: Run, steps: Sequence[Step]) -> None:
        self.cx, self.act, self.steps = cx, cx.act, steps
        self.opened: list[tuple[tuple[int, bool], Undo]] = []
        self.loops: dict[int, Iterator[None]] = {}
        self.last: dict[int, list[Any]] = {}
        self.found: list[Any] = []
        self.trace: Any = None

    def __repr__(self) -> str:
        return f"<steps of {self.act.fn.__name__}()>"

    # --- called by the code --------------------------------------------------------------------

    def run(self, number: int, trace: Any, _: None) -> Any:
        """Run a statement; return the values of the variables that it shows.

        For a `return`, return the result.
        """
        return self.act_on(self.run_statement, number, trace)

    def test(self, number: int, trace: Any, _: None) -> bool:
        """Evaluate the condition of an `if` or `while`, and open the block that it selects."""
        return self.act_on(self.run_test, number, trace)  # type: ignore[no-any-return]

    def more(self, number: int, trace: Any, _: None) -> bool:
        """Open the block of the next iteration of a loop; False if there is none."""
        return self.act_on(self.run_loop, number, trace)  # type: ignore[no-any-return]

    def act_on(self, act: Callable[[int], Any], number: int, trace: Any) -> Any:
        """Perform a step, note the trace function that is active after it, and drop the step's
        notes."""
        cx = self.cx
        cx.trace = trace
        try:
            found = act(number)
        except BaseException:
            settrace(cx.trace)
            raise
        self.trace = cx.trace
        cx.forget_notes()
        return found

    def run_statement(self, number: int) -> Any:
        step = self.reach(number)
        self.cx.stmt(step.node)
        if isinstance(step.node, ast.Return):
            return None if self.act.is_kernel else mirror(self.act.result.value, self.cx.shown)
        return [self.shown(name) for name in step.names]

    def run_test(self, number: int) -> bool:
        step = self.reach(number)
        test = self.test_while if isinstance(step.node, ast.While) else self.test_if
        return test(number, step.node)

    def run_loop(self, number: int) -> bool:
        path = self.steps[number].path
        depth = len(path)
        is_inside = len(self.opened) > depth and self.opened[depth][0] == (number, True)
        step = self.reach(number)
        if not is_inside:
            self.last.pop(number, None)
            self.loops[number] = self.iterations(number, step.node)
        for _ in self.loops[number]:
            self.found = self.last[number] = [self.shown(name) for name in step.names]
            return True
        del self.loops[number]
        self.found = self.last.pop(number, [None] * len(step.names))
        return False

    # --- branches and loops --------------------------------------------------------------------

    def test_if(self, number: int, n: ast.If) -> bool:
        cx = self.cx
        cx.locate(n.test)
        cond = condition(cx, n.test)
        if isinstance(cond, Value):
            found = bool(held_value(cond))
            self.open(number, self.region(), self.block(), branch=found)
            return found
        act, outer = self.act, self.act.why_serial
        act.why_serial = outer or ("" if is_static_call(cx, n.test) else CONDITIONAL)
        restore = lambda: setattr(act, "why_serial", outer)  # noqa: E731
        self.open(number, restore, self.block(), branch=cond)
        return cond

    def test_while(self, number: int, n: ast.While) -> bool:
        cx = self.cx
        cx.config = LoopConfig()
        cx.locate(n)
        self.open(number, self.region(), self.within_loop(), self.block())
        cond = cx.at(n.test, lambda cx: condition_of(cx, cx.expr(n.test)))
        found = bool(held_value(cond)) if isinstance(cond, Value) else bool(cond)
        if not found:
            self.close_to(self.steps[number].path)
        return found

    def iterations(self, number: int, n: ast.For) -> Iterator[None]:
        """Yield once per iteration of a loop, with its block open."""
        passive = self.cx.config.passive
        form = choose_form(self.cx, n)
        with self.cx.cells.leaving(passive):
            yield from self.iterations_of(number, n, form)

    def iterations_of(self, number: int, n: ast.For, form: LoopForm) -> Iterator[None]:
        """Yield once per iteration of a loop of this form."""
        cx = self.cx
        if form.items is not None:
            for item in form.items:
                self.reach(number)
                self.open(number, self.within_loop(), self.block())
                bind_static(cx, n.target, item)
                yield
            return
        assert form.space is not None
        if form.config is not None:
            yield from self.parallel(number, n, form)
            return
        space = form.space
        cx.locate(n.iter)
        bounds = bounds_of(cx, space)
        for indices in self.indices(space, bounds, is_fixed=cx.is_top):
            self.reach(number)
            cx.locate(n.iter)
            self.open(number, self.region(), self.within_loop(), self.block())
            bind_indices(cx, n, space, indices_of(cx, space, indices))
            yield

    def parallel(self, number: int, n: ast.For, form: LoopForm) -> Iterator[None]:
        """Yield once per iteration of a parallel loop, in order."""
        cx, space = self.cx, form.space
        assert space is not None
        check_runs_to_end(cx, n)
        share_variables(cx, n, form.own)
        cx.locate(n.iter)
        bounds = parallel_bounds(cx, space)
        count = 1
        for begin, end in zip(*[iter(bounds)] * 2):
            count *= max(0, int(held_value(end)) - int(held_value(begin)))
        cx.renew_seed()
        cx.in_parallel = True
        for k, numbers in enumerate(self.indices(space, bounds, is_fixed=True)):
            self.reach(number)
            cx.evaluator.begin_invocation(k, count)
            cx.locate(n.target)
            found = indices_of(cx, space, numbers, bounds[0])
            indices = [as_index(cx, i) for i in found] if len(found) > 1 else found
            indices = indices[: len(space.axes)]
            region, block = self.region(), self.block()
            for var in form.own:
                self.act.declare(Var(var.name, var.value, VARIABLE, len(cx.frames), var.span))
            note_iteration(cx, n, space, indices)
            self.open(number, region, block, self.within_loop(), self.block())
            bind_indices(cx, n, space, indices)
            yield
        self.reach(number)
        cx.leave_parallel()
        cx.evaluator.begin_invocation(0, 1)

    def indices(
        self, space: LoopSpace, bounds: Sequence[Value], *, is_fixed: bool
    ) -> Iterator[list[Value]]:
        """Yield the counters of each iteration; the last axis varies fastest.

        In a sparse block, only those of active cells. With `is_fixed`, these are the cells that are
        active before the loop.
        """
        pairs = list(zip(*[iter(bounds)] * 2))
        ends = [(int(held_value(begin)), int(held_value(end))) for begin, end in pairs]
        types = [scalar_of(begin.type) for begin, _ in pairs]
        every: Iterator[list[Value]] = (
            [Held(t, t.dtype.type(k)) for k, t in zip(found, types)]
            for found in count_over([range(*pair) for pair in ends])
        )
        guard = space.guard
        if guard is None:
            yield from every
            return
        cx = self.cx
        active = (found for found in every if held_value(guard.test(cx, found)[1]))
        yield from list(active) if is_fixed else active

    # --- blocks --------------------------------------------------------------------------------

    def reach(self, number: int) -> Step:
        """Close the blocks that a statement is not in; return its step."""
        step = self.steps[number]
        self.close_to(step.path)
        self.cx.act = self.act
        return step

    def close_to(self, path: Path) -> None:
        same = 0
        while same < min(len(path), len(self.opened)) and self.opened[same][0] == path[same]:
            same += 1
        while len(self.opened) > same:
            self.opened.pop()[1]()

    def open(self, number: int, *undos: Undo, branch: bool = True) -> None:
        """Record an open block; `undos` close its parts, which were opened in this order."""

        def undo() -> None:
            for act in reversed(undos):
                act()

        self.opened.append(((number, branch), undo))

    def block(self) -> Undo:
        return entered(self.act.block())

    def within_loop(self) -> Undo:
        return entered(self.act.loop(LoopScope(len(self.cx.frames))))

    def region(self) -> Undo:
        """Open a region, as for code under a run-time condition; return the function that closes
        it.

        Changed variables keep their new values.
        """
        frames = self.cx.frames
        frames.append({})
        return frames.pop

    def shown(self, name: str) -> Any:
        """Return the value of a variable for the debugger; None without one."""
        var = self.act.find(name)
        return None if var is None else mirror(var.value, self.cx.shown)


def entered(context: Any) -> Undo:
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def count_over(ranges: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """Yield the tuples of `itertools.product`, which would first copy the ranges."""
    if not ranges:
        yield ()
        return
    for k in ranges[0]:
        for more in count_over(ranges[1:]):
            yield (k, *more)


# --- kernel values as Python values ---------------------------------------------------------------


def mirror(x: Any, arrays: dict[Value, Any]) -> Any:
    """Return a compile-time value as Python shows it; None for a kernel value that was not
    evaluated.

    `arrays` are the user's objects of the kernel's array parameters. Objects that only kernels have
    are returned as they are.
    """
    if isinstance(x, Value):
        held = getattr(x, "held", None)
        return held if held is None else of_numpy(held)
    if isinstance(x, MemoryTarget):
        pointer = getattr(x.ptr, "held", None)
        return None if pointer is None else of_numpy(pointer.load())
    if isinstance(x, ArrayRef):
        return x.source if x.source is not None else arrays.get(x.value, x)
    if isinstance(x, VariableTarget):
        return mirror(x.get(), arrays)
    if isinstance(x, ComponentTarget | ComponentsTarget | StructOfArrays):
        return x
    if isinstance(x, StructValue):
        return SimpleNamespace(**{k: mirror(m, arrays) for k, m in x.members.items()})
    if type(x) is dict:
        return {k: mirror(item, arrays) for k, item in x.items()}
    if type(x) in (list, tuple):
        return type(x)([mirror(item, arrays) for item in x])
    return x


def of_numpy(held: Any) -> Any:
    """Return an array of one or two axes as a vector or matrix, other values as they are."""
    if not isinstance(held, np.ndarray) or held.ndim not in (1, 2):
        return held
    return Vector(held) if held.ndim == 1 else Matrix(held)
