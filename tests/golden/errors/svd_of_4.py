import vkchi as ti


@ti.kernel
def k():
    m = ti.Matrix.identity(ti.f32, 4)
    U, S, V = ti.svd(m)
