import vkchi as ti


@ti.func
def length(v: ti.math.vec3):
    return v.norm()


@ti.kernel
def k() -> ti.f32:
    return length(ti.Vector([1.0, 2.0]))
