import vkchi as ti


@ti.kernel
def k():
    a, b = ti.Matrix([[1, 2], [3, 4]])
