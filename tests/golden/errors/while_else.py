import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    while n > 0:
        pass
    else:
        pass
