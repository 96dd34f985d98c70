import vkchi as ti


@ti.kernel
def k():
    w, v = ti.sym_eig(ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
