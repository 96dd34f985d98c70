"""`vkchi.span.stores_literal`: which stores of the user's program store a literal number."""

from collections.abc import Callable
from typing import Any

import pytest

from vkchi.span import PACKAGE

RECORDER = """
from vkchi.span import stores_literal

class Recorder:
    def __init__(self):
        object.__setattr__(self, "notes", [])

    def __getitem__(self, key):
        return 2.0

    def __setitem__(self, key, value):
        self.notes.append(stores_literal())

    def __setattr__(self, name, value):
        self.notes.append(stores_literal())
"""


def recorder() -> Any:
    """An object that notes for each stored item or attribute whether its number is a literal.

    Its code has a file name in the package, as that of arrays.
    """
    scope: dict[str, Any] = {}
    exec(compile(RECORDER, f"{PACKAGE}recorder.py", "exec"), scope)
    return scope["Recorder"]()


def literal(x: Any, i: int, v: float) -> None:
    x[0] = 0.0
    x[i] = 3
    x[i + 1, int(v)] = -1.5
    x[1:i] = 7
    x[: i + 1, 2] = 0.5
    x.y = 4.0
    x[x[0]] = 1e300


def computed(x: Any, i: int, v: float) -> None:
    x[0] = v
    x[0] = 1.0 - x[0]
    x[0] = 1.0 + v
    x[0] = -v
    x[0] = x[1]
    x[0] = max(1.0, v)
    x[1:i] = 2.0 * v
    x[1:3] = x[1]
    x[0] += 1.0
    x[0] *= 2.0
    x[0] = 1.0 if i else 2.0
    x[0] = v and 1.0
    x[0] = [1.0, 2.0]
    x.y = 1.0 - v
    x[0] = w = v
    (x[0], w) = (v, 1.0)
    (w, x[0]) = (1.0, v + w)
    x[1.0] = v
    for x[0] in (1.0, v):
        pass


@pytest.mark.parametrize(("stores", "want"), [(literal, True), (computed, False)])
def test_stores_of_literals(stores: Callable[..., None], want: bool) -> None:
    x = recorder()
    stores(x, 1, 2.0)
    assert x.notes and set(x.notes) == {want}, x.notes
