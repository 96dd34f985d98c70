"""Entry of the frontend: lower a kernel's Python source to one Func of CHI IR.

Handlers by AST class are in `expressions` and `statements`; their shared state is in `context`.

    lowered = lower_kernel(fn, (ArgSpec("x", "scalar", f32),), Options()); lowered.func
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from vkchi.errors import CompilationError, InternalError, KernelSyntaxError
from vkchi.frontend.argspec import ArgSpec, ViewSpec
from vkchi.frontend.calls.callee import lower_arguments
from vkchi.frontend.calls.inline import (
    annotations_of,
    call_function,
    is_tuple_type,
    returned_types,
)
from vkchi.frontend.context import Binding, HandlerTables, LaunchCondition, Lowering
from vkchi.frontend.control.expressions import EXPRESSIONS, LEAVES
from vkchi.frontend.control.flow import lower_block
from vkchi.frontend.control.places import lvalue
from vkchi.frontend.control.statements import STATEMENTS
from vkchi.frontend.state.captured_values import Member
from vkchi.frontend.state.dependencies import Dependencies
from vkchi.frontend.state.pending import PendingCaution, PendingDecision
from vkchi.frontend.state.scope import ARGUMENT, VARIABLE, Activation, Var
from vkchi.frontend.state.user_code_errors import foreign_traceback, user_code_error
from vkchi.frontend.syntax.desugaring import unsupported_node
from vkchi.frontend.syntax.source import source_of
from vkchi.frontend.values.references import ArrayRef
from vkchi.frontend.values.slices import Index, Run, SliceRef
from vkchi.frontend.values.sparse_builders import SparseRef, names_of
from vkchi.frontend.values.trees import StructOfArrays, StructValue
from vkchi.interrupts.local import local
from vkchi.ir.core import Func, Param
from vkchi.reports.sites import ReportSite
from vkchi.target.options import Options
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, Type, bf16, cell_of, f32, scalar_of, with_scalar
from vkchi.types.core import ArrayArgument
from vkchi.types.struct_types import ArgPackType, StructType


def lower_body(cx: Lowering) -> None:
    lower_block(cx, cx.act.source.node.body)


HANDLERS = HandlerTables(
    LEAVES,
    {**EXPRESSIONS, **STATEMENTS},
    unsupported_node,
    call_function,
    lower_body,
    lower_arguments,
    lvalue,
)


class Lowered(NamedTuple):
    """A lowered kernel. The body of `func` has `parallel` ops and is not split into dispatches yet.

    - `bindings`: the object that a launch binds to each parameter. One of ("arg", name), ("field",
      object), ("return", index), ("seed",), or ("grad", name) for the gradient of an argument.
    - `returns`: types of the returned scalars, vectors and matrices
    - `results`: types of the returned values, including structs
    - `returns_tuple`: the annotation is a tuple, even of one type
    - `sites`: report sites, by number
    - `demands`: conditions that the host checks before a launch, where it can
    - `cautions`: warnings about the source
    - `decisions`: which loops are parallel
    - `members`: the parameters that are no arguments, but read from objects
    """

    func: Func
    bindings: dict[str, Binding]
    returns: tuple[Scalar | Tensor, ...]
    results: tuple[Scalar | Tensor | StructType, ...]
    returns_tuple: bool
    dependencies: Dependencies
    sites: tuple[ReportSite, ...] = ()
    demands: tuple[LaunchCondition, ...] = ()
    cautions: tuple[PendingCaution, ...] = ()
    decisions: tuple[PendingDecision, ...] = ()
    members: tuple[Member, ...] = ()


def lower_kernel(fn: FunctionType, args: tuple[ArgSpec, ...], options: Options) -> Lowered:
    """Lower a kernel for one set of argument types. Raises CompilationError."""
    source = source_of(fn)
    cx = Lowering(HANDLERS, options)
    cx.act = Activation(fn, source, None, 0, is_kernel=True)
    cx.locate(source.node)
    cx.dependencies.functions[fn] = None
    try:
        return _lower(cx, fn, args)
    except local(Exception) as e:
        if isinstance(e, CompilationError) or not foreign_traceback(e):
            raise
        failed = user_code_error(cx, e)
        raise failed from failed.__cause__
    finally:
        vars(cx).clear()  # break reference cycles, which would keep the user's arrays alive


def _lower(cx: Lowering, fn: FunctionType, args: tuple[ArgSpec, ...]) -> Lowered:
    note = annotations_of(fn, cx.act.source).get("return")
    returns = () if note is None else returned_types(cx, note)
    span = cx.span
    with cx.b.region() as body, _naming_the_line(cx):
        for arg in args:
            declare_argument(cx, arg)
        cx.act.returns, leaves = declare_returns(cx, returns)
        lower_body(cx)
        check_returned(cx, returns)
        cx.b.emit("yield")
    func = Func(fn.__name__, tuple(cx.params), body, span)
    noted = tuple(cx.reports.sites), tuple(cx.demands), tuple(cx.cautions)
    return Lowered(
        func, cx.bindings, tuple(leaves), returns, is_tuple_type(note), cx.dependencies, *noted,
        tuple(cx.decisions), cx.dependencies.members(),
    )  # fmt: skip


@contextmanager
def _naming_the_line(cx: Lowering) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise cx.fail(
            "expressions, branches or calls nest too deeply here", kind=KernelSyntaxError
        ) from None


def declare_argument(cx: Lowering, arg: ArgSpec) -> None:
    """Declare the variable of one kernel argument. A struct is a copy, which may change."""
    kind = {"struct": VARIABLE}.get(arg.kind, ARGUMENT)
    cx.act.declare(Var(arg.name, make_argument(cx, arg), kind, 0, cx.b.span))


def make_argument(cx: Lowering, arg: ArgSpec) -> Any:
    """Return a kernel argument as a compile-time value; adds parameters to the Func."""
    if arg.kind in ("template", "object", "self"):
        if arg.kind == "object":
            cx.objects.add(arg.name)
            cx.dependencies.by_class.add(arg.name)
        cx.dependencies.root(cx.act.fn, arg.name, arg.value)
        return cx.found(cx.as_viewed(arg.value))
    if arg.kind in ("struct", "structs", "pack"):
        members = {m.name.rpartition(".")[2]: make_argument(cx, m) for m in arg.value}
        methods = arg.type.methods if isinstance(arg.type, StructType) else None
        return (StructOfArrays if arg.kind == "structs" else StructValue)(
            members, methods, arg.type
        )
    if arg.kind == "view":
        return view_argument(cx, arg.name, arg.value)
    good = {
        "scalar": Scalar,
        "tensor": Tensor,
        "array": ArrayArgument,
        "texture": ArrayArgument,
        "sparse": ArrayArgument,
    }.get(arg.kind)
    if good is None or not isinstance(arg.type, good):
        raise InternalError(f"argument {arg.name}: no kind {arg.kind!r} of {arg.type}")
    assert not isinstance(arg.type, ArgPackType) and arg.type is not None
    param = cx.add_param(make_param(passed_type(arg.type), arg.name), ("arg", arg.name))
    value: Any = param
    if isinstance(arg.type, Scalar | Tensor) and arg.type is not param.type:
        value = cx.b.emit("cast", param, type=arg.type)
    if isinstance(arg.type, ArrayArgument):
        value = ArrayRef(param, clamps=arg.value == "clamp")
    if arg.kind == "texture":
        from vkchi.frontend.values.textures import TextureRef  # rarely needed

        value = TextureRef(cx, value, *arg.value)
    if arg.kind == "sparse":
        pairs = zip(arg.value, names_of(arg.name)[1:], strict=True)
        params = (cx.add_param(make_param(t, name), ("arg", name)) for t, name in pairs)
        return SparseRef(value, *map(ArrayRef, params))
    return value


def view_argument(cx: Lowering, name: str, view: ViewSpec) -> SliceRef:
    """Return a view of an ndarray argument as a slice of its base."""
    if view.base is not None:
        base = make_argument(cx, view.base)
    else:
        owner = ("arg", view.owner)
        base = ArrayRef(next(p for p in cx.params if cx.bindings[p.name] == owner))
    numbers = iter([make_argument(cx, spec) for spec in view.numbers])
    axes: list[Index | Run] = []
    for axis, extent in zip(view.axes, base.shape(cx), strict=True):
        if axis.axis < 0:
            axes.append(next(numbers))
        elif axis.is_whole:
            axes.append(Run(0, 1, extent, axis.axis))
        else:
            begin = next(numbers)
            axes.append(Run(begin, axis.step, next(numbers), axis.axis))
    return SliceRef(cx, base, axes, name)


def passed_type(t: Any) -> Any:
    """Return the type in which a launch passes an argument of type t: f32 for bf16."""
    is_bf16 = isinstance(t, Scalar | Tensor) and scalar_of(t) is bf16
    return with_scalar(t, f32) if is_bf16 else t


def make_param(given: Type | ArrayArgument, name: str) -> Param:
    if isinstance(given, ArrayArgument):
        return Param(given.type, name, given.attributes)
    return Param(given, name)


def declare_returns(cx: Lowering, returns: tuple[Type, ...]) -> tuple[list[Any], list[Any]]:
    """Add one parameter per returned scalar, vector or matrix.

    Returns their trees, one per annotated value, and their types, both in order.
    """
    types: list[Any] = []

    def slot(t: Any) -> Any:
        if isinstance(t, StructType):
            return StructValue({name: slot(m) for name, m in t.members.items()}, t.methods, t)
        types.append(t)
        k = len(types) - 1
        return cx.add_param(Param(cell_of(t), f"return.{k}"), ("return", k))

    return [slot(t) for t in returns], types


def check_returned(cx: Lowering, returns: tuple[Type, ...]) -> None:
    """Check that a kernel with a return type returns on all paths. Raises KernelSyntaxError."""
    if returns and cx.act.returned.value is not True:
        cx.locate(cx.act.source.node)
        raise cx.fail(
            f"kernel {cx.act.fn.__name__}() has a return type and no `return` at its end",
            kind=KernelSyntaxError,
        )
