"""Inlining of Python functions into kernels, with arguments bound to new variables.

An argument is passed by reference (`ti.template()`, `ti.ref`), or by value, converted to the type
in its annotation if there is one.

    call_function(cx, fn, (x, VariableTarget(var)), {})
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any, get_args, get_origin

from vkchi.compat.foreign_names import suggest_tensor_type
from vkchi.errors import KernelCallError, KernelSyntaxError
from vkchi.frontend.calls.recursion import give_up, is_too_deep
from vkchi.frontend.context import Lowering, plain_number
from vkchi.frontend.control.assign import has_parts
from vkchi.frontend.ops.conversions import coerce
from vkchi.frontend.state.pending import ConversionTarget
from vkchi.frontend.state.scope import PASSED, REAL, REFERENCE, UNSET, VARIABLE, Activation, Var
from vkchi.frontend.state.user_code_errors import foreign_traceback
from vkchi.frontend.syntax.source import Source, source_of
from vkchi.frontend.syntax.syntax_facts import always_leaves, function_assigns, function_rebinds
from vkchi.frontend.values.kinds import describe, function_kind, kind_of, name_of
from vkchi.frontend.values.operands import (
    dtype_of,
    is_number,
    operand,
    operand_shape,
    weak,
)
from vkchi.frontend.values.struct_values import Receiver, fit_member
from vkchi.frontend.values.targets import VariableTarget, kind_of_variable
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types import (
    DefaultTensor,
    Scalar,
    Tensor,
    cook,
    ndarray,
    ref,
    template,
    with_shape,
)
from vkchi.types.struct_types import StructType


class FunctionSignature(NamedTuple):
    """The parameters of a function: names in order, defaults and resolved annotations by name.

    `rest` and `keywords` are the names of `*rest` and `**keywords`, if present.
    """

    names: tuple[str, ...]
    keyword_only: tuple[str, ...]
    defaults: dict[str, Any]
    notes: dict[str, Any]
    rest: str = ""
    keywords: str = ""

    def by_reference(self) -> set[int | str]:
        """Return positions and names of the parameters that are passed by reference."""
        found: set[int | str] = set()
        for k, name in enumerate((*self.names, *self.keyword_only)):
            if is_reference(self.notes.get(name)):
                found |= {k, name}
        return found


def is_reference(note: Any) -> bool:
    return note is template or isinstance(note, template | ref)


def function_of(callee: Any) -> FunctionType:
    """Return the plain Python function of a `@func` object, bound method or function."""
    fn = getattr(callee, "__vkchi_func__", callee)
    fn = getattr(fn, "__func__", fn)
    assert isinstance(fn, FunctionType)
    return fn


def check_fixed(fn: FunctionType) -> None:
    """Check that a function has no `*args` or `**kwargs`. Raises KernelSyntaxError."""
    source = source_of(fn)
    for many in (source.node.args.vararg, source.node.args.kwarg):
        if many is not None:
            raise KernelSyntaxError(
                f"{fn.__name__}() takes `*{many.arg}`, and functions of kernels take a fixed "
                "list of arguments", source.span(many), help="name every argument",
            )  # fmt: skip


def signature_of(fn: FunctionType) -> FunctionSignature:
    source = source_of(fn)
    args = source.node.args
    rest, keywords = [many.arg if many is not None else "" for many in (args.vararg, args.kwarg)]
    names = tuple(a.arg for a in (*args.posonlyargs, *args.args))
    only = tuple(a.arg for a in args.kwonlyargs)
    given = fn.__defaults__ or ()
    defaults = dict(zip(names[len(names) - len(given) :], given)) | (fn.__kwdefaults__ or {})
    notes = annotations_of(fn, source, ignores_result=True)
    return FunctionSignature(names, only, defaults, notes, rest, keywords)


def annotations_of(
    fn: FunctionType, source: Source, *, ignores_result: bool = False
) -> dict[str, Any]:
    """Return the function's annotations by name, strings evaluated.

    Raises KernelSyntaxError for a string that cannot be evaluated. With `ignores_result`, such a
    return annotation is left out: functions do not need one.
    """
    notes = fn.__annotations__
    if not any(isinstance(note, str) for note in notes.values()):
        return notes
    closure = inspect.getclosurevars(fn)
    names = {**closure.builtins, **fn.__globals__}
    found: dict[str, Any] = {}
    for name, note in notes.items():
        try:
            is_text = isinstance(note, str)
            found[name] = eval(note, names, dict(closure.nonlocals)) if is_text else note
        except local(Exception) as e:
            if ignores_result and name == "return":
                continue
            why, _, help = str(e).partition("\nhelp: ")
            raise KernelSyntaxError(
                f"an annotation of {fn.__name__}() cannot be evaluated: {why}",
                source.span(source.node),
                help=help,
            ) from e.with_traceback(foreign_traceback(e))
    return found


# --- a call --------------------------------------------------------------------------------------


def lower_recursive(cx: Lowering, act: Activation, notes: dict[str, Any]) -> tuple[Any, ...]:
    """Return the result of a real function lowered as a loop with a stack, in a tuple of one.

    The tuple is empty if `is_stacked` does not hold.
    """
    from vkchi.frontend.calls.call_stack import is_stacked, lower_stacked  # rarely needed

    return (lower_stacked(cx, act, notes),) if is_stacked(act.fn, notes) else ()


def call_function(cx: Lowering, callee: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Inline a call and return its result.

    Arguments are compile-time values, or Targets for parameters by reference. A recursive real
    function becomes a loop (`call_stack`), or is inlined up to a depth limit (`recursion`). Raises
    CompilationError for arguments that do not fit, and for errors in the body.
    """
    fn = function_of(callee)
    if getattr(getattr(callee, "__func__", callee), "requires_top_level", False) and not cx.is_top:
        raise cx.fail(
            f"{fn.__name__}() requires the top level of a kernel, and this call is in a loop or "
            "branch",
            kind=KernelSyntaxError,
            help="call it before or after the loop, or in a loop over ti.static(range(n))",
        )
    signature = signature_of(fn)
    bound = bind_arguments(cx, fn, signature, args, kwargs)
    if is_too_deep(cx, fn, bound, is_real=is_real(callee)):
        note = signature.notes.get("return")
        types = () if note is None else returned_types(cx, note)
        return give_up(cx, fn, types, is_one=not is_tuple_type(note))
    cx.dependencies.functions[fn] = None
    is_plain = function_kind(callee) is None
    outer, outer_call, span = cx.act, cx.call_node, cx.span
    act = Activation(fn, source_of(fn), cx.span, len(cx.frames), is_kernel=False, outer=outer)
    act.is_plain = is_plain or getattr(callee, "is_plain", False)
    for name, x in bound.items():
        if not is_plain:
            check_annotation(cx, fn, name, signature.notes.get(name), x)
        note = signature.notes.get(name)
        is_typed = is_real(callee)
        declare_argument(cx, act, name, note, x, is_plain=is_plain, is_typed=is_typed)
    act.returns = signature.notes.get("return")
    if is_real(callee):
        act.why_serial = act.why_serial or REAL
    cx.act, cx.call_node = act, None
    if is_real(callee) and (found := lower_recursive(cx, act, signature.notes)):
        (result,) = found
        cx.act, cx.call_node, cx.b.span = outer, outer_call, span
        return result
    cx.tables.body(cx)
    cx.act, cx.call_node, cx.b.span = outer, outer_call, span
    result = result_of(cx, act)
    check_annotated_result(cx, act, result, is_real=is_real(callee))
    return result


