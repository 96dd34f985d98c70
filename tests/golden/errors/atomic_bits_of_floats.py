import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in range(64):
        ti.atomic_or(x[0], i)
