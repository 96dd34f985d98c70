#!/usr/bin/env python3
"""Record the IR of all kernels that the benchmark programs compile: tests/golden/corpus.

    benchmarks/corpus.py

Each program runs once on this process's device. Its kernels, gradients included, are recorded
before the pass pipeline. Kernels that differ only in their name are recorded once.
`tests/corpus.py` reads the file; `scripts/compare_code.py` and the tests compile it.
"""

import lzma
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = ROOT / "tests" / "golden" / "corpus" / "kernels.chi.xz"
SCRIPTS = ("programs", "everyday", "assorted", "numerics", "fluids", "solids", "learning")


def main():
    os.environ.update(VKCHI_CACHE="0", VKCHI_SHAPES="0")  # one compilation of each kernel
    sys.path[:0] = [str(ROOT), str(HERE), str(HERE / "isa")]
    import counts

    import vkchi.compiler
    from vkchi.ir.text import print_func

    own, program, found = vkchi.compiler._build, [""], {}

    def build(fn, options, caps, log=None):
        text = print_func(fn)
        key = text.replace(f"func @{fn.name}(", "func @(", 1)
        if key not in found:
            name = f"{program[0]}.{fn.name}"
            while any(name == known for known, _ in found.values()):
                name += "'"
            found[key] = name, text
        return own(fn, options, caps, log)

    vkchi.compiler._build = build
    for script in SCRIPTS:
        counts.run_programs(HERE / f"{script}.py", [], program)
    text = "\n".join(f"; {name}\n{text}" for name, text in found.values())
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(found)} kernels, {len(text)} bytes, {OUT.stat().st_size} compressed")


if __name__ == "__main__":
    main()
