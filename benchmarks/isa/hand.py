#!/usr/bin/env python3
"""Compiled benchmark programs beside handwritten shaders (`glsl/`), per unit of work, without a GPU.

    benchmarks/isa/hand.py [--family navi31] [--save FOLDER]

Needs the tools of `counts.py`, and `glslangValidator`. `same` is the program's algorithm in GLSL,
`expert` a version optimized by an expert.

A unit of work is an element, a pair or a product. Units are counted in the machine code of the loop
that does most of them (perhaps several per iteration), or of the whole shader. Each handwritten
shader is compiled as glslang emits it, and with OpInBoundsAccessChain, which saves 64-bit addresses
in RADV. The better one counts.

`cycles` is the compiler's estimate of inverse throughput for the whole shader, divided by the
estimated number of units. The compiler assumes eight iterations per loop and four per nested loop.
It assumes that each side of a branch is taken half of the time. Code behind a comparison that ends
invocations counts as three quarters.

Fails if vkchi takes more than 1.1 times the instructions of `same`, or 2.5 times the cycles of
`expert`.
"""

import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from counts import ROOT, blocks_of, compile_all, count, loops_of, measure

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("all", "valu", "vmem", "smem", "lds")
STORED, LOADED, ONCE, FUSED = r"global_store_", r"global_load_", r"$^", r"(dual_)?fm"
# program: shader, unit, pattern that counts units in machine code (words of memory, or instructions),
# and number of alternative paths in vkchi's shader: whole groups of iterations, or the remaining ones
KERNELS = {
    "saxpy": ("saxpy.k.0", "element", STORED, 1),
    "reduce_sum": ("reduce_sum.k.0", "element", LOADED, 1),
    "jacobi": ("jacobi.k.0", "cell", STORED, 1),
    "nbody": ("nbody.k.0", "pair", r"v_rsq_f32", 1),
    "mandelbrot": ("mandelbrot.paint.0", "round", ONCE, 1),
    "matmul_shared": ("matmul_shared.k.0", "product", FUSED, 1),
    "transpose": ("transpose.k.0", "element", STORED, 1),
    "seed_depthwise_v0": ("seed_depthwise_v0.fwd.0", "term", FUSED, 2),
    "row_sum_atomic": ("row_sum_atomic.k.0", "element", LOADED, 1),
    "kmeans_assign": ("kmeans_assign.k.0", "center", r"v_cmp_(n?[lg][te]|gt|lt)_f32", 1),
    "blur5": ("blur5.k.0", "tap", LOADED, 1),
    "grid_update": ("grid_update.k.0", "cell", ONCE, 1),
}
ACCESS_CHAIN, IN_BOUNDS = 65, 66
MOST_INSTRUCTIONS, MOST_CYCLES = 1.1, 2.5
ROUNDS, INNER_ROUNDS = 8, 4  # iterations of a loop, and of a nested loop, in ACO's estimates


def in_bounds(words):
    """The module with in-bounds access chains."""
    code, at = list(struct.unpack(f"<{len(words) // 4}I", words)), 5
    while at < len(code):
        if code[at] & 0xFFFF == ACCESS_CHAIN:
            code[at] = code[at] & ~0xFFFF | IN_BOUNDS
        at += code[at] >> 16
    return struct.pack(f"<{len(code)}I", *code)


