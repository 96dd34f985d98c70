import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    f = ti.sin
    if n > 0:
        f = ti.cos
