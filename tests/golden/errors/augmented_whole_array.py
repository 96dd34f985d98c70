import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    x += 1
