"""Pickling of kernels and funcs, by name or by value, as the pickler pickles plain functions.

`pickle` pickles functions by name. cloudpickle, and with it Dask and Ray, pickles those by value
that another process cannot import: of notebooks, of `__main__`, and closures. It does not pickle
their source, from which kernels are compiled. So an object's stand-in, a function with the same
code, is what picklers see. If they pickle it by value, its attributes carry the source.

    copy = pickle.loads(cloudpickle.dumps(kernel))      # works in a process without the file
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from vkchi.errors import KernelFieldError, KernelSyntaxError
from vkchi.fields.storage import Storage
from vkchi.interrupts.local import local
from vkchi.runtime import InitArguments, init_arguments
from vkchi.signature import span_of_function
from vkchi.tuples import NamedTuple
from vkchi.types import Type, ndarray, template
from vkchi.types.struct_types import StructType

STAND_IN = "pickled_function"  # attribute of kernels and funcs, and last word of its qualified name
CARRIED = "vkchi_carried"  # attribute of the stand-in
OF_FUNCTIONS = (
    "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__", "__annotations__",
)  # fmt: skip
TREES = "vkchi.fields.trees"
MOST_VALUES = 20_000  # visited values of a kernel
T = TypeVar("T", bound="PickledFunction")


class PickledFunction:
    """Base of kernels and funcs: their pickling. A copy by `copy` is the object itself.

    `process_state`: names of the attributes that are not pickled.
    """

    process_state: tuple[str, ...] = ()

    @property
    def pickled_function(self) -> FunctionType:
        """The stand-in: the same object at each access, as pickling by name requires."""
        fn: FunctionType = vars(self)["__vkchi_func__"]
        made = vars(self).get(CARRIED)
        if made is None:
            made = FunctionType(fn.__code__, fn.__globals__, fn.__name__, None, fn.__closure__)
            made.__module__, made.__qualname__ = fn.__module__, f"{fn.__qualname__}.{STAND_IN}"
            vars(made)[CARRIED] = Carried(self)
            made = vars(self).setdefault(CARRIED, made)
        found: FunctionType = made
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        if protocol < 4:  # no dotted names
            return vars(self)["__vkchi_func__"].__qualname__
        return find_owner, (type(self), self.pickled_function)

    def revive(self, fn: FunctionType, attributes: dict[str, Any]) -> None:
        """Initialize an object that was made without `__init__`."""
        vars(self).update(attributes, __vkchi_func__=fn, __wrapped__=fn)

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: object) -> T:
        return self


def find_owner(cls: type[T], made: FunctionType) -> T:
    """Return the object of a stand-in; if that was unpickled by value, a new one.

    In a cycle, such as that of a kernel which names itself, the stand-in is incomplete. It then
    keeps the object, which `receive` completes.
    """
    carried = vars(made).get(CARRIED)
    if isinstance(carried, Carried):
        return carried.owner  # type: ignore[no-any-return]
    owner = object.__new__(cls)
    if carried is None:
        vars(made)[CARRIED] = owner
    else:
        carried.complete(owner, made)
    return owner


class Carried:
    """Attribute of a stand-in. Pickled only if the stand-in is pickled by value."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __reduce__(self) -> Any:
        owner, fn = self.owner, self.owner.__vkchi_func__
        left_out = {*owner.process_state, CARRIED, "__vkchi_func__", "__wrapped__"}
        attributes = {k: v for k, v in vars(owner).items() if k not in left_out}
        of_function = {name: getattr(fn, name) for name in OF_FUNCTIONS}
        own, *others = sources_of(fn)
        sources = [(owner.pickled_function, *own[1:]), *others]
        return receive, (init_arguments(), attributes, of_function, dict(vars(fn)), sources)


class Received(NamedTuple):
    """Attribute of a stand-in that was unpickled by value: the state of its object and function."""

    attributes: dict[str, Any]
    of_function: dict[str, Any]
    function_dict: dict[str, Any]

    def complete(self, owner: PickledFunction, made: FunctionType) -> None:
        """Give a kernel or func its function, which has the code of the stand-in."""
        fn = FunctionType(made.__code__, made.__globals__, made.__name__, None, made.__closure__)
        for name, value in self.of_function.items():
            setattr(fn, name, value)
        vars(fn).update(self.function_dict)
        owner.revive(fn, self.attributes)


Sources = list[tuple[FunctionType, str, str, dict[str, Any]]]  # function, file, text, globals


def receive(
    arguments: InitArguments | None, attributes: dict[str, Any], of_function: dict[str, Any],
    function_dict: dict[str, Any], sources: Sources,
) -> Received:  # fmt: skip
    """Unpickle a `Carried`, whose stand-in is the first of `sources`.

    Gives functions their source, and globals that only it names. `arguments` are unpickled first:
    ndarrays among the rest need a runtime.
    """
    from vkchi.frontend.syntax.carried_text import attach_text

    for fn, file, text, names in sources:
        if not is_found_by_name(fn):
            attach_text(fn, file, text)
            for name, value in names.items():
                fn.__globals__.setdefault(name, value)
    made, received = sources[0][0], Received(attributes, of_function, function_dict)
    pending = vars(made).get(CARRIED)
    if pending is not None:
        received.complete(pending, made)
    return received


