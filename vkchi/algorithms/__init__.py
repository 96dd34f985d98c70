"""Array algorithms on the device: prefix sums, sorting, compaction."""

from vkchi.algorithms.compaction import compact
from vkchi.algorithms.scan import PrefixSumExecutor, exclusive_scan, inclusive_scan
from vkchi.algorithms.sort import argsort, parallel_sort

__all__ = [
    "PrefixSumExecutor",
    "argsort",
    "compact",
    "exclusive_scan",
    "inclusive_scan",
    "parallel_sort",
]
