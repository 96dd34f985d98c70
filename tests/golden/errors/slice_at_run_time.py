import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    v = ti.Vector([1, 2, 3, 4])
    w = v[:n]
