"""Random programs about sparse trees with node pools agree with dictionaries.

`VKCHI_FUZZ` and `VKCHI_FUZZ_FIRST` as in `test_fuzz_sparse`.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.fuzz.sparse_trees import Tree
from vkchi.fields.trees import pools
from vkchi.frontend.values import pool_access

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "24"))
FIRST = int(os.environ.get("VKCHI_FUZZ_FIRST", "0"))
OPERATIONS = 8


class PooledTree(Tree):
    """A tree with a pool. `is_tight`: it has hardly more room than the next operation needs."""

    is_tight = False

    def _kinds(self) -> list[str]:
        return ["pointer", *["dense"] * self.draw.randrange(3)]

    def do_write_y_from_python(self) -> None:
        for k in self.some(3):
            index = tuple(np.add(k, self.offset).tolist())
            self.y[index] += 5
            self.put("y", k, self.get("y", k) + 5)
            assert self.y[index] == self.get("y", k) and self.x[index] == self.get("x", k)

    def do_indices_and_values(self) -> None:
        name, field = self.draw.choice([("x", self.x), ("y", self.y)])
        index, values = field.to_coo()
        found = {tuple(np.subtract(k, self.offset).tolist()): v for k, v in zip(index, values)}
        assert found == {k: self.get(name, k) for k in self.loop()}
        where = self.some()
        field.from_coo(self.given(where), np.arange(len(where)))
        for n, k in enumerate(where):
            self.put(name, k, n)

    @property
    def pool(self) -> Any:
        return self.levels[0].block.tree.pool

    def compare(self) -> None:
        super().compare()
        self.pool.check()
        if self.is_tight:
            self.levels[0].block.reserve(2 * len(self.levels[0].active) + 6)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + PROGRAMS))
def test_pooled_program_matches_dictionaries(seed: int, monkeypatch) -> None:
    monkeypatch.setenv("VKCHI_POOLS", "all")
    is_tight = seed % 3 == 0
    if is_tight:
        monkeypatch.setattr(pools, "FIRST_BYTES", 0)
    if seed % 4 == 1:  # invocations that lose a claim do not wait
        monkeypatch.setattr(pool_access, "TRIES", 0)
    ti.init(debug=seed % 8 == 6, offline_cache=False)
    tree = PooledTree(random.Random(seed))
    tree.is_tight = is_tight
    tree.levels[0].block.reserve(6)
    assert tree.pool is not None
    tree.run(OPERATIONS)
