"""Values for which a kernel survey has no digest."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.cache.kernel_survey import KernelSurvey, NoDigestError

pairs = np.dtype([("name", object), ("n", np.int32)])
numbers = np.dtype([("n", np.int32)])


def reads_pairs() -> object:
    return pairs


def reads_numbers() -> object:
    return numbers


def test_dtypes() -> None:
    assert "dtype" in "".join(KernelSurvey(reads_numbers).parts.values())
    sentence = f"pairs in {__name__} has a dtype that contains Python objects"
    with pytest.raises(NoDigestError, match=sentence):
        KernelSurvey(reads_pairs)
