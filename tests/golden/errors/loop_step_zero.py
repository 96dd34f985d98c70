import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    for i in range(0, n, 0):
        pass
