"""Random programs about sparse trees: fields, activity and loops agree with dictionaries.

`VKCHI_FUZZ=n` runs n programs in place of PROGRAMS; a failure names the tree and the operations.
`VKCHI_FUZZ_FIRST=k` begins with that seed.
"""

from __future__ import annotations

import os
import random

import pytest

import vkchi as ti
from tests.fuzz.sparse_trees import Tree
from vkchi.opt.loops import listing

PROGRAMS = int(os.environ.get("VKCHI_FUZZ", "24"))
FIRST = int(os.environ.get("VKCHI_FUZZ_FIRST", "0"))
OPERATIONS = 12


@pytest.mark.parametrize("seed", range(FIRST, FIRST + PROGRAMS))
def test_sparse_program_matches_dictionaries(seed: int, monkeypatch) -> None:
    draw = random.Random(seed)
    if seed % 4 < 3:  # lists of small cells, or of any block around them
        monkeypatch.setattr(listing, "is_large", lambda cells, caps: draw.random() < 0.6)
    ti.init(debug=seed % 8 == 6)
    Tree(random.Random(seed)).run(OPERATIONS)