def bind_arguments(
    cx: Lowering,
    fn: FunctionType,
    s: FunctionSignature,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments and defaults by parameter, in order.

    Raises KernelCallError for missing, unknown and surplus arguments.
    """
    name = fn.__name__
    if len(args) > len(s.names) and not s.rest:
        takes = f"{len(s.names)} argument{'s' if len(s.names) != 1 else ''}"
        raise cx.fail(
            f"{name}() takes {takes}, {len(args)} given", kind=KernelCallError, label=_shown(fn, s)
        )
    bound = dict(zip(s.names, args))
    for key, x in kwargs.items():
        if key in bound:
            raise cx.fail(f"{name}() gets `{key}` twice", kind=KernelCallError, label=_shown(fn, s))
        if key not in s.names and key not in s.keyword_only and not s.keywords:
            raise cx.fail(
                f"{name}() has no argument `{key}`", kind=KernelCallError, label=_shown(fn, s)
            )
        bound[key] = x
    every = (*s.names, *s.keyword_only)
    missing = [key for key in every if key not in bound and key not in s.defaults]
    if missing:
        words = " and ".join(f"`{key}`" for key in missing)
        raise cx.fail(f"{name}() needs {words}", kind=KernelCallError, label=_shown(fn, s))
    found = {key: bound[key] if key in bound else default(cx, fn, s, key) for key in every}
    if s.rest:
        found[s.rest] = tuple(args[len(s.names) :])
    if s.keywords:
        found[s.keywords] = {key: x for key, x in kwargs.items() if key not in every}
    return found


def default(cx: Lowering, fn: FunctionType, s: FunctionSignature, name: str) -> Any:
    """Return a parameter's default, and record it as a dependency of the kernel."""
    value = s.defaults[name]
    cx.dependencies.default(fn, name, value)
    return cx.found(plain_number(value))


def _shown(fn: FunctionType, s: FunctionSignature) -> str:
    return f"{fn.__name__}({', '.join((*s.names, *s.keyword_only))})"


def declare_argument(
    cx: Lowering, act: Activation, name: str, note: Any, x: Any, *,
    is_plain: bool, is_typed: bool = False,
) -> None:  # fmt: skip
    """Declare the variable of one parameter of `act`: x, converted to its annotation `note`.

    A parameter by reference aliases x, and so does the receiver of a method; the parts of one with
    `is_copy` cannot be assigned. `is_typed` is true for real functions: a vector under a
    scalar annotation then raises KernelCallError; otherwise it is converted by component.
    """
    depth, span = len(cx.frames), act.source.span(act.source.node, act.caller)
    is_receiver = isinstance(x, Receiver)
    if is_receiver or is_reference(note):
        if isinstance(note, ref):
            check_referred(cx, name, note, x)
        kind = (PASSED if x.is_copy else VARIABLE) if is_receiver else kind_of_reference(x)
        x = x.target if is_receiver else x
        if type(x) is VariableTarget:
            act.blocks[-1][name] = x.var
        else:
            act.declare(Var(name, x, kind, depth, span))
        return
    if kind_of(x).is_target:
        x = x.get() if isinstance(x, VariableTarget) else x.load(cx)
    if isinstance(note, StructType):
        x = fit_member(cx, note, x, name, what="argument")
    t = annotated_type(cx, note)
    if t is not None:
        # Taichi converts each component of a vector under a number type.
        t = t if is_typed else _spread(cx, x, t)
        into = ConversionTarget(f"argument `{name}` of {act.fn.__name__}()")
        x = coerce(cx, x, t, name, verb="pass", into=into)
    elif not (is_plain and is_passed_as_it_is(x) and not function_assigns(act.source, name)):
        x = kind_of(x).own(cx, x)
    kind = kind_of_variable(x)
    if kind == VARIABLE and act.is_plain:
        kind = PASSED if has_parts(x) or not function_rebinds(act.source, name) else VARIABLE
    act.declare(Var(name, x, kind, depth, span))


def is_passed_as_it_is(x: Any) -> bool:
    """True for Python's numbers, vectors and matrices, and for containers.

    A plain Python function that does not assign the parameter receives them unconverted.
    """
    return weak(x) is not None or kind_of(x).is_container


_NOTES = (None, int, float, bool, Any, inspect.Parameter.empty)


def check_annotation(cx: Lowering, fn: FunctionType, name: str, note: Any, x: Any) -> None:
    """Check that an annotation of a ti.func's parameter fits the argument. Raises KernelCallError.

    It may be absent, a vkchi type, `int`, `float`, `bool`, `Any`, generic, or a class of the
    argument. An ndarray annotation does not fit numbers, vectors and matrices.
    """
    if isinstance(note, ndarray) and is_number(x):
        raise cx.fail(f"`{name}` of {fn.__name__}() is annotated as an array", kind=KernelCallError)
    if any(note is known for known in _NOTES) or get_origin(note) is not None:
        return
    modules = [str(getattr(kind, "__module__", "")) for kind in (note, type(note))]
    if any(module.startswith("vkchi.") for module in modules):
        return
    if not isinstance(note, type) or not issubclass(kind_of(x).class_of(x), note):
        raise cx.fail(
            f"the annotation of `{name}` of {fn.__name__}() is no type of a kernel's: {note!r}",
            kind=KernelCallError,
            help="annotate it with a type such as ti.f32 or ti.template(), or not at all",
        )


def check_referred(cx: Lowering, name: str, note: ref, x: Any) -> None:
    """Check that x is assignable and has the type in the annotation `ti.ref(...)`.

    Raises KernelTypeError.
    """
    want = annotated_type(cx, note.tp)
    if not kind_of(x).is_target:
        raise cx.fail(
            f"`{name}` is passed by reference, and this call gives a value for it",
            help="pass a variable or an element of an array",
        )
    if want is not None and x.type is not want:
        raise cx.fail(
            f"`{name}` is passed by reference as a {describe(want)}", label=describe(x.type)
        )


def kind_of_reference(x: Any) -> str:
    """Return the kind of a parameter by reference: REFERENCE if x cannot be assigned."""
    return VARIABLE if kind_of(x).is_assignable(x) else REFERENCE


def annotated_type(cx: Lowering, note: Any) -> Scalar | Tensor | None:
    """Return the scalar, vector or matrix type of an annotation, or None."""
    if isinstance(note, Scalar | Tensor | DefaultTensor) or note in (int, float, bool):
        return dtype_of(cx, note)
    return None


# --- results -------------------------------------------------------------------------------------


def result_of(cx: Lowering, act: Activation) -> Any:
    """Return the result of an inlined function; None if no path returns a value.

    Raises KernelTypeError if only some paths return one.
    """
    returned, result = act.returned.value, act.result.value
    if returned is True or (returned is not False and always_leaves(act.source.node.body)):
        return result
    if result is UNSET or result is None:
        return None
    raise cx.fail(
        f"{act.fn.__name__}() returns a value on some paths only",
        help="end it with a `return` that gives a value",
    )


def is_real(callee: Any) -> bool:
    return function_kind(callee) == "real_func"


def check_annotated_result(cx: Lowering, act: Activation, result: Any, *, is_real: bool) -> None:
    """Check a function's result against the presence of a return annotation.

    Raises KernelSyntaxError for an annotation without a result, and for a real function's result
    without an annotation.
    """
    name = act.fn.__name__
    if is_real and result is not None and act.returns is None:
        raise cx.fail(
            f"real function {name}() returns a value and has no return type",
            kind=KernelSyntaxError,
            help=f"def {name}(...) -> ti.f32:",
        )
    if result is None and act.returns is not None:
        raise cx.fail(f"{name}() has a return type and returns no value", kind=KernelSyntaxError)


def returned_types(cx: Lowering, note: Any) -> tuple[Scalar | Tensor | StructType, ...]:
    """Return the types of a return annotation, of one value or a tuple.

    Raises KernelTypeError for an annotation that is no scalar, vector, matrix or struct type.
    """
    found = []
    for item in _tuple_of(note):
        t = cook(item)
        if not isinstance(t, Scalar | Tensor | StructType):
            written = suggest_tensor_type(item) or "ti.f32"
            raise cx.fail(f"a kernel cannot return {name_of(item)}", help=f"annotate -> {written}")
        found.append(t)
    return tuple(found)


def convert_result(cx: Lowering, x: Any, note: Any) -> Any:
    """Convert a function's result to its return annotation; a vector under a scalar type by
    component.

    Returns x unchanged if the annotation has no type of numbers or structs, or if it is a struct
    and x a tuple. Raises KernelTypeError.
    """
    if note is None or (isinstance(note, StructType) and isinstance(x, tuple)):
        return x
    if isinstance(note, StructType):
        return fit_member(cx, note, x, cx.act.fn.__name__, what="the result of")
    types = [annotated_type(cx, item) for item in _tuple_of(note)]
    if not types or any(t is None for t in types):
        return x
    if not is_tuple_type(note):
        assert types[0] is not None
        return coerce(cx, x, _spread(cx, x, types[0]), verb="return", into=into_result(cx))
    parts = check_count(cx, x, len(types))
    return tuple(
        [
            coerce(cx, v, _spread(cx, v, t), verb="return", into=into_result(cx))
            for v, t in zip(parts, types)
            if t is not None
        ]
    )


def into_result(cx: Lowering) -> ConversionTarget:
    """Return the description of the current function's result, for cautions about conversions."""
    help = "annotate the type that is returned, or write ti.cast(...) in the `return`"
    return ConversionTarget(f"the result of {cx.act.fn.__name__}()", help)


def is_tuple_type(note: Any) -> bool:
    """True if a return annotation is a tuple of types or `tuple[...]`."""
    return isinstance(note, tuple) or get_origin(note) is tuple


def _tuple_of(note: Any) -> tuple[Any, ...]:
    if isinstance(note, tuple):
        return note
    return get_args(note) if get_origin(note) is tuple else (note,)


def check_count(cx: Lowering, x: Any, count: int) -> Sequence[Any]:
    """Return the parts of a returned tuple or list; any other value is one part.

    Raises KernelTypeError if their number is not `count`.
    """
    parts = x if isinstance(x, list | tuple) else [x]
    if len(parts) != count:
        words = "1 value is" if len(parts) == 1 else f"{len(parts)} values are"
        raise cx.fail(f"{words} returned, and the annotation says {count}")
    return parts


def _spread(cx: Lowering, x: Any, t: Scalar | Tensor) -> Scalar | Tensor:
    """Return type t; for a vector or matrix x and a scalar t, the type of x's shape with elements
    t."""
    given = operand(cx, x)
    shape = operand_shape(given)
    return with_shape(t, shape) if isinstance(t, Scalar) else t
