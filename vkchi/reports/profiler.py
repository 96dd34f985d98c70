"""`ti.profiler`: execution times of kernels on the device, and compile times.

Source: Taichi's profiler, https://docs.taichi-lang.org/docs/profiler.

    ti.init(kernel_profiler=True)
    step()
    ti.profiler.print_kernel_profiler_info()

Every dispatch is timed alone, so none overlap: totals are device work, not the elapsed time of a
program. A kernel with several loops has several dispatches: `step.0`, `step.1`.

See also: `timings` measures the times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from vkchi.compat.unsupported import missing_name_error
from vkchi.errors import ArgumentError
from vkchi.logs import logger
from vkchi.reports.timings import DispatchRuns, DispatchTotal, KernelProfiler
from vkchi.runtime import current_runtime
from vkchi.tuples import NamedTuple

OFF = "kernels are not measured: use ti.init(kernel_profiler=True)"


class KernelProfilerQueryResult(NamedTuple):
    """Number of a kernel's dispatches; minimum, maximum and mean time of one in milliseconds."""

    counter: int
    min: float
    max: float
    avg: float


def _profiler() -> KernelProfiler | None:
    """Wait for the device, and return the profiler with all results; None, with a log warning, if
    profiling is off."""
    found = current_runtime().profiler
    if found is None:
        logger().warning(OFF)
        return None
    found.update()
    return found


# --- execution times -----------------------------------------------------------------------------


def print_kernel_profiler_info(mode: str = "count") -> None:
    """Print the execution times of kernels; a log warning alone if profiling is off.

    `mode` is "count" for a line per dispatch name (`step.0`), or "trace" for a line per dispatch,
    of the first `timings.MOST_TRACED`. Raises ArgumentError for another mode.

    The first run of each dispatch, in which software drivers compile, has its own column in
    "count". Minimum, mean, maximum and GB/s are those of the later runs. `serial` marks a dispatch
    that runs a loop in one invocation or workgroup.
    """
    if mode not in ("count", "trace"):
        raise ArgumentError(f'print_kernel_profiler_info: "count" or "trace", not {mode!r}')
    found = _profiler()
    if found is not None:
        lines = count_lines(found) if mode == "count" else trace_lines(found)
        print_table(f"Kernel Profiler({mode}, default) @ VULKAN on {found.device.name}", lines)


def count_lines(found: KernelProfiler) -> list[str]:
    whole = found.seconds
    lines = [
        "[      %     total   count |    first |      min       avg       max    "
        "|    iterations    workgroups     GB/s ] Kernel name",
        "-",
    ]
    for name, runs in sorted(found.runs.items(), key=lambda row: -row[1].total.seconds):
        t = runs.total
        share = 100 * t.seconds / whole if whole else 0.0
        is_serial = runs.work is not None and runs.work.is_serial
        lines.append(
            f"[{share:6.2f}% {t.seconds:7.3f} s {t.count:6}x |{times_of(runs)} ms "
            f"|{work_of(runs)} ] {name}" + "  serial" * is_serial
        )
    lines += ["-", f"[100.00%] Total execution time: {whole:7.3f} s   "
                   f"number of results: {len(found.runs)}"]  # fmt: skip
    return lines


def times_of(runs: DispatchRuns) -> str:
    first, t = runs.first, runs.later
    known = (t.least, t.seconds / t.count, t.most) if t.count else (None, None, None)
    first_text, *texts = ["" if s is None else f"{1e3 * s:.3f}" for s in (first, *known)]
    return f"{first_text:>9} |" + " ".join([f"{text:>9}" for text in texts])


def work_of(runs: DispatchRuns) -> str:
    work, rate = runs.work, runs.rate
    iterations = f"{work.iterations:,}" if work and work.iterations is not None else ""
    groups = ""
    if work and work.groups is not None:
        groups = f"{work.groups:,} x {'x'.join(map(str, work.block))}"
    return f"{iterations:>14}{groups:>14}{'' if rate is None else f'{1e-9 * rate:.2f}':>9}"


