"""Saved modules from C: the example runs, and `vkchi.h` fills argument blocks as Python does.

Vulkan's declarations are those of the `vulkan` package where the machine has no vulkan.h.
"""

from __future__ import annotations

import math
import os
import runpy
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vulkan

import vkchi as ti
import vkchi.aot.kernel_module
from tests.devices import like_gpu
from vkchi.launch.commands import CommandList
from vkchi.runtime import current_runtime
from vkchi.target.caps import SMALLEST

ROOT = Path(ti.__file__).parents[1]
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler here: install gcc")
FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", vkchi.aot.include()]
HEADER = f"""
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>
#define va_list vk_va_list
#include "{Path(vulkan.__file__).parent / "vulkan.cdef.h"}"
#define VK_NULL_HANDLE 0
#define VK_FALSE 0
#define VK_WHOLE_SIZE (~0ULL)
"""


def compiled(folder: Path, source: Path, *more: str) -> Path:
    """The program of a C file."""
    program = folder / source.stem
    done = subprocess.run(
        [CC, *FLAGS, source, "-o", program, *more], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(autouse=True)
def launches_as_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python counts as many workgroups as the header does, whatever `--like-gpu` has the device
    count, and takes shaders as they are."""
    monkeypatch.setattr("vkchi.target.tuning.FITTING_IDLE", math.inf)
    device = current_runtime().device
    count = SMALLEST.workgroup_count
    monkeypatch.setattr(device, "caps", device.caps._replace(workgroup_count=count))


@pytest.fixture(scope="module")
def heat(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The example's program, and its module."""
    folder = tmp_path_factory.mktemp("heat")
    (folder / "vulkan").mkdir()
    (folder / "vulkan" / "vulkan.h").write_text(HEADER)
    source = ROOT / "examples" / "c" / "heat.c"
    assert len(source.read_text().splitlines()) <= 300
    program = compiled(folder, source, f"-I{folder}", "-l:libvulkan.so.1")
    script, module = ROOT / "examples" / "c" / "heat.py", folder / "module"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, script, module], check=True, env=env)
    return program, module


