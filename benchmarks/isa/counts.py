#!/usr/bin/env python3
"""Instruction counts of the benchmark programs from a GPU vendor's compiler, without a GPU.

    benchmarks/isa/counts.py [--family navi31] [--against TREE] [--save FOLDER] [NAME...]

Programs are those of `programs.py` and of the scripts like `everyday.py`. Needs Mesa's RADV
(`mesa-vulkan-drivers`, called by `vkchi.cache.inspection.driver_report`) and a device to run the programs.

Figures per shader: issued instructions, those of the vector unit, of memory (vector, scalar,
local), the same for the innermost loop, and vector registers. Latency and inverse throughput are
the compiler's static estimates in cycles, with eight iterations per loop. They are meaningful as
ratios for one program only.

`--against` does the same for another checkout, and prints both with geometric means. `--save` keeps
modules (*.spv) and machine code (*.s).
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
# End of the program definitions in these scripts.
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
    """[(label, instructions)] from ACO's disassembly."""
    blocks = [("BB0", [])]
    for line in text.splitlines():
        label = re.match(r"\s*(BB\d+):", line)
        if label:
            blocks.append((label[1], []))
        elif classify(line.strip()):
            blocks[-1][1].append(line.split(";")[0].strip())
    return [block for block in blocks if block[1]]


def count(lines):
    """Instructions by class; a dual-issued pair counts once."""
    found = dict.fromkeys([name for name, _ in CLASSES], 0)
    for line in lines:
        found[classify(line)] += 1
    return {**found, "all": sum(found.values()) - found["wait"]}


def loops_of(blocks):
    """First and last block of each loop, found by backward branches."""
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


# --- shaders of the programs, in a process of the checkout; their compilation ---------------------


def dump(folder, caps, names):
    """Run programs on this process's device, each function at most twice. Write every dispatch,
    built for the given capabilities."""
    import vkchi.compiler
    from vkchi.target.caps import Caps
    from vkchi.vk.pipelines import count_push_bytes

    own, seen, rows, program = vkchi.compiler.build_artifact, set(), [], [""]
    given = json.loads(caps)
    known = {k: v for k, v in given.items() if k in Caps._fields}  # older checkouts have fewer
    target = Caps(**{k: tuple(v) if isinstance(v, list) else v for k, v in known.items()})

    def build(fn, options, device, *log):
        for dispatch in own(fn, options, target).dispatches:
            shader = dispatch.shader
            if shader.words not in seen:
                seen.add(shader.words)
                name = f"{program[0]}.{shader.name}"
                while any(name == row[0] for row in rows):
                    name += "'"
                rows.append((name, count_push_bytes(shader)))
                pathlib.Path(folder, f"{len(rows) - 1}.spv").write_bytes(shader.words)
        return own(fn, options, device, *log)

    vkchi.compiler.build_artifact = build
    sys.path.insert(0, str(HERE.parent))  # for `harness`
    for script in SCRIPTS:
        run_programs(HERE.parent / f"{script}.py", names, program)
    pathlib.Path(folder, "rows.json").write_text(json.dumps(rows))


def run_programs(path, names, program):
    """Run each program of a script once, with its name in `program`. If it returns a step and
    its result, run the step."""
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
                pass  # it expects sums of more repetitions


def compiler():
    """The compiler and the shader classes of this checkout, whichever checkout is measured."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from vkchi.cache.inspection import driver_report
    from vkchi.target import shader

    return driver_report, shader


def compile_all(folder, family):
    """Compile the dumped modules; returns the figures by name."""
    driver_report, kinds = compiler()
    caps = driver_report.read_caps(family)
    rows = json.loads(pathlib.Path(folder, "rows.json").read_text())
    shaders = [
        kinds.Shader(
            name, pathlib.Path(folder, f"{k}.spv").read_bytes(), (), size, False, kinds.SERIAL, ()
        )
        for k, (name, size) in enumerate(rows)
    ]
    found = {}
    for shader, outcome in zip(shaders, driver_report.compile_all(family, shaders, caps)):
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
    """Print a line per shader, with old and new figures if they differ, and geometric means of
    common shaders."""
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
