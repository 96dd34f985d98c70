import vkchi as ti


@ti.kernel
def k(x: ti.f32):
    y = ti.bit_cast(x, ti.i64)