def compile_by_hand(folder, family):
    """Figures of handwritten shaders, by `program.form`: as glslang emits them, and with `.inb`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in sorted((HERE / "glsl").glob("*.comp")):
        out = folder / "glsl.spv"
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.3", "-o", str(out), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout)
        for tail, words in (("", out.read_bytes()), (".inb", in_bounds(out.read_bytes()))):
            (folder / f"{len(rows)}.spv").write_bytes(words)
            rows.append((path.stem + tail, 128))
    (folder / "rows.json").write_text(json.dumps(rows))
    return compile_all(folder, family)


def units_in(lines, pattern):
    """Number of units of work that instructions do."""
    if pattern not in (STORED, LOADED):
        return sum(
            re.match(r"(v_)?" + pattern.removeprefix("v_"), x) is not None for x in parts_of(lines)
        )
    widths = [re.match(pattern + r"[bd](?:word)?x?(\d*)", line) for line in lines]
    return sum(int(m[1] or 32) // 32 for m in widths if m)


def parts_of(lines):
    """Instructions, with dual-issued pairs split."""
    return [part.strip() for line in lines for part in line.split("::")]


def per_unit(text, cycles, pattern, ways):
    """Instructions of each class per unit of work, cycles, and the number of units per loop
    iteration."""
    blocks = blocks_of(text)
    every = [line for _, lines in blocks for line in lines]
    loops = [[x for _, lines in blocks[a : b + 1] for x in lines] for a, b in loops_of(blocks)]
    lines = max(loops, key=lambda found: (units_in(found, pattern), -len(found)), default=every)
    if not units_in(lines, pattern) and units_in(every, pattern):
        lines = every  # no loop does any work
    units = units_in(lines, pattern) or 1
    found = count(lines)
    done = estimated_units(blocks, pattern) or ROUNDS
    return {**{part: found[part] / units for part in PARTS}, "cycles": cycles * ways / done}, units


def estimated_units(blocks, pattern):
    """Number of units by ACO's estimated iteration counts, without regard to branches."""
    total, loops = 0, loops_of(blocks)
    for k, (_, lines) in enumerate(blocks):
        depth = sum(a <= k <= b for a, b in loops)
        rounds = ROUNDS * INNER_ROUNDS ** (depth - 1) if depth else 1
        total += rounds * units_in(lines, pattern)
    return total


def show(program, rows):
    """Print a line per form. Return True if vkchi is within the limits."""
    good = True
    for form, (found, units) in rows.items():
        cells = "".join(f"{found[p]:8.2f}" for p in (*PARTS, "cycles"))
        line = f"{program:18s}{form:12s}{KERNELS[program][1]:9s}{units:6d}{cells}"
        if form == "vkchi":
            instructions = found["all"] / least(rows, "same", "all")
            cycles = found["cycles"] / least(rows, "expert", "cycles")
            good = instructions <= MOST_INSTRUCTIONS and cycles <= MOST_CYCLES
            line += f"   x {instructions:.2f} x {cycles:.2f}" + ("" if good else "   TOO MANY")
        print(line)
    return good


def least(rows, form, part):
    """The minimum over handwritten shaders of a form; `same` if there is no expert version."""
    named = [found[part] for name, (found, _) in rows.items() if name.startswith(form)]
    return min(named) if named else least(rows, "same", part)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(KERNELS))
    parser.add_argument("--family", default="navi31")
    parser.add_argument("--save", help="a folder for modules and machine code")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.save or scratch)
        ours = measure(ROOT, args.family, folder / "vkchi", args.names)
        hand = compile_by_hand(folder / "hand", args.family)
        heads = "".join(f"{p:>8s}" for p in (*PARTS, "cycles"))
        print(
            f"{'program':18s}{'form':12s}{'unit':9s}{'units':>6s}{heads}   instructions/same cycles/expert"
        )
        goods = []
        for program in args.names:
            shader, _, pattern, ways = KERNELS[program]
            files = {"vkchi": (folder / "vkchi" / f"{shader}.s", ours[shader], ways)} | {
                name.removeprefix(program + "."): (folder / "hand" / f"{name}.s", row, 1)
                for name, row in hand.items() if name.startswith(program + ".")
            }  # fmt: skip
            rows = {
                form: per_unit(p.read_text(), row["inverse"], pattern, w)
                for form, (p, row, w) in files.items()
            }
            goods.append(show(program, rows))
    print(f"wanted: {MOST_INSTRUCTIONS} and {MOST_CYCLES} at most")
    sys.exit(not all(goods))


if __name__ == "__main__":
    main()
