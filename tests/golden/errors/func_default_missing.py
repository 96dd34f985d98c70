import vkchi as ti


@ti.func
def lerp(a, b, t=0.5):
    return a + (b - a) * t


@ti.kernel
def k() -> ti.f32:
    return lerp(t=0.25)
