"""Saves the module that heat.c runs: heat that spreads in a plate, with a field and three kernels.

python examples/c/heat.py heat_module INCLUDE=$(python -c "import vkchi.aot;
print(vkchi.aot.include())") cc -O2 -I "$INCLUDE" examples/c/heat.c -o heat -lvulkan && ./heat
heat_module
"""

import sys

import vkchi as ti

N = 32

ti.init(arch=ti.vulkan)
source = ti.field(ti.f32, shape=(N, N))
plate = ti.types.ndarray(dtype=ti.f32, ndim=2)


@ti.kernel
def place(row: ti.i32, at: ti.math.vec2):
    for i, j in source:
        near = ti.abs(ti.Vector([i, j]) - at)
        source[i, j] = 1.0 if i == row or (near.x < 2 and near.y < 2) else 0.0


@ti.kernel
def spread(rate: ti.f32, old: plate, new: plate):
    for i, j in old:
        around = 0.0
        for di, dj in ti.static([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            if 0 <= i + di < old.shape[0] and 0 <= j + dj < old.shape[1]:
                around += old[i + di, j + dj] - old[i, j]
        new[i, j] = old[i, j] + rate * around + 0.01 * source[i, j]


@ti.kernel
def total(x: plate) -> ti.f32:
    found = 0.0
    for i, j in x:
        found += x[i, j]
    return found


module = ti.aot.Module(ti.vulkan)
module.add_field("source", source)
for kernel in (place, spread, total):
    module.add_kernel(kernel)
module.save(sys.argv[1] if len(sys.argv) > 1 else "heat_module")
