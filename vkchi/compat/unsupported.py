"""Taichi's public names that vkchi does not have yet, and what to do without them: one table.

Owns: the table and the error; what is delivered is deleted here. A name of a module stands under
its dotted path, a module itself for all names in it, a class's member under the class's name.
Must not know: anything of what is there.

    >>> import vkchi as ti; ti.Mesh
    UnsupportedName: ti.Mesh is not supported yet: use index arrays
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from vkchi.errors import Unsupported


class UnsupportedName(Unsupported, AttributeError):
    """A public name that is not there; an AttributeError too, so that `hasattr` answers."""


_METRICS = "there are times only: print_kernel_profiler_info()"
_MESH = "use index arrays"
_PADDLE = "use to_numpy() and from_numpy()"

CUPTI = (
    "profiler.CuptiMetric",
    "profiler.get_predefined_cupti_metrics",
    "profiler.collect_kernel_profiler_metrics",
    "profiler.set_kernel_profiler_metrics",
)

# A row for a module or class stands for all that is in it.
TABLE: dict[str, str] = {
    "get_addr": "addresses of a device's memory mean nothing elsewhere; keep indices",
    **dict.fromkeys(("Mesh", "MeshInstance", "mesh_local", "mesh_patch_idx"), _MESH),
    **dict.fromkeys(("StructField.to_paddle", "StructField.from_paddle"), _PADDLE),
    **dict.fromkeys(("Ndarray.to_paddle", "Ndarray.from_paddle"), _PADDLE),
    **dict.fromkeys(CUPTI, _METRICS),
}


def reason_for(path: str) -> str | None:
    """What to do without the name at a dotted path; None for names that are not in the table."""
    while path:
        if path in TABLE:
            return TABLE[path]
        path = path.rpartition(".")[0]
    return None


def refuse(path: str) -> Exception:
    """The error for a public name that is not there."""
    reason = reason_for(path)
    if reason is not None:
        return UnsupportedName(f"ti.{path} is not supported yet: {reason}")
    module, _, name = path.rpartition(".")
    where = f"vkchi.{module}" if module else "vkchi"
    return AttributeError(f"module {where!r} has no attribute {name!r}")


def make_refusing(path: str) -> Callable[..., NoReturn]:
    """A method that is in the table: calling it raises."""

    def refused(*args: Any, **options: Any) -> NoReturn:
        raise refuse(path)

    return refused


def refuse_members(*classes: type) -> None:
    """Put the methods that are in the table on their classes."""
    for cls in classes:
        for path in TABLE:
            owner, _, name = path.rpartition(".")
            if owner == cls.__name__ and name not in vars(cls):
                setattr(cls, name, make_refusing(path))
