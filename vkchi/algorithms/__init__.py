"""Array algorithms: prefix sums, sorting."""

from vkchi.algorithms.scan import PrefixSumExecutor
from vkchi.algorithms.sort import parallel_sort

__all__ = ["PrefixSumExecutor", "parallel_sort"]
