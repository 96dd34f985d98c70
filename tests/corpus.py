"""The corpus: IR of the kernels of `benchmarks/`, before the pipeline (`benchmarks/corpus.py`).

    for name, fn in read_corpus():
        dispatches = lower_kernel(fn, CPU)

`scripts/compare_code.py` loads this file beside the vkchi of another checkout, so it imports little
of it.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

from vkchi.ir.core import Func
from vkchi.ir.text import parse_func, print_func
from vkchi.opt import pipeline
from vkchi.target.caps import FULL, Caps
from vkchi.target.options import Options

FOLDER = Path(__file__).parent / "golden" / "corpus"
KERNELS = FOLDER / "kernels.chi.xz"
GPU = FULL
CPU = FULL._replace(  # Mesa's lavapipe on AVX2
    kind="cpu", f64_atomic_add=False, f32_atomic_minmax=True, subgroup_size=8, subgroup_least=8,
    subgroup_most=8, zero_dividends=False, signed_zero_inf_nan_f32=True,
    workgroup_size=(1024, 1024, 1024), shared_bytes=32768,
)  # fmt: skip
DEVICES = {"CPU": CPU, "GPU": GPU}
# Rename and drop what does not matter to the emitter and to drivers.
CANONICAL = ("licm", "cse", "dce")


def read_texts() -> dict[str, str]:
    """Text of each kernel by its name, `program.kernel`."""
    parts = lzma.decompress(KERNELS.read_bytes()).decode().split("\n; ")
    return dict(part.removeprefix("; ").split("\n", 1) for part in parts)


def read_corpus() -> Iterator[tuple[str, Func]]:
    for name, text in read_texts().items():
        yield name, parse_func(text)


def lower_kernel(fn: Func, caps: Caps) -> list[tuple[Func, Func]]:
    """Dispatches of a kernel, before and after lowering."""
    program, _ = pipeline.optimize_kernel(fn, caps, Options())
    return [(func, pipeline.lower_dispatch(func, caps)) for func in program.funcs]


def canonical_text(fn: Func) -> str:
    """Text of a lowered dispatch after CANONICAL, by which dispatches are compared."""
    for name in CANONICAL:
        fn = pipeline.PASSES[name](fn)
    return print_func(fn)
