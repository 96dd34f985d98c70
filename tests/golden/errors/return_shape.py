import vkchi as ti


@ti.kernel
def k() -> ti.f32:
    return ti.Vector([1.0, 2.0])
