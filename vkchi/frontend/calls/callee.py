"""Call lowering: dispatch on the callee, and evaluation of arguments, by reference where declared.

A callee is an intrinsic, a type, a method, a function to inline, or a plain Python function that
runs at compile time.

    lower_call(cx, node)
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.calls.inline import function_of, signature_of
from vkchi.frontend.calls.intrinsics import METHODS, call_type
from vkchi.frontend.calls.tables import CallHandler, find_call
from vkchi.frontend.calls.varying import note_varying
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.assign import assign_to
from vkchi.frontend.control.places import attribute_of, check_present, lvalue
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.conversions import convert_value
from vkchi.frontend.ops.tensor_construction import check_literal_kind
from vkchi.frontend.state.captured_values import same_as
from vkchi.frontend.state.dependencies import referred_names
from vkchi.frontend.syntax.syntax_facts import LIST_CHANGES, RECEIVER, SOMEWHERE
from vkchi.frontend.values.kinds import (
    Kind,
    function_kind,
    is_static,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.objects import init_of, is_makeable, make_object
from vkchi.frontend.values.operands import WeakNumbers, constant, weak_scalar
from vkchi.frontend.values.python_values import is_static_call, items_of, peek
from vkchi.frontend.values.struct_values import (
    construct_struct,
    record_in,
)
from vkchi.frontend.values.targets import VariableTarget
from vkchi.frontend.values.tensor_values import constant_method
from vkchi.frontend.values.trees import is_made, leaves, records_in
from vkchi.hooks import PYTHON_SCOPE
from vkchi.ir.core import numeric_type_of
from vkchi.lang.compile_time import static
from vkchi.lang.function import Function
from vkchi.lang.matrix import Matrix
from vkchi.tuples import NamedTuple
from vkchi.types import DefaultTensor, Type, scalar_of_dtype, shape_of
from vkchi.types.lazy_numpy import np
from vkchi.types.struct_types import StructType

_MAKERS = ("vkchi.fields.", "vkchi.ndarray", "vkchi.texture")  # modules that create arrays


def is_in(x: Any, known: set[Any]) -> bool:
    try:
        return x in known
    except TypeError:
        return False


def by_reference(callee: Any) -> Collection[int | str]:
    """Return positions and names of the arguments that a callee takes by reference."""
    handler = find_call(callee)
    if handler is not None:
        return handler.targets
    called = kind_of(callee).called(callee)
    return kind_of(called).references(called)


def is_callable_object(x: Any) -> bool:
    """True if a call of x calls its method `__call__`, inlined."""
    return kind_of(x).called(x) is not x


def may_refer(cx: Lowering, n: ast.expr, position: int | str) -> bool:
    """True if a call of expression n may take the argument at `position` by reference.

    Conservatively true where the callee is known only during lowering: `table[k](x)`, or `f(x)` in
    `for f in ti.static(...)`. A RECEIVER counts only for known methods of structs.
    """
    callee = peek(cx, n)
    if position == RECEIVER:
        is_method = isinstance(n, ast.Attribute) and is_method_of(cx, n)
        return is_method or is_callable_object(callee)
    if callee is not None:
        found = by_reference(callee)
        return bool(found) if position == SOMEWHERE else position in found
    if isinstance(n, ast.Attribute):
        base = peek(cx, n.value)
        return base is None and n.attr not in METHODS and n.attr not in LIST_CHANGES
    return True


def is_method_of(cx: Lowering, n: ast.Attribute) -> bool:
    """True if `x.f` is a method of a struct, as far as is known before x is lowered."""
    bottom: ast.expr = n.value
    while isinstance(bottom, ast.Attribute | ast.Subscript):
        bottom = bottom.value
    held = peek(cx, bottom)
    return any(n.attr in record.methods for record in records_in(held))


# --- arguments -----------------------------------------------------------------------------------


def lower_arguments(
    cx: Lowering,
    n: ast.Call,
    targets: Collection[int | str] = (),
    expr: Callable[[Lowering, ast.expr], Any] = Lowering.expr,
) -> tuple[list[Any], dict[str, Any]]:
    """Lower the arguments of a call.

    Assignable arguments at `targets` are passed unread, as Targets. The others are lowered by
    `expr`.
    """
    args: list[Any] = []
    for arg in n.args:
        if isinstance(arg, ast.Starred):
            args += items_of(cx, cx.expr(arg.value), "unpack")
        else:
            args.append(reference(cx, arg) if len(args) in targets else expr(cx, arg))
    kwargs: dict[str, Any] = {}
    for keyword in n.keywords:
        lower = reference if keyword.arg in targets else expr
        x = lower(cx, keyword.value)
        kwargs |= x if keyword.arg is None else {keyword.arg: x}
    return args, kwargs


def reference(cx: Lowering, n: ast.expr) -> Any:
    """Lower an argument passed by reference: a Target if it is assignable, else its value."""
    if not isinstance(n, ast.Name | ast.Attribute | ast.Subscript):
        return cx.expr(n)
    target = lvalue(cx, n)
    if not isinstance(target, VariableTarget):
        return target
    held = target.get()
    found = kind_of(held)
    is_container = type(target) is VariableTarget and found.is_container
    return target if is_container or found.has_type or found.is_struct else held


# --- calls ---------------------------------------------------------------------------------------


def lower_call(cx: Lowering, n: ast.Call) -> Any:
    outer, cx.call_node = cx.call_node, n
    if isinstance(n.func, ast.Attribute):
        value = call_attribute(cx, n, n.func)
    else:
        callee = cx.expr(n.func)
        value = call_object(cx, n, reference(cx, n.func) if is_made(callee) else callee)
    cx.call_node = outer
    return value


def call_attribute(cx: Lowering, n: ast.Call, f: ast.Attribute) -> Any:
    """Lower `base.name(...)`.

    It is a method of a vector, matrix, array, list or string, or a call of an object's attribute.
    """
    base = cx.ref(f.value)
    check_present(cx, base, f.value)
    record = record_in(base)
    held = base if record is None else record
    if f.attr == "fill" and kind_of(held).has_type:
        return fill_value(cx, n, f)
    found = kind_of(held).method(cx, held, f.attr, n)
    if found is not NotImplemented:
        return found
    is_named = isinstance(f.value, ast.Name | ast.Attribute | ast.Subscript)
    if record is not None and is_named and leaves(record):
        base = lvalue(cx, f.value)
    return call_object(cx, n, cx.at(f, lambda cx: attribute_of(cx, base, f.attr)))


def fill_value(cx: Lowering, n: ast.Call, f: ast.Attribute) -> None:
    """Lower `v.fill(x)` of an assignable vector or matrix. Raises KernelTypeError for a scalar."""
    args, _ = lower_arguments(cx, n)
    target = lvalue(cx, f.value)
    t = numeric_type_of(operator_lowering.value(cx, target))
    if len(args) != 1 or not shape_of(t):
        raise cx.fail("`fill` takes one value and is a method of vectors, matrices and arrays")
    assign_to(cx, f.value, convert_value(cx, args[0], t))


def is_computed(cx: Lowering, n: ast.expr) -> bool:
    """True if an argument is the result of a function call other than `ti.static`.

    Such an argument is a value even if it is a compile-time constant: `ti.i32(ti.floor(n / 2))`.
    """
    return isinstance(n, ast.Call) and not is_static_call(cx, n)


class BoundArguments(NamedTuple):
    """Arguments that the partials around a callee bind. Keywords of the call replace bound ones."""

    first: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = MappingProxyType({})

    def arguments(
        self,
        cx: Lowering,
        n: ast.Call,
        targets: Collection[int | str] = (),
        *,
        is_numpy: bool = False,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return all arguments of the callee, those of call n lowered.

        `targets` are positions in the callee's own signature. With `is_numpy`, numpy scalars keep
        their type.
        """
        expr = numpy_argument if is_numpy else Lowering.expr
        args, kwargs = lower_arguments(cx, n, _shifted(targets, len(self.first)), expr)
        return [*self.first, *args], {**self.keywords, **kwargs}


