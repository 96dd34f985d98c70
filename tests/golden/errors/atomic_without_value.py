import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray(dtype=ti.i32, ndim=1)):
    for i in range(64):
        ti.atomic_max(x[0])
