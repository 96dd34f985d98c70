"""vkchi: a kernel language in Python, compiled to SPIR-V for Vulkan. `import vkchi as ti`.

Public names are loaded at their first use: `import vkchi` loads neither numpy nor the compiler. The
table of names is in `public_names`; `__init__.pyi` declares them for type checkers. Raises
ImportError on Python without the GIL.
"""

import sys as _sys
from typing import Any as _Any

from vkchi import hooks as _hooks
from vkchi import public_names as _names
from vkchi.cache import version as _version  # records when the process began to load sources
from vkchi.compat import aliases as _aliases
from vkchi.compat.aliases import Version as _Version

if hasattr(_sys, "_is_gil_enabled") and not _sys._is_gil_enabled():
    raise ImportError(
        "vkchi does not support Python without the GIL: use a build that is not free-threaded, or "
        "set PYTHON_GIL=1"
    )
__version__ = _Version("0.1.0")

_hooks.NAMES.update(_names.read_names())
_hooks.PLACES.update(_names.read_hooks())
_sys.modules[__name__].__class__ = _hooks.PublicModule
_aliases.install_finder()

__all__ = _aliases.public_names()


def __getattr__(name: str) -> _Any:
    place = _hooks.NAMES.get(name)
    if place is None:
        return _aliases.resolve_name(name)
    found = globals()[name] = _hooks.load_place(place)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
