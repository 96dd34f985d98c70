import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    ti.atomic_add(n, 1)
