import vkchi as ti


@ti.kernel
def k():
    x = ti.randn(ti.i32)
