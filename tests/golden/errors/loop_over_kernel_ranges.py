import vkchi as ti

x = ti.field(ti.f32, 4)


@ti.kernel
def k(n: ti.i32):
    for i, j in [range(n), range(4)]:
        x[i] = j
