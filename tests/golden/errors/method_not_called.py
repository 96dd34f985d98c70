import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    v = ti.Vector([n, 1])
    y = v.norm
