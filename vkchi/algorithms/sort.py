"""Sorting of one-dimensional arrays.

ti.algorithms.parallel_sort(keys)
ti.algorithms.parallel_sort(keys, values)
order = ti.algorithms.argsort(keys)
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import check_array, on_arrays
from vkchi.algorithms.radix_sort import store_order
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.runtime import current_runtime
from vkchi.types import Scalar, i32
from vkchi.types.lazy_numpy import np

FEW = 1 << 14  # keys that numpy sorts faster than the launches of a radix sort take


@on_arrays(at=i32, to=i32, n=i32)
def gather(x: Any, order: Any, out: Any, at: Any, to: Any, n: Any) -> None:
    """Set out[to + k] to x[at + order[k]], for n values of k."""
    for k in range(n):
        out[to + k] = x[at + order[k]]


@on_arrays(to=i32, n=i32)
def copy_first(x: Any, out: Any, to: Any, n: Any) -> None:
    """Set out[to + k] to x[k], for n values of k."""
    for k in range(n):
        out[to + k] = x[k]


def sort_by_numpy(arrays: list[Storage]) -> None:
    """Permute the arrays so that the first is sorted; the others may be longer."""
    order = np.argsort(arrays[0].to_numpy(), kind="stable")
    contents = [x.to_numpy() for x in arrays]  # before any is written: they may share memory
    for values in contents:
        values[: len(order)] = values[order]
    for x, values in zip(arrays, contents):
        x.from_numpy(values)


def sort_by_kernels(arrays: list[Storage]) -> None:
    """`sort_by_numpy` on the device."""
    n = arrays[0].shape[0]
    order = ndarray(i32, n)
    store_order(arrays[0], n, order)
    is_taped = current_runtime().is_taped
    sorted_arrays = []  # before any array is written: they may share memory
    for x in arrays:
        made = ndarray(x.seen_elem, n, needs_grad=is_taped and x.compute.kind == "f")
        gather(x, order, made, *x.origin, 0, n)
        sorted_arrays.append(made)
    for x, made in zip(arrays, sorted_arrays):
        copy_first(made, x, *x.origin, n)


def check_keys(who: str, keys: Any) -> int:
    """Return the number of keys. Raises ArgumentError for other arrays than keys."""
    check_array(who, "keys", keys, 1)
    if not isinstance(keys.elem, Scalar):
        raise ArgumentError(f"{who}: keys are numbers, not {keys.elem}")
    n: int = keys.shape[0]
    return n


def parallel_sort(keys: Storage, values: Storage | None = None) -> None:
    """Sort a one-dimensional field or ndarray of scalars in place: ascending, stable, nan last.

    Args:
        keys: numbers or bools. -0 equals 0.
        values: a one-dimensional array at least as long as `keys`, of numbers, vectors or matrices.
            It is permuted like the keys.

    Raises:
        ArgumentError: for other arrays.

    Tapes differentiate the permutation that was found.
    """
    n = check_keys("parallel_sort", keys)
    if values is not None:
        check_array("parallel_sort", "values", values, 1)
        if values.shape[0] < n:
            raise ArgumentError(f"parallel_sort: {n} keys, and {values.shape[0]} values")
    arrays = [keys] if values is None or values is keys else [keys, values]
    is_read = current_runtime().tape is None and all(x.host is not None for x in arrays)
    if n <= FEW and is_read:
        sort_by_numpy(arrays)
    else:
        sort_by_kernels(arrays)


def argsort(keys: Storage, order: Storage | None = None) -> Storage:
    """Indices that sort `keys`: ascending, stable, nan last. The keys stay where they are.

    Args:
        keys: a one-dimensional field or ndarray of numbers or bools. -0 equals 0.
        order: a field or ndarray of ti.i32 of the same length for the result; a new ndarray, if it
            is left out.

    Returns:
        The array of indices, which count from 0 also if those of `keys` start elsewhere.

    Raises:
        ArgumentError: for other arrays.
    """
    n = check_keys("argsort", keys)
    if order is None:
        order = ndarray(i32, n)
    check_array("argsort", "order", order, 1)
    if order.seen_elem is not i32 or order.shape[0] != n:
        raise ArgumentError(
            f"argsort: `order` must hold {n} ti.i32, not {order.shape[0]} {order.type_name}"
        )
    store_order(keys, n, order)
    return order
