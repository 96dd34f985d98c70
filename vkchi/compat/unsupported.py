"""Public names of Taichi without implementation, with the replacement to suggest.

Keys are dotted paths. A module stands for all its names; a member of a class is listed under the
class's name. Implemented names must be deleted from the table.

    >>> import vkchi as ti; ti.Mesh
    UnsupportedName: ti.Mesh is not supported yet: use index arrays
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from vkchi.errors import MissingNameError, Unsupported


class UnsupportedName(Unsupported, AttributeError):
    """Error: a public name of Taichi without implementation.

    Also an AttributeError, so that `hasattr` returns False.
    """


_METRICS = "there are times only: print_kernel_profiler_info()"
_MESH = "use index arrays"
_PADDLE = "use to_numpy() and from_numpy()"

CUPTI = (
    "profiler.CuptiMetric",
    "profiler.get_predefined_cupti_metrics",
    "profiler.collect_kernel_profiler_metrics",
    "profiler.set_kernel_profiler_metrics",
)

# A row for a module or class covers all its members.
TABLE: dict[str, str] = {
    "get_addr": "addresses of a device's memory mean nothing elsewhere; keep indices",
    **dict.fromkeys(("Mesh", "MeshInstance", "mesh_local", "mesh_patch_idx"), _MESH),
    **dict.fromkeys(("StructField.to_paddle", "StructField.from_paddle"), _PADDLE),
    **dict.fromkeys(("Ndarray.to_paddle", "Ndarray.from_paddle"), _PADDLE),
    **dict.fromkeys(CUPTI, _METRICS),
}


def reason_for(path: str) -> str | None:
    """The entry of TABLE for a dotted path, or for the nearest module or class that contains it.

    None if there is none.
    """
    while path:
        if path in TABLE:
            return TABLE[path]
        path = path.rpartition(".")[0]
    return None


def missing_name_error(path: str, known: Callable[[], Iterable[str]] = list) -> Exception:
    """The error for a missing public name: UnsupportedName if TABLE has an entry, else
    MissingNameError.

    `known` returns the names of the module, to suggest one.
    """
    reason = reason_for(path)
    if reason is not None:
        return UnsupportedName(f"ti.{path} is not supported yet: {reason}")
    module, _, name = path.rpartition(".")
    where = f"vkchi.{module}" if module else "vkchi"
    sentence = f"module {where!r} has no attribute {name!r}"

    def help() -> str:
        from vkchi.compat.foreign_names import help_for_name  # needed for messages only

        return help_for_name(name, known())

    return MissingNameError(sentence, name, help)


def unsupported_method(path: str) -> Callable[..., NoReturn]:
    """A method that raises the error of `path`, its entry in TABLE."""

    def refused(*args: Any, **options: Any) -> NoReturn:
        raise missing_name_error(path)

    return refused


def add_unsupported_members(*classes: type) -> None:
    """Set a method that raises UnsupportedName for each entry of TABLE that names a class in
    `classes`.

    Methods that the class defines itself stay.
    """
    for cls in classes:
        for path in TABLE:
            owner, _, name = path.rpartition(".")
            if owner == cls.__name__ and name not in vars(cls):
                setattr(cls, name, unsupported_method(path))
