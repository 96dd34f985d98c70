import vkchi as ti


@ti.kernel
def k():
    R, P = ti.polar_decompose(ti.Matrix([[1.0, 2.0], [3.0, 4.0]]), ti.i32)
