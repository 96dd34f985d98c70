import vkchi as ti


@ti.kernel
def k(x: ti.f32):
    y = ti.math.clamp(x, 0.0)
