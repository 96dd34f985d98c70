import vkchi as ti


@ti.kernel
def k(x: ti.types.ndarray()):
    if not x:
        pass
