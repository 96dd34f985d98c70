import vkchi as ti


@ti.kernel
def k(n: ti.i32):
    d = {i + n: i for i in range(3)}
