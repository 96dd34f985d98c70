"""The cells of a Func that notes who meets (`noted`), in memory.

Owns: `CellMemory`. A launch leaves them clear, so that the next one may use them again; one that
was interrupted does not give them back.
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.fields.storage import Storage
from vkchi.ir.core import Param
from vkchi.races.noted import Noted
from vkchi.runtime import Runtime
from vkchi.types import Array


class CellMemory:
    """Clear cells of one Func, as large as its arrays were last."""

    def __init__(self, runtime: Runtime, made: Noted) -> None:
        self.runtime, self.cells = runtime, made.cells
        self.types = {p.name: p.type for p in made.func.params if p.name in made.cells}
        self.memory: dict[str, Storage] = {}

    def bind(self, arrays: Mapping[str, Storage]) -> dict[str, Storage]:
        """Clear cells for these arrays, by name. Raises DeviceError where there is no memory."""
        return {name: self._take(name, arrays) for name in self.cells}

    def give_back(self, cells: Mapping[str, Storage]) -> None:
        """These are clear again."""
        self.memory |= {name: cells[name] for name in self.cells}

    def _take(self, name: str, arrays: Mapping[str, Storage]) -> Storage:
        root, first = self.cells[name]
        t = self.types[name]
        assert isinstance(t, Array)
        shape = arrays[root.name].shape if isinstance(root, Param) else ()
        old = self.memory.pop(name, None)
        if old is None or old.shape != shape:
            old = Storage(self.runtime, t.elem, shape, t.layout)
            old.fill(first)
        return old
