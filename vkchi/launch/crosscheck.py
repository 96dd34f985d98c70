"""`ti.verify`: differential test of a kernel, on the reference interpreter and on devices.

All runs use copies, so arguments and fields are unchanged. The reference is the IR before any pass;
each device runs code compiled for it. Integers and bools must be equal. Floats may differ by `ulps`
units in the last place, where the unit is at least that of the smallest normal number. Infinities
and NaNs must match.

    >>> ti.verify(step, x, 0.1)
    step(): the reference and llvmpipe agree, in 1 array
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vkchi.compiler import build_artifact
from vkchi.errors import (
    ArgumentError,
    DeviceError,
    InternalError,
    KernelAssertionError,
    Unsupported,
    VerifyError,
)
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import Op
from vkchi.ir.interp import InterpreterReport, run_reference
from vkchi.kernel import BoundKernel, Kernel
from vkchi.launch.compiled_kernel import CompiledKernel, bind_gradient
from vkchi.launch.executable import Executable
from vkchi.progress import Bar
from vkchi.runtime import Runtime, current_runtime
from vkchi.signature import Parameter
from vkchi.signature.bound import BoundArguments
from vkchi.signature.wording import describe_argument
from vkchi.span import Span, render_carets, render_chain
from vkchi.target.shader import REPORTS
from vkchi.tuples import NamedTuple
from vkchi.types.layout import shares_words
from vkchi.types.lazy_numpy import np

ULPS = 16
Contents = dict[str, np.ndarray[Any, Any]]
Writers = dict[tuple[int, tuple[int, ...]], Op]  # by (array id, element index)


class Verified:
    """Result of `verify`.

    It names the devices that agree, the arrays compared, and the devices skipped with the reasons.
    """

    def __init__(
        self, name: str, devices: list[str], arrays: list[str], skipped: dict[str, str]
    ) -> None:
        self.name, self.devices, self.arrays, self.skipped = name, devices, arrays, skipped

    def __repr__(self) -> str:
        count = f"{len(self.arrays)} {'array' if len(self.arrays) == 1 else 'arrays'}"
        text = f"{self.name}(): the reference and {', '.join(self.devices)} agree, in {count}"
        return "\n".join([text, *(f"not run on {d}: {why}" for d, why in self.skipped.items())])


class Case(NamedTuple):
    """A call to be checked.

    - numbers: scalar and tensor arguments, with their parameters.
    - arrays: arrays by name, as on the user's device.
    """

    name: str
    kernel: CompiledKernel
    numbers: tuple[tuple[Parameter, Any], ...]
    arrays: dict[str, Storage]


class RunOutcome(NamedTuple):
    """Result of a run: the final arrays, and the message of a failed check or ""."""

    arrays: Contents
    failure: str


def verify(
    kernel: Kernel | BoundKernel, /, *args: Any, ulps: float = ULPS, devices: Iterable[str] = ()
) -> Verified:
    """Run a kernel on the reference interpreter and on each device, and compare all results.

    Compared are all arrays that it writes and its return value, unless a check fails on both sides.
    Devices that do not support the kernel are skipped. The interpreter is slow: pass small arrays.

    Args:
        kernel: the kernel.
        *args: its arguments.
        ulps: tolerance of floats, in units in the last place. Reductions that devices evaluate in
            another order need more.
        devices: substrings of device names; empty for all devices.

    Returns:
        The devices that agree, the compared arrays, and the skipped devices with the reasons.

    Raises:
        VerifyError: naming the first element that differs and the line that wrote it in the
            reference, or if a check fails on one side only.
        ArgumentError: if no device has such a name, inside a tape or `ti.record()`, and beyond the
            interpreter's limits. Wrong arguments raise the errors of a call.
        Unsupported: for kernels that draw random numbers, and if no device supports the kernel.
    """
    if not isinstance(kernel, Kernel | BoundKernel):
        raise ArgumentError(f"verify takes a ti.kernel, not {describe_argument(kernel)}")
    runtime = current_runtime()
    with restoring(runtime.lock), runtime.lock:
        if runtime.tape is not None:
            raise ArgumentError("verify cannot be used inside a tape or ti.record()")
        case = kernel.inspect(take_case, *args)
        before = copy_arrays(case.arrays)
        writers: Writers = {}
        wanted = interpret(case, before, writers)
        agreeing: list[str] = []
        skipped: dict[str, str] = {}
        for other in selected_runtimes(runtime, tuple(devices)):
            label = other.device.info.name
            try:
                found = run_on(other, case, before)
            except (DeviceError, Unsupported) as e:
                skipped[label] = str(e).splitlines()[0]
                continue
            finally:
                if other is not runtime:
                    other.close()
            compare_outcomes(case, label, wanted, found, writers, ulps)
            agreeing.append(label)
    if not agreeing:
        reasons = "; ".join(f"{label}: {why}" for label, why in skipped.items())
        raise Unsupported(f"verify: no device runs {case.name}(): {reasons}")
    return Verified(case.name, agreeing, sorted(case.kernel.written), skipped)


def take_case(kernel: CompiledKernel, args: tuple[Any, ...]) -> Case:
    """Bind the arguments of a call and check them, without running it.

    Raises ArgumentError, and Unsupported if the kernel draws random numbers.
    """
    name = kernel.artifact.name
    if kernel.has_pools:
        kernel.refuse_pools("ti.verify and copies of arrays")
    if kernel.draws:
        raise Unsupported(f"verify: {name}() draws random numbers, which devices draw as they like")
    bound = kernel.bind_arguments(args)
    for gradient, argument in kernel.gradients:
        bind_gradient(kernel, bound, gradient, argument)
    for check in kernel.checks:
        check(bound.flat)
    pairs = [pair for p, arg in zip(kernel.parameters, args, strict=True) for pair in p.leaves(arg)]
    numbers = tuple((p, arg) for p, arg in pairs if p.kind in ("scalar", "tensor"))
    return Case(name, kernel, numbers, {**kernel.fields(args), **bound.arrays})


def copy_arrays(arrays: Mapping[str, Storage]) -> Contents:
    """Copy the contents of arrays, by name; names of one array share one copy."""
    found = {id(array): array.kept() for array in arrays.values()}
    return {name: found[id(array)] for name, array in arrays.items()}


def copy_contents(contents: Contents) -> Contents:
    """Copy contents; names that shared one array share one copy."""
    found = {id(values): values.copy() for values in contents.values()}
    return {name: found[id(values)] for name, values in contents.items()}


# --- running -------------------------------------------------------------------------------------


def interpret(case: Case, before: Contents, writers: Writers) -> RunOutcome:
    """Run the reference interpreter on copies; note in `writers` the op that wrote each element
    last.

    Raises ArgumentError if the run exceeds the interpreter's limits.
    """
    numbers: dict[str, Any] = {}
    for p, arg in case.numbers:
        bound = BoundArguments(case.kernel.runtime, [])
        p.bind(arg, bound)
        shape = getattr(p.type, "shape", ())
        numbers[p.name] = np.asarray(bound.flat).reshape(shape)
    arrays, reports = copy_contents(before), list[InterpreterReport]()

    def note(op: Op, array: Any, index: tuple[int, ...] | None) -> None:
        bar.advance()
        if index is not None:
            writers[id(array), index] = op

    try:
        with Bar(f"verify: {case.name}(), numbers that the reference wrote") as bar:
            run_reference(case.kernel.func, {**arrays, **numbers}, reports, watch=note)
    except InternalError as e:
        raise ArgumentError(f"verify: the interpreter gave up ({e}): give smaller arrays") from None
    failed = [r for r in reports if r.kind == "report_failure"]
    failure = case.kernel.known_sites[failed[0].site].message(failed[0].values) if failed else ""
    return RunOutcome(arrays, failure)


def selected_runtimes(mine: Runtime, names: tuple[str, ...]) -> Iterable[Runtime]:
    """Yield a runtime for each device with a matching name: the current one, or a new one.

    The caller closes the new ones. Raises ArgumentError if no device matches. Without names, all
    match.
    """
    from vkchi.device import list_devices, open_device

    infos = list_devices()
    wanted = [i for i in infos if not names or any(n.lower() in i.name.lower() for n in names)]
    if not wanted:
        there = ", ".join(info.name for info in infos)
        raise ArgumentError(f"verify: no device is called {', '.join(names)}; there are {there}")
    for info in wanted:
        if info.index == mine.device.info.index:
            yield mine
        else:
            yield Runtime(open_device(select=info.index), mine.options, mine.config)


def run_on(runtime: Runtime, case: Case, before: Contents) -> RunOutcome:
    """Run the case on a device, with copies of its arrays that hold `before`.

    Raises DeviceError or Unsupported if it does not support the kernel.
    """
    kernel, device = case.kernel, runtime.device
    artifact = build_artifact(kernel.func, runtime.options, device.caps)
    sites = artifact.sites_among(kernel.known_sites)
    parameters = [p for p, _ in case.numbers]
    values = tuple(arg for _, arg in case.numbers)
    copies: dict[int, Storage] = {}
    for name, array in case.arrays.items():
        if id(array) not in copies:
            copy = empty_like(runtime, array)
            copy.keep(before[name])
            copies[id(array)] = copy
    arrays = {name: copies[id(array)] for name, array in case.arrays.items()}
    fixed = {REPORTS: runtime.reports} if sites else {}
    executable = Executable(runtime, artifact, parameters, values, fixed=fixed)
    bound = executable.bind(values, arrays)
    failure = ""
    if sites:
        runtime.reports.expect()
    executable.record(bound)
    if sites:
        try:
            runtime.reports.deliver(sites, is_muted=True)
        except KernelAssertionError as e:
            failure = str(e)
    return RunOutcome(copy_arrays(arrays), failure)


def empty_like(runtime: Runtime, array: Storage) -> Storage:
    """An array of the same type and layout, in memory of its own."""
    if not shares_words(array.layout):
        return Storage(runtime, array.elem, array.shape, array.layout, array.stored)
    from vkchi.fields.trees.bitpacked import quantised_like

    made = quantised_like(runtime, array.array_type)
    made.arrange(array.shape, array.layout)
    made._allocate()
    return made


# --- comparing -----------------------------------------------------------------------------------


def compare_outcomes(
    case: Case, label: str, wanted: RunOutcome, found: RunOutcome, writers: Writers, ulps: float
) -> None:
    """Raise VerifyError if a check failed on one side only, or a written array differs from the
    reference.

    Arrays are not compared if a check failed on both sides.
    """
    head = f"{case.name}() on {label} differs from the reference"
    if bool(wanted.failure) != bool(found.failure):
        who = "only the reference" if wanted.failure else "only the device"
        raise VerifyError(f"{head}: a check fails in {who}\n{wanted.failure or found.failure}")
    for name in sorted(case.arrays, key=is_returned):  # return values last: they depend on others
        if name not in case.kernel.written or wanted.failure:
            continue
        want, got = wanted.arrays[name], found.arrays[name]
        off = ulp_distances(got, want)
        wrong = np.argwhere(off > (ulps if want.dtype.kind == "f" else 0))
        if len(wrong):
            index = tuple(int(k) for k in wrong[0])
            text = f"{head}: {describe_element(case, name, index)} is {got[index]}, and "
            text += f"{want[index]} is expected"
            if want.dtype.kind == "f":
                text += f" ({off[index]:.3g} ulps off; {ulps:g} are allowed)"
            if len(wrong) > 1:
                text += f"; so are {len(wrong) - 1} more of {want.size} numbers"
            raise VerifyError("\n".join([text, *where_written(writers, want, index)]))


def is_returned(name: str) -> bool:
    return name.startswith("return.")


def ulp_distances(got: Any, want: Any) -> Any:
    """Return elementwise distances: in units in the last place of `want`, or (integers, bools) 0 or
    1.

    The distance of a mismatching infinity or NaN is infinite.
    """
    if want.dtype.kind != "f":
        return (got != want).astype(np.float64)
    info = np.finfo(want.dtype)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(want), info.tiny)
        unit = np.exp2(np.floor(np.log2(size.astype(np.float64)))) * float(info.eps)
        off = np.abs(got.astype(np.float64) - want.astype(np.float64)) / unit
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isfinite(off), off, np.inf))


def describe_element(case: Case, name: str, index: tuple[int, ...]) -> str:
    """Name an element in the user's terms: `x[3]`, a component `x[3][0]`, or the return value."""
    array = case.arrays[name]
    if is_returned(name):
        return "what it returns" + (f", component {list(index)}" if index else "")
    axes = len(array.shape)
    first = index[:axes]
    at = [k + o for k, o in zip(first, array.origin, strict=True)]
    inner = "".join(f"[{k}]" for k in index[axes:])
    return f"{name}[{', '.join(map(str, at)) or None}]{inner}"


def where_written(writers: Writers, array: Any, index: tuple[int, ...]) -> list[str]:
    """Return lines that name the op of the reference that wrote the element last, with its
    source."""
    for length in range(len(index), -1, -1):
        op = writers.get((id(array), index[:length]))
        if op is not None:
            break
    else:
        return ["the reference does not write there"]
    value = op.args[1] if len(op.args) > 1 else None
    of = f" of `{value.kind}`" if isinstance(value, Op) else ""
    span: Span | None = op.span
    if span is None:
        return [f"written by `{op.kind}`{of}"]
    head = f"{span.place}: written here, by `{op.kind}`{of}"
    return [head, *render_carets(span), *render_chain(span)]
