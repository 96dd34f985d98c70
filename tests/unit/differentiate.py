"""Gradients computed by the interpreter, compared with central differences.

check(fn, x=np.ones(4), loss=np.zeros(()))    # fn: a plain function with ndarray arguments
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from vkchi.autodiff.buffers import SaveBuffer
from vkchi.autodiff.forward import differentiate_forward
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.reverse import GradientFunc, differentiate_reverse
from vkchi.calls.gradients import simplify_for_gradient
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.lowering import lower_kernel
from vkchi.ir.core import Func, Param
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import PASSES
from vkchi.target.options import Options
from vkchi.types import Array, Tensor, f64, scalar_of_dtype
from vkchi.types.core import ArrayArgument

Arrays = dict[str, Any]


def lower(fn: Callable[..., Any], args: Arrays) -> Func:
    """The kernel's Func for arguments of these types, simplified for differentiation."""
    specs = [ArgSpec(name, *kind_of(fn, name, args[name])) for name in args]
    func = lower_kernel(fn, tuple(specs), Options(default_fp=f64)).func  # type: ignore[arg-type]
    return simplify_for_gradient(func, frozenset(p.name for p in func.params))


def kind_of(fn: Callable[..., Any], name: str, value: Any) -> tuple[str, Any]:
    """(passing mode, type) of an argument; a Tensor in its annotation is the element type."""
    if not isinstance(value, np.ndarray):
        t = f64 if isinstance(value, float) else scalar_of_dtype(np.int32)
        return "scalar", t
    elem: Any = scalar_of_dtype(value.dtype)
    note = inspect.signature(fn, eval_str=True).parameters[name].annotation
    inner = getattr(note, "dtype", None)
    if isinstance(inner, Tensor):
        elem = inner
        return "array", ArrayArgument.of(Array.of(elem, value.ndim - len(inner.shape)))
    return "array", ArrayArgument.of(Array.of(elem, value.ndim))


def differentiate(fn: Callable[..., Any], args: Arrays) -> GradientFunc:
    """The reverse-mode gradient by all float arrays in `args`, without unread results."""
    func = lower(fn, args)
    names = [k for k, v in args.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    made = differentiate_reverse(func, GradientRequest(frozenset(names)))
    verify(made.func)
    return made._replace(func=PASSES["unread"](made.func))  # type: ignore[arg-type]


def backward(made: GradientFunc, args: Arrays, seeds: Arrays) -> Arrays:
    """Run the gradient, and return the adjoints of all arrays by name.

    seeds: adjoints of the kernel's outputs; missing ones are 0.
    """
    adjoints = {name: np.array(seeds.get(name, np.zeros_like(args[name])))
                for name in made.adjoints}  # fmt: skip
    bound = {k: np.array(v) for k, v in args.items()}
    cells = count_cells(made, bound)
    bound |= {made.adjoints[name]: v for name, v in adjoints.items()}
    names = {p.name for p in made.func.params}
    bound |= {k: np.array(args[v]) for k, v in made.copies.items() if k in names}
    for save in made.saves:
        if save.param.name in names:
            bound[save.param.name] = make_buffer(save, cells[save.cell], 64)
    run_reference(made.func, bound)
    return adjoints


def count_cells(made: GradientFunc, bound: Arrays) -> Arrays:
    if made.counting is None:
        return {}
    cells = {s.cell: np.zeros((), np.int32) for s in made.saves}
    cells |= {s.width: np.zeros((), np.int32) for s in made.saves if s.parallel is not None}
    scratch = {k: np.array(bound[v]) for k, v in made.counting.copies.items()}
    run_reference(
        made.counting.func, {**{k: np.array(v) for k, v in bound.items()}, **scratch, **cells}
    )
    return cells


def make_buffer(save: SaveBuffer, positions: Any, invocations: int) -> Any:
    t = save.param.type
    assert isinstance(save.param, Param) and isinstance(t, Array)
    inner = t.elem.shape if isinstance(t.elem, Tensor) else ()
    elem = t.elem.elem if isinstance(t.elem, Tensor) else t.elem
    return np.zeros((int(positions), invocations, *inner), elem.dtype)


def differences(fn: Callable[..., Any], args: Arrays, seeds: Arrays, step: float) -> Arrays:
    """Central differences of sum(seeds * results) by each float array in `args`."""
    func = lower(fn, args)

    def value(changed: Arrays) -> float:
        out = run_reference(func, {k: np.array(v) for k, v in changed.items()})
        return sum(float(np.sum(seeds[k] * out[k])) for k in seeds)

    found = {}
    for name, x in args.items():
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            continue
        slope = np.zeros(x.shape)
        for place in np.ndindex(x.shape):
            more, less = (np.array(x) for _ in range(2))
            more[place] += step
            less[place] -= step
            slope[place] = (value({**args, name: more}) - value({**args, name: less})) / 2 / step
        found[name] = slope
    return found


def check(fn: Callable[..., Any], *, seeds: Arrays | None = None, step: float = 1e-5,
          tolerance: float = 1e-6, **args: Any) -> Arrays:  # fmt: skip
    """Assert that the gradient of `fn` equals differences, for each float array; return the
    adjoints."""
    random = np.random.default_rng(7)
    arrays = [k for k, v in args.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    seeds = seeds or {k: np.asarray(random.normal(size=args[k].shape)) for k in arrays}
    found = backward(differentiate(fn, args), args, seeds)
    expected = differences(fn, args, seeds, step)
    for name in arrays:
        got = found.get(name, seeds.get(name))
        np.testing.assert_allclose(got, expected[name], tolerance, tolerance, err_msg=name)
    return found


def check_forward(fn: Callable[..., Any], *, tolerance: float = 1e-6, step: float = 1e-5,
                  **args: Any) -> None:  # fmt: skip
    """Assert that forward-mode derivatives along a random direction equal differences."""
    random = np.random.default_rng(11)
    func = lower(fn, args)
    names = [k for k, v in args.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    made = differentiate_forward(func, frozenset(names))
    verify(made)
    along = {k: np.asarray(random.normal(size=args[k].shape)) for k in names}
    bound = {k: np.array(v) for k, v in args.items()}
    duals = {f"{k}..dual": np.array(v) for k, v in along.items()}
    run_reference(made, {**bound, **duals})

    def moved(sign: float) -> Arrays:
        changed = {k: np.asarray(args[k] + sign * step * along[k]) for k in names}
        return run_reference(func, {**{k: np.array(v) for k, v in args.items()}, **changed})

    more, less = moved(1), moved(-1)
    for name in names:
        want = (more[name] - less[name]) / (2 * step)
        np.testing.assert_allclose(duals[f"{name}..dual"], want, tolerance, tolerance, err_msg=name)