def trace_lines(found: KernelProfiler) -> list[str]:
    lines = ["[  start.time | kernel.time ] Kernel name", "-"]
    first = found.trace[0].began_s if found.trace else 0.0
    for name, seconds, began, *_ in found.trace:
        lines.append(f"[{1e3 * (began - first):9.3f} ms |{1e3 * seconds:9.3f} ms ] {name}")
    return [*lines, "-", f"Number of records:  {len(found.trace)}"]


def print_table(title: str, lines: Iterable[str]) -> None:
    texts = [title, "=", *lines]
    width = max(len(text) for text in texts)
    for text in ("=", *texts, "="):
        print(text * width if text in ("=", "-") else text)


def names_of(dispatch: str) -> tuple[str, ...]:
    """Names of a dispatch `step.0:advect`: itself, the kernel, and the loop's, if it has one."""
    numbered, _, label = dispatch.partition(":")
    names = (dispatch, numbered.rpartition(".")[0])
    return (*names, label) if label else names


def query_kernel_profiler_info(name: str) -> KernelProfilerQueryResult | None:
    """Return the times of the dispatches of the kernel called `name`, over all of its loops. All
    are zero if there was none. None if profiling is off."""
    found = _profiler()
    if found is None:
        return None
    rows = [t for key, t in found.totals.items() if name in names_of(key)]
    count = sum(t.count for t in rows)
    if not count:
        return KernelProfilerQueryResult(0, 0.0, 0.0, 0.0)
    return KernelProfilerQueryResult(
        count,
        1e3 * min(t.least for t in rows),
        1e3 * max(t.most for t in rows),
        1e3 * sum(t.seconds for t in rows) / count,
    )


def get_kernel_profiler_total_time() -> float:
    """Return the total time of all kernels in seconds; 0 if profiling is off."""
    found = _profiler()
    return 0.0 if found is None else float(found.seconds)


def clear_kernel_profiler_info() -> None:
    """Discard the measured times."""
    found = _profiler()
    if found is not None:
        found.clear()


def set_kernel_profiler_toolkit(toolkit_name: str = "default") -> bool:
    """Return True if `toolkit_name` is "default", the only toolkit, and profiling is on."""
    return toolkit_name == "default" and current_runtime().profiler is not None


def export_trace(path: str | os.PathLike[str]) -> None:
    """Write the times of the first `timings.MOST_TRACED` dispatches to the file `path`.

    Perfetto and `chrome://tracing` read the file. There are no events if profiling is off. Source:
    "Trace Event Format", complete events; times in microseconds.
    """
    found = _profiler()
    events: list[dict[str, Any]] = []
    if found is not None:
        first = found.trace[0].began_s if found.trace else 0.0
        place = {"ph": "X", "pid": found.device.name, "tid": "queue"}
        events = [
            {"name": name, "ts": 1e6 * (began - first), "dur": 1e6 * seconds, **place}
            for name, seconds, began, *_ in found.trace
        ]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)


# --- compile times and memory --------------------------------------------------------------------


def print_scoped_profiler_info() -> None:
    """Print the compile times of kernels in milliseconds, a line per kernel name, longest first."""
    totals: dict[str, DispatchTotal] = {}
    for name, seconds in current_runtime().compiled:
        totals.setdefault(name, DispatchTotal()).add(seconds)
    rows = sorted(totals.items(), key=lambda row: -row[1].seconds)
    lines = [f"{1e3 * t.seconds:9.3f} ms {t.count:4} x  {name}" for name, t in rows]
    whole = sum(t.seconds for t in totals.values())
    print_table("Compiling", [*lines, "-", f"{1e3 * whole:9.3f} ms in all"])


def clear_scoped_profiler_info() -> None:
    """Discard the measured compile times."""
    current_runtime().compiled.clear()


def print_memory_profiler_info() -> None:
    """Print the bytes of device memory in use, without imports, and the approximate free bytes of
    the largest heap."""
    device = current_runtime().device
    lines = [f"{device.heap.used_bytes:15,} bytes in use", f"{device.free_bytes():15,} bytes free"]
    print_table(f"Memory of {device.name}", lines)


def __getattr__(name: str) -> Any:
    raise missing_name_error(f"profiler.{name}")