def test_the_example_in_c(heat: tuple[Path, Path]) -> None:
    program, module = heat
    name = current_runtime().device.info.name.partition(" (")[0]
    done = subprocess.run([program, module, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    m, plates = ti.load(module), [ti.ndarray(ti.f32, (32, 32)) for _ in range(2)]
    m.place(3, ti.Vector([20.0, 9.0]))
    for step in range(50):
        m.spread(0.2, plates[step % 2], plates[(step + 1) % 2])
    said = done.stdout.splitlines()[-1].split()
    found = [float(word.strip(",")) for word in said if word[0].isdigit()]
    plate = plates[0].to_numpy()
    assert found == pytest.approx([m.total(plates[0]), plate[20, 9], plate[31, 31]], abs=1e-4)
    assert found[0] > 20


def test_arguments_in_memory(
    heat: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_runtime: None,
) -> None:
    """As those of kernels with many arguments: here all that are longer than an address."""
    usual = vkchi.aot.kernel_module.portable
    monkeypatch.setattr(
        vkchi.aot.kernel_module,
        "portable",
        lambda caps: usual(caps)._replace(push_constant_bytes=8),
    )
    monkeypatch.setattr(sys, "argv", ["heat.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "c" / "heat.py"))
    text = (tmp_path / "module.txt").read_text()
    assert text.count(" buffer\n") > 2
    program, module = heat
    name = current_runtime().device.info.name.partition(" (")[0]
    said = [subprocess.check_output([program, path, name]) for path in (module, tmp_path)]
    assert said[0] == said[1]


def test_the_example_rejects_damaged_files(heat: tuple[Path, Path], tmp_path: Path) -> None:
    program, module = heat
    for name, word in (("module.txt", "damaged"), ("spread.0.spv", "spread.0.spv: is damaged")):
        copy = tmp_path / name
        shutil.copytree(module, copy)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 4
        (copy / name).write_bytes(data)
        done = subprocess.run([program, copy], capture_output=True, text=True)
        assert done.returncode == 1 and word in done.stderr


# --- argument blocks -----------------------------------------------------------------------------

DRIVER = r"""
#define VKCHI_IMPLEMENTATION
#include "vkchi.h"
/* MODULE.TXT KERNEL TRASH, an address for each of own, then for each parameter its numbers, or an
   address and extents. Prints why not; or workgroups and bytes of each dispatch. */
int main(int argc, char **argv) {
    FILE *file = fopen(argv[1], "rb");
    static char text[1 << 20];
    vkchi_module m;
    if (vkchi_read(&m, text, fread(text, 1, sizeof text, file))) return puts(m.error), 2;
    const vkchi_kernel *kernel = vkchi_find_kernel(&m, argv[2]);
    if (!kernel) return 3;
    uint64_t own[8];
    static vkchi_value args[64];
    static vkchi_number numbers[64][16];
    vkchi_call call = {.args = args, .own = own, .trash = strtoull(argv[3], 0, 10), .seed = 77};
    int n = 4;
    for (int k = 0; k < kernel->own_count; k++) own[k] = strtoull(argv[n++], 0, 10);
    for (int k = 0; k < kernel->param_count; k++) {
        const vkchi_param *p = &kernel->params[k];
        args[k].numbers = numbers[k];
        if (p->axes >= 0) args[k].address = strtoull(argv[n++], 0, 10);
        for (int i = 0; i < p->axes; i++) args[k].extents[i] = atoll(argv[n++]);
        for (int i = 0; p->axes < 0 && i < p->components; i++, n++) {
            if (p->type[0] == 'f') numbers[k][i].f = atof(argv[n]);
            else numbers[k][i].i = atoll(argv[n]);
        }
    }
    if (n != argc) return 4;
    const char *wrong = vkchi_check(kernel, &call);
    if (wrong) return puts(wrong), 0;
    for (int k = 0; k < kernel->dispatch_count; k++) {
        static unsigned char block[4096];
        uint32_t groups[3];
        int found, part = 0;
        while ((found = vkchi_pack(kernel, k, part++, &call, block, groups)) > 0) {
            printf("%u %u %u ", groups[0], groups[1], groups[2]);
            for (int i = 0; i < kernel->dispatches[k].args_bytes; i++) printf("%02x", block[i]);
            puts("");
        }
        if (found < 0) return 5;
    }
    vkchi_free(&m);
    return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints argument blocks."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    return compiled(folder, folder / "driver.c", "-fsanitize=undefined", "-fno-sanitize-recover")


F2 = ti.types.ndarray(ti.f32, 2)
Pair = ti.types.struct(a=ti.i32, b=ti.math.vec2)
big = ti.types.vector(16, ti.f32)


@ti.kernel
def ranges(a: ti.i32, b: ti.i32, x: F2, y: F2):
    for i in range(a - 3, b * 2):
        x[i, 0] += i
    for i in range(a // 3, max(b, a % 7), 2):
        x[i, 1] += i
    for i, j in ti.ndrange(a, (b, 9)):
        y[i, j] = x[j, i]
    for i, j in x:
        x[i, j] -= 1


@ti.kernel
def numbers(f: ti.f32, p: Pair, u: ti.u32, m: ti.math.mat3, x: ti.types.ndarray(ti.math.vec3, 1)):
    for i in x:
        x[i] += (m @ x[i]) * f * p.b.x + p.a * p.b.y + ti.cast(u, ti.f32)


@ti.kernel
def many(a: big, b: big, c: big, x: ti.types.ndarray(ti.f32, 1)) -> ti.f32:
    total = 0.0
    for i in x:
        total += a[i % 16] * b[i % 16] + c[i % 16] + x[i]
    return total


@ti.kernel
def sums(n: ti.i32, x: ti.types.ndarray(ti.f32, 1)):
    for i in range(n * n):
        x[i % 8] += ti.random()


def words_of(arg: Any) -> list[Any]:
    """An argument as the driver takes it."""
    if isinstance(arg, ti.Ndarray):
        return [arg.buffer.address, *arg.shape]
    if isinstance(arg, dict):
        return [word for part in arg.values() for word in words_of(part)]
    return [x if isinstance(x, int) else float(x) for x in np.asarray(arg, object).ravel()]


@pytest.mark.parametrize("case", range(9))
def test_argument_blocks(
    driver: Path, tmp_path: Path, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all dispatches, those included that Python sets memory in place of."""
    monkeypatch.setenv("VKCHI_PASSES", "-fills")
    x, y = ti.ndarray(ti.f32, (40, 12)), ti.ndarray(ti.f32, (13, 40))
    v, short = ti.Vector.ndarray(3, ti.f32, 5), ti.ndarray(ti.f32, 1)
    line = ti.ndarray(ti.f32, 9)
    mat, vectors = np.arange(9).reshape(3, 3) / 8, [np.arange(16) * k / 4 for k in (1, 2, 3)]
    kernel, args = [
        (ranges, (5, 11, x, y)),
        (ranges, (-8, -3, x, x)),
        (ranges, (9, 1, x, y)),
        (numbers, (0.25, {"a": -3, "b": [1.5, -2.0]}, 4_000_000_000, mat, v)),
        (many, (*vectors, line)),
        (many, (*vectors, short)),
        (sums, (3, line)),
        (sums, (-70_000, line)),
        (sums, (0, line)),
    ][case]
    compare(driver, tmp_path, kernel, args, is_empty=case == 8)


@ti.kernel
def plane(x: F2):
    for i, j in x:
        x[i, j] = i + j
    for i, j, k in ti.ndrange((1, x.shape[0]), 3, x.shape[1]):
        x[i, k] += j


@pytest.mark.parametrize("shape", [(300, 260), (66_000, 65)], ids=str)
def test_argument_blocks_of_several_axes(
    driver: Path, tmp_path: Path, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On grids as for GPUs; also with more workgroups on an axis than devices count."""
    device = current_runtime().device
    few = like_gpu(device.caps)._replace(workgroup_count=SMALLEST.workgroup_count)
    monkeypatch.setattr(device, "caps", few)
    compare(driver, tmp_path, plane, (ti.ndarray(ti.f32, shape),), is_empty=False)
    text = (tmp_path / "module.txt").read_text()
    assert text.count("\naxis ") == 5


@ti.kernel
def apart(x: F2, y: ti.types.ndarray(ti.f32, 1)):
    for p in y:
        y[p] = x[p // x.shape[1] % x.shape[0], p % x.shape[1]]


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (40, 64), (1021, 65)], ids=str)
def test_numbers_of_divisors(driver: Path, tmp_path: Path, shape: tuple[int, int]) -> None:
    """By which numbers are divided by extents (`target.magic`)."""
    x, y = ti.ndarray(ti.f32, shape), ti.ndarray(ti.f32, 100)
    compare(driver, tmp_path, apart, (x, y), is_empty=False)
    text = (tmp_path / "module.txt").read_text()
    count = 2 if current_runtime().device.caps.int64 else 0  # it takes a product of 64 bits
    assert text.count("slot magic_factor x") == text.count("slot magic_shift x") == count


def compare(
    driver: Path, tmp_path: Path, kernel: Any, args: tuple[Any, ...], *, is_empty: bool
) -> None:
    """A launch of a saved kernel from C equals the launch from Python."""
    module = ti.aot.Module()
    module.add_kernel(kernel)
    module.save(tmp_path)
    loaded = ti.load(tmp_path).kernels[kernel.__name__]

    def look(plan: Any, given: Any) -> tuple[list[Any], Any]:
        own = {**plan.arrays, **plan.temps}
        bound = plan.bind_arguments(given)
        bound.flat[1] = 77  # the seed
        try:
            for check in plan.checks:
                check(bound.flat)
        except ti.TaichiRuntimeError as e:
            return [own, str(e)]
        commands = CommandList(plan.steps, bound.flat, bound.arrays)
        commands.refresh()
        return [own, commands.commands]

    own, expected = loaded.inspect(look, *args)
    text = (tmp_path / "module.txt").read_text().splitlines()
    kinds = ("bound", "return", "memory", "gradient")
    names = [line.split()[1] for line in text if line.split()[0] in kinds]
    call = [current_runtime().device.trash.address, *(own[name].buffer.address for name in names)]
    call += [word for arg in args for word in words_of(arg)]
    done = subprocess.run(
        [driver, tmp_path / "module.txt", kernel.__name__, *map(str, call)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    if isinstance(expected, str):
        assert done.stdout.split(" of ")[0] in expected
        return
    assert done.stdout.split("\n")[:-1] == [
        f"{c[2][0]} {c[2][1]} {c[2][2]} {c[1].hex()}" for c in expected
    ]
    assert bool(expected) is not is_empty


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("block", "block"),
        ("field", "field f f32 1 1 0 0 13" + " 1" * 13),
        ("field", "field f f32 1 1 7 0 1 4"),
        ("bound", "bound f 9"),
        ("value", "value a i32 -1"),
        ("array", "array x f32 1 99"),
        ("dispatch", "dispatch ../push.spv 4 0 8 push"),
        ("dispatch", "dispatch push.spv 4 0 -8 push"),
        ("axis", "axis 0 1"),
        ("slot", "slot ptr x 0 u64 4000"),
        ("slot", "slot ptr x 0 u64 -8"),
        ("slot", "slot ptr x 0 u9000 0"),
        ("slot", "slot count - 77 i32 0"),
        ("slot", "slot count - -1 i32 0"),
        ("slot", "slot value a 4 i32 0"),
        ("slot", "slot dim x 99 i32 0"),
        ("slot", "slot magic_shift x 99 u32 0"),
        ("axis", "axis 16 item:a:7"),
        ("axis", "axis 16 dim:x:99"),
        ("axis", "axis 16 arg:x"),
        ("axis", "axis 16 arg:a wrap:i999"),
        ("axis", "axis 16 9223372036854775807 9223372036854775807 mul"),
        ("axis", "axis 16 1 add"),
    ],
)
def test_tables_that_vkchi_does_not_write(
    driver: Path, tmp_path: Path, line: str, other: str
) -> None:
    """Accesses outside of arrays and blocks are rejected: as a line, or in a launch."""
    f, module = ti.field(ti.f32, 4), ti.aot.Module()

    @ti.kernel
    def push(a: ti.i32, x: ti.types.ndarray(ti.f32, 1)):
        for i in range(a):
            x[i] += f[0]

    module.add_field("f", f)
    module.add_kernel(push)
    module.save(tmp_path)
    table = tmp_path / "module.txt"
    lines = table.read_text().splitlines()[:-1]
    at = next(k for k, text in enumerate(lines) if text.startswith(line + " "))
    text = "".join(f"{one}\n" for one in [*lines[:at], other, *lines[at + 1 :]])
    table.write_text(f"{text}crc {zlib.crc32(text.encode())}\n")
    call = [driver, table, "push", "4096", "4096", "5", "4096", "5"]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode in (2, 5), done.stdout + done.stderr


def test_a_module_of_another_format_is_named(driver: Path, tmp_path: Path) -> None:
    module = ti.aot.Module()
    module.add_kernel(plane)
    module.save(tmp_path)
    table = tmp_path / "module.txt"
    first, *lines = table.read_text().splitlines()[:-1]
    text = "".join(f"{line}\n" for line in (f"{first.split()[0]} 1", *lines))
    table.write_text(f"{text}crc {zlib.crc32(text.encode())}\n")
    done = subprocess.run([driver, table, "plane", "4096"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == "the module is of another format than this header's: vkchi-module 1\n"
