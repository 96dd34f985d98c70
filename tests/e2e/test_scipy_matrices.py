"""Sparse matrices from and to scipy."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from vkchi.public_names import public_members

sparse = pytest.importorskip("scipy.sparse")


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_there_and_back(form: str, dtype: type) -> None:
    given = sparse.random(5, 7, 0.4, form, dtype, 3)
    made = ti.linalg.SparseMatrix.from_scipy(given)
    assert made.shape == (5, 7) and made.dtype is (ti.f32 if dtype is np.float32 else ti.f64)
    np.testing.assert_array_equal(made.to_numpy(), given.toarray())
    back = made.to_scipy()
    assert back.dtype == dtype and isinstance(back, sparse.csr_array)
    np.testing.assert_array_equal(back.toarray(), given.toarray())
    back.data[:] = 0  # a copy
    np.testing.assert_array_equal(made.to_numpy(), given.toarray())
    assert {"from_scipy", "to_scipy"} <= (public_members(ti.linalg.SparseMatrix) or set())


def test_duplicates_integers_and_no_entries() -> None:
    twice = sparse.coo_matrix(([1, 2, 4], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert ti.linalg.SparseMatrix.from_scipy(twice).to_numpy().tolist() == [[0, 3], [4, 0]]
    empty = ti.linalg.SparseMatrix(2, 3)
    assert empty.to_scipy().shape == (2, 3) and empty.to_scipy().nnz == 0


def test_assigned_entries_are_included() -> None:
    made = ti.linalg.SparseMatrix(2, 2)
    made[1, 0] = 3.0
    assert made.to_scipy().toarray().tolist() == [[0, 0], [3, 0]]


def test_other_objects_raise() -> None:
    with pytest.raises(ti.VkchiError, match="takes a scipy.sparse matrix") as e:
        ti.linalg.SparseMatrix.from_scipy(np.eye(2))
    assert str(e.value).endswith("help: convert it: scipy.sparse.csr_array(a)")
    with pytest.raises(ti.VkchiError, match="real numbers"):
        ti.linalg.SparseMatrix.from_scipy(sparse.eye(2, dtype=np.complex128, format="csr"))


def test_large_matrices_are_printed_in_part() -> None:
    large = ti.linalg.SparseMatrix.from_scipy(sparse.diags_array(np.arange(1.0, 10_001)))
    assert repr(large) == "<ti.SparseMatrix 10000 x 10000 of f64, 10000 entries>"
    first, *_, last = lines = str(large).splitlines()
    assert len(lines) == 7 and lines[3] == "..."
    assert first.replace(" ", "") == "[1,0,0,...,0,0,0]"
    assert last.replace(" ", "") == "[0,0,0,...,0,0,10000]"
    wide = ti.linalg.SparseMatrix(2, 2000)
    wide[1, 1999] = 5.0  # not yet merged
    assert str(wide) == "[0, 0, 0, ..., 0, 0, 0]\n[0, 0, 0, ..., 0, 0, 5]"
    small = ti.linalg.SparseMatrix(2, 2)
    small[0, 1] = 3.5
    assert str(small) == repr(small) == "[  0, 3.5]\n[  0,   0]"
