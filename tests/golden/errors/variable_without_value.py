import vkchi as ti


@ti.kernel
def k():
    a: ti.f32
