"""Matrix Market files hold all digits of a sparse matrix's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkchi as ti


@pytest.mark.parametrize(("dtype", "value"), [(ti.f32, np.float32(0.1)), (ti.f64, 0.1 + 2.0**-50)])
def test_values_are_read_back_exactly(dtype: Any, value: float, tmp_path: Path) -> None:
    matrix = ti.linalg.SparseMatrix(2, 2, dtype=dtype)
    matrix[1, 0] = value
    matrix.mmwrite(str(tmp_path / "a.mtx"))
    row, column, text = (tmp_path / "a.mtx").read_text(encoding="utf-8").splitlines()[-1].split()
    assert (row, column) == ("2", "1")
    assert type(value)(text) == value
