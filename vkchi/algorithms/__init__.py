"""Array algorithms on the device: prefix sums, sorting, compaction."""

from vkchi.algorithms.compaction import compact
from vkchi.algorithms.kernel_sort import sort, sort_scratch_slots
from vkchi.algorithms.radix_sort import argsort, parallel_sort
from vkchi.algorithms.scan import PrefixSumExecutor, exclusive_scan, inclusive_scan

__all__ = [
    "PrefixSumExecutor",
    "argsort",
    "compact",
    "exclusive_scan",
    "inclusive_scan",
    "parallel_sort",
    "sort",
    "sort_scratch_slots",
]
