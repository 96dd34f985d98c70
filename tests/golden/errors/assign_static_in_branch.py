import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    m = ti.static(3)
    if n > 0:
        m = 4
