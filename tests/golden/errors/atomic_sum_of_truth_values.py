import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray(dtype=ti.u1, ndim=1)):
    for i in range(64):
        ti.atomic_add(x[0], True)