def _shifted(targets: Collection[int | str], count: int) -> Collection[int | str]:
    return {k - count if isinstance(k, int) else k for k in targets} if count else targets


NO_ARGUMENTS = BoundArguments()


def call_object(
    cx: Lowering, n: ast.Call, callee: Any, bound: BoundArguments = NO_ARGUMENTS
) -> Any:
    """Lower a call of a compile-time object, by its handler in CALLS, or by its kind.

    Raises KernelSyntaxError for a kernel, KernelTypeError for an object that kernels cannot call.
    """
    slot, x = (callee, callee.get()) if isinstance(callee, VariableTarget) else (None, callee)
    handler = find_call(x)
    if handler is not None:
        return call_handler(cx, n, x, handler, bound)
    x = kind_of(x).called(x, slot)
    found = kind_of(x).call(cx, x, n, bound)
    if found is not NotImplemented:
        return found
    return call_python(cx, x, *bound.arguments(cx, n, is_numpy=is_of_numpy(x)))


def call_handler(
    cx: Lowering, n: ast.Call, callee: Any, call: CallHandler, bound: BoundArguments
) -> Any:
    """Call the handler of a function or class of vkchi, Python or numpy.

    A TypeError for wrong arguments becomes a KernelTypeError.
    """
    is_numpy = is_of_numpy(callee)
    outer, cx.in_static = cx.in_static, cx.in_static or callee is static
    args, kwargs = bound.arguments(cx, n, call.targets, is_numpy=is_numpy)
    cx.in_static = outer
    if is_numpy and numpy_computes(callee, [*args, *kwargs.values()]):
        known = run_known(cx, callee, args, kwargs)
        if not operator_lowering.is_watched(cx, known, *args, *kwargs.values()):
            return known
    if not call.takes_fields:
        args = [kind_of(x).array(cx, x) if kind_of(x).is_field else x for x in args]
    try:
        return call.handler(cx, *args, **kwargs)
    except TypeError as e:
        if e.__traceback__ is None or e.__traceback__.tb_next is not None:
            raise
        name = getattr(callee, "__name__", str(callee))
        try:
            inspect.signature(call.handler).bind(cx, *args, **kwargs)
            words = "other arguments are needed"
        except TypeError as wrong:
            words = str(wrong).replace("positional ", "")
        raise cx.fail(f"{name}(): {words}") from None


