import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    y = n in (1, 2)
