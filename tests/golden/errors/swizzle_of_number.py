import vkchi as ti


@ti.kernel
def k(n: ti.f32):
    y = n.x