# --- kinds of callees ----------------------------------------------------------------------------


class PartialKind(Kind, of=[functools.partial]):
    def call(self, cx: Any, x: Any, n: ast.Call, bound: BoundArguments) -> Any:
        for name in ("args", "keywords"):
            cx.dependencies.read_part(x, ("attr", name), getattr(x, name))
        first = [cx.part(x.args, ("item", k), arg) for k, arg in enumerate(x.args)]
        named = {k: cx.part(x.keywords, ("item", k), arg) for k, arg in x.keywords.items()}
        bound = BoundArguments((*first, *bound.first), {**named, **bound.keywords})
        return call_object(cx, n, x.func, bound)

    def references(self, x: Any) -> Collection[int | str]:
        return _shifted(by_reference(x.func), len(x.args))


class UserFunctionKind(Kind, of=["__vkchi_kind__"]):
    """Functions of the user with a decorator of vkchi, and methods of structs."""

    def call(self, cx: Any, x: Any, n: ast.Call, bound: BoundArguments) -> Any:
        if x.__vkchi_kind__ == "kernel":
            raise cx.fail(
                f"`{x.__name__}` is a kernel, and kernels cannot call kernels",
                kind=KernelSyntaxError,
                help="make it a ti.func, or call both from Python",
            )
        if x.__vkchi_kind__ == "recorded":
            raise refuse_python_scope(cx, x)
        args, kwargs = bound.arguments(cx, n, self.references(x))
        return cx.tables.call(cx, x, (*self.receiver(x), *args), kwargs)

    def receiver(self, x: Any) -> tuple[Any, ...]:
        owner = getattr(x, "__self__", None)
        return () if owner is None else (owner,)

    def references(self, x: Any) -> Collection[int | str]:
        if x.__vkchi_kind__ == "kernel":
            return ()
        return _shifted(signature_of(function_of(x)).by_reference(), len(self.receiver(x)))


class TypeKind(Kind, of=[Type, DefaultTensor]):
    def name(self, x: Any) -> str:
        return f"the type {x}"

    def call(self, cx: Any, x: Any, n: ast.Call, bound: BoundArguments) -> Any:
        args, kwargs = bound.arguments(cx, n)
        if args and (bound.first or not is_computed(cx, n.args[0])):
            check_literal_kind(cx, x, args[0])
        return call_type(cx, x, tuple(args), *kwargs)


class StructTypeKind(TypeKind, of=[StructType]):
    def call(self, cx: Any, x: Any, n: ast.Call, bound: BoundArguments) -> Any:
        args, kwargs = bound.arguments(cx, n)
        return construct_struct(cx, x, tuple(args), kwargs)


# --- Python's callables --------------------------------------------------------------------------


