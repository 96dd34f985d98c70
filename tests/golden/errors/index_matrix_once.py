import vkchi as ti


@ti.kernel
def k():
    m = ti.Matrix([[1, 2], [3, 4]])
    r = m[1]
