import vkchi as ti

x = ti.field(ti.f32, shape=(4, 4))


@ti.kernel
def k(n: ti.i32):
    w = [1.0, 2.0]
    x[0, 0] = w[n]
