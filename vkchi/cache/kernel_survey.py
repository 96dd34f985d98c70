"""Over-approximation of a kernel's inputs: a digest of every Python object that its code can reach.

The survey runs without lowering the kernel. It starts at the kernel's function:

- from a function to its closure variables, defaults, annotations, and the globals whose names occur
  in its source or bytecode;
- into objects, classes and modules by the attributes whose names occur in any visited source.

The survey is meant to reach all objects that lowering reads. It raises NoDigestError for an object
without a digest, such as a random generator, a file, or an instance of a C class. Such an object is
skipped instead if the bytecode does not read it as a global. `id` is used only to detect repeated
objects, which are encoded by number.

    survey = KernelSurvey(kernel.__vkchi_func__)
    survey.parts                    # {"n_grid in __main__": "int 128", ...}
"""

from __future__ import annotations

import builtins
import enum
import functools
import math
import os
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from itertools import combinations
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

from vkchi.cache.referenced_names import (
    CHANGING,
    REACHING,
    TYPED,
    code_of,
    globals_in,
    names_in,
    odd_words,
    shows_objects,
    without_comments,
    words_of,
)
from vkchi.cache.store import digest
from vkchi.errors import VkchiError
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec, passed_arrays
from vkchi.frontend.syntax.source import read_block
from vkchi.hooks import NAMES, PublicModule
from vkchi.interop.in_place import are_disjoint_arguments
from vkchi.interrupts.local import local
from vkchi.lang.matrix import Matrix
from vkchi.ndarray import Ndarray
from vkchi.span import PACKAGE
from vkchi.types import DefaultTensor, Type, ndarray, ref, template
from vkchi.types.core import ArrayArgument
from vkchi.types.lazy_numpy import is_number_of_numpy, is_numpy_loaded, np
from vkchi.types.struct_types import StructType

# --- provenance of objects -----------------------------------------------------------------------
#
# Provenance of Python objects: this package, the standard library, numpy, C code, or the program.
#
# The versions of Python, numpy and this package determine the contents of some objects. All others
# may differ in the next process.
#
#     >>> is_of_python(re.compile), is_own_builtin("len"), is_in_c(datetime.date)
#     (True, True, True)

PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented),
)  # fmt: skip
OWN = "vkchi"
# Types of members that C code defines in a class.
STATELESS = (
    WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType, GetSetDescriptorType,
    MemberDescriptorType, type(vars(namedtuple("_", "x"))["x"]),
)  # fmt: skip
IN_C = (*STATELESS, BuiltinFunctionType)


def is_own_builtin(name: str) -> bool:
    """True if `name` is Python's own class or function in builtins, or absent there."""
    value = vars(builtins).get(name, builtins)
    own = getattr(value, "__module__", "") == "builtins" and getattr(value, "__name__", "") == name
    return value is builtins or (isinstance(value, type | BuiltinFunctionType) and own)


def is_vkchi_module(module: str | None) -> bool:
    return (module or "").partition(".")[0] == OWN


def is_of_python(value: Any) -> bool:
    """True if a class or function is from a module of the standard library."""
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__", "")
    else:
        module = getattr(value, "__module__", None) or ""
    first = str(module).partition(".")[0]
    return first in sys.stdlib_module_names and first != "__main__"


def is_in_c(cls: type) -> bool:
    """True if a class has members of its own that are defined in C; those of its bases do not
    count."""
    slots = vars(cls).get("__slots__", ())
    own = {"__dict__", "__weakref__", *((slots,) if isinstance(slots, str) else slots)}
    own |= {f"_{cls.__name__.lstrip('_')}{name}" for name in own if name.startswith("__")}
    return any(
        isinstance(m, IN_C) and name not in own
        and getattr(m, "__objclass__", getattr(m, "__self__", None)) is cls
        for name, m in vars(cls).items()
    )  # fmt: skip


def numpys_folder() -> tuple[str, ...]:
    return (os.path.dirname(np.__file__) + os.sep,) if is_numpy_loaded() else ()


