import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k(n: ti.i32):
    if n > 0:
        q = 1
    x[0, 0] = q
