import vkchi as ti


@ti.kernel
def k():
    U, S = ti.svd(ti.Matrix([[1.0, 2.0], [3.0, 4.0]]))
