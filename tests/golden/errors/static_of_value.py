import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    if ti.static(n > 0):
        pass
