import vkchi as ti


@ti.kernel
def k():
    v = ti.math.vec4(1, 2, 3, 4)
    x = ti.math.cross(v, v)