class FunctionKind(Kind, of=[FunctionType]):
    """Python functions."""

    def is_inlined(self, x: Any, *, in_play: bool) -> bool:
        return (in_play and not _is_library(x)) or touches_kernels(x, set())

    def inline(self, cx: Any, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if _is_library(x):
            return super().inline(cx, x, args, kwargs)
        return cx.tables.call(cx, x, tuple(args), kwargs)


class MethodKind(Kind, of=[MethodType]):
    def is_inlined(self, x: Any, *, in_play: bool) -> bool:
        """True as for the function, and if its code names a kernel or `ti.func` of the class."""
        fn, cls = x.__func__, type(x.__self__)
        if kind_of(fn).is_inlined(fn, in_play=in_play):
            return True
        names = () if type(fn) is not FunctionType or _is_library(fn) else fn.__code__.co_names
        members = (inspect.getattr_static(cls, name, None) for name in names)
        return any(function_kind(member) is not None for member in members)

    def inline(self, cx: Any, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return kind_of(x.__func__).inline(cx, x.__func__, (x.__self__, *args), kwargs)


class ClassKind(Kind, of=[type]):
    """Classes: methods of vectors and matrices are accessed through them, too."""

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        if not issubclass(x, Matrix) or name not in METHODS:
            return NotImplemented
        args, kwargs = cx.tables.arguments(cx, n)
        if not args:
            raise cx.fail(f"`{x.__name__}.{name}` needs a vector or matrix: write v.{name}()")
        return constant_method(cx, x, name, args, kwargs)

    def is_inlined(self, x: Any, *, in_play: bool) -> bool:
        """True for a user's class if an argument is of the kernel, or if `__init__` uses vkchi."""
        init = init_of(x) if is_makeable(x) else None
        return is_makeable(x) and (in_play or (init is not None and touches_kernels(init, set())))

    def inline(self, cx: Any, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not is_makeable(x):
            return super().inline(cx, x, args, kwargs)
        return make_object(cx, x, tuple(args), kwargs)


def call_python(cx: Lowering, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a plain Python function or class.

    A function is inlined if an argument is a kernel value or array, or if it uses vkchi. A class is
    constructed in the kernel on the same conditions. Otherwise Python runs the callable now, until
    it accesses elements of an array: then it is inlined after all. Raises KernelTypeError if
    neither can be.
    """
    if not callable(callee):
        raise unsupported_use(cx, callee, "call")
    known = is_static(args) and is_static(list(kwargs.values()))
    in_play = not known or any(kind_of(x).is_kernels_own for x in (*args, *kwargs.values()))
    found = kind_of(callee)
    if found.is_inlined(callee, in_play=in_play):
        return found.inline(cx, callee, args, kwargs)
    if not known:
        raise cx.fail(
            f"{name_of(callee)} cannot be called on values of a kernel",
            help="call it outside the kernel, or with compile-time constants",
            constant=[*args, *kwargs.values()],
        )
    if makes_arrays(callee) or is_of_python_scope(callee):
        raise refuse_python_scope(cx, callee)
    inline = functools.partial(found.inline, cx, callee, args, kwargs)
    return run_known(cx, callee, args, kwargs, inline)


def run_known(
    cx: Lowering,
    callee: Any,
    args: list[Any],
    kwargs: dict[str, Any],
    or_else: Callable[[], Any] | None = None,
) -> Any:
    """Run a Python function on compile-time constants and return its result; `or_else()` if it
    accesses elements of an array.

    Numpy scalars keep their type where they are in turn arguments of numpy functions. A function
    that is known to be nondeterministic adds a caution.
    """
    is_kept = cx.kept is not None and cx.call_node is cx.kept
    is_type = is_numpy_type(callee)
    note_varying(cx, callee)
    cx.dependencies.ran(callee)
    with fixed_objects(cx, [getattr(callee, "__self__", None), *args, *kwargs.values()]):
        given = cx.run_python(callee, args, kwargs, as_is=is_kept or is_type, or_else=or_else)
    if is_makeable(callee):
        cx.made[id(given)] = given, len(cx.frames)
    cx.forget_changed()
    return number_of(cx, given) if is_type and not is_kept else given


@contextmanager
def fixed_objects(cx: Lowering, values: list[Any]) -> Iterator[None]:
    """Check that a call at compile time does not change objects from outside the open region.

    The call runs once, and the region any number of times. This concerns objects that Python made
    in the kernel, of literals. Raises KernelSyntaxError.
    """
    known = [cx.made[id(x)] for x in values if id(x) in cx.made]
    outer = [x for x, depth in known if depth < len(cx.frames)]
    before = [{name: same_as(item) for name, item in attributes_of(x).items()} for x in outer]
    yield
    for x, tests in zip(outer, before):
        now = attributes_of(x)
        if now.keys() != tests.keys() or not all(tests[name](now[name]) for name in now):
            cls = type(x).__name__
            raise cx.fail(
                f"this changes {name_of(x)} once, at compile time, and not at run time in this "
                "loop or branch",
                kind=KernelSyntaxError,
                help="if later calls change nothing, call it once before the loop or branch; else "
                f"make the {cls} of a value of the kernel, such as ti.cast(1, ti.i32)",
            )


def attributes_of(x: Any) -> dict[str, Any]:
    return getattr(x, "__dict__", {})


def makes_arrays(callee: Any) -> bool:
    module = str(getattr(callee, "__module__", None))
    if isinstance(callee, FunctionType | type) and module.startswith(_MAKERS):
        return True
    return module.startswith("vkchi.") and getattr(callee, "__name__", "") in ("field", "ndarray")


def is_of_python_scope(callee: Any) -> bool:
    """True if a function, class or method of vkchi acts on the host.

    It is in PYTHON_SCOPE, a method of an object whose class is, or a method of a kernel (`grad`).
    """
    owner = getattr(callee, "__self__", None)
    kernel = owner.func if isinstance(owner, functools.partial) else owner
    is_marked = any(is_in(x, PYTHON_SCOPE) for x in (callee, type(owner)))
    return is_marked or function_kind(kernel) == "kernel"


def refuse_python_scope(cx: Lowering, callee: Any) -> Exception:
    return cx.fail(f"`{callee.__name__}` is for Python scope", help="call it outside the kernel")


def _is_library(fn: FunctionType) -> bool:
    return (fn.__module__ or "").partition(".")[0] in ("numpy", "vkchi")


def touches_kernels(fn: FunctionType, seen: set[Any]) -> bool:
    """True if a function refers to arrays, kernel functions or vkchi, or to a function that does.

    Functions of numpy and vkchi count as not referring to them.
    """
    seen.add(fn)
    if _is_library(fn):
        return False
    for obj in referred_names(fn).values():
        if kind_of(obj).is_array or isinstance(obj, Function) or function_kind(obj) is not None:
            return True
        if isinstance(obj, ModuleType) and obj.__name__.partition(".")[0] == "vkchi":
            return True
        if isinstance(obj, FunctionType) and obj not in seen and touches_kernels(obj, seen):
            return True
    return False


# --- numpy: it computes calls on constants, in its own types --------------------------------------


def is_of_numpy(callee: Any) -> bool:
    module = getattr(callee, "__module__", None) if callable(callee) else None
    is_numpy = isinstance(module, str) and module.partition(".")[0] == "numpy"
    return is_numpy or isinstance(callee, np.ufunc)


def is_numpy_type(callee: Any) -> bool:
    return isinstance(callee, type) and issubclass(callee, np.generic)


def numpy_computes(callee: Any, args: Sequence[Any]) -> bool:
    """True if numpy computes a call: the callee is numpy's and all arguments are constants.

    For a scalar type, they are numbers or arrays; otherwise at least one is numpy's.
    """
    if not is_of_numpy(callee) or not is_static(list(args)):
        return False
    if is_numpy_type(callee):
        return all(isinstance(x, bool | int | float | np.generic | np.ndarray) for x in args)
    return any(isinstance(x, np.generic | np.ndarray) for x in args)


def numpy_argument(cx: Lowering, n: ast.expr) -> Any:
    """Lower an argument of a numpy function: a numpy scalar keeps its type."""
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub):
        inner: Any = numpy_argument(cx, n.operand)
        is_numpy = isinstance(inner, np.generic)
        return np.negative(inner) if is_numpy else operator_lowering.unary(cx, "-", inner)
    outer, cx.kept = cx.kept, n
    x = cx.expr(n)
    cx.kept = outer
    if isinstance(n, ast.Name | ast.Attribute) and isinstance(x, bool | int | float):
        found = peek(cx, n)
        return found if isinstance(found, np.generic) else x
    return x


def number_of(cx: Lowering, x: Any) -> Any:
    """Return a numpy scalar as a Python number if a literal has its type, else as an IR constant.

    Other objects are unchanged.
    """
    t = scalar_of_dtype(x.dtype) if isinstance(x, np.generic) else None
    if t is None:
        return x
    number = WeakNumbers(x.item(), "b" if t.kind == "b" else "f" if t.kind == "f" else "i")
    return number.numbers if own_scalar(cx, number) is t else constant(cx, number.numbers, t)


def own_scalar(cx: Lowering, x: WeakNumbers) -> Any:
    """Return the type of a number by itself: default_ip for an int, even if that cannot represent
    it."""
    return cx.options.default_ip if x.kind == "i" else weak_scalar(cx, x)
