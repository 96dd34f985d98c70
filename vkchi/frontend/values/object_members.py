"""Members of objects that kernels take as arguments: their annotations, numbers at run time.

Such an object is an argument annotated with its dataclass, or a dataclass that a path leads to from
there. Each member that a kernel reads must fit its annotation. Numbers are scalar parameters of the
kernel, unless they are declared as constants.

    @dataclasses.dataclass
    class State:
        x: ti.types.NDArray[ti.f32, 1]
        mask: ti.types.NDArray[ti.i32, 1] | None
        dt: float                       # `state.dt` is a parameter of type default_fp
        order: typing.Final[int]        # `state.order` is a compile-time constant
"""

from __future__ import annotations

import inspect
import re
import sys
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin

from vkchi.frontend.context import Lowering
from vkchi.frontend.state.captured_values import Path, is_memory
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.operands import cast, dtype_of
from vkchi.interrupts.local import local
from vkchi.lang.matrix import Matrix
from vkchi.tuples import NamedTuple
from vkchi.types import (
    OptionalArray,
    Scalar,
    Tensor,
    bf16,
    cook,
    f32,
    i64,
    integer_range,
    ndarray,
    scalar_of,
    shape_of,
    template,
    u1,
)
from vkchi.types.lazy_numpy import is_array_of_numpy, is_integer_scalar, is_real_scalar, np

NUMBERS = (bool, int, float)
_CONSTANT = re.compile(r"(\w+\.)?(Final|ClassVar)\b")


# --- annotations ---------------------------------------------------------------------------------


class Declaration(NamedTuple):
    """The annotation of a member: None if it is absent or unknown.

    `is_constant`: it is `typing.Final[...]`, `typing.ClassVar[...]` or `ti.template()`.
    """

    annotation: Any = None
    is_constant: bool = False


def declaration_of(cls: type, name: str, names: dict[str, Any]) -> Declaration:
    """Return the declaration of a member by the first class in the MRO that annotates it.

    A string is evaluated with the names of the class's module, then `names`. One that cannot be
    evaluated, such as a name imported for type checkers only, is unknown.
    """
    for base in cls.__mro__:
        note = _annotations(base).get(name)
        if note is not None:
            module = sys.modules.get(base.__module__)
            known = {} if module is None else vars(module)
            return _declared(note, {**names, **known, **vars(base)})
    return Declaration()


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return inspect.get_annotations(cls)
    except NameError:  # Python 3.14 evaluates annotations late
        fields = vars(cls).get("__dataclass_fields__", {})
        return {name: field.type for name, field in fields.items()}


def _declared(note: Any, names: dict[str, Any]) -> Declaration:
    if isinstance(note, str):
        try:
            return _declared(eval(note, names), names)
        except local(Exception):
            return Declaration(None, _CONSTANT.match(note) is not None)
    origin = get_origin(note) or note
    inner = get_args(note)
    if origin is Annotated:
        return _declared(inner[0], names)
    if origin is Final or origin is ClassVar:
        return Declaration(_declared(inner[0], names).annotation if inner else None, True)
    is_template = note is template or isinstance(note, template)
    return Declaration(None if is_template else note, is_template)


# --- checks --------------------------------------------------------------------------------------


def read_member(cx: Lowering, base: Any, name: str, value: Any) -> Any:
    """Record the read of a member, an attribute of a Python object, and return it as the kernel
    sees it: a number as a scalar parameter, if the object is of an argument.

    Raises KernelTypeError for a member that does not fit its annotation or its number type.
    """
    path = path_of_argument(cx, base)
    if path is None:
        return cx.part(base, ("attr", name), value)
    declared = declaration_of(type(base), name, cx.act.fn.__globals__)
    if declared.annotation is not None:
        check_member(cx, f"{path}.{name}", declared.annotation, value)
    found = cx.part(base, ("attr", name), value)
    if type(found) not in NUMBERS or declared.is_constant or is_of_class(base, name):
        return found
    t, is_wide = number_type(cx, f"{path}.{name}", declared.annotation, found)
    parameter = cx.scalar_member(f32 if t is bf16 else t, is_wide=is_wide)
    if parameter is None:
        return found
    return cast(cx, parameter, bf16) if t is bf16 else parameter


def path_of_argument(cx: Lowering, base: Any) -> Path | None:
    """Return the path of a Python object whose numbers are arguments of the kernel, else None.

    It is a dataclass of an argument that is annotated with its dataclass, or its class is under
    `ti.data_oriented(template_primitives=False)`.
    """
    cls = type(base)
    if getattr(cls, "_template_primitives", True) is False:
        return cx.dependencies.latest_path(base)
    if not (cx.objects and hasattr(cls, "__dataclass_fields__")):
        return None
    return cx.dependencies.latest_path(base, of=cx.objects)


def is_of_class(base: Any, name: str) -> bool:
    """True if an attribute is a number that the class has, and not the object."""
    if name in getattr(base, "__dict__", ()):
        return False
    return isinstance(inspect.getattr_static(type(base), name, None), NUMBERS)


def number_type(cx: Lowering, path: str, declared: Any, value: float) -> tuple[Scalar, bool]:
    """Return the type of a number as an argument, that of its annotation or of its class, and True
    if it is i64 for the value's sake.

    Raises KernelTypeError for an integer that the type cannot hold.
    """
    notes = [note for note in alternatives(declared) if note not in (None, type(None))]
    note = notes[0] if len(notes) == 1 and isinstance(cook(notes[0]), Scalar) else type(value)
    t = u1 if note is bool else dtype_of(cx, note)
    assert isinstance(t, Scalar)
    if t.kind not in "iu" or is_in_range(value, t):
        return t, False
    if note is int and is_in_range(value, i64):
        return i64, True
    held = i64 if note is int else t
    help = "make it a float" if held.bits == 64 else f"annotate `{path.split('.')[-1]}` with int"
    bits = int(value).bit_length()
    number = value if bits <= 64 else f"an integer of {bits} bits"
    raise cx.fail(f"`{path}` is {number}, which {held} cannot hold", help=help)


