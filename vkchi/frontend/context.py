"""The state of one lowering, passed to every handler as `cx`.

It has the IR builder, the stack of activations, and the variables changed in each open region. It
also has captured arrays, and makes errors at the current expression.

    cx.expr(node)               # the compile-time value of an expression, read
    cx.fail("...", label="...") # the error to raise there
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, MappingView
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any

from vkchi.compile_state import ArrayGuard
from vkchi.errors import (
    CompilationError,
    KernelFieldError,
    KernelNameError,
    KernelRuntimeError,
    KernelSyntaxError,
    KernelTypeError,
    nearest_name,
)
from vkchi.frontend.state.captured_values import Path, Step, is_object
from vkchi.frontend.state.dependencies import Dependencies, outer_value
from vkchi.frontend.state.reachable_values import record_reachable
from vkchi.frontend.state.reports import ReportBuilder
from vkchi.frontend.state.scope import (
    ARGUMENT,
    CONSTANT,
    PASSED,
    REFERENCE,
    SHARED,
    VARIABLE,
    Activation,
    ActiveCells,
    Var,
)
from vkchi.frontend.state.user_code_errors import access_error, foreign_traceback, user_code_error
from vkchi.frontend.syntax.syntax_facts import name_in
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.references import ArrayRef, PartStore, member_of
from vkchi.frontend.values.trees import StructOfArrays, refilled
from vkchi.interrupts.local import local
from vkchi.ir.builder import Builder, WideningBuilder
from vkchi.ir.core import Op, Param, Value
from vkchi.lang.matrix import Matrix
from vkchi.span import Span
from vkchi.target.options import Options
from vkchi.target.shader import SEED
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, u32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.frontend.state.pending import PendingCaution, PendingDecision

Binding = tuple[Any, ...]


class HandlerTables(NamedTuple):
    """Dispatch tables of the lowering: AST class -> handler(cx, node).

    `leaves` are called without a span set, since they build no ops. `refuse` returns the error for
    a node without a handler. `call` inlines a function, and `body` lowers the statements of the
    current activation. `arguments` lowers those of a call, `lvalue` an assignment target.
    """

    leaves: dict[type[ast.AST], Callable[..., Any]]
    handlers: dict[type[ast.AST], Callable[..., Any]]
    refuse: Callable[[Lowering, ast.AST], CompilationError]
    call: Callable[[Lowering, Any, tuple[Any, ...], dict[str, Any]], Any]
    body: Callable[[Lowering], None]
    arguments: Callable[[Lowering, ast.Call], tuple[list[Any], dict[str, Any]]]
    lvalue: Callable[[Lowering, ast.expr], Any]


# Kinds of variables that cannot be assigned: what they are, and the help; {0} is the name.
_FIXED = {
    ARGUMENT: (
        "a kernel argument and cannot be assigned", "copy it to a new variable: {0}_ = {0}",
    ),
    REFERENCE: (
        "passed by reference, and this call gives a value for it",
        "pass a variable or an element of an array",
    ),
    PASSED: (
        "an argument of a Python function, which has a copy of it",
        "return the new value, or make it a ti.func with a ti.template() argument",
    ),
    SHARED: (
        "another name of what would change, and has a copy of it here",
        "change it under its first name",
    ),
    CONSTANT: (
        "a compile-time constant and cannot change here", "give the new value a name of its own",
    ),
}  # fmt: skip


class LaunchCondition(NamedTuple):
    """A condition that the host checks before each launch, if it can compute `value`.

    `test` is a Python expression in which `n` is the value.
    """

    value: Value
    test: str
    sentence: str
    span: Span


class LoopConfig(NamedTuple):
    """Options of `ti.loop_config` for the next loop, and the blocks of `ti.no_activate`."""

    block: int | None = None
    is_serial: bool = False
    name: str = ""
    passive: frozenset[Any] = frozenset()


class Lowering:
    """State of one lowering; implements the protocol `references.Context`.

    - `frames`: one dict per open region: the outer variables changed in it, with their old
      values.
    - `stepped_calls`: number of calls lowered into regions that a debugger may step through.
    - `run_arm`: runs one of two branches at once, by a condition; None unless `python_mode` sets
      it.
    """

    run_arm: Callable[[Value, Any, Any], Any] | None = None

    def __init__(self, tables: HandlerTables, options: Options) -> None:
        self.tables, self.options = tables, options
        self.b: Builder = WideningBuilder()
        self.act: Activation
        self.frames: list[dict[Var, Any]] = []
        self.stepped_calls = 0
        self.is_certain = True  # the code lowered here runs unconditionally
        self.in_parallel = False
        self.block: int | None = None  # the `block_dim` of the parallel loop
        self.in_serial = False  # inside a serial loop at the top, or under a condition there
        self.decisions: list[PendingDecision] = []
        # Arrays without derivatives; True: to the end of this loop only.
        self.stopped: dict[Value, bool] = {}
        self.config = LoopConfig()
        self.parallel_loops: dict[Span, int] = {}  # span -> number
        self.call_node: ast.Call | None = None
        self.kept: ast.expr | None = None  # an argument of numpy: keeps its numpy type
        self.iterated: ast.expr | None = None  # the iterable of the current loop
        self.dependencies = Dependencies()
        self.reports = ReportBuilder()
        self.cells = ActiveCells()
        self.demands: list[LaunchCondition] = []
        self.cautions: list[PendingCaution] = []
        self.part_store: PartStore | None = None
        self.in_static = False  # True inside the arguments of `ti.static`
        self.params: list[Param] = []
        self.bindings: dict[str, Binding] = {}
        self.objects = set[str]()  # names of arguments annotated with a dataclass
        self._arrays: dict[int, Any] = {}  # ArrayRefs and StructOfArrays
        self._scalars: dict[Path, Param] = {}
        # id -> (object that Python made in this kernel, number of open regions)
        self.made: dict[int, tuple[Any, int]] = {}
        # id -> (object, its widened copy); holding the object keeps its id from being reused.
        self._found: dict[int, tuple[Any, Any]] = {}

    def leave_parallel(self) -> None:
        """Reset the state of a parallel loop after it was lowered.

        Drops the loop's indices for failure messages, and its arrays without derivatives.
        """
        self.in_parallel, self.reports.iteration = False, ()
        self.stopped = {v: is_inside for v, is_inside in self.stopped.items() if not is_inside}

    def stop_gradient(self, array: ArrayRef) -> None:
        """Block derivatives through later reads of an array.

        It holds to the end of the current parallel loop; outside of one, to the end of the kernel.
        """
        self.stopped[array.value] = self.in_parallel

    # --- lowering one node -------------------------------------------------------------------

    def ref(self, n: ast.expr) -> Any:
        """Return an expression's compile-time value; a Target if it is a memory location."""
        cls = type(n)
        leaf = self.tables.leaves.get(cls)
        if leaf is not None:
            return leaf(self, n)
        handler = self.tables.handlers.get(cls)
        if handler is None:
            raise self.tables.refuse(self, n)
        b, act = self.b, self.act
        outer = b.span
        b.span = act.source.span(n, act.caller)
        value = handler(self, n)
        b.span = outer
        return value

    def expr(self, n: ast.expr) -> Any:
        """Return an expression's compile-time value; Targets, also in containers, are read."""
        value = self.ref(n)
        if isinstance(value, Value):
            return value
        found = kind_of(value)
        is_read = found.is_target or found.is_container
        return self.at(n, lambda cx: found.load(cx, value)) if is_read else value

    def at(self, n: ast.expr, f: Callable[[Lowering], Any]) -> Any:
        """Return `f(self)`, evaluated with n as the current expression."""
        outer, self.b.span = self.b.span, self.act.source.span(n, self.act.caller)
        value = f(self)
        self.b.span = outer
        return value

    def stmt(self, n: ast.stmt) -> None:
        handler = self.tables.handlers.get(type(n))
        if handler is None:
            raise self.tables.refuse(self, n)
        self.locate(n)
        handler(self, n)

    def locate(self, n: ast.AST) -> None:
        self.b.span = self.act.source.span(n, self.act.caller)

    @property
    def span(self) -> Span:
        assert self.b.span is not None
        return self.b.span

    def fail(
        self,
        sentence: str,
        *,
        kind: type[CompilationError] = KernelTypeError,
        label: str = "",
        help: str = "",
        arg: int | None = None,
        notes: tuple[tuple[str, Span | None], ...] = (),
        constant: Any = None,
    ) -> CompilationError:
        """Return the error to raise at the current expression, or at its `arg`-th call argument.

        `constant`: a value that is not the compile-time constant that it should be. If it is
        computed from a number of an object, the help says how to declare that.
        """
        help = self._help_for_constant(constant) or help
        span, call = self.b.span, self.call_node
        if arg is not None and call is not None and arg < len(call.args):
            span = self.act.source.span(call.args[arg], self.act.caller)
        return kind(sentence, span, label=label, help=help, notes=notes)

    def _help_for_constant(self, x: Any) -> str:
        found = self.member_in(x)
        if found is None:
            return ""
        path, kind = self.dependencies.path_of_scalar(found.name), found.type.kind
        name = path.rpartition(".")[2]
        python = {"f": "float", "b": "bool"}.get(kind, "int")
        return f"`{path}` is known at run time: annotate it `{name}: typing.Final[{python}]`"

    def member_in(self, x: Any) -> Any:
        """Return the first number of an object that x is or is computed from: its parameter, or
        None. At most 100 operations are searched."""
        left, members = [x], self._scalars.values()
        for value in left:
            if isinstance(value, Param) and value in members:
                return value
            if len(left) < 100 and isinstance(value, Op):
                left += value.args
            elif len(left) < 100 and not isinstance(value, Value):
                left += value if isinstance(value, list | tuple) else kind_of(value).children(value)
        return None

    @property
    def called(self) -> str:
        """Name of the function in the call being lowered; "" outside calls and for attributes."""
        return "" if self.call_node is None else name_in(self.call_node.func)

    # --- variables ---------------------------------------------------------------------------

    @property
    def is_top(self) -> bool:
        """True if no region is open: a loop here can be a dispatch of its own."""
        return not self.frames

    def declare(self, name: str, value: Any, kind: str = VARIABLE) -> Var:
        """Declare a variable in the innermost block. A nameless kernel value takes its name."""
        if isinstance(value, Value) and not value.name:
            value.name = name
        return self.act.declare(Var(name, value, kind, len(self.frames), self.b.span))

    def assign(self, var: Var, value: Any) -> None:
        """Set a variable's value.

        For a variable from outside the current region, the region notes the old value, and restores
        it at its end.
        """
        if var.depth < len(self.frames):
            self.frames[-1].setdefault(var, var.value)
        var.value = value

    def check_assignable(self, var: Var) -> None:
        """Check that a variable's kind is not in _FIXED. Raises KernelSyntaxError."""
        if var.kind not in _FIXED:
            return
        sentence, help = _FIXED[var.kind]
        if var.kind == ARGUMENT and kind_of(var.value).is_array:
            help = "assign its elements: {0}[i] = ..."
        is_bound = var.kind == CONSTANT and var.span is not None
        raise self.fail(
            f"`{var.name}` is {sentence}",
            kind=KernelSyntaxError,
            notes=((f"`{var.name}` was bound here", var.span),) if is_bound else (),
            help=help.format(var.name),
        )

    def capture(self, name: str) -> Any:
        """Return the value of a name from outside the function, as `found`, and record the read.

        Raises KernelNameError.
        """
        value = self.peek_captured(name, _MISSING)
        if value is _MISSING:
            raise self.undefined(name)
        self.dependencies.read(self.act.fn, name, value, self.b.span)
        return self.found(self.as_read(value))

    def outside(self, value: Any) -> Any:
        """Record the use of a Python object without a name; return it as `found`."""
        value = plain_number(value)
        self.dependencies.outside(value)
        return self.found(self.as_read(value))

    def part(self, base: Any, step: Step | None, value: Any) -> Any:
        """Record the read of a part of a Python object, and return the part as `found`.

        The part is an attribute, an item, or a value that no path leads to (`step` is None).
        """
        return self.found(self.branch(base, step, value))

    def branch(self, base: Any, step: Step | None, value: Any) -> Any:
        """Record the read of a container's item, and return it without widening (see `found`).

        The item was widened with its container, or comes from the result of a call.
        """
        self.dependencies.read_part(base, step, value, self.b.span)
        return self.as_read(value)

    def way(self, n: ast.expr, lower: Callable[[Lowering, ast.expr], Any] | None = None) -> Any:
        """Return the value of an expression of which only a part is read next.

        For an object from outside the kernel, the dependency is then on that part alone. `lower`
        replaces `ref`.
        """
        before = self.dependencies.count
        base = self.ref(n) if lower is None else lower(self, n)
        if isinstance(n, ast.Name | ast.Attribute | ast.Subscript):
            self.dependencies.was_a_way(base, before)
        return base

    def looked_into(self, *values: Any) -> None:
        """Record that Python operators read these objects of users' classes, or compare them."""
        if not any(value is None for value in values):
            self.dependencies.used_as_a_whole(values)
        for value in values:
            if not isinstance(value, Value) and is_object(value):
                self.dependencies.compared(value)
                record_reachable(self.dependencies, None, (value,))

    def iterate(self, x: Any, begin: Callable[[Any], Iterable[Any]] = iter) -> Iterator[Any]:
        """Yield the items of an object, and record that the kernel reads them."""
        take = self.branch if kind_of(x).is_container or isinstance(x, MappingView) else self.part
        has_path = isinstance(x, list | tuple) and begin is iter
        self.dependencies.iterated(x)
        self.looked_into(x)
        for k, item in enumerate(begin(x)):
            yield take(x, ("item", k) if has_path else None, item)

    def items_of(self, x: Any, most: int | None = None) -> list[Any]:
        """Return at most `most` items of an object, and record that the kernel reads them."""
        items: list[Any] = self.run_python(lambda x: list(islice(self.iterate(x), most)), (x,))
        return items

    def found(self, value: Any) -> Any:
        """Return a captured Python object as the kernel sees it.

        Numbers of a vector or matrix become at least as wide as default_fp and default_ip, also in
        lists, tuples and dicts. Other objects are unchanged. One object gives one result, until
        `forget_changed` drops it.
        """
        if not isinstance(value, Matrix | list | tuple | dict):
            return value
        known = self._found.get(id(value))
        if known is None:
            self._found[id(value)] = (value, value)  # a list may contain itself
            known = self._found[id(value)] = (value, self._widened(value))
        if known[1] is not value:
            self.dependencies.stands_for(known[1], value)
        return known[1]

    def forget_changed(self) -> None:
        """Drop the results of `found` that a Python function, which just ran, may have made stale.

        These are all containers, and vectors and matrices whose numbers changed.
        """
        self._found = {key: pair for key, pair in self._found.items() if has_same_numbers(*pair)}

    def _widened(self, value: Any) -> Any:
        if isinstance(value, Matrix):
            return value.captured(self.options.default_fp, self.options.default_ip)
        if not kind_of(value).is_container:  # parts of a named tuple are read as attributes
            return value
        old = kind_of(value).children(value)
        new = [self.found(x) for x in old]
        return value if all(map(is_, old, new)) else refilled(value, new)

    def peek_captured(self, name: str, default: Any = None) -> Any:
        """Return the value of a name from outside the function, without recording a dependency.

        An undefined name gives `default`.
        """
        return outer_value(self.act.fn, name, default)

    def undefined(self, name: str) -> CompilationError:
        gone = self.act.gone.get(name)
        if gone is not None:
            return self.fail(
                f"`{name}` is not defined here",
                kind=KernelNameError,
                notes=((f"`{name}` was first assigned in a block that has ended", gone),),
                help="assign it before the block",
            )
        names = [key for block in self.act.blocks for key in block]
        names += [key for key in self.act.fn.__globals__ if not key.startswith("_")]
        close = nearest_name(name, [*names, *self.act.fn.__code__.co_freevars])
        return self.fail(
            f"`{name}` is not defined",
            kind=KernelNameError,
            help=f"did you mean `{close}`?" if close else "",
        )

    # --- parameters of the Func --------------------------------------------------------------

    def add_param(self, param: Param, binding: Binding) -> Param:
        """Add a parameter to the Func under a unique name, with the object that a launch binds."""
        param.name = self.unused_name(param.name)
        self.params.append(param)
        self.bindings[param.name] = binding
        return param

    def unused_name(self, name: str) -> str:
        """Return a name that no parameter has: this one, or with a number."""
        found, k = name, 1
        while found in self.bindings:
            k += 1
            found = f"{name}_{k}"
        return found

    def as_viewed(self, value: Any) -> Any:
        """Return a view as a slice of its base, which is recorded as an attribute of it; other
        objects unchanged."""
        found = kind_of(value).of_view(self, value)
        return value if found is None else found

    def as_read(self, value: Any) -> Any:
        """Return a Python object that was just read, as the kernel sees it.

        Numpy scalars become Python numbers. An ndarray becomes a parameter of the Func, if a path
        leads to it. Raises KernelTypeError if the path led to another array before.
        """
        if hasattr(type(value), "__vkchi_ndarrays__"):
            return self._structs(value)
        if not kind_of(value).is_ndarray:
            return plain_number(self.as_viewed(value))
        path = self.dependencies.array_path(value)
        if path is None:
            return value
        if self.dependencies.is_other(path, value):
            error = self.fail(
                f"`{path}` is another ndarray than where it was read before",
                help="read it once, and keep it in a variable",
            )
            error.is_transient = True
            raise error
        found = self._arrays.get(id(value))
        if found is None:
            given, name = value.__vkchi_argument__, self.unused_name(path.dotted)
            self.dependencies.add_member(value, name)
            param = self.add_param(Param(given.type, name, given.attributes), ("arg", name))
            found = self._arrays[id(value)] = ArrayRef(param, name=str(path), member=value)
        return found

    def _structs(self, value: Any) -> Any:
        """Return an ndarray of structs that was just read, whose members become parameters of the
        Func, if a path leads to each."""
        arrays, kind = value.__vkchi_arrays__, type(value)
        if self.dependencies.array_path(value) is None or any(hasattr(kind, m) for m in arrays):
            return value
        t = value.__vkchi_type__
        self.dependencies.read_part(value, ("attr", "__vkchi_type__"), t, self.b.span)
        members = {name: self.branch(value, ("attr", name), x) for name, x in arrays.items()}
        found = self._arrays.get(id(value))
        if found is None:
            found = self._arrays[id(value)] = StructOfArrays(members, t.methods, t)
            found.member = value
        return found

    def scalar_member(self, t: Scalar, *, is_wide: bool = False) -> Param | None:
        """Return the number that was just read from an object as a parameter of the Func, of type
        `t`; None if no path leads to it. `is_wide`: `t` is i64 because the number needs it."""
        paths = [path for path in self.dependencies.last if path.root.kind != "object"]
        if not paths:
            return None
        found = next((self._scalars[path] for path in paths if path in self._scalars), None)
        if found is None:
            name = self.unused_name(paths[-1].dotted)
            found = self.add_param(Param(t, name), ("arg", name))
        if not all(path in self._scalars for path in paths):
            self._scalars |= dict.fromkeys(paths, found)
            self.dependencies.add_scalar(paths[::-1], found.name, t, is_wide=is_wide)
        return found

    def array_of(self, obj: Any) -> ArrayRef:
        """Return the array of a captured field, which becomes a parameter of the Func.

        Raises KernelFieldError for a field that has no memory.
        """
        found = self._arrays.get(id(obj))
        if found is None:
            found = self._arrays[id(obj)] = self._capture_array(obj)
        return found

    def _capture_array(self, obj: Any, name: str = "") -> ArrayRef:
        part = getattr(obj, "component_of", None)
        if part is not None:  # the same memory must be the same parameter
            whole, component = part
            if not isinstance(component, int) and id(whole) not in self._arrays:
                name = self.dependencies.name_of(obj, "field")
                self._arrays[id(whole)] = self._capture_array(whole, name)
            return ArrayRef(self.array_of(whole).value, obj, component)
        try:
            t = obj.__vkchi_array__()
        except KernelRuntimeError as e:
            raise self.fail(str(e), kind=KernelFieldError) from None
        name = name or self.dependencies.name_of(obj, "field")
        param = Param(t, name, obj.__vkchi_attributes__())
        return ArrayRef(self.add_param(param, ("field", obj)), obj)

    def gradient_of(self, array: ArrayRef) -> ArrayRef:
        """Return the gradient of an ndarray argument, which becomes a parameter of the Func."""
        binding = ("grad", array.value.name)
        shown = f"{array.name}.grad"
        for param in self.params:
            if self.bindings[param.name] == binding:
                return ArrayRef(param, clamps=array.clamps, name=shown)
        assert isinstance(array.value, Param)
        param = array.value.companion(f"{array.value.name}.grad")
        # The gradient may also be passed as an argument.
        param.attributes = param.attributes._replace(noalias=False)
        param = self.add_param(param, binding)
        return ArrayRef(param, clamps=array.clamps, name=shown)

    def seed(self) -> None:
        """Record that the kernel draws random numbers: the first call adds one parameter to the
        Func."""
        if ("seed",) not in self.bindings.values():
            self.add_param(Param(u32, SEED), ("seed",))

    # --- calls -------------------------------------------------------------------------------

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inline a Python function (a `@func`, or a plain one) on compile-time values."""
        return self.tables.call(self, fn, args, kwargs)

    def run_python(
        self,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any = None,
        *,
        as_is: bool = False,
        or_else: Callable[[], Any] | None = None,
    ) -> Any:
        """Call a Python function at compile time; record the values that it may read.

        An exception in it becomes a compile error. A CompilationError with a span is raised
        unchanged. Numpy scalars become Python numbers, unless `as_is`. If it accesses elements of
        an array, return `or_else()` instead; without that, raise KernelTypeError.
        """
        if fn is not super:
            record_reachable(self.dependencies, fn, (*args, *(kwargs or {}).values()))
            self.as_compared([getattr(fn, "__self__", None), *args, *(kwargs or {}).values()])
        guard = ArrayGuard()
        try:
            with guard:
                given = fn(*args, **(kwargs or {}))
            if not guard.is_tripped:
                return given if as_is else plain_number(given)
        except local(Exception) as e:
            if guard.is_tripped:
                return self.instead(fn, or_else)
            if isinstance(e, CompilationError) and e.span is not None:
                raise
            is_own = (getattr(fn, "__module__", None) or "").startswith(_NOT_USERS)
            name = getattr(fn, "__name__", type(fn).__name__)
            failed = user_code_error(self, e, "" if is_own and foreign_traceback(e) else name)
            raise failed from failed.__cause__
        return self.instead(fn, or_else)

    def as_compared(self, values: list[Any]) -> list[Any]:
        """Return values that Python code receives, and record the captured ndarrays among them:
        the code depends on their identities."""
        if not self.dependencies.has_members:
            return values
        seen, left = set[int](), [*values]
        while left:
            x = left.pop()
            member = member_of(x)
            if member is not None:
                self.dependencies.compared_by_python(member)
            elif kind_of(x).is_container and id(x) not in seen:
                seen.add(id(x))
                left += kind_of(x).children(x)
        return [x if (member := member_of(x)) is None else member for x in values]

    def instead(self, fn: object, or_else: Callable[[], Any] | None) -> Any:
        """Return `or_else()`, after fn accessed elements of an array at compile time."""
        if or_else is None:
            raise access_error(self, getattr(fn, "__name__", type(fn).__name__))
        return or_else()


_MISSING = object()
_NOT_USERS = ("vkchi.", "builtins")


def plain_number(x: Any) -> Any:
    """Return x with a numpy scalar or 0-d array converted to a Python number."""
    is_number = isinstance(x, np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0)
    return x.item() if is_number else x


def has_same_numbers(read: Any, found: Any) -> bool:
    """True if `read` is a vector or matrix, and its widened copy `found` still has its numbers."""
    if not isinstance(read, Matrix):
        return False
    if read is found:
        return True
    a, b = read.entries, found.entries
    has_same_signs = np.array_equal(np.signbit(a), np.signbit(b))  # -0.0 equals 0.0
    return np.array_equal(a, b) and has_same_signs
