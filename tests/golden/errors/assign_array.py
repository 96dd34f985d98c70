import vkchi as ti


@ti.kernel
def k(a: ti.types.ndarray()):
    a = 3
