import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    w = [i for i in range(n)]