def may_be_user_supplied(value: Any) -> bool:
    """True if a member of a module of vkchi or numpy may have been put there by a program.

    False for modules, functions of these packages, and objects of their classes; plain values,
    lists and dicts may.
    """
    if isinstance(value, FunctionType):
        file = value.__code__.co_filename
        return not file.startswith((PACKAGE, *numpys_folder()))
    if isinstance(value, ModuleType):
        return False
    if (
        type(value) in (*PLAIN, list, tuple, dict)
        or isinstance(value, Type)
        or is_number_of_numpy(value)
    ):
        return True
    module = value.__module__ if isinstance(value, type) else type(value).__module__
    return module.partition(".")[0] not in (OWN, "numpy", "builtins", "math", "functools")


def is_public(name: str, value: Any) -> bool:
    """True if a public name of vkchi has its own value."""
    module, inner = NAMES.get(name, ("", ""))
    return getattr(sys.modules.get(f"{OWN}.{module}"), inner, NAMES) is value


# --- the survey ----------------------------------------------------------------------------------

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
MANGLED = r"_\w+?(__\w+)"
OF_TEXTURES = f"{OWN}.types.formats"  # a name, to avoid loading the module
OF_KERNELS = ("__vkchi_func__", "__wrapped__", "__func__", "__self__")  # visited separately
OF_ITSELF = ("__name__", "__qualname__", "__doc__", "__module__")  # assignable attributes
MOST_BYTES = 16 << 20  # largest array that is digested
MOST_OBJECTS = 20_000
# Methods that Python calls implicitly only to create, copy or format objects. They are skipped
# unless some visited code does that.
_SILENT = """
    __init__ __new__ __repr__ __str__ __hash__ __del__ __reduce__ __reduce_ex__ __getstate__
    __setstate__ __init_subclass__ __class_getitem__ __post_init__ __copy__ __deepcopy__
    __replace__ __format__ __sizeof__ __dir__ __subclasshook__
"""
SILENT = frozenset(_SILENT.split())
# Attributes filled by one walk.
TABLES = ("parts", "owners", "functions", "fields", "arrays", "structs", "seen", "kinds")
# Classes of the standard library; Python's version determines their methods.
AS_THEY_ARE = (
    object, type, tuple, SimpleNamespace, enum.Enum, enum.IntEnum, enum.Flag, enum.IntFlag,
)  # fmt: skip


class NoDigestError(Exception):
    """Error: an object that a kernel may read has no digest."""


