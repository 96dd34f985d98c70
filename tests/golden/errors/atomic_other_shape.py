import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray(dtype=ti.math.vec3, ndim=1)):
    for i in range(64):
        ti.atomic_add(x[0], ti.Vector([1.0, 2.0]))
