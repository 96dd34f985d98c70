"""Quadrants' names: `import vkchi.quadrants as qd`.

`python -m vkchi.quadrants SCRIPT ...` runs a script that imports `quadrants`. The names are those
of vkchi, except for the table of `compat.quadrants_names`.

    >>> qd.Tensor is ti.Tensor, qd.QuadrantsSyntaxError is ti.TaichiSyntaxError
    (True, True)
"""

from __future__ import annotations

import sys
from typing import Any

from vkchi.compat import quadrants_names as _names

__version__ = _names.VERSION
__path__: list[str] = []  # `import vkchi.quadrants.math`
__all__ = _names.list_names()

_names.install_finder()


def __getattr__(name: str) -> Any:
    return _names.find_name(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if __name__ == "__main__":
    sys.exit(_names.run_script(sys.argv[1:]))
