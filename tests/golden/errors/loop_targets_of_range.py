import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    for i, j in range(n):
        pass