class KernelSurvey:
    """Strings that identify a kernel's inputs (`parts`, by name): short contents, or digests.

    `functions`, `fields` and `structs` are in order of discovery, which is equal for equal `parts`.
    The constructor raises NoDigestError.
    """

    def __init__(self, fn: FunctionType, args: Iterable[ArgSpec] = ()) -> None:
        self.fn, self.args = fn, tuple(args)
        self.texts: dict[FunctionType, str] = {}  # sources
        self.bare: dict[FunctionType, tuple[str, tuple[int, ...]]] = {}  # sources without comments
        self.shows = False  # True if code may create, copy or format objects of unnamed classes
        self.words: dict[FunctionType, set[str]] = {}  # names in each function
        # Names in all visited code; the kernel's own often suffice.
        self.names: frozenset[str] = frozenset(self._words(fn, self._text(fn)))
        while True:  # fixpoint: repeat until no new names are found
            before = self.names, self.shows
            self._start()
            self.names |= self.mentioned
            if (self.names, self.shows) == before:
                return

    def _start(self) -> None:
        self.parts: dict[str, str] = {}
        self.owners: dict[str, Any] = {}  # the object of each part
        self.functions: dict[FunctionType, int] = {}
        self.fields: list[Storage] = []
        self.arrays: list[Ndarray] = []
        self.structs: list[StructType] = []
        self.seen: dict[int, tuple[int, Any]] = {}  # with the object, so that its id is not reused
        self.kinds: dict[type, int] = {}  # classes of visited objects
        self.mentioned: set[str] = set()
        self._function(self.fn, "kernel")
        for arg in self.args:
            self._argument(arg)
        if self.arrays:
            held = [(array, array.argument.type.ndim) for array in self.arrays]
            passed = [(arg.given, ndim_of(arg)) for arg in passed_arrays(self.args)]
            self.parts["relations of arrays"] = relations_of([*passed, *held])

    @property
    def classes(self) -> list[type]:
        """The visited classes, and the classes of visited enum members and other instances of
        Python classes."""
        named = [value for _, value in self.seen.values() if isinstance(value, type)]
        return [*self.kinds, *named]

    def _argument(self, arg: ArgSpec) -> None:
        name = f"argument {arg.name}"
        self.parts[name] = f"{arg.kind} {self.see(arg.type, name)}"
        if arg.kind in ("struct", "structs", "pack"):
            for member in arg.value:
                self._argument(member)
        elif arg.kind == "view":
            view = arg.value
            axes = [tuple(axis) for axis in view.axes]
            self.parts[f"view of {name}"] = f"of {view.owner} by {axes}"
            for member in (*([] if view.base is None else [view.base]), *view.numbers):
                self._argument(member)
        elif arg.value is not None:
            self.parts[f"value of {name}"] = self.see(arg.value, name)

    # --- functions

    def _function(self, fn: FunctionType, path: str) -> str:
        number = self.functions.get(fn)
        if number is not None:
            return f"function {number}"
        number = self.functions[fn] = len(self.functions)
        where = f"{fn.__module__}.{fn.__qualname__}"
        is_own = fn.__code__.co_filename.startswith(PACKAGE)
        if not is_own or number == 0:
            text = self._text(fn)
            self._source(fn, text)
            self._globals(fn, text)
            self._attributes(vars(fn), path)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            try:
                value = cell.cell_contents
            except local(ValueError):  # an empty cell
                continue
            self._part(f"{name} of {fn.__qualname__}", value)
        for k, value in enumerate((*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())):
            self._part(f"default {k} of {fn.__qualname__}", value)
        for name, note in fn.__annotations__.items():
            if number or name == "return":  # a kernel's argument types come from the call
                self._part(f"annotation {name} of {fn.__qualname__}", note)
        own = self._words_of_itself(fn)
        if own:
            self.parts[f"names of function {number}"] = digest(repr(x).encode() for x in own)
        return f"function {number} {where if is_own else ''}"

    def _source(self, fn: FunctionType, text: str) -> None:
        name = f"source of {fn.__qualname__}"
        while name in self.owners:
            name += "'"
        self.owners[name] = fn
        self.parts[name] = digest([text.encode(), code_of(fn)])

    def _text(self, fn: FunctionType) -> str:
        if fn in self.bare:
            return self.bare[fn][0]
        self.shows |= shows_objects(fn)
        is_textless = fn.__code__.co_filename == TYPED or fn.__name__ == "<lambda>"
        if is_textless and fn is self.fn:
            raise NoDigestError(f"{fn.__qualname__} has no source file")
        try:
            text = "" if is_textless else "".join(read_block(fn))
        except VkchiError as e:
            raise NoDigestError(str(e)) from None
        bare = without_comments(text)
        odd = odd_words(fn, bare[0])
        if odd:
            raise NoDigestError(f"{fn.__qualname__} says {min(odd)}")
        if text:
            self.texts[fn], self.bare[fn] = text, bare
        return bare[0]

    def _globals(self, fn: FunctionType, text: str) -> None:
        needed, words = globals_in(fn.__code__), self._words(fn, text)
        attributes = names_in(fn.__code__) - needed
        self.mentioned |= words
        for name in sorted(words):
            if name in fn.__globals__:
                part, value = f"{name} in {fn.__module__}", fn.__globals__[name]
                if name in needed:
                    self._part(part, value)
                elif isinstance(value, PLAIN):  # may be named in the source, unless as an attribute
                    if name not in attributes:
                        self._try_part(part, value)
                elif name not in fn.__code__.co_varnames or isinstance(value, Type):
                    self._try_part(part, value)
            elif name in needed and not is_own_builtin(name):
                self._part(f"{name} in builtins", vars(builtins)[name])

    def _words(self, fn: FunctionType, text: str) -> set[str]:
        if fn not in self.words:
            self.words[fn] = names_in(fn.__code__) | words_of(text)
        return self.words[fn]

    def _try_part(self, name: str, value: Any) -> None:
        """Add a global whose name occurs in the source, but which the bytecode does not read as a
        global.

        It may be named in an annotation. If it has no digest, the survey's tables are restored,
        without an error.
        """
        held = dict(vars(self))
        copies = {key: copy(table) for key, table in held.items() if key in TABLES}
        try:
            self._part(name, value)
        except NoDigestError:
            vars(self).update(copies)

    def _part(self, name: str, value: Any) -> None:
        """Add the string of `value` to `parts` under `name`.

        Primes are appended to the name if it belongs to another object, as with several closures of
        one function. The same object is added once.
        """
        while name in self.owners and self.owners[name] is not value:
            name += "'"
        if name not in self.owners:
            self.owners[name], self.parts[name] = value, ""
            self.parts[name] = self.see(value, name)

    # --- values

    def see(self, value: Any, path: str) -> str:
        """Return a string that identifies the content of a value, together with `parts`.

        Attributes and sources that the value reaches are added to `parts`. Long contents are
        replaced by digests. An object that was seen before is identified by its number. Raises
        NoDigestError.
        """
        if type(value) in PLAIN:
            text = f"{type(value).__name__} {value!r}"
            return text if len(text) < 80 else digest([text.encode()])
        if isinstance(value, Type | ArrayArgument) and not isinstance(value, StructType):
            return f"type {value}"
        found = self.seen.get(id(value))
        if found is not None:
            return f"as {found[0]}"
        if len(self.seen) > MOST_OBJECTS:
            raise NoDigestError("too many objects")
        self.seen[id(value)] = (len(self.seen), value)
        for kinds, look in digest_methods():
            if isinstance(value, kinds):
                return look(self, value, path)
        return self._object(value, path)

    def _several(self, values: Iterable[Any], path: str) -> str:
        return digest(self.see(v, path).encode() for v in values)

    def _numpy(self, value: Any, path: str) -> str:
        if value.nbytes > MOST_BYTES or value.dtype.hasobject:
            raise NoDigestError(f"{path} is an array of {value.nbytes} bytes")
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
            raise NoDigestError(f"{path} is a {type(value).__name__}")
        return f"numpy {value.dtype!r} {value.shape} {digest([value.tobytes()])}"

    def _dtype(self, value: np.dtype[Any], path: str) -> str:
        if value.hasobject:
            raise NoDigestError(f"{path} has a dtype that contains Python objects")
        return f"dtype {value!r}"

    def _field(self, value: Storage, path: str) -> str:
        if isinstance(value, Ndarray):
            return self._ndarray(value, path)
        if hasattr(type(value), "__vkchi_view__"):
            base, axes = value.__vkchi_view__  # type: ignore[attr-defined]
            shown = [k if type(k) is int else tuple(k) for k in axes]
            return f"view {shown} of {self.see(base, path)}"
        nodes = getattr(value, "nodes", None)  # of a field in blocks of a pool
        held: Any = value if nodes is None else nodes
        try:
            array = held.__vkchi_array__()
            known = value.__vkchi_attributes__().words()  # type: ignore[attr-defined]
        except VkchiError as e:
            raise NoDigestError(f"{path}: {e}") from None
        text = " ".join(["field", type(value).__name__, str(array), *known])
        text += f" name {getattr(value, 'name', '')!r}" if self.names & {"name", "_name"} else ""
        self.fields.append(value)
        text += "" if nodes is None else f" nodes {self.see(nodes, path)}"
        text += self._blocks(getattr(value, "node", None), path)
        part = getattr(value, "component_of", None)
        if part is not None:
            text += f" component {part[1]} of {self.see(part[0], path)}"
        for kind in ("grad", "dual"):
            companion = getattr(value, kind, None)
            if companion is not None and getattr(companion, "has_place", True):
                text += f" {kind} {self.see(companion, path)}"
        return text

    def _ndarray(self, value: Ndarray, path: str) -> str:
        """Digest an ndarray that calls read from an object: neither its shape nor its contents."""
        known = value.argument
        self.arrays.append(value)
        text = f"ndarray {type(value).__name__} {known.type} {' '.join(known.attributes.words())}"
        return text if value.grad is None else f"{text} grad {self.see(value.grad, path)}"

    def _blocks(self, node: Any, path: str) -> str:
        if node is None:
            return ""
        found = [f"{node.tree.top.outline if node.sparse_path else node.way}"]
        for block in node.sparse_path:
            numbers = block.activity.arrays
            found.append(f"{block.way} {self._several(numbers, path)}")
        return " ".join(found)

    def _struct_type(self, value: StructType, path: str) -> str:
        self.structs.append(value)
        members = self._several(value.members.items(), path)
        return f"struct {value} {members} {self._several(value.methods.items(), path)}"

    def _struct_arrays(self, value: Any, path: str) -> str:
        arrays = self._several(value.__vkchi_arrays__.items(), path)
        return f"structs {self.see(value.__vkchi_type__, path)} {arrays}"

    def _matrix(self, value: Matrix, path: str) -> str:
        return f"matrix {value.dt} {value.shape} {self._several(value.entries, path)}"

    def _sequence(self, value: Any, path: str) -> str:
        if isinstance(value, tuple) and hasattr(type(value), "_fields"):
            return f"named tuple {self._kind(type(value), path)} {self._several(value, path)}"
        if type(value) not in (list, tuple, dict):
            raise NoDigestError(f"{path} is a {type(value).__name__}")
        items = value.items() if isinstance(value, dict) else value
        return f"{type(value).__name__} {len(value)} {self._several(items, path)}"

    def _enum(self, value: enum.Enum, path: str) -> str:
        number = self.see(value.value, path)
        held = self._attributes(vars(value), path)
        return f"enum {self._kind(type(value), path)} {value.name} {number} {held}"

    def _module(self, value: ModuleType, path: str) -> str:
        name, held = value.__name__, vars(value)
        is_plain = type(value) in (ModuleType, PublicModule)
        if not is_plain or (name == "numpy" and "random" in self.names):
            raise NoDigestError(f"{path} is a {type(value).__name__} {name}")
        if is_vkchi_module(name) or name in ("math", "numpy", "builtins"):
            held = {key: found for key, found in held.items() if may_be_user_supplied(found)}
            if name == OWN:  # they are loaded at different times
                held = {key: found for key, found in held.items() if not is_public(key, found)}
        elif "__getattr__" in held:
            self._part(f"__getattr__ of {path}", held["__getattr__"])
        version = getattr(value, "__version__", "")
        return f"module {name} {version} {self._attributes(held, path)}"

    def _attributes(self, held: Any, path: str) -> str:
        """Add to `parts` the items of `held` whose names occur in a source; return these names,
        joined."""
        found = []
        for name in sorted(filter(self._is_said, held), key=str):
            found.append(str(name))
            self._part(f"{name} of {path}", held[name])
        return ", ".join(found)

    def _is_said(self, name: Any) -> bool:
        """True if a visited source contains this name, or its form before the mangling of private
        names."""
        if name in self.names:
            return True
        mangled = re.fullmatch(MANGLED, name) if isinstance(name, str) and name[:1] == "_" else None
        return mangled is not None and mangled[1] in self.names

    def _callable(self, value: Any, path: str) -> str:
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return f"partial {self._several(parts, path)}"
        if isinstance(value, MethodType):
            return f"method {self._several((value.__func__, value.__self__), path)}"
        if isinstance(value, property):
            return f"property {self.see(value.fget, path)}"
        if isinstance(value, staticmethod | classmethod):
            self.shows |= isinstance(value, classmethod)  # it may create an object
            return f"{type(value).__name__} {self.see(value.__func__, path)}"
        return f"cached {self.see(value.func, path)}"

    def _builtin(self, value: Any, path: str) -> str:
        module = getattr(value, "__module__", None) or ""
        name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
        is_known = any(getattr(m, name, None) is value for m in (math, builtins, np))
        if not is_known or name in CHANGING | REACHING:
            raise NoDigestError(f"{path} is {value!r}")
        return f"builtin {module}.{name}"

    def _class(self, value: type, path: str) -> str:
        name = f"class {value.__module__}.{value.__qualname__}"
        if is_vkchi_module(value.__module__) or any(
            getattr(module, value.__name__, None) is value for module in (builtins, np)
        ):
            return name
        kind = type(value)
        if not is_of_python(kind):
            name += f" {self._kind(kind, path)}"
        return f"{name} {self._members_of(value, path, frozenset())}"

    def _kind(self, cls: type, path: str) -> str:
        """Return a string for an object's class: its name and a digest of its members, or its
        number if it was seen before."""
        if cls not in self.kinds:
            self.kinds[cls] = len(self.kinds)
            members = self._members_of(cls, path, frozenset() if self.shows else SILENT)
            return f"{cls.__module__}.{cls.__qualname__} {members}"
        return f"kind {self.kinds[cls]}"

    def _members_of(self, cls: type, path: str, silent: frozenset[str]) -> str:
        """Digest the members of a class that sources name, and special methods except those in
        `silent`.

        Bases are included, except some of the standard library and those of vkchi. Raises
        NoDigestError for a base defined in C.
        """
        found = []
        for base in cls.__mro__:
            is_value = issubclass(cls, enum.Enum) and base in PLAIN
            if base in AS_THEY_ARE or is_value or is_vkchi_module(base.__module__):
                continue
            if is_in_c(base):
                raise NoDigestError(f"{path} is a {cls.__qualname__}, which is not Python's")
            held = {
                name: member
                for name, member in vars(base).items()
                if not isinstance(member, STATELESS)
            }
            for name in sorted(held):
                member = held[name]
                is_special = name[:2] == name[-2:] == "__" and not isinstance(member, type)
                if not is_special or name in silent:
                    continue
                if name in SILENT and not self.shows and is_of_python(member):
                    continue
                if callable(member) or hasattr(type(member), "__get__"):
                    found.append(f"{name} {self.see(member, f'{path}.{name}')}".encode())
            found.append(self._attributes(held, path).encode())
        if issubclass(cls, enum.Enum) and not silent:  # its metaclass iterates over its members
            for name, member in cls.__members__.items():
                found.append(f"{name} {self.see(member.value, f'{path}.{name}')}".encode())
        found += [f"{x} {text}".encode() for x, text in self._words_of_itself(cls)]
        if not getattr(cls, "_template_primitives", True):
            found.append(b"numbers are arguments")
        members = getattr(cls, "__dataclass_fields__", {})  # annotations decide how they are read
        found += [ADDRESS.sub("", f"{x}: {m.type}").encode() for x, m in members.items()]
        return digest(found)

    def _words_of_itself(self, value: Any) -> list[tuple[str, str]]:
        said = [name for name in OF_ITSELF if self._is_said(name)]
        return [(name, repr(getattr(value, name, None))) for name in said]

    def _kernel_function(self, value: Any, path: str) -> str:
        held = getattr(value, "__self__", None)
        owner = "" if held is None else self.see(held, path)
        attributes = {k: v for k, v in vars(value).items() if k not in OF_KERNELS}
        text = self._function(value.__vkchi_func__, path)
        return f"{value.__vkchi_kind__} {text} {owner} {self._attributes(attributes, path)}"

    def _object(self, value: Any, path: str) -> str:
        kind = held_by(type(value).__mro__, "__vkchi_kind__")
        if isinstance(own_or_held(value, "__vkchi_func__"), FunctionType) and (
            kind is not None or is_vkchi_module(type(value).__module__)
        ):
            return self._kernel_function(value, path)
        is_structs = hasattr(type(value), "__vkchi_struct__") and hasattr(value, "__vkchi_arrays__")
        if is_structs or hasattr(type(value), "__vkchi_ndarrays__"):
            return self._struct_arrays(value, path)
        if isinstance(value, template | ndarray | ref):
            return f"{type(value).__name__} {self._several(vars(value).items(), path)}"
        if type(value).__module__ == OF_TEXTURES:
            return f"{type(value).__name__} {self._several(vars(value).items(), path)}"
        if isinstance(value, DefaultTensor):
            return f"type {value.type}"
        if is_vkchi_module(type(value).__module__) or type(value).__module__ == "builtins":
            raise NoDigestError(f"{path} is a {type(value).__qualname__}")
        held = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            for name, member in vars(base).items():
                if isinstance(member, MemberDescriptorType):
                    with suppress(AttributeError):  # an empty slot
                        held[name] = member.__get__(value)
        return f"object {self._kind(type(value), path)} {self._attributes(held, path)}"


