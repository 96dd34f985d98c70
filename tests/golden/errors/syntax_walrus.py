import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    if (a := n) > 0:
        pass
