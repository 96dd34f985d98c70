import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    v = ti.Vector([i for i in range(4) if i < n])