def ndim_of(arg: ArgSpec) -> int:
    assert isinstance(arg.type, ArrayArgument)
    return arg.type.type.ndim


def relations_of(arrays: Sequence[tuple[Any, int]]) -> str:
    """Return which arrays have equal shapes, and which overlap in memory."""
    first: dict[tuple[int, ...], int] = {}
    shapes = [
        first.setdefault(tuple(array.shape)[:ndim], k) for k, (array, ndim) in enumerate(arrays)
    ]
    whole = [array for array, _ in arrays]
    pairs = combinations(enumerate(whole), 2)
    if are_disjoint_arguments(whole):
        return f"like {shapes}"
    met = [(j, k) for (j, a), (k, b) in pairs if not are_disjoint_arguments([a, b])]
    return f"like {shapes} overlapping {met}"


Look = Callable[[KernelSurvey, Any, str], str]
LOOKS: tuple[tuple[Any, Look], ...] = (
    (enum.Enum, KernelSurvey._enum),
    (StructType, KernelSurvey._struct_type),
    (Matrix, KernelSurvey._matrix),
    (Storage, KernelSurvey._field),
    (list | tuple | dict, KernelSurvey._sequence),
    (FunctionType, KernelSurvey._function),
    (ModuleType, KernelSurvey._module),
    (type, KernelSurvey._class),
    (
        MethodType | property | staticmethod | classmethod | functools.partial,
        KernelSurvey._callable,
    ),
    (functools.cached_property, KernelSurvey._callable),
    (BuiltinFunctionType, KernelSurvey._builtin),
)