def sources_of(fn: FunctionType) -> Sources:
    """Return a kernel's function and the functions that it captures, with their sources.

    Functions that are pickled by name are left out, and kernels and funcs, which carry their own.
    Raises KernelFieldError for a captured field, KernelSyntaxError if the kernel has no source.
    """
    found: Sources = []
    seen, ahead = {id(fn)}, deque[tuple[str, Any]]([("", fn)])
    while ahead and len(seen) < MOST_VALUES:
        path, value = ahead.popleft()
        if is_on_device(value):
            raise KernelFieldError(
                f"{fn.__name__}() captures the field `{path}`, memory of this process's device, "
                "which is not pickled",
                span_of_function(fn),
                help="pass the data as an ndarray argument, or make field and kernel inside the "
                "function that the other process runs",
            )
        if isinstance(value, FunctionType):
            try:
                found.append((value, *source_and_globals(value)))
            except local(KernelSyntaxError):  # functions that run as Python do not need it
                if value is fn:
                    raise
            spelled = found[-1][-1] if found[-1][0] is value else {}
            parts: Iterable[tuple[str, Any]] = [*captured_values(value), *spelled.items()]
        else:
            parts = ((path + name, part) for name, part in parts_of(value))
        for name, part in parts:
            if id(part) not in seen and not is_opaque(part):
                seen.add(id(part))
                ahead.append((name, part))
    return found


def source_and_globals(fn: FunctionType) -> tuple[str, str, dict[str, Any]]:
    """Return file name and text of a function, and the globals that its source names. Raises
    KernelSyntaxError.

    Its code needs those of annotations. Others, such as constants in comments, are in the key of
    the disk cache.
    """
    from vkchi.frontend.syntax.carried_text import names_in_source, text_of, words_in_source

    known, names = fn.__globals__, names_in_source(fn).difference(fn.__code__.co_varnames)
    for name in words_in_source(fn).intersection(known):
        value = known[name]
        is_itself = getattr(value, "__vkchi_func__", None) is fn
        if is_itself or isinstance(value, bool | int | float | complex | str | Type | ModuleType):
            names.add(name)
    return *text_of(fn), {name: known[name] for name in sorted(names & known.keys())}


def captured_values(fn: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function's bytecode names, closure variables, defaults and
    annotations."""
    codes = [fn.__code__]
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        yield from ((n, fn.__globals__[n]) for n in code.co_names if n in fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except local(ValueError):  # not assigned yet
            continue
    yield from ((f"default of {fn.__name__}", value) for value in fn.__defaults__ or ())
    yield from (fn.__kwdefaults__ or {}).items()
    yield from fn.__annotations__.items()


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects in a container, callable, class or object, with their path from it."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{k}]", part) for k, part in enumerate(list(value)))
    elif isinstance(value, functools.partial):
        yield from (("", part) for part in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, property):
        yield from (("", part) for part in (value.fget, value.fset))
    elif isinstance(value, functools.cached_property):
        yield "", value.func
    elif hasattr(value, "__func__"):  # methods, class methods and static methods
        yield "", value.__func__
        yield "", getattr(value, "__self__", None)
    elif hasattr(type(value), "__vkchi_struct__"):  # an array of structs
        yield from ((f".{name}", part) for name, part in value.__vkchi_arrays__.items())
    elif isinstance(value, StructType):
        yield from ((f".{name}", part) for name, part in value.methods.items())
    elif isinstance(value, type):
        yield from ((f".{name}", part) for name, part in list(vars(value).items()))
        yield from (("", base) for base in value.__bases__)
    else:
        yield from ((f".{name}", part) for name, part in list(vars(value).items()))
        yield "", type(value)


CONTAINERS = (
    dict, list, tuple, set, frozenset, functools.partial, functools.cached_property, property,
    MethodType, staticmethod, classmethod, StructType, ndarray, template,
)  # fmt: skip


def is_on_device(value: Any) -> bool:
    """True for fields and blocks of fields, which are not pickled."""
    if isinstance(value, Storage):
        return type(value).__reduce__ is Storage.__reduce__
    return type(value).__module__.startswith(TREES) and type(value).__name__ != "CurrentRoot"


def is_opaque(value: Any) -> bool:
    """True if a value has no functions of the user's program: it is pickled by name, or belongs to
    Python, vkchi or a package."""
    if isinstance(value, FunctionType | type):
        return is_found_by_name(value) and not is_registered(value.__module__)
    is_container = isinstance(value, CONTAINERS) or hasattr(type(value), "__vkchi_struct__")
    if is_container or is_on_device(value):
        return False
    if isinstance(value, PickledFunction | ModuleType) or not hasattr(value, "__dict__"):
        return True
    from vkchi.frontend.state.dependencies import is_of_program  # loaded on demand

    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None) or ""
    return not is_of_program(type(value).__module__, file) and not hasattr(value, "__func__")


def is_found_by_name(value: FunctionType | type) -> bool:
    """True if another process can import a function or class: its module has it, by its name."""
    found: Any = sys.modules.get(value.__module__)
    for word in value.__qualname__.split("."):
        found = getattr(found, word, None)
    return found is value and value.__module__ != "__main__"


def is_registered(module: str) -> bool:
    """True if cloudpickle has been told to pickle a module's functions by value."""
    cloudpickle: Any = sys.modules.get("cloudpickle")
    names = () if cloudpickle is None else cloudpickle.list_registry_pickle_by_value()
    return any(module == name or module.startswith(f"{name}.") for name in names)
