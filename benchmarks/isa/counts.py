#!/usr/bin/env python3
"""Instructions that a GPU vendor's compiler makes of the benchmark programs (`programs.py`, and what is written as `everyday.py` is), without a GPU.

    benchmarks/isa/counts.py [--family navi31] [--against TREE] [--save FOLDER] [NAME...]

Needs Mesa's RADV (`mesa-vulkan-drivers`; `vkchi.cache.radv` asks it) and a device that programs run on. Per shader: instructions that issue, of the vector unit, of memory (vector, scalar, local), the same of the innermost
loop, vector registers, and the compiler's own static estimates of latency and of inverse throughput (cycles; a loop counts
eight rounds): good for ratios of one program only. `--against` does the same for another checkout, and prints both with
their geometric means. `--save` keeps modules (*.spv) and machine code (*.s).
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRIPTS = ("programs", "everyday", "fluids", "solids", "learning", "data")
# Where in them what defines programs ends.
END = re.compile(r"\nfor name, fn in PROGRAMS\.items\(\):|\nmain\(\)")
COLUMNS = (
    "all", "valu", "vmem", "smem", "lds", "loop", "loop valu", "VGPRs", "spills", "latency", "inverse",
)  # fmt: skip
SPILLS = ("Spilled SGPRs", "Spilled VGPRs", "Scratch size")
CLASSES = (
    ("vmem", r"global_|buffer_|flat_|scratch_"), ("lds", r"ds_"), ("smem", r"s_load|s_buffer"),
    ("branch", r"s_c?branch"), ("wait", r"s_wait|s_delay|s_nop|s_clause|s_sendmsg|s_endpgm|s_code_end|s_inst_prefetch|s_barrier"),
    ("salu", r"s_"), ("valu", r"v_"),
)  # fmt: skip


# --- machine code ----------------------------------------------------------------------------------


def classify(line):
    """The class of an instruction; None for other lines."""
    return next((name for name, pattern in CLASSES if re.match(pattern, line)), None)


def blocks_of(text):
    """[(label, instructions)] of ACO's disassembly."""
    blocks = [("BB0", [])]
    for line in text.splitlines():
        label = re.match(r"\s*(BB\d+):", line)
        if label:
            blocks.append((label[1], []))
        elif classify(line.strip()):
            blocks[-1][1].append(line.split(";")[0].strip())
    return [block for block in blocks if block[1]]


def count(lines):
    """Instructions by class; two that are issued together count once."""
    found = dict.fromkeys([name for name, _ in CLASSES], 0)
    for line in lines:
        found[classify(line)] += 1
    return {**found, "all": sum(found.values()) - found["wait"]}


def loops_of(blocks):
    """The first and last block of each stretch that a branch back closes."""
    names, found = [name for name, _ in blocks], {}
    for k, (_, lines) in enumerate(blocks):
        for line in lines:
            goal = re.search(r"branch\S*\s+(BB\d+)", line)
            if goal and goal[1] in names and names.index(goal[1]) <= k:
                found[names.index(goal[1])] = k
    return sorted(found.items())


def innermost_loop(blocks):
    """The instructions of the loop that begins last."""
    found = loops_of(blocks)[-1:]
    return [line for a, b in found for _, lines in blocks[a : b + 1] for line in lines]


def figures(statistics, text):
    """The columns of one shader."""
    blocks = blocks_of(text)
    whole = count([line for _, lines in blocks for line in lines])
    loop = count(innermost_loop(blocks))
    registers = [int(k) for k in re.findall(r"\bv\[?\d*:?(\d+)\b", text)]
    return {
        **{name: whole[name] for name in ("all", "valu", "vmem", "smem", "lds")},
        "loop": loop["all"], "loop valu": loop["valu"], "VGPRs": max(registers, default=-1) + 1,
        "spills": sum(int(statistics.get(name, 0)) for name in SPILLS),
        "latency": statistics["Latency"], "inverse": statistics["Inverse Throughput"],
    }  # fmt: skip


# --- what the programs are made of, in a process of the tree's; what the compiler makes of it --------


