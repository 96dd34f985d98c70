import vkchi as ti


@ti.kernel
def k():
    x = ti.solve(ti.Matrix([[1.0, 2.0], [3.0, 4.0]]), ti.Vector([1.0, 2.0, 3.0]))
