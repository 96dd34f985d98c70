"""The tables that must have a row for every op of `ir/ops.py`; names the op and the file that was
forgotten."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from vkchi.autodiff.rules import RULES
from vkchi.ir.ops import TABLE
from vkchi.spirv.lower import ROWS

# file -> the ops that it has a row for
TABLES: dict[str, Iterable[str]] = {
    "vkchi/spirv/lower.py": ROWS,
    "vkchi/autodiff/rules.py": RULES,
}


@pytest.mark.parametrize("file", TABLES)
def test_table_is_total(file: str) -> None:
    forgotten = [f"{file} has no row for `{kind}`" for kind in TABLE if kind not in TABLES[file]]
    assert not forgotten, "\n".join(forgotten)


@pytest.mark.parametrize("file", TABLES)
def test_table_knows_no_other_ops(file: str) -> None:
    unknown = [f"{file} has a row for `{kind}`, which ir/ops.py has not" for kind in TABLES[file]]
    assert not [text for kind, text in zip(TABLES[file], unknown) if kind not in TABLE]


def test_every_row_says_what_it_does() -> None:
    assert [row.name for row in TABLE.values() if not row.doc] == []