def dump(folder, caps, names):
    """Run programs on this process's device, each function twice at most, and write every dispatch as it is built for the
    capabilities given."""
    import vkchi.compiler
    from vkchi.target.caps import Caps
    from vkchi.vk.pipelines import count_push_bytes

    own, seen, rows, program = vkchi.compiler.build, set(), [], [""]
    given = json.loads(caps)
    known = {k: v for k, v in given.items() if k in Caps._fields}  # an older checkout has fewer
    target = Caps(**{k: tuple(v) if isinstance(v, list) else v for k, v in known.items()})

    def build(fn, options, device):
        for dispatch in own(fn, options, target).dispatches:
            shader = dispatch.shader
            if shader.words not in seen:
                seen.add(shader.words)
                name = f"{program[0]}.{shader.name}"
                while any(name == row[0] for row in rows):
                    name += "'"
                rows.append((name, count_push_bytes(shader)))
                pathlib.Path(folder, f"{len(rows) - 1}.spv").write_bytes(shader.words)
        return own(fn, options, device)

    vkchi.compiler.build = build
    sys.path.insert(0, str(HERE.parent))  # what the scripts have in common
    for script in SCRIPTS:
        run_programs(HERE.parent / f"{script}.py", names, program)
    pathlib.Path(folder, "rows.json").write_text(json.dumps(rows))


def run_programs(path, names, program):
    """Run each program of a script once, `program` holding its name. Where it gives a step and what that computed, do the step."""
    source = re.sub(r"range\((reps|inner)\)", "range(1)", END.split(path.read_text())[0])
    sys.argv = [str(path), "vkchi", "vulkan", *names]
    scope = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), scope)
    shared = vars(sys.modules["harness"]) if "main" in scope else scope
    for name, function in shared["PROGRAMS"].items():
        if function.__module__ == path.stem and (not names or name in names):
            program[0] = name
            shared["ti"].reset()
            shared["ti"].init(**shared["opts"])
            try:
                found = function()
                if isinstance(found, tuple) and callable(found[0]):
                    found[0]()
            except AssertionError:
                pass  # sums of more repetitions are what it expects


def compiler():
    """The way to the compiler, and what shaders are: those of this checkout, whichever is measured."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from vkchi.cache import radv
    from vkchi.target import shader

    return radv, shader


def compile_all(folder, family):
    """Compile what was dumped; the figures by name."""
    radv, kinds = compiler()
    caps = radv.read_caps(family)
    rows = json.loads(pathlib.Path(folder, "rows.json").read_text())
    shaders = [
        kinds.Shader(
            name, pathlib.Path(folder, f"{k}.spv").read_bytes(), (), size, False, kinds.SERIAL, ()
        )
        for k, (name, size) in enumerate(rows)
    ]
    found = {}
    for shader, outcome in zip(shaders, radv.compile_all(family, shaders, caps)):
        if outcome.error:
            sys.exit(f"{shader.name}: {outcome.error}")
        text = outcome.executables[0].machine_code()
        pathlib.Path(folder, f"{shader.name}.s").write_text(text)
        found[shader.name] = figures(outcome.executables[0].statistics, text)
    return found


def measure(tree, family, folder, names):
    """The figures of a checkout's shaders, by name."""
    os.makedirs(folder, exist_ok=True)
    caps = compiler()[0].read_caps(family)
    command = [sys.executable, str(HERE / "counts.py"), "--dump", str(folder)]
    done = subprocess.run(
        [*command, json.dumps(caps._asdict()), *names], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tree), "VKCHI_CACHE": "0"},
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return compile_all(folder, family)


# --- the table -------------------------------------------------------------------------------------


def show(new, old):
    """A line per shader, old and new where they differ; the geometric means of what there is in both."""
    print(f"{'shader':36s}" + "".join(f"{name:>14s}" for name in COLUMNS))
    for name, row in new.items():
        before = old.get(name, row)
        cells = [f"{before[c]} > {row[c]}" if before[c] != row[c] else str(row[c]) for c in COLUMNS]
        print(f"{name[:36]:36s}" + "".join(f"{cell:>14s}" for cell in cells))
    if old:
        print(
            f"{'geometric mean of new / old':36s}"
            + "".join(f"{ratio(new, old, c):>14s}" for c in COLUMNS)
        )


def ratio(new, old, column):
    pairs = [(new[name][column], old[name][column]) for name in new if name in old]
    logs = [math.log(a / b) for a, b in pairs if a and b]
    return f"{math.exp(sum(logs) / len(logs)):.3f}" if logs else "-"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--family", default="navi31")
    parser.add_argument("--against", help="another checkout of vkchi")
    parser.add_argument("--save", help="a folder for modules and machine code")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.save or scratch)
        new = measure(ROOT, args.family, folder / "new", args.names)
        old = measure(args.against, args.family, folder / "old", args.names) if args.against else {}
    show(new, old)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--dump"]:
        dump(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        main()