def is_in_range(value: float, t: Scalar) -> bool:
    low, high = integer_range(t)
    return low <= value <= high


def check_member(cx: Lowering, path: str, declared: Any, value: Any) -> None:
    """Check that a member fits its annotation. Raises KernelTypeError."""
    if any([is_fit(note, value) for note in alternatives(declared)]):
        return
    name = path.rpartition(".")[2]
    raise cx.fail(
        f"`{path}` is {words_of(value)}; its annotation: {shown(declared)}",
        help=help_to_fit(name, declared, value),
    )


def help_to_fit(name: str, declared: Any, value: Any) -> str:
    """Return the help text for a member that does not fit its annotation."""
    notes = alternatives(declared)
    arrays = [note for note in notes if isinstance(note, ndarray)]
    is_array = bool(arrays) or ndarray in notes
    annotate = f"annotate `{name}` with {annotation_of(value)}"
    if value is None:
        return f"annotate `{name}` with {shown(declared)} | None"
    if arrays and is_ndarray(value):
        dtype, ndim = arrays[0].dtype, arrays[0].ndim
        if dtype is None or ndim not in (None, len(value.shape)):
            return annotate
        if dtype is value.elem:
            return "make it with needs_grad=True"
        return f"make it with dtype={shown(dtype)}, or {annotate}"
    if is_array:
        return (
            f"make it a ti.ndarray, or {annotate}" if is_memory(value) else "make it a ti.ndarray"
        )
    if is_ndarray(value) or is_memory(value) or is_real_scalar(value):
        return annotate
    if any([isinstance(cook(note), Scalar) for note in notes]):
        return "make it a number"
    return f"make it a {shown(notes[0])}"


def alternatives(declared: Any) -> list[Any]:
    """Return the members of a union, or the annotation itself."""
    if isinstance(declared, OptionalArray):
        return [declared.array, type(None)]
    if isinstance(declared, UnionType) or get_origin(declared) is Union:
        return list(get_args(declared))
    return [declared]


def is_fit(note: Any, value: Any) -> bool:
    """True if a value fits an annotation without alternatives, or if only Python can tell."""
    if note is ndarray:
        return is_ndarray(value)
    if isinstance(note, ndarray):
        return is_ndarray(value) and is_fit_array(note, value)
    t = cook(note)
    if isinstance(t, Scalar):
        return (is_real_scalar if t.kind == "f" else is_integer_scalar)(value)
    if isinstance(t, Tensor):
        is_tensor = isinstance(value, Matrix | list | tuple) or is_array_of_numpy(value)
        return is_tensor and getattr(value, "shape", shape_of(t)) == shape_of(t)
    cls = get_origin(note) or note
    if not isinstance(cls, type):
        return True
    if cls.__module__.partition(".")[0] == "vkchi" and is_memory(value):  # ti.Tensor, ti.Field
        return isinstance(value, cls) or not hasattr(value, "elem")
    try:
        return isinstance(value, cls)
    except TypeError:  # a protocol
        return True


def is_ndarray(value: Any) -> bool:
    """True for an ndarray, and for a view of one."""
    base, _ = getattr(value, "__vkchi_view__", (value, ()))
    return kind_of(base).is_ndarray


def is_fit_array(note: ndarray, array: Any) -> bool:
    t, dtype = array.elem, note.dtype
    is_element = dtype is None or dtype is t
    if note.element_dim is not None:
        is_element |= dtype is scalar_of(t)
    return (
        is_element
        and note.ndim in (None, len(array.shape))
        and note.element_dim in (None, len(shape_of(t)))
        and note.element_shape in (None, shape_of(t))
        and (array.grad is not None or not note.needs_grad)
    )


# --- words ---------------------------------------------------------------------------------------


def words_of(value: Any) -> str:
    """Return the words for a member in messages: an array with its type and axes."""
    if hasattr(value, "elem"):
        n = len(value.shape)
        what = "an ndarray" if is_ndarray(value) else "a field"
        return f"{what} of {value.elem} with {n} {'axis' if n == 1 else 'axes'}"
    if is_array_of_numpy(value):
        return f"a numpy array of {value.dtype}, shape {value.shape}"
    return kind_of(value).constant_name(value)


def annotation_of(value: Any) -> str:
    """Return an annotation that a value fits."""
    if is_ndarray(value):
        return f"ti.types.NDArray[{shown(value.elem)}, {len(value.shape)}]"
    if is_memory(value):
        return "ti.Tensor"
    if is_real_scalar(value):
        value = np.asarray(value).item()
    return type(value).__name__


def shown(note: Any) -> str:
    """Return the source of an annotation."""
    if note is None or note is type(None):
        return "None"
    if isinstance(note, OptionalArray) or get_origin(note) in (Union, UnionType):
        return " | ".join(map(shown, alternatives(note)))
    if isinstance(note, ndarray):
        facts = [shown(note.dtype)] + ([] if note.ndim is None else [str(note.ndim)])
        return f"ti.types.NDArray[{', '.join(facts)}]"
    if isinstance(note, Scalar):
        return f"ti.{note}"
    if isinstance(note, Tensor):
        sizes = ", ".join(map(str, note.shape))
        made = "vector" if note.m == 1 else "matrix"
        return f"ti.types.{made}({sizes}, ti.{note.elem})"
    if isinstance(note, type):
        return "ti.Tensor" if note.__module__ == "vkchi.fields.storage" else note.__name__
    return repr(note)