@functools.cache
def looks_at_numpy() -> tuple[tuple[Any, Look], ...]:
    """Return LOOKS with numpy's classes. Enums stay first: their members may be numpy scalars."""
    own = (
        (np.generic, KernelSurvey._numpy),
        (np.dtype, KernelSurvey._dtype),
        (np.ndarray, KernelSurvey._numpy),
    )
    return (LOOKS[0], *own, *LOOKS[1:], (np.ufunc, KernelSurvey._builtin))


def digest_methods() -> tuple[tuple[Any, Look], ...]:
    """Return the pairs of classes and digest methods, of which the first match counts. Numpy's are
    included if it is loaded."""
    return looks_at_numpy() if is_numpy_loaded() else LOOKS


def own_or_held(value: Any, name: str) -> Any:
    """Return an attribute of an object or its class without running descriptors; None if absent."""
    holders = type(value).__mro__
    own = held_by(holders, "__dict__")
    if isinstance(own, GetSetDescriptorType):
        attributes = own.__get__(value)
        if name in attributes:
            return attributes[name]
    return held_by(holders, name)


def held_by(classes: tuple[type, ...], name: str) -> Any:
    """Return the attribute of the first of these classes that defines it, or None."""
    return next((vars(cls)[name] for cls in classes if name in vars(cls)), None)
