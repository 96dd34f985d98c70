import vkchi as ti


@ti.func
def scale(x):
    return x * 2.0


@ti.kernel
def k() -> ti.f32:
    return scale + 1.0
