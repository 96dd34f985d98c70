"""Array algorithms on the device: prefix sums, sorting, compaction, runs, histograms."""

from vkchi.algorithms.compaction import compact
from vkchi.algorithms.histogram import histogram
from vkchi.algorithms.kernel_sort import sort, sort_scratch_slots
from vkchi.algorithms.radix_sort import argsort, parallel_sort, segmented_sort
from vkchi.algorithms.runs import reduce_by_key, unique
from vkchi.algorithms.scan import PrefixSumExecutor, exclusive_scan, inclusive_scan

__all__ = [
    "PrefixSumExecutor",
    "argsort",
    "compact",
    "exclusive_scan",
    "histogram",
    "inclusive_scan",
    "parallel_sort",
    "reduce_by_key",
    "segmented_sort",
    "sort",
    "sort_scratch_slots",
    "unique",
]
