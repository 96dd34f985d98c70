import vkchi as ti


@ti.kernel
def k():
    x: ti.f32 = ti.Vector([1.0, 2.0])
