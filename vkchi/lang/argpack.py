"""`ti.ArgPack`: kernel arguments that are packed once and passed together.

    >>> View = ti.types.argpack(scale=ti.f32, x=ti.types.ndarray()); v = View(scale=2.0, x=x)
    >>> v.scale = 3.0

Scalars, vectors and structs are checked on assignment, arrays when the pack is passed to a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.hooks import open_names
from vkchi.lang.matrix import Matrix
from vkchi.lang.struct import Struct, convert_to_type
from vkchi.types import Scalar, Tensor, cook
from vkchi.types.losses import wrap_integer
from vkchi.types.struct_types import ArgPackType, StructType


class ArgPack:
    """Named kernel arguments, as attributes and items. Assignment converts a value to its type."""

    __slots__ = ("__vkchi_type__", "__weakref__", "_entries")
    __vkchi_type__: ArgPackType
    _entries: dict[str, Any]

    def __init__(self, t: ArgPackType, entries: dict[str, Any]) -> None:
        object.__setattr__(self, "__vkchi_type__", t)
        object.__setattr__(self, "_entries", {})
        for name in t.members:
            setattr(self, name, entries[name])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._entries:
            raise AttributeError(f"an {self.__vkchi_type__} has no `{name}`")
        return self._entries[name]

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__vkchi_type__.members
        if name not in members:
            raise AttributeError(f"an {self.__vkchi_type__} has no `{name}`")
        self._entries[name] = _as_entry(name, members[name], value)

    def __copy__(self) -> ArgPack:
        return ArgPack(self.__vkchi_type__, self._entries)

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries.values())

    @property
    def entries(self) -> dict[str, Any]:
        """Arguments by name."""
        return dict(self._entries)

    @property
    def keys(self) -> list[str]:
        """The names of the arguments."""
        return list(self._entries)

    @property
    def items(self) -> Any:
        """Pairs of name and argument."""
        return self._entries.items()

    def to_dict(self) -> dict[str, Any]:
        """Arguments as Python numbers, lists and dicts; arrays unchanged."""
        return {name: _plain(x) for name, x in self._entries.items()}

    def __repr__(self) -> str:
        return str(self.to_dict())


def _plain(x: Any) -> Any:
    if isinstance(x, Struct | ArgPack):
        return x.to_dict()
    return x.to_list() if isinstance(x, Matrix) else x


def _as_entry(name: str, note: Any, x: Any) -> Any:
    """Convert `x` to the type of an argument; arrays are unchanged.

    A dict makes a nested argpack. Raises ArgumentError or KernelTypeError.
    """
    t = cook(note)
    if isinstance(t, Scalar):
        whole = isinstance(x, int | bool) or hasattr(x, "__index__")
        if not whole and (t.kind != "f" or not hasattr(x, "__float__")):
            raise ArgumentError(f"argument `{name}` of an argpack: {t} is needed, not {x!r}")
        if t.kind in "iu":
            x = wrap_integer(int(x), t, f"argument `{name}` of an argpack")
        return convert_to_type(t, x, name)
    if isinstance(t, Tensor | StructType):
        return convert_to_type(t, x, name)
    if isinstance(t, ArgPackType) and isinstance(x, dict):
        return make_pack(t, **x)
    return x


def make_pack(t: ArgPackType, /, *args: Any, **kwargs: Any) -> ArgPack:
    """Return an ArgPack of type `t` from positional or keyword arguments.

    Raises ArgumentError for missing, surplus, unknown or duplicate ones, and the errors of
    conversion.
    """
    names = list(t.members)
    given = dict(zip(names, args))
    wrong = [name for name in kwargs if name not in names or name in given]
    if len(args) > len(names) or wrong:
        what = f"`{wrong[0]}`" if wrong else f"{len(args)} arguments"
        raise ArgumentError(f"an {t} does not take {what}")
    given |= kwargs
    missing = [f"`{name}`" for name in names if name not in given]
    if missing:
        raise ArgumentError(f"an {t} needs {' and '.join(missing)}")
    return ArgPack(t, given)


open_names(globals())
