#!/usr/bin/env python3
"""Instructions of the benchmark programs beside those of shaders that were written by hand (`glsl/`: the same algorithm),
per unit of work, without a GPU.

    benchmarks/isa/hand.py [--family navi31] [--save FOLDER]

Needs what `counts.py` needs, and `glslangValidator`. A unit is an element, a pair, a product: counted in the machine code
itself, in the innermost loop where there is one (a loop may do several in a round), else in the whole shader. Each shader
by hand is compiled as glslang writes it and with OpInBoundsAccessChain, which spares RADV 64-bit addresses; the better one
counts.
"""

import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from counts import ROOT, blocks_of, compile_all, count, innermost_loop, measure

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("all", "valu", "vmem", "smem")
STORED, LOADED, ONCE = r"global_store_", r"global_load_", r"$^"
# program: shader, unit, loop or whole, what machine code has of it for each unit: words of memory, or instructions
KERNELS = {
    "saxpy": ("saxpy.k.0", "element", "whole", STORED),
    "reduce_sum": ("reduce_sum.k.0", "element", "whole", LOADED),
    "jacobi": ("jacobi.k.0", "cell", "whole", STORED),
    "nbody": ("nbody.k.0", "pair", "loop", r"v_rsq_f32"),
    "mandelbrot": ("mandelbrot.paint.0", "round", "loop", ONCE),
    "matmul_shared": ("matmul_shared.k.0", "product", "loop", r"(dual_)?fma"),
    "seed_depthwise_v0": ("seed_depthwise_v0.fwd.0", "term", "loop", r"(dual_)?fma"),
}
ACCESS_CHAIN, IN_BOUNDS = 65, 66
MOST = 1.3


def in_bounds(words):
    """The module with access chains that stay inside."""
    code, at = list(struct.unpack(f"<{len(words) // 4}I", words)), 5
    while at < len(code):
        if code[at] & 0xFFFF == ACCESS_CHAIN:
            code[at] = code[at] & ~0xFFFF | IN_BOUNDS
        at += code[at] >> 16
    return struct.pack(f"<{len(code)}I", *code)


def compile_by_hand(folder, family):
    """The machine code of shaders written by hand, by name: two forms of each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in sorted((HERE / "glsl").glob("*.comp")):
        out = folder / "glsl.spv"
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.3", "-o", str(out), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout)
        for form, words in (("", out.read_bytes()), (".inb", in_bounds(out.read_bytes()))):
            (folder / f"{len(rows)}.spv").write_bytes(words)
            rows.append((path.name.split(".")[0] + form, 128))
    (folder / "rows.json").write_text(json.dumps(rows))
    compile_all(folder, family)
    return {name: (folder / f"{name}.s").read_text() for name, _ in rows}


def units_in(lines, pattern):
    """How many units of work instructions do."""
    if pattern not in (STORED, LOADED):
        return max(1, sum(len(re.findall(pattern, line)) > 0 for line in lines))
    widths = [re.match(pattern + r"[bd](?:word)?x?(\d*)", line) for line in lines]
    return max(1, sum(int(m[1] or 32) // 32 for m in widths if m))


def per_unit(text, scope, pattern):
    """The instructions of each class for a unit of work, and how many units there are."""
    blocks = blocks_of(text)
    lines = innermost_loop(blocks) if scope == "loop" else [x for _, ls in blocks for x in ls]
    units = units_in(lines, pattern)
    found = count(lines)
    return {part: found[part] / units for part in PARTS}, units


def show(ours, hand):
    """A line per program and form; the ratio of ours to the better of the two by hand."""
    print(
        f"{'program':20s}{'form':12s}{'unit':10s}{'units':>6s}" + "".join(f"{p:>8s}" for p in PARTS)
    )
    worst = 0.0
    for program, (shader, unit, scope, pattern) in KERNELS.items():
        texts = {"vkchi": ours[shader], "hand": hand[program], "hand, inb": hand[program + ".inb"]}
        rows = {form: per_unit(text, scope, pattern) for form, text in texts.items()}
        best = min(rows["hand"][0]["all"], rows["hand, inb"][0]["all"])
        for form, (found, units) in rows.items():
            cells = "".join(f"{found[p]:8.2f}" for p in PARTS)
            ratio = f"   x {found['all'] / best:.2f}" if form == "vkchi" else ""
            print(f"{program:20s}{form:12s}{unit:10s}{units:6d}{cells}{ratio}")
        worst = max(worst, rows["vkchi"][0]["all"] / best)
    print(f"most: {worst:.2f} (wanted: {MOST} at most)")
    return worst <= MOST


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", default="navi31")
    parser.add_argument("--save", help="a folder for modules and machine code")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.save or scratch)
        measure(ROOT, args.family, folder / "vkchi", list(KERNELS))
        ours = {row[0]: (folder / "vkchi" / f"{row[0]}.s").read_text() for row in KERNELS.values()}
        hand = compile_by_hand(folder / "hand", args.family)
        sys.exit(not show(ours, hand))


if __name__ == "__main__":
    main()
