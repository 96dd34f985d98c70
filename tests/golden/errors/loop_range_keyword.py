import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    for i in range(n, step=2):
        pass
