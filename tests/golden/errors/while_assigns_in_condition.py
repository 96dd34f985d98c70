import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    left = n
    while (left := left - 1) > 0:
        pass
