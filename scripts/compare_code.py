#!/usr/bin/env python3
"""Compare the code of the corpus (`tests/corpus.py`) between two checkouts; needs no device.

    scripts/compare_code.py CHECKOUT           this checkout beside another one
    scripts/compare_code.py FILE               beside code that was saved
    scripts/compare_code.py --save FILE        save the code of this checkout
    scripts/compare_code.py CHECKOUT --show saxpy.k

Code is the IR of all lowered dispatches after `licm`, `cse`, `dce`, for a CPU and a GPU. Prints the
kernels whose code differs, with their lines. Exits with 1 if there are any.
"""

import argparse
import difflib
import importlib.util
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def compile_corpus():
    """{device: {kernel: [text of each dispatch]}}, by the vkchi that this process imports."""
    place = importlib.util.spec_from_file_location("corpus", ROOT / "tests" / "corpus.py")
    corpus = importlib.util.module_from_spec(place)
    place.loader.exec_module(corpus)
    kernels = list(corpus.read_corpus())
    return {
        device: {
            name: [corpus.canonical_text(f) for _, f in corpus.lower_kernel(fn, caps)]
            for name, fn in kernels
        }
        for device, caps in corpus.DEVICES.items()
    }


def save(path, code):
    path.write_bytes(lzma.compress(json.dumps(code).encode()))


def load(path):
    return json.loads(lzma.decompress(path.read_bytes()))


def code_of(path):
    """The code of a checkout, compiled in a process of its own, or of a file."""
    if path.is_file():
        return load(path)
    if not (path / "vkchi").is_dir():
        sys.exit(f"{path} is no checkout and no file")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "code")
        around = {**os.environ, "PYTHONPATH": str(path.resolve()), "VKCHI_VERIFY": ""}
        command = [sys.executable, __file__, "--dump", str(out)]
        subprocess.run(command, env=around, check=True)
        return load(out)


def count_lines(texts):
    return sum(text.count("\n") for text in texts)


def show(name, old, new):
    """Print the unified diff of a kernel."""
    lines = [[line for text in texts for line in text.split("\n")] for texts in (old, new)]
    print(
        "\n".join(difflib.unified_diff(*lines, f"{name}, old", f"{name}, new", "", "", lineterm=""))
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", nargs="?", type=pathlib.Path, help="a checkout or a saved file")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--show", metavar="KERNEL", help="print the diff of this kernel")
    parser.add_argument("--dump", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.dump:
        save(given.dump, compile_corpus())
        return
    new = code_of(ROOT)
    if given.save:
        save(given.save, new)
    if not given.other:
        return
    old, differing = code_of(given.other), 0
    for device, kernels in new.items():
        before = old[device]
        changed = [name for name in kernels if kernels[name] != before.get(name)]
        differing += len(changed)
        print(f"{device}: {len(kernels) - len(changed)} of {len(kernels)} kernels are the same")
        for name in changed:
            a, b = before.get(name, []), kernels[name]
            lines = f"{count_lines(a)} > {count_lines(b)} lines"
            print(f"  {name}: {lines}, {len(a)} > {len(b)} dispatches")
            if given.show == name:
                show(f"{name}, {device}", a, b)
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
